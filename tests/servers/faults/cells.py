"""Give a test of the fault matrix a group with a faulty server, and observe everything around it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar

import pytest
import trio

from mcp_actors import ServerConfig, ServerError, ServerRef, open_servers
from mcp_actors._tasks import open_background
from mcp_actors.testing import Snapshot

from ..groups import server
from ..links import text_of
from ..processes import group_members, state_of, wait_ended
from .matrix import FAULTS, Key, Phase, Row, Transport, counted, named

E = TypeVar("E", bound=BaseException)

PATIENCE: Final = 10.0
"""Seconds that a call of a sibling, which takes ten milliseconds, may take on a loaded machine."""

REAP: Final = 30.0
"""Seconds that a SIGKILL, which is sent before `open` is left, may take to work."""


def fault(name: str, *transports: Transport) -> pytest.MarkDecorator:
    """Make a test the proof of a fault on some transports: it runs once for each, which ``cell.transport`` tells."""
    for transport in transports:
        if transport not in FAULTS.get(name, ()):
            raise ValueError(f"the matrix has no cell for {name!r} on {transport}; write it into FAULTS in matrix.py")
    keys = [pytest.param(Key(name, transport), id=transport) for transport in transports]
    return pytest.mark.parametrize("cell", keys, indirect=True)


class Cell:
    """One fault on one transport, and what is seen of it.

    A test opens the faulty server with `open`, and says with either `fails` or `works` how the fault has to come out.
    """

    def __init__(self, row: Row) -> None:
        self._row = row
        self._opened_at = 0.0
        self._ready = False
        self._groups: set[int] = set()

    @property
    def transport(self) -> Transport:
        """What the faulty server is to be reached over."""
        return self._row.key.transport

    @asynccontextmanager
    async def open(self, config: ServerConfig, **options: Any) -> AsyncIterator[ServerRef]:
        """Connect to a faulty server while a sibling is called all the time; then check that nothing is left.

        `options` are those of `open_servers`. What the faulty server needs around it must be there before this.
        """
        before, tasks = Snapshot.take(), trio.lowlevel.current_statistics().tasks_living
        self._opened_at = trio.current_time()
        async with open_servers(config, server("sibling"), **options) as servers:
            ref = servers[config.name]
            async with self._at_work(servers["sibling"], "other server"):
                self._ready = ref.state == "ready"
                if (pid := ref.statistics().pid) is not None:
                    self.watch(pid)
                yield ref
        left = [*before.leftovers(), *await self._processes_left()]
        if more := trio.lowlevel.current_statistics().tasks_living - tasks:
            left.append(f"{more} tasks")
        self._row.leftovers = counted(left)
        assert left == []

    def watch(self, *leaders: int) -> None:
        """Look afterwards for what is left of the process groups of servers, also of one that was never ready."""
        self._groups.update(leaders)

    @asynccontextmanager
    async def calls_beside(self, ref: ServerRef) -> AsyncIterator[None]:
        """Call the faulty server itself all the time: its other calls and its connection must outlive the fault."""
        async with self._at_work(ref, "other calls"):
            yield

    @contextmanager
    def fails(
        self, error: type[E], *, phase: Phase, within: float, cause: type[BaseException] | None = None
    ) -> Iterator[pytest.ExceptionInfo[E]]:
        """Prove that the block raises an error of exactly this class, with exactly this cause, and soon enough.

        The error must be plain as well (`assert_plain`). `within` is in seconds from here; in the phase ``"connect"``
        from the beginning of the connect.
        """
        with self._timed(phase, within), pytest.raises(error) as caught:
            yield caught
        behind = caught.value.__cause__ if cause is not None else None
        self._row.error = named(caught.value, behind)
        assert type(caught.value) is error
        assert_plain(caught.value)
        assert cause is None or type(behind) is cause

    @contextmanager
    def works(self, *, phase: Phase, within: float) -> Iterator[None]:
        """Prove that the fault does no harm: the block raises nothing. `within` is as for `fails`."""
        with self._timed(phase, within):
            yield
        self._row.error = named()

    # ----------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _timed(self, phase: Phase, within: float) -> Iterator[None]:
        assert not self._row.phase, "a cell has one outcome"
        assert self._ready or phase == "connect", "a server that was not ready cannot fail later"
        began = self._opened_at if phase == "connect" else trio.current_time()
        self._row.phase, self._row.bound = phase, within
        with trio.fail_at(began + within):
            yield
        self._row.seconds = trio.current_time() - began
        assert self._row.seconds <= within

    @asynccontextmanager
    async def _at_work(self, ref: ServerRef, whom: str) -> AsyncIterator[None]:
        """Call a server that has nothing to do with the fault, one call after the other, until the block ends."""
        work, before = Work(ref), ref.statistics()
        async with open_background() as background:
            background.start_soon(work.go_on, name=f"calls to {whom}")
            yield
            await work.wait_answers(2)  # the first may have been sent before the fault
        assert (ref.state, ref.statistics().incarnation) == ("ready", before.incarnation)
        assert work.slowest < PATIENCE
        self._row.siblings += f"{', ' if self._row.siblings else ''}{whom} ≤ {work.slowest * 1000:.0f} ms"

    async def _processes_left(self) -> list[str]:
        members = [pid for group in self._groups for pid in group_members(group)]
        with suppress(trio.TooSlowError):
            await wait_ended(members, within=REAP)
        return [f"process {pid}" for pid in members if state_of(pid) == "running"]


class Work:
    """Calls to one server, each taking the server ten milliseconds, all of which must be answered."""

    def __init__(self, ref: ServerRef) -> None:
        self._ref = ref
        self._answered = trio.Event()
        self.slowest = 0.0

    async def go_on(self) -> None:
        """Call for ever. An error ends the test."""
        while True:
            began = trio.current_time()
            assert text_of(await self._ref.call_tool("sleep", {"seconds": 0.01})) == "slept 0.01"
            self.slowest = max(self.slowest, trio.current_time() - began)
            self._answered.set()
            self._answered = trio.Event()

    async def wait_answers(self, number: int) -> None:
        """Wait until so many calls more were answered."""
        with trio.fail_after(PATIENCE * number):
            for _ in range(number):
                await self._answered.wait()


def assert_plain(error: BaseException) -> None:
    """An error of ours names its server and says what happened; neither it nor what is behind it is a group."""
    if isinstance(error, ServerError):
        who, _, what = str(error).partition(": ")
        assert who == f"server {error.server!r}"
        assert len(what.split()) >= 3
    behind: BaseException | None = error
    while behind is not None:
        assert not isinstance(behind, BaseExceptionGroup)
        assert "TaskGroup" not in str(behind)
        behind = behind.__cause__


async def raise_failure_of(ref: ServerRef) -> None:
    """Wait until a server is noticed to have failed, and raise the error that tells of it."""
    await ref.wait_state("backoff", "failed")
    error = ref.statistics().last_error
    assert error is not None
    raise error
