"""Read streams of Trio's side on the event loop."""

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

T = TypeVar("T")


class AsyncioStream(Generic[T]):
    """A stream as an async iterator for one reader on an asyncio event loop.

    It ends with the block that opened it, or with the group or supervisor that it reports on. Several readers share the
    items.
    """

    def __init__(self, bridge: Bridge, opener: Asker, stream: AsyncIterator[T]) -> None:
        self._bridge = bridge
        self._asker = _Reader(opener)
        self._stream = stream
        self._next: asyncio.Task[T] | None = None

    def __aiter__(self) -> AsyncioStream[T]:
        return self

    async def __anext__(self) -> T:
        """Return the next item.

        **Cancellation**: no item is lost, so ``asyncio.wait_for(anext(stream), seconds)`` is safe.
        """
        import asyncio

        # Trio's side may have handed over an item just when this task is cancelled, and it cannot take the item back.
        # So a task of its own reads, which the cancellation does not reach, and the next call finds the item there.
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
class _Reader:
    """The reader of a stream, as the asker of a bridge: for it the end of Trio's side is the end of the stream."""

    opener: Asker

    @property
    def _who(self) -> str:
        return self.opener._who

    def _ended_error(self) -> Exception:
        return StopAsyncIteration()


@asynccontextmanager
async def open_stream(
    bridge: Bridge, opener: Asker, open_: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]
) -> AsyncIterator[AsyncioStream[T]]:
    """Open a stream of Trio's side around a block of asyncio code.

    One task on Trio's side enters the stream's ``async with`` and leaves it, as a cancel scope requires. It is a
    request like any other, for which a task on the event loop waits.
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
            return  # Trio's side has ended, and with it the stream, which its reader has seen
    await holding


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Mark the exception of a task as retrieved, so that asyncio does not log it as lost."""
    if not task.cancelled():
        task.exception()


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
