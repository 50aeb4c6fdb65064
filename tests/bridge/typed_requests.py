"""The types of requests that return the question of a server, for each kind of ref. Nothing runs this file.

It is checked like `typed_handlers`: an ignore that is not needed is an error.
"""

from __future__ import annotations

from typing import assert_type

from mcp.types import CallToolResult, GetPromptResult, InputRequiredResult, ReadResourceResult

from mcp_actors import ServerRef
from mcp_actors.bridge import AsyncioServerRef
from mcp_actors.sync import SyncServerRef


async def request(ref: ServerRef) -> None:
    assert_type(await ref.call_tool("add", {"a": 1}, idempotent=True), CallToolResult)
    assert_type(await ref.call_tool("add", input_required="return"), CallToolResult | InputRequiredResult)
    assert_type(await ref.get_prompt("plan", {"meal": "tea"}), GetPromptResult)
    assert_type(await ref.get_prompt("plan", input_required="return"), GetPromptResult | InputRequiredResult)
    assert_type(await ref.read_resource("a:b"), ReadResourceResult)
    assert_type(await ref.read_resource("a:b", input_required="return"), ReadResourceResult | InputRequiredResult)


async def request_on_asyncio(ref: AsyncioServerRef) -> None:
    assert_type(await ref.call_tool("add", {"a": 1}, idempotent=True), CallToolResult)
    assert_type(await ref.call_tool("add", input_required="return"), CallToolResult | InputRequiredResult)
    assert_type(await ref.get_prompt("plan", {"meal": "tea"}), GetPromptResult)
    assert_type(await ref.get_prompt("plan", input_required="return"), GetPromptResult | InputRequiredResult)
    assert_type(await ref.read_resource("a:b", request_state="1"), ReadResourceResult)
    assert_type(await ref.read_resource("a:b", input_required="return"), ReadResourceResult | InputRequiredResult)
    await ref.call_tool("add", input_require="return")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def request_in_a_thread(ref: SyncServerRef) -> None:
    assert_type(ref.call_tool("add", {"a": 1}, idempotent=True), CallToolResult)
    assert_type(ref.call_tool("add", input_required="return"), CallToolResult | InputRequiredResult)
    assert_type(ref.get_prompt("plan", {"meal": "tea"}), GetPromptResult)
    assert_type(ref.get_prompt("plan", input_required="return"), GetPromptResult | InputRequiredResult)
    assert_type(ref.read_resource("a:b", request_state="1"), ReadResourceResult)
    assert_type(ref.read_resource("a:b", input_required="return"), ReadResourceResult | InputRequiredResult)
    ref.read_resource(7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
