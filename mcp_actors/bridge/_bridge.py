"""Carry requests, answers and streams between an event loop and Trio.

The two sides run in two threads, or share a thread. Either side may end first, and a caller may be cancelled at any
moment. Still each waiting caller gets exactly one answer. If the reader of a stream is cancelled, no item is lost.

`Bridge.to_trio` and `Bridge.to_loop` schedule functions on the other side::

    event loop                                    Trio
      to_trio(request.begin)  ────────────────>   sends a message, or starts a task in Bridge.nursery
      request.future  <────────────────────────   to_loop(request.succeed), or request.fail
      cancelled: to_trio(request.cancel)  ────>   withdraws the message or cancels the task; a late answer is dropped

Owns: requests from the event loop; tasks of streams; eventfds that wake threads; a Trio task that reads an eventfd.
Writes: answers to callers; functions for the other side; tasks in `Bridge.nursery`; the log.
Calls: kernel.
"""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import outcome
import trio
from attrs import frozen

from .._collapse import caused_by, is_exit
from .._errors import ServerUnavailable
from .._foreign import Log
from .._patched import refuse_patched
from .._pickling import Handle
from .._text import problem_of
from ..kernel import act_for_caller

if TYPE_CHECKING:
    import asyncio

    from ..kernel import PendingCall
    from ..servers import PendingRequest


logger = Log("mcp_actors.bridge")

T = TypeVar("T")


class Asker(Protocol):
    """The subject of a request's errors."""

    __slots__ = ()

    @property
    @abstractmethod
    def _who(self) -> str:
        """For example ``"server 'github'"``."""

    @abstractmethod
    def _ended_error(self, why: str | None) -> Exception:
        """Return a new error for a request that fails because Trio's side has ended.

        `why` is None if the block has exited.
        """


class Bridge:
    """One Trio run and one event loop.

    Attributes:
        nursery: the tasks of requests. Outlives the actors and servers of a block, so they can answer while they stop.
        end_start: lets the block begin soon, because the program is asked to stop. Called on Trio's side.
        to_trio: schedules a function on Trio's side, outside any task.
        to_loop: schedules a function on the event loop's side.
        callbacks: the tasks of callbacks. Event loop's side only.
        serving: True while Trio's side takes requests. Written there only.
        ended: True once Trio's side has ended. Written on the event loop's side only.
        why: the failure in words, if Trio's side has ended without its block.
        adapted: server → its configuration, and the copy for Trio's side. Event loop's side only.
    """

    nursery: trio.Nursery
    to_trio: Callable[[Step], object]
    to_loop: Callable[[Step], object]

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        self.loop: Final = loop
        self.callbacks: Final[set[asyncio.Task[Any]]] = set()
        self.serving: bool = False
        self.ended: bool = False
        self.failure: BaseException | None = None
        self.end_start: Step = lambda: None
        self.why: str | None = None
        self.adapted: Final[dict[str, tuple[object, object]]] = {}
        self._running_loop = asyncio.get_running_loop
        self._process = os.getpid()
        self._thread = threading.current_thread().name
        self._waiting: set[_BridgeRequest[Any]] = set()

    @property
    def is_copy(self) -> bool:
        """True in a forked process, without the tasks and processes behind the bridge."""
        return os.getpid() != self._process

    async def call(self, asker: Asker, fn: Callable[[], Awaitable[T]]) -> T:
        """Run an async function on Trio's side, in the context of the calling task, and return its result.

        **Cancellation**: the caller leaves at once, and the function is cancelled.

        Raises:
            Exception: raised by the function; or the error of `asker`, after the end of Trio's side.
        """
        return await self._wait_for(_TaskRequest(self, asker, fn))

    async def send(self, asker: Asker, fn: Callable[[], PendingCall[T]]) -> T:
        """Like `call`, for a function that sends a message: in half the time, without a task on Trio's side."""
        return await self._wait_for(_MessageRequest(self, asker, fn))

    async def ask(self, asker: Asker, fn: Callable[[], PendingRequest[T]]) -> T:
        """Like `call`, for a function that prepares a request to a server: a task on Trio's side only if it fails."""
        return await self._wait_for(_ServerRequest(self, asker, fn))

    async def _wait_for(self, request: _BridgeRequest[T]) -> T:
        self.check_loop(request.asker)
        try:
            self._waiting.add(request)
            self._post(request)
            return await request.future
        finally:
            self._waiting.discard(request)
            if not request.answered:
                request.withdraw()
            else:
                del request.future  # the exception may refer to frames with the request
            del request

    def _post(self, request: _BridgeRequest[Any]) -> None:
        try:
            if self.ended:
                raise RuntimeError
            self.to_trio(request.begin)
        except RuntimeError:
            request.fail(request.ended_error())

    def check_loop(self, asker: Asker) -> None:
        """Raise an error unless called on the bridge's event loop, in its process, in an unpatched program."""
        if self.is_copy:
            problem = "cannot be used in a forked process, because its connections belong to the parent"
            raise RuntimeError(f"{asker._who}: {problem}; open it again in this process")
        refuse_patched(asker._who)
        try:
            running = self._running_loop()
        except RuntimeError:
            raise RuntimeError(
                f"{asker._who}: belongs to an asyncio event loop and none is running here; from a thread use "
                "asyncio.run_coroutine_threadsafe(..., loop), on Trio use mcp_actors instead of mcp_actors.bridge"
            ) from None
        if running is not self.loop and self.loop.is_closed():
            problem = "its event loop is closed, because the asyncio.run() that opened it has ended"
            raise RuntimeError(f"{asker._who}: {problem}; open and use it within one asyncio.run()")
        if running is not self.loop:
            problem = f"belongs to another event loop, that of thread {self._thread!r}"
            remedy = "call it with asyncio.run_coroutine_threadsafe(..., that_loop), or open it on this loop too"
            raise RuntimeError(f"{asker._who}: {problem}; {remedy}")

    def end_alone(self, failure: BaseException) -> None:
        """Note and log why Trio's side ends without its block, which may never exit and raise the failure."""
        self.why = problem_of((failure.__cause__ or failure) if is_exit(failure) else failure)
        if not is_exit(failure):
            logger.warning("the block was stopped although it has not exited: %s", self.why)

    def end(self, failure: BaseException | None) -> None:
        """Fail all waiting requests. Called on the event loop's side, once the Trio run has ended."""
        self.ended = True
        self.failure = failure
        for request in tuple(self._waiting):
            if not request.answered:
                request.fail(request.ended_error())

    def abandon(self) -> None:
        """Withdraw all waiting requests. After the end of an event loop on trio-asyncio, no caller can."""
        self.serving = False
        for request in tuple(self._waiting):
            request.cancel()


class _BridgeRequest(ABC, Generic[T]):
    """One request, made in the caller's task and answered once.

    Attributes:
        answered: True once `succeed` or `fail` was called. Event loop's side only.
    """

    __slots__ = ("_begun", "_bridge", "_context", "_fn", "_pending", "_scope", "answered", "asker", "future")

    def __init__(self, bridge: Bridge, asker: Asker, fn: Callable[[], Any]) -> None:
        self._bridge = bridge
        self._fn = fn
        self._context = contextvars.copy_context()  # posting a function does not carry the context along
        self.asker: Asker = asker
        self.future: asyncio.Future[T] = bridge.loop.create_future()
        self.answered: bool = False
        self._begun = False
        self._scope: trio.CancelScope | None = None
        self._pending: Any = None

    def ended_error(self) -> Exception:
        """Return the asker's error with its cause; outcome ``unknown`` once the request has begun."""
        error = self.asker._ended_error(self._bridge.why)
        if self._begun and isinstance(error, ServerUnavailable):
            error.outcome = "unknown"
            error.add_note("the request may have taken effect; send it again only if a second time does no harm")
        return caused_by(error, self._bridge.failure)

    # --- on the event loop's side -----------------------------------------------------------------------------------

    def succeed(self, value: T) -> None:
        self.answered = True
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        self.answered = True
        if not self.future.done():
            self.future.set_exception(error)

    def withdraw(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self.future.cancel()
        with suppress(RuntimeError):  # Trio's side has ended, and the request with it
            self._bridge.to_trio(self.cancel)

    # --- on Trio's side ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the request. Exactly one answer follows."""
        try:
            # Read `serving` on its own side, in one step with the start: a request posted just before the end enters
            # the open nursery or fails here. `Bridge.ended` is set later, on the other side: in the gap, a request
            # would meet a closed nursery, and its caller the RuntimeError of Trio.
            if not self._bridge.serving:
                raise self.ended_error()
            self._begun = True
            self._context.run(self._begin)
        except Exception as exc:
            self._answer(partial(self.fail, exc))

    @abstractmethod
    def _begin(self) -> None:
        """Start in the caller's context. An exception is the answer."""

    def cancel(self) -> None:
        """Stop, because the caller has left."""
        if self._scope is not None:
            self._scope.cancel("its caller on the event loop has left")
        if self._pending is not None:
            self._pending.withdraw()
            self._pending = None

    def _answer(self, step: Step) -> None:
        with suppress(RuntimeError):  # the event loop is closed, and its callers are gone
            self._bridge.to_loop(step)


class _TaskRequest(_BridgeRequest[T]):
    __slots__ = ()

    def _begin(self) -> None:
        self._start(self._fn)

    def _start(self, fn: Callable[[], Awaitable[T]]) -> None:
        self._scope = trio.CancelScope()
        self._bridge.nursery.start_soon(self._serve, fn, self._scope, name="a request from asyncio")

    async def _serve(self, fn: Callable[[], Awaitable[T]], scope: trio.CancelScope) -> None:
        act_for_caller()
        with scope:
            try:
                self._answer(partial(self.succeed, await fn()))
            except Exception as exc:
                self._answer(partial(self.fail, exc))
            except BaseException:
                # The caller has left, and drops this answer. Or the nursery ends: on trio-asyncio nothing else would
                # answer, and the caller would wait forever; on other hosts `Bridge.end` answers later.
                self._answer(partial(self.fail, self.ended_error()))
                raise


class _MessageRequest(_BridgeRequest[T]):
    __slots__ = ()

    def _begin(self) -> None:
        self._pending = call = self._fn()
        call.on_answer(self._on_answer)

    def _on_answer(self, answer: outcome.Value[T] | outcome.Error) -> None:
        self._pending = None  # the call refers to this request
        if isinstance(answer, outcome.Value):
            self._answer(partial(self.succeed, answer.value))
        else:
            self._answer(partial(self.fail, answer.error))


class _ServerRequest(_TaskRequest[T]):
    """Sends a prepared request to a server, with a task only after a failure."""

    __slots__ = ()

    def _begin(self) -> None:
        self._pending = pending = self._fn()
        pending.send(self._on_answer)

    def _on_answer(self, answer: outcome.Value[T] | None) -> None:
        assert self._pending is not None
        pending, self._pending = self._pending, None  # `pending` refers to this request
        if answer is None:
            # A context cannot be entered twice, and `_begin` may call this within it.
            self._context.copy().run(self._start, pending.finish)
        else:
            self._answer(partial(self.succeed, answer.value))


# --- Lanes between threads --------------------------------------------------------------------------------------------


HAS_EVENTFD: Final = hasattr(os, "eventfd")
"""True on Linux: a lane has a `_Bell`."""

Step = Callable[[], object]
"""Runs on the other side. Must not raise."""


class ThreadLane:
    """One direction between two threads: runs functions on the other side, in order.

    Waking a thread costs most. So one wake-up serves all functions put in before the first of them runs, and a bell
    wakes a listening thread, at half the cost of `wake`.

    Args:
        wake: schedules a function on the other side; may raise after its end.
    """

    __slots__ = ("_bell", "_steps", "_wake", "_woken")

    def __init__(self, wake: Callable[[Step], object]) -> None:
        self._wake = wake
        self._steps: deque[Step] = deque()
        self._woken = False
        self._bell: _Bell | None = None
        if HAS_EVENTFD:
            with suppress(OSError):  # in a sandbox, or with too many open files, `wake` does as well
                self._bell = _Bell()

    def put(self, step: Step) -> None:
        """Schedule a function on the other side.

        Raises:
            RuntimeError: the other side has ended. The function does not run, or ran just before the end.
        """
        # Both sides share the deque and the flag without a lock. Here the step is appended before the flag is read, and
        # `run` lowers the flag before it counts the steps. So the run under way counts the step, or the other side is
        # woken again. In the opposite order a step could stay in the deque with nothing to wake the other side.
        self._steps.append(step)
        if not self._woken:
            try:  # a Ctrl-C must not leave the flag raised, or no later step would wake the other side
                self._woken = True
                if self._bell is None or not self._bell.ring():
                    self._wake(self.run)
            except BaseException:
                self._woken = False
                raise

    def run(self) -> None:
        """Run the waiting functions. Called on the other side."""
        self._woken = False  # before the steps are counted, see `put`
        # Counted once, so a busy sender cannot keep this loop from ending.
        for _ in range(len(self._steps)):
            self._steps.popleft()()

    def listen_on_trio(self) -> None:
        if self._bell is not None:
            trio.lowlevel.spawn_system_task(self._bell.listen, self.run, name="mcp_actors: bridge")

    def listen_on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._bell is not None:
            self._bell.listen_on(loop, self.run)

    def close(self) -> None:
        """Stop listening. Called in the event loop's thread, after the Trio run."""
        if self._bell is not None:
            self._bell.close()


class _Bell:
    """Wakes a listening thread, with one system call on each side.

    Other ways (`TrioToken.run_sync_soon`, ``call_soon_threadsafe``) take a lock and fill a socket that has to be
    drained.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._heard = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # A dropped block is never left, so nothing else closes its lanes.
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._finalizer.atexit = False  # Trio's thread may listen still

    def ring(self) -> bool:
        """Wake the other side. Return False without a listener."""
        if not self._heard or (self._loop is not None and self._loop.is_closed()):
            return False
        os.eventfd_write(self._fd, 1)
        return True

    async def listen(self, run: Step) -> None:
        self._heard = True
        try:
            while True:
                await trio.lowlevel.wait_readable(self._fd)
                os.eventfd_read(self._fd)
                run()
        finally:
            # Lower the flag, then run the steps: a sender that still saw the flag had put its step in before, and only
            # this `run` finds the step. In the opposite order the request would never be answered.
            self._heard = False
            run()

    def listen_on(self, loop: asyncio.AbstractEventLoop, run: Step) -> None:
        def hear() -> None:
            os.eventfd_read(self._fd)
            run()

        with suppress(NotImplementedError):  # by an event loop without `add_reader`
            loop.add_reader(self._fd, hear)
            self._loop, self._heard = loop, True

    def close(self) -> None:
        self._heard = False
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
        self._finalizer()


def run_now(step: Step) -> None:
    """Take the place of a lane where both sides share a thread."""
    step()


# --- Streams ----------------------------------------------------------------------------------------------------------


class AsyncioStream(Handle, Generic[T]):
    """A stream as an async iterator on an asyncio event loop.

    The stream ends with the block that opened it, or with its group or supervisor. Each item goes to one reader.
    """

    def __init__(self, bridge: Bridge, opener: Asker, stream: AsyncIterator[T]) -> None:
        self._bridge = bridge
        self._asker = _StreamReader(opener)
        self._stream = stream
        self._next: asyncio.Task[T] | None = None

    def __repr__(self) -> str:
        return f"<AsyncioStream of {self._stream!r}>"

    def __aiter__(self) -> AsyncioStream[T]:
        return self

    async def __anext__(self) -> T:
        """Return the next item.

        **Cancellation**: no item is lost, so ``asyncio.wait_for(anext(stream), seconds)`` is safe.
        """
        import asyncio

        # Trio's side may hand over an item just when this task is cancelled, and cannot take the item back: it would
        # be lost. So a separate task reads, which the cancellation does not reach, and the next call finds the item.
        self._bridge.check_loop(self._asker)
        while True:
            if self._next is None:
                self._next = self._bridge.loop.create_task(self._read())
                self._next.add_done_callback(_retrieve_exception)
            read = self._next
            if not read.done():
                await asyncio.wait([read])
            if read is self._next:  # no other reader has taken the item
                self._next = None
                return read.result()

    @property
    def missed(self) -> int:
        """How many items were dropped because the reader was too slow."""
        missed: int = getattr(self._stream, "missed", 0)
        return missed

    async def _read(self) -> T:
        return await self._bridge.call(self._asker, self._stream.__anext__)

    def _close(self) -> None:
        if self._next is not None:
            self._next.cancel("the stream is closed")


@frozen
class _StreamReader:
    """Turns the end of Trio's side into the end of a stream."""

    opener: Asker

    @property
    def _who(self) -> str:
        return self.opener._who

    def _ended_error(self, why: str | None) -> Exception:
        return StopAsyncIteration()


@asynccontextmanager
async def open_stream(
    bridge: Bridge, opener: Asker, open_: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]
) -> AsyncIterator[AsyncioStream[T]]:
    """Open a stream of Trio's side around a block of asyncio code.

    One task on Trio's side enters and leaves the ``async with`` of the stream, as a cancel scope requires.
    """
    import asyncio

    bridge.check_loop(opener)
    opened: asyncio.Future[AsyncIterator[T]] = bridge.loop.create_future()
    leave = trio.Event()

    async def hold() -> None:
        async with open_() as stream:
            bridge.to_loop(partial(_set_result, opened, stream))
            await leave.wait()

    holding = bridge.loop.create_task(bridge.call(opener, hold), name=f"{opener._who}: a stream")
    holding.add_done_callback(_retrieve_exception)
    first: list[asyncio.Future[Any]] = [opened, holding]
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        opened.cancel()
        holding.cancel("the task that opened the stream has left")
        raise
    if opened.done():
        stream = AsyncioStream(bridge, opener, opened.result())
        try:
            yield stream
        finally:
            stream._close()
            with suppress(RuntimeError):  # Trio's side has ended, and the stream with it
                bridge.to_trio(leave.set)
            await asyncio.wait([holding])
        if not bridge.serving:
            return  # the reader has seen the end
    await holding


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from logging an exception as lost."""
    if not task.cancelled():
        task.exception()


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
