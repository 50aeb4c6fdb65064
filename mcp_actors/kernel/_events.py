"""What happened, as frozen data, and the hub that tells those who want to know.

Events report; they steer nothing. An observer is a plain synchronous callable that runs inside the step in which the
thing happened, so it sees every event in order; a subscriber reads from a bounded stream at its own pace and may miss
the oldest.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import time as wall_time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import trio
from attrs import field, fields, frozen

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
        incarnation: which run of it, from 1; 0 before the first.
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
    """An incarnation begins; its ``running()`` is being entered."""


@frozen(kw_only=True)
class Started(Event):
    """``running()`` was entered; messages are being served."""


@frozen(kw_only=True)
class StartFailed(Event):
    """``running()`` raised ``error`` before it was entered."""

    error: BaseException = field(eq=False)


@frozen(kw_only=True)
class Crashed(Event):
    """The end of an incarnation was decided by a failure, which is ``error`` as far as it is known yet.

    All its requests were answered in the same step; its clean-up comes next.
    """

    error: BaseException | None = field(eq=False)


@frozen(kw_only=True)
class Restarting(Event):
    """Another start will be attempted, ``delay`` seconds from now; ``attempt`` counts from 1 since the last reset."""

    attempt: int
    delay: float


@frozen(kw_only=True)
class GaveUp(Event):
    """No restart is attempted any more, because the budget is spent or trying cannot help; ``error`` was the last.

    ``retry_in`` is the number of seconds until one more attempt (`Supervisor`'s ``park_retry``); None if there is none.
    """

    error: BaseException | None = field(eq=False)
    retry_in: float | None = None


@frozen(kw_only=True)
class Stopping(Event):
    """The end was decided without a failure: ``"shutdown"`` (asked for) or ``"normal"`` (the actor's own wish)."""

    reason: Literal["normal", "shutdown"]


@frozen(kw_only=True)
class Stopped(Event):
    """The actor does not run, everything of it is cleaned up, and it will not come back by itself.

    ``killed`` is True if its last incarnation did not end in its time, or had none (``"brutal_kill"``): the owner was
    cancelled, so its clean-up may be incomplete.
    """

    killed: bool = False


@frozen(kw_only=True)
class StopFailed(Event):
    """``running()`` raised ``error`` on its way out, after the end had been decided. The stop went on."""

    error: BaseException = field(eq=False)


@frozen(kw_only=True)
class Overdue(Event):
    """A killed incarnation is still there, ``seconds`` after it was asked to stop: something in it shields itself.

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
    """A handler raised ``error`` and nobody waits for it: a ``tell``, or a ``call`` whose caller has left."""

    message: str
    error: BaseException = field(eq=False)


@frozen(kw_only=True)
class DeadLetter(Event):
    """A message that nobody waits for was dropped, because the actor stopped for good before it was handed over."""

    message: str


class Observer(Protocol):
    """Called with every event, synchronously. If it raises, that is logged and changes nothing else.

    `KeyboardInterrupt` and `SystemExit` end the tree and leave its block after the clean-up.

    An observer that has an attribute ``wants_requests`` which is false at the moment can do without `RequestStarted`
    and `RequestFinished`. If that goes for all observers, these two are not made at all, which takes about ten
    microseconds off every call.
    """

    def __call__(self, event: Event, /) -> None: ...


class EventHub:
    """Tells observers and subscribers; one per tree of actors.

    Attributes:
        exit: the first `KeyboardInterrupt` or `SystemExit` that came up in a step of the kernel; None until then.
        on_exit: called when there is one; set by the door of the tree. It must not act within that step.
    """

    __slots__ = ("_closed", "exit", "observers", "on_exit")

    def __init__(self, observers: tuple[Observer, ...] = ()) -> None:
        self.observers: tuple[Observer, ...] = observers
        self.exit: BaseException | None = None
        self.on_exit: Callable[[], object] | None = None
        self._closed = False

    @property
    def wants_requests(self) -> bool:
        """Whether there is an observer that wants to hear of single requests. As each does that does not say no."""
        return any(getattr(observer, "wants_requests", True) for observer in self.observers)

    @trio.lowlevel.enable_ki_protection
    def emit(self, event: Event) -> None:
        """Tell everybody, in the order in which they came.

        Raises:
            KeyboardInterrupt, SystemExit: the first that an observer raised, once all were told.
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

        It is raised in the middle of a step of the kernel (a decided end, a stop of several children), which must be
        completed: half of it would leave actors running that are never stopped.
        """
        if self.exit is None:
            assert self.on_exit is not None  # every actor is behind a door
            self.exit = wanted
            self.on_exit()

    def add(self, observer: Observer) -> None:
        """From now on, call it with every event."""
        self.observers = (*self.observers, observer)

    def remove(self, observer: Observer) -> None:
        """Call it no more."""
        self.observers = tuple(other for other in self.observers if other is not observer)

    @asynccontextmanager
    async def subscribe(self, *, size: int = EVENT_BUFFER) -> AsyncIterator[EventStream]:
        """Have a stream that gets every event from now on, until the block or the tree of actors ends.

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
        """The tree has ended, there will be no more events: every stream ends once its reader has got what is left."""
        self._closed = True
        for observer in self.observers:
            if isinstance(observer, EventStream):
                observer.close()


class EventStream:
    """Events as an async iterator for one reader, which gets them at its own pace.

    At most ``size`` events wait for it; when one more comes, the oldest is dropped and `missed` counts it. The stream
    ends when its subscription is closed, or when the tree of actors has ended. It is its own observer.
    """

    def __init__(self, *, size: int = EVENT_BUFFER) -> None:
        check_buffer(size)
        self.missed: int = 0
        """How many events were dropped because the reader was too slow."""
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
        """The next event. **Cancellation**: no event is lost."""
        await trio.lowlevel.checkpoint()
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            await self._news.park()
        return self._events.popleft()

    def pending(self) -> Iterator[Event]:
        """Take what has arrived, without waiting."""
        while self._events:
            yield self._events.popleft()

    def close(self) -> None:
        """No more events; a reader gets what is left, then the end."""
        self._closed = True
        self._news.unpark_all()


def check_buffer(size: object) -> None:
    """Refuse a size that no event stream can have."""
    if not is_whole(size, 1):
        raise ValueError(f"an event stream holds at least 1 event, not {size!r}; give size as a positive int")
