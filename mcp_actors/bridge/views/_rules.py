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
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

import trio

from ..callbacks import on_loop
from ._streams import AsyncioStream, open_stream

if TYPE_CHECKING:
    from ...servers import PendingRequest
    from .._bridge import Bridge

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
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
