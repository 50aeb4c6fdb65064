"""Groups that hold the servers of another process through its gateway, over TCP and unix sockets."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import LoggingMessageNotificationParams, PromptReference
from trio.testing import MockClock

from mcp_actors import (
    Backoff,
    ConnectFailed,
    ConnectionLost,
    InProcess,
    LimitExceeded,
    RequestTimedOut,
    RestartPolicy,
    RetryPolicy,
    Secret,
    ServerConfig,
    ServerRef,
    ServerUnavailable,
    Socket,
    Stdio,
    ToolRequest,
    bridge,
    load_config,
    open_servers,
)
from mcp_actors.cli._connect import describe
from mcp_actors.config import CallbackContext, CallNext
from mcp_actors.gateway import _network, _serve, serve
from mcp_actors.gateway._daemon import DIRECTORY
from mcp_actors.gateway._serve import ANSWER_LINGER
from mcp_actors.gateway._session import Gateway, GatewaySession
from mcp_actors.observe._metrics import _common
from mcp_actors.servers import ServerGroup
from mcp_actors.servers._admission import launch_pin
from mcp_actors.transports.socket._handshake import HANDSHAKE_SECONDS, Proof

from ..servers.groups import server
from ..servers.processes import eventually
from .hosts import BOUND, Host, in_process, notes
from .test_sessions import slow

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


async def test_the_old_connection_is_closed_before_the_next_address_is_asked_for(tmp_path: Path) -> None:
    """A session belongs to one connection: none is alive on the old one when the next call is sent."""
    ended = trio.Event()
    asked = 0

    async def relay(client: trio.SocketStream) -> None:
        """Pass bytes between a client and the gateway."""
        async with client, await trio.open_unix_socket(served.path) as behind, trio.open_nursery() as nursery:

            async def back() -> None:
                with suppress(trio.BrokenResourceError):
                    async for data in behind:
                        await client.send_all(data)

            nursery.start_soon(back)
            with suppress(trio.BrokenResourceError):
                async for data in client:
                    await behind.send_all(data)
            ended.set()
            nursery.cancel_scope.cancel()

    async def address() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            return str(tmp_path / "relay")
        with trio.fail_after(BOUND):
            await ended.wait()
        return served.path

    async with door(tmp_path, in_process("notes", notes())) as served, trio.open_nursery() as nursery:
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        await listener.bind(str(tmp_path / "relay"))
        listener.listen()
        nursery.start_soon(trio.serve_listeners, relay, [trio.SocketListener(listener)])
        async with open_servers(ServerConfig("notes", Socket(address), required=True)) as group:
            await group["notes"].call_tool("echo", {"text": "1"})
            assert not ended.is_set()
            await group["notes"].restart()
            await group["notes"].call_tool("echo", {"text": "2"})
        nursery.cancel_scope.cancel()


@KINDS
async def test_a_call_of_a_group_that_has_left_is_cancelled_at_once(kind: str, tmp_path: Path) -> None:
    begun: list[str] = []
    ended: list[str] = []
    inner = in_process("slow", slow(trio.Event(), begun, ended))
    async with door(tmp_path, inner) as served:
        config = ServerConfig("slow", served.at(kind), required=True)
        async with open_servers(config, drain_timeout=0) as group, trio.open_nursery() as nursery:
            nursery.start_soon(group["slow"].call_tool, "wait", {"name": "a"})
            await eventually(lambda: begun == ["a"])
            nursery.cancel_scope.cancel()
        with trio.fail_after(ANSWER_LINGER / 2):
            await eventually(lambda: ended == ["a"])
        assert served.group["slow"].statistics().in_flight == 0


@KINDS
async def test_a_client_that_only_closes_the_socket_has_left(kind: str, tmp_path: Path) -> None:
    """TCP does not tell that the other side reads no more; a gateway does not wait for it."""
    begun: list[str] = []
    ended: list[str] = []
    async with door(tmp_path, in_process("slow", slow(trio.Event(), begun, ended))) as served:
        stream = await named(served, kind, "slow")
        host_ = Host(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host_.read)
            await host_.begin()
            await host_.send(host_.request("tools/call", {"name": "wait", "arguments": {"name": "a"}}))
            await eventually(lambda: begun == ["a"])
            await stream.aclose()
            with trio.fail_after(ANSWER_LINGER / 2):
                await eventually(lambda: ended == ["a"])


async def test_a_client_may_name_a_server_that_each_client_has_for_itself(tmp_path: Path) -> None:
    own = in_process("own", notes("own"))
    async with (
        door(tmp_path, in_process("shared", notes()), per_session=[own]) as served,
        open_servers(ServerConfig("own", served.at("tcp"), required=True), naming="{tool}") as group,
    ):
        assert [tool.public_name for tool in group.tools] == ["echo"]
        assert (await group["own"].call("echo", text="hi")) == "hi"
        assert "own" not in served.group


@KINDS
async def test_a_client_that_names_a_server_does_not_select_its_directory(kind: str, tmp_path: Path) -> None:
    """Over TCP it may be on another machine."""
    async with (
        door(tmp_path, per_session=[server("own")]) as served,
        await named(served, kind, "own") as stream,
        trio.open_nursery() as nursery,
    ):
        client = Host(stream)
        nursery.start_soon(client.read)
        await client.send({"jsonrpc": "2.0", "method": DIRECTORY, "params": {"path": str(tmp_path)}})
        await client.begin()
        assert os.readlink(f"/proc/{await client.call('pid')}/cwd") == os.getcwd()
        nursery.cancel_scope.cancel()


async def named(served: Door, kind: str, name: str) -> trio.SocketStream:
    """Connect to one server of a gateway."""
    if kind == "unix":
        stream = await trio.open_unix_socket(served.path)
        await stream.send_all(Proof(name).line())
    else:
        host, port = served.address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        await stream.send_all(Proof(name, SECRET.encode()).line((await stream.receive_some())[:-1]))
    assert (await stream.receive_some()).endswith(b" ok\n")
    return stream


async def test_a_client_that_names_a_shared_server_starts_none_for_itself(tmp_path: Path) -> None:
    own = ServerConfig("own", Stdio("/no/such/program"))
    async with (
        door(tmp_path, in_process("shared", notes()), per_session=[own]) as served,
        open_servers(ServerConfig("shared", served.at("tcp"), required=True), naming="{tool}") as group,
    ):
        assert await group["shared"].call("echo", text="hi") == "hi"


async def test_a_lazy_server_is_started_for_a_client_that_names_it(tmp_path: Path) -> None:
    async with (
        door(tmp_path, in_process("notes", notes(), connect="lazy")) as served,
        open_servers(ServerConfig("notes", served.at("unix"), required=True)) as group,
    ):
        assert len(group.tools) == 1
        assert served.group["notes"].state == "ready"


async def test_a_server_that_is_not_connected_there_is_a_failed_connect_with_the_reason(tmp_path: Path) -> None:
    inner = ServerConfig("gone", Stdio("/no/such/program"), restarts=ONCE)
    async with door(tmp_path, inner) as served:
        config = ServerConfig("gone", served.at("tcp"), required=True, restarts=ONCE)
        with trio.fail_after(BOUND), pytest.raises(ConnectFailed) as info:
            async with open_servers(config):
                pass
    assert info.value.phase == "list_tools"
    assert "server 'gone' is not connected to the gateway (failed)" in str(info.value)
    assert "/no/such/program" in str(info.value)


async def naming(name: str, served: Door, nursery: trio.Nursery) -> Host:
    """Connect a client that speaks raw JSON, and names a server."""
    host = Host(await named(served, "unix", name))
    nursery.start_soon(host.read)
    await host.begin()
    return host


async def test_only_changes_of_its_own_server_reach_a_client(tmp_path: Path) -> None:
    lists = MCPServer("lists")

    @lists.tool()
    async def grow(context: Context[Any]) -> str:
        lists.add_tool(lambda: "2", name="second", description="The second.")
        await context.session.send_tool_list_changed()
        return "grown"

    async with (
        door(tmp_path, in_process("a", notes()), in_process("b", lists, protocol="legacy")) as served,
        trio.open_nursery() as nursery,
    ):
        a, b = await naming("a", served, nursery), await naming("b", served, nursery)
        before = [await each.result("tools/list") for each in (a, b)]
        assert [[tool["name"] for tool in each["tools"]] for each in before] == [["echo"], ["grow"]]
        assert await b.call("grow") == "grown"
        await b.notice("notifications/tools/list_changed")
        assert [tool["name"] for tool in (await b.result("tools/list"))["tools"]] == ["grow", "second"]
        assert await a.result("ping") == {}
        assert a.notices == []
        for host in (a, b):
            await host.stream.aclose()


async def test_only_log_messages_of_its_own_server_reach_a_client() -> None:
    class Written(list[bytes]):
        def answer(self, line: bytes, request_id: object, code: int) -> None:
            self.append(line)

        def tell(self, line: bytes, about: object) -> None:
            self.append(line)

    written = Written()
    session = GatewaySession(Gateway(), written, print)
    session.only = "a"
    session.take({"jsonrpc": "2.0", "method": "notifications/initialized"})
    session.modern = False
    for name in ("a", "b"):
        params = LoggingMessageNotificationParams(level="info", data=name)
        session.pass_log(CallbackContext(server=name), params)
    assert [json.loads(line)["params"]["data"] for line in written] == ["a"]


async def test_a_removed_server_is_unavailable_to_its_clients(tmp_path: Path) -> None:
    async with (
        door(tmp_path, in_process("a", notes()), in_process("b", notes())) as served,
        open_servers(ServerConfig("a", served.at("tcp"), required=True)) as group,
    ):
        await served.group.remove("a")
        with trio.fail_after(BOUND), pytest.raises(ServerUnavailable, match="was removed from the gateway") as info:
            await group["a"].call_tool("echo", {"text": "hi"})
        assert info.value.outcome == "not_sent"


async def test_a_gateway_over_a_gateway_passes_the_names_of_errors(tmp_path: Path) -> None:
    inner = ServerConfig("slow", InProcess(failing()), request_timeout=0.1)
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    async with (
        door(tmp_path / "1", inner) as far,
        door(tmp_path / "2", ServerConfig("slow", far.at("tcp"), required=True)) as near,
        open_servers(ServerConfig("slow", near.at("unix"), required=True)) as group,
    ):
        with trio.fail_after(BOUND), pytest.raises(RequestTimedOut) as info:
            await group["slow"].call_tool("sleep", {})
        assert (info.value.seconds, info.value.outcome) == (0.1, "unknown")
        assert str(info.value).startswith(
            f"server 'slow': the gateway at {near.path} answered: "
            f"server 'slow': the gateway at {far.address} answered: "
        )


# --- errors by name, of gateways that are reached by a command --------------------------------------------------------


FORGER: Final = """
import json, sys

error = {"code": int(sys.argv[1]), "message": "no", "data": {"mcp_actors": json.loads(sys.argv[2])}}
known = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}},
        "serverInfo": {"name": "forger", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]},
    "ping": {},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        method = message["method"]
        answer = {"result": known[method]} if method in known else {"error": error}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
        print(method, file=sys.stderr, flush=True)
"""
"""A server that answers all but lists with an error that only a gateway may name."""


def forger(said: dict[str, Any], *, trusted: bool, code: int = -32000, **options: Any) -> ServerConfig:
    """Configure such a server, with what it says in its errors."""
    transport = Stdio(sys.executable, ("-c", FORGER, str(code), json.dumps(said)), trust_outcomes=trusted)
    return ServerConfig("a", transport, protocol="legacy", required=True, **options)


WAYS: Final[dict[str, Callable[[ServerRef], Awaitable[object]]]] = {
    "a tool": lambda ref: ref.call_tool("run"),
    "a tool with progress": lambda ref: ref.call_tool("run", progress=lambda *_: None),
    "a prompt": lambda ref: ref.get_prompt("plan"),
    "a resource": lambda ref: ref.read_resource("note:///x"),
    "a list": lambda ref: ref.list_prompts(),
    "a completion": lambda ref: ref.complete(PromptReference(name="plan"), {"name": "meal", "value": "x"}),
}


async def passing(request: ToolRequest, call_next: CallNext) -> Any:
    """Let a call pass. With a middleware, each request has a task."""
    return await call_next(request)


NAMED: Final = [ConnectionLost, RequestTimedOut, ServerUnavailable, LimitExceeded, ConnectFailed]
"""The errors that a program may name. Of a request that was sent, the last one is a lost connection."""

BY_EACH_WAY: Final = pytest.mark.parametrize("way", WAYS)


@pytest.mark.parametrize(("way", "named"), [*zip(WAYS, [*NAMED, ConnectionLost], strict=True)])
@pytest.mark.parametrize("middleware", [(), (passing,)], ids=["directly", "in tasks"])
async def test_a_trusted_program_names_the_errors_of_its_requests(
    way: str, named: type[Any], middleware: tuple[Any, ...]
) -> None:
    """By each way and with each error: which error it is, is decided in one place for all ways."""
    said, error = {"error": named.__name__, "outcome": "unknown"}, ConnectionLost if named is ConnectFailed else named
    config = forger(said, trusted=True, retry=RetryPolicy(attempts=1), middleware=middleware)
    async with open_servers(config) as group:
        with trio.fail_after(BOUND), pytest.raises(error) as info:
            await WAYS[way](group["a"])
    assert (type(info.value), info.value.outcome, info.value.server) == (error, "unknown", "a")
    assert str(info.value) == f"server 'a': the command {sys.executable!r} answered: no"
    assert info.value.__cause__ is None


@BY_EACH_WAY
async def test_a_foreign_server_names_nothing(way: str) -> None:
    """It could ask for a repetition of what it has carried out."""
    said = {"error": "ConnectionLost", "outcome": "not_sent"}
    async with open_servers(forger(said, trusted=False)) as group:
        with trio.fail_after(BOUND), pytest.raises(MCPError) as info:
            await WAYS[way](group["a"])
        assert info.value.error.data == {"mcp_actors": said}
        assert group["a"].stderr_tail.count("tools/call") <= 1


@BY_EACH_WAY
async def test_an_error_about_the_params_stays_what_it_is(way: str) -> None:
    said = {"error": "ConnectionLost", "outcome": "not_sent"}
    async with open_servers(forger(said, trusted=True, code=-32602)) as group:
        with trio.fail_after(BOUND), pytest.raises(MCPError) as info:
            await WAYS[way](group["a"])
    assert info.value.error.code == -32602


@pytest.mark.parametrize("said", [{"error": "SignInRequired", "outcome": "unknown"}, {}, "ConnectionLost", None, [1]])
async def test_any_other_name_stays_an_error_of_the_server(said: Any) -> None:
    async with open_servers(forger(said, trusted=True)) as group:
        with trio.fail_after(BOUND), pytest.raises(MCPError):
            await group["a"].call_tool("run")


@pytest.mark.parametrize(
    ("outcome", "sent"), [("not_sent", 3), ("unknown", 1), ("nonsense", 1)], ids=["not sent", "unknown", "nonsense"]
)
async def test_a_call_that_a_trusted_gateway_has_not_sent_is_repeated(outcome: str, sent: int) -> None:
    """As a call of ours that was not sent; one whose outcome is unknown is not."""
    said = {"error": "ConnectionLost", "outcome": outcome}
    retry = RetryPolicy(attempts=3, backoff=Backoff(first=0, initial=0.01, maximum=0.01))
    async with open_servers(forger(said, trusted=True, retry=retry)) as group:
        with trio.fail_after(BOUND), pytest.raises(ConnectionLost):
            await group["a"].call_tool("run")
        await eventually(lambda: group["a"].stderr_tail.count("tools/call") == sent)


@pytest.mark.parametrize(
    "at",
    [
        "tomorrow",
        "2026-11-27T12:00:00",  # cannot be compared with a time in UTC
        "0001-01-01T00:00:00+23:59",  # cannot be a time in UTC
        "9999-12-31T23:59:59-23:59",
        1e308,
    ],
)
async def test_facts_that_are_not_valid_are_left_out(at: Any) -> None:
    said = {"error": "ServerUnavailable", "outcome": "not_sent", "state": 7, "retry_at": at}
    async with open_servers(forger(said, trusted=True)) as group:
        with trio.fail_after(BOUND), pytest.raises(ServerUnavailable) as info:
            await group["a"].call_tool("run")
    assert (info.value.state, info.value.retry_at, info.value.outcome) == ("failed", None, "not_sent")


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [(1.5, 1.5), (3, 3), (-1, 0), (True, 0), ("5", 0), ({}, 0), (math.nan, 0), (math.inf, 0), (10**400, 0)],
)
async def test_seconds_that_are_not_a_duration_are_left_out(seconds: Any, taken: float) -> None:
    said = {"error": "RequestTimedOut", "outcome": "unknown", "seconds": seconds, "limit": ["progress_timeout"]}
    async with open_servers(forger(said, trusted=True)) as group:
        with trio.fail_after(BOUND), pytest.raises(RequestTimedOut) as info:
            await group["a"].call_tool("run")
    assert (info.value.seconds, info.value.limit) == (taken, "request_timeout")


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit", "Cancelled", ["ConnectionLost"], {}, None])
async def test_a_gateway_can_name_no_other_exception(name: Any) -> None:
    async with open_servers(forger({"error": name, "outcome": "not_sent"}, trusted=True)) as group:
        with trio.fail_after(BOUND), pytest.raises(MCPError):
            await group["a"].call_tool("run")


async def test_the_time_of_the_next_attempt_passes() -> None:
    at = datetime(2026, 11, 27, 12, tzinfo=UTC)
    said = {"error": "ServerUnavailable", "outcome": "not_sent", "state": "failed", "retry_at": at.isoformat()}
    async with open_servers(forger(said, trusted=True)) as group:
        with trio.fail_after(BOUND), pytest.raises(ServerUnavailable) as info:
            await group["a"].call_tool("run")
    assert (info.value.state, info.value.retry_at) == ("failed", at)


# --- the address and the secret ---------------------------------------------------------------------------------------


async def configured(transport: Socket) -> ConnectFailed:
    """Return the error of a connect whose configuration cannot be used."""
    with trio.fail_after(BOUND), pytest.raises(ConnectFailed) as info:
        async with open_servers(ServerConfig("q", transport, required=True, restarts=ONCE)):
            pass
    assert info.value.phase == "configure"
    return info.value


async def test_a_function_that_raises_or_returns_something_else_is_an_error_of_the_connect() -> None:
    async def broken() -> str:
        raise LookupError("no such host in the table")

    async def wrong() -> Any:
        return ("127.0.0.1", 7000)

    async def open_to_all() -> str:
        return "127.0.0.1:7000"

    error = await configured(Socket(broken))
    assert str(error).endswith("the function for the address raised LookupError (see the cause of this error)")
    assert isinstance(error.__cause__, LookupError)
    assert "returned ('127.0.0.1', 7000); return a path or 'host:port'" in str(await configured(Socket(wrong)))
    assert "127.0.0.1:7000 is on a network, and there is no secret" in str(await configured(Socket(open_to_all)))


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"short\n", 0o600, "fewer than 16 characters; make one with: openssl rand -hex 32"),
        (b"x" * 5000, 0o600, "has more than 4096 bytes"),
        (b"x" * 32, 0o644, "can be read by other users (-rw-r--r--); run: chmod 600"),
        (b"x" * 32, 0o640, "can be read by other users"),
        (None, 0, "cannot be read (No such file or directory)"),
    ],
)
async def test_a_file_without_a_secret_of_ones_own_is_refused(
    content: bytes | None, mode: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    error = str(await configured(Socket("127.0.0.1:1", secret_file=file)))
    assert error.startswith(f"server 'q': secret_file: {file}")
    assert said in error


async def test_the_secret_may_be_in_a_file_a_variable_or_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    monkeypatch.setenv("GATEWAY_SECRET", SECRET)
    async with door(tmp_path, in_process("notes", notes())) as served:
        for options in ({"secret_file": file}, {"secret": "${GATEWAY_SECRET}"}, {"secret": lambda: SECRET}):
            transport = Socket(served.address, **options)
            async with open_servers(ServerConfig("notes", transport, required=True)) as group:
                assert await group["notes"].call("echo", text="hi") == "hi"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "serve() needs one of stdio=True, path=… and address=…"),
        ({"address": "127.0.0.1:0"}, "address '127.0.0.1:0' is on a network, where anyone could call; give a secret"),
        ({"address": "127.0.0.1:0", "secret": "short"}, "the secret has fewer than 16 characters"),
        ({"address": "127.0.0.1:0", "path": "/x", "secret": SECRET}, "not path='/x' and address='127.0.0.1:0'"),
        ({"address": "/run/x.sock", "secret": SECRET}, "address '/run/x.sock' is a path; write host:port"),
        ({"address": "7000", "secret": SECRET}, "is neither a path nor a host and a port"),
    ],
)
async def test_a_gateway_that_could_serve_anyone_refuses_to_listen(options: dict[str, Any], said: str) -> None:
    async with open_servers(in_process("notes", notes())) as group:
        with pytest.raises(ValueError, match=re.escape(said)):
            await serve(group, **options)


async def test_callers_on_asyncio_have_an_address_function_of_their_loop(tmp_path: Path) -> None:
    async with door(tmp_path, in_process("notes", notes())) as served:

        async def address() -> str:
            await asyncio.sleep(0)
            return served.address

        async def main() -> str:
            transport = Socket(address, secret=lambda: SECRET)
            async with bridge.open_servers(ServerConfig("notes", transport, required=True)) as group:
                said: str = await group["notes"].call("echo", text="hi")
                return said

        assert await trio.to_thread.run_sync(asyncio.run, main()) == "hi"


async def test_a_client_that_breaks_its_connection_when_it_is_refused_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal finds that the connection was reset."""
    gone = trio.Event()

    async def read_and_wait(connection: trio.socket.SocketType, most: int) -> bytes:
        line = await connection.recv(most)
        await gone.wait()
        return line

    async with door(tmp_path, in_process("notes", notes())) as served:
        host, port = served.address.rsplit(":", 1)
        with monkeypatch.context() as patched:
            patched.setattr(_network, "read_line", read_and_wait)
            client = await trio.open_tcp_stream(host, int(port))
            await client.receive_some()
            await client.send_all(b"garbage\n")
            await trio.testing.wait_all_tasks_blocked()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.socket.close()
            gone.set()
            await trio.testing.wait_all_tasks_blocked()
        async with open_servers(ServerConfig("notes", served.at("tcp"), required=True)) as group:
            assert await group["notes"].call("echo", text="hi") == "hi"


# --- strangers --------------------------------------------------------------------------------------------------------


def has_ended(stream: trio.SocketStream) -> bool:
    """Return True if the gateway has closed a connection of which everything was read."""
    connection = socket.socket(fileno=stream.socket.fileno())
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    finally:
        connection.detach()


async def test_strangers_take_places_from_each_other_and_one_line_of_the_log_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-51: they held all places, and clients with the secret were refused."""
    monkeypatch.setattr(_network, "HANDSHAKE_SECONDS", 2 * BOUND)  # no place is freed by the time
    monkeypatch.setattr(_serve, "MAX_UNPROVEN", 20)
    strangers: list[trio.SocketStream] = []

    def lines() -> list[str]:
        return [each.message for each in caplog.records if "is refused" in each.message]

    async with door(tmp_path, in_process("notes", notes())) as served, AsyncExitStack() as stack:
        host, port = served.address.rsplit(":", 1)
        config = ServerConfig("notes", served.at("tcp"), required=True, restarts=ONCE)
        for count in (20, 5, 5):
            for _ in range(count):
                stranger = await stack.enter_async_context(await trio.open_tcp_stream(host, int(port)))
                strangers.append(stranger)
                assert (await stranger.receive_some()).startswith(b"mcp-actors/1 ")
            with trio.fail_after(BOUND):
                async with open_servers(config) as group:
                    assert await group["notes"].call("echo", text="hi") == "hi"
        gone = len(strangers) - 19  # the last client took a place, and has proven the secret
        await eventually(lambda: [*map(has_ended, strangers)] == [True] * gone + [False] * 19)
        [first] = lines()
    assert first == "client 1 is refused: 20 newer ones came before it proved the secret; keep strangers out"
    [_, last] = lines()
    assert last.endswith(f" ({len(strangers) - 2} others were refused since the last such line)")


async def test_strangers_take_no_place_of_a_client_that_has_proven_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-51."""
    monkeypatch.setattr(_serve, "MAX_CLIENTS", 2)
    async with door(tmp_path, in_process("notes", notes())) as served, AsyncExitStack() as stack:
        host, port = served.address.rsplit(":", 1)
        strangers = [await stack.enter_async_context(await trio.open_tcp_stream(host, int(port))) for _ in range(3)]
        for each in strangers:
            assert await each.receive_some()
        clients = [await stack.enter_async_context(await named(served, "tcp", "notes")) for _ in range(2)]
        third = await stack.enter_async_context(await named(served, "tcp", "notes"))
        with trio.fail_after(BOUND):
            assert await third.receive_some() == b""
        assert not any(map(has_ended, [*strangers, *clients]))
    assert "client 6 is refused: there are 2 clients" in caplog.text


# --- programs in the place of a gateway -------------------------------------------------------------------------------


@asynccontextmanager
async def stranger(*lines: bytes, silent: bool = False) -> AsyncIterator[str]:
    """Listen at a port, and send these lines to each client; then close the connection, or say nothing more."""

    async def answer(client: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            for line in lines:
                await client.send_all(line)
                await client.receive_some()
            if silent:
                await trio.sleep_forever()
        await client.aclose()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        host, port = listener.socket.getsockname()
        yield f"{host}:{port}"
        nursery.cancel_scope.cancel()


HELLO: Final = b"mcp-actors/1 " + b"0" * 64 + b"\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "closed the connection; check that it is a gateway, that it has no other user, and its log"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), "is not a gateway of mcp-actors, or an older one; check the address"),
        ((b"x" * 1000,), "sent something else than one line"),
        ((HELLO + b"{}\n",), "sent something else than one line"),
        ((b"mcp-actors/2 hello\n",), "has another version of the handshake; install the same version of mcp-actors"),
        ((HELLO, b"mcp-actors/1 - ok\n"), "refused the secret; compare secret or secret_file here with"),
        ((HELLO, b"mcp-actors/1 " + b"0" * 64 + b" ok\n"), "has not proven the secret; check which program listens"),
        ((HELLO, b"x" * 5000), "sent something else than one line"),
    ],
)
async def test_another_program_in_the_place_of_a_gateway_is_named(lines: tuple[bytes, ...], said: str) -> None:
    async with stranger(*lines) as address:
        error = await failed(Socket(address, secret=SECRET))
    assert error.startswith(f"server 'q': the gateway at {address} {said}")
    assert SECRET not in error


@pytest.mark.parametrize("lines", [(), (HELLO,)])
async def test_a_gateway_that_does_not_answer_is_given_up_after_five_seconds(
    lines: tuple[bytes, ...], autojump_clock: MockClock
) -> None:
    async with stranger(*lines, silent=True) as address:
        began = trio.current_time()
        error = await failed(Socket(address, secret=SECRET))
        assert trio.current_time() - began == pytest.approx(HANDSHAKE_SECONDS)
    assert error.startswith(
        f"server 'q': the gateway at {address} did not answer within 5 s; check that it is a gateway"
    )


async def test_a_short_connect_timeout_bounds_the_handshake(autojump_clock: MockClock) -> None:
    async with stranger(silent=True) as address:
        config = ServerConfig("q", Socket(address, secret=SECRET), required=True, restarts=ONCE, connect_timeout=2)
        began = trio.current_time()
        with pytest.raises(ConnectFailed, match=r"timed out after 2 s \(connect_timeout\) while opening"):
            async with open_servers(config):
                pass
        assert trio.current_time() - began == pytest.approx(2)


async def test_calls_wait_for_a_gateway_that_is_away_again_and_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    """By default, half a minute each time: a gateway that is replaced is not a server that crashes."""
    path = str(tmp_path / "g.sock")
    quick = MCPServer("quick", log_level="WARNING")

    @quick.tool()
    async def echo(text: str) -> str:  # in no thread, which a mock clock would not wait for
        return text

    async with open_servers(in_process("notes", quick)) as behind:
        config = ServerConfig("notes", Socket(path), connect="lazy")
        async with open_servers(config) as group, trio.open_nursery() as nursery:
            for away in (30, 30, 10):
                answered = trio.Event()

                async def call(done: trio.Event = answered) -> None:
                    await group["notes"].call_tool("echo", {"text": "hi"})
                    done.set()

                nursery.start_soon(call)
                await trio.sleep(away)
                with trio.CancelScope() as life:
                    async with trio.open_nursery() as gateway:
                        await gateway.start(partial(serve, behind, path=path))
                        with trio.fail_after(6):
                            await answered.wait()
                        await trio.sleep(6)
                        life.cancel()
            await trio.sleep(100)
            assert group["notes"].state == "failed"
            async with trio.open_nursery() as gateway:
                await gateway.start(partial(serve, behind, path=path))
                with trio.fail_after(6):
                    await group["notes"].wait_state("ready")
                gateway.cancel_scope.cancel()


# --- what the rest of the package knows of it -------------------------------------------------------------------------


@KINDS
async def test_metrics_have_the_kind_of_the_socket(kind: str, tmp_path: Path) -> None:
    async with door(tmp_path, in_process("notes", notes())) as served:
        config = ServerConfig("notes", served.at(kind))
    assert _common(config, None) == {"network.transport": kind}

    async def address() -> str:
        return served.path

    assert _common(ServerConfig("notes", Socket(address)), None) == {}


def test_a_server_is_recognized_by_its_address_and_not_by_its_secret() -> None:
    pins = {
        launch_pin(ServerConfig("a", transport))
        for transport in (
            Socket("h:1", secret=SECRET),
            Socket("h:1", secret=Secret(SECRET)),
            Socket("h:1", secret_file="/x"),
        )
    }
    assert len(pins) == 1
    assert launch_pin(ServerConfig("a", Socket("h:2", secret=SECRET))) not in pins
    assert launch_pin(ServerConfig("a", Socket("h:1", secret=SECRET, server="b"))) not in pins


def test_the_command_line_shows_the_address() -> None:
    entries = {"a": {"socket": "h:1", "secret": SECRET}, "b": {"socket": "${HOST}:1", "secret": "${GATEWAY_SECRET}"}}
    shown = [describe(config.transport) for config in load_config({"mcpServers": entries}).servers]
    assert shown == ["h:1", "${HOST}:1"]
