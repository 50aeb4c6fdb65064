"""Run Trio next to an event loop: threaded, or as a guest."""

from __future__ import annotations

import atexit
import contextvars
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import outcome
import trio

from .._lane import Lane, run_now
from ._interrupts import InterruptGuard

if TYPE_CHECKING:
    from .._bridge import Bridge
    from ._proxy import BlockProxy

Host = Literal["thread", "guest"]
"""Where Trio runs."""

Turn = Callable[[], object]
OnEnded = Callable[[BaseException | None], None]


class TrioRun(ABC):
    """A Trio run that goes on while an event loop runs.

    Args:
        bridge: the bridge between the two, whose ``to_trio`` and ``to_loop`` are set here.
        block: the main task.
        on_ended: called on the event loop's side when the run has ended, with the exception that left it, if any.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        self.bridge = bridge
        self.block = block
        self.on_ended = on_ended
        self.failure: BaseException | None = None

    @abstractmethod
    def start(self) -> None:
        """Start, without waiting."""

    @abstractmethod
    def abort(self) -> None:
        """End the run before its block has begun. Called on the event loop's side."""

    def abandon(self) -> None:
        """End the run after its event loop has stopped. Any thread may call this."""
        if not self.bridge.is_copy:
            self._abandon()

    @abstractmethod
    def _abandon(self) -> None:
        """End the run, in the process that has started it."""

    def at_exit(self) -> None:
        """End the run, because the program exits."""
        self.abandon()

    def report_end(self) -> None:
        """Call `on_ended`. Called on the event loop's side."""
        failure, self.failure = self.failure, None
        self.on_ended(failure)
        del failure  # whose traceback may refer to this frame

    def finish(self) -> None:
        """Clean up after the end of the run."""
        atexit.unregister(self.at_exit)


class ThreadRun(TrioRun):
    """A Trio run in a thread of its own.

    The thread is a daemon, because Python joins other threads before it runs the exit handlers that end this run. It is
    joined all the same, by the block or by the exit handler.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        super().__init__(bridge, block, on_ended)
        self._token: trio.lowlevel.TrioToken | None = None
        run = partial(contextvars.copy_context().run, self._run)  # actors find the context of the opening task
        self._thread = threading.Thread(target=run, name="mcp_actors: Trio", daemon=True)
        self._lanes: list[Lane] = []

    def start(self) -> None:
        lane = Lane(self.bridge.loop.call_soon_threadsafe)
        lane.listen_on_loop(self.bridge.loop)
        self._lanes.append(lane)
        self.bridge.to_loop = lane.put
        self._thread.start()
        atexit.register(self.at_exit)

    def abort(self) -> None:
        # The thread sets its token first and reads `unwanted` later. So either the token is here and the step is
        # posted, or the thread will find the flag. In the opposite order an abort between the two would be lost, and
        # the block would open although its task has left.
        self.block.unwanted = True
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.block.abort)

    def _abandon(self) -> None:
        self.abort()

    def at_exit(self) -> None:
        super().at_exit()
        self._thread.join()

    def finish(self) -> None:
        self._thread.join()
        for lane in self._lanes:
            lane.close()
        super().finish()

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as exc:
            self.failure = exc  # Trio itself has failed
        with suppress(RuntimeError):  # the event loop is closed
            self.bridge.to_loop(self.report_end)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        lane = Lane(self._token.run_sync_soon)
        lane.listen_on_trio()
        self._lanes.append(lane)
        self.bridge.to_trio = lane.put
        self.failure = await self.block.run()


class GuestRun(TrioRun):
    """A Trio run in the thread of an event loop, as one callback of the loop for each turn.

    If the event loop ends first, the run still needs turns to stop its servers. It gets them from the block when that
    is dropped, or from the exit handler.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        super().__init__(bridge, block, on_ended)
        self._turns: deque[Turn] = deque()
        self._turn_due = threading.Event()
        self._ended = False
        self._interrupts = InterruptGuard()
        self._thread = threading.get_ident()

    def start(self) -> None:
        if trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "host='guest': this thread already has a Trio guest run, and Trio allows only one per thread; "
                "use host='thread', or open everything in one block"
            )
        self.bridge.to_loop = self.bridge.to_trio = run_now
        self._interrupts.install()
        loop = self.bridge.loop
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=partial(self._schedule, loop.call_soon_threadsafe),
            run_sync_soon_not_threadsafe=partial(self._schedule, loop.call_soon),
            done_callback=self._done,
            # Otherwise Trio would replace the wake-up descriptor through which asyncio notices signals.
            host_uses_signal_set_wakeup_fd=True,
        )
        atexit.register(self.at_exit)

    def abort(self) -> None:
        self.block.abort()

    def _abandon(self) -> None:
        if threading.get_ident() != self._thread:
            return  # only its own thread can run its turns, at the latest when the program exits
        self.block.abort()
        if not self.bridge.loop.is_running():
            self._take_all_turns()

    def _schedule(self, call_soon: Callable[[Turn], object], turn: Turn) -> None:
        self._turns.append(turn)
        self._turn_due.set()
        with suppress(RuntimeError):  # the event loop is closed
            call_soon(self._take_turn)

    def _take_turn(self) -> None:
        if not self._turns:
            return  # `_take_all_turns` has run it since, while the event loop was stopped
        try:
            self._interrupts.take(self._turns.popleft())
        except BaseException as exc:
            # Trio itself has failed, or was interrupted in the midst of a turn. It will schedule no further turn, so
            # its done callback would never be called, and the block would wait for ever.
            self._done(outcome.Error(exc))
            if not isinstance(exc, Exception):
                raise
        self._interrupts.catch_up()

    def _take_all_turns(self) -> None:
        while not self._ended:
            self._turn_due.wait()
            # Cleared before the turns are counted, since Trio's I/O thread may schedule one at any moment: its turn is
            # either found by the loop below or sets the event again.
            self._turn_due.clear()
            while self._turns:
                self._take_turn()

    def _done(self, result: outcome.Outcome[None]) -> None:
        self._ended = True
        self._interrupts.uninstall()
        atexit.unregister(self.at_exit)
        if isinstance(result, outcome.Error):
            self.failure = result.error  # Trio itself has failed
        with suppress(RuntimeError):  # the event loop is closed
            self.report_end()

    async def _main(self) -> None:
        self.failure = await self.block.run()


def trio_run(host: Host, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> TrioRun:
    """Return a Trio run on a host, not started yet.

    Raises:
        ValueError: the host is not valid.
    """
    match host:
        case "thread":
            return ThreadRun(bridge, block, on_ended)
        case "guest":
            return GuestRun(bridge, block, on_ended)
        case _:
            raise ValueError(f"host={host!r} is not a valid host; give 'thread' or 'guest'")
