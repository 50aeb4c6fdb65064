"""Extensions of the protocol that this side takes part in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs
from mcp import Client
from mcp.client import ClientExtension, Transport

from .. import _validators as check


def to_extensions(value: Iterable[ClientExtension]) -> tuple[ClientExtension, ...]:
    """Return extensions as a tuple; leave what is no sequence of them to `check_extensions`."""
    if isinstance(value, Mapping | str):
        return value  # type: ignore[return-value]  # whatever it is, it is refused
    try:
        return tuple(value)
    except TypeError:
        return value  # type: ignore[return-value]  # likewise


def check_extensions(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is no tuple of extensions that go together."""
    remedy = "give a tuple of mcp.client.ClientExtension objects, such as mcp.client.advertise('com.example/thing')"
    if not isinstance(value, tuple):
        raise check.refused_text(instance, attribute.name, f"<{type(value).__name__}>", remedy)
    odd = next((each for each in value if not isinstance(each, ClientExtension)), None)
    if odd is not None:
        raise check.refused_text(instance, attribute.name, f"<a tuple with {check.a_type(odd)} in it>", remedy)
    try:
        # What the SDK has to say about them it says when a client is made; this one is never used.
        Client(cast("Transport", None), extensions=value)
    except (TypeError, ValueError) as exc:
        raise check.refused_text(instance, attribute.name, f"<{len(value)} of them>", str(exc)) from exc
