"""Streams of Trio's side, read on the event loop's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio
from attrs import frozen

if TYPE_CHECKING:
    import asyncio

    from .._bridge import Asker, Bridge

__all__ = ["AsyncioStream", "open_stream"]

T = TypeVar("T")


class AsyncioStream(Generic[T]):
    """A stream as an async iterator for one reader on an asyncio event loop.

    It ends when the block that opened it does, or with what it tells of. Of several readers, each gets some items.
    """

    def __init__(self, bridge: Bridge, opener: Asker, stream: AsyncIterator[T]) -> None:
        self._bridge = bridge
        self._asker = _Reader(opener)
        self._stream = stream
        self._next: asyncio.Task[T] | None = None

    def __aiter__(self) -> AsyncioStream[T]:
        return self

    async def __anext__(self) -> T:
        """The next item. **Cancellation**: no item is lost, so ``asyncio.wait_for(anext(stream), seconds)`` is safe."""
        import asyncio

        # What Trio's side has already given away must not be lost if this task is cancelled in that moment; so it is
        # another task that reads, and the next call finds what that has read.
        self._bridge.check_loop(self._asker)
        while True:
            if self._next is None:
                self._next = self._bridge.loop.create_task(self._read())
                self._next.add_done_callback(_look_at)
            read = self._next
            if not read.done():
                await asyncio.wait([read])
            if read is self._next:  # and no other reader has taken it
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
            self._next.cancel("the stream is left")


@frozen
class _Reader:
    """Who reads a stream. When Trio's side has ended, so has the stream."""

    opener: Asker

    @property
    def _who(self) -> str:
        return self.opener._who

    def _over(self) -> Exception:
        return StopAsyncIteration()


@asynccontextmanager
async def open_stream(
    bridge: Bridge, opener: Asker, open_: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]
) -> AsyncIterator[AsyncioStream[T]]:
    """Have a stream of Trio's side around a block of asyncio code.

    One task on Trio's side enters what gives the stream, and leaves it; it is a request like any other, which a task on
    the event loop waits for.
    """
    import asyncio

    bridge.check_loop(opener)
    opened: asyncio.Future[AsyncIterator[T]] = bridge.loop.create_future()
    leave = trio.Event()

    async def hold() -> None:
        async with open_() as stream:
            bridge.to_loop(partial(_tell, opened, stream))
            await leave.wait()

    holding = bridge.loop.create_task(bridge.call(opener, hold), name=f"{opener._who}: a stream")
    holding.add_done_callback(_look_at)
    first: list[asyncio.Future[Any]] = [opened, holding]
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        opened.cancel()
        holding.cancel("whoever opened the stream has left")
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
            return  # Trio's side has ended, and the stream with it, as its reader was told
    await holding


def _look_at(task: asyncio.Task[Any]) -> None:
    """Have asyncio not complain if nobody wants to hear of its failure any more."""
    if not task.cancelled():
        task.exception()


def _tell(opened: asyncio.Future[T], stream: T) -> None:
    if not opened.done():
        opened.set_result(stream)
