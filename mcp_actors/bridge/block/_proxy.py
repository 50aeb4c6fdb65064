"""Hold something open on Trio's side while an asyncio block runs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from ..._collapse import collapse

if TYPE_CHECKING:
    from .._bridge import Bridge

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class BlockOwner(Protocol[T_contra]):
    """The event loop's side of the block. Both methods are called there."""

    def on_opened(self, thing: T_contra) -> None:
        """Start the block."""

    def on_failing(self) -> None:
        """Cancel the block, because the opened thing has failed. The proxy waits for the end of the block."""


class BlockProxy(Generic[T]):
    """Represents an asyncio block in the Trio run that the block has opened something in.

    The main task of the Trio run enters the ``async with`` of that thing, and inside it behaves as the block does: it
    raises the exceptions of the block, and passes cancellations on to the block. So the same code as in a Trio program
    decides which exception leaves the block, with the same result.

    Args:
        bridge: the bridge between the two sides; its nursery encloses everything.
        opening: opens the thing; not entered yet.
        owner: runs the block.

    Attributes:
        unwanted: set to True, by any thread, to open nothing; it is read once, before the opening.
    """

    def __init__(self, bridge: Bridge, opening: AbstractAsyncContextManager[T], owner: BlockOwner[T]) -> None:
        self._bridge = bridge
        self._opening = opening
        self._owner = owner
        self._scope = trio.CancelScope()
        self._left = trio.Event()
        self._from_block: BaseException | None = None
        self.unwanted = False

    # --- functions to be posted -------------------------------------------------------------------------------------

    def leave(self, exc: BaseException | None) -> None:
        """End, because the block has ended; with its exception, if it raised one."""
        if not self._left.is_set():
            self._from_block = exc
            self._left.set()

    def abort(self) -> None:
        """Cancel the opening or close the thing, because the block never began or its event loop has ended."""
        self._scope.cancel("the block has gone")
        self.leave(None)

    # --- the main task ----------------------------------------------------------------------------------------------

    async def run(self) -> BaseException | None:
        """Open the thing, wait for the block, close it; return the exception that leaves the ``async with``, if any.

        It is returned and not raised, because Trio would keep it, and with it the frames of the program.
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
                # In this order and with no checkpoint between: a request that is posted from now on is answered by its
                # `begin`, and one that is in the nursery already is answered when it is cancelled. So none is lost.
                self._bridge.serving = False
                self._bridge.nursery.cancel_scope.cancel("the block has ended")
        except BaseExceptionGroup as group:
            failure = collapse(group)  # a KeyboardInterrupt that Trio was given has hit a request
        try:
            return failure
        finally:
            del failure  # whose traceback refers to this frame

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
            # Cancelled, because the opened thing has failed, or a KeyboardInterrupt that Trio was given. The block must
            # end before the thing closes, as in a Trio program. It runs on the event loop, out of reach of this
            # cancellation: its owner cancels it there, and the shield waits for that. Without the shield the thing
            # would close under a block that still uses it. If the loop is closed, `abort` has set the event already.
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
            del exc  # whose traceback refers to this frame
