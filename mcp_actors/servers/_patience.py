"""How long one attempt to connect may take, and from when on nobody waits for it any more.

A connection that is not a process of ours has ``connect_timeout`` for everything. A process has ``startup_timeout``
from its start, and ``connect_timeout`` from the moment it has read what it was sent. Both must be over before its
silence means anything, because what reads may be a relay (``docker run -i``, ``ssh``) for a server that is not there
yet. The first answer ends that doubt: from then on ``connect_timeout`` counts alone.

Whoever waits for an optional server waits for ``connect_timeout`` at most. After that the server is *overdue*: it goes
on connecting, and the program goes on without it.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio

from ._background import open_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ._record import ServerRecord
    from .transports import Link

__all__ = ["Patience", "TimedOut", "open_patience"]

LOOK_EVERY: Final = 0.05
"""Seconds between two looks whether a process has read what it was sent. No event says so."""


Limit: TypeAlias = Literal["startup_timeout", "connect_timeout"]


class TimedOut(Exception):
    """An attempt to connect took too long.

    Attributes:
        limit: which setting bounds it.
        seconds: the value of that.
        read: whether it has read what it was sent; None if nobody can tell.
    """

    def __init__(self, limit: Limit, seconds: float, read: bool | None) -> None:
        super().__init__(f"{limit} of {seconds:g} s is over")
        self.limit = limit
        self.seconds = seconds
        self.read = read


class Patience:
    """The time of one attempt to connect.

    Attributes:
        scope: the scope around the attempt; its deadline is when the attempt is over.
        read: set when a process has read the first thing that it was sent, or where the system does not tell.

    Args:
        record: the server.
        began: when the connect began that this attempt is part of.
        hurried: whether an earlier process had all its time, so that this one need not be taken for a relay.
    """

    def __init__(self, record: ServerRecord, *, began: float, hurried: bool) -> None:
        self._record = record
        self._connect = record.config.connect_timeout or math.inf
        self._startup = record.config.startup_timeout or math.inf
        self._overdue_at = began + self._connect
        self._hurried = hurried
        self._limit: Limit = "connect_timeout"
        self._link: Link | None = None
        self._started = math.inf
        self._answered = False
        self._has_read: bool | None = None
        self.read = trio.Event()
        self.scope = trio.CancelScope(deadline=trio.current_time() + self._connect)

    @asynccontextmanager
    async def follow(self, link: Link) -> AsyncIterator[None]:
        """Give a process the time that it has from its start, until more is known of it."""
        if link.pid is None:
            yield
            return
        self._link, self._started = link, trio.current_time()
        self.scope.deadline, self._limit = self._started + self._startup, "startup_timeout"
        name = self._record.config.name
        self._record.note_connecting(link)
        async with open_background() as background:
            background.start_soon(self._note_overdue, link, name=f"{name}:overdue")
            background.start_soon(self.watch_reading, link, name=f"{name}:startup")
            yield

    async def watch_reading(self, link: Link) -> None:
        """Wait until a process has read all that it was sent; from then on it has ``connect_timeout`` at least.

        Where the system does not tell, ``startup_timeout`` bounds the whole.
        """
        self._has_read = False
        await trio.sleep(LOOK_EVERY)  # what is sent in this step is in the pipe by then
        while link.heard is False:  # noqa: ASYNC110 - there is no event, see LOOK_EVERY
            await trio.sleep(LOOK_EVERY)
        self._has_read = link.heard
        self.read.set()
        deadline = trio.current_time() + self._connect
        if link.heard and not self._answered and (self._hurried or deadline > self._started + self._startup):
            self.scope.deadline, self._limit = deadline, "connect_timeout"

    async def _note_overdue(self, link: Link) -> None:
        await trio.sleep_until(self._overdue_at)
        if self.scope.deadline <= (close := self._overdue_at + self._record.config.stop_timeout):
            await trio.sleep_until(close)  # it is about to end: whoever waits is better off with what it ended in
        if not self._answered:
            self._record.note_overdue(link)

    def answered(self) -> None:
        """The server is there: it has answered. What is left to be done has ``connect_timeout``."""
        if self._link is not None and not self._answered:
            self._answered = True
            self.scope.deadline, self._limit = trio.current_time() + self._connect, "connect_timeout"

    def connected(self) -> None:
        """The server is connected, and nothing is over any more."""
        self.scope.deadline = math.inf

    def over(self) -> TimedOut:
        """The error for an attempt whose time is over."""
        if self._limit == "connect_timeout" or self._startup == self._connect:
            return TimedOut("connect_timeout", self._connect, self._has_read)
        return TimedOut("startup_timeout", self._startup, self._has_read)


@contextmanager
def open_patience(record: ServerRecord, *, began: float, hurried: bool) -> Iterator[Patience]:
    """Bound an attempt to connect, until it is said to be connected.

    Raises:
        TimedOut: it took too long.
    """
    patience = Patience(record, began=began, hurried=hurried)
    with patience.scope:
        yield patience
    if patience.scope.cancelled_caught:
        raise patience.over()
