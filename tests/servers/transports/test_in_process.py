"""Servers that are objects in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio
from mcp import MCPError
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.types import ReadResourceRequestParams

from mcp_actors import open_servers
from mcp_actors._errors import ConnectFailed
from mcp_actors.config import InProcess, ServerConfig
from mcp_actors.transports import Obituary, lowlevel, open_link

from ...messages import Said
from ..http_server import make_server
from ..library import Library
from ..links import never_lost, open_session, text_of


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_a_session_on_a_link_calls_tools(mode: str) -> None:
    config = ServerConfig("here", InProcess(make_server()), protocol="legacy" if mode == "legacy" else "auto")
    async with open_link(config, on_lost=never_lost) as link, open_session(link, mode) as client:
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert (link.pid, link.lifeline.lost, link.lifeline.failure, link.malformed_lines) == (None, False, None, 0)
        assert link.endpoint == "the in-process server 'over-http'"
    assert link.obituary() == await link.wait_obituary() == Obituary()


@pytest.mark.parametrize("server", [Server("low"), MCPServer("high")], ids=["low-level", "high-level"])
async def test_both_kinds_of_server_objects_are_accepted(server: object) -> None:
    async with open_link(ServerConfig("here", InProcess(server)), on_lost=never_lost) as link:  # type: ignore[arg-type]  # not a server of the SDK
        assert link.endpoint == f"the in-process server {getattr(server, 'name', None)!r}"


async def test_a_tool_that_raises_cancelled_error_fails_its_call_only() -> None:
    """It is not an `Exception`. Otherwise it would end the connection and all other calls."""
    server, release = make_server(), trio.Event()

    @server.tool()
    async def shut_down() -> str:
        raise asyncio.CancelledError("shutting down")

    @server.tool()
    async def wait() -> str:
        await release.wait()
        return "done"

    async with open_servers(ServerConfig("here", InProcess(server))) as group, trio.open_nursery() as nursery:

        async def wait_beside() -> None:
            assert text_of(await group["here"].call_tool("wait")) == "done"

        nursery.start_soon(wait_beside)
        with pytest.raises(MCPError, match="raised CancelledError: shutting down"):
            await group["here"].call_tool("shut_down")
        release.set()
        assert group["here"].statistics().incarnation == 1


async def test_the_error_for_params_that_a_server_refuses_has_the_reason() -> None:
    """It is in this process, so nothing else would say it."""

    async def read(context: object, params: object) -> Any:
        return ReadResourceRequestParams.model_validate({"uri": 7})

    async with open_servers(Library(on_read_resource=read).config("here")) as group:
        with pytest.raises(MCPError, match=r"^Invalid request parameters: at uri: input should be a valid string$"):
            await group["here"].read_resource("a:b")


async def test_an_object_of_another_type_is_refused(said: Said) -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with open_link(ServerConfig("here", InProcess(make_server)), on_lost=never_lost):  # type: ignore[arg-type]  # not a server of the SDK
            pytest.fail("it opened")
    said("in-process object is not a server", str(caught.value))
    assert (caught.value.phase, caught.value.hopeless) == ("configure", True)


def test_the_server_within_an_mcp_server_is_where_it_is_looked_for() -> None:
    server = MCPServer("fake")
    assert isinstance(lowlevel(server), Server)
    del server._lowlevel_server
    with pytest.raises(RuntimeError, match="has no `_lowlevel_server`"):
        lowlevel(server)
