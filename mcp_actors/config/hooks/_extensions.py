"""Validate the extensions of the protocol that the client supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs
from mcp import Client
from mcp.client import ClientExtension, Transport

from .. import _validators as check


def to_extensions(value: Iterable[ClientExtension]) -> tuple[ClientExtension, ...]:
    """Return extensions as a tuple; return anything else unchanged, for `check_extensions` to refuse."""
    if isinstance(value, Mapping | str):
        return value  # type: ignore[return-value]  # it is refused by the validator
    try:
        return tuple(value)
    except TypeError:
        return value  # type: ignore[return-value]  # it is refused by the validator


def check_extensions(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse anything but a tuple of extensions that are compatible with each other."""
    remedy = "give a tuple of mcp.client.ClientExtension objects, such as mcp.client.advertise('com.example/thing')"
    if not isinstance(value, tuple):
        raise check.refused_text(instance, attribute.name, f"<{type(value).__name__}>", remedy)
    odd = next((each for each in value if not isinstance(each, ClientExtension)), None)
    if odd is not None:
        raise check.refused_text(instance, attribute.name, f"<a tuple with {check.a_type(odd)} in it>", remedy)
    try:
        # The SDK validates extensions only when a client is made, so make one that is never used.
        Client(cast("Transport", None), extensions=value)
    except (TypeError, ValueError) as exc:
        raise check.refused_text(instance, attribute.name, f"<{len(value)} of them>", str(exc)) from exc
