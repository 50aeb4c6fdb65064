"""Reading and logging the stderr of a real process."""

from __future__ import annotations

import logging
import re
from collections import deque
from itertools import pairwise
from typing import cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_actors._tasks import TimeSlice
from mcp_actors.transports import open_link
from mcp_actors.transports._credentials import Masker
from mcp_actors.transports.stdio import _process
from mcp_actors.transports.stdio._process import BYTES_A_SECOND, LINE_BYTES, LINES_A_SECOND, TAIL_BYTES, StderrReader

from ...messages import Said
from ..asking import until
from ..groups import BOUND
from ..hostile import STEP, LongestStep
from ..links import never_lost, open_session, scripted, shell, text_of
from ..processes import eventually

LOGGER = "mcp_actors.servers.stderr"


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged lines, without the name of the server."""
    records = [record for record in caplog.records if record.name == LOGGER]
    assert all(record.getMessage().startswith(f"{record.__dict__['mcp_server']}: ") for record in records)
    return [record.getMessage().split(": ", 1)[1] for record in records]


def left_out(lines: list[str]) -> int:
    """Return the number of dropped lines."""
    found = [re.match(r"(\d+) more lines on stderr were not logged", line) for line in lines]
    return sum(int(each[1]) for each in found if each)


async def test_stderr_is_always_read_and_its_end_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    flags = ("--stderr", "begin\nsecond\n", "--stderr-flood", "200000")
    async with open_link(scripted(*flags), on_lost=never_lost) as link, open_session(link) as client:
        assert text_of(await client.call_tool("echo", {"text": "not stuck"})) == "not stuck"
    tail = link.obituary().stderr_tail
    assert len(tail) == TAIL_BYTES
    assert set(tail) == {"x"}
    first, second, *rest = logged(caplog)
    assert (first, second) == ("begin", "second")
    # A line without an end is logged in pieces, completely.
    assert sum(map(len, rest)) == 200_000
    assert max(map(len, rest)) <= LINE_BYTES


@pytest.mark.parametrize(
    "line",
    ["error: no", "", " ", "\\033[31mred\\007", "x" * 2000, "\\t\\001" * 1000],
    ids=["plain", "", " ", "esc", "long", "bad"],
)
async def test_a_flood_on_stderr_is_logged_up_to_a_limit_and_the_rest_is_counted(
    line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """B-13."""
    caplog.set_level(logging.INFO, LOGGER)
    begun = trio.current_time()
    # So many lines that a loaded machine, on which they come for some seconds, cannot log all.
    size = 750_000 + 1_000 * len(line)
    with LongestStep() as longest, trio.fail_after(BOUND):
        async with open_link(shell(f"yes \"$(printf '{line}')\" | head -c {size} >&2 & exec cat"), on_lost=never_lost):
            if line.strip():
                await eventually(lambda: left_out(logged(caplog)) > LINES_A_SECOND)
            else:
                await trio.sleep(1.2)
    seconds = trio.current_time() - begun + 2
    lines = logged(caplog)
    assert len(lines) <= seconds * (LINES_A_SECOND + 1)
    assert sum(map(len, lines)) <= seconds * (BYTES_A_SECOND + LINE_BYTES)
    assert longest.seconds < STEP, longest.task


async def test_dropped_lines_are_reported_after_their_second_even_without_further_lines(
    caplog: pytest.LogCaptureFixture, said: Said, mock_clock: MockClock
) -> None:
    """B-13."""
    caplog.set_level(logging.INFO, LOGGER)
    script = f"printf '%s\\n' $(seq {LINES_A_SECOND + 55}) >&2; exec cat"
    async with open_link(shell(script), on_lost=never_lost):
        await until(lambda: len(logged(caplog)) >= LINES_A_SECOND)
        mock_clock.jump(1.0)
        await until(lambda: left_out(logged(caplog)) > 0)
        lines = logged(caplog)
    assert lines[:-1] == [str(number) for number in range(1, LINES_A_SECOND + 1)]
    assert left_out(lines) == 55
    said("lines on stderr not logged", lines[-1])


async def test_text_is_not_prepared_for_a_disabled_logger(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-13."""

    def never(*_: object, **__: object) -> str:
        raise AssertionError

    monkeypatch.setattr(_process, "plain_text", never)
    caplog.set_level(logging.WARNING, LOGGER)
    async with open_link(shell("echo hello >&2; exec cat"), on_lost=never_lost) as link:
        await eventually(lambda: "hello" in link.obituary().stderr_tail)
    assert logged(caplog) == []


async def test_a_full_pipe_of_tiny_lines_is_processed_in_small_parts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """B-13: other tasks may run after each part, whether its lines are logged or not, and after each logged line."""
    sizes, lines = list[int](), list[bool]()

    class Counted(StderrReader):
        def _lines_in(self, part: bytes) -> deque[bytes]:
            sizes.append(len(part))
            return super()._lines_in(part)

        def _log(self, line: bytes) -> None:
            lines.append(True)
            super()._log(line)

    async def take(_: TimeSlice) -> None:
        sizes.append(0)
        lines.append(False)

    monkeypatch.setattr(TimeSlice, "checkpoint", take)
    caplog.set_level(logging.INFO, LOGGER)
    sender, receiver = trio.testing.memory_stream_one_way_pair()
    reader = Counted(cast("trio.lowlevel.FdStream", receiver), "x", Masker())
    await sender.send_all(b"x\n" * 32_768)
    await sender.aclose()
    await reader.run()
    assert sum(sizes) == 65_536
    assert max(sizes) <= 4096
    assert all(not after for before, after in pairwise(sizes) if before)
    assert sum(lines) == LINES_A_SECOND
    assert all(not after for before, after in pairwise(lines) if before)
    assert logged(caplog)[-1].startswith(f"{32_768 - LINES_A_SECOND} more lines")
