"""Functions of asyncio programs that are called from Trio's side: on the event loop, in a task of their own there.

The task on Trio's side owns the wait, the one on the event loop the work. If the former is cancelled it leaves at once,
and the latter is cancelled; whoever opened the bridge awaits it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import outcome
from attrs import frozen

from ..._errors import ServerUnavailable
from ...kernel._reply import Reply

if TYPE_CHECKING:
    import asyncio

    from .._bridge import Bridge

__all__ = ["OfServer", "called_on_loop"]

P = ParamSpec("P")
R = TypeVar("R")


def called_on_loop(bridge: Bridge, fn: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make an async function for Trio's side from one of the event loop's, async or not.

    It is called in the context of the task that calls it.
    """

    @wraps(fn)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        callback = _Callback[R](bridge, partial(fn, *args, **kwargs))
        try:
            bridge.to_loop(partial(bridge.loop.call_soon, callback.start, contextvars.copy_context()))
        except RuntimeError as exc:
            raise RuntimeError(f"{_name(fn)} cannot be called: the event loop that it belongs to is closed") from exc
        return await callback.wait()

    return call


class _Callback(Reply[R], Generic[R]):
    """One call: made by a task of Trio's, which waits for it; carried out by one of the event loop's."""

    __slots__ = ("_bridge", "_fn", "_task")

    def __init__(self, bridge: Bridge, fn: Callable[[], Awaitable[R]]) -> None:
        super().__init__()
        self._bridge = bridge
        self._fn = fn
        self._task: asyncio.Task[R] | None = None

    def abandoned(self) -> None:
        """On Trio's side: the waiting task was cancelled."""
        with suppress(RuntimeError):  # a closed event loop has nothing to cancel
            self._bridge.to_loop(partial(self._bridge.loop.call_soon, self._cancel))

    # --- on the event loop's side -----------------------------------------------------------------------------------

    def start(self, context: contextvars.Context) -> None:
        """Start the task."""
        self._task = self._bridge.loop.create_task(self._run(), name=_name(self._fn), context=context)
        self._bridge.callbacks.add(self._task)
        self._task.add_done_callback(self._done)

    async def _run(self) -> R:
        result: Any = self._fn()
        return cast("R", await result if isinstance(result, Awaitable) else result)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel("whoever called back has left")

    def _done(self, task: asyncio.Task[R]) -> None:
        self._bridge.callbacks.discard(task)
        self._task = None  # whose exception may refer to frames that refer to this
        answer: outcome.Value[R] | outcome.Error
        if task.cancelled():
            answer = outcome.Error(RuntimeError(f"{_name(self._fn)} was cancelled on its event loop"))
        elif (error := task.exception()) is not None:
            answer = outcome.Error(error)
        else:
            answer = outcome.Value(task.result())
        with suppress(RuntimeError):  # Trio's side has ended, and whoever waited with it
            self._bridge.to_trio(partial(self.settle, answer))


@frozen
class OfServer:
    """Asks on behalf of a callback of one server: middleware that lets a call go on, an extension that sends more."""

    server: str

    @property
    def _who(self) -> str:
        return f"server {self.server!r}"

    def _over(self) -> Exception:
        return ServerUnavailable(f"{self._who}: its group was left", server=self.server, state="stopped")


def _name(fn: object) -> str:
    inner = fn.func if isinstance(fn, partial) else fn
    return getattr(inner, "__qualname__", None) or repr(inner)
