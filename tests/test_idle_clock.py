"""The clock that skips waits while this process and its children are idle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from time import monotonic

import pytest
import trio

from .forkserver import interpreter, run_python
from .idle_clock import IdleClock

HOUR = 3600.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it skips nothing there")


@contextmanager
def in_no_time() -> Iterator[None]:
    began = monotonic()
    yield
    assert monotonic() - began < HOUR / 10


async def test_a_wait_in_which_a_child_waits_too_is_skipped(idle_clock: IdleClock) -> None:
    process = await trio.lowlevel.open_process(["sleep", "600"])
    began = trio.current_time()
    with in_no_time():
        await trio.sleep(HOUR)
    assert trio.current_time() - began >= HOUR
    process.kill()
    await process.wait()


@contextmanager
def not_skipped() -> Iterator[None]:
    """Fail if the clock skips to the deadline, also where that cancels nothing."""
    with trio.fail_after(HOUR) as scope:
        yield
    assert trio.current_time() < scope.deadline


BUSY = "sum(range(5_000_000)); print('done')"


@pytest.mark.parametrize(
    "program", [[sys.executable, "-c", BUSY], ["/bin/sh", "-c", f'{quote(sys.executable)} -c "{BUSY}"']]
)
async def test_a_wait_for_a_child_that_works_is_not_skipped(idle_clock: IdleClock, program: list[str]) -> None:
    """Nor for a child of a child, nor for a thread of this process."""
    with not_skipped():
        assert (await trio.run_process(program, capture_stdout=True)).stdout == b"done\n"
        finished = await trio.to_thread.run_sync(lambda: subprocess.run(program, stdout=subprocess.PIPE, check=True))
        assert finished.stdout == b"done\n"


async def test_a_wait_for_a_fork_that_works_is_not_skipped(idle_clock: IdleClock, tmp_path: Path) -> None:
    run = partial(run_python, "-c", BUSY, cwd=tmp_path, timeout=HOUR / 10)
    interpreter()  # the process that forks has been started, as it is not below this one until it says its number
    with not_skipped():
        assert (await trio.to_thread.run_sync(run)).stdout == "done\n"


async def test_a_wait_for_a_thread_that_works_is_not_skipped(idle_clock: IdleClock) -> None:
    with not_skipped():
        await trio.to_thread.run_sync(lambda: sum(range(5_000_000)))


async def test_what_happens_at_once_is_not_overtaken_by_a_deadline(idle_clock: IdleClock) -> None:
    send, receive = trio.open_memory_channel[int](0)
    with trio.fail_after(HOUR):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send.send, 1)
            assert await receive.receive() == 1


def test_a_minute_of_work_takes_seconds_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no time-out of a test expires because a machine is slow."""
    monkeypatch.setattr("tests.idle_clock.perf_counter", lambda: 60.0)
    assert IdleClock().current_time() < 10
