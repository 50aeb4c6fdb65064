"""Make a view's methods from those of the Trio object.

One line per method is enough, and it keeps the arguments, the documentation and the types, for type checkers too:

| method on Trio's side | rule | method of the view |
|---|---|---|
| async | `async_view` | async; called on Trio's side |
| async, sends a request to a server | `request_view` | the same, without a task on Trio's side |
| sync, acts | `step_view` | async; called on Trio's side, where nothing else acts at the same time |
| sync, only reads | `sync_view` | sync; called in the thread of its caller |
| ``async with`` of a stream | `stream_view` | the same, with an `AsyncioStream` |

A ref can be read in any thread, because each of its reading methods reads one value or makes its copy in one step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

import trio
from attrs import frozen

from ._callbacks import on_loop

if TYPE_CHECKING:
    import asyncio

    from ..servers import PendingRequest
    from ._bridge import Asker, Bridge


# --- Read streams of Trio's side on the event loop --------------------------------------------------------------------


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


T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class View(ABC, Generic[T_co]):
    """The asyncio side of one object on Trio's side. Two views of the same object are equal."""

    __slots__ = ("_bridge", "_target")

    def __init__(self, bridge: Bridge, target: T_co) -> None:
        self._bridge = bridge
        self._target = target

    def __repr__(self) -> str:
        return repr(self._target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and other._target == self._target

    def __hash__(self) -> int:
        return hash(self._target)

    # Frameworks copy agents, and with them the views that these hold.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._who}: cannot be pickled, because it works only in its own process; open it in the other process"
        )

    @property
    @abstractmethod
    def _who(self) -> str:
        """The subject of errors: ``"server 'github'"``."""

    @abstractmethod
    def _ended_error(self) -> Exception:
        """Return a new error for a request that fails because Trio's side has ended."""


def async_view(
    method: Callable[Concatenate[T, P], Awaitable[R]], *, callbacks: tuple[str, ...] = ()
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make a view's method from an async one.

    Args:
        method: the method of the object.
        callbacks: as for `request_view`.
    """

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _adapt_callbacks(view._bridge, callbacks, kwargs)
        return await view._bridge.call(view, partial(method, view._target, *args, **kwargs))

    return crossed


def request_view(
    method: Callable[Concatenate[T, P], Awaitable[R]],
    send: Callable[Concatenate[T, P], PendingRequest[R]],
    *,
    callbacks: tuple[str, ...] = (),
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make a view's method from an async one that sends a request to a server.

    Args:
        method: the method of the object.
        send: prepares the same request, for callers that are not Trio tasks.
        callbacks: the keyword arguments that are async functions of the program; they are called on the event loop.
    """

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _adapt_callbacks(view._bridge, callbacks, kwargs)
        return await view._bridge.ask(view, partial(send, view._target, *args, **kwargs))

    return crossed


def _adapt_callbacks(bridge: Bridge, names: tuple[str, ...], kwargs: dict[str, Any]) -> None:
    for name in names:
        if (callback := kwargs.get(name)) is not None:
            kwargs[name] = on_loop(bridge, callback)


def step_view(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make an async method of a view from a sync one that changes something."""

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def step() -> R:
            await trio.lowlevel.checkpoint_if_cancelled()
            return method(view._target, *args, **kwargs)

        return await view._bridge.call(view, step)

    return crossed


def sync_view(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[View[Any], P], R]:
    """Make a sync method of a view from one that only reads."""

    @wraps(method)
    def read(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(view._target, *args, **kwargs)

    return read


def stream_view(
    method: Callable[Concatenate[T, P], AbstractAsyncContextManager[AsyncIterator[R]]],
) -> Callable[Concatenate[View[Any], P], AbstractAsyncContextManager[AsyncioStream[R]]]:
    """Make a view's method from one that opens a stream in an ``async with``."""

    @wraps(method)
    def subscribe(
        view: View[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[AsyncioStream[R]]:
        return open_stream(view._bridge, view, partial(method, view._target, *args, **kwargs))

    return subscribe
