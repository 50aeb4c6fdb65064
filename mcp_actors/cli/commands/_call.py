"""``mcp-actors call``: call a tool once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp import MCPError
from mcp.types import CallToolResult, EmbeddedResource, TextContent, TextResourceContents
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from ..._text import plain_text
from ...catalog import CatalogTool
from ...config import ProgressCallback
from .._configuration import load
from .._output import Output
from .._problems import Failure, unknown
from .._session import masker_of, open_once
from ._arguments import parse_arguments


async def call_tool(
    server: str, tool: str, words: Sequence[str], as_json: str | None, config: str | None, output: Output
) -> int:
    """Call a tool, print its result, and return the exit code."""
    loaded = load(config, [server], output)
    for error in loaded.errors:
        raise error
    async with open_once(loaded, output, strict=True) as group:
        [(server, ref)] = group.items()  # by its name here
        mask = masker_of(ref)
        found = _find([each for each in group.tools if each.server == server], server, tool)
        arguments = parse_arguments(words, as_json, found.input_schema)
        async with _progress_bar(output) as report:
            try:
                result = await ref.call_tool(found.name, arguments, progress=report)
            except MCPError as error:
                message = f"answered with an error: {error.message} (code {error.code})"
                raise Failure(f"server {server!r} {message}") from None
    output.json(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    if result.is_error:
        output.error(f"tool {tool!r} failed: {mask(_text_of(result)) or 'the server gave no reason'}")
        return 1
    output.text(_text_of(result))
    return 0


def _find(tools: list[CatalogTool], server: str, name: str) -> CatalogTool:
    for tool in tools:
        if name in (tool.name, tool.public_name):
            return tool
    names = [tool.name for tool in tools]
    raise unknown(f"server {server!r} has no tool {name!r}", name, names, "tools")


@asynccontextmanager
async def _progress_bar(output: Output) -> AsyncIterator[ProgressCallback]:
    """Show a bar on stderr from the first progress on, if stderr is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    # By default rich refreshes it from a thread of its own.
    bar = Progress(*columns, console=output.messages, auto_refresh=False, transient=True)
    task = bar.add_task("", total=None)

    async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        if output.messages.is_terminal:
            bar.start()
            bar.update(task, completed=progress, total=total, description=_short(message), refresh=True)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def _short(message: str | None) -> str:
    """Return a server's progress message as a short plain text, not as markup for rich."""
    return escape(plain_text(message or "", limit=60))


def _text_of(result: CallToolResult) -> str:
    """Return a result as text: its texts, or its structured content; other parts by their type and size."""
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, indent=2, ensure_ascii=False)
    return "\n".join(parts)


def _part(part: Any) -> str:
    if isinstance(part, TextContent):
        return part.text
    if isinstance(part, EmbeddedResource) and isinstance(part.resource, TextResourceContents):
        return part.resource.text
    data = getattr(part, "data", "")
    size = f", {len(data) * 3 // 4} bytes" if data else ""
    where = getattr(part, "uri", None) or getattr(part, "mime_type", None) or ""
    return f"[{part.type} {where}{size}; see it with --json]"
