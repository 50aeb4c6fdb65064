"""Where Trio runs when a program runs on asyncio: in a thread of its own, or as a guest of the event loop."""

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

from .._lane import Lane, at_once
from ._interrupts import InterruptGuard

if TYPE_CHECKING:
    from .._bridge import Bridge
    from ._proxy import BlockProxy

__all__ = ["Host", "TrioRun", "trio_run"]

Host = Literal["thread", "guest"]
"""Where Trio runs."""

Turn = Callable[[], object]
OnEnded = Callable[[BaseException | None], None]


class TrioRun(ABC):
    """A Trio run beside an event loop.

    Args:
        bridge: what goes between the two; its ways are made here.
        block: what is run.
        on_ended: called on the event loop's side when it has ended, with the exception that left it, if one did.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        self.bridge = bridge
        self.block = block
        self.on_ended = on_ended
        self.failure: BaseException | None = None

    @abstractmethod
    def start(self) -> None:
        """Begin, and do not wait."""

    @abstractmethod
    def abort(self) -> None:
        """Have it end although its block has not begun. Called on the event loop's side."""

    def abandon(self) -> None:
        """Have it end although the event loop does not run any more. Any thread may call it."""
        if not self.bridge.is_copy:
            self._abandon()

    @abstractmethod
    def _abandon(self) -> None:
        """The same, in the process that has started it."""

    def at_exit(self) -> None:
        """The program ends, and it has not ended yet: see to it that it does."""
        self.abandon()

    def say_ended(self) -> None:
        """Tell that it has ended. Called on the event loop's side."""
        failure, self.failure = self.failure, None
        self.on_ended(failure)
        del failure  # whose traceback may refer to this frame

    def finish(self) -> None:
        """It has ended."""
        atexit.unregister(self.at_exit)


class ThreadRun(TrioRun):
    """A Trio run in a thread of its own.

    The thread is a daemon, because for others Python waits before anybody can tell them that the program ends. It is
    waited for all the same: by whoever opened the block, or at exit.
    """

    def __init__(self, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> None:
        super().__init__(bridge, block, on_ended)
        self._token: trio.lowlevel.TrioToken | None = None
        run = partial(contextvars.copy_context().run, self._run)  # what it runs finds the context of who opens it
        self._thread = threading.Thread(target=run, name="mcp_actors: Trio", daemon=True)

    def start(self) -> None:
        self.bridge.to_loop = Lane(self.bridge.loop.call_soon_threadsafe).put
        self._thread.start()
        atexit.register(self.at_exit)

    def abort(self) -> None:
        self.block.unwanted = True  # before the token is looked at: whoever has none yet will see this
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
        super().finish()

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as exc:
            self.failure = exc  # Trio itself has failed
        with suppress(RuntimeError):  # the event loop is closed
            self.bridge.to_loop(self.say_ended)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.bridge.to_trio = Lane(self._token.run_sync_soon).put
        self.failure = await self.block.run()


class GuestRun(TrioRun):
    """A Trio run in the thread of an event loop, which gives it its turns.

    If the event loop ends first, whoever notices that gives it the turns that it still needs.
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
                "host='guest': another Trio run is a guest of this thread already, and there is room for one; "
                "use host='thread', or open everything in one block"
            )
        self.bridge.to_loop = self.bridge.to_trio = at_once
        self._interrupts.install()
        loop = self.bridge.loop
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=partial(self._schedule, loop.call_soon_threadsafe),
            run_sync_soon_not_threadsafe=partial(self._schedule, loop.call_soon),
            done_callback=self._done,
            # Or else Trio would take from asyncio what it needs to hear of signals.
            host_uses_signal_set_wakeup_fd=True,
        )
        atexit.register(self.at_exit)

    def abort(self) -> None:
        self.block.abort()

    def _abandon(self) -> None:
        if threading.get_ident() != self._thread:
            return  # only its own thread can give it turns, at the latest when the program ends
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
            return  # what the event loop left behind when it stopped was taken since
        try:
            self._interrupts.take(self._turns.popleft())
        except BaseException as exc:
            # Trio itself has failed, or was interrupted: it gets no turn any more, and would never say that it is done.
            self._done(outcome.Error(exc))
            if not isinstance(exc, Exception):
                raise
        self._interrupts.catch_up()

    def _take_all_turns(self) -> None:
        while not self._ended:
            self._turn_due.wait()
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
            self.say_ended()

    async def _main(self) -> None:
        self.failure = await self.block.run()


def trio_run(host: Host, bridge: Bridge, block: BlockProxy[Any], on_ended: OnEnded) -> TrioRun:
    """A Trio run of the kind that is asked for.

    Raises:
        ValueError: there is no such kind.
    """
    match host:
        case "thread":
            return ThreadRun(bridge, block, on_ended)
        case "guest":
            return GuestRun(bridge, block, on_ended)
        case _:
            raise ValueError(f"host={host!r}: Trio runs in a 'thread' of its own, or as a 'guest' of the event loop")
