"""Run the user's callbacks for a server's questions and notifications.

A callback may block, fail, call the same server, or ignore cancellation. So each call of a callback runs in its own
task (`CallbackTasks`), and another task waits for the answer. A timeout, a withdrawn question or the end of the
connection ends the wait at once.

Owns: open questions; queued notifications; tasks of callbacks.
Writes: deadlines and errors of the user's requests; listeners of the connection; events of the server; the log.
Calls: config, servers, servers.record, servers.requests.
"""

from __future__ import annotations

import logging
import math
import re
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import outcome
import trio
from attrs import define, field, frozen
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitCompleteNotification,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    LoggingMessageNotification,
)
from pydantic_core import PydanticSerializationError, to_json

from ..._collapse import caused_by, collapse
from ..._errors import LimitExceeded, ServerError
from ..._foreign import Log, answer_of
from ..._json import measured
from ..._tasks import MAX_WAITING, Feed, open_background
from ...config import CallbackContext
from .._dispatcher import CURRENT_QUESTION
from .._session import MAX_ROUNDS
from ..record import Flooded, NotificationsMissed
from ..requests import LEVELS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mcp.client.session import ClientRequestContext
    from mcp.types import ElicitRequestParams, LoggingLevel

    from ..._tasks import Background
    from .._session import SessionCallbacks
    from ..record import ConnectionRecord


logger = Log("mcp_actors.servers")

T = TypeVar("T")


@asynccontextmanager
async def open_callbacks(record: ConnectionRecord, join_handler: Callable[[], None]) -> AsyncIterator[Questions]:
    """Run the callbacks of a server for the duration of one connection, and yield `Questions` for the session.

    On leaving, deliver arrived notifications for a moment; then cancel all callbacks.
    """
    async with open_background() as background:
        tasks = CallbackTasks(record.config.name, record.server.callbacks.timeout, background)
        notifications = Notifications(record, tasks)
        done, added = record.server.done.note, record.listeners.added
        with added(object, notifications.hear), added(ElicitCompleteNotification, done):
            try:
                yield Questions(record, tasks, join_handler)
            finally:
                await notifications.finish()


# --- Answer the questions of a server: sampling, elicitation, roots ---------------------------------------------------


MAX_QUESTIONS: Final = 64
"""The most open questions of one connection, like the default of ``max_in_flight``."""

_MISREAD_IN_URL: Final = re.compile(r"[\x00-\x20\x7f\\]")
"""Characters that browsers drop or replace, and so open another page than a program reads."""


class Questions:
    """Answers the questions of one connection with the user's callbacks.

    A callback runs with the caller's context variables if the request behind the question is known (since 2026-07-28,
    or if the question comes in the HTTP response to that request), else with those in which the group was opened.
    """

    def __init__(self, record: ConnectionRecord, tasks: CallbackTasks, join_handler: Callable[[], None]) -> None:
        self._record = record
        self._server = record.config.name
        self._callbacks = record.server.callbacks
        self._tasks = tasks
        self._join_handler = join_handler
        self._questions = 0
        self._refused = 0

    def for_session(self) -> SessionCallbacks:
        """Return the callbacks for the session, which advertises exactly their capabilities."""
        callbacks = self._callbacks
        given: SessionCallbacks = {}
        if callbacks.sampling is not None:
            answers = CreateMessageResult, CreateMessageResultWithTools
            given["sampling_callback"] = partial(self._answer, "sampling", callbacks.sampling, answers)
            given["sampling_capabilities"] = callbacks.sampling_capabilities
        if callbacks.elicitation is not None:
            given["elicitation_callback"] = self._elicitation
        if callbacks.roots is not None:
            given["list_roots_callback"] = partial(self._answer, "roots", callbacks.roots, (ListRootsResult,))
        return given

    async def _elicitation(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        if isinstance(params, ElicitRequestURLParams) and (problem := problem_of_page(params.url)) is not None:
            return self._refuse_page(problem)
        return await self._answer("elicitation", self._callbacks.elicitation, (ElicitResult,), context, params)

    async def _answer(
        self, kind: str, fn: Any, answers: tuple[type[T], ...], context: ClientRequestContext, *params: object
    ) -> T | ErrorData:
        """Answer a question with a callback, or with an error if the callback fails.

        **Cancellation**: the server withdrew the question, or the connection ended. Cancels the callback.
        """
        if self._questions >= MAX_QUESTIONS:
            return self._refuse(kind)
        # In the legacy era this is a task of the SDK, outside the handler of the current request. If the callback calls
        # the same server, the kernel must count the call as part of that request; otherwise, with max_in_flight=1, the
        # call would wait for itself forever.
        self._join_handler()
        asked = CallbackContext(server=self._server, request_id=context.request_id, meta=context.meta)
        deadlines, seconds = self._record.calls.deadlines, self._callbacks.timeout
        # Limits the stopped time: the rounds of a request since 2026-07-28 may take as long.
        most = MAX_ROUNDS * seconds if kind == "elicitation" else None
        self._questions += 1
        try:
            with deadlines.answering(self._record.name, CURRENT_QUESTION.get().attempt, most):
                answer: T | ErrorData = await self._tasks.call(kind, lambda: answer_of(fn(asked, *params)))
        except TookTooLong:
            return self._failed(kind, f"timed out after {seconds:g} s", code=REQUEST_TIMEOUT)
        except Exception as exc:
            return self._failed(kind, f"raised {type(exc).__name__}", exc)
        finally:
            self._questions -= 1
        if isinstance(answer, (*answers, ErrorData)):
            try:
                # Here an error fails one question; in the task that sends the answer, the whole connection.
                to_json(answer)
            except PydanticSerializationError as exc:
                return self._failed(kind, "returned an answer that cannot be written as JSON", exc)
            return answer
        wanted = " or ".join(f"mcp.types.{each.__name__}" for each in answers)
        return self._failed(kind, f"returned {type(answer).__name__} instead of {wanted}")

    def _failed(self, kind: str, reason: str, cause: Exception | None = None, code: int = INTERNAL_ERROR) -> ErrorData:
        """Report a failed callback. Return an error without the exception's text, which may be confidential."""
        logger.error("server %r: the %s callback %s", self._server, kind, reason, exc_info=cause)
        what = f"the server asked for {kind}, and the callback for it {reason}; fix the callback, then repeat"
        self._fail_request(f"{what} the request", ServerError, cause)
        return ErrorData(code=code, message=f"the client's callback for {kind} failed")

    def _refuse_page(self, problem: str) -> ErrorData:
        what = f"the server asks a person to open a page {problem}; report that to its operator"
        logger.warning("server %r: %s", self._server, what)
        self._fail_request(what)
        return ErrorData(code=INVALID_PARAMS, message=f"the client opens no page {problem}")

    def _refuse(self, kind: str) -> ErrorData:
        self._refused += 1
        level = logging.WARNING if self._refused == 1 else logging.DEBUG
        logger.log(
            level,
            "server %r: more than %d questions are open, so further ones are refused; send fewer requests at a time",
            self._server,
            MAX_QUESTIONS,
        )
        what = f"the server asked for {kind}, but too many of its questions are open (limit: {MAX_QUESTIONS})"
        self._fail_request(f"{what}; send fewer such requests at a time", LimitExceeded)
        return ErrorData(code=INTERNAL_ERROR, message=f"too many open questions (limit: {MAX_QUESTIONS})")

    def _fail_request(self, what: str, error: type[ServerError] = ServerError, cause: Exception | None = None) -> None:
        """Note the error for the caller of the request behind the question.

        The modern era has no message for a failed callback, and the SDK raises its own error; the caller gets this
        error instead.
        """
        question = CURRENT_QUESTION.get()
        if question.attempt is not None:
            words = f"server {self._server!r}: {question.attempt.operation}: {what}"
            question.failure = caused_by(error(words, server=self._server), cause)


def problem_of_page(url: str) -> str | None:
    """Return why a browser must not open a server's page, as the end of a sentence, or None."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError
    except ValueError:
        return "without a valid URL"
    if _MISREAD_IN_URL.search(url) or parts.scheme not in ("http", "https") or not parts.hostname:
        return "whose URL is not an http or https URL"
    return "with a user in front of the host" if "@" in parts.netloc else None


# --- Pass the notifications of a server to the user's callbacks -------------------------------------------------------


MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
"""Approximate bytes of all notifications waiting for a slow callback, thousands of ordinary ones."""


class NotificationFeed(Feed[tuple[Any, Context]]):
    """Queues notifications, and delivers them in a task, in the context of their arrival.

    Args:
        server: the name of the server.
        kind: the kind of the callback, for messages.
        deliver: delivers a notification; handles its own exceptions.
    """

    def __init__(self, server: str, kind: str, deliver: Callable[[tuple[Any, Context]], Awaitable[None]]) -> None:
        self.dropped = 0
        self._server = server
        self._kind = kind
        super().__init__(deliver, max_size=MAX_WAITING_BYTES, on_drop=self._drop)

    def hear(self, notification: Any) -> None:
        size, _, _ = measured(notification, MAX_WAITING_BYTES)
        self.put((notification, copy_context()), size)

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped == 1:
            logger.warning(
                "server %r: the %s callback is too slow, so its oldest notifications are dropped (limit: %d waiting "
                "notifications, %d bytes); make the callback faster",
                self._server,
                self._kind,
                MAX_WAITING,
                MAX_WAITING_BYTES,
            )


class Notifications:
    def __init__(self, record: ConnectionRecord, tasks: CallbackTasks) -> None:
        self._record = record
        self._server = record.config.name
        self._callbacks = record.server.callbacks
        self._tasks = tasks
        self._meter = NotificationMeter(record.config.limits.max_notifications)
        self._logs = self._feed("logging", self._callbacks.logging, lambda message: message.params)
        self._messages = self._feed("message", self._callbacks.message, lambda message: message)

    def _feed(
        self,
        kind: str,
        fn: Callable[[CallbackContext, Any], Awaitable[None] | None] | None,
        argument: Callable[[Any], Any],
    ) -> NotificationFeed | None:
        """Start the feed of a callback, whose second argument comes from the message; None without a callback."""
        if fn is None:
            return None

        async def deliver(arrived: tuple[Any, Context]) -> None:
            message, context = arrived
            about = CallbackContext(server=self._server, meta=getattr(getattr(message, "params", None), "meta", None))
            await self._call(kind, lambda: answer_of(fn(about, argument(message))), context)

        feed = NotificationFeed(self._server, kind, deliver)
        self._tasks.background.start_soon(feed.run, name=f"{self._server}:{kind}")
        return feed

    def hear(self, message: object) -> None:
        """Queue a message of the server for the callbacks. A listener (see `Listeners`)."""
        if isinstance(message, NotificationsMissed):
            return  # not a message of the server
        if not self._meter.admit(trio.current_time()):
            if self._meter.dropped == 1:
                self._flooded()
            return
        if isinstance(message, LoggingMessageNotification):
            if self._is_below_level(message.params.level):
                return
            if self._logs is not None:
                self._logs.hear(message)
        if self._messages is not None:
            self._messages.hear(message)

    def _is_below_level(self, level: LoggingLevel) -> bool:
        """Return True for an unwanted message: some servers ignore their level, or have none."""
        known = self._record.next_connect
        lowest = None if known.own_levels else known.log_level
        return lowest is not None and LEVELS.index(level) < LEVELS.index(lowest)

    def _flooded(self) -> None:
        has_callbacks = self._logs is not None or self._messages is not None
        logger.warning(
            "server %r: sent more than %d notifications in a second (%s); %s",
            self._server,
            self._meter.limit,
            "callbacks do not get the rest" if has_callbacks else "no callback is set, but each one takes time",
            "raise limits=Limits(max_notifications=…) if that is expected"
            if has_callbacks
            else "make the server send fewer, or stop it",
        )
        self._record.life.emit(Flooded, limit=self._meter.limit)

    async def finish(self) -> None:
        with trio.move_on_after(1.0):  # the last notifications may say why a server died
            for feed in (self._logs, self._messages):
                if feed is not None:
                    await feed.wait_idle()

    async def _call(self, kind: str, call: Callable[[], Awaitable[None]], context: Context) -> None:
        try:
            await self._tasks.call(kind, call, context)
        except TookTooLong:
            logger.error(
                "server %r: the %s callback timed out after %g s; raise Callbacks(timeout=…) if that is expected",
                self._server,
                kind,
                self._callbacks.timeout,
            )
        except Exception:
            logger.exception("server %r: the %s callback raised; the connection goes on", self._server, kind)


# --- Limit the notifications per second of a server -------------------------------------------------------------------


@define
class NotificationMeter:
    """Counts the notifications of one connection, second by second.

    A *flood* begins with the first notification over the limit, and ends with the first notification after a second
    within the limit.

    Attributes:
        limit: the most notifications per second.
        flooded: True during a flood.
        dropped: the number of refused notifications in this flood, or the last.
    """

    limit: int
    flooded: bool = field(default=False, init=False)
    dropped: int = field(default=0, init=False)
    _began: float = field(default=float("-inf"), init=False)
    _count: int = field(default=0, init=False)

    def admit(self, now: float) -> bool:
        """Count a notification; return True if within the limit."""
        if now - self._began >= 1.0:
            calm = self._count <= self.limit or now - self._began >= 2.0
            self.flooded = self.flooded and not calm
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= self.limit:
            return True
        if not self.flooded:
            self.flooded, self.dropped = True, 0
        self.dropped += 1
        return False


# --- Call a callback in a task of its own, with a timeout -------------------------------------------------------------


class TookTooLong(Exception):
    """A callback timed out."""


@frozen(eq=False)
class CallbackTasks:
    """Runs callbacks, each for at most `timeout` seconds."""

    server: str
    timeout: float
    background: Background

    async def call(self, kind: str, fn: Callable[[], Awaitable[T]], context: Context | None = None) -> T:
        """Call a callback in another task, by default in this context; wait, and return the result.

        **Cancellation**: cancels the callback, without waiting for its cleanup.

        Raises:
            TookTooLong: the callback timed out, and is cancelled but not awaited.
            Exception: the callback's exception, without a group around.
        """
        call = _CallbackRun(fn, self.server, kind)
        start = partial(self.background.start_soon, call.run, name=f"{self.server}:{kind}")
        start() if context is None else context.run(start)
        try:
            # Wait for an event, not in a nursery around the callback: a nursery waits for cleanup, and a callback that
            # swallows Cancelled, or reads in a thread, would hold the connection. So the timeout ends this wait at
            # once, `cancel` only asks the callback to stop, and the background awaits the callback, after the link is
            # closed.
            with trio.move_on_after(self.timeout):
                await call.done.wait()
        finally:
            call.scope.cancel("its caller has stopped waiting")
        if call.result is None:
            raise TookTooLong
        return call.result.unwrap()


@define(eq=False)
class _CallbackRun(Generic[T]):
    """One call. `done` is set at the end, even if `scope` was cancelled.

    A `KeyboardInterrupt` or `SystemExit` passes through and ends the program, which also cancels the waiting task.
    """

    fn: Callable[[], Awaitable[T]]
    server: str
    kind: str
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    done: trio.Event = field(factory=trio.Event)
    result: outcome.Value[T] | outcome.Error | None = None

    @trio.lowlevel.disable_ki_protection  # a callback may compute for long, and Ctrl-C must reach it
    async def run(self) -> None:
        try:
            with self.scope:
                self.result = outcome.Value(await self.fn())
        except Exception as exc:
            self._raised(exc)
        except trio.Cancelled as exc:
            # If this task was not cancelled, the exception comes from another task, through code that passes on its
            # outcome. Raising it here would end everything around, as if this task had been cancelled.
            if trio.current_effective_deadline() == -math.inf:
                raise
            self._raised(caused_by(RuntimeError("raised the trio.Cancelled of another task"), exc))
        self.done.set()

    def _raised(self, exc: Exception) -> None:
        failure = collapse(exc)
        if self.scope.cancel_called:
            logger.warning("server %r: the %s callback raised when cancelled", self.server, self.kind, exc_info=exc)
        elif isinstance(failure, Exception):
            self.result = outcome.Error(failure)
