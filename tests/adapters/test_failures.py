"""Failures are presented in the way of each framework, as configured, or raised (S1-21)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from mcp import MCPError

from mcp_actors import (
    ConfigError,
    ConnectionLost,
    InvalidArguments,
    RequestTimedOut,
    ServerConfig,
    ServerUnavailable,
    ToolFailed,
    ToolFilter,
    ToolNotFound,
    adapters,
)
from mcp_actors.bridge import AsyncioServerGroup, open_servers
from mcp_actors.config import ToolContext
from tests.servers.groups import BOUND, LATER, NEVER, server

from ..messages import Said
from .frameworks import FRAMEWORKS, Call
from .later import Later

if TYPE_CHECKING:
    import agents
    import pydantic_ai
else:
    agents, pydantic_ai = Later("agents"), Later("pydantic_ai")

FAIL: Call = ("mcp__a__fail", {})
TIME_OUT: Call = ("mcp__a__sleep", {"seconds": 600})
CRASH: Call = ("mcp__a__crash", {"code": 3})
MISSING: Call = ("mcp__a__add", {"a": 1})


def config(*flags: str, **options: Any) -> ServerConfig:
    """A server that is not connected again once it is lost."""
    return server("a", *flags, restarts=NEVER, **options)


def heard_of(framework: str, call: Call, *flags: str, **options: Any) -> str:
    """Make a call in a run, and return what the model hears of it."""

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        return call if turn == 1 else heard[0]

    async def main() -> str:
        async with open_servers(config(*flags, request_timeout=0.1 if call is TIME_OUT else BOUND)) as servers:
            return await FRAMEWORKS[framework].run(servers, think, **options)

    return asyncio.run(main())


TOLD: Any = lambda _, error: f"told: {error}"  # noqa: E731 - it is one argument of several tests


@pytest.mark.parametrize(
    ("framework", "call", "options", "words"),
    [
        ("openai-agents", FAIL, {}, "^failed as asked$"),
        ("openai-agents", CRASH, {}, "^An error occurred while running the tool. Please try again.$"),
        ("openai-agents", CRASH, {"failure_error_function": TOLD}, "^told: .*: server 'a': connection lost"),
        ("openai-agents", TIME_OUT, {"failure_error_function": TOLD}, "^told: .*: server 'a': .* 0.1 s"),
        ("openai-agents", MISSING, {"failure_error_function": TOLD}, "^told: .*'b'"),
        ("pydantic-ai", FAIL, {}, "^failed as asked$"),
        ("pydantic-ai", FAIL, {"tool_error_behavior": "failed"}, "^failed as asked$"),
        ("pydantic-ai", MISSING, {}, "'b'"),
        ("pydantic-ai", MISSING, {"tool_error_behavior": "failed"}, "'b'"),
        ("pydantic-ai", TIME_OUT, {"server_error_behavior": "failed"}, "^server 'a': .* 0.1 s"),
        ("pydantic-ai", CRASH, {"server_error_behavior": "retry"}, "^server 'a': connection lost"),
        ("langchain", FAIL, {"handle_tool_error": True}, "^failed as asked$"),
        ("langchain", TIME_OUT, {"handle_tool_error": True}, "^server 'a': .* 0.1 s"),
        (
            "langchain",
            CRASH,
            {"handle_tool_error": lambda error: f"told: {error}"},
            "^told: server 'a': connection lost",
        ),
        ("langchain", MISSING, {"handle_tool_error": "no"}, "^no$"),
        ("anthropic", FAIL, {}, "^failed as asked$"),
        ("anthropic", TIME_OUT, {}, "server 'a': .* 0.1 s"),
        ("anthropic", CRASH, {}, "server 'a': connection lost"),
    ],
)
def test_what_the_model_hears(framework: str, call: Call, options: dict[str, Any], words: str) -> None:
    """S1-21: it is configurable, in the words of the framework."""
    heard = heard_of(framework, call, **options)
    assert re.search(words, heard, re.DOTALL), heard


OPENAI = {"failure_error_function": None}
PYDANTIC = {"tool_error_behavior": "error"}


@pytest.mark.parametrize(
    ("framework", "call", "options", "error"),
    [
        ("openai-agents", CRASH, OPENAI, ConnectionLost),
        ("openai-agents", TIME_OUT, OPENAI, RequestTimedOut),
        ("openai-agents", MISSING, OPENAI, InvalidArguments),
        ("pydantic-ai", CRASH, {}, ConnectionLost),
        ("pydantic-ai", TIME_OUT, {}, RequestTimedOut),
        ("pydantic-ai", FAIL, PYDANTIC, ToolFailed),
        ("pydantic-ai", MISSING, PYDANTIC, InvalidArguments),
        ("langchain", CRASH, {}, ConnectionLost),
        ("langchain", TIME_OUT, {}, RequestTimedOut),
        ("langchain", MISSING, {}, InvalidArguments),
    ],
)
def test_an_unhandled_failure_ends_the_run(
    framework: str, call: Call, options: dict[str, Any], error: type[Exception]
) -> None:
    """S1-21: the exception is raised, as it is; in the OpenAI SDK it is the cause of its own."""
    with pytest.raises((error, agents.AgentsException)) as caught:
        heard_of(framework, call, **options)
    if framework == "openai-agents":
        assert isinstance(caught.value.__cause__, error)
    else:
        assert isinstance(caught.value, error)


def test_a_tool_of_langchain_that_failed_raises_what_langchain_expects() -> None:
    from langchain_core.tools import ToolException

    with pytest.raises(ToolException, match=r"^failed as asked$"):
        heard_of("langchain", FAIL)


ERROR = ("--error-on-call", "-32000", "the disk is full")


@pytest.mark.parametrize(
    ("framework", "options"),
    [
        ("openai-agents", {"failure_error_function": TOLD}),
        ("pydantic-ai", {}),
        ("langchain", {"handle_tool_error": True}),
        ("anthropic", {}),
    ],
)
def test_the_model_gets_an_error_of_the_protocol(framework: str, options: dict[str, Any]) -> None:
    assert "the disk is full" in heard_of(framework, FAIL, *ERROR, **options)


@pytest.mark.parametrize(("framework", "options"), [("pydantic-ai", PYDANTIC), ("langchain", {})])
def test_an_error_of_the_protocol_passes_unchanged(framework: str, options: dict[str, Any]) -> None:
    with pytest.raises(MCPError, match="the disk is full"):
        heard_of(framework, FAIL, *ERROR, **options)


@pytest.mark.parametrize(
    ("framework", "options", "words"),
    [
        ("openai-agents", {"failure_error_function": TOLD}, "^told: .*tool 'mcp__a__pid' not found"),
        ("pydantic-ai", {}, "^tool 'mcp__a__pid' not found"),
        ("langchain", {"handle_tool_error": True}, "^tool 'mcp__a__pid' not found"),
        ("anthropic", {}, "tool 'mcp__a__pid' not found"),
    ],
)
def test_a_server_that_is_stopped_before_its_tool_is_called(
    framework: str, options: dict[str, Any], words: str
) -> None:
    """The model was just offered the tool; it is answered which server is unavailable."""

    async def main() -> None:
        async with open_servers(config()) as servers:

            async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
                if turn == 1:
                    await servers["a"].stop()
                    return "mcp__a__pid", {}
                return heard[0]

            heard = await FRAMEWORKS[framework].run(servers, think, **options)
            assert re.search(words, heard), heard
            assert "servers not serving now: a (stopped)" in heard

    asyncio.run(main())


def test_a_server_that_is_down_is_unavailable_at_once_if_configured_so() -> None:
    async def main() -> None:
        async with open_servers(server("a", restarts=LATER, when_down="fail")) as servers:
            pid = servers["a"].statistics().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await servers["a"].wait_state("backoff")

            async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
                assert "mcp__a__pid" in offered  # it will be back
                return "mcp__a__pid", {}

            with pytest.raises(ServerUnavailable, match="server 'a'"):
                await FRAMEWORKS["pydantic-ai"].run(servers, think)

    asyncio.run(main())


def test_the_model_is_out_of_tries_after_as_many_as_configured() -> None:
    from pydantic_ai.models.test import TestModel

    async def main() -> None:
        async with open_servers(config()) as servers:
            model = TestModel(call_tools=["mcp__a__fail"])
            agent = pydantic_ai.Agent(model, toolsets=[adapters.PydanticAIToolset(servers, max_retries=0)])
            with pytest.raises(pydantic_ai.UnexpectedModelBehavior, match="mcp__a__fail"):
                await agent.run("hello")

    asyncio.run(main())


def test_a_behavior_that_does_not_exist_is_refused() -> None:
    async def main() -> None:
        async with open_servers(server("a")) as servers:
            with pytest.raises(
                ValueError, match="server_error_behavior='ignore' is not valid; give one of 'retry', 'failed', 'error'"
            ):
                adapters.PydanticAIToolset(servers, server_error_behavior="ignore")  # type: ignore[arg-type]  # it is refused

    asyncio.run(main())


def test_a_filter_with_a_predicate_needs_a_context() -> None:
    async def main() -> None:
        asking = ToolFilter(predicate=lambda tool, context: context.agent == "me")
        async with open_servers(server("a", tool_filter=asking)) as servers:
            with pytest.raises(ConfigError, match="pass context=ToolContext"):
                await adapters.langchain_tools(servers)
            with pytest.raises(ConfigError, match="pass context=ToolContext"):
                await adapters.McpClient(servers).list_tools()
            with pytest.raises(ConfigError, match="pass context=ToolContext"):
                await adapters.OpenAIAgentsServer(servers).list_tools()
            assert await adapters.langchain_tools(servers, context=ToolContext("me"))
            assert await adapters.langchain_tools(servers, context=ToolContext("you")) == []

    asyncio.run(main())


def test_a_tool_of_another_server_is_not_there() -> None:
    async def main() -> None:
        async with open_servers(server("a"), server("b")) as servers:
            client = adapters.McpClient(servers, servers=["a"])
            with pytest.raises(ToolNotFound, match=r"it belongs to server 'b'; add that to servers \(now: a\)"):
                await client.call_tool("mcp__b__echo", {"text": "x"})
            none = adapters.McpClient(servers, servers=[])
            assert (await none.list_tools()).tools == []
            with pytest.raises(ToolNotFound, match=r"add that to servers \(now: none\)"):
                await none.call_tool("mcp__b__echo", {"text": "x"})

    asyncio.run(main())


def test_what_only_one_server_can_answer_is_not_asked_of_several() -> None:
    async def main() -> None:
        async with open_servers(server("a"), server("b")) as servers:
            both = r"prompts need an adapter of one server, and this one has 2 \(a, b\); .* servers=\['NAME'\]"
            with pytest.raises(ValueError, match=both):
                await adapters.OpenAIAgentsServer(servers).list_prompts()
            with pytest.raises(ValueError, match=both):
                await adapters.McpClient(servers).get_prompt("x")

    asyncio.run(main())


def test_a_tool_of_langchain_that_is_not_awaited_says_how_to(said: Said) -> None:
    async def main() -> None:
        async with open_servers(server("a")) as servers:
            [echo] = [tool for tool in await adapters.langchain_tools(servers) if tool.name == "mcp__a__echo"]
            with pytest.raises(NotImplementedError) as caught:
                echo.invoke({"text": "x"})
            said("tool of LangChain without await", str(caught.value))
            assert await echo.ainvoke({"text": "x"}) == "x"

    asyncio.run(main())


def test_an_adapter_is_used_on_the_event_loop_of_its_group() -> None:
    """Not only its calls are refused elsewhere: what it says in a list would be lost in the words for a model."""
    kept: list[AsyncioServerGroup] = []

    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            await adapters.langchain_tools(kept[0])

    async def main() -> None:
        async with open_servers(server("a")) as servers:
            kept.append(servers)
            await asyncio.to_thread(asyncio.run, elsewhere())

    asyncio.run(main())
