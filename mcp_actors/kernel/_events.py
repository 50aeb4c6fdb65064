"""Emit events, as frozen data, to observers and subscribers.

Observers are foreign code, called within steps of the kernel that must not stay half done. So errors of observers are
logged, and an exception that ends the program waits for the end of the step. A slow subscriber must not hold up the
actors, so each stream is bounded, and drops the oldest events. `EventHub` also queues the stops of children, because a
tree of actors may be deeper than Python's stack.

Owns: event hubs of actor trees; streams of subscribers.
Writes: the log.
Calls: nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from time import time as wall_time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import trio
from attrs import define, field, fields, frozen

from .._collapse import is_exit
from .._foreign import Log, shown
from .._misuse import is_plain, is_whole
from .._pickling import Handle, pack, unpack

if TYPE_CHECKING:
    from datetime import datetime

_log: Final = Log("mcp_actors.kernel")


@frozen(kw_only=True, eq=False, repr=False)
class Event:
    """Base of all events.

    Attributes:
        actor: the actor's name.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
        time: `trio.current_time` of the event, in seconds: for differences within one run of Trio.
    """

    actor: str
    incarnation: int
    time: float
    _wall: float = field(factory=wall_time, eq=False, repr=False)

    @property
    def at(self) -> datetime:
        """The wall-clock time of the event, in UTC, comparable between Trio, asyncio and other processes."""
        from datetime import UTC, datetime  # not at the top: a millisecond of each start

        return datetime.fromtimestamp(self._wall, UTC)

    # Shared by all events: attrs would compile these methods for each of forty classes.

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self._compared()))

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, each.name) for each in fields(type(self)) if each.eq)

    def __repr__(self) -> str:
        values = (f"{each.name}={shown(getattr(self, each.name))}" for each in fields(type(self)) if each.repr)
        return f"{type(self).__name__}({', '.join(values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (type(self), {each.alias: pack(getattr(self, each.name)) for each in fields(type(self))})


def _loaded(kind: type[Event], values: dict[str, object]) -> Event:
    return kind(**{name: unpack(value) for name, value in values.items()})  # type: ignore[arg-type]  # its own fields


class Starting(Event):
    """An incarnation begins and enters ``running()``."""

    __slots__ = ()


class Started(Event):
    """``running()`` was entered; messages are being served."""

    __slots__ = ()


@frozen(kw_only=True, eq=False, repr=False)
class StartFailed(Event):
    """A start failed with ``error``: of the factory, of ``running()``, or of a timeout."""

    error: BaseException = field(eq=False)


@frozen(kw_only=True, eq=False, repr=False)
class Crashed(Event):
    """A failure ends the incarnation. ``error`` is the failure; None if not known yet.

    All requests in flight have been answered in the same step; the clean-up follows.
    """

    error: BaseException | None = field(eq=False)


@frozen(kw_only=True, eq=False, repr=False)
class Restarting(Event):
    """The supervisor tries another start in ``delay`` seconds. ``attempt`` counts from 1 since the last reset."""

    attempt: int
    delay: float


@frozen(kw_only=True, eq=False, repr=False)
class GaveUp(Event):
    """The supervisor gives up: the budget is spent, or retrying cannot help. ``error`` is the last failure.

    ``retry_in`` is the number of seconds until one more attempt (`Supervisor`'s ``park_retry``); None means no attempt.
    """

    error: BaseException | None = field(eq=False)
    retry_in: float | None = None


@frozen(kw_only=True, eq=False, repr=False)
class Stopping(Event):
    """The incarnation ends without a crash: ``"shutdown"`` (mostly requested) or ``"normal"`` (by the actor)."""

    reason: Literal["normal", "shutdown"]


@frozen(kw_only=True, eq=False, repr=False)
class Stopped(Event):
    """The actor has stopped, the clean-up is done, and nothing restarts the actor automatically.

    ``killed`` is True if the last incarnation exceeded its ``shutdown`` time, or had none (``"brutal_kill"``). The
    owner was then cancelled, so the clean-up may be incomplete.
    """

    killed: bool = False


@frozen(kw_only=True, eq=False, repr=False)
class StopFailed(Event):
    """``running()`` raised ``error`` while stopping, after the end had been decided. The stop continued."""

    error: BaseException = field(eq=False)


@frozen(kw_only=True, eq=False, repr=False)
class Overdue(Event):
    """A killed incarnation still runs, because of a shield, ``seconds`` after the request to stop.

    The end is still awaited.
    """

    seconds: float


@frozen(kw_only=True, eq=False, repr=False)
class RequestStarted(Event):
    """A message, of the class named ``message``, was handed over to its handler."""

    message: str


@frozen(kw_only=True, eq=False, repr=False)
class RequestFinished(Event):
    """The handling, up to the answer of a `Later`, took ``seconds``, with ``error`` if it failed or was cancelled."""

    message: str
    seconds: float
    error: BaseException | None = field(eq=False)


@frozen(kw_only=True, eq=False, repr=False)
class Unhandled(Event):
    """A handler raised ``error`` and no caller receives it: a ``tell``, or a ``call`` whose caller has left."""

    message: str
    error: BaseException = field(eq=False)


@frozen(kw_only=True, eq=False, repr=False)
class DeadLetter(Event):
    """A message without a waiting caller was dropped: the actor stopped first, or too many messages are postponed."""

    message: str


@frozen(kw_only=True, eq=False, repr=False)
class MemberAdded(Event):
    """A pool begins to start another ``member``, because messages wait. ``members`` counts the new member too."""

    member: str
    members: int


@frozen(kw_only=True, eq=False, repr=False)
class MemberRemoved(Event):
    """A pool stops a ``member`` that was idle for too long, or drops one that did not start. ``members`` are left."""

    member: str
    members: int


class Observer(Protocol):
    """A callable that receives every event, synchronously. An `Exception` is logged and otherwise ignored.

    Other exceptions (`KeyboardInterrupt`, `SystemExit`, the exception of ``pytest.fail()``) end the tree and leave the
    block after the clean-up.

    An observer may have an attribute ``wants_requests``. While false for all observers, `RequestStarted` and
    `RequestFinished` are not created, which saves about ten microseconds per call.
    """

    def __call__(self, event: Event, /) -> None: ...


def _checked(given: object) -> tuple[Observer, ...]:
    found = tuple(given) if isinstance(given, Iterable) else (None,)
    if wrong := [each for each in found if not is_plain(each)]:
        write = f"{wrong[0].__name__}()" if isinstance(wrong[0], type) else "function"
        problem = f"observers must be plain functions (not async) in a list, not {shown(given, limit=60)}"
        raise TypeError(f"{problem}; write observers=[{write}]")
    return found


@define(eq=False, repr=False)
class EventHub(Handle):
    """Emits events to observers and subscribers; one per tree of actors.

    Attributes:
        exit: the first exception raised within a step of the kernel, to end the program; None until then.
        on_exit: called when `exit` is set. ``open_actor`` or ``open_supervisor`` sets the function, which must not act
            within the same step.
    """

    observers: tuple[Observer, ...] = field(default=(), converter=_checked)
    exit: BaseException | None = field(default=None, init=False)
    on_exit: Callable[[], object] | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _stops: deque[Callable[[], None]] = field(factory=deque, init=False)

    def __repr__(self) -> str:
        return f"<EventHub {len(self.observers)} observers>"

    def after_stop(self, pass_on: Callable[[], None]) -> None:
        """Let a supervisor ask its first child to stop, within this step.

        This is a loop, because a tree may be deeper than Python's stack.
        """
        self._stops.append(pass_on)
        if len(self._stops) > 1:  # an outer call runs the loop
            return
        try:
            while self._stops:
                self._stops[0]()
                self._stops.popleft()
        finally:
            self._stops.clear()

    @property
    def wants_requests(self) -> bool:
        """True if an observer wants `RequestStarted` and `RequestFinished`, the default for observers."""
        try:
            for observer in self.observers:
                if getattr(observer, "wants_requests", True):
                    return True
        except Exception:  # out of a property, or out of the `__bool__` of its value
            return True
        return False

    @trio.lowlevel.enable_ki_protection
    def emit(self, event: Event) -> None:
        """Call all observers, in the order in which they were added.

        Raises:
            BaseException: the first observer exception that ends the program, after all have been called.
        """
        wanted: BaseException | None = None
        for observer in self.observers:
            try:
                _notify(observer, event)
            except BaseException as exc:
                wanted = exc if wanted is None else wanted
        try:
            if wanted is not None:
                raise wanted
        finally:
            del wanted  # whose traceback refers to this frame

    def note(self, event: Event) -> None:
        """Call all observers within a step of the kernel: an exception that ends the program leaves later."""
        try:
            self.emit(event)
        except BaseException as exc:
            self.exit_with(exc)

    def log(self, level: int, text: str, *args: object, error: BaseException | None = None) -> None:
        """Log within a step of the kernel: a log handler's exception that ends the program leaves later.

        Args:
            level: the level.
            text: the text, with a ``%`` for each argument.
            args: the arguments. Objects of users are shown by `shown`.
            error: the exception to show.
        """
        try:
            _log.log(level, text, *args, exc_info=error, stacklevel=2)
        except BaseException as exc:  # a handler wants the program to exit
            self.exit_with(exc)

    def exit_with(self, wanted: BaseException) -> None:
        """Make an exception that ends the program leave the outermost block of the tree, after this step.

        An interrupted step (the end of an actor, a stop of several children) would leave actors running that are never
        stopped.
        """
        if self.exit is None:
            assert self.on_exit is not None  # open_actor() and open_supervisor() set it
            self.exit = wanted
            self.on_exit()

    def add(self, observer: Observer) -> None:
        """Call an observer with every later event."""
        self.observers = (*self.observers, observer)

    def remove(self, observer: Observer) -> None:
        """Stop calling an observer."""
        self.observers = tuple(other for other in self.observers if other is not observer)

    @asynccontextmanager
    async def subscribe(self, ended: Callable[[], Exception], *, size: int = 1024) -> AsyncIterator[EventStream]:
        """Yield a stream of all later events, until the block or the tree of actors ends.

        Args:
            ended: returns the error to raise if the tree has ended already.
            size: how many events may wait for the reader; one more drops the oldest (see `EventStream.missed`).
        """
        stream = EventStream(size=size)
        if self._closed:
            raise ended()
        self.add(stream)
        try:
            yield stream
        finally:
            self.remove(stream)
            stream.close()

    def close(self) -> None:
        """End all streams: the tree has ended."""
        self._closed = True
        for observer in self.observers:
            if isinstance(observer, EventStream):
                observer.close()


class Outward:
    """Passes events on to the hub of the actor whose code has opened the tree."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub

    @property
    def wants_requests(self) -> bool:
        return self._hub.wants_requests

    def __call__(self, event: Event, /) -> None:
        self._hub.note(event)


def _notify(observer: Observer, event: Event) -> None:
    """Call an observer. Raise only an exception that ends the program."""
    try:
        observer(event)
    except BaseException as exc:
        if is_exit(exc):
            raise
        _log.exception("observer %s raised on %s; the actor is not affected", shown(observer), shown(event))


class EventStream(Handle):
    """An async iterator of events for one reader, at the reader's own pace.

    At most ``size`` events wait for the reader. One more drops the oldest, and `missed` counts the loss. The stream
    ends when the subscription is closed or the tree of actors has ended.
    """

    def __init__(self, *, size: int = 1024) -> None:  # a restart storm of a hundred actors fits
        if not is_whole(size, 1):
            raise ValueError(f"an event stream holds at least 1 event, not {size!r}; give size as a positive int")
        self.missed: int = 0
        """The number of events that were dropped because the reader was too slow."""
        self._events: deque[Event] = deque()
        self._size = size
        self._closed = False
        self._news = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return f"<EventStream {len(self._events)} waiting, {self.missed} missed>"

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
        """Accept no more events. A reader still gets the remaining events."""
        self._closed = True
        self._news.unpark_all()
