"""Requests on pipes at whose other end a test decides what is read and written, under a mock clock."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import (
    ConnectionLost,
    HealthPolicy,
    RequestTimedOut,
    ServerError,
    ServerRef,
    StateChanged,
    open_servers,
)
from mcp_actors.kernel import Event
from mcp_actors.transports._exchange import MAX_LATE_ANSWERS
from mcp_actors.transports._messages import ReadingPace
from mcp_actors.transports.stdio._pipes import PipeReader
from tests.programs import FULL_SIZE

from .answers import BY_SESSION
from .links import text_of
from .wire_pipes import Machine, WireProcess, needs_linux
from .wire_server import Json

pytestmark = pytest.mark.own_way

CALLERS: Final = 10_000 if FULL_SIZE else 4_000

PIPE: Final = 8192
"""Bytes that the pipe holds: a few dozen calls."""

LEAVE_AT: Final = 6.0

WAYS: Final = (None, BY_SESSION)
"""The caller's ``_meta``: with one, the call has a task."""

QUIET: Final = HealthPolicy(interval=None)


async def call(ref: ServerRef, number: int, outcomes: dict[int, str], order: list[int]) -> None:
    """Make a call, and note its outcome; every second caller leaves at a certain time."""
    order.append(number)
    outcomes[number] = "left"
    with trio.move_on_at(LEAVE_AT if number % 2 else math.inf):
        try:
            result = await ref.call_tool("echo", {"number": number})
            outcomes[number] = "answered" if f'"number": {number}}}' in text_of(result) else text_of(result)
        except RequestTimedOut:
            outcomes[number] = "timed out"


def numbers_of(calls: list[Json]) -> list[int]:
    """Return the numbers of calls."""
    return [each["params"]["arguments"]["number"] for each in calls]


def messages(process: WireProcess, method: str) -> list[Json]:
    """Return the messages of one method that a server has read."""
    return [message for message in process.read if message.get("method") == method]


@needs_linux
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_of_many_callers_leaves_times_out_or_is_answered_in_order(
    era: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-03, A-09: and the server is asked to cancel those, and only those, that it may have read."""
    # Half of them begin 5 s after the others. At 10 s the first half times out, and at 12 s the server begins to read.
    machine, outcomes, order = Machine(era, PIPE), dict[int, str](), list[int]()
    options = {"max_in_flight": CALLERS, "mailbox_size": CALLERS, "request_timeout": 10.0, "health": QUIET}
    with machine.installed():
        async with open_servers(machine.config(**options)) as servers, trio.open_nursery() as nursery:
            ref, process = servers["a"], machine.now
            process.freeze()
            for number in range(CALLERS):
                if number == CALLERS // 2:
                    await trio.sleep(5)
                nursery.start_soon(call, ref, number, outcomes, order)
            await wait_all_tasks_blocked()
            assert 0 < ref.statistics().in_flight < 200
            process.read_some(PIPE // 2)
            await trio.sleep(7)
            early = numbers_of(messages(process, "tools/call"))
            process.thaw()
            await wait_all_tasks_blocked()
            assert ref.statistics().in_flight == ref.statistics().queued == 0
    assert len(early) > 5
    in_time = {*early, *range(CALLERS // 2 // 2 * 2, CALLERS, 2)}
    assert outcomes == {
        number: "answered" if number in in_time else "left" if number % 2 else "timed out" for number in range(CALLERS)
    }
    calls = messages(process, "tools/call")
    read = numbers_of(calls)
    places = {number: place for place, number in enumerate(order)}
    assert [places[number] for number in read] == sorted(places[number] for number in set(read))
    assert in_time <= set(read)
    abandoned = {each["id"] for each, number in zip(calls, read, strict=True) if number not in in_time}
    assert 20 < len(abandoned) < 200
    cancelled = [each["params"]["requestId"] for each in messages(process, "notifications/cancelled")]
    assert Counter(cancelled) == Counter(abandoned)


@needs_linux
@pytest.mark.parametrize("how", ["restart", "stop"])
async def test_what_is_not_written_when_the_end_is_decided_is_not_written_to_that_server(
    how: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-03: even if there is room before its stdin is closed. The next one serves it; after a stop it was not sent."""

    def read(event: Event) -> None:
        if isinstance(event, StateChanged) and event.new in ("backoff", "stopping"):
            machine.processes[0].thaw()
            machine.processes[0].read_some(PIPE)

    machine, sent, errors = Machine("legacy", PIPE), list[int](), dict[int, ServerError]()
    monkeypatch.setattr(PipeReader, "crowded", property(lambda _: True, lambda *_: None))  # so that lines are collected

    async def call_large(number: int) -> None:
        try:
            await servers["a"].call_tool("echo", {"number": number, "padding": "x" * 3000})
        except ServerError as exc:
            errors[number] = exc

    with machine.installed():
        async with open_servers(machine.config(health=QUIET), observers=[read], drain_timeout=0) as servers:
            machine.now.freeze()
            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(call_large, number)
                await wait_all_tasks_blocked()
                assert servers["a"].statistics().in_flight == 6
                await (servers["a"].restart() if how == "restart" else servers["a"].stop())
        for process in machine.processes:
            sent += numbers_of(messages(process, "tools/call"))
    kept = set(range(6)) - set(numbers_of(messages(machine.processes[0], "tools/call")))
    assert 2 <= len(kept) <= 4  # the pipe took a part of one more
    assert len(sent) == len(set(sent))
    if how == "restart":
        assert {type(exc) for exc in errors.values()} == {ConnectionLost}
        assert len(kept & errors.keys()) <= 1
    else:
        assert len(errors) == 6
        assert sum(getattr(exc, "outcome", None) == "not_sent" for exc in errors.values()) >= len(kept) - 1


# --- answers to no request ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", WAYS)
async def test_calls_that_are_cancelled_and_never_answered_let_the_server_write_no_more_than_others(
    meta: Json | None, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-11: a server need not answer what was cancelled, so these would add up for the life of a connection."""
    counted, unasked = list[float](), ReadingPace.unasked

    def note(pace: ReadingPace, now: float, *args: Any, **options: Any) -> float:
        counted.append(now)
        return unasked(pace, now, *args, **options)

    monkeypatch.setattr(ReadingPace, "unasked", note)
    machine = Machine("legacy")
    with machine.installed():
        async with open_servers(machine.config(health=QUIET)) as servers:
            for _ in range(3 * MAX_LATE_ANSWERS):
                with trio.move_on_after(1):
                    await servers["a"].call_tool("mute", meta=meta)
            assert not counted
            for request in machine.now.server.muted:
                machine.now.server.reply(request, {"content": []})
            await wait_all_tasks_blocked()
            assert len(counted) == 2 * MAX_LATE_ANSWERS
            await servers["a"].call_tool("echo")
