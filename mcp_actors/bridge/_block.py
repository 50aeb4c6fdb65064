"""Run Trio around a block of asyncio code.

The main task of a Trio run opens servers or a supervisor, and closes them when the asyncio block ends. The block may
also end by a cancellation, Ctrl-C or a failure of Trio.

| the block | the Trio run |
|---|---|
| is left | ends before ``__aexit__`` returns |
| is dropped (`GeneratorExit`, or never left) | usually ends before the program |
| is left in a forked process | goes on in the parent |

Owns: the Trio run; its thread; its bridge to asyncio; queues between threads; exit handlers.
Writes: signal handlers of the process. Cancels the block's task and users' callbacks.
Calls: _bridge, _signals.
"""

from __future__ import annotations

import atexit
import contextvars
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, TypeVar

import outcome
import trio

from .._collapse import collapse, is_exit
from .._misuse import Block, check_flavor
from .._text import with_remedy
from ._bridge import Bridge, ThreadLane
from ._signals import InterruptGuard, SignalWakeup, StopHandlers

if TYPE_CHECKING:
    import asyncio

    from ._bridge import Step


# --- Trio runs --------------------------------------------------------------------------------------------------------


Host = Literal["thread", "guest"]
"""Where Trio runs."""

OnEnded = Callable[[BaseException | None], None]


class TrioRun(ABC):
    """A Trio run next to an event loop.

    Args:
        bridge: ``to_trio`` and ``to_loop`` are set here.
        block: has the main task.
        on_ended: called on the event loop's side with the exception that left the run.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        self.bridge = bridge
        self.block = block
        self.on_ended = on_ended
        self.failure: BaseException | None = None
        self.wakeup = SignalWakeup(bridge.loop)
        self.stops = StopHandlers(self._end_start)

    @abstractmethod
    def start(self) -> None:
        """Start, without waiting."""

    @abstractmethod
    def abort(self) -> None:
        """End the run of a block that never began or was dropped."""

    def watch_signals(self) -> None:
        """Wake the event loop at signals, and end a long start at SIGINT and SIGTERM."""
        self.wakeup.install()
        self.stops.install()

    def ignore_signals(self) -> None:
        """Undo `watch_signals`. Any thread may call this, but only the main thread changes handlers."""
        self.stops.uninstall()
        self.wakeup.uninstall()

    def _end_start(self) -> None:
        with suppress(RuntimeError, AttributeError):  # Trio's side has ended by itself, or has not begun
            self.bridge.to_trio(self.bridge.end_start)

    def abandon(self) -> None:
        """End the run of a dropped block. Any thread may call this."""
        if not self.bridge.is_copy:
            self.abort()

    def at_exit(self) -> None:
        self.abandon()

    def report_end(self) -> None:
        failure, self.failure = self.failure, None
        self.on_ended(failure)
        del failure  # the traceback may refer to this frame

    def finish(self) -> None:
        atexit.unregister(self.at_exit)


class ThreadRun(TrioRun):
    """A Trio run in a thread of its own, joined by the block or the exit handler.

    The thread is a daemon: Python joins other threads before it runs the exit handler that ends this run.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        super().__init__(bridge, block, on_ended)
        self._token: trio.lowlevel.TrioToken | None = None
        run = partial(contextvars.copy_context().run, self._run)  # actors find the context of the opening task
        self._thread = threading.Thread(target=run, name="mcp_actors: Trio", daemon=True)
        self._lanes: list[ThreadLane] = []

    def start(self) -> None:
        lane = ThreadLane(self.bridge.loop.call_soon_threadsafe)
        lane.listen_on_loop(self.bridge.loop)
        self._lanes.append(lane)
        self.bridge.to_loop = lane.put
        try:
            self.watch_signals()
            self._thread.start()
        except BaseException:
            self.ignore_signals()
            lane.close()
            raise
        atexit.register(self.at_exit)

    def abort(self) -> None:
        # The flag before the token: the thread sets its token, then reads `unwanted`. So the token is here, or the
        # thread still finds the flag. In the opposite order an abort in between would be lost.
        self.block.unwanted = True
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.block.abort)

    def at_exit(self) -> None:
        super().at_exit()
        self._thread.join()
        self.ignore_signals()

    def finish(self) -> None:
        self._thread.join()
        self.ignore_signals()
        for lane in self._lanes:
            lane.close()
        super().finish()

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as exc:
            self.failure = with_remedy(exc)  # Trio itself has failed
        with suppress(RuntimeError):  # the event loop is closed
            self.bridge.to_loop(self.report_end)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        lane = ThreadLane(self._token.run_sync_soon)
        lane.listen_on_trio()
        self._lanes.append(lane)
        self.bridge.to_trio = lane.put
        self.failure = await self.block.run()


class GuestRun(TrioRun):
    """A Trio run in the thread of an event loop, with a callback of the loop for each turn.

    After the end of the loop, `abandon` takes the last turns, for a dropped block or at the exit.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        super().__init__(bridge, block, on_ended)
        self._turns: deque[Step] = deque()
        self._turn_due = threading.Event()
        self._ended = False
        self._interrupts = InterruptGuard()
        self._thread = threading.get_ident()

    def start(self) -> None:
        if trio.lowlevel.in_trio_run():
            problem = "this thread already has a Trio guest run, and Trio allows only one per thread"
            remedy = "use host='thread', or open everything in one block"
            if "trio_asyncio" in sys.modules:
                problem = "trio-asyncio, which was imported, runs this event loop on Trio"
                remedy = "use host='thread'"
            raise RuntimeError(f"host='guest': {problem}; {remedy}")
        self.bridge.to_loop = self.bridge.to_trio = self._interrupts.step
        self.watch_signals()
        self._interrupts.install()  # last: below another handler, `uninstall` could not remove it
        loop = self.bridge.loop
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=partial(self._schedule, loop.call_soon_threadsafe),
            run_sync_soon_not_threadsafe=partial(self._schedule, loop.call_soon),
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,  # or Trio would replace the descriptor that wakes asyncio
        )
        atexit.register(self.at_exit)

    def abort(self) -> None:
        self.block.abort()

    def abandon(self) -> None:
        if self.bridge.is_copy or threading.get_ident() != self._thread:
            return  # only its own thread can take turns
        self.block.abort()
        if not self.bridge.loop.is_running():
            self._take_all_turns()

    def _schedule(self, call_soon: Callable[[Step], object], turn: Step) -> None:
        self._turns.append(turn)
        self._turn_due.set()
        with suppress(RuntimeError):  # the event loop is closed
            call_soon(self._take_turn)

    def _take_turn(self) -> None:
        if not self._turns:
            return  # `_take_all_turns` has taken the turn
        try:
            self._interrupts.take(self._turns.popleft())
        except BaseException as exc:
            # Trio itself has failed, or was interrupted in a turn, and will never call its done callback.
            self._done(outcome.Error(exc))
            if not isinstance(exc, Exception):
                raise
        self._interrupts.catch_up()

    def _take_all_turns(self) -> None:
        while not self._ended:
            self._turn_due.wait()
            # Clear, then look: a turn that Trio's I/O thread schedules at any moment is found below, or sets the event
            # again. Cleared after the look, the event would be lost, and the exit would hang.
            self._turn_due.clear()
            while self._turns:
                self._take_turn()

    def _done(self, result: outcome.Outcome[None]) -> None:
        self._ended = True
        self._interrupts.uninstall()
        self.ignore_signals()
        atexit.unregister(self.at_exit)
        if isinstance(result, outcome.Error):
            self.failure = result.error  # Trio itself has failed
        with suppress(RuntimeError):  # the event loop is closed
            self.report_end()

    async def _main(self) -> None:
        self.failure = await self.block.run()


def trio_run(host: Host, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> TrioRun:
    if host not in ("thread", "guest"):
        raise ValueError(f"host={host!r} is not a valid host; give 'thread' or 'guest'")
    return (ThreadRun if host == "thread" else GuestRun)(bridge, block, on_ended)


# --- The block on Trio's side -----------------------------------------------------------------------------------------


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class BlockOwner(Protocol[T_contra]):
    """The event loop's side of the block."""

    def on_opened(self, thing: T_contra) -> None:
        """Start the block."""

    def on_failing(self) -> None:
        """Cancel the block, because the opened thing has failed. The proxy waits until the block ends."""


class BlockProxy(Generic[T]):
    """Acts for an asyncio block in the Trio run.

    Within the ``async with`` of the opened thing, the main task raises the exceptions of the block, and passes
    cancellations on to the block.

    Args:
        bridge: gets a nursery around everything.
        opening: not entered yet.

    Attributes:
        alone: set to True, by any thread, before a `leave` that is not the exit of the block.
        unwanted: set to True, by any thread, to open nothing. Read once, before the opening.
    """

    def __init__(self, bridge: Bridge, opening: AbstractAsyncContextManager[T], owner: BlockOwner[T]) -> None:
        self._bridge = bridge
        self._opening = opening
        self._owner = owner
        self._scope = trio.CancelScope()
        self._left = trio.Event()
        self._from_block: BaseException | None = None
        self.alone = self.unwanted = False

    # --- to be posted -----------------------------------------------------------------------------------------------

    def leave(self, exc: BaseException | None) -> None:
        if not self._left.is_set():
            self._from_block = exc
            self._left.set()

    def abort(self) -> None:
        """Cancel the opening, or close the thing: the block never began, or was dropped."""
        self._scope.cancel("the block has gone")
        self.leave(None)

    # --- the main task ----------------------------------------------------------------------------------------------

    async def run(self) -> BaseException | None:
        """Open the thing, wait for the block, close the thing; return the exception that leaves, or None.

        Trio would keep a raised exception, and with it the frames of the program.
        """
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as self._bridge.nursery:
                self._bridge.serving = True
                try:
                    await self._hold()
                except trio.Cancelled:
                    raise
                except BaseException as exc:
                    failure = exc
                    if self.alone:
                        self._bridge.end_alone(exc)
                # Before the nursery closes, with no checkpoint between. From now on a request fails in `begin`; a
                # request in the nursery answers when cancelled. In a closed nursery a request would get the
                # RuntimeError of Trio, and not the error of its asker.
                self._bridge.serving = False
                self._bridge.nursery.cancel_scope.cancel("the block has ended")
        except BaseExceptionGroup as group:
            failure = collapse(group)  # Trio has raised KeyboardInterrupt in a request
        try:
            return failure
        finally:
            del failure  # the traceback refers to this frame

    async def _hold(self) -> None:
        if self.unwanted:
            self.abort()
        with self._scope:
            async with self._opening as thing:
                self._bridge.to_loop(partial(self._owner.on_opened, thing))
                await self._wait_for_block()

    async def _wait_for_block(self) -> None:
        try:
            await self._left.wait()
        except BaseException:
            # Cancelled by a failure of the opened thing, or interrupted by Ctrl-C. The block must end before the thing
            # closes, or its code would use a closed thing. So the owner cancels the block, and the shield waits for its
            # end. If the loop is closed, `abort` has set the event already.
            with suppress(RuntimeError):  # the event loop is closed
                self._bridge.to_loop(self._owner.on_failing)
            with trio.CancelScope(shield=True):
                await self._left.wait()
            if self._from_block is None:
                raise
        exc, self._from_block = self._from_block, None
        try:
            if exc is not None:
                raise exc
        finally:
            del exc  # the traceback refers to this frame


# --- The block on the event loop --------------------------------------------------------------------------------------


V_co = TypeVar("V_co", covariant=True)


class AsyncioBlock(Block[V_co], Generic[T, V_co]):
    """Starts a Trio run, opens something in it around a block, and ends both with the block.

    One task may enter the block and another leave it. As on Trio, the group or supervisor decides which exception
    leaves. The Trio run ends before ``__aexit__`` (or a failing ``__aenter__``) returns; then a cancellation during the
    wait is raised. Only after a `GeneratorExit`, nothing waits.

    Args:
        name: of the function that returns the door: ``"open_servers"``.
        on_trio: the package of the function for programs on Trio.
        open_: called on the event loop.
        view: makes the view for the block.
    """

    _bridge: Bridge
    _block: BlockProxy[T]
    _run: TrioRun
    _task: asyncio.Task[Any]
    _opened: asyncio.Future[T]
    _ended: asyncio.Future[BaseException | None]

    def __init__(
        self,
        name: str,
        on_trio: str,
        open_: Callable[[Bridge], AbstractAsyncContextManager[T]],
        view: Callable[[Bridge, T], V_co],
        host: Host,
    ) -> None:
        super().__init__(name)
        self._on_trio = on_trio
        self._open = open_
        self._view = view
        self._host: Host = host
        self._leaving = False
        self._abandoned = False
        self._cancelled_block = False
        self._uncancelled = False

    # --- the block --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> V_co:
        import asyncio

        remedy = f"on Trio, use `from {self._on_trio} import {self._door}`"
        check_flavor(f"mcp_actors.bridge.{self._door}()", "asyncio", remedy)
        self._enter_once()
        self._start()
        first: list[asyncio.Future[Any]] = [self._opened, self._ended]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        except GeneratorExit:
            self._abandon()
            raise
        except BaseException as exc:
            self._run.abort()
            error, _ = await self._wait_ended()
            # If the thing failed before this task ran again, `on_failing` has cancelled a block that never began.
            if self._is_ours(exc):
                reraise(error)
            raise
        if not self._opened.done():
            error, _ = await self._wait_ended()
            reraise(error)
        self._run.stops.uninstall()
        return self._view(self._bridge, self._opened.result())

    def _start(self) -> None:
        import asyncio

        self._task = _current_task()
        self._cancels = self._task.cancelling()
        loop = asyncio.get_running_loop()
        self._opened, self._ended = loop.create_future(), loop.create_future()
        self._bridge = bridge = Bridge(loop)
        self._block = BlockProxy(bridge, self._open(bridge), self)
        self._run = trio_run(self._host, bridge, self._block, self.on_ended)
        try:
            self._run.start()
        except BaseException as error:
            reraise(with_remedy(error))

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._bridge.is_copy:
            return False  # the parent process leaves the block
        if isinstance(exc, GeneratorExit):
            self._abandon()
            return False
        ours = self._is_ours(exc)
        with suppress(RuntimeError):  # Trio's side has ended by itself
            self._bridge.to_trio(partial(self._block.leave, None if ours else exc))
        error, interruption = await self._wait_ended()
        if exc is not None:
            exc.__traceback__ = traceback  # without the frames of Trio's side
        if error is exc:
            self._bridge.failure = None  # the program's exception, with frames that hold the opened thing
        # asyncio delivers a cancellation once, and it would be lost behind an exception that the program handles. So
        # raise the cancellation, unless the error ends the program or cancels this task anyway.
        if interruption is not None and not self._is_ours(interruption) and isinstance(error, Exception | None):
            raise interruption from error
        if error is not None and error is not exc:
            reraise(error)
        return False

    def _abandon(self) -> None:
        """End the Trio run without waiting: a dropped task or generator cannot await."""
        # Keep `on_failing` from cancelling the task that entered the block, which may run other code.
        self._leaving = self._abandoned = True
        self._run.abandon()

    def _is_ours(self, exc: BaseException | None) -> bool:
        """Return True if `on_failing` has cancelled the block, and no other code has cancelled its task."""
        import asyncio

        task = _current_task()
        if not self._cancelled_block or task is not self._task:
            return False
        # asyncio counts cancellations. Ours is taken back once, or an `asyncio.timeout` around the block would
        # miscount, and not raise its TimeoutError. A higher count than at the start comes from other code.
        if not self._uncancelled:
            self._uncancelled = True
            task.uncancel()
        return isinstance(exc, asyncio.CancelledError) and task.cancelling() <= self._cancels

    async def _wait_ended(self) -> tuple[BaseException | None, asyncio.CancelledError | None]:
        """Wait for the Trio run and all callbacks; return the run's exception, and a cancellation meanwhile."""
        import asyncio

        self._leaving = True
        interruption = None
        # asyncio has no shield, so a cancellation is kept for later: to leave now would leave processes behind. The
        # wait is bounded, because stopping is (`stop_timeout`, `shutdown`).
        while not self._ended.done() or self._bridge.callbacks:
            try:
                await asyncio.wait([self._ended] if not self._ended.done() else self._bridge.callbacks)
            except asyncio.CancelledError as exc:
                interruption = exc
        self._run.finish()
        self._task.remove_done_callback(self._on_task_ended)
        ended = self._ended
        del self._ended  # the exception has the frames of the program
        return ended.result(), interruption

    # --- posted by Trio's side --------------------------------------------------------------------------------------

    def on_opened(self, thing: T) -> None:
        self._opened.set_result(thing)

    def on_failing(self) -> None:
        if self._opened.done() and not self._leaving and not self._cancelled_block:
            self._cancelled_block = self._task.cancel("what this block uses has failed")
            # The task may end, or have ended, without leaving the block: the run would go on forever.
            self._task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, _: asyncio.Task[Any]) -> None:
        if not self._leaving:
            self._block.alone = True
            with suppress(RuntimeError):  # Trio's side has ended by itself
                self._bridge.to_trio(partial(self._block.leave, None))

    def on_ended(self, error: BaseException | None) -> None:
        self.on_failing()  # if Trio itself has failed while the block runs
        self._bridge.end(error)
        for task in self._bridge.callbacks:
            task.cancel("the Trio run has ended")
        self._ended.set_result(error)
        if self._abandoned:
            self._run.finish()  # nothing else does, and the exit handler would keep the run alive
        if error is not None and self._block.alone and is_exit(error):
            self._bridge.loop.call_soon(self._raise_exit, error)

    def _raise_exit(self, error: BaseException) -> None:
        if not self._leaving:  # else the exit of the block raises the error
            self._ended = self._bridge.loop.create_future()  # a later exit of the block must not raise it again
            self._ended.set_result(None)
            raise error  # out of the event loop, as from the program's own handler of the signal


def reraise(error: BaseException | None) -> NoReturn:
    assert error is not None, "without an error the block would have begun"
    try:
        raise error from error.__cause__
    finally:
        del error  # the traceback refers to this frame


def _current_task() -> asyncio.Task[Any]:
    import asyncio

    task = asyncio.current_task()
    assert task is not None  # see `check_flavor`
    return task
