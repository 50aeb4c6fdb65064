"""Validate the extensions of the protocol that the client supports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import attrs
from mcp import Client
from mcp.client import ClientExtension, Transport

from .. import _validators as check


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
