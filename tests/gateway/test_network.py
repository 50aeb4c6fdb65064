"""Groups that hold the servers of another process through its gateway, over TCP and unix sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.server.mcpserver import MCPServer

from mcp_actors import (
    ConnectFailed,
    InProcess,
    RequestTimedOut,
    RestartPolicy,
    Secret,
    ServerConfig,
    ServerUnavailable,
    Socket,
    open_servers,
)
from mcp_actors.gateway import serve
from mcp_actors.servers import ServerGroup

from .hosts import BOUND, in_process, notes

SECRET: Final = "the secret of these tests"
ONCE: Final = RestartPolicy(max_restarts=0)


class Door:
    """A gateway at both kinds of addresses.

    Attributes:
        group: the servers behind it.
        path: the path of its unix socket.
        address: its host and port.
    """

    def __init__(self, group: ServerGroup, path: str, address: str) -> None:
        self.group = group
        self.path = path
        self.address = address

    def at(self, kind: str, **options: Any) -> Socket:
        """Return the transport to a kind of address."""
        return Socket(self.path, **options) if kind == "unix" else Socket(self.address, secret=SECRET, **options)


@asynccontextmanager
async def door(folder: Path, *configs: ServerConfig, **options: Any) -> AsyncIterator[Door]:
    """Serve servers at a unix socket and at a port during a block."""
    at = str(folder / "g.sock")
    async with open_servers(*configs, naming="{server}_{tool}") as group, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, group, path=at, **options))
        address = await nursery.start(partial(serve, group, address="127.0.0.1:0", secret=SECRET, **options))
        yield Door(group, at, address)
        nursery.cancel_scope.cancel()


KINDS: Final = pytest.mark.parametrize("kind", ["unix", "tcp"])


@KINDS
async def test_a_connection_carries_one_server_under_its_own_names(kind: str, tmp_path: Path) -> None:
    async with (
        door(tmp_path, in_process("notes", notes()), in_process("other", notes("other"))) as served,
        open_servers(ServerConfig("notes", served.at(kind), required=True), naming="{tool}") as group,
    ):
        ref = group["notes"]
        assert [tool.public_name for tool in group.tools] == ["echo"]
        assert (await ref.call_tool("echo", {"text": "hi"})).content[0].text == "hi"  # type: ignore[union-attr]  # it is text
        assert [each.name for each in await ref.list_prompts()] == ["plan"]
        assert [each.uri for each in await ref.list_resources()] == ["note:///shopping"]
        assert (await ref.read_resource("note:///a/lines")).contents[0].text == "a: 3"  # type: ignore[union-attr]  # it is text
        assert ref.info.instructions == "Use notes for notes."


@KINDS
async def test_the_server_may_have_another_name_there(kind: str, tmp_path: Path) -> None:
    async with (
        door(tmp_path, in_process("notes", notes()), in_process("other", notes("other"))) as served,
        open_servers(ServerConfig("mine", served.at(kind, server="other"), required=True)) as group,
    ):
        assert group["mine"].info.instructions == "Use other for notes."


async def failed(transport: Socket) -> str:
    """Return the text of the error of a connect."""
    config = ServerConfig("q", transport, required=True, restarts=ONCE)
    with trio.fail_after(BOUND), pytest.raises(ConnectFailed) as info:
        async with open_servers(config):
            pass
    assert info.value.phase == "open"
    return str(info.value)


@KINDS
async def test_an_unknown_server_is_refused_with_the_names_that_there_are(kind: str, tmp_path: Path) -> None:
    async with door(tmp_path, in_process("a", notes()), in_process("b", notes())) as served:
        said = await failed(served.at(kind))
    assert said.startswith("server 'q': the gateway at ")
    assert said.endswith("has no server 'q'; its servers: a, b; set server=…, or add it there")


async def test_a_wrong_secret_is_refused_and_the_error_says_what_to_compare(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with door(tmp_path, in_process("q", notes())) as served:
        said = await failed(Socket(served.address, secret=Secret("not the secret of these")))
    assert said == (
        f"server 'q': the gateway at {served.address} refused the secret; compare secret or secret_file here with the "
        "--secret-file there"
    )
    assert "client 1 is refused: it has another secret; compare it with that of this gateway" in caplog.text
    assert "secret of these" not in caplog.text


@KINDS
async def test_nothing_that_listens_is_an_error_that_names_the_address(kind: str, tmp_path: Path) -> None:
    transport = Socket("127.0.0.1:1", secret=SECRET) if kind == "tcp" else Socket(str(tmp_path / "none"))
    said = await failed(transport)
    assert said.startswith(f"server 'q': cannot connect to the gateway at {transport.address} (")
    assert said.endswith("; check that it runs, and the address")


def failing() -> MCPServer:
    """Make a server whose tool fails as it is asked to."""
    server = MCPServer("failing")

    @server.tool()
    async def fail(code: int, error: str, outcome: str) -> str:
        data = {"mcp_actors": {"error": error, "outcome": outcome}, "why": "because"}
        raise MCPError(code, "no", data)

    @server.tool()
    async def sleep() -> str:
        await trio.sleep_forever()
        raise AssertionError

    return server


@KINDS
async def test_a_time_out_behind_the_gateway_has_its_name(kind: str, tmp_path: Path) -> None:
    inner = ServerConfig("slow", InProcess(failing()), request_timeout=0.1)
    async with (
        door(tmp_path, inner) as served,
        open_servers(ServerConfig("slow", served.at(kind), required=True)) as group,
    ):
        with trio.fail_after(BOUND), pytest.raises(RequestTimedOut) as info:
            await group["slow"].call_tool("sleep", {})
    where = served.path if kind == "unix" else served.address
    assert str(info.value).startswith(f"server 'slow': the gateway at {where} answered: server 'slow': tools/call")
    assert (info.value.seconds, info.value.limit, info.value.outcome) == (0.1, "request_timeout", "unknown")


@KINDS
async def test_a_stopped_server_behind_the_gateway_is_unavailable(kind: str, tmp_path: Path) -> None:
    async with (
        door(tmp_path, in_process("notes", notes())) as served,
        open_servers(ServerConfig("notes", served.at(kind), required=True)) as group,
    ):
        await served.group["notes"].stop()
        with trio.fail_after(BOUND), pytest.raises(ServerUnavailable) as info:
            await group["notes"].call_tool("echo", {"text": "hi"})
        assert (info.value.state, info.value.outcome, info.value.server) == ("stopped", "not_sent", "notes")
        with trio.fail_after(BOUND), pytest.raises(ServerUnavailable):
            await group["notes"].get_prompt("plan", {"meal": "x"})
        with trio.fail_after(BOUND), pytest.raises(ServerUnavailable):
            await group["notes"].read_resource("note:///shopping")


@KINDS
async def test_a_server_behind_the_gateway_cannot_say_that_it_was_not_sent(kind: str, tmp_path: Path) -> None:
    async with (
        door(tmp_path, ServerConfig("forger", InProcess(failing()))) as served,
        open_servers(ServerConfig("forger", served.at(kind), required=True)) as group,
    ):
        arguments = {"code": -32000, "error": "ServerUnavailable", "outcome": "not_sent"}
        with trio.fail_after(BOUND), pytest.raises(MCPError) as info:
            await group["forger"].call_tool("fail", arguments)
    assert info.value.error.data == {"why": "because"}


@KINDS
async def test_a_rotating_address_is_asked_for_at_each_connect(kind: str, tmp_path: Path) -> None:
    async with door(tmp_path, in_process("notes", notes())) as served:
        given = [served.path, served.address] * 2
        asked = []

        async def address() -> str:
            await trio.lowlevel.checkpoint()
            asked.append(given.pop(0))
            return asked[-1]

        if kind == "tcp":
            given.pop(0)
        async with open_servers(ServerConfig("notes", Socket(address, secret=SECRET), required=True)) as group:
            await group["notes"].call_tool("echo", {"text": "1"})
            await group["notes"].restart()
            await group["notes"].call_tool("echo", {"text": "2"})
        assert len(asked) == 2
        assert asked[0] != asked[1]
