"""``mcp-actors tools``: what the servers offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._configuration import load
from .._output import Output
from .._session import masker_of, open_once

__all__ = ["list_tools"]


async def list_tools(names: Sequence[str], config: str | None, output: Output) -> int:
    """Print the tools of the servers, and return the exit code."""
    loaded = load(config, names, output)
    async with open_once(loaded, output) as group:
        listed: list[dict[str, Any]] = []
        for tool in group.tools:
            mask = masker_of(group[tool.server])
            description = mask.data(tool.description)
            takes = ", ".join(_words(tool.input_schema))
            output.line((tool.server, "dim"), " ", (tool.name, "bold"), f"({takes})")
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
    for error in errors:
        output.error(error)
    return 1 if errors else 0


def _words(schema: Any) -> list[str]:
    """Return the arguments of a tool, those in brackets that need not be given."""
    required = schema.get("required", ())
    names = schema.get("properties") or {}
    return [name if name in required else f"[{name}]" for name in names]
