"""Bound one attempt to connect, and the waiting for it.

A connection without a child process has ``connect_timeout`` for everything. A process has ``startup_timeout`` from its
start, and ``connect_timeout`` from the moment it has read its input. Silence counts as a failure only when both have
expired, because the reader may be a relay (``docker run -i``, ``ssh``) for a server that has not started yet. After the
first answer ``connect_timeout`` counts alone.

Callers wait for an optional server for at most ``connect_timeout``. After that the server is *overdue*: it goes on
connecting, and the program goes on without it. Its turn is over too: another server may begin to connect.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import trio

from ..._tasks import open_background
from ._failures import TimedOut, still_connecting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..._tasks import Background
    from ...config import ServerConfig
    from ...transports import Link, Turn
    from ..record import ServerLife, ServerRecord
    from ._failures import Limit

LOOK_EVERY: Final = 0.1
"""Seconds between two checks whether a process has read its input. The system has no event for that."""


class Patience:
    """The time of one attempt to connect.

    Attributes:
        scope: the scope around the attempt; its deadline is when the attempt is over.
        read: set when a process has read the first message; at once if the system does not report that.

    Args:
        config: the configuration of the server.
        life: the state of the server.
        began: the time at which the whole connect began.
        hurried: True if an earlier process has used up its time-outs, so this one is not taken for a relay.
        turn: its turn to connect.
    """

    def __init__(self, config: ServerConfig, life: ServerLife, *, began: float, hurried: bool, turn: Turn) -> None:
        self._config = config
        self._life = life
        self._connect = config.connect_timeout or math.inf
        self._startup = config.startup_timeout or math.inf
        self._overdue_at = began + self._connect
        self._hurried = hurried
        self._turn = turn
        self._limit: Limit = "connect_timeout"
        self._link: Link | None = None
        self._started = math.inf
        self._answered = False
        self._watchers: Background
        self._has_read: bool | None = None
        self.read = trio.Event()
        self.scope = trio.CancelScope(deadline=trio.current_time() + self._connect)

    @asynccontextmanager
    async def follow(self, link: Link) -> AsyncIterator[None]:
        """Give a process ``startup_timeout`` from its start, until it has read its input."""
        if link.pid is None:
            yield
            return
        self._link, self._started = link, trio.current_time()
        self.scope.deadline, self._limit = self._started + self._startup, "startup_timeout"
        name = self._config.name
        self._life.note_connecting(link)
        async with open_background() as self._watchers:
            self._watchers.start_soon(self._note_overdue, link, name=f"{name}:overdue")
            self._watchers.start_soon(self._watch_exit, link, name=f"{name}:exited")
            self.watch_reading(link)
            yield

    def watch_reading(self, link: Link) -> None:
        """Give a process at least ``connect_timeout`` from the moment it has read all its input.

        If the system does not report that, ``startup_timeout`` bounds the whole attempt.
        """
        self._watchers.start_soon(self._watch_reading, link, name=f"{self._config.name}:startup")

    async def _watch_reading(self, link: Link) -> None:
        self._has_read = False
        # A message that is sent in this step is in the pipe only after this. An empty pipe now would prove nothing.
        await trio.sleep(LOOK_EVERY)
        while link.heard is False:  # noqa: ASYNC110 - there is no event, see LOOK_EVERY
            await trio.sleep(LOOK_EVERY)
        self._has_read = link.heard
        self.read.set()
        deadline = trio.current_time() + self._connect
        if link.heard and not self._answered and (self._hurried or deadline > self._started + self._startup):
            self.scope.deadline, self._limit = deadline, "connect_timeout"

    async def _watch_exit(self, link: Link) -> None:
        """Give up a process that has exited when no child of it can be the server.

        A helper that it has left behind may hold its stdout open, so that this does not end. But a server has to read.

        Raises:
            anyio.EndOfStream: no process is left that could answer.
        """
        exited = trio.Event()
        link.hear_of_exit(exited.set)
        if not link.exited:
            await exited.wait()
        closed = False
        while not closed:
            await trio.sleep(LOOK_EVERY)  # meanwhile the end of its stdout is read, unless there is such a helper
            if link.lost:
                return
            closed = link.input_closed
        link.lose()
        await link.wait_obituary()
        raise anyio.EndOfStream

    async def _note_overdue(self, link: Link) -> None:
        await trio.sleep_until(self._overdue_at)
        if self.scope.deadline <= (close := self._overdue_at + self._config.stop_timeout):
            await trio.sleep_until(close)  # the attempt is about to fail: callers get its error, not "still connecting"
        if not self._answered:
            self._turn.end()  # or a few slow servers would keep all others from connecting
            self._life.note_overdue(still_connecting(self._config.name, self._connect, link))

    def answered(self) -> None:
        """Note the first answer of the server; the rest of the attempt has ``connect_timeout``."""
        if self._link is not None and not self._answered:
            self._answered = True
            self.scope.deadline, self._limit = trio.current_time() + self._connect, "connect_timeout"

    def connected(self) -> None:
        """Lift the deadline, and stop watching the process: the server is connected."""
        self._turn.end()
        self.scope.deadline = math.inf
        if self._link is not None:
            self._watchers.cancel("the server is connected")

    def over(self) -> TimedOut:
        """Return the error of an attempt that timed out."""
        if self._limit == "connect_timeout" or self._startup == self._connect:
            return TimedOut("connect_timeout", self._connect, self._has_read)
        return TimedOut("startup_timeout", self._startup, self._has_read)


@asynccontextmanager
async def open_patience(record: ServerRecord, *, began: float, hurried: bool) -> AsyncIterator[Patience]:
    """Wait for the turn of a server to connect, and bound its attempt until `Patience.connected` is called.

    Raises:
        TimedOut: the attempt took too long.
    """
    config, life = record.config, record.life

    def late(why: str) -> None:
        life.note_overdue(f"server {config.name!r}: {why}")

    until = began + (config.connect_timeout or math.inf)
    async with record.capacity.turn(record.place, until, late) as turn:
        patience = Patience(config, life, began=began, hurried=hurried, turn=turn)
        with patience.scope:
            yield patience
    if patience.scope.cancelled_caught:
        raise patience.over()
