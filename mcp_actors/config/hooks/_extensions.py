"""Validate and adapt the extensions of the protocol that the client supports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

import attrs
from mcp import Client
from mcp.client import ClientExtension, NotificationBinding, ResultClaim, Transport

from ..._foreign import always_async
from .. import _validators as check

Adapt: TypeAlias = Callable[[Any], Any]
"""Returns a function that takes the place of another one."""


def to_extensions(value: Iterable[ClientExtension]) -> tuple[ClientExtension, ...]:
    """Return extensions as a tuple, for `check_extensions`."""
    return check.as_tuple(value)


_check_tuple: Final = check.tuple_of(
    lambda each: isinstance(each, ClientExtension),
    "give a tuple of mcp.client.ClientExtension objects, such as mcp.client.advertise('com.example/thing')",
)


def check_extensions(instance: Any, attribute: attrs.Attribute[Any], value: tuple[ClientExtension, ...]) -> None:
    """Refuse anything but a tuple of extensions that are compatible with each other."""
    _check_tuple(instance, attribute, value)
    try:
        # The SDK validates extensions only when a client is made, so make one that is never used.
        Client(cast("Transport", None), extensions=value)
    except (TypeError, ValueError) as exc:
        raise check.refused_text(instance, attribute.name, f"<{len(value)} of them>", str(exc)) from exc


class AdaptedExtension(ClientExtension):
    """An extension with other functions in the place of its own, which may be async or not.

    The declarations of the extension are read once, by ``__init__``. The SDK would read them at every connect.

    Args:
        extension: the extension of the program.
        adapt_claim: returns what resolves a claim in the place of its function.
        adapt_handler: returns what handles a notification in the place of its function.
    """

    def __init__(
        self, extension: ClientExtension, adapt_claim: Adapt = always_async, adapt_handler: Adapt = always_async
    ) -> None:
        self.identifier: str = extension.identifier
        self._settings = extension.settings()
        self._claims = [replace(claim, resolve=adapt_claim(claim.resolve)) for claim in extension.claims()]
        self._notifications = [
            replace(binding, handler=adapt_handler(binding.handler)) for binding in extension.notifications()
        ]

    def settings(self) -> dict[str, Any]:
        """Return the settings that the extension advertises."""
        return self._settings

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the extension's claims."""
        return self._claims

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        """Return the extension's bindings."""
        return self._notifications
