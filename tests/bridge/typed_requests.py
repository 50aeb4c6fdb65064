"""The types of requests and their results, for each kind of ref. Nothing runs this file.

It is checked like `typed_handlers`: an ignore that is not needed is an error.
"""

from __future__ import annotations

from typing import assert_type

from mcp.types import CallToolResult, GetPromptResult, ReadResourceResult

from mcp_actors import ServerRef
from mcp_actors.bridge import AsyncioServerRef
from mcp_actors.sync import SyncServerRef


async def request(ref: ServerRef) -> None:
    assert_type(await ref.call_tool("add", {"a": 1}, idempotent=True), CallToolResult)
    assert_type(await ref.get_prompt("plan", {"meal": "tea"}), GetPromptResult)
    assert_type(await ref.read_resource("a:b"), ReadResourceResult)


async def request_on_asyncio(ref: AsyncioServerRef) -> None:
    assert_type(await ref.call_tool("add", {"a": 1}, idempotent=True), CallToolResult)
    assert_type(await ref.get_prompt("plan", {"meal": "tea"}), GetPromptResult)
    assert_type(await ref.read_resource("a:b", meta={"k": 1}), ReadResourceResult)
    await ref.call_tool("add", input_required="return")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ref.read_resource("a:b", request_state="1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def request_in_a_thread(ref: SyncServerRef) -> None:
    assert_type(ref.call_tool("add", {"a": 1}, idempotent=True), CallToolResult)
    assert_type(ref.get_prompt("plan", {"meal": "tea"}), GetPromptResult)
    assert_type(ref.read_resource("a:b", meta={"k": 1}), ReadResourceResult)
    ref.read_resource(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
