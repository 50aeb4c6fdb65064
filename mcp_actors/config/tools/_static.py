"""Declare tools for a server that does not list its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from mcp.types import Tool
from pydantic_core import ValidationError

from ..._errors import ConfigError
from .. import _validators as check

__all__ = ["check_static_tools", "to_static_tools"]

_REMEDY = "give mcp.types.Tool objects, or mappings with a name and an inputSchema, each name once"


def to_static_tools(value: Iterable[Tool | Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Return tools as a tuple, converting mappings; return anything else unchanged, for `check_static_tools` to refuse.

    Raises:
        ConfigError: a mapping is not a valid tool.
    """
    if isinstance(value, (str, Mapping)):
        return value  # type: ignore[return-value]  # it is refused by the validator
    try:
        return tuple(_to_tool(number, each) for number, each in enumerate(value, start=1))
    except TypeError:
        return value  # type: ignore[return-value]  # it is refused by the validator


def _to_tool(number: int, value: Tool | Mapping[str, Any]) -> Tool:
    if not isinstance(value, Mapping):
        return value
    try:
        return Tool.model_validate(value)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        name = check.shown(value["name"]) if "name" in value else f"number {number}"
        raise ConfigError(
            f"static_tools: tool {name}: {where}: {first['msg']}; {_REMEDY}", source="ServerConfig", path="static_tools"
        ) from None


def check_static_tools(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse anything but a tuple of tools with distinct names."""
    if not isinstance(value, tuple):
        raise check.refused_text(instance, attribute.name, f"<{type(value).__name__}>", _REMEDY)
    seen = set()
    for each in value:
        if not isinstance(each, Tool):
            shown = f"<a tuple with {check.a_type(each)} in it>"
            raise check.refused_text(instance, attribute.name, shown, _REMEDY)
        if each.name in seen:
            raise check.refused_text(instance, attribute.name, f"{each.name!r} twice", _REMEDY)
        seen.add(each.name)
