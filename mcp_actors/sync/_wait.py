"""Wait in a thread for an answer from Trio's thread.

Trio's thread puts wake-ups and callbacks into a queue of the waiting thread. No `threading.Lock` is used, because in
the main thread, Python may raise `KeyboardInterrupt` while one is held.

Owns: queues of waiting threads; awaited answers; deadlines of calls; threads of callbacks.
Writes: callbacks' answers to Trio's thread.
Calls: bridge, kernel.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial, wraps
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

import attrs
import outcome
import trio

from .._foreign import answer_of
from .._misuse import check_option, is_seconds
from .._patched import refuse_patched
from .._tasks import run_in_thread
from ..bridge._bridge import Bridge, run_now
from ..bridge._callbacks import adapted_callbacks, adapted_transport, config_from_loop
from ..kernel import Reply

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from ..bridge._bridge import Asker, Step
    from ..config import CallNext, Middleware, ServerConfig, ToolRequest

T = TypeVar("T")


# --- Limits -----------------------------------------------------------------------------------------------------------


class _Limit(NamedTuple):
    deadline: float  # on the monotonic clock
    seconds: float

    def error(self) -> TimeoutError:
        effect = "the call was withdrawn, and if it was sent already it may have taken effect"
        return TimeoutError(f"fail_after({self.seconds:g}): timed out; {effect}")


_NO_LIMIT: Final = _Limit(math.inf, math.inf)
_limit: Final = ContextVar("_limit", default=_NO_LIMIT)


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """Limit how long the calls in a ``with`` block take, like `trio.fail_after`.

    A late call is withdrawn, as by Ctrl-C, and raises a `TimeoutError`; each later call in the block raises the error
    at once. The start of `open_servers` is a call too. Other code in the block is not interrupted. Of several blocks,
    the earliest deadline counts. Threads that the block starts have no limit.

    Args:
        seconds: for all calls in the block together.

    Raises:
        TimeoutError: a call in the block was not answered in time.
        ValueError: `seconds` is not a positive number.
    """
    check_option("fail_after()", "seconds", seconds, "a positive number of seconds", valid=is_seconds(seconds))
    token = _limit.set(min(_Limit(monotonic() + seconds, seconds), _limit.get()))
    try:
        yield
    finally:
        _limit.reset(token)


# --- Answers and threads ----------------------------------------------------------------------------------------------

# Because of `KeyboardInterrupt`:
#
# - Single calls of C (`SimpleQueue.put`, `set.add`) change objects that several threads use. A lock taken in Python, as
#   in `threading.Event`, could stay taken, and Trio's thread would hang.
# - An interrupted call withdraws its request. The withdrawal also wakes Trio's side: the interrupt may have come after
#   the request was queued, but before Trio was woken.
# - An answer is set before its step is queued, and only the answer ends the waiting. So the step may be lost.


class ThreadFuture(Generic[T]):
    """An answer that one thread waits for, as a future for a bridge.

    Args:
        steps: the queue of the waiting thread.
        patience: seconds between two looks at the limit and at signals.
        limit: ends the waiting.
    """

    __slots__ = ("_done", "_error", "_limit", "_patience", "_steps", "_value")

    _value: T

    def __init__(self, steps: SimpleQueue[Step], patience: float, limit: _Limit = _NO_LIMIT) -> None:
        self._steps = steps
        self._patience = patience
        self._limit = limit
        self._error: BaseException | None = None
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, value: T) -> None:
        """Any thread may call this."""
        # The value, the flag, the step, in this order: the thread reads the flag without a lock, and sleeps until a
        # step comes. In another order it could miss the value, or sleep on. (The step itself does nothing.)
        self._value = value
        self._done = True
        self._steps.put(self.done)

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._done = True
        self._steps.put(self.done)

    def cancel(self) -> None:
        """Do nothing, because the thread has left."""

    def __await__(self) -> Generator[None, None, T]:
        yield from ()  # nothing, but it makes this a generator
        return self.wait()

    def wait(self) -> T:
        """Wait for the answer, and meanwhile run the steps of this thread, some of which may raise."""
        # A callback may call servers, and this nested wait also runs callbacks of outer calls.
        # The queue is emptied even after the answer: the steps of fast answers would accumulate.
        while not self._done or not self._steps.empty():
            left = self._patience
            if self._limit is not _NO_LIMIT and (left := min(left, self._limit.deadline - monotonic())) <= 0:
                raise self._limit.error()
            with suppress(Empty):
                self._steps.get(timeout=left)()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._value
        finally:
            del error  # whose traceback refers to this frame


SIGNAL_POLL: Final = 1.0
"""Seconds between two looks at signals: a signal that another thread gets does not wake the main thread to handle
it."""


class _Threads(threading.local):
    """The threads of the program, in the place of an event loop, with attributes for each thread."""

    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.patience = SIGNAL_POLL if is_main else threading.TIMEOUT_MAX
        self.steps: SimpleQueue[Step] = SimpleQueue()

    def create_future(self) -> ThreadFuture[Any]:
        limit = _limit.get()
        if limit is not _NO_LIMIT and limit.deadline <= monotonic():
            raise limit.error()
        return ThreadFuture(self.steps, self.patience, limit)


class ThreadBridge(Bridge):
    """A Trio run, and the threads of a program without an event loop.

    Functions for the program's side run at once, in Trio's thread: they only set answers.
    """

    def __init__(self) -> None:
        self.threads: Final = _Threads()
        super().__init__(cast("Any", self.threads))
        self.to_loop = run_now

    def held(self) -> ThreadBridge:
        """Return an object with the state of this bridge, for the program to hold.

        Trio's side does not hold the object, whose finalizer runs once the program has dropped it.
        """
        held = ThreadBridge.__new__(ThreadBridge)
        held.__dict__ = self.__dict__  # shared, so each sees what the other sets
        return held

    def check_loop(self, asker: Asker) -> None:
        """Raise an error in a forked process, and where waiting would block an event loop."""
        if self.is_copy:
            super().check_loop(asker)
        self.refuse_loops(asker._who)

    def refuse_loops(self, who: str) -> None:
        refuse_patched(who)
        if trio.lowlevel.in_trio_run():
            remedy = (
                "from an observer, send the event to another thread, as with queue.put(event); in a Trio program, use "
                "mcp_actors, or trio.to_thread.run_sync(...)"
            )
            raise RuntimeError(f"{who}: would block Trio, which runs in this thread; {remedy}")
        try:
            self._running_loop()
        except RuntimeError:
            return
        remedy = "use mcp_actors.bridge instead of mcp_actors.sync, or another thread: asyncio.to_thread(...)"
        raise RuntimeError(f"{who}: would block asyncio, which runs in this thread; {remedy}")


def completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits only for a `ThreadBridge`, and return the result.

    The first ``send`` blocks instead of suspending, and completes the coroutine.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("it waits for an event loop")


# --- Callbacks --------------------------------------------------------------------------------------------------------


class _ThreadCallback(Reply[Any]):
    """A call that a task on Trio's side waits for, made in a waiting thread."""

    __slots__ = ("_bridge", "_fn")

    def __init__(self, bridge: Bridge, fn: Callable[[], Any]) -> None:
        super().__init__()
        self._bridge = bridge
        self._fn = fn

    def run(self) -> None:
        """Call the function, unless the task has left: the thread may then wait for another request."""
        if not self.open:
            return
        answer: outcome.Value[Any] | outcome.Error
        try:
            answer = outcome.Value(self._fn())
        except Exception as exc:
            answer = outcome.Error(exc)
        with suppress(RuntimeError):  # Trio's side has ended
            self._bridge.to_trio(partial(self.settle, answer))


Job: TypeAlias = Callable[[], Any]


def _called_by(run: Callable[[Job], Awaitable[Any]], fn: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(fn):
        return fn  # on Trio

    @wraps(fn)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await answer_of(await run(partial(fn, *args, **kwargs)))

    return call


def in_caller(bridge: ThreadBridge, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function for Trio's side that calls `fn` in this thread, while the thread waits."""
    steps = bridge.threads.steps

    def run(job: Job) -> Awaitable[Any]:
        callback = _ThreadCallback(bridge, job)
        steps.put(callback.run)
        return callback.wait()

    return _called_by(run, fn) if callable(fn) else fn  # type: ignore[redundant-expr]  # it is refused later


def in_thread(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function for Trio's side that calls `fn` in a thread. Calls may overlap.

    **Cancellation**: leaves at once and abandons the thread.
    """
    return _called_by(lambda job: run_in_thread(job, trio.CapacityLimiter(1)), fn)


def config_from_thread(bridge: Bridge, config: Any) -> Any:
    """Return a configuration with plain functions in threads. Async functions and objects run on Trio."""
    return config_from_loop(bridge, config, _adapted)


def _adapted(_: Bridge, config: ServerConfig) -> ServerConfig:
    return attrs.evolve(
        config,
        transport=adapted_transport(in_thread, config.transport),
        middleware=tuple(map(_middleware, config.middleware)),
        callbacks=adapted_callbacks(in_thread, config.callbacks),
    )


def _middleware(middleware: Middleware) -> Middleware:
    middleware_in_thread = in_thread(middleware)
    if middleware_in_thread is middleware:
        return middleware

    @wraps(middleware)
    async def call(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        def call_next_from_thread(request: ToolRequest) -> CallToolResult:
            return trio.from_thread.run(call_next, request)

        result: CallToolResult = await middleware_in_thread(request, call_next_from_thread)
        return result

    return call
