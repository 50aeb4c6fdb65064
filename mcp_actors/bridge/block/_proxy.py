"""Trio's side of a block of asyncio code: what the block is for is open while it runs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from ..._collapse import collapse

if TYPE_CHECKING:
    from .._bridge import Bridge

__all__ = ["BlockOwner", "BlockProxy"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class BlockOwner(Protocol[T_contra]):
    """Who runs the block, on the event loop's side. Both are called there."""

    def on_opened(self, thing: T_contra) -> None:
        """It is open, so the block begins."""

    def on_failing(self) -> None:
        """What is open fails, so the block is to be cancelled. It is waited for."""


class BlockProxy(Generic[T]):
    """Opens something around a block that runs on an event loop.

    The main task of the Trio run enters what is opened and leaves it; in between it stands for the block: it raises
    what the block raises, and passes on a cancellation of the block. So what leaves the block is decided where it is
    decided for blocks of Trio programs, and is the same.

    Args:
        bridge: what goes between the two sides; its nursery encloses everything.
        opening: what opens it, not entered yet.
        owner: who runs the block.

    Attributes:
        unwanted: True if it is not to be opened any more. Any thread may set it; it is looked at once, at first.
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
        """The block has ended, with an exception if there was one."""
        if not self._left.is_set():
            self._from_block = exc
            self._left.set()

    def abort(self) -> None:
        """There is no block, or nothing more will be heard of it: end what has begun."""
        self._scope.cancel("nobody waits for it any more")
        self.leave(None)

    # --- the main task ----------------------------------------------------------------------------------------------

    async def run(self) -> BaseException | None:
        """Open it, stand for the block, close it. Return what leaves the ``async with`` of the block, if anything does.

        It is not raised, because Trio would keep it, and with it the frames of the program.
        """
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as self._bridge.nursery:
                self._bridge.serving = True
                try:
                    await self._stand()
                except trio.Cancelled:
                    raise
                except BaseException as exc:
                    failure = exc
                self._bridge.serving = False
                self._bridge.nursery.cancel_scope.cancel("the block was left")
        except BaseExceptionGroup as group:
            failure = collapse(group)  # a request was hit by a KeyboardInterrupt that Trio was given
        try:
            return failure
        finally:
            del failure  # whose traceback refers to this frame

    async def _stand(self) -> None:
        if self.unwanted:
            self.abort()
        with self._scope:
            async with self._opening as thing:
                self._bridge.to_loop(partial(self._owner.on_opened, thing))
                await self._block()

    async def _block(self) -> None:
        try:
            await self._left.wait()
        except BaseException:
            # Cancelled, because what is open fails; or a KeyboardInterrupt that Trio was given.
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
