"""``mcp-actors tools``: list the tools of the servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._configuration import load
from .._output import Output
from .._session import masker_of, open_once


async def list_tools(names: Sequence[str], config: str | None, output: Output) -> int:
    """Print the tools of the servers, and return the exit code."""
    loaded = load(config, names, output)
    async with open_once(loaded, output) as group:
        listed: list[dict[str, Any]] = []
        for tool in group.tools:
            mask = masker_of(group[tool.server])
            description = mask.data(tool.description)
            arguments = ", ".join(_arguments(tool.input_schema))
            output.line((tool.server, "dim"), " ", (tool.name, "bold"), f"({arguments})")
            for line in (description or "").strip().splitlines()[:1]:
                output.line(f"    {line.strip()}")
            listed.append(
                {
                    "server": tool.server,
                    "name": tool.name,
                    "public_name": tool.public_name,
                    "description": description,
                    "input_schema": tool.input_schema,
                }
            )
        output.json(listed)
        errors = [*loaded.errors, *group.errors.values()]
    return output.errors(errors)


def _arguments(schema: Any) -> list[str]:
    """Return the names of a tool's arguments, optional ones in brackets."""
    required = schema.get("required", ())
    names = schema.get("properties") or {}
    return [name if name in required else f"[{name}]" for name in names]
