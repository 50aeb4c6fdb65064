"""Declare tools for a server that does not list its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from mcp.types import Tool
from pydantic_core import ValidationError

from ..._errors import ConfigError
from .. import _validators as check

_REMEDY = "give mcp.types.Tool objects, or mappings with a name and an inputSchema, each name once"


def to_static_tools(value: Iterable[Tool | Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Return tools as a tuple, converting mappings, for `check_static_tools`.

    Raises:
        ConfigError: a mapping is not a valid tool.
    """
    tools: Any = check.as_tuple(value)
    if not isinstance(tools, tuple):
        return tools  # type: ignore[no-any-return]  # it is refused by the validator
    return tuple(_to_tool(number, each) for number, each in enumerate(tools, start=1))


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


_check_tuple: Final = check.tuple_of(lambda each: isinstance(each, Tool), _REMEDY)


def check_static_tools(instance: Any, attribute: attrs.Attribute[Any], value: tuple[Tool, ...]) -> None:
    """Refuse anything but a tuple of tools with distinct names."""
    _check_tuple(instance, attribute, value)
    names: set[str] = set()
    for tool in value:
        if tool.name in names:
            raise check.refused_text(instance, attribute.name, f"{tool.name!r} twice", _REMEDY)
        names.add(tool.name)
