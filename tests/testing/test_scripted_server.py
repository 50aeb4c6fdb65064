"""A scripted server does what the test says, over every transport and in both eras."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    ConnectionLost,
    HealthPolicy,
    Http,
    HttpStatusError,
    RequestTimedOut,
    RestartPolicy,
    ServerConfig,
    ServerError,
    open_servers,
)
from mcp_actors.testing import (
    Crash,
    Delay,
    Duplicate,
    EventRecorder,
    Fail,
    Flood,
    Garble,
    Gate,
    Hang,
    HttpError,
    Noise,
    ScriptedServer,
)

from ..idle_clock import IdleClock
from ..servers.fleet import calls
from ..servers.processes import BOUND, eventually

WAYS: Final = ["in_process", "stdio", "http", "sse"]
BOTH: Final = [(way, era) for way in WAYS for era in ("legacy", "2026-07-28") if (way, era) != ("sse", "2026-07-28")]
every_way = pytest.mark.parametrize(("way", "era"), BOTH)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def config(server: ScriptedServer, way: str, era: Any = "legacy", **options: Any) -> ServerConfig:
    options = {"restarts": RestartPolicy(max_restarts=50, backoff=Backoff()), "required": True, **options}
    return ServerConfig("x", getattr(server, way)(), protocol=era, **options)


async def echo(ref: Any, text: str = "hello") -> str:
    result = await ref.call_tool("echo", {"text": text})
    return str(result.content[0].text)


@every_way
async def test_it_can_be_called(server: ScriptedServer, way: str, era: str) -> None:
    async with open_servers(config(server, way, era)) as servers:
        assert await echo(servers["x"]) == "hello"
    assert [(call.name, call.arguments) for call in server.calls] == [("echo", {"text": "hello"})]


@every_way
async def test_a_crash_in_a_call_loses_it_and_the_next_is_served(server: ScriptedServer, way: str, era: str) -> None:
    server.inject(Crash())
    async with open_servers(config(server, way, era)) as servers:
        with pytest.raises(ServerError):
            await echo(servers["x"])
        assert await echo(servers["x"], "again") == "again"
    assert len(server.calls) == 2


@pytest.mark.parametrize("way", ["in_process", "stdio"])
async def test_a_crash_while_idle_is_noticed(server: ScriptedServer, way: str) -> None:
    recorder = EventRecorder()
    async with open_servers(config(server, way), observers=[recorder]) as servers:
        server.crash()
        with trio.fail_after(BOUND):
            await servers["x"].wait_state("backoff", "connecting")
            await servers["x"].wait_ready()
    assert recorder.states("x")[:3] == ["connecting", "ready", "backoff"]


@every_way
async def test_a_hanging_call_times_out_and_is_cancelled(
    server: ScriptedServer, way: str, era: str, idle_clock: IdleClock
) -> None:
    server.inject(Hang())
    async with open_servers(config(server, way, era)) as servers:
        with pytest.raises(RequestTimedOut):
            await echo(servers["x"])
        assert await echo(servers["x"], "next") == "next"
        if (way, era) != ("http", "2026-07-28"):  # there, the client closes the stream of the answer
            await eventually(lambda: len(server.cancelled) == 1)
    assert {each.method for each in server.cancelled} <= {"tools/call"}  # and not the stream of notifications


@pytest.mark.parametrize("way", ["in_process", "stdio", "http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_detects_the_era_finds_it(way: str, era: Any) -> None:
    with ScriptedServer(era=era) as server:
        async with open_servers(config(server, way, "auto")) as servers:
            assert await echo(servers["x"]) == "hello"
        methods = [each.method for each in server.received]
    assert methods.count("server/discover") == 1
    assert methods.count("initialize") == (era == "legacy")


@every_way
async def test_gates_decide_the_order_of_the_answers(server: ScriptedServer, way: str, era: str) -> None:
    gates = [Gate(), Gate()]
    for gate in gates:
        server.inject(gate)
    answered: list[str] = []

    async def call(text: str) -> None:
        answered.append(await echo(servers["x"], text))

    async with open_servers(config(server, way, era)) as servers, trio.open_nursery() as nursery:
        for number, text in enumerate(("a", "b"), 1):
            nursery.start_soon(call, text)
            await server.wait_call("echo", number=number)
        gates[1].open()
        await eventually(lambda: answered == ["b"])
        gates[0].open()
    assert answered == ["b", "a"]


@every_way
async def test_a_call_fails_as_injected(server: ScriptedServer, way: str, era: str) -> None:
    server.inject(Fail("no luck", -32001), name="echo")
    async with open_servers(config(server, way, era)) as servers:
        with pytest.raises(Exception, match="no luck"):
            await echo(servers["x"])
        assert await echo(servers["x"]) == "hello"


@every_way
async def test_delays_floods_noise_and_double_answers_do_no_harm(server: ScriptedServer, way: str, era: str) -> None:
    for fault in (Delay(0.01), Flood(20), Noise(b'{"jsonrpc": "2.0", "method": "notifications/x"}'), Duplicate()):
        server.inject(fault)
    async with open_servers(config(server, way, era)) as servers:
        assert [await echo(servers["x"], text) for text in "abcde"] == [*"abcde"]


@every_way
async def test_a_garbled_answer_fails_or_times_out_and_the_next_is_right(
    server: ScriptedServer, way: str, era: str, idle_clock: IdleClock
) -> None:
    server.inject(Garble(b"\xff not json"))
    async with open_servers(config(server, way, era)) as servers:
        with pytest.raises(ServerError):
            await echo(servers["x"])
        assert await echo(servers["x"]) == "hello"


@every_way
async def test_a_changed_list_is_shown(server: ScriptedServer, way: str, era: str) -> None:
    async with open_servers(config(server, way, era)) as servers:
        server.add_tool("new", lambda arguments: {"sum": 5})
        with trio.fail_after(BOUND):
            async with servers.watch_events() as events:
                while [tool.name for tool in servers.tools] != ["echo", "new"]:
                    await anext(events)
        assert (await servers["x"].call_tool("new")).structured_content == {"sum": 5}


async def test_http_statuses_are_injected(server: ScriptedServer) -> None:
    server.inject(HttpError(503, {"Retry-After": "7"}))
    async with open_servers(config(server, "http")) as servers:
        with pytest.raises(HttpStatusError) as caught:
            await echo(servers["x"])
        assert (caught.value.status, caught.value.retry_after) == (503, 7)
        assert await echo(servers["x"]) == "hello"
    assert len(server.calls) == 1


async def test_a_forgotten_session_is_opened_again(server: ScriptedServer) -> None:
    async with open_servers(config(server, "http")) as servers:
        assert await echo(servers["x"]) == "hello"
        server.forget_sessions()
        assert await echo(servers["x"], "again") == "again"
    assert [each.method for each in server.received].count("initialize") == 2


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_is_down_refuses_connects_until_it_is_up(server: ScriptedServer, way: str) -> None:
    server.go_down()
    restart = RestartPolicy(max_restarts=1000, backoff=Backoff(first=0.05, initial=0.05))
    async with open_servers(config(server, way, required=False, restarts=restart)) as servers:
        with trio.fail_after(BOUND):
            await servers["x"].wait_state("backoff")
            server.come_up()
            await servers["x"].wait_ready()
        assert await echo(servers["x"]) == "hello"


@pytest.mark.parametrize("way", ["in_process", "stdio", "http"])
async def test_a_frozen_server_goes_on_where_it_was(server: ScriptedServer, way: str) -> None:
    async with open_servers(config(server, way)) as servers, trio.open_nursery() as nursery:
        assert await echo(servers["x"]) == "hello"
        server.freeze()
        with trio.move_on_after(0.2) as scope:
            await echo(servers["x"])
        assert scope.cancelled_caught
        server.thaw()
        nursery.start_soon(echo, servers["x"])


async def test_a_server_that_was_frozen_twice_goes_on_at_the_first_thaw(server: ScriptedServer) -> None:
    async with open_servers(config(server, "in_process")) as servers:
        server.freeze()
        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(echo, servers["x"])
                await wait_all_tasks_blocked()
                server.freeze()
                server.thaw()


async def test_a_frozen_server_that_crashes_breaks_the_messages_that_it_has_not_taken() -> None:
    """In process; a pipe breaks by itself."""
    scripted = ScriptedServer("x", era="legacy")
    quiet: dict[str, Any] = {"request_timeout": None, "health": HealthPolicy(interval=None)}
    async with open_servers(ServerConfig("x", scripted.in_process(), **quiet)) as servers:
        scripted.freeze()
        async with calls(1, echo, servers["x"]) as [lost]:
            await wait_all_tasks_blocked()
            scripted.crash()
        assert isinstance(lost.error, ConnectionLost)
        assert await echo(servers["x"]) == "hello"


def test_faults_are_seen_in_the_bytes(server: ScriptedServer) -> None:
    """A client hides them, so this one is a pipe."""
    transport = server.stdio()
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([transport.command, *transport.args], **pipes) as process:

        def ask(request: int, method: str, **params: Any) -> None:
            message = {"jsonrpc": "2.0", "id": request, "method": method, "params": params}
            process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]  # it is a pipe
            process.stdin.flush()  # type: ignore[union-attr]  # it is a pipe

        def read(number: int) -> list[Any]:
            lines = [process.stdout.readline() for _ in range(number)]  # type: ignore[union-attr]  # it is a pipe
            return [line if line == b"?\n" else json.loads(line) for line in lines]

        ask(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "x", "version": "1"})
        assert [each["id"] for each in read(1)] == [1]
        call = {"name": "echo", "arguments": {"text": "a"}}
        server.inject(Duplicate())
        ask(2, "tools/call", **call)
        assert [each["id"] for each in read(2)] == [2, 2]
        server.inject(Garble(b"?"))
        ask(3, "tools/call", **call)
        assert read(1) == [b"?\n"]
        server.inject(Noise(b"?"))
        ask(5, "tools/call", **call)
        noise, answer = read(2)
        assert (noise, answer["id"]) == (b"?\n", 5)
        server.inject(Flood(3))
        ask(4, "tools/call", **call)
        *notices, answer = read(4)
        assert [each["method"] for each in notices] == ["notifications/progress"] * 3
        assert answer["id"] == 4
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        assert process.wait() == 0


def test_a_way_that_needs_the_block_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"http\(\) needs an open server; use it in `with ScriptedServer\(\)"):
        ScriptedServer().http()


def test_the_transports_are_those_of_configurations(server: ScriptedServer) -> None:
    assert isinstance(server.http(), Http)


@pytest.mark.parametrize("part", [b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12", b"nonsense\r\n\r\n"])
async def test_a_client_may_break_off_a_request(server: ScriptedServer, part: bytes) -> None:
    url = httpx2.URL(server.http().url)
    assert url.port is not None
    async with open_servers(config(server, "http")) as servers:
        for _ in range(3):
            stream = await trio.open_tcp_stream(url.host, url.port)
            await stream.send_all(part)
            await stream.send_eof()
            with trio.fail_after(BOUND):
                while await stream.receive_some():
                    pass
            await stream.aclose()
        assert await echo(servers["x"]) == "hello"
