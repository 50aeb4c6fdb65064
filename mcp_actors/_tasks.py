"""Run background tasks, jobs that block, and slow callbacks; receive signals.

Owns: items queued for slow callbacks; names of servers still to close; errors of failed tasks; background tasks;
threads of blocking jobs.
Writes: signal handlers of the process; the log.
Calls: _backoff, _collapse, _errors, _foreign, _text.
"""

from __future__ import annotations

import heapq
import logging
import random
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, TypeVarTuple

import trio
from attrs import define, field

from ._backoff import Backoff
from ._collapse import caused_by, collapse
from ._errors import ConfigError, McpActorsError
from ._foreign import Log
from ._text import bad_option, problem_of

if TYPE_CHECKING:
    from collections.abc import Mapping


# --- Background tasks of a block --------------------------------------------------------------------------------------

# A plain nursery would cancel these tasks with the block, although the block's clean-up still needs a task to read
# pipes. It would also wrap the block's exceptions in groups.


Args = TypeVarTuple("Args")


class Background:
    """Starts tasks that are shielded from outside cancellation. The end of their block cancels them.

    Ctrl-C interrupts these tasks only within a user's function; otherwise the main task gets it.
    """

    def __init__(self, nursery: trio.Nursery, on_failure: Callable[[Exception], object]) -> None:
        self._nursery = nursery
        self._on_failure = on_failure
        self._scopes: list[trio.CancelScope] = []
        self._ended = False

    def start_soon(self, fn: Callable[[*Args], Awaitable[None]], *args: *Args, name: str) -> trio.CancelScope | None:
        """Start a task and return its scope; return None if the block has ended.

        An exception of the task cancels the block and is raised there.
        """
        if self._ended:
            return None  # a caller may outlive the block, after a lost connection, and must not fail here
        scope = trio.CancelScope(shield=True)
        self._scopes.append(scope)
        self._nursery.start_soon(self._run, scope, fn, args, name=name)
        return scope

    def cancel(self, reason: str) -> None:
        for scope in self._scopes:
            scope.cancel(reason)

    def end(self, reason: str) -> None:
        """Cancel every task, and start no more."""
        self._ended = True
        self.cancel(reason)

    @trio.lowlevel.enable_ki_protection  # a KeyboardInterrupt here would tear a message or a table in two
    async def _run(self, scope: trio.CancelScope, fn: Callable[[*Args], Awaitable[None]], args: tuple[*Args]) -> None:
        try:
            with scope:
                await fn(*args)
        except Exception as exc:
            self._on_failure(exc)
            raise
        finally:
            self._scopes.remove(scope)


@asynccontextmanager
async def open_background(on_failure: Callable[[Exception], object] = lambda _: None) -> AsyncIterator[Background]:
    """Open a place for background tasks around a block.

    The end of the block cancels the tasks, despite their shields. An exception of the block, or of one task, is raised
    as itself; several are raised as a group.

    Args:
        on_failure: called with the exception of a task before the block is cancelled.
    """
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            background = Background(nursery, on_failure)
            try:
                yield background
            except Exception as exc:
                # Carry the exception past the nursery, which would wrap it in a group, or rebuild a group.
                error = exc
            finally:
                # Before the nursery waits for the tasks: no cancellation from outside would end shielded tasks, and the
                # block would hang.
                background.end("the block they served has ended")
    except BaseExceptionGroup as group:
        if error is not None:
            raise BaseExceptionGroup("the block and a background task failed", [error, *group.exceptions]) from None
        if len(group.exceptions) > 1:
            raise
        error = group.exceptions[0]
    if error is not None:
        # Raised outside the handler, so that the group does not become the context of its own member.
        raise error


# --- Close the servers of a group in reverse configured order ---------------------------------------------------------

# All servers are asked to stop in one step, but Trio runs tasks that wake up in one step in any order. So each server
# that was connected when the block exited waits until all such servers configured later have begun to close.


class ClosingOrder:
    def __init__(self) -> None:
        self._due: list[str] = []
        self._parking = trio.lowlevel.ParkingLot()

    def expect(self, connected: Iterable[str]) -> None:
        """Note that the block of the group has exited.

        Args:
            connected: the names of the connected servers, in configured order. Each must call `begin`, however the
                connection ends, or the rest waits for ever.
        """
        self._due.extend(connected)

    async def wait_turn(self, server: str) -> None:
        """Wait until every server configured later has begun to close.

        **Cancellation**: leaves at once; `begin` is still due.
        """
        while server in self._due and self._due[-1] != server:
            await self._parking.park()

    def begin(self, server: str) -> None:
        """Note that a server begins to close. Does nothing before the group's block has exited."""
        if server in self._due:
            self._due.remove(server)
            self._parking.unpark_all()


# --- Run a step for several actors at the same time -------------------------------------------------------------------


class Named(Protocol):
    """An actor, or a record of an actor."""

    @property
    def name(self) -> str:
        """The name of the actor."""


N = TypeVar("N", bound=Named)


async def fan_out(step: Callable[[N], Awaitable[None]], actors: Iterable[N], purpose: str) -> None:
    """Run a step for each actor, concurrently, in tasks named after the actor and the purpose.

    **Cancellation**: cancels the steps.

    Raises:
        Exception: from a step, after the others were cancelled; an `ExceptionGroup` if several have raised.
    """
    try:
        async with trio.open_nursery() as nursery:
            for actor in actors:
                nursery.start_soon(step, actor, name=f"{actor.name}:{purpose}")
    except BaseExceptionGroup as group:
        raise collapse(group) from None


# --- Queue items for a slow callback, within limits -------------------------------------------------------------------


T = TypeVar("T")

MAX_WAITING: Final = 1000
"""Items that may wait for a slow callback. Beyond, the first in the queue is dropped: the latest matter most."""


class Feed(Generic[T]):
    """Delivers items in order, in the task of `run`.

    Args:
        deliver: delivers an item, and handles exceptions.
        max_size: the most that waiting items may take together, in the unit of `put`. Beyond, the first in the queue is
            dropped; a larger single item is dropped at once.
        on_drop: called for each dropped item.
    """

    def __init__(
        self, deliver: Callable[[T], Awaitable[None]], *, max_size: int, on_drop: Callable[[], None] = lambda: None
    ) -> None:
        self._deliver = deliver
        self._max_size = max_size
        self._on_drop = on_drop
        self._waiting: list[tuple[float, int, int, T]] = []
        self._size = self._arrived = 0
        self._change = trio.Event()
        self._idle = trio.Event()
        self._idle.set()

    def put(self, item: T, size: int, rank: float = 0.0) -> None:
        """Queue an item, without waiting. Items are delivered by rank, the lowest first, then as they arrived."""
        if size > self._max_size:
            self._on_drop()
            return
        self._arrived += 1
        heapq.heappush(self._waiting, (rank, self._arrived, size, item))
        self._size += size
        while len(self._waiting) > MAX_WAITING or self._size > self._max_size:
            self._take()
            self._on_drop()
        self._wake()

    def _wake(self) -> None:
        if self._idle.is_set():
            self._idle = trio.Event()
        self._change.set()

    def _take(self) -> T:
        _, _, size, item = heapq.heappop(self._waiting)
        self._size -= size
        return item

    async def run(self) -> None:
        """Deliver the queued items. **Cancellation**: drops them."""
        while True:
            await self._change.wait()
            self._change = trio.Event()
            # Let all tasks of a burst queue their items, or the first item would overtake lower ranks.
            await trio.lowlevel.checkpoint()
            while self._waiting:
                await self._deliver(self._take())
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until all items are delivered, including items of tasks that are scheduled now."""
        self._wake()
        await self._idle.wait()


# --- Receive the operating system's signals ---------------------------------------------------------------------------


class Signals(Iterable[int]):
    """The signals that a program reacts to. Only the main thread gets signals; a subclass serves other threads.

    Args:
        option: the name of the option, for errors.
        numbers: one signal, or several; an empty value disables the option.

    Attributes:
        end_start: ends the start of a group for another reason than a signal. Set by the group.

    Raises:
        ConfigError: the value is not a receivable signal.
    """

    def __init__(self, option: str, numbers: object) -> None:
        self.option: Final = option
        self.numbers: Final[tuple[int, ...]] = tuple(dict.fromkeys(_numbers(option, numbers)))
        self.end_start: Callable[[], object] = lambda: None

    @classmethod
    def of(cls, **options: object) -> tuple[Signals, ...]:
        """Return the signals of each option, which may be `Signals` already.

        Raises:
            ConfigError: a value is not a receivable signal, or two options share a signal, which only one would
                receive.
        """
        made = tuple(value if isinstance(value, Signals) else cls(option, value) for option, value in options.items())
        for one, other in combinations(made, 2):
            for number in set(one.numbers).intersection(other.numbers):
                raise ConfigError(
                    f"{one.option} and {other.option} both have {name_of(number)}; remove it from one of them",
                    source="open_servers",
                    path=other.option,
                )
        return made

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __bool__(self) -> bool:
        return bool(self.numbers)

    def receive(self) -> AbstractContextManager[AsyncIterator[int]]:
        """Receive the signals during a block, instead of their default action.

        Raises:
            RuntimeError: this is not the main thread.
        """
        self.check_thread()
        return trio.open_signal_receiver(*self.numbers)

    def check_thread(self) -> None:
        """Raise a `RuntimeError` if there are signals and this is not the main thread."""
        if self.numbers and threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"open_servers(): {self.option} needs the main thread, because Python delivers signals there; open the "
                f"servers in the main thread, or remove {self.option} and receive signals yourself"
            )


def name_of(number: int) -> str:
    return signal.Signals(number).name


def _numbers(option: str, value: object) -> Iterator[int]:
    for number in value if isinstance(value, Iterable) else [value]:
        if not isinstance(number, int) or number not in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            problem = "is not a signal that a program can receive; pass one or more, like"
            raise bad_option(option, value, f"{problem} {option}=signal.SIGTERM")
        yield number


# --- Yield to the event loop during CPU-bound loops -------------------------------------------------------------------

# Work is measured on the clock of the run. A mock clock does not move while a task works, so a seed repeats such a run.


STEP_SECONDS: Final = 0.0005
"""Seconds of work between two checkpoints. A request to another server takes several steps of the event loop, and each
may wait that long.
"""


def work_clock() -> Callable[[], float]:
    """Return the clock of this run; `trio.current_time` would look it up at each call."""
    return trio.lowlevel.current_clock().current_time


@define(eq=False)
class TimeSlice:
    """Yields to other tasks after every `STEP_SECONDS` seconds of work.

    Attributes:
        since: the time of the last checkpoint.
    """

    _clock: Callable[[], float] = field(factory=work_clock, init=False)
    since: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.since = self._clock()

    async def checkpoint(self) -> None:
        """Run a checkpoint if the last one is `STEP_SECONDS` seconds ago. Call this after each step of the work."""
        if self._clock() - self.since > STEP_SECONDS:
            await trio.lowlevel.checkpoint()
            self.since = self._clock()


# --- Keep the group's own tasks going after any failure ---------------------------------------------------------------

# A group follows sources, writes states into tables and remembers catalogues in tasks without a caller. An error would
# reach no one, and the program would go on for months with an old configuration. So each task is begun again after any
# failure, and the failure is shown until the task works again.


logger = Log("mcp_actors.servers")

AGAIN: Final = Backoff(first=1.0, initial=2.0, maximum=60.0)
"""Delays after failures in a row: a shortage may end in a second, or last for hours."""


class NoThread(ConfigError):
    """No thread could be started, so the job was not begun."""


async def run_in_thread(job: Callable[[], T], limiter: trio.CapacityLimiter | None = None) -> T:
    """Run a blocking job in a thread.

    **Cancellation**: leaves at once and abandons the thread.

    Raises:
        NoThread: no thread could be started.
        Exception: from the job.
    """
    begun = False

    def run() -> T:
        nonlocal begun
        begun = True
        return job()

    try:
        return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
    except Exception as error:
        if begun:
            raise
        remedy = "raise the limit of threads (ulimit -u) or of memory"
        message = f"no thread could be started ({str(error) or type(error).__name__}); {remedy}"
        raise caused_by(NoThread(message), error) from error


class Upkeep:
    """Runs a group's own tasks again after failures.

    Attributes:
        errors: by key, the error of each task that failed and does not work again yet. Replaced, never changed, because
            several threads may read the mapping.
    """

    def __init__(self) -> None:
        self.errors: Mapping[str, Exception] = MappingProxyType({})

    async def keep(
        self, key: str, what: str, job: Callable[[], Awaitable[None]], *, closing: trio.Event | None = None
    ) -> None:
        """Run a job until it returns; after a failure, note the error and run the job again.

        The job calls `works` after each part of its work. Until then the last failure is an entry in `errors`. The
        first failure is logged at ERROR, further failures at DEBUG.

        **Cancellation**: ends the job.

        Args:
            key: names the job in `errors`.
            what: names the job in messages: ``"/etc/mcp.json: following it"``.
            job: the job.
            closing: once set, a waiting job runs at once, for the last time; its error stays.
        """
        failures, closing = 0, trio.Event() if closing is None else closing
        try:
            while True:
                try:
                    await job()
                    return
                except Exception as error:
                    failures = failures + 1 if key in self.errors else 1
                    self._note(key, what, collapse(error))
                if closing.is_set():
                    return
                with trio.move_on_after(AGAIN.delay(failures, random=random.random)):
                    await closing.wait()
        finally:
            if not closing.is_set():
                self._forget(key)

    def works(self, key: str) -> None:
        if key in self.errors:
            self._forget(key)
            logger.info("%s: this works again", key)

    def _note(self, key: str, what: str, error: BaseException) -> None:
        # The text of a foreign error may have credentials.
        known = isinstance(error, McpActorsError | OSError | MemoryError)
        problem = problem_of(error) if known else f"it raised {type(error).__name__} (see the cause of this error)"
        noted = caused_by(McpActorsError(f"{what} has failed and is tried again: {problem}"), error)
        logger.log(logging.DEBUG if key in self.errors else logging.ERROR, "%s", noted)
        self.errors = MappingProxyType({**self.errors, key: noted})

    def _forget(self, key: str) -> None:
        self.errors = MappingProxyType({other: error for other, error in self.errors.items() if other != key})
