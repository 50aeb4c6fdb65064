"""Requests that are bounded, watched, wrapped and tried again. A clock that jumps spares the waiting.

Prints::

    no answer within two seconds
    server 'indexer': tools/call 'crawl' timed out after 30 s without progress ...
    1 of 3 read
    2 of 3 read
    3 of 3 read
    built
    files/delete {'path': 'notes.txt'}: done, ... s
    notes.txt is deleted for acme
    files/delete {'path': 'thesis.txt'}: is_error, ... s
    refused by the user
    found at attempt 2
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import attrs
import trio
import trio.testing
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import INTERNAL_ERROR, CallToolResult, TextContent

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    InProcess,
    RequestTimedOut,
    RetryPolicy,
    ServerConfig,
    ServerGroup,
    ToolRequest,
    open_servers,
    result_value,
)
from mcp_actors.config import CallNext

finder = MCPServer("finder", log_level="WARNING")
attempts = iter(range(1, 10))
indexer = MCPServer("indexer", log_level="WARNING")
files = MCPServer("files", log_level="WARNING")
protected = ["thesis.txt"]


@indexer.tool()
async def crawl() -> str:
    """Look at everything, which takes a day."""
    await trio.sleep(24 * 60 * 60)
    return "done"


@indexer.tool()
async def build(ctx: Context[Any], parts: int) -> str:
    """Build the index of so many parts."""
    for part in range(parts):
        await ctx.report_progress(part + 1, parts, "read")
    return "built"


@files.tool()
async def delete(ctx: Context[Any], path: str) -> str:
    """Delete a file."""
    meta = dict(ctx.request_context.meta or {})
    return f"{path} is deleted for {meta['tenant']}"


@finder.tool()
async def find(query: str) -> str:
    """Find something, but not at the first attempt."""
    attempt = next(attempts)
    if attempt == 1:
        raise MCPError(INTERNAL_ERROR, "the index is locked")
    return f"found at attempt {attempt}"


async def bound(servers: ServerGroup) -> None:
    with trio.move_on_after(2) as scope:
        await servers["indexer"].call_tool("crawl")
    if scope.cancelled_caught:
        print("no answer within two seconds")

    try:
        await servers["indexer"].call_tool("crawl")
    except RequestTimedOut as error:
        print(error)


async def show(progress: float, total: float | None, message: str | None) -> None:
    print(f"{progress:g} of {total or '?'} {message or ''}")


async def watch(servers: ServerGroup) -> None:
    result = await servers["indexer"].call_tool("build", {"parts": 3}, progress=show)
    print(result_value(result))


async def log_call(request: ToolRequest, call_next: CallNext) -> CallToolResult:
    began, outcome = perf_counter(), "raised or cancelled"
    try:
        result = await call_next(request)
        outcome = "is_error" if result.is_error else "done"
        return result
    finally:  # a timeout of the call cancels `call_next`
        call = f"{request.server}/{request.name} {dict(request.arguments or {})}"
        print(f"{call}: {outcome}, {perf_counter() - began:.3f} s")


async def tag(request: ToolRequest, call_next: CallNext) -> CallToolResult:
    return await call_next(attrs.evolve(request, meta={"tenant": "acme"}))


async def approve(request: ToolRequest, call_next: CallNext) -> CallToolResult:
    if request.name == "delete" and not await ask_somebody(request):
        return CallToolResult(
            content=[TextContent(type="text", text="refused by the user")],
            is_error=True,
        )
    return await call_next(request)


async def ask_somebody(request: ToolRequest) -> bool:
    await trio.sleep(600)  # a person thinks
    return (request.arguments or {}).get("path") not in protected


async def delete_files(servers: ServerGroup) -> None:
    for path in ("notes.txt", "thesis.txt"):
        result = await servers["files"].call_tool("delete", {"path": path})
        print(*(getattr(part, "text", part) for part in result.content))


async def find_once_more(servers: ServerGroup) -> None:
    result = await servers["finder"].call_tool(
        "find", {"query": "actors"}, idempotent=True
    )
    print(result_value(result))


slow = ServerConfig(
    "indexer", InProcess(indexer), request_timeout=600, progress_timeout=30
)
guarded = ServerConfig(
    "files", InProcess(files), middleware=[log_call, tag, approve], request_timeout=None
)
flaky = ServerConfig(
    "finder",
    InProcess(finder),
    retry=RetryPolicy(
        attempts=5, backoff=Backoff(first=0.5, initial=1, maximum=20, jitter=0.5)
    ),
    breaker=BreakerPolicy(failures=5, reset_after=30),
    trust_annotations=True,
)


async def main() -> None:
    async with open_servers(slow, guarded, flaky) as servers:
        await bound(servers)
        await watch(servers)
        await delete_files(servers)
        await find_once_more(servers)


trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
