"""Connections and sessions when there are too many, and messages for a client that does not listen."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

from mcp_actors.gateway.http import _door, _streamable, _wire

from ...forkserver import start_python
from ...servers.processes import eventually, freeze
from ...source import ROOT
from ..hosts import BOUND, in_process, notes
from .doors import House, Peer, open_house
from .test_identities import Noted
from .test_modern import Work
from .test_program import peers, serving
from .test_wire import call_of, text_of

WAIT = {"name": "work_wait", "arguments": {}}


async def is_open(peer: Peer) -> bool:
    """Return True if the gateway answers a probe on a connection."""
    return (await peer.fetch("GET", "/healthz", token=None)).status == 200


async def strangers(house: House, count: int) -> list[Peer]:
    """Connect without sending anything, one after the other."""
    peers = []
    for number in range(len(house.door.strangers) + 1, len(house.door.strangers) + count + 1):
        peers.append(await house.connect())
        await eventually(partial(has_strangers, house, number))
    return peers


def has_strangers(house: House, count: int) -> bool:
    return len(house.door.strangers) == count


def has_busy(house: House, count: int) -> bool:
    return sum(each.busy for each in house.door.connections) == count


async def test_a_newcomer_takes_the_place_of_the_stranger_that_was_idle_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_door, "MAX_HTTP_CONNECTIONS", 4)
    async with open_house(in_process("notes", notes())) as house:
        client = await house.connect()
        assert await client.call("notes_echo", text="1") == "1"
        probe, first, second = await strangers(house, 3)
        assert await is_open(probe)  # so it was idle for a shorter time than the others
        newcomer = await house.connect()
        assert await newcomer.call("notes_echo", text="2") == "2"
        assert await first.wait_closed() == b""
        assert await (await house.connect()).call("notes_echo", text="3") == "3"
        assert await second.wait_closed() == b""
        assert await is_open(probe)
        assert await client.call("notes_echo", text="4") == "4"
        assert len(house.door.connections) == 4


async def test_a_connection_costs_no_task_before_something_arrives() -> None:
    def tasks() -> int:
        return trio.lowlevel.current_statistics().tasks_living

    async with open_house(in_process("notes", notes())) as house:
        assert await (await house.connect()).call("notes_echo", text="x") == "x"
        before = tasks()
        peers = await strangers(house, 10)
        assert tasks() == before
        for peer in peers[5:]:
            await trio.aclose_forcefully(peer.stream)
        await eventually(partial(has_strangers, house, 5))
        assert tasks() == before
        await peers[0].write("GET /healthz HTTP/1.1\r\n")
        await eventually(lambda: tasks() > before)
        await peers[0].write("host: localhost\r\n\r\n")
        assert (await peers[0].read()).status == 200


async def test_a_silent_connection_is_closed_at_the_end_of_the_gateway() -> None:
    async with open_house(in_process("notes", notes())) as house:
        [peer] = await strangers(house, 1)
        house.peers.remove(peer)  # which stays open on this side
    async with peer.stream:
        with trio.fail_after(BOUND):
            assert await peer.stream.receive_some() == b""


async def test_a_silent_connection_that_speaks_as_the_gateway_ends_is_not_reset() -> None:
    async with open_house(in_process("notes", notes())) as house:
        for request in (b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"):
            [peer] = await strangers(house, 1)
            [connection] = house.door.connections
            os.write(peer.stream.socket.fileno(), request)
            connection.drain()
            if request:
                assert (await peer.read()).status == 200
            assert await peer.stream.receive_some() == b""
            await trio.aclose_forcefully(peer.stream)
            await eventually(lambda: not house.door.connections)


async def test_without_strangers_the_client_that_was_idle_longest_gives_way_and_never_a_busy_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_door, "MAX_HTTP_CONNECTIONS", 4)
    work = Work()
    async with open_house(in_process("notes", notes()), work.config) as house:
        busy, half, first, second = peers = [await house.connect() for _ in range(4)]
        for peer in peers:
            assert await peer.call("notes_echo", text="x") == "x"
        await busy.post_modern("tools/call", WAIT)
        await half.write(b"POST /mcp HTTP/1.1\r\n")
        with trio.fail_after(BOUND):
            await work.started.wait()
        for count, idle in ((2, first), (3, second)):
            newcomer = await house.connect()
            assert await newcomer.call("notes_echo", text="in") == "in"
            assert await idle.wait_closed() == b""
            await newcomer.post_modern("tools/call", WAIT)
            await eventually(partial(has_busy, house, count))
        late = await house.connect()
        assert await late.wait_closed() == b""
        assert len(house.door.connections) == 4
        work.gate.set()
        assert (await busy.read()).json["result"]["content"][0]["text"] == "waited"


async def test_a_request_that_arrives_while_its_connection_gives_way_is_not_begun() -> None:
    """The two are events of the same turn of the loop, in both orders."""
    noted, outcomes = Noted(), []
    async with open_house(in_process("notes", noted.server)) as house:
        for number in range(30):
            peer = await house.connect()
            request = call_of(f"{number}").replace(b"notes_echo", b"notes_note")
            await peer.write(request[:9])
            await eventually(lambda: any(each._buffer for each in house.door.strangers))
            [connection] = house.door.strangers
            first, second = socket.socketpair()
            with first, second:
                os.write(peer.stream.socket.fileno(), request[9:])
                second.send(b"now")
                await trio.lowlevel.wait_readable(first)
            if connection.busy:
                outcomes.append(text_of(await peer.read()))
            else:
                connection.give_way()
                assert await peer.wait_closed() == b""
            await trio.aclose_forcefully(peer.stream)
            await eventually(lambda: not house.door.connections)
    assert noted.calls == outcomes
    assert 0 < len(outcomes) < 30


async def test_strangers_have_less_time_than_clients_for_their_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "HEAD_SECONDS", 0.1)
    async with open_house(in_process("notes", notes())) as house:
        client = await house.connect()
        assert await client.call("notes_echo", text="known") == "known"
        silent, probe, wrong = await house.connect(), await house.connect(), await house.connect()
        assert await is_open(probe)
        assert (await wrong.fetch("GET", "/status", token="not-a-token-of-anyone")).status == 401
        for peer in (silent, probe, wrong):
            assert await peer.wait_closed() == b""
        await eventually(lambda: len(house.door.connections) == 1)
        assert await client.call("notes_echo", text="still") == "still"


async def test_a_page_that_is_signed_in_is_not_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_actors.gateway.http import add_page

    async def reload() -> None: ...

    async with open_house(in_process("notes", notes())) as house:
        add_page(house.door, "mcp.json", reload)
        peer = await house.connect()
        signed = await peer.sign_in()
        assert len(house.door.strangers) == 1
        await peer.send("GET", f"{signed.path}live", signed.cookie, token=None)
        assert (await peer.read_head()).status == 200
        assert len(house.door.strangers) == 0


async def test_a_gap_of_the_loop_ends_no_connection_that_was_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "HEAD_SECONDS", 5.0)
    async with open_house(in_process("notes", notes())) as house:
        [stranger] = await strangers(house, 1)
        [connection] = house.door.connections
        connection._due -= 30.0  # as if it had connected before the process was stopped
        house.door.heart.now -= 30.0
        house.door.heart.look()
        connection.check(trio.current_time())
        assert await is_open(stranger)


IMPATIENT: Final = """
from mcp_actors.cli import main
from mcp_actors.gateway.http import _wire

_wire.HEAD_SECONDS = _wire.BODY_SECONDS = _wire.READ_SECONDS = 3.0
main()
"""
"""A gateway whose clients have three seconds for each phase of a request."""


async def test_the_time_in_which_the_process_was_stopped_is_not_that_of_its_clients(tmp_path: Path) -> None:
    """They were in the middle of a head, of a body, and of a reply."""
    server = [sys.executable, "-I", "-S", str(Path(__file__).with_name("tools_server.py"))]
    entries = {"notes": {"command": server[0], "args": server[1:]}}
    flags, program = ("--http", "127.0.0.1:0", "--no-token"), ("-c", IMPATIENT)
    with serving(tmp_path, *flags, entries=entries, program=program) as (process, url, _):
        async with AsyncExitStack() as stack:
            [reader] = await stack.enter_async_context(peers(url))
            await reader.write(call_of("x" * 15_000_000))
            size = int((await reader.read_head()).headers["content-length"])
            head, body, probe = await stack.enter_async_context(peers(url, 3))
            assert await is_open(probe)
            await head.write(call_of("head")[:40])
            await body.write(call_of("body")[:-5])
            await freeze(process.pid)
            await trio.sleep(4.0)
            os.kill(process.pid, signal.SIGCONT)
            for _ in range(2):  # each look of the gateway at its connections is over then
                assert await is_open(probe)
            await head.write(call_of("head")[40:])
            await body.write(call_of("body")[-5:])
            for peer in (head, body):
                assert (await peer.read()).status == 200
            assert json.loads(await reader._exactly(size))["result"]["content"][0]["text"].endswith("x" * 15_000_000)


async def test_a_flood_of_connections_is_one_line_of_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_door, "MAX_HTTP_CONNECTIONS", 5)
    monkeypatch.setattr(_door, "CONNECTIONS_POLL", 0.05)
    async with open_house(in_process("notes", notes())) as house:
        for _ in range(200):
            await house.connect()
        await eventually(lambda: "over the limit 5" in caplog.text)
        for _ in range(200):
            await house.connect()
        assert await (await house.connect()).call("notes_echo", text="in") == "in"
        looks: list[float] = []
        monkeypatch.setattr(house.door.mcp, "expire", looks.append)  # it is called at each look
        await eventually(lambda: len(looks) == 2)
        assert house.door._over > 100  # to be said in a minute
    [line] = caplog.messages
    assert line.endswith("connections over the limit 5 replaced idle ones or were refused; end some or add a gateway")


FLOOD: Final = """
import socket, sys

kept = []
while True:
    kept.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    if len(kept) == 100:
        print(flush=True)
    if len(kept) > 100:
        kept.pop(0).close()
"""
"""Connects and leaves again without a pause."""


async def test_a_flood_of_connections_does_not_delay_a_client_that_is_connected(tmp_path: Path) -> None:
    said, say = os.pipe()
    with serving(tmp_path, "--http", "127.0.0.1:0", "--no-token") as (_, url, _):
        async with peers(url) as [peer]:
            assert (await peer.fetch("GET", "/status")).status == 200
            port = url.strip("/").rpartition(":")[2]
            with start_python("-c", FLOOD, port, cwd=ROOT, stdout=say, stderr=2) as flood:
                os.close(say)
                try:
                    await trio.to_thread.run_sync(os.read, said, 1)
                    began = time.perf_counter()
                    for _ in range(20):
                        assert (await peer.fetch("GET", "/status")).status == 200
                    assert time.perf_counter() - began < 10.0
                finally:
                    flood.kill()
                    os.close(said)


# --- Sessions ---------------------------------------------------------------------------------------------------------


async def test_a_gap_of_the_loop_ends_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        [found] = house.door.mcp.sessions.values()
        found.used -= 2 * _streamable.SESSION_SECONDS  # as if the process had been stopped since
        house.door.heart.now -= 2 * _streamable.SESSION_SECONDS
        house.door.heart.look()
        house.door.mcp.expire(trio.current_time())
        assert (await session.ask("ping")).status == 200
        found.used -= 2 * _streamable.SESSION_SECONDS
        house.door.mcp.expire(trio.current_time())
        assert (await session.ask("ping")).status == 404


async def test_messages_for_a_stream_that_is_not_open_have_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        [found] = house.door.mcp.sessions.values()
        text = "x" * 100_000
        for number in range(30):
            for _ in range(2):  # what is kept already takes no more place
                found.session.notify("notifications/message", {"level": "info", "data": f"{number} {text}"})
        found.session.notify("notifications/message", {"level": "info", "data": "the last one"})
        assert found.waiting == sum(map(len, found._kept)) <= _streamable.MAX_KEPT_BYTES
        stream = await session.listen()
        said = [(await stream.read_event())["params"]["data"].partition(" ")[0] for _ in range(11)]
        assert said == [*(f"{number}" for number in range(20, 30)), "the"]
        found.session.notify("notifications/message", {"level": "info", "data": "now"})
        assert (await stream.read_event())["params"]["data"] == "now"
        assert found.waiting == 0


async def test_one_message_over_the_limit_in_bytes_is_not_kept() -> None:
    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        [found] = house.door.mcp.sessions.values()
        for text in ("before", "x" * _streamable.MAX_KEPT_BYTES, "after"):
            found.session.notify("notifications/message", {"level": "info", "data": text})
        stream = await session.listen()
        assert (await stream.read_event())["params"]["data"] == "after"
