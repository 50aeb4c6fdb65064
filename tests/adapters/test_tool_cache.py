"""Tool lists that are requested anew at each turn, from servers that do not say when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.types import INTERNAL_ERROR, ListToolsResult, Tool

from mcp_actors import InProcess, ServerConfig, adapters
from mcp_actors.bridge import open_servers
from tests.servers.groups import BOUND, lines_of, server

from ..messages import Said
from .frameworks import FRAMEWORKS, Call, Framework

EACH = pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)


def silent(name: str = "a") -> tuple[MCPServer, ServerConfig]:
    """Return a server that says nothing when its tools change, and its configuration."""
    program = MCPServer(name)
    program.add_tool(lambda: "worked", name="work", description="Work.")
    return program, ServerConfig(name, InProcess(program), protocol="legacy")


@EACH
@pytest.mark.parametrize("tool_cache", [True, False])
def test_a_server_is_asked_at_each_turn_if_the_program_says_so(framework: Framework, tool_cache: bool) -> None:
    """S4-10: the default is what it listed last, which it would have said to have changed."""
    program, config = silent()

    async def main() -> None:
        async with open_servers(config) as servers:

            async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
                if turn == 1:
                    assert offered == ["mcp__a__work"]
                    program.add_tool(lambda: "rested", name="rest", description="Rest.")
                    return "mcp__a__work", {}
                if "mcp__a__rest" in offered and turn == 2:
                    return "mcp__a__rest", {}
                return " ".join(heard)

            said = await framework.run(servers, think, tool_cache=tool_cache)
            assert said == ("worked" if tool_cache else "worked rested")

    asyncio.run(main())


def test_only_the_servers_of_an_adapter_are_asked_and_only_those_that_serve(tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in "abc"}

    async def main() -> None:
        a, b, c = (server(name, "--log-file", str(log)) for name, log in logs.items())
        async with open_servers(a, b, c, server("lazy", connect="lazy")) as servers:
            await servers["c"].stop()
            tools = (await adapters.McpClient(servers, servers=["a", "c", "lazy"], tool_cache=False).list_tools()).tools
            assert {tool.name.split("__")[1] for tool in tools} == {"a"}
            assert servers["lazy"].state == "pending"

    asyncio.run(main())
    assert [len(lines_of(log, "tools/list")) for log in logs.values()] == [2, 1, 1]


async def refuses() -> None:
    raise MCPError(INTERNAL_ERROR, "the pantry is closed")


async def hangs() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("again", "seconds", "row"),
    [(refuses, BOUND, "tools are not listed again: error"), (hangs, 1.0, "tools are not listed again: timed out")],
)
def test_a_server_that_does_not_list_its_tools_again_keeps_them(
    again: Callable[[], Awaitable[None]], seconds: float, row: str, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """One server's trouble takes no tool of another, and does not end the turn."""
    listed: list[ListToolsResult] = []

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        if listed:
            await again()
        listed.append(ListToolsResult(tools=[Tool(name="work", input_schema={"type": "object"})]))
        return listed[-1]

    troubled: Server[Any] = Server("a", on_list_tools=list_tools)
    program, config = silent("b")

    async def main() -> None:
        a = ServerConfig("a", InProcess(troubled), protocol="legacy", request_timeout=seconds)
        async with open_servers(a, config) as servers:
            program.add_tool(lambda: "rested", name="rest", description="Rest.")
            names = [tool.name for tool in await adapters.langchain_tools(servers, tool_cache=False)]
            assert names == ["mcp__a__work", "mcp__b__work", "mcp__b__rest"]

    asyncio.run(main())
    [message] = [each.getMessage() for each in caplog.records if each.name == "mcp_actors.bridge"]
    said(row, message)


def test_a_turn_that_is_cancelled_while_it_asks_ends_at_once() -> None:
    asked = asyncio.Event()
    listed: list[bool] = []

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        if listed:
            asked.set()
            await hangs()
        listed.append(True)
        return ListToolsResult(tools=[])

    async def main() -> None:
        a = ServerConfig("a", InProcess(Server[Any]("a", on_list_tools=list_tools)), protocol="legacy")
        async with open_servers(a) as servers:
            turn = asyncio.create_task(adapters.McpClient(servers, tool_cache=False).list_tools())
            await asked.wait()
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn

    asyncio.run(main())
