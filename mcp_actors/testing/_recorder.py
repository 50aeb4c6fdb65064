"""Record and await events and messages, and repeat seeded runs.

The actors and the test may be in different threads and on different event loops. An event between a check and the
wait must still be noticed. A seeded run reaches into Trio's scheduler, because Trio has no public way to order tasks.

Owns: recorded events; recorded messages; planned answers of substitute actors.
Writes: seeds of Trio's scheduler and `random`; the garbage collector's switch.
Calls: kernel, servers, _signal.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, TypeVarTuple

import anyio
import trio
from attrs import frozen
from trio.testing import MockClock

from ..kernel import Actor, Call, CallWith, Event, Message
from ._signal import NoteSignal, Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
E = TypeVar("E", bound=Event)
M = TypeVar("M", bound=Message)


class EventRecorder(list[Event]):
    """A list of all events, in the order in which they happened.

    Pass it as an observer: ``observers=[recorder]``. Works on Trio and on asyncio.
    """

    def __init__(self) -> None:
        super().__init__()
        self._news = NoteSignal()

    def __call__(self, event: Event, /) -> None:
        """Record an event (as an `Observer`)."""
        self.append(event)
        self._news.wake()

    def of(self, kind: type[E], *actors: str) -> list[E]:
        """Return the events of one kind, of these actors (default: of all)."""
        return [event for event in self if isinstance(event, kind) and (not actors or event.actor in actors)]

    def states(self, server: str) -> list[str]:
        """Return the states that a server went through, without the first."""
        from ..servers import StateChanged  # tests of actors alone must not load the SDK

        return [event.new for event in self.of(StateChanged, server)]

    async def wait_for(self, kind: type[E], /, *, after: Event | None = None, **fields: object) -> E:
        """Return the first event of a kind with these field values; wait if none is recorded yet.

        Events recorded before the call count too, so no event is missed. Only the event ends the wait: put a
        ``fail_after`` around it.

        **Cancellation**: changes nothing.

        Args:
            kind: the class of the event.
            after: an event of this recorder; only later events count. Pass the last result to wait for the next.
            fields: names of attributes and their values, such as ``server="files"`` or ``new="ready"``.

        Raises:
            ValueError: `after` was not recorded here.
            AttributeError: events of the kind lack such an attribute.
        """
        await anyio.lowlevel.checkpoint()
        position = self._position_after(after)
        while True:
            # Take `next` before looking at the list. An event that another thread records during the look sets exactly
            # this signal; taken after the look, `next` would be the signal of a later event, and the wait might never
            # end.
            news = self._news.next
            events = self[position:]
            for event in events:
                if fits(event, kind, fields):
                    return event
            position += len(events)
            await news.wait()

    def _position_after(self, event: Event | None) -> int:
        if event is None:
            return 0
        # Compare identity: two events may be equal.
        for position, each in enumerate(self, 1):
            if each is event:
                return position
        raise ValueError(f"after={event!r} was not recorded here; pass an event of this recorder")


# --- An actor that answers as a test says and records its messages ----------------------------------------------------


class Probe:
    """A substitute for an actor: records messages, and answers as a test says.

    The test may run on Trio or on asyncio.

    `actor` makes the actors, so that a probe outlives the restarts of its actor::

        async with open_supervisor(
            ChildSpec("prices", probe.actor), observers=[events]
        ) as supervisor:
            prices = supervisor.child("prices")

    Attributes:
        received: all handled messages, in order, over all incarnations.
        starts: how many incarnations were started.
    """

    def __init__(self, *, max_in_flight: int = 1) -> None:
        self.received: list[Message] = []
        self.starts: int = 0
        self._max_in_flight = max_in_flight
        self._answers: dict[type[object], deque[_ProbeAnswer]] = {}
        self._given: dict[type[object], _ProbeAnswer] = {}
        self._start_failures: deque[Exception] = deque()
        self._news = NoteSignal()

    def __repr__(self) -> str:
        return f"<Probe {self.starts} starts, {len(self.received)} received>"

    def actor(self) -> Actor:
        """Return a new actor for `open_actor`, or for a `ChildSpec` as its factory."""
        return _ProbeActor(self, self._max_in_flight)

    def reply(self, kind: type[CallWith[T]], *values: T) -> None:
        """Answer the next messages of a class with these values, in order.

        The last value also answers later messages, until another answer is planned. A `Call` without an answer raises a
        `LookupError`; a plain `Message` needs none.
        """
        self._plan(kind, *(_ProbeAnswer(value=value) for value in values))

    def _plan(self, kind: type[object], *answers: _ProbeAnswer) -> None:
        planned = self._answers.setdefault(kind, deque())
        if planned and planned[0] is self._given.get(kind):
            planned.popleft()
        planned.extend(answers)

    def fail(self, kind: type[Message], error: Exception, *, crash: bool = False) -> None:
        """Raise an error from the handler of the next message of a class.

        Args:
            kind: the class of the message.
            error: the error for the caller.
            crash: True also ends the incarnation, as a failure.
        """
        self._plan(kind, _ProbeAnswer(error=error, crash=crash))

    def hold(self, kind: type[CallWith[T]], value: T) -> anyio.Event:
        """Keep the next message of a class waiting until the returned event is set; then answer with a value.

        Any thread may set the event.

        **Cancellation**: if the caller leaves, the message is not answered.
        """
        event = Signal()
        self._plan(kind, _ProbeAnswer(value=value, until=event))
        return event

    def fail_start(self, *errors: Exception) -> None:
        """Let the next starts fail with these errors."""
        self._start_failures.extend(errors)

    async def wait_for(self, kind: type[M], /, *, number: int = 1, **fields: object) -> M:
        """Return the message of a class with these field values; wait until it is handled.

        Messages handled before the call count too.

        Args:
            kind: the class of the message.
            number: which of the messages, from 1.
            fields: names of attributes and their values.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            news = self._news.next
            found = [each for each in self.received if fits(each, kind, fields)]
            if len(found) >= number:
                return found[number - 1]
            await news.wait()

    def _receive(self, message: Message) -> _ProbeAnswer:
        self.received.append(message)
        self._news.wake()
        answers = self._answers.get(type(message))
        if not answers:
            if not isinstance(message, Call):
                return _ProbeAnswer()
            kind = type(message).__name__
            return _ProbeAnswer(
                error=LookupError(f"probe: no answer for {kind}; call reply({kind}, …) or fail(…) before")
            )
        # A value also answers later messages, as a server would. An error or a wait is for one message.
        answer = answers[0]
        if len(answers) > 1 or answer.error is not None or answer.until is not None:
            answers.popleft()
        self._given[type(message)] = answer
        return answer


@frozen(kw_only=True)
class _ProbeAnswer:
    value: object = None
    error: Exception | None = None
    crash: bool = False
    until: anyio.Event | None = None


class _ProbeActor(Actor):
    def __init__(self, probe: Probe, max_in_flight: int) -> None:
        self.max_in_flight = max_in_flight
        self._probe = probe
        self._fatal: Exception | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._probe.starts += 1
        if self._probe._start_failures:
            raise self._probe._start_failures.popleft()
        yield

    async def handle(self, message: Message) -> Any:
        answer = self._probe._receive(message)
        if answer.until is not None:
            await answer.until.wait()
        if answer.error is not None:
            if answer.crash:
                self._fatal = answer.error
            raise answer.error
        return answer.value

    def is_fatal(self, exc: Exception) -> bool:
        return exc is self._fatal


# --- Repeat a run of a Trio program by a seed -------------------------------------------------------------------------

# Trio runs the tasks of one tick in random order, and only two private names of its scheduler make the order
# reproducible; Trio's own tests and hypothesis use both. Other differences between runs are removed, too: time (a mock
# clock), the jitter of back-offs (`random`), and garbage collections, which run finalizers.


def run_seeded(
    async_fn: Callable[[*Ts], Awaitable[T]], *args: *Ts, seed: int, instruments: Sequence[trio.abc.Instrument] = ()
) -> T:
    """Run ``async_fn(*args)`` like `trio.run`, in the order and with the random numbers of a seed.

    The clock is a mock clock that starts at 0 and jumps whenever all tasks are blocked, so sleeps and timeouts take no
    time. The clock does not move while a task works, so a group of servers does long work without yielding.

    The same seed runs the same steps in the same order, unless the program has another source of chance, such as
    threads, foreign processes and sockets, or the iteration over a set of str.

    Args:
        async_fn: the program.
        args: positional arguments for `async_fn`.
        seed: any number. `random` is seeded too, and restored at the end.
        instruments: as for `trio.run`.

    Raises:
        BaseException: from `async_fn`.
        RuntimeError: the scheduler of this version of Trio cannot be seeded.
    """
    scheduler: Any = trio._core._run
    if not (hasattr(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING") and hasattr(scheduler, "_r")):
        raise RuntimeError(f"run_seeded(): trio {trio.__version__} cannot be seeded; install trio 0.35")
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate(), random.getstate()
    collects = gc.isenabled()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    random.seed(seed)
    gc.disable()
    try:
        return trio.run(async_fn, *args, clock=MockClock(autojump_threshold=0), instruments=instruments)
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before[0]
        scheduler._r.setstate(before[1])
        random.setstate(before[2])
        if collects:
            gc.enable()


# --- Match what a recorder or a probe has noted -----------------------------------------------------------------------


def fits(note: object, kind: type[T], fields: Mapping[str, object]) -> TypeGuard[T]:
    """Return True for an object of a class whose attributes have these values, or raise AttributeError."""
    return isinstance(note, kind) and all(getattr(note, name) == value for name, value in fields.items())
