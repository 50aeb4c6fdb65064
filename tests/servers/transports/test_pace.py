"""The pace of reading unsolicited messages: the decisions, and the readers that follow them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx2
import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from mcp_actors.transports import Unasked, open_link
from mcp_actors.transports._messages import (
    MAX_PAUSE,
    MESSAGE_BYTES,
    NOTICED,
    REQUEST,
    RESTS,
    UNASKED_A_SECOND,
    UNASKED_AT_ONCE,
    MessageLimits,
    ReadingPace,
)
from mcp_actors.transports._request_table import RequestUnderWay
from mcp_actors.transports.http._bodies import read_events
from tests.idle_clock import IdleClock

from ..groups import BOUND
from ..links import never_lost, shell, streams_of

ANSWER = '{"jsonrpc":"2.0","id":7,"result":{}}'
NOTICE = '{"jsonrpc":"2.0","method":"x"}'


def test_messages_are_read_without_pauses_up_to_a_burst_and_then_at_a_rate() -> None:
    """B-13."""
    pace, now = ReadingPace(1), 1000.0
    rests = [pace.unasked(now) for _ in range(UNASKED_AT_ONCE)]
    assert rests == [0.0] * UNASKED_AT_ONCE
    for _ in range(10 * UNASKED_A_SECOND * UNASKED_AT_ONCE):
        now += pace.unasked(now)
    assert now - 1000 == pytest.approx(10, rel=0.01)
    assert pace.unasked(now + 3600) == 0


def test_a_request_counts_as_several_messages() -> None:
    """B-11: a task answers it."""
    pace = ReadingPace(1)
    assert {pace.unasked(0.0, request=True) for _ in range(UNASKED_AT_ONCE // REQUEST)} == {0.0}
    assert pace.unasked(0.0, request=True) == pytest.approx(REQUEST / (UNASKED_A_SECOND * UNASKED_AT_ONCE))


def test_a_higher_max_notifications_reads_faster() -> None:
    pace = ReadingPace(100 * UNASKED_AT_ONCE)
    assert {pace.unasked(0.0) for _ in range(100 * UNASKED_AT_ONCE)} == {0.0}
    assert 0 < pace.unasked(0.0) < 1 / (99 * UNASKED_A_SECOND * UNASKED_AT_ONCE)


def test_long_messages_are_read_at_so_many_bytes_a_second() -> None:
    """B-13: also while one arrives; short ones have no part in that."""
    size = 100 * UNASKED_AT_ONCE * MESSAGE_BYTES
    whole, parts = ReadingPace(1), ReadingPace(1)
    rest = whole.unasked(0.0, size)
    assert rest == pytest.approx(99 / UNASKED_A_SECOND)
    for _ in range(99):
        parts.unasked_part(0.0, size // 100)
    assert parts.unasked(0.0, size // 100) == pytest.approx(rest)
    assert ReadingPace(1).unasked(0.0, UNASKED_AT_ONCE * MESSAGE_BYTES) == 0


@given(st.lists(st.floats(0, 0.02)))
def test_wasted_work_is_a_small_part_of_the_time(works: list[float]) -> None:
    """B-13."""
    pace = ReadingPace(1)
    rested = sum(pace.wasted(work) or 0.0 for work in works)
    assert rested >= RESTS * (sum(works) - NOTICED) - 1e-6
    assert rested <= RESTS * sum(works) + 1e-6


def test_every_pause_is_bounded() -> None:
    """During a pause, the end of the server is not noticed."""
    assert ReadingPace(1).wasted(60.0) == MAX_PAUSE


async def reads(script: str, *, sends: bool = False) -> bool:
    """Return True if two messages, or an answer, are read at once, where every pause takes an hour."""
    read: list[Unasked] = []
    async with open_link(shell(script), on_lost=never_lost) as link:
        with trio.move_on_after(BOUND if sends else 0.5):
            async with trio.open_nursery() as nursery:

                async def take(message: Unasked) -> None:
                    read.append(message)
                    if len(read) == 2:
                        nursery.cancel_scope.cancel("both were read")

                async def ask(request_id: int) -> None:
                    asked = RequestUnderWay("x", {})
                    asked.id = link.table.add(asked, request_id)
                    await link.exchange(asked, take)
                    nursery.cancel_scope.cancel("it was answered")

                for request_id in (7, 8) if sends else ():
                    nursery.start_soon(ask, request_id)
                nursery.start_soon(link.read, take)
            return True
        return False


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadingPace, "wasted", lambda *_: 3600.0)
    monkeypatch.setattr(ReadingPace, "unasked", lambda *_, **__: 3600.0)
    monkeypatch.setattr(ReadingPace, "unasked_part", lambda *_: 3600.0)


@pytest.mark.usefixtures("hours")
@pytest.mark.parametrize("noise", ["", " ", "no", '{"id":7,"result":[', NOTICE, ANSWER])
async def test_a_reader_pauses_after_unsolicited_messages(noise: str, idle_clock: IdleClock) -> None:
    """B-13: also after a response without a request."""
    assert not await reads(f"printf '%s\\n' '{noise}' '{NOTICE}' '{NOTICE}'; exec cat > /dev/null")


@pytest.mark.usefixtures("hours")
async def test_a_reader_does_not_pause_after_a_response(idle_clock: IdleClock) -> None:
    answers = f"'{ANSWER.replace('7', '8')}' '{ANSWER}'"
    assert await reads(f"read line; read line; printf '%s\\n' {answers}; exec cat > /dev/null", sends=True)


def long_line(begin: str) -> str:
    """Return a command that writes a line of about a megabyte."""
    return f"(printf '%s' '{begin}\"'; head -c 1000000 /dev/zero | tr '\\0' x; printf '\"}}}}\\n')"


@pytest.mark.usefixtures("hours")
@pytest.mark.parametrize(
    "begin", ['{"jsonrpc":"2.0","method":"x","params":{"x":', '{"params":{"x":', '{"result":{"x":']
)
async def test_a_reader_pauses_while_a_long_unsolicited_line_arrives(begin: str, idle_clock: IdleClock) -> None:
    """B-13: the server cannot write the rest of it."""
    script = f"{long_line(begin)} 2>/dev/null; exec cat > /dev/null"
    async with open_link(shell(script), on_lost=never_lost) as link:
        messages, writer = streams_of(link)
        with trio.move_on_after(BOUND):
            await messages.receive()
        assert 0 < writer._reader.received < 500_000


async def test_each_byte_of_long_unsolicited_lines_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-13: while they arrive, or with the whole message."""
    counted = list[int]()

    def count(_: ReadingPace, now: float, size: int = 0, *, request: bool = False) -> float:
        counted.append(size)
        return 0.0

    monkeypatch.setattr(ReadingPace, "unasked", count)
    monkeypatch.setattr(ReadingPace, "unasked_part", count)
    notice = long_line('{"jsonrpc":"2.0","method":"x","params":{"x":')
    async with open_link(shell(f"{notice}; {notice}; exec cat > /dev/null"), on_lost=never_lost) as link:
        messages, writer = streams_of(link)
        with trio.fail_after(BOUND):
            for _ in range(2):
                await messages.receive()
        assert len(counted) > 2
        assert sum(counted) == writer._reader.received - len("\n" * 2)


@pytest.mark.usefixtures("hours")
async def test_a_reader_does_not_pause_while_a_long_response_arrives(idle_clock: IdleClock) -> None:
    answer = long_line('{"jsonrpc":"2.0","id":7,"result":{"x":')
    assert await reads(f"read line; {answer}; printf '%s\n' '{NOTICE}'; exec cat > /dev/null", sends=True)


@pytest.mark.parametrize(("noise", "rests"), [(b":\n", True), (b"\n", True), (b": x" * 20 + b"\n", True), (b"", False)])
async def test_an_event_stream_pauses_after_lines_without_an_event(
    noise: bytes, rests: bool, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-13: but not in the middle of a long event."""
    wasted = list[float]()

    def waste(_: ReadingPace, seconds: float) -> float:
        wasted.append(seconds)
        return 100.0

    monkeypatch.setattr(ReadingPace, "wasted", waste)
    autojump_clock.rate = 1.0  # so work takes time

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield noise * (60_000 // max(len(noise), 1))
        yield b"data: " + b"x" * 1_000_000 + b"\n\n"

    response = httpx2.Response(200, content=chunks(), headers={"content-type": "text/event-stream"})
    began = trio.current_time()
    async with aclosing(
        read_events(response, MessageLimits(10**9, 10**9), ReadingPace(), is_expected=lambda _: True)
    ) as events:
        assert [len(event.data) async for event in events] == [1_000_000]
    assert bool(wasted) is rests
    assert all(seconds > 0 for seconds in wasted)
    assert trio.current_time() - began >= 100.0 * len(wasted)
