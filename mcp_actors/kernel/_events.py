"""Emit events, as frozen data, to observers and subscribers.

Events report; they control nothing. An observer is a synchronous callable that runs in the same step as the event, so
it sees every event in order. A subscriber reads from a bounded stream at its own pace and may miss the oldest events.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import time as wall_time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import trio
from attrs import define, field, fields, frozen

from .._checks import is_whole
from .._collapse import EXITS
from .._pickling import pack, unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

logger = logging.getLogger("mcp_actors.kernel")

EVENT_BUFFER: Final = 1024
"""Default number of events that a subscriber may lag behind: a restart storm of a hundred actors fits."""


@frozen(kw_only=True)
class Event:
    """Base of all events.

    Attributes:
        actor: the actor's name.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
        time: `trio.current_time` when it happened, in seconds: for differences within one run of Trio.
    """

    actor: str
    incarnation: int
    time: float
    _wall: float = field(factory=wall_time, eq=False, repr=False)

    @property
    def at(self) -> datetime:
        """When it happened by the wall clock, in UTC. It means the same on Trio, on asyncio and in another process."""
        return datetime.fromtimestamp(self._wall, UTC)

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (type(self), {each.alias: pack(getattr(self, each.name)) for each in fields(type(self))})


def _loaded(kind: type[Event], values: dict[str, object]) -> Event:
    return kind(**{name: unpack(value) for name, value in values.items()})  # type: ignore[arg-type]  # its own fields


@frozen(kw_only=True)
class Starting(Event):
    """An incarnation begins and enters ``running()``."""


@frozen(kw_only=True)
class Started(Event):
    """``running()`` was entered; messages are being served."""


@frozen(kw_only=True)
class StartFailed(Event):
    """``running()`` raised ``error`` before it was entered."""

    error: BaseException = field(eq=False)


@frozen(kw_only=True)
class Crashed(Event):
    """A failure ends the incarnation. ``error`` is that failure; None if it is not known yet.

    All requests in flight have been answered in the same step; the clean-up follows.
    """

    error: BaseException | None = field(eq=False)


@frozen(kw_only=True)
class Restarting(Event):
    """The supervisor will try another start in ``delay`` seconds. ``attempt`` counts from 1 since the last reset."""

    attempt: int
    delay: float


@frozen(kw_only=True)
class GaveUp(Event):
    """The supervisor gives up: the budget is spent, or retrying cannot help. ``error`` is the last failure.

    ``retry_in`` is the number of seconds until one more attempt (`Supervisor`'s ``park_retry``). None means that no
    attempt follows.
    """

    error: BaseException | None = field(eq=False)
    retry_in: float | None = None


@frozen(kw_only=True)
class Stopping(Event):
    """The incarnation ends without a failure: ``"shutdown"`` (requested) or ``"normal"`` (by the actor itself)."""

    reason: Literal["normal", "shutdown"]


@frozen(kw_only=True)
class Stopped(Event):
    """The actor has stopped, its clean-up is done, and nothing restarts it automatically.

    ``killed`` is True if the last incarnation exceeded its ``shutdown`` time, or had none (``"brutal_kill"``). Its
    owner was cancelled then, so its clean-up may be incomplete.
    """

    killed: bool = False


@frozen(kw_only=True)
class StopFailed(Event):
    """``running()`` raised ``error`` while stopping, after the end had been decided. The stop continued."""

    error: BaseException = field(eq=False)


@frozen(kw_only=True)
class Overdue(Event):
    """A killed incarnation still runs ``seconds`` after the request to stop, because of a shield.

    It is still awaited.
    """

    seconds: float


@frozen(kw_only=True)
class RequestStarted(Event):
    """A message, of the class named ``message``, was handed over to its handler."""

    message: str


@frozen(kw_only=True)
class RequestFinished(Event):
    """The handler ended after ``seconds``, with ``error`` if it raised or was cancelled."""

    message: str
    seconds: float
    error: BaseException | None = field(eq=False)


@frozen(kw_only=True)
class Unhandled(Event):
    """A handler raised ``error`` and no caller receives it: a ``tell``, or a ``call`` whose caller has left."""

    message: str
    error: BaseException = field(eq=False)


@frozen(kw_only=True)
class DeadLetter(Event):
    """A message without a waiting caller was dropped because the actor stopped before it was handed over."""

    message: str


@frozen(kw_only=True)
class MemberAdded(Event):
    """A pool begins to start another ``member``, because messages wait. It has ``members`` now, with this one."""

    member: str
    members: int


@frozen(kw_only=True)
class MemberRemoved(Event):
    """A pool stops a ``member`` that was idle for too long, or drops one that did not start. ``members`` are left."""

    member: str
    members: int


class Observer(Protocol):
    """A callable that receives every event, synchronously. An exception that it raises is logged and otherwise ignored.

    `KeyboardInterrupt` and `SystemExit` end the tree and leave its block after the clean-up.

    An observer may have an attribute ``wants_requests``. While it is false for all observers, `RequestStarted` and
    `RequestFinished` are not created, which saves about ten microseconds per call.
    """

    def __call__(self, event: Event, /) -> None: ...


@define(eq=False, repr=False)
class EventHub:
    """Emits events to observers and subscribers; one per tree of actors.

    Attributes:
        exit: the first `KeyboardInterrupt` or `SystemExit` raised within a step of the kernel; None until then.
        on_exit: called when `exit` is set. ``open_actor`` or ``open_supervisor`` sets it; it must not act within the
            same step.
    """

    observers: tuple[Observer, ...] = ()
    exit: BaseException | None = field(default=None, init=False)
    on_exit: Callable[[], object] | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def wants_requests(self) -> bool:
        """True if an observer wants `RequestStarted` and `RequestFinished`, which is the default for an observer."""
        for observer in self.observers:  # noqa: SIM110 - a generator costs more than all the rest
            if getattr(observer, "wants_requests", True):
                return True
        return False

    @trio.lowlevel.enable_ki_protection
    def emit(self, event: Event) -> None:
        """Call all observers, in the order in which they were added.

        Raises:
            KeyboardInterrupt, SystemExit: the first that an observer raised, after all have been called.
        """
        wanted: BaseException | None = None
        for observer in self.observers:
            try:
                observer(event)
            except EXITS as exc:
                wanted = wanted or exc
            except BaseException:
                logger.exception("observer %r raised on %r; the actor is not affected", observer, event)
        if wanted is not None:
            raise wanted

    def leave(self, wanted: BaseException) -> None:
        """Make a `KeyboardInterrupt` or `SystemExit` leave the outermost block of this tree.

        An observer raises it within a step of the kernel (the end of an actor, a stop of several children), which must
        be completed first: half of it would leave actors running that are never stopped.
        """
        if self.exit is None:
            assert self.on_exit is not None  # open_actor() and open_supervisor() set it
            self.exit = wanted
            self.on_exit()

    def add(self, observer: Observer) -> None:
        """Call an observer with every event from now on."""
        self.observers = (*self.observers, observer)

    def remove(self, observer: Observer) -> None:
        """Stop calling an observer."""
        self.observers = tuple(other for other in self.observers if other is not observer)

    @asynccontextmanager
    async def subscribe(self, *, size: int = EVENT_BUFFER) -> AsyncIterator[EventStream]:
        """Yield a stream that receives every event from now on, until the block or the tree of actors ends.

        Args:
            size: how many events may wait for the reader; one more drops the oldest (see `EventStream.missed`).
        """
        stream = EventStream(size=size)
        if self._closed:
            stream.close()
        self.add(stream)
        try:
            yield stream
        finally:
            self.remove(stream)
            stream.close()

    def close(self) -> None:
        """End all streams, because the tree has ended. A reader still gets the events that are left."""
        self._closed = True
        for observer in self.observers:
            if isinstance(observer, EventStream):
                observer.close()


class EventStream:
    """An async iterator of events for one reader, which reads at its own pace.

    At most ``size`` events wait for the reader. One more drops the oldest, and `missed` counts it. The stream ends when
    its subscription is closed or the tree of actors has ended. It is its own observer.
    """

    def __init__(self, *, size: int = EVENT_BUFFER) -> None:
        check_buffer(size)
        self.missed: int = 0
        """The number of events that were dropped because the reader was too slow."""
        self._events: deque[Event] = deque()
        self._size = size
        self._closed = False
        self._news = trio.lowlevel.ParkingLot()

    def __call__(self, event: Event, /) -> None:
        """Take an event (as an `Observer`)."""
        if len(self._events) == self._size:
            self._events.popleft()
            self.missed += 1
        self._events.append(event)
        self._news.unpark_all()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        """Return the next event. **Cancellation**: no event is lost."""
        await trio.lowlevel.checkpoint()
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            await self._news.park()
        return self._events.popleft()

    def pending(self) -> Iterator[Event]:
        """Yield the events that have arrived, without waiting."""
        while self._events:
            yield self._events.popleft()

    def close(self) -> None:
        """Accept no more events. A reader still gets the events that are left."""
        self._closed = True
        self._news.unpark_all()


def check_buffer(size: object) -> None:
    """Raise a `ValueError` if an event stream cannot have this size."""
    if not is_whole(size, 1):
        raise ValueError(f"an event stream holds at least 1 event, not {size!r}; give size as a positive int")
