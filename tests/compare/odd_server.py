"""A server over stdio with the tools that its arguments name: ``python odd_server.py echo search search``.

It is for what a scripted server does not do: it lists a name twice, reports progress, and breaks its own schema.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Final

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

ANY: Final = {"type": "object"}
DEGREES: Final = {"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]}


async def list_tools(names: list[str], _context: object, _params: object) -> ListToolsResult:
    """List the tools; only ``forecast`` says what its results look like."""
    schemas = {"forecast": DEGREES}
    return ListToolsResult(tools=[Tool(name=name, input_schema=ANY, output_schema=schemas.get(name)) for name in names])


async def call_tool(context: Any, params: Any) -> CallToolResult:
    """Answer a call."""
    arguments = params.arguments or {}
    if params.name == "count":
        for number in (1, 2, 3):
            await context.session.report_progress(number, 3)
    structured = {"degrees": "warm"} if params.name == "forecast" else None
    text = arguments.get("text", "done") if structured is None else '{"degrees": "warm"}'
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


async def main(names: list[str]) -> None:
    """Serve until stdin ends."""
    server: Server[Any] = Server("odd", on_list_tools=partial(list_tools, names), on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, sys.argv[2:])
