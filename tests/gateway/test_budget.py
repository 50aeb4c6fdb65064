"""Bounds of the sums that clients make a gateway hold: bytes that wait, requests in flight, and processes."""

from __future__ import annotations

import gc
import json
import math
import os
import socket
import tracemalloc
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from mcp.types import LoggingMessageNotificationParams
from trio.testing import wait_all_tasks_blocked

from mcp_actors import LimitExceeded, ServerConfig, Socket, open_servers
from mcp_actors.config import CallbackContext
from mcp_actors.gateway import _budget, _output
from mcp_actors.gateway._daemon import DIRECTORY
from mcp_actors.gateway._session import Gateway, GatewaySession
from mcp_actors.gateway.http import _door, _streamable

from ..servers.groups import server
from ..servers.processes import eventually, processes, state_of
from ..soak.census import memory
from .hosts import BOUND, gateway, in_process, notes, outcome_of
from .http.doors import TOKEN, House, LegacySession, Peer, open_house, text_of
from .test_session_faults import Lines

TOKENS: Final = {"ann": "a-token-of-ann-0001", "bob": "a-token-of-bob-0001"}

MIB: Final = 1024 * 1024

OWN_PID: Final = {"name": "own_pid", "arguments": {}}


class Work:
    """A server whose tools wait for a gate, or have a large result."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.begun = 0
        server = MCPServer("work")

        @server.tool()
        async def wait(text: str = "") -> str:
            self.begun += 1
            await self.gate.wait()
            return "waited"

        @server.tool(structured_output=False)
        async def big(size: int) -> str:
            self.begun += 1
            return "x" * size

        self.config = in_process("w", server)


def big(size: int) -> dict[str, Any]:
    return {"name": "w_big", "arguments": {"size": size}}


def wait(size: int = 0) -> dict[str, Any]:
    return {"name": "w_wait", "arguments": {"text": "x" * size}}


async def deaf(house: House) -> Peer:
    """Connect a client that takes little and reads nothing of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    with suppress(BlockingIOError):
        client.connect(house.address)
    await trio.lowlevel.wait_writable(client)
    peer = Peer(trio.SocketStream(trio.socket.from_stdlib_socket(client)), f"127.0.0.1:{house.address[1]}")
    house.peers.append(peer)
    return peer


async def deaf_to(house: House, params: dict[str, Any], number: int, token: str = TOKEN) -> list[Peer]:
    """Let so many clients ask for something and not read it, one after the other."""
    peers = []
    for _ in range(number):
        peers.append(peer := await deaf(house))
        await peer.post_modern("tools/call", params, token=token)
        await eventually(partial(waits_more, total()))
    return peers


def waits_more(before: int) -> bool:
    return total() > before


def total() -> int:
    return _budget.budget().waiting


def log(house: House, text: str) -> None:
    params = LoggingMessageNotificationParams(level="error", data=text)
    house.door._gateway.log(CallbackContext(server="w"), params)


async def listen_deaf(house: House, session: LegacySession) -> Peer:
    """Open the stream of a session, and read nothing of it but the head."""
    peer = await deaf(house)
    await peer.send("GET", "/mcp", {"accept": "text/event-stream", **session.headers}, token=session.token)
    await peer.read_head()
    return peer


def patch(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    """Set limits of the budget, or when a client has stalled. The system buffers little for clients over HTTP then."""
    monkeypatch.setattr(
        _door, "prepare", lambda client: client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    )
    for name, value in limits.items():
        monkeypatch.setattr(_output if name == "STALLED" else _budget, name, value)


# --- What waits for clients -------------------------------------------------------------------------------------------


async def test_a_log_message_is_written_once_for_all_clients() -> None:
    """D-54: the clients share its bytes, also where they wait in a chunk of a reply over HTTP."""
    shared = Gateway()
    outlets = [Lines() for _ in range(3)]
    for each in outlets:
        session = GatewaySession(shared, each, print)
        session.take({"jsonrpc": "2.0", "method": "notifications/initialized"})
        session.modern = False
        shared.sessions.add(session)
    shared.log(CallbackContext(server="a"), LoggingMessageNotificationParams(level="error", data="x"))
    assert len({id(line) for lines in outlets for line in lines}) == 1
    async with open_house(in_process("notes", notes())) as house:
        for _ in range(10):
            await listen_deaf(house, await house.begin())
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(20):
                log(house, f"{number}" + "x" * MIB)
            assert total() > 100 * MIB
            assert tracemalloc.get_traced_memory()[0] < 30 * MIB
        finally:
            tracemalloc.stop()


async def test_at_the_bound_log_messages_are_dropped_first_and_one_line_says_how_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D-54: no client is disconnected for that, and what a client gets is whole."""
    patch(monkeypatch, WAITING=8 * MIB, STALLED=0.0)
    work = Work()
    async with open_house(work.config) as house:
        [asking] = await deaf_to(house, big(5 * MIB), 1)
        streams = [await listen_deaf(house, await house.begin()) for _ in range(4)]
        for number in range(40):
            log(house, f"{number} " + "x" * (MIB // 2))
            assert total() <= 8 * MIB
        assert json.loads((await asking.read()).body)["result"]["content"][0]["text"] == "x" * 5 * MIB
        for stream in streams:
            assert (await stream.read_event())["method"] == "notifications/message"
            await trio.aclose_forcefully(stream.stream)
        await eventually(lambda: total() == 0)
    [line] = [each for each in caplog.messages if "were dropped" in each]
    dropped = int(line.split()[0])
    assert line.endswith(f"were dropped: more than {8 * MIB} bytes waited for clients")
    assert 100 < dropped < 160
    assert "is disconnected" not in caplog.text


async def test_log_messages_that_are_dropped_without_end_are_one_line_each_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patch(monkeypatch, WAITING=MIB, REPORT=math.inf)
    async with open_house(in_process("notes", notes())) as house:
        await listen_deaf(house, await house.begin())
        for number in range(200):
            monkeypatch.setattr(_budget, "REPORT", -1.0 if number % 100 == 99 else math.inf)  # a minute later
            log(house, f"{number} " + "x" * (MIB // 2))
        lines = [each for each in caplog.messages if "were dropped" in each]
    assert len(lines) == 2


async def test_then_the_client_that_has_read_nothing_for_longest_is_disconnected_and_no_result_of_a_reader_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D-54."""
    patch(monkeypatch, WAITING=10 * MIB, STALLED=0.0)
    work = Work()
    async with open_house(work.config) as house:
        reader = await house.connect()
        peers = await deaf_to(house, big(3 * MIB), 3)
        for number in range(5):
            result = await reader.ask("tools/call", big(3 * MIB + number))
            assert len(result.json["result"]["content"][0]["text"]) == 3 * MIB + number
            peers += await deaf_to(house, big(3 * MIB), 1)
            assert total() <= 10 * MIB
        names = [line.split()[1] for line in caplog.messages if "is disconnected: it does not read, while" in line]
        assert names == sorted(names, key=int)
        assert len(names) == 5
        assert len((await peers[-1].read()).body) > 3 * MIB
        with pytest.raises((AssertionError, trio.BrokenResourceError)):
            await peers[0].read()


async def test_a_client_that_reads_is_not_disconnected_although_that_was_not_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-54: its socket is asked, because this process may not have run for a while."""
    patch(monkeypatch, WAITING=MIB, STALLED=0.0)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    left: list[str] = []
    with ours, theirs:
        output = _output.DescriptorWriter(ours.fileno(), left.append, "client", "")
        output.write(b"x" * MIB)  # no task writes the rest
        received = 0
        while output.waiting + received < MIB:
            received += len(theirs.recv(MIB))
        output.write(b"y" * MIB)
        assert not output.closed
        output.write(b"z", at_once=False)
        while not _output.poll(ours.fileno(), 4):
            theirs.recv(MIB)
        output.write(b"z")
        assert (output.closed, left) == (False, [])
        with suppress(BlockingIOError):
            while True:
                os.write(ours.fileno(), b"x" * MIB)
        output.write(b"z")
        assert (output.closed, left) == (True, ["the client does not read"])
        assert total() == 0


async def test_the_end_of_a_large_message_that_waits_does_not_hold_the_message(autojump_clock: trio.abc.Clock) -> None:
    """D-54: clients that leave the last bytes of each answer unread would hold far more than is counted."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        output = _output.DescriptorWriter(ours.fileno(), lambda _: None, "client", "")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.run)
            tracemalloc.start()
            output.write(bytes(16), at_once=False)  # so the large one is joined with another
            output.write(bytes(32 * MIB), at_once=False)
            left = 32 * MIB
            while left > MIB:
                left -= len(await trio.to_thread.run_sync(theirs.recv, MIB // 4))
            await wait_all_tasks_blocked()
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert 0 < output.waiting < held < 3 * MIB
            nursery.cancel_scope.cancel()


async def test_then_new_requests_are_refused_and_the_identity_that_holds_most_is_hit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-54: bob, who is below his share, is served."""
    patch(monkeypatch, WAITING=8 * MIB, STALLED=math.inf)
    work = Work()
    async with open_house(work.config, tokens=TOKENS) as house:
        await deaf_to(house, big(2 * MIB), 1, TOKENS["bob"])
        await deaf_to(house, big(4 * MIB), 2, TOKENS["ann"])
        begun, peer = work.begun, await house.connect()
        error = (await peer.ask("tools/call", big(1), token=TOKENS["ann"])).json["error"]
        assert outcome_of(error) == ("not_sent", "LimitExceeded")
        assert "bytes wait for clients that do not read them" in error["message"]
        assert work.begun == begun
        assert "result" in (await (await house.connect()).ask("tools/call", big(1), token=TOKENS["bob"])).json
        monkeypatch.setattr(_output, "STALLED", 0.0)
        assert "result" in (await peer.ask("tools/call", big(1), token=TOKENS["ann"])).json  # its clients had to go
        holders = [each.identity for each in _budget.budget()._holders]
        assert sorted(holders) == ["ann", "bob"]


async def test_messages_for_streams_that_are_not_open_are_part_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch, WAITING=MIB, STALLED=0.0)
    async with open_house(in_process("notes", notes())) as house:
        sessions = [await house.begin() for _ in range(5)]
        for number in range(40):
            log(house, f"{number}" + "x" * 10_000)
            assert total() == sum(each.waiting for each in house.door.mcp.sessions.values()) <= MIB
        stream = await sessions[-1].listen()
        assert (await stream.read_event())["method"] == "notifications/message"
        for session in sessions:
            await session.end()
        await eventually(lambda: total() == 0)


@pytest.mark.parametrize("kind", ["streams", "results", "requests"])
async def test_what_clients_made_a_gateway_hold_is_given_back(
    kind: str, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    """D-54: live memory is what it was before, within a mebibyte; the bounds are 16 times smaller here."""
    patch(monkeypatch, WAITING=16 * MIB, IN_FLIGHT=16 * MIB, STALLED=0.0)
    work = Work()

    async def attack(size: int) -> int:
        sessions = [await house.begin() for _ in range(8)] if kind == "streams" else []
        for session in sessions:
            await listen_deaf(house, session)
        for number in range(40 if sessions else 0):
            log(house, f"{number}" + "x" * (size // 2))
        for _ in range(0 if sessions else 24):
            with suppress(trio.BrokenResourceError):
                await (await deaf(house)).post_modern("tools/call", big(size) if kind == "results" else wait(size))
        await eventually(lambda: total() > 0 or kind == "requests")
        await wait_all_tasks_blocked(0.2)
        held = memory()
        assert total() <= 32 * MIB
        for session in sessions:
            await session.end()
        for peer in house.peers:
            await trio.aclose_forcefully(peer.stream)
        house.peers.clear()
        await eventually(lambda: not any(_budget._sums(_budget.budget().sources, "request_bytes").values()))
        await eventually(lambda: len(house.door.connections) == 0)
        return held

    async with open_house(work.config) as house:
        await attack(MIB // 2)  # what is made once
        gc.collect()
        rss = memory()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            peak = await attack(2 * MIB) - rss
            await wait_all_tasks_blocked(0.1)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert total() == 0
    record_property("note", f"{kind}: {peak / 1e6:.0f} MB during the attack, {grown / 1e6:.2f} MB live after it")
    assert grown < MIB
    assert peak < 32 * MIB + 100e6


# --- A result, however large ------------------------------------------------------------------------------------------


async def test_a_client_that_reads_gets_a_result_that_is_larger_than_may_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-100: and its other calls go on."""
    patch(monkeypatch, WAITING=MIB)
    work = Work()
    async with gateway(tmp_path, work.config) as door:
        transport = Socket(door.path, server="w")
        async with open_servers(ServerConfig("s", transport, required=True)) as group, trio.open_nursery() as nursery:
            texts: list[str] = []

            async def call() -> None:
                texts.append(text_of(await group["s"].call_tool("wait")))

            nursery.start_soon(call)
            await eventually(lambda: work.begun == 1)
            with trio.fail_after(BOUND):
                assert len(text_of(await group["s"].call_tool("big", {"size": 5 * MIB}))) == 5 * MIB
            work.gate.set()
        assert texts == ["waited"]


async def test_a_result_that_cannot_pass_is_an_error_of_its_own_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D-100: it names the limit and the option, at the gateway and at a client with a limit of its own."""
    patch(monkeypatch, WAITING=MIB, IN_FLIGHT=MIB)
    work = Work()
    async with gateway(tmp_path, work.config) as door:
        host = await door.connect()
        other = host.request("tools/call", wait())
        await host.send(other)
        error = await host.error("tools/call", big(3 * MIB))
        assert outcome_of(error) == ("unknown", "LimitExceeded")
        assert "bytes may wait for all clients until they are read" in error["message"]
        assert "max_line_bytes or max_body_bytes" in error["message"]
        transport = Socket(door.path, server="w", max_line_bytes=100_000)
        async with open_servers(ServerConfig("s", transport, required=True)) as group, trio.open_nursery() as nursery:
            texts: list[str] = []

            async def call() -> None:
                texts.append(text_of(await group["s"].call_tool("wait")))

            nursery.start_soon(call)
            await eventually(lambda: work.begun == 3)
            with pytest.raises(LimitExceeded, match=r"more than 100000 bytes.*raise max_line_bytes"):
                await group["s"].call_tool("big", {"size": 200_000})
            work.gate.set()
        assert texts == ["waited"]
        assert (await host.answer_to(other))["result"]["content"][0]["text"] == "waited"
    assert "is disconnected" not in caplog.text


# --- What is in flight ------------------------------------------------------------------------------------------------


async def test_requests_in_flight_are_bounded_in_sum_over_all_ways_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-54."""
    patch(monkeypatch, IN_FLIGHT=1_300_000)
    work = Work()
    async with open_house(work.config) as house, gateway(tmp_path, work.config) as door:
        host, peer = await door.connect(), await house.connect()
        asked = [host.request("tools/call", wait(100_000)) for _ in range(2)]
        await host.send(*asked)
        await eventually(lambda: work.begun == 2)
        await peer.post_modern("tools/call", wait(100_000))
        await eventually(lambda: work.begun == 3)
        session = await house.begin()
        refused = [
            (await (await house.connect()).ask("tools/call", wait(100_000))).json["error"],
            (await session.ask("tools/call", wait(100_000))).json["error"],
            await (await door.connect()).error("tools/call", wait(100_000)),
        ]
        for error in refused:
            assert outcome_of(error) == ("not_sent", "LimitExceeded")
            assert "memory" in error["message"]
            assert "nothing was sent" in error["message"]
        assert work.begun == 3
        assert await host.result("ping") == {}
        work.gate.set()
        assert "result" in (await peer.read()).json
        for each in asked:
            assert "result" in await host.answer_to(each)
        assert await host.call("w_wait", text="x" * 100_000) == "waited"


async def test_many_small_requests_in_flight_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-54."""
    patch(monkeypatch, IN_FLIGHT=20 * _budget.CALL_OVERHEAD)
    work = Work()
    async with gateway(tmp_path, work.config) as door:
        hosts = [await door.connect() for _ in range(3)]
        for host in hosts:
            await host.send(*[host.request("tools/call", wait()) for _ in range(10)])
        await eventually(lambda: work.begun + sum(len(host.answers) for host in hosts) == 30)
        assert 10 < work.begun < 20
        work.gate.set()
        await eventually(lambda: sum(len(host.answers) for host in hosts) == 30)
        outcomes = [outcome_of(each["error"])[0] for host in hosts for each in host.answers.values() if "error" in each]
        assert outcomes == ["not_sent"] * (30 - work.begun)


async def test_one_identity_leaves_room_for_the_requests_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-54."""
    patch(monkeypatch, IN_FLIGHT=4_200_000)
    work = Work()
    async with open_house(work.config, tokens=TOKENS) as house:

        async def refused(user: str) -> bool:
            peer, before = await house.connect(), work.begun
            await peer.post_modern("tools/call", wait(100_000), token=TOKENS[user])
            with trio.move_on_after(BOUND):
                while work.begun == before:
                    with trio.move_on_after(0.01):
                        return "error" in (await peer.read()).json
            return False

        for most, user in ((5, "ann"), (3, "bob")):
            for _ in range(most):
                assert not await refused(user), user
            assert await refused(user)


@pytest.mark.parametrize("chunks", [False, True])
async def test_a_body_for_which_there_is_no_room_is_skipped_and_its_request_refused(
    chunks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-54: requests that are still arriving are part of the sum."""
    patch(monkeypatch, IN_FLIGHT=3 * MIB)
    work = Work()
    async with open_house(work.config) as house:
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": wait(2 * MIB)}).encode()
        coding = "transfer-encoding: chunked" if chunks else f"content-length: {len(body)}"
        head = f"POST /mcp HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a-token-for-tests-only\r\n{coding}\r\n"
        head = head.replace("host: x", f"host: 127.0.0.1:{house.address[1]}")
        head += "content-type: application/json\r\naccept: application/json, text/event-stream\r\n\r\n"
        data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunks else body
        first, second = await house.connect(), await house.connect()
        await first.write(head.encode() + data[:-10])
        arrived = partial(_budget._sums, _budget.budget().sources, "request_bytes")
        await eventually(lambda: arrived().total() > 2 * MIB - 100_000)
        await second.write(head.encode() + data)
        error = (await second.read()).json
        assert (error["id"], outcome_of(error["error"])) == (7, ("not_sent", "LimitExceeded"))
        await trio.aclose_forcefully(first.stream)
        await eventually(lambda: arrived().total() == 0)
        assert work.begun == 0


async def test_a_line_for_which_there_is_no_room_is_skipped_and_its_request_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-54: the other requests of that client go on."""
    patch(monkeypatch, IN_FLIGHT=3 * MIB)
    work = Work()
    async with gateway(tmp_path, work.config) as door:
        half, host = await door.connect(), await door.connect()
        other = host.request("tools/call", wait())
        await host.send(other)
        await half.stream.send_all(json.dumps(half.request("tools/call", wait(2 * MIB))).encode()[:-10])
        arrived = partial(_budget._sums, _budget.budget().sources, "request_bytes")
        await eventually(lambda: arrived().total() > 2 * MIB - 100_000)
        error = await host.error("tools/call", wait(2 * MIB))
        assert outcome_of(error) == ("not_sent", "LimitExceeded")
        assert "the requests of all clients take too much memory" in error["message"]  # it was not even parsed
        work.gate.set()
        assert "result" in await host.answer_to(other)
        await trio.aclose_forcefully(half.stream)
        await eventually(lambda: arrived().total() == 0)


# --- Sessions and their processes -------------------------------------------------------------------------------------


async def test_at_the_limit_the_session_of_the_same_identity_that_was_idle_longest_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-53: one with a stream or a call does not; if none can end, the request is refused."""
    monkeypatch.setattr(_streamable, "MAX_HTTP_SESSIONS", 8)
    work = Work()
    async with open_house(work.config, tokens=TOKENS) as house:
        others = [await house.begin(TOKENS["bob"]) for _ in range(4)]
        listening, calling, idle, used = [await house.begin(TOKENS["ann"]) for _ in range(4)]
        stream = await listening.listen()
        waiting = await calling.post({"id": 5, "method": "tools/call", "params": wait()})
        await eventually(lambda: work.begun == 1)
        await trio.aclose_forcefully(waiting.stream)  # the call goes on
        assert (await used.ask("ping")).status == 200
        newest = await house.begin(TOKENS["ann"])
        assert (await idle.ask("ping")).status == 404
        await house.begin(TOKENS["ann"])
        assert (await used.ask("ping")).status == 404
        for session in (listening, calling, newest, *others):
            assert (await session.ask("ping")).status == 200
        streams = [await each.listen() for each in (newest, await house.begin(TOKENS["ann"]))]
        peer = await house.connect()
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        await peer.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, token=TOKENS["ann"])
        reply = await peer.read()
        assert (reply.status, reply.headers["retry-after"]) == (503, "60")
        assert "too many sessions of this token (4, the share of each of 2 tokens) are in use; end some" in reply.text
        for each in (stream, *streams):
            await trio.aclose_forcefully(each.stream)


def children() -> list[int]:
    return [each.pid for each in processes() if each.parent == os.getpid()]


async def test_servers_of_a_sessions_own_start_at_its_first_request_that_needs_one(tmp_path: Path) -> None:
    """D-53."""
    before = len(children())
    async with gateway(tmp_path, in_process("n", notes()), per_session=[server("own")]) as door:
        host = await door.connect()
        assert await host.result("logging/setLevel", {"level": "error"}) == {}
        assert await host.result("resources/unsubscribe", {"uri": "note:///1"}) == {}
        assert await host.result("ping") == {}
        await wait_all_tasks_blocked(0.05)
        assert len(children()) == before
        assert {"own_pid", "n_echo"} <= {tool["name"] for tool in (await host.result("tools/list"))["tools"]}
        assert len(children()) == before + 1


async def pid_of(session: LegacySession) -> int:
    return int((await session.ask("tools/call", OWN_PID)).json["result"]["content"][0]["text"])


async def test_processes_of_sessions_are_bounded_and_that_of_the_longest_idle_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-53: of several identities each finds room; one with a stream does not end."""
    patch(monkeypatch, PROCESSES=4)
    before, own = len(children()), server("own")
    async with open_house(in_process("n", notes()), tokens=TOKENS, per_session=[own]) as house:
        sessions = [await house.begin(TOKENS["ann"]) for _ in range(4)]
        pids = [await pid_of(session) for session in sessions]
        assert (await sessions[0].ask("ping")).status == 404
        assert (await sessions[3].ask("ping")).status == 200
        assert state_of(pids[0]) == "gone"
        assert len(children()) - before == 2  # the others are for bob
        streams = [await session.listen() for session in sessions[2:]]
        refused = (await (await house.begin(TOKENS["ann"])).ask("tools/call", OWN_PID)).json["error"]
        assert outcome_of(refused) == ("not_sent", "LimitExceeded")
        assert "the servers that clients have for themselves have 64 processes; nothing was sent" in refused["message"]
        await pid_of(await house.begin(TOKENS["bob"]))
        for stream in streams:
            await trio.aclose_forcefully(stream.stream)
        for _ in range(2):
            await pid_of(await house.begin(TOKENS["bob"]))  # ann is over her share then, and is hit first
        owners = [each.identity for each in _budget.budget()._owners]
        assert sorted(owners) == ["ann", "bob", "bob"]
        assert len(children()) - before <= 4


async def test_a_client_on_a_socket_keeps_its_processes_and_one_too_many_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-53."""
    patch(monkeypatch, PROCESSES=1)
    async with gateway(tmp_path, in_process("n", notes()), per_session=[server("own")]) as door:
        first, second = await door.connect(), await door.connect()
        pid = await first.call("own_pid")
        error = await second.error("tools/call", OWN_PID)
        assert outcome_of(error) == ("not_sent", "LimitExceeded")
        assert await first.call("own_pid") == pid
        await first.stream.aclose()
        await eventually(lambda: state_of(int(pid)) == "gone")
        await eventually(lambda: not _budget.budget()._owners)
        assert await second.call("own_pid") != pid


@pytest.mark.parametrize("local", [False, True])
async def test_only_a_client_on_this_machine_chooses_the_directory_of_its_servers(local: bool, tmp_path: Path) -> None:
    """D-53."""
    session = GatewaySession(Gateway(), Lines(), print)
    session.local = local
    session.take({"jsonrpc": "2.0", "method": DIRECTORY, "params": {"path": str(tmp_path)}})
    assert session._directory == (str(tmp_path) if local else None)
    async with open_house(per_session=[server("own")]) as house:
        begun = await house.begin()
        await begun.notify(DIRECTORY, {"path": str(tmp_path)})
        assert os.readlink(f"/proc/{await pid_of(begun)}/cwd") == os.getcwd()
