"""Requests, notices and answers on a pipe that is full: whole lines, in order, each once.

A test is the server at the other end of real pipes, and reads when it wants.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import HealthPolicy, ServerRef, open_servers
from mcp_actors.servers._dispatcher import LAST_REPORTS, MAX_WAITING

from .fleet import Outcome
from .links import text_of
from .processes import BOUND
from .wire_pipes import SMALLEST, Machine, WireProcess, needs_linux

pytestmark = [pytest.mark.own_way, needs_linux]

QUIET: Final = HealthPolicy(interval=None)


def each_way(test: Callable[..., Any]) -> Any:
    """Run a test with requests that go directly, and with requests in tasks."""
    ways = pytest.mark.parametrize("in_tasks", [False, True], ids=["directly", "in tasks"], indirect=True)
    return pytest.mark.usefixtures("in_tasks")(ways(test))


def in_pairs(test: Callable[..., Any]) -> Any:
    """Run a test by each way and in each era, but not by each way in each era: reports are the same in both."""
    pairs = [("legacy", True), ("modern", False)]
    ids = ["legacy-in tasks", "modern-directly"]
    pair = pytest.mark.parametrize(("era", "in_tasks"), pairs, ids=ids, indirect=["in_tasks"])
    return pytest.mark.usefixtures("in_tasks")(pair(test))


each_era = pytest.mark.parametrize("era", ["legacy", "modern"])

CALLERS: Final = 30


def lines(process: WireProcess) -> list[dict[str, Any]]:
    """Return what the server was sent since its tools were listed; fail if a line is not whole."""
    *whole, rest = bytes(process.received).split(b"\n")
    assert rest == b""
    messages = [json.loads(line) for line in whole]
    last = max(number for number, each in enumerate(messages) if each.get("method") == "tools/list")
    return [each for each in messages[last + 1 :] if each.get("method") != "subscriptions/listen"]


def label(message: dict[str, Any]) -> tuple[str, object]:
    """Return what a message is, and about which call."""
    if message["method"] == "notifications/cancelled":
        return "cancel", message["params"]["requestId"]
    return "call", message["id"]


class Caller:
    """A call that can be left."""

    def __init__(self, ref: ServerRef, number: int, size: int) -> None:
        self.scope = trio.CancelScope()
        self.outcome = Outcome()
        self._ref = ref
        self._arguments = {"number": number, "padding": "x" * size}

    async def run(self) -> None:
        """Make the call."""
        with self.scope:
            await self.outcome.of(self._call)

    async def _call(self) -> Any:
        return await self._ref.call_tool("echo", self._arguments)


@each_way
@each_era
@pytest.mark.parametrize("size", [50, 700, 5000])
async def test_callers_that_leave_a_full_pipe_one_by_one_leave_whole_lines(
    era: str, size: int, autojump_clock: MockClock
) -> None:
    """A-18: the server is asked to cancel those calls, and only those, that it may have read."""
    machine = Machine(era, SMALLEST)
    with machine.installed(), trio.fail_after(BOUND):
        async with open_servers(machine.config(health=QUIET, max_in_flight=CALLERS)) as servers:
            ref, process = servers["a"], machine.now
            await wait_all_tasks_blocked()
            process.freeze()
            callers = [Caller(ref, number, size) for number in range(CALLERS)]
            async with trio.open_nursery() as nursery:
                for caller in callers:
                    nursery.start_soon(caller.run)
                    await wait_all_tasks_blocked()
                for caller in callers[::3] + callers[1::3]:
                    caller.scope.cancel("it leaves")
                    await wait_all_tasks_blocked()
                    process.read_some(100)
                    await wait_all_tasks_blocked()
                process.thaw()
            for number, each in enumerate(callers):
                if not each.scope.cancelled_caught:
                    assert f'"number": {number},' in text_of(await each.outcome.result())
            await check_calls(ref)
            assert ref.statistics().in_flight == ref.statistics().queued == 0
            sent = lines(process)
    calls = {each["id"]: each["params"]["arguments"].get("number") for each in sent if each["method"] == "tools/call"}
    left = [key for key, number in calls.items() if number is not None and callers[number].scope.cancelled_caught]
    cancelled = [about for what, about in map(label, sent) if what == "cancel"]
    assert sorted(map(str, cancelled)) == sorted(map(str, left))
    assert 0 < len(left) < sum(each.scope.cancelled_caught for each in callers)
    order = list(map(label, sent))
    assert len(order) == len(set(order))
    assert all(order.index(("call", each)) < order.index(("cancel", each)) for each in left)


async def check_calls(ref: ServerRef) -> None:
    """Fail unless later calls are answered."""
    for text in "ab":
        assert f'"later": "{text}"' in text_of(await ref.call_tool("echo", {"later": text}))


@each_way
@each_era
async def test_a_notice_that_is_half_written_is_finished_before_the_next_line(
    era: str, autojump_clock: MockClock
) -> None:
    """Many notices of one tick are one write, of which the pipe takes what it has room for."""
    machine, number = Machine(era, SMALLEST), 80
    with machine.installed(), trio.fail_after(BOUND):
        async with open_servers(machine.config(health=QUIET, max_in_flight=number + 2)) as servers:
            ref, process = servers["a"], machine.now
            async with trio.open_nursery() as nursery:
                for _ in range(number):
                    nursery.start_soon(ref.call_tool, "mute")
                await wait_all_tasks_blocked()
                assert len(process.server.muted) == number
                process.freeze()
                nursery.cancel_scope.cancel("all leave")
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                    process.read_some(SMALLEST)
                    assert b"requestId" in process.received
                    assert not process.received.endswith(b"\n")
                    later = Caller(ref, 1, 0)
                    async with trio.open_nursery() as waiting:
                        waiting.start_soon(later.run)
                        await trio.lowlevel.checkpoint()
                        process.thaw()
                    assert '"number": 1,' in text_of(await later.outcome.result())
            await check_calls(ref)
            sent = [label(each) for each in lines(process)]
    muted = [about for what, about in sent[:number] if what == "call"]
    assert len(muted) == number
    assert Counter(about for what, about in sent if what == "cancel") == Counter(muted)
    assert [what for what, _ in sent[number:]].count("call") == 3


REPORTS: Final = 10_000


def report(process: WireProcess) -> None:
    """Write all reports of the call that waits, and its answer."""
    [request_id] = process.server.muted
    token = json.dumps(request_id)
    line = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}\n'
    process.put("".join(line % (token, number) for number in range(1, REPORTS + 1)).encode())
    process.server.reply(request_id, {"content": [{"type": "text", "text": "done"}]})


@in_pairs
async def test_ten_thousand_reports_of_progress_pass_a_slow_callback(era: str, autojump_clock: MockClock) -> None:
    """The oldest of those that wait are dropped, and the result is returned."""
    machine, seen, may_go_on, began = Machine(era), list[float](), trio.Event(), trio.Event()

    async def look(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        began.set()
        await may_go_on.wait()

    async def call() -> Any:
        return await servers["a"].call_tool("mute", progress=look)

    with machine.installed(), trio.fail_after(BOUND):
        async with open_servers(machine.config(health=QUIET)) as servers, trio.open_nursery() as nursery:
            outcome = Outcome()
            nursery.start_soon(outcome.of, call)
            await wait_all_tasks_blocked()
            report(machine.now)
            await began.wait()
            # An answer to a later call means that all before it was read.
            assert '"later"' in text_of(await servers["a"].call_tool("echo", {"later": 1}))
            assert (seen, outcome.over) == ([1.0], False)
            may_go_on.set()
            assert text_of(await outcome.result()) == "done"
            assert seen == [1.0, *range(REPORTS - MAX_WAITING + 1, REPORTS + 1)]


@in_pairs
async def test_a_result_after_ten_thousand_reports_does_not_wait_for_a_callback_that_hangs(
    era: str, autojump_clock: MockClock
) -> None:
    machine, seen = Machine(era), list[float]()

    async def hang(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        await trio.sleep_forever()

    async def call() -> Any:
        return await servers["a"].call_tool("mute", progress=hang)

    with machine.installed(), trio.fail_after(BOUND):
        async with open_servers(machine.config(health=QUIET)) as servers, trio.open_nursery() as nursery:
            outcome = Outcome()
            nursery.start_soon(outcome.of, call)
            await wait_all_tasks_blocked()
            report(machine.now)
            sent = trio.current_time()
            assert text_of(await outcome.result()) == "done"
            assert LAST_REPORTS <= trio.current_time() - sent < 60
    assert seen == [1.0]
