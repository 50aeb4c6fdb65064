"""Whole runs of each framework's agent, against real servers, through the bridge."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import ListToolsResult, Tool

from mcp_actors import (
    CatalogTool,
    InProcess,
    ServerConfig,
    ServerUnavailable,
    StateChanged,
    ToolFilter,
    ToolsChanged,
    adapters,
)
from mcp_actors.bridge import AsyncioServerGroup, Host, open_servers
from mcp_actors.config import ToolContext
from tests.forkserver import frameworks, run_python
from tests.servers.groups import AT_ONCE, BOUND, NEVER, lines_of, pids_in, server
from tests.source import ROOT

from .frameworks import FRAMEWORKS, Call, Framework

EACH = pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)


@EACH
@pytest.mark.parametrize("host", ["thread", "guest"])
def test_a_whole_run(framework: Framework, host: Host, tmp_path: Path) -> None:
    """The model sees public names; the server is sent its own."""
    log = tmp_path / "log"

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        match turn:
            case 1:
                assert "mcp__b__add" in offered
                assert not any(name.startswith("mcp__gone__") for name in offered)
                return "mcp__a__echo", {"text": "hi"}
            case 2:
                assert heard == ["hi"]
                return "mcp__b__add", {"a": 2, "b": 3}
            case _:
                return f"heard: {', '.join(heard)}"

    async def main() -> None:
        gone = server("gone", "--exit-at-start", "3", restarts=NEVER)
        async with open_servers(server("a", "--log-file", str(log)), server("b"), gone, host=host) as servers:
            assert await framework.run(servers, think) == "heard: hi, 5"
            assert [ref.state for ref in servers.configured] == ["ready", "ready", "failed"]

    asyncio.run(main())
    assert "tools/call echo" in log.read_text().splitlines()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
def test_a_whole_run_in_a_program_on_trio() -> None:
    finished = run_python("-m", "tests.adapters.on_trio_asyncio", cwd=ROOT, timeout=300, imported=frameworks())
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == [f"{name} hi" for name in FRAMEWORKS]


@EACH
def test_a_server_that_is_killed_in_the_midst_of_a_run_is_back_for_the_next_call(framework: Framework) -> None:
    async def main() -> None:
        async with open_servers(server("a", restarts=AT_ONCE)) as servers, servers.watch_events() as events:

            async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
                if turn == 1:
                    return "mcp__a__pid", {}
                if turn == 2:
                    os.kill(int(heard[0]), signal.SIGKILL)
                    async for event in events:
                        if isinstance(event, StateChanged):
                            break
                    return "mcp__a__pid", {}
                return " ".join(heard)

            first, second = (await framework.run(servers, think)).split()
            assert first != second

    asyncio.run(main())


@EACH
def test_a_run_that_is_cancelled_cancels_its_call_at_the_server(framework: Framework, tmp_path: Path) -> None:
    """S1-21: the cancellation is not an output of the tool; the model is not called again."""
    log = tmp_path / "log"
    turns: list[int] = []

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        turns.append(turn)
        assert turn == 1, "the model hears of it"
        return "mcp__a__sleep", {"seconds": 600}

    async def main() -> None:
        async with open_servers(server("a", "--log-file", str(log))) as servers:
            run = asyncio.create_task(framework.run(servers, think))
            await until_line(log, "tools/call")
            run.cancel()
            async with asyncio.timeout(BOUND):
                with pytest.raises(asyncio.CancelledError):
                    await run
            await until_line(log, "notifications/cancelled")
            assert servers["a"].state == "ready"

    asyncio.run(main())
    assert turns == [1]


async def call_by_openai(group: AsyncioServerGroup, name: str, arguments: dict[str, Any]) -> object:
    return await adapters.OpenAIAgentsServer(group).call_tool(name, arguments)


async def call_by_pydantic_ai(group: AsyncioServerGroup, name: str, arguments: dict[str, Any]) -> object:
    from pydantic_ai import RunContext, RunUsage
    from pydantic_ai.models.test import TestModel

    toolset = adapters.PydanticAIToolset(group, tool_error_behavior="failed", server_error_behavior="failed")
    context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    return await toolset.call_tool(name, arguments, context, (await toolset.get_tools(context))[name])


async def call_by_langchain(group: AsyncioServerGroup, name: str, arguments: dict[str, Any]) -> object:
    tools = {tool.name: tool for tool in await adapters.langchain_tools(group, handle_tool_error=True)}
    return await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})


async def call_by_client(group: AsyncioServerGroup, name: str, arguments: dict[str, Any]) -> object:
    return await adapters.McpClient(group).call_tool(name, arguments)


@pytest.mark.parametrize("call", [call_by_openai, call_by_pydantic_ai, call_by_langchain, call_by_client])
def test_a_call_that_is_cancelled_raises_that_and_nothing_else(call: Any, tmp_path: Path) -> None:
    """S1-21: a cancellation is not a failure, in any configuration."""
    log = tmp_path / "log"

    async def main() -> None:
        async with open_servers(server("a", "--log-file", str(log))) as servers:
            calling = asyncio.create_task(call(servers, "mcp__a__sleep", {"seconds": 600}))
            await until_line(log, "tools/call")
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            await until_line(log, "notifications/cancelled")

    asyncio.run(main())


async def until_line(log: Path, word: str) -> None:
    """Wait until a server has taken a message of this kind."""
    async with asyncio.timeout(BOUND):
        while not (log.exists() and word in lines_of(log)):  # noqa: ASYNC110, ASYNC240 - another process writes it
            await asyncio.sleep(0)


@EACH
def test_a_tool_for_apps_only_is_offered_to_no_model(framework: Framework) -> None:
    """B-27: MCP Apps (SEP-1865) mark such tools in ``_meta.ui.visibility``."""
    marks: dict[str, Any] = {
        "anybody": None,
        "apps": {"ui": {"visibility": ["app"]}},
        "both": {"ui": {"visibility": ["model", "app"]}},
        "odd": {"ui": {"visibility": "app"}},
    }

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[Tool(name=name, input_schema={"type": "object"}, _meta=mark) for name, mark in marks.items()]
        )

    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        return " ".join(sorted(offered))

    async def main() -> None:
        shown: Server[Any] = Server("shown", on_list_tools=list_tools)
        async with open_servers(ServerConfig("shown", InProcess(shown))) as servers:
            assert await framework.run(servers, think) == "mcp__shown__anybody mcp__shown__both mcp__shown__odd"
            assert servers.find_tool("mcp__shown__apps").name == "apps"

    asyncio.run(main())


@EACH
def test_a_change_of_the_tools_is_seen_by_the_next_turn(framework: Framework) -> None:
    async def main() -> None:
        async with (
            open_servers(server("a", "--notices", "1")) as servers,
            servers.watch_events() as events,
        ):

            async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
                if turn == 1:
                    assert "mcp__a__tool_0" not in offered
                    return "mcp__a__grow", {}
                if turn == 2:
                    async with asyncio.timeout(BOUND):
                        while not isinstance(await anext(events), ToolsChanged):
                            pass
                    return "mcp__a__echo", {"text": "x"}
                if turn == 3:
                    assert "mcp__a__tool_0" in offered
                    return "mcp__a__tool_0", {}
                return heard[-1]

            assert await framework.run(servers, think) == "tool_0"

    asyncio.run(main())


@EACH
def test_tools_of_a_server_that_was_stopped_are_gone_at_the_next_turn(framework: Framework) -> None:
    async def main() -> None:
        async with open_servers(server("a"), server("b")) as servers:

            async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
                if turn == 1:
                    await servers["b"].stop()
                    return "mcp__a__echo", {"text": "x"}
                assert not any(name.startswith("mcp__b__") for name in offered)
                return "done"

            assert await framework.run(servers, think) == "done"

    asyncio.run(main())


@EACH
def test_agents_share_a_group_and_each_is_shown_what_is_for_it(framework: Framework, tmp_path: Path) -> None:
    """S1-24, S3-26: the predicate is asked with the agent; there is one process for all."""
    pids = tmp_path / "pids"

    def name_of(agent: Any) -> str:
        return str(getattr(agent, "name", agent))

    def shown(tool: CatalogTool, context: ToolContext) -> bool:
        asyncio.get_running_loop()  # it is the program's function, so it is called where the program is
        return tool.name == "echo" or name_of(context.agent) == "parent"

    async def main() -> None:
        config = server("a", "--pid-file", str(pids), tool_filter=ToolFilter(predicate=shown))
        async with open_servers(config, server("b")) as servers:
            both = asyncio.Barrier(3)

            def as_agent(name: str) -> Any:
                async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
                    if turn == 1:
                        await both.wait()  # all are in the midst of a run
                        return "mcp__a__echo", {"text": name}
                    others = any(tool.startswith("mcp__b__") for tool in offered)
                    return f"{heard} {'mcp__a__pid' in offered} {others}"

                return think

            ends: Any = await asyncio.gather(
                framework.run(servers, as_agent("one"), "parent"),
                framework.run(servers, as_agent("two"), "child", servers=["a"]),
                framework.run(servers, as_agent("three"), "child"),
            )
            assert ends == ["['one'] True True", "['two'] False False", "['three'] False True"]
            assert servers["a"].statistics().incarnation == 1

    asyncio.run(main())
    assert len(pids_in(pids)) == 1


@EACH
def test_a_run_of_a_group_that_was_left_fails(framework: Framework) -> None:
    async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
        raise AssertionError("there is nothing to offer")

    async def main() -> None:
        async with open_servers(server("a")) as servers:
            pass
        with pytest.raises(ServerUnavailable, match="this group of servers is stopped"):
            await framework.run(servers, think)

    asyncio.run(main())


def test_adapters_do_not_own_the_connections() -> None:
    async def main() -> None:
        async with open_servers(server("a")) as servers:
            for enter in adapters.OpenAIAgentsServer(servers), adapters.PydanticAIToolset(servers):
                async with enter:
                    pass
            managed = adapters.OpenAIAgentsServer(servers)
            await managed.connect()
            await managed.cleanup()
            assert (await managed.call_tool("mcp__a__echo", {"text": "still here"})).is_error is False
            assert servers["a"].state == "ready"

    asyncio.run(main())


async def openai(group: AsyncioServerGroup, **options: Any) -> None:
    adapters.OpenAIAgentsServer(group, **options)


async def pydantic(group: AsyncioServerGroup, **options: Any) -> None:
    adapters.PydanticAIToolset(group, **options)


async def client(group: AsyncioServerGroup, **options: Any) -> None:
    adapters.McpClient(group, **options)


async def langchain(group: AsyncioServerGroup, **options: Any) -> None:
    await adapters.langchain_tools(group, **options)


@pytest.mark.parametrize("make", [openai, pydantic, client, langchain])
def test_an_object_that_is_not_a_group_of_the_bridge_is_refused(make: Any) -> None:
    async def main() -> None:
        async with open_servers(server("a")) as servers:
            with pytest.raises(TypeError, match=r"give the group that it belongs to, and servers=\['a'\]"):
                await make(servers["a"])
            with pytest.raises(
                TypeError, match=r"None is not an AsyncioServerGroup.*give the group of 'async with mcp_actors.bridge"
            ):
                await make(None)
            with pytest.raises(TypeError, match=r"servers='a' is not a collection of names; give servers=\['a'\]"):
                await make(servers, servers="a")
            with pytest.raises(KeyError, match="server 'b' not found in this group; its servers are: a"):
                await make(servers, servers=["b"])

    asyncio.run(main())
