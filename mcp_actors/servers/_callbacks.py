"""The user's callbacks, over one connection: who calls them, in which task, and what becomes of their failures.

Theory of operation
-------------------
What a server asks (sampling, elicitation, roots) is waited for by a task of the SDK's: one that belongs to the
connection and answers the server, in the legacy era; since 2026-07-28 the task of the request that the server needs it
for. The callback itself runs in a task of its own (``_callback_tasks``), and the SDK's waits for it. So its time-out
holds whatever it does, be it that it reads from a terminal in a thread; the SDK's task can leave when it is cancelled
(the server takes its question back, or the connection ends), upon which the callback is cancelled too; and what it
raises reaches nobody but the log, and the server as an error.

These tasks stand outside the link: a callback that does not let itself be cancelled must not keep a process alive.
Which task enters, which leaves: the owner task of the server's actor opens a `ConnectionCallbacks` before the link, and
closes it after it.

A callback runs in the context variables of the task that waits for it. Since 2026-07-28, and over HTTP, these are those
of whoever made the request that it is for; over stdio in the legacy era, and over HTTP with SSE, nobody knows which
request that is, and they are those in which the group was opened.

What a server tells (logging, any message) goes through a `NotificationFeed` per callback, in which it waits for its
turn.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from mcp.types import (
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    LoggingMessageNotification,
)

from .._collapse import caused_by
from .._errors import LimitExceeded, ServerError
from ..config import CallbackContext
from ._background import open_background
from ._callback_tasks import CallbackTasks, TookTooLong
from ._events import Flooded
from ._exchange import current_exchange
from ._flood import NotificationMeter
from ._incoming import NotificationsMissed
from ._notification_feed import NotificationFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextvars import Context

    from mcp.client.session import ClientRequestContext, IncomingMessage
    from mcp.types import CreateMessageRequestParams, ElicitRequestParams

    from ._background import Background
    from ._incoming import ClientCallbacks
    from ._record import ServerRecord

__all__ = ["ConnectionCallbacks", "open_callbacks"]

T = TypeVar("T")

logger = logging.getLogger("mcp_actors.servers")

MAX_QUESTIONS: Final = 64
"""What one server may have asked at a time: as many as requests may be with it by default. More is no conversation."""

LAST_NOTIFICATIONS: Final = 1.0
"""Seconds that the end of a connection waits for what came before it to be heard: why a server has died, maybe."""


class ConnectionCallbacks:
    """Runs the callbacks of one server, over one connection.

    Args:
        record: the server's lasting part.
        background: where to run them.
        join_handler: has the running task count as one of the handler that is on (`Actor.join_handler`).
    """

    def __init__(self, record: ServerRecord, background: Background, join_handler: Callable[[], None]) -> None:
        self._record = record
        self._server = record.config.name
        self._callbacks = record.callbacks
        self._background = background
        self._tasks = CallbackTasks(self._server, self._callbacks.timeout, background)
        self._join_handler = join_handler
        self._meter = NotificationMeter(record.config.limits.max_notifications)
        self._questions = 0
        self._refused = 0
        self._logs = self._feed("logging", self._log) if self._callbacks.logging is not None else None
        self._messages = self._feed("message", self._pass_on) if self._callbacks.message is not None else None

    def _feed(self, kind: str, give: Callable[[Any, Context], Awaitable[None]]) -> NotificationFeed:
        feed = NotificationFeed(self._server, kind, give)
        self._background.start_soon(feed.run, name=f"{self._server}:{kind}")
        return feed

    # --- for the session --------------------------------------------------------------------------------------------

    def for_client(self) -> ClientCallbacks:
        """What to give to `mcp.Client`, which advertises a capability for all that is given, and for nothing else."""
        callbacks = self._callbacks
        given: ClientCallbacks = {}
        if callbacks.sampling is not None:
            given["sampling_callback"] = self._sampling
            given["sampling_capabilities"] = callbacks.sampling_capabilities
        if callbacks.elicitation is not None:
            given["elicitation_callback"] = self._elicitation
        if callbacks.roots is not None:
            given["list_roots_callback"] = self._roots
        return given

    # --- what it asks -----------------------------------------------------------------------------------------------

    async def _sampling(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        fn = self._callbacks.sampling
        assert fn is not None  # it was not given to the client otherwise
        answers = (CreateMessageResult, CreateMessageResultWithTools)
        return await self._answer("sampling", context, lambda asked: fn(asked, params), answers)

    async def _elicitation(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        fn = self._callbacks.elicitation
        assert fn is not None
        return await self._answer("elicitation", context, lambda asked: fn(asked, params), (ElicitResult,))

    async def _roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        fn = self._callbacks.roots
        assert fn is not None
        return await self._answer("roots", context, fn, (ListRootsResult,))

    async def _answer(
        self,
        kind: str,
        context: ClientRequestContext,
        ask: Callable[[CallbackContext], Awaitable[T | ErrorData]],
        answers: tuple[type[T], ...],
    ) -> T | ErrorData:
        """Have a callback answer what the server asks; if it does not, answer with an error.

        **Cancellation**: the server does not wait any more, or the connection ends. The callback is cancelled.
        """
        modern = context.session.discover_result is not None
        if self._questions >= MAX_QUESTIONS:
            return self._refuse(kind, modern=modern)
        if not modern:
            self._join_handler()  # in the modern era this is a task of that handler
        asked = CallbackContext(server=self._server, request_id=context.request_id, meta=context.meta)
        self._questions += 1
        try:
            with self._patience():
                answer = await self._tasks.call(kind, lambda: ask(asked))
        except TookTooLong:
            problem = f"took longer than its timeout of {self._callbacks.timeout:g} s"
            return self._failed(kind, problem, None, REQUEST_TIMEOUT, modern=modern)
        except Exception as exc:
            return self._failed(kind, f"raised {type(exc).__name__}", exc, INTERNAL_ERROR, modern=modern)
        finally:
            self._questions -= 1
        if isinstance(answer, (*answers, ErrorData)):
            return answer
        wanted = " or ".join(f"mcp.types.{each.__name__}" for each in answers)
        problem = f"returned {type(answer).__name__} and not {wanted}"
        return self._failed(kind, problem, None, INTERNAL_ERROR, modern=modern)

    def _patience(self) -> AbstractContextManager[None]:
        """While a callback runs nothing lacks progress. For a request that is known, `_input_required` sees to that."""
        return nullcontext() if current_exchange().request is not None else self._record.deadlines.held()

    def _failed(self, kind: str, problem: str, cause: Exception | None, code: int, *, modern: bool) -> ErrorData:
        """A callback did not answer. What it said is not told to the server: it is none of its business."""
        logger.error("server %r: the %s callback %s", self._server, kind, problem, exc_info=cause)
        if modern:
            # No message of that era could tell the server. The request that needed the answer ends here, in its own
            # task, and the SDK will make an error of its own of it: this is what its caller is to get.
            exchange = current_exchange()
            operation = f"{exchange.request.operation}: " if exchange.request is not None else ""
            failure = ServerError(
                f"server {self._server!r}: {operation}it asked for {kind}, and the callback for that {problem}; mend "
                "that, and send the request again",
                server=self._server,
            )
            exchange.failure = caused_by(failure, cause)
        return ErrorData(code=code, message=f"the client's callback for {kind} failed")

    def _refuse(self, kind: str, *, modern: bool) -> ErrorData:
        self._refused += 1
        level = logging.WARNING if self._refused == 1 else logging.DEBUG
        logger.log(level, "server %r: asks for more than %d things at a time", self._server, MAX_QUESTIONS)
        exchange = current_exchange()
        if modern and exchange.request is not None:  # as in `_failed`: nobody but the caller can be told
            exchange.failure = LimitExceeded(
                f"server {self._server!r}: {exchange.request.operation}: it asked for {kind} while {MAX_QUESTIONS} of "
                "its questions waited for an answer, which is all that it may ask at a time; send less requests of the "
                "kind at a time, or have the server mended",
                server=self._server,
            )
        return ErrorData(code=INTERNAL_ERROR, message=f"{MAX_QUESTIONS} questions wait for an answer already")

    # --- what it tells ----------------------------------------------------------------------------------------------

    def hear(self, message: object) -> None:
        """Take what the server tells; a listener (see ``_incoming``)."""
        if isinstance(message, NotificationsMissed):
            return  # no message of its
        if not self._meter.admit(trio.current_time()):
            if self._meter.dropped == 1:
                self._flooded()
            return
        if self._logs is not None and isinstance(message, LoggingMessageNotification):
            self._logs.put(message)
        if self._messages is not None:
            self._messages.put(message)

    def _flooded(self) -> None:
        logger.warning(
            "server %r: sends more than %d notifications a second; callbacks hear no more of them (see "
            "Limits.max_notifications)",
            self._server,
            self._meter.limit,
        )
        self._record.tell(Flooded, limit=self._meter.limit)

    async def finish(self) -> None:
        """The connection has ended. Let what came before that be heard, for a moment."""
        with trio.move_on_after(LAST_NOTIFICATIONS):
            for feed in (self._logs, self._messages):
                if feed is not None:
                    await feed.wait_idle()

    async def _log(self, message: LoggingMessageNotification, context: Context) -> None:
        fn = self._callbacks.logging
        assert fn is not None
        told = self._told(message.params.meta)
        await self._give("logging", lambda: fn(told, message.params), context)

    async def _pass_on(self, message: IncomingMessage, context: Context) -> None:
        fn = self._callbacks.message
        assert fn is not None
        told = self._told(getattr(getattr(message, "params", None), "meta", None))
        await self._give("message", lambda: fn(told, message), context)

    def _told(self, meta: Any) -> CallbackContext:
        return CallbackContext(server=self._server, meta=meta)

    async def _give(self, kind: str, call: Callable[[], Awaitable[None]], context: Context) -> None:
        try:
            await self._tasks.call(kind, call, context)
        except TookTooLong:
            seconds = self._callbacks.timeout
            logger.error("server %r: the %s callback took longer than its timeout of %g s", self._server, kind, seconds)
        except Exception:
            logger.exception("server %r: the %s callback raised, which changes nothing", self._server, kind)


@asynccontextmanager
async def open_callbacks(record: ServerRecord, join_handler: Callable[[], None]) -> AsyncIterator[ConnectionCallbacks]:
    """Open a place for the callbacks of a server, around one connection to it.

    When the block is left, what came before is still heard, for a moment; then all callbacks are cancelled.

    Args:
        record: the server's lasting part.
        join_handler: see `ConnectionCallbacks`.
    """
    async with open_background() as background:
        callbacks = ConnectionCallbacks(record, background, join_handler)
        with record.listeners.added(object, callbacks.hear):
            try:
                yield callbacks
            finally:
                await callbacks.finish()
