"""The deadlines of one server's requests: who keeps them, and what happens when one has come.

Theory of operation
-------------------
A deadline is the caller's, and not the connection's: it begins with the call, counts the time in the queue, and holds
while nothing is connected and while a full pipe takes nothing. So it is kept beside the connection, by one task per
server, and what it does is to answer in the server's place: the caller leaves at once, and only then is the request
withdrawn from the queue, or cancelled, of which the server is told.

All requests to one server have the same time, so the one that was sent first expires first, and a queue is all the
order there is; it costs a request one entry, and no timer of its own. The same holds for the time without progress: to
renew it is to go to the end of the queue.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import asynccontextmanager, contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, Self

import trio
from attrs import define

from ..._errors import RequestTimedOut
from ...kernel import Actor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from ...kernel import PendingCall

__all__ = ["Deadline", "DeadlineActor", "Deadlines"]

Limit = Literal["request_timeout", "progress_timeout"]


def _nobody(asked: float, error: Exception) -> None:
    """Ignore a time-out."""


@define(eq=False)
class Deadline:
    """When a request must have been answered; a context manager around that request.

    One request may be several attempts, one after the other.

    Attributes:
        keeper: who keeps it.
        operation: what is asked of the server, in the words of the protocol: ``"tools/call 'search'"``.
        began: when it was made.
        at: when it expires, whatever happens.
        idle_at: when it expires unless there is progress; infinite unless that is limited and it was sent.
        call: the message of the attempt that is on, or was the last.
        again: True once an attempt has failed and another is to be made.
        asked_back: True while the server waits for an answer to what it asks for the sake of this request.
        expired: True once it has.
    """

    keeper: Deadlines
    operation: str
    began: float
    at: float
    idle_at: float = math.inf
    call: PendingCall[Any] | None = None
    again: bool = False
    asked_back: bool = False
    expired: bool = False

    def renew(self) -> None:
        """The request was handed to the session, or there is progress."""
        self.keeper.renew(self)

    def suspend(self) -> None:
        """The request is not with the server any more: it may wait again, and lack of progress means nothing."""
        self.keeper.suspend(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """The request has its outcome."""
        self.call = None
        self.keeper.end(self)


class Deadlines:
    """The deadlines of the requests of one server.

    Args:
        server: its name.
        request_timeout: seconds for a whole request; None: no bound.
        progress_timeout: seconds without progress that a request may be with the server; None: no bound.

    Attributes:
        on_timeout: called for each sent request that times out, with the time at which it began and its error.
    """

    def __init__(self, server: str, request_timeout: float | None, progress_timeout: float | None) -> None:
        self._server = server
        self._request_timeout = request_timeout
        self._progress_timeout = progress_timeout
        self.on_timeout: Callable[[float, Exception], None] = _nobody
        self._requests: OrderedDict[Deadline, None] = OrderedDict()
        self._idle: OrderedDict[Deadline, None] = OrderedDict()
        self._holds = 0
        self._sleep = trio.CancelScope()

    # --- requests ---------------------------------------------------------------------------------------------------

    def begin(self, operation: str) -> Deadline:
        """A request begins. Use what is returned as a context manager, or see to it that it is ended."""
        now = trio.current_time()
        timeout = math.inf if self._request_timeout is None else self._request_timeout
        deadline = Deadline(self, operation, now, now + timeout)
        self._requests[deadline] = None
        self._wake_by(deadline.at)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """A request has its outcome."""
        self._requests.pop(deadline, None)
        self._idle.pop(deadline, None)

    def suspend(self, deadline: Deadline) -> None:
        """See `Deadline.suspend`."""
        deadline.idle_at = math.inf
        self._idle.pop(deadline, None)

    def renew(self, deadline: Deadline) -> None:
        """See `Deadline.renew`."""
        if self._progress_timeout is None or deadline.expired:
            return
        deadline.idle_at = trio.current_time() + self._progress_timeout
        self._idle[deadline] = None
        self._idle.move_to_end(deadline)
        self._wake_by(deadline.idle_at)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The server asks something, and nobody knows for which request: until it is told, nothing lacks progress."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                for deadline in tuple(self._idle):
                    self.renew(deadline)

    @property
    def kept(self) -> int:
        """How many entries there are; a request may have two."""
        return len(self._requests) + len(self._idle)

    def any_sent_before(self, time: float) -> bool:
        """Return True if a request that began by `time` was sent and is within its deadline."""
        older = takewhile(lambda deadline: deadline.began <= time, self._requests)
        return any(deadline.call is not None and deadline.call.handed_over for deadline in older)

    # --- the task ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the deadlines, for as long as the server is in its group."""
        while True:
            with trio.CancelScope(deadline=self._next()) as self._sleep:
                await trio.sleep_forever()
            self._expire(trio.current_time())

    def _next(self) -> float:
        first = next(iter(self._requests), None)
        first_idle = next(iter(self._idle), None) if not self._holds else None
        return min(first.at if first else math.inf, first_idle.idle_at if first_idle else math.inf)

    def _wake_by(self, time: float) -> None:
        # Usually there is an older deadline, or was one: it is cheaper to wake up in vain once in a while.
        if time < self._sleep.deadline:
            self._sleep.deadline = time

    def _expire(self, now: float) -> None:
        for deadline in self._due(now):
            self.end(deadline)
            deadline.expired = True
            if deadline.call is not None:
                if deadline.call.handed_over:
                    self.on_timeout(deadline.began, self.failure(deadline))
                deadline.call.expire(self.failure(deadline))

    def _due(self, now: float) -> list[Deadline]:
        due: dict[Deadline, None] = {}
        for deadline in self._requests:
            if deadline.at > now:
                break
            due[deadline] = None
        for deadline in self._idle:
            if deadline.idle_at > now or self._holds:
                break
            due[deadline] = None
        return list(due)

    def failure(self, deadline: Deadline) -> RequestTimedOut:
        """The error for a request whose time is over."""
        limit: Limit
        if deadline.idle_at < deadline.at:
            limit, seconds, what = "progress_timeout", self._progress_timeout, "without an answer or any progress"
        else:
            limit, seconds, what = "request_timeout", self._request_timeout, "without an answer"
        sent = deadline.call is not None and deadline.call.handed_over
        where = "waiting to be sent again" if deadline.again else "not sent"
        if sent:
            where = "with the server, which is told to cancel it and may have acted on it"
            if deadline.asked_back or self._holds:
                where += "; it waited for a callback, whose time counts: see how long that takes, or raise the limit"
        assert seconds is not None
        return RequestTimedOut(
            f"server {self._server!r}: {deadline.operation}: {limit} of {seconds:g} s is over {what}; it was {where}",
            server=self._server,
            operation=deadline.operation,
            seconds=seconds,
            limit=limit,
        )


class DeadlineActor(Actor):
    """Runs the task that keeps the deadlines of one server. It takes no messages."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep them, beside the server's actor and longer than any connection."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run, name=self.ref.name)
            yield
            nursery.cancel_scope.cancel("the server is not in its group any more")

    async def handle(self, message: object) -> None:
        """Nothing is ever asked."""
        raise TypeError(f"the deadlines of a server take no messages, and were sent {message!r}")
