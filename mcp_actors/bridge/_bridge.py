"""What goes between one Trio run and one event loop: requests, and their answers.

Who owns what
-------------
*On the event loop's side* the task of each caller owns the future that it waits for; nobody else sets or cancels it.
The callbacks of callers run in tasks of their own there, which whoever opened the bridge cancels and awaits at its end.

*On Trio's side* a message to an actor is nobody's: its answer posts the way back. A call of a tool is such a message
too, until it fails. Any other request is a task in `Bridge.nursery`, which encloses whatever the requests are for. So
it outlives that, and every request is answered by whom it asked; what would wait for ever even then is cancelled.

Nothing is touched from the wrong side. What one side wants of the other is a function that it posts: ``to_trio`` and
``to_loop``. Between threads these are lanes, which wake the other side; where both sides share a thread (a guest run, a
loop on trio-asyncio) the function is just called. A request is one function posted each way.

A caller that is cancelled leaves at once, and its request is told so by another function. An answer that still comes
finds the future done and is dropped.
"""

from __future__ import annotations

import contextvars
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import outcome
import trio

from .._collapse import caused_by
from ..kernel._circles import act_for_caller

if TYPE_CHECKING:
    import asyncio

    from ..kernel import PendingCall
    from ..servers import PendingRequest
    from ._lane import Step

__all__ = ["Asker", "Bridge"]

T = TypeVar("T")


class Asker(Protocol):
    """On whose behalf a request is made."""

    @property
    def _who(self) -> str:
        """Whom errors are about: ``"server 'github'"``."""

    def _over(self) -> Exception:
        """Make the error for a request that comes to nothing because Trio's side has ended."""


class Bridge:
    """One Trio run and one event loop.

    Attributes:
        loop: the event loop.
        nursery: where requests run.
        to_trio: has a function called on Trio's side, in a step of no particular task.
        to_loop: has a function called on the event loop's side.
        callbacks: the tasks in which callbacks run. Event loop's side only.
        serving: True while Trio's side takes requests. Written there only.
        over: True once nothing comes from Trio's side any more. Written on the event loop's side only.
        why_over: the failure that ended it, if one did.
    """

    nursery: trio.Nursery
    to_trio: Callable[[Step], object]
    to_loop: Callable[[Step], object]

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        self.loop: Final = loop
        self.callbacks: Final[set[asyncio.Task[Any]]] = set()
        self.serving: bool = False
        self.over: bool = False
        self.why_over: BaseException | None = None
        self._running_loop = asyncio.get_running_loop
        self._process = os.getpid()
        self._waiting: set[_Request[Any]] = set()

    @property
    def is_copy(self) -> bool:
        """Whether this is a fork's copy. Nothing behind it is the fork's own: no task, no process, no pipe."""
        return os.getpid() != self._process

    async def call(self, asker: Asker, fn: Callable[[], Awaitable[T]]) -> T:
        """Have an async function called on Trio's side, in the context of the calling task, and wait for its result.

        **Cancellation**: the caller leaves at once, and the function is cancelled.

        Args:
            asker: on whose behalf.
            fn: what is called.

        Raises:
            Exception: what the function raised, or what `asker` says about Trio's side having ended.
            RuntimeError: this is not the event loop of the bridge.
        """
        return await self._answer_to(_Task(self, asker, fn))

    async def send(self, asker: Asker, fn: Callable[[], PendingCall[T]]) -> T:
        """Have a message sent on Trio's side, in the context of the calling task, and wait for its answer.

        As `call`, with a function that sends at once: it takes no task, and half the time.
        """
        return await self._answer_to(_Message(self, asker, fn))

    async def ask(self, asker: Asker, fn: Callable[[], PendingRequest[T]]) -> T:
        """Have a server asked on Trio's side, in the context of the calling task, and wait for its answer.

        As `call`, with a function that prepares the request: it takes no task unless it fails.
        """
        return await self._answer_to(_Pending(self, asker, fn))

    async def _answer_to(self, request: _Request[T]) -> T:
        self.check_loop(request.asker)
        self._waiting.add(request)
        try:
            self._post(request)
            return await request.future
        finally:
            self._waiting.discard(request)
            if not request.answered:
                request.withdraw()
            else:
                del request.future  # whose exception may refer to frames that refer to the request
            del request

    def _post(self, request: _Request[Any]) -> None:
        try:
            if self.over:
                raise RuntimeError
            self.to_trio(request.begin)
        except RuntimeError:
            request.fail(request.failure())

    def check_loop(self, asker: Asker) -> None:
        """Refuse whoever is not on the event loop of the bridge."""
        if self.is_copy:
            raise RuntimeError(
                f"{asker._who}: was opened by the process that this one was forked from, and serves only there; "
                "open it in this process too"
            )
        try:
            running = self._running_loop()
        except RuntimeError:
            raise RuntimeError(
                f"{asker._who}: was opened on an asyncio event loop, and is used from where none runs; from a thread "
                "use asyncio.run_coroutine_threadsafe(..., loop), and from Trio what mcp_actors itself offers"
            ) from None
        if running is not self.loop:
            raise RuntimeError(
                f"{asker._who}: was opened on another event loop than the one it is used from; hand the call over with "
                "asyncio.run_coroutine_threadsafe(..., loop), or open it on this one too"
            )

    def end(self, why: BaseException | None) -> None:
        """Nothing comes from Trio's side any more: fail what still waits. Called on the event loop's side."""
        self.over = True
        self.why_over = why
        for request in tuple(self._waiting):
            if not request.answered:
                request.fail(request.failure())

    def abandon(self) -> None:
        """Nothing comes from the event loop any more: withdraw what still waits, as nobody there can be told.

        Called where both sides share a thread.
        """
        self.serving = False
        for request in tuple(self._waiting):
            request.cancel()


class _Request(ABC, Generic[T]):
    """One request: made in its caller's task, answered once.

    Attributes:
        asker: on whose behalf it is made.
        future: what the caller waits for.
        answered: True once it was answered. Event loop's side only.
    """

    __slots__ = ("_bridge", "_context", "answered", "asker", "future")

    def __init__(self, bridge: Bridge, asker: Asker) -> None:
        self._bridge = bridge
        self._context = contextvars.copy_context()  # posting a function loses it
        self.asker: Asker = asker
        self.future: asyncio.Future[T] = bridge.loop.create_future()
        self.answered: bool = False

    def failure(self) -> Exception:
        """The error for a request that comes to nothing because Trio's side has ended."""
        return caused_by(self.asker._over(), self._bridge.why_over)

    # --- on the event loop's side -----------------------------------------------------------------------------------

    def succeed(self, value: T) -> None:
        """Give the caller the result, if it has not left."""
        self.answered = True
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Give the caller an exception, if it has not left."""
        self.answered = True
        if not self.future.done():
            self.future.set_exception(error)

    def withdraw(self) -> None:
        """The caller leaves without an answer."""
        with suppress(RuntimeError):  # the event loop is closed
            self.future.cancel()
        with suppress(RuntimeError):  # Trio's side has ended, and the request with it
            self._bridge.to_trio(self.cancel)

    # --- on Trio's side ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """See to it that there will be an answer."""
        try:
            if not self._bridge.serving:
                raise self.failure()
            self._context.run(self._begin)
        except Exception as exc:
            self._answer(partial(self.fail, exc))

    @abstractmethod
    def _begin(self) -> None:
        """The same, in the caller's context, while Trio's side takes requests. What it raises is the answer."""

    @abstractmethod
    def cancel(self) -> None:
        """The caller has left."""

    def _answer(self, step: Step) -> None:
        with suppress(RuntimeError):  # the event loop is closed, and nobody waits there
            self._bridge.to_loop(step)


class _WithTask(_Request[T]):
    """A request that is a task, or may become one."""

    __slots__ = ("_scope",)

    def __init__(self, bridge: Bridge, asker: Asker) -> None:
        super().__init__(bridge, asker)
        self._scope: trio.CancelScope | None = None

    def _start(self, fn: Callable[[], Awaitable[T]]) -> None:
        self._scope = trio.CancelScope()
        self._bridge.nursery.start_soon(self._serve, fn, self._scope, name="a request from asyncio")

    def cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel("its caller on the event loop has left")

    async def _serve(self, fn: Callable[[], Awaitable[T]], scope: trio.CancelScope) -> None:
        act_for_caller()
        with scope:
            try:
                self._answer(partial(self.succeed, await fn()))
            except Exception as exc:
                self._answer(partial(self.fail, exc))
            except BaseException:
                # Its caller has left, or the bridge is taken down.
                self._answer(partial(self.fail, self.failure()))
                raise


class _Task(_WithTask[T]):
    """A request that is a task: an async function."""

    __slots__ = ("_fn",)

    def __init__(self, bridge: Bridge, asker: Asker, fn: Callable[[], Awaitable[T]]) -> None:
        super().__init__(bridge, asker)
        self._fn = fn

    def _begin(self) -> None:
        self._start(self._fn)


class _Message(_Request[T]):
    """A request that is a message to an actor, which answers it."""

    __slots__ = ("_call", "_fn")

    def __init__(self, bridge: Bridge, asker: Asker, fn: Callable[[], PendingCall[T]]) -> None:
        super().__init__(bridge, asker)
        self._fn = fn
        self._call: PendingCall[T] | None = None

    def _begin(self) -> None:
        self._call = self._fn()
        self._call.on_answer(self._on_answer)

    def _on_answer(self, answer: outcome.Value[T] | outcome.Error) -> None:
        self._call = None  # which refers to this request
        if isinstance(answer, outcome.Value):
            self._answer(partial(self.succeed, answer.value))
        else:
            self._answer(partial(self.fail, answer.error))

    def cancel(self) -> None:
        if self._call is not None:
            self._call.withdraw()
            self._call = None


class _Pending(_WithTask[T]):
    """A request to a server: a message, and a task only if there is more to it."""

    __slots__ = ("_pending", "_prepare")

    def __init__(self, bridge: Bridge, asker: Asker, prepare: Callable[[], PendingRequest[T]]) -> None:
        super().__init__(bridge, asker)
        self._prepare = prepare
        self._pending: PendingRequest[T] | None = None

    def _begin(self) -> None:
        self._pending = self._prepare()
        self._pending.send(self._on_answer)

    def _on_answer(self, answer: outcome.Value[T] | None) -> None:
        assert self._pending is not None
        pending, self._pending = self._pending, None  # which refers to this request
        if answer is None:
            # In a copy, as this may be a step within the context.
            self._context.copy().run(self._start, pending.finish)
        else:
            self._answer(partial(self.succeed, answer.value))

    def cancel(self) -> None:
        super().cancel()
        if self._pending is not None:
            self._pending.withdraw()
            self._pending = None
