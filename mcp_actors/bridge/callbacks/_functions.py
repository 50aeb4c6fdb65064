"""Call functions of an asyncio program from Trio's side.

A task on Trio's side waits; a task on the event loop does the work. If the former is cancelled it leaves at once, and
the latter is cancelled too. The block awaits it at its end.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import outcome
from attrs import frozen

from ..._errors import ServerUnavailable
from ..._foreign import answer_of
from ...kernel import Reply

if TYPE_CHECKING:
    import asyncio

    from .._bridge import Bridge

P = ParamSpec("P")
R = TypeVar("R")


def on_loop(bridge: Bridge, fn: Callable[P, Awaitable[R] | R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async function for Trio's side that calls `fn`, async or not, on the event loop.

    It runs in the context of its caller.
    """

    @wraps(fn)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        callback = _Callback[R](bridge, partial(fn, *args, **kwargs))
        try:
            bridge.to_loop(partial(bridge.loop.call_soon, callback.start, contextvars.copy_context()))
        except RuntimeError as exc:
            raise RuntimeError(f"{_name(fn)}: cannot be called, because its event loop is closed") from exc
        return await callback.wait()

    return call


class _Callback(Reply[R], Generic[R]):
    """One call: a task on Trio's side waits for it, a task on the event loop carries it out."""

    __slots__ = ("_bridge", "_fn", "_task")

    def __init__(self, bridge: Bridge, fn: Callable[[], Awaitable[R] | R]) -> None:
        super().__init__()
        self._bridge = bridge
        self._fn = fn
        self._task: asyncio.Task[R] | None = None

    def abandoned(self) -> None:
        """Cancel the task on the event loop, because the waiting task was cancelled. Called on Trio's side."""
        with suppress(RuntimeError):  # a closed event loop has nothing to cancel
            self._bridge.to_loop(partial(self._bridge.loop.call_soon, self._cancel))

    # --- on the event loop's side -----------------------------------------------------------------------------------

    def start(self, context: contextvars.Context) -> None:
        """Start the task."""
        self._task = self._bridge.loop.create_task(self._run(), name=_name(self._fn), context=context)
        self._bridge.callbacks.add(self._task)
        self._task.add_done_callback(self._done)

    async def _run(self) -> R:
        return await answer_of(self._fn())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel("the caller on Trio's side has left")

    def _done(self, task: asyncio.Task[R]) -> None:
        self._bridge.callbacks.discard(task)
        self._task = None  # its exception may refer to frames that refer to this
        answer: outcome.Value[R] | outcome.Error
        if task.cancelled():
            answer = outcome.Error(RuntimeError(f"{_name(self._fn)}: was cancelled on its event loop"))
        elif (error := task.exception()) is not None:
            answer = outcome.Error(error)
        else:
            answer = outcome.Value(task.result())
        with suppress(RuntimeError):  # Trio's side has ended, and the waiting task with it
            self._bridge.to_trio(partial(self.settle, answer))


@frozen
class ServerAsker:
    """One server, as the asker of a bridge."""

    server: str

    @property
    def _who(self) -> str:
        return f"server {self.server!r}"

    def _ended_error(self) -> Exception:
        message = f"{self._who} is stopped because its open_servers() block has exited; open it again"
        return ServerUnavailable(message, server=self.server, state="stopped")


def _name(fn: object) -> str:
    inner = fn.func if isinstance(fn, partial) else fn
    return getattr(inner, "__qualname__", None) or repr(inner)
