"""The hook around the tool calls of a `PydanticAIToolset`, in runs of Pydantic AI's own agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from mcp_actors import InProcess, ServerConfig
from mcp_actors.bridge import open_servers

from .frameworks import Call, PydanticAI
from .later import Later

if TYPE_CHECKING:
    import pydantic_ai
else:
    pydantic_ai = Later("pydantic_ai")


class Pantry:
    """A server that reports what it was sent, or fails."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []
        self.server: Server[Any] = Server("pantry", on_list_tools=self.list_tools, on_call_tool=self.call_tool)

    async def list_tools(self, context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in ("take", "spoil")])

    async def call_tool(self, context: Any, params: Any) -> CallToolResult:
        meta = {key: value for key, value in (params.meta or {}).items() if key == "tenant"}
        self.calls.append((params.name, params.arguments, meta))
        text = TextContent(type="text", text=f"{params.name} {(params.arguments or {}).get('what')}")
        return CallToolResult(content=[text], is_error=params.name == "spoil")


async def take_flour(turn: int, offered: list[str], heard: list[str]) -> Call | str:
    return ("mcp__pantry__take", {"what": "flour"}) if turn == 1 else heard[-1]


def run_with(hook: Any, think: Any = take_flour, **options: Any) -> tuple[str, list[tuple[str, Any, Any]]]:
    """Run an agent with a hook; return its last words and what the server was sent."""
    pantry = Pantry()

    async def main() -> str:
        async with open_servers(ServerConfig("pantry", InProcess(pantry.server))) as servers:
            return await PydanticAI().run(servers, think, process_tool_call=hook, **options)

    return asyncio.run(main()), pantry.calls


def test_the_hook_has_the_context_of_the_run_and_may_change_everything() -> None:
    async def hook(ctx: pydantic_ai.RunContext[str], call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
        assert (ctx.deps, ctx.agent and ctx.agent.name, ctx.tool_name) == ("the run", "agent", name)
        result = await call_tool(name, {**arguments, "grams": 500}, metadata={"tenant": ctx.deps})
        return f"{name}: {result}, weighed"

    said, calls = run_with(hook)
    assert said == "mcp__pantry__take: take flour, weighed"
    assert calls == [("take", {"what": "flour", "grams": 500}, {"tenant": "the run"})]


def test_a_hook_that_calls_nothing_answers_itself() -> None:
    async def hook(ctx: Any, call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
        return "from the cupboard"

    assert run_with(hook) == ("from the cupboard", [])


def test_a_hook_refuses_with_the_exceptions_of_the_framework() -> None:
    async def hook(ctx: Any, call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
        raise pydantic_ai.ModelRetry("not before noon")

    said, calls = run_with(hook)
    assert "not before noon" in said
    assert calls == []


def test_an_error_of_a_hook_ends_the_run() -> None:
    async def hook(ctx: Any, call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
        raise LookupError("no budget")

    with pytest.raises(LookupError, match="no budget"):
        run_with(hook)


def test_a_hook_sees_failures_as_the_model_would_and_may_handle_them() -> None:
    async def hook(ctx: Any, call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
        try:
            return await call_tool("mcp__pantry__spoil", arguments)
        except pydantic_ai.ToolFailed as exc:
            return f"{exc.message}; {await call_tool(name, arguments)}"

    said, calls = run_with(hook, tool_error_behavior="failed")
    assert said == "spoil flour; take flour"
    assert [name for name, *_ in calls] == ["spoil", "take"]


def test_a_hook_calls_only_tools_of_its_servers() -> None:
    async def hook(ctx: Any, call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
        return await call_tool("mcp__cellar__take", arguments)

    said, calls = run_with(hook, servers=["pantry"])
    assert "mcp__cellar__take" in said
    assert calls == []


def test_a_run_that_is_cancelled_cancels_a_hook() -> None:
    async def main() -> None:
        waits, ended = asyncio.Event(), asyncio.Event()

        async def hook(ctx: Any, call_tool: Any, name: str, arguments: dict[str, Any]) -> Any:
            try:
                waits.set()
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with open_servers(ServerConfig("pantry", InProcess(Pantry().server))) as servers:
            run = asyncio.create_task(PydanticAI().run(servers, take_flour, process_tool_call=hook))
            await waits.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert ended.is_set()

    asyncio.run(main())
