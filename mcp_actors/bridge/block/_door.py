"""The ``async with`` that an asyncio program enters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ..._misuse import Block, check_flavor
from .._bridge import Bridge
from ._hosts import Host, TrioRun, trio_run
from ._proxy import BlockProxy

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)


class Door(Block[V_co], Generic[T, V_co]):
    """Starts a Trio run, opens something in it around a block, and ends both with the block.

    One task may enter the block and another leave it. The Trio run ends before ``__aexit__`` (or an ``__aenter__`` that
    fails) returns. A cancellation does not shorten this wait; it is raised after it. Only a `GeneratorExit` is raised
    at once, and the Trio run ends in the background.

    Args:
        name: the function that returns this: ``"open_servers"``.
        on_trio: the package that has this function for programs on Trio.
        open_: returns the context manager that opens the thing on Trio's side. It is called on the event loop.
        view: makes the view of the thing that the block gets.
        host: where Trio runs.
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

        check_flavor(
            f"mcp_actors.bridge.{self._door}()", "asyncio", f"on Trio, use `from {self._on_trio} import {self._door}`"
        )
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
            # The thing may have opened and failed at once, before this task ran again: then `on_failing` has cancelled
            # a block that never began, and the failure is raised in place of that cancellation.
            if self._is_ours(exc):
                self._raise(error)
            raise
        if not self._opened.done():
            error, _ = await self._wait_ended()
            self._raise(error)
        return self._view(self._bridge, self._opened.result())

    def _start(self) -> None:
        """Start the Trio run, which opens the thing."""
        import asyncio

        self._task = _current_task()
        self._cancels = self._task.cancelling()
        loop = asyncio.get_running_loop()
        self._opened, self._ended = loop.create_future(), loop.create_future()
        self._bridge = bridge = Bridge(loop)
        self._block = BlockProxy(bridge, self._open(bridge), self)
        self._run = trio_run(self._host, bridge, self._block, self.on_ended)
        self._run.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._bridge.is_copy:
            return False  # the process that this one was forked from leaves the block
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
            self._bridge.failure = None  # the program's own exception, whose frames hold the opened thing
        # asyncio delivers a cancellation once. Behind an exception that the program handles, it would be lost, and the
        # program would go on. So it comes first, except before what ends the program or cancels this task anyway.
        if interruption is not None and not self._is_ours(interruption) and isinstance(error, Exception | None):
            raise interruption from error
        if error is not None and error is not exc:
            self._raise(error)
        return False

    def _abandon(self) -> None:
        """End the Trio run without waiting, because a dropped task or generator can await nothing."""
        # The task that has entered the block may be running other code by the time the run ends: it must not be
        # cancelled as if it were still in the block.
        self._leaving = self._abandoned = True
        self._run.abandon()

    def _is_ours(self, exc: BaseException | None) -> bool:
        """Return True if `on_failing` has cancelled the block, and no other code has cancelled its task."""
        import asyncio

        task = _current_task()
        if not self._cancelled_block or task is not self._task:
            return False
        # asyncio counts the cancellations of a task. Ours is taken back, exactly once, or else an `asyncio.timeout` or
        # a task group around the block would miscount. A count above that at the start was requested by other code.
        if not self._uncancelled:
            self._uncancelled = True
            task.uncancel()
        return isinstance(exc, asyncio.CancelledError) and task.cancelling() <= self._cancels

    async def _wait_ended(self) -> tuple[BaseException | None, asyncio.CancelledError | None]:
        """Wait until the Trio run and all callbacks have ended; return its exception, and a cancellation meanwhile."""
        import asyncio

        self._leaving = True
        interruption = None
        # asyncio has no shield, so a cancellation is kept for later and the wait goes on: to leave now would leave
        # server processes behind. The wait is bounded, because stopping is (`stop_timeout`, `shutdown`).
        while not self._ended.done() or self._bridge.callbacks:
            try:
                await asyncio.wait([self._ended] if not self._ended.done() else self._bridge.callbacks)
            except asyncio.CancelledError as exc:
                interruption = exc
        self._run.finish()
        ended = self._ended
        del self._ended  # it would keep the exception, and with that the frames of the program
        return ended.result(), interruption

    @staticmethod
    def _raise(error: BaseException | None) -> NoReturn:
        assert error is not None, "without an error the block would have begun"
        try:
            raise error from error.__cause__
        finally:
            del error  # whose traceback refers to this frame

    # --- steps that Trio's side posts -------------------------------------------------------------------------------

    def on_opened(self, thing: T) -> None:
        """Let ``__aenter__`` return."""
        self._opened.set_result(thing)

    def on_failing(self) -> None:
        """Cancel the block, unless it has not begun or is being left."""
        if self._opened.done() and not self._leaving and not self._cancelled_block:
            self._cancelled_block = self._task.cancel("what this block uses has failed")

    def on_ended(self, error: BaseException | None) -> None:
        """Fail the waiting requests and cancel the callbacks, because the Trio run has ended."""
        self.on_failing()  # in case Trio itself has failed while the block runs
        self._bridge.end(error)
        for task in self._bridge.callbacks:
            task.cancel("the Trio run has ended")
        self._ended.set_result(error)
        if self._abandoned:
            self._run.finish()  # nothing waits for the end, and the exit handler would keep all of it alive


def _current_task() -> asyncio.Task[Any]:
    import asyncio

    task = asyncio.current_task()
    assert task is not None  # `check_flavor` has found one
    return task
