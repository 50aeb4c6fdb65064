"""The rules by which what a Trio object offers is offered to asyncio programs: one line per method.

A view is the asyncio side of one object. Its methods are made from that object's own, so they take the same arguments,
have the same documentation, and have the same types, also for type checkers:

- what is awaited on Trio's side is awaited here (`awaited`); so is what acts without waiting (`awaited_step`), and what
  asks a server (`sent`);
- what gives a stream there gives one here (`streaming`);
- what only looks (`looking`) is done in the thread of whoever asks. Everything that a ref shows without being awaited
  is either one value, or is copied in one step, so it may be asked for in any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

import trio

from ..callbacks import called_on_loop
from ._streams import AsyncioStream, open_stream

if TYPE_CHECKING:
    from ...servers import PendingRequest
    from .._bridge import Bridge

__all__ = ["View", "awaited", "awaited_step", "looking", "sent", "streaming"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class View(ABC, Generic[T_co]):
    """What asyncio programs hold of one object on Trio's side. Two views of the same object are equal."""

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

    # Frameworks copy the agents that hold one.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._who}: cannot be pickled, because it serves only in its own process; open it where it is used"
        )

    @property
    @abstractmethod
    def _who(self) -> str:
        """Whom errors are about: ``"server 'github'"``."""

    @abstractmethod
    def _over(self) -> Exception:
        """Make the error for a request that comes when Trio's side has ended."""


def awaited(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make a view's method from one that is awaited."""

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await view._bridge.call(view, partial(method, view._target, *args, **kwargs))

    return crossed


def sent(
    method: Callable[Concatenate[T, P], Awaitable[R]],
    send: Callable[Concatenate[T, P], PendingRequest[R]],
    *,
    callbacks: tuple[str, ...] = (),
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make a view's method from one that asks a server.

    Args:
        method: the object's.
        send: what prepares the same request for callers that are no tasks of Trio's.
        callbacks: which of its named arguments are async functions, which are then called on the event loop.
    """

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _call_on_loop(view._bridge, callbacks, kwargs)
        return await view._bridge.ask(view, partial(send, view._target, *args, **kwargs))

    return crossed


def _call_on_loop(bridge: Bridge, callbacks: tuple[str, ...], kwargs: dict[str, Any]) -> None:
    """Have those of the arguments that are callbacks called on the event loop."""
    for name in callbacks:
        if (callback := kwargs.get(name)) is not None:
            kwargs[name] = called_on_loop(bridge, callback)


def awaited_step(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[View[Any], P], Coroutine[Any, Any, R]]:
    """Make a view's method from one that acts and does not wait, so that nobody else acts at the same time."""

    @wraps(method)
    async def crossed(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def step() -> R:
            await trio.lowlevel.checkpoint_if_cancelled()
            return method(view._target, *args, **kwargs)

        return await view._bridge.call(view, step)

    return crossed


def looking(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[View[Any], P], R]:
    """Make a view's method from one that only looks."""

    @wraps(method)
    def look(view: View[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(view._target, *args, **kwargs)

    return look


def streaming(
    method: Callable[Concatenate[T, P], AbstractAsyncContextManager[AsyncIterator[R]]],
) -> Callable[Concatenate[View[Any], P], AbstractAsyncContextManager[AsyncioStream[R]]]:
    """Make a view's method from one whose ``async with`` gives a stream."""

    @wraps(method)
    def subscribe(
        view: View[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[AsyncioStream[R]]:
        return open_stream(view._bridge, view, partial(method, view._target, *args, **kwargs))

    return subscribe
