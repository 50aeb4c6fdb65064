"""A daemon that was stopped and goes on does not begin what its callers have given up meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ServerConfig, Socket, open_servers
from mcp_actors.gateway import _budget, _output, _serve

from ..programs import FULL_SIZE
from ..servers.processes import freeze
from .daemons import Daemon, counting, daemon, open_clients, written
from .hosts import Host, gateway, in_process, outcome_of
from .test_serve import across_a_gap, cancel, until, wait_call
from .test_sessions import slow

ROUNDS: Final = 20 if FULL_SIZE else 2

CALLS: Final = 64

WANTED: Final = 8
"""Calls that come after those, and are not given up."""

SIZES: Final = (10, 4000, 1_000_000)
"""Bytes of an argument."""

TIMEOUT: Final = 0.5
"""Seconds after which a caller gives up. The daemon is stopped for twice as long."""


class Caller:
    """A client whose calls have arguments of one size.

    Attributes:
        given_up: the ids of calls that were begun and given up while the daemon was stopped.
        wanted: the requests that followed, by id; they were not given up.
    """

    def __init__(self, host: Host, size: int, ids: Iterator[int]) -> None:
        self.host = host
        self.given_up: list[int] = []
        self.wanted: dict[int, dict[str, Any]] = {}
        self._ids = ids
        self.pad = "x" * size
        self._stopped = False

    def call(self, id: int) -> dict[str, Any]:
        return self.host.request("tools/call", {"name": "a_run", "arguments": {"id": id, "pad": self.pad}})

    async def call_until_stopped(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep calling, so that the daemon is stopped amid that."""
        self._stopped = False
        for number in itertools.count():
            call = self.call(next(self._ids))
            await self.host.send(call)
            if number % 16 == 0:
                await self.host.answer_to(call)
                if number == 0:
                    task_status.started()
            if self._stopped:
                break

    async def call_and_give_up(self, nursery: trio.Nursery) -> None:
        """Write calls, give them up after the time-out, and write some more."""
        self._stopped = True
        ids = list(itertools.islice(self._ids, CALLS))
        calls = [self.call(id) for id in ids]
        nursery.start_soon(self.host.send, *calls)
        await trio.sleep(TIMEOUT)
        nursery.start_soon(self.host.send, *map(cancel, calls))
        await trio.lowlevel.checkpoint()
        wanted = {id: self.call(id) for id in itertools.islice(self._ids, WANTED)}
        nursery.start_soon(self.host.send, *wanted.values())
        self.given_up = ids
        self.wanted = wanted


async def stop_once(served: Daemon, callers: list[Caller]) -> None:
    """Stop the daemon while it is called, and let it go on."""
    async with trio.open_nursery() as nursery:
        for each in callers:
            await nursery.start(each.call_until_stopped)
        await freeze(served.pid)
        async with trio.open_nursery() as until_continued:
            for each in callers:
                until_continued.start_soon(each.call_and_give_up, nursery)
            await trio.sleep(2 * TIMEOUT)
        os.kill(served.pid, signal.SIGCONT)


async def test_no_call_begins_that_was_given_up_while_the_daemon_was_stopped(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Requests that come behind the cancellations are served, each once."""
    ledger, ids = tmp_path / "ledger", itertools.count()
    with daemon(tmp_path, a=counting(ledger)) as served:
        async with open_clients(served) as clients:
            callers = [Caller(await clients.connect(), size, ids) for size in SIZES]
            for _ in range(ROUNDS):
                await stop_once(served, callers)
                for each in callers:
                    for request in each.wanted.values():
                        assert "result" in await each.host.answer_to(request)
                    assert each.host.asked
                carried_out = written(ledger)
                late = {len(each.pad): sum(carried_out[id] for id in each.given_up) for each in callers}
                assert late == dict.fromkeys(SIZES, 0)
                assert all(carried_out[id] == 1 for each in callers for id in each.wanted)
    record_property("note", f"{ROUNDS} stops, at each {CALLS} calls of each size were given up, and none was begun")


async def test_the_calls_of_a_client_that_answers_no_ping_are_refused_after_a_stop(tmp_path: Path) -> None:
    ledger, ids = tmp_path / "ledger", itertools.count()
    with daemon(tmp_path, a=counting(ledger)) as served:
        async with open_clients(served) as clients:
            caller = Caller(await clients.connect(pings=False), 4000, ids)
            await freeze(served.pid)
            requests = [caller.call(next(ids)) for _ in range(CALLS)]
            clients.nursery.start_soon(caller.host.send, *requests)
            await trio.sleep(2 * TIMEOUT)
            os.kill(served.pid, signal.SIGCONT)
            for each in requests:
                assert outcome_of((await caller.host.answer_to(each))["error"]) == ("not_sent", "ServerUnavailable")
            assert written(ledger).total() == 0
            request = caller.call(last := next(ids))
            await caller.host.send(request)
            assert "result" in await caller.host.answer_to(request)
            assert written(ledger) == {last: 1}


async def test_a_group_that_connects_while_the_daemon_is_stopped_is_served_when_it_goes_on(tmp_path: Path) -> None:
    """The answer to the name of its server comes first, and no ping before it."""
    with daemon(tmp_path, a=counting(tmp_path / "ledger")) as served:
        await freeze(served.pid)

        async def let_go_on() -> None:
            await trio.sleep(2 * (_output.BEAT + _output.GAP))
            os.kill(served.pid, signal.SIGCONT)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go_on)
            async with open_servers(ServerConfig("a", Socket(served.path), required=True)) as group:
                assert (await group["a"].call_tool("run", {"id": 1})).is_error is False


# --- Holes of a fence, on a clock that the test lets jump -------------------------------------------------------------

LATE: Final = _output.BEAT + _output.GAP + 0.1


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def pass_fence(host: Host) -> None:
    """Answer the last ping."""
    await host.send({"jsonrpc": "2.0", "id": host.asked[-1]["id"], "result": {}})


async def let_pass(seconds: float, host: Host, clock: MockClock) -> None:
    """Let time pass without a gap."""
    for _ in range(round(seconds / _output.BEAT)):
        clock.jump(_output.BEAT)
        host.connection._heart.look()
        await wait_all_tasks_blocked()


def is_held(host: Host, number: int) -> bool:
    """Return True if so many messages of the client are held."""
    return len(host.connection._held) == number


async def test_a_message_that_arrives_in_pieces_over_a_gap_is_held(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        first, given_up = wait_call(host, "first"), wait_call(host, "given up")
        clock.jump(LATE)
        await host.stream.send_all(line(first)[:20])
        await until(lambda: host.asked)
        clock.jump(_output.BEAT * 2)
        await host.stream.send_all(line(first)[20:] + line(given_up))
        await wait_all_tasks_blocked(0.01)
        assert begun == []
        await host.send(cancel(given_up))
        await pass_fence(host)
        await until(lambda: begun)
        assert begun == ["first"]


async def test_what_is_read_when_a_process_goes_on_in_the_middle_of_a_read_is_held(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process can be stopped between any two of its instructions, and then read what was written later."""
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        read = os.read

        def stop_and_read(descriptor: int, size: int) -> bytes:
            monkeypatch.setattr("os.read", read)
            clock.jump(LATE)
            return read(descriptor, size)

        monkeypatch.setattr("os.read", stop_and_read)
        given_up = wait_call(host, "given up")
        await host.send(given_up)
        await until(lambda: host.asked)
        await host.send(cancel(given_up))
        await pass_fence(host)
        assert await host.result("ping") == {}
        assert begun == []


async def test_a_connection_that_is_read_late_after_a_gap_is_held(mock_clock: MockClock) -> None:
    """All connections learn of a gap when the first step notices it, however long the turn of the loop takes."""
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        heart, given_up = host.connection._heart, wait_call(host, "given up")
        clock.jump(LATE)
        os.write(host.descriptor, line(given_up))
        for _ in range(2):
            heart.look()
            clock.jump(_output.BEAT * 2)
        await until(lambda: host.asked)
        await host.send(cancel(given_up))
        await pass_fence(host)
        assert await host.result("ping") == {}
        assert begun == []


async def test_a_second_gap_needs_a_second_fence(mock_clock: MockClock) -> None:
    """The answer to the first ping may have been written before the second gap."""
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        first, given_up = wait_call(host, "first"), wait_call(host, "given up")
        clock.jump(LATE)
        await host.send(first)
        await until(lambda: host.asked)
        clock.jump(LATE)
        await host.send({"jsonrpc": "2.0", "id": host.asked[0]["id"], "result": {}}, given_up)
        await until(lambda: len(host.asked) == 2)
        assert begun == []
        await host.send(cancel(given_up))
        await pass_fence(host)
        await until(lambda: begun)
        assert begun == ["first"]


async def test_a_client_with_much_to_send_has_more_time_to_pass_the_fence(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        requests = [wait_call(host, str(number)) for number in range(4)]
        clock.jump(LATE)
        await host.send(requests[0])
        await until(lambda: host.asked)
        for each in requests[1:]:
            await let_pass(_serve.FENCE_TIMEOUT - _output.BEAT, host, clock)
            await host.send(each)
            await wait_all_tasks_blocked(0.01)
        assert not host.answers
        assert len(host.asked) == 1
        await host.send(*map(cancel, requests[:3]))
        await pass_fence(host)
        await until(lambda: begun)
        assert begun == ["3"]


async def test_a_client_that_never_ends_sending_is_refused_at_the_limit(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        requests = [wait_call(host, str(number)) for number in range(5)]
        clock.jump(LATE)
        await host.send(requests[0])
        await until(lambda: host.asked)
        for number, each in enumerate(requests[1:], 2):
            await let_pass(_serve.FENCE_TIMEOUT - _output.BEAT, host, clock)
            await host.send(each)
            await until(partial(is_held, host, number))
        assert not host.answers
        await let_pass(_serve.FENCE_LIMIT - 4 * (_serve.FENCE_TIMEOUT - _output.BEAT) + _output.BEAT, host, clock)
        await until(lambda: len(host.answers) == len(requests))
        outcomes = {outcome_of(answer["error"]) for answer in host.answers.values()}
        assert outcomes == {("not_sent", "ServerUnavailable")}
        assert begun == []


async def test_more_than_may_be_held_is_refused_at_once(mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_budget, "IN_FLIGHT", 10_000)
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        clock.jump(LATE)
        small, large = wait_call(host, "small"), wait_call(host, "x" * 10_000)
        await host.send(small)
        await until(lambda: host.asked)
        await host.send(large)
        assert outcome_of((await host.answer_to(large))["error"]) == ("not_sent", "ServerUnavailable")
        await pass_fence(host)
        await until(lambda: begun)
        assert begun == ["small"]


async def test_what_follows_the_first_line_of_a_client_over_a_gap_is_held(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        host.connection._awaits_first_line = True  # as if it had not said anything yet
        clock.jump(LATE)
        given_up = wait_call(host, "given up")
        await host.stream.send_all(b"\n" + line(given_up)[:-5])
        await until(lambda: host.asked)
        await host.stream.send_all(line(given_up)[-5:])
        await host.send(cancel(given_up))
        await pass_fence(host)
        assert await host.result("ping") == {}
        assert begun == []


async def test_the_end_of_what_a_client_sends_is_a_fence(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        wanted, given_up = wait_call(host, "wanted"), wait_call(host, "given up")
        clock.jump(LATE)
        await host.send(wanted, given_up, cancel(given_up))
        stream: Any = host.stream
        await stream.send_eof()
        await until(lambda: begun)
        assert begun == ["wanted"]


async def test_the_requests_of_a_client_that_has_hung_up_are_not_begun(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        taken: list[Any] = []
        host.connection.session.take = taken.append
        clock.jump(LATE)
        await host.send(wait_call(host, "given up"))
        await host.stream.aclose()
        await until(lambda: not host.connection._heart.connections)
        assert taken == []


async def test_a_request_with_an_id_that_is_held_is_refused(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        clock.jump(LATE)
        first = wait_call(host, "first")
        await host.send(first, {**wait_call(host, "second"), "id": first["id"]})
        assert "in flight already" in (await host.answer_to({"id": None}))["error"]["message"]
        await host.send(cancel(first))
        await pass_fence(host)
        assert await host.result("ping") == {}
        assert begun == []


async def test_a_client_that_connects_during_a_gap_is_held(tmp_path: Path, mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with gateway(tmp_path, in_process("slow", slow(trio.Event(), begun))) as door:
        first = await door.connect()
        await first.result("tools/list")
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(LATE)
        late = await door.connect(begin=False, pings=False)
        given_up = late.request("tools/call", {"name": "slow_wait", "arguments": {"name": "given up"}})
        await late.send(given_up)
        await until(lambda: late.asked)
        await late.send(cancel(given_up))
        await pass_fence(late)
        assert await late.result("ping") == {}
        assert begun == []
