"""Answer the questions of a server: sampling, elicitation, roots."""

from __future__ import annotations

import logging
import re
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
)
from pydantic_core import PydanticSerializationError, to_json

from ...._collapse import caused_by
from ...._errors import LimitExceeded, ServerError
from ...._foreign import Log, answer_of
from ....config import CallbackContext
from ....transports import current_trace
from ._tasks import TookTooLong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client.session import ClientRequestContext
    from mcp.types import CreateMessageRequestParams, ElicitRequestParams

    from ...record import ServerRecord
    from ...session import Callbacks
    from ._tasks import CallbackTasks

T = TypeVar("T")

logger = Log("mcp_actors.servers")

MAX_QUESTIONS: Final = 64
"""Maximum of open questions of one server: the default of ``max_in_flight``."""

_NOT_IN_URL: Final = re.compile(r"[\x00-\x20\x7f\\]")
"""Characters that browsers drop or take for others, so that they open another page than a program reads."""


class Questions:
    """Answers the questions of one connection with the user's callbacks.

    Args:
        record: the record of the server.
        tasks: runs the callbacks.
        join_handler: makes the running task count as part of the current handler (`Actor.join_handler`).
    """

    def __init__(self, record: ServerRecord, tasks: CallbackTasks, join_handler: Callable[[], None]) -> None:
        self._record = record
        self._server = record.config.name
        self._callbacks = record.callbacks
        self._tasks = tasks
        self._join_handler = join_handler
        self._questions = 0
        self._refused = 0

    def for_session(self) -> Callbacks:
        """Return the callbacks for the session, which advertises exactly the capabilities that have a callback."""
        callbacks = self._callbacks
        given: Callbacks = {}
        if callbacks.sampling is not None:
            given["sampling_callback"] = self._sampling
            given["sampling_capabilities"] = callbacks.sampling_capabilities
        if callbacks.elicitation is not None:
            given["elicitation_callback"] = self._elicitation
        if callbacks.roots is not None:
            given["list_roots_callback"] = self._roots
        return given

    async def _sampling(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        fn = self._callbacks.sampling
        assert fn is not None  # otherwise the client does not have this callback
        answers = (CreateMessageResult, CreateMessageResultWithTools)
        return await self._answer("sampling", context, lambda asked: answer_of(fn(asked, params)), answers)

    async def _elicitation(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        fn = self._callbacks.elicitation
        assert fn is not None
        if isinstance(params, ElicitRequestURLParams) and (problem := problem_of_page(params.url)) is not None:
            return self._refuse_page(problem, modern=context.session.discover_result is not None)
        return await self._answer("elicitation", context, lambda asked: answer_of(fn(asked, params)), (ElicitResult,))

    async def _roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        fn = self._callbacks.roots
        assert fn is not None
        return await self._answer("roots", context, lambda asked: answer_of(fn(asked)), (ListRootsResult,))

    async def _answer(
        self,
        kind: str,
        context: ClientRequestContext,
        ask: Callable[[CallbackContext], Awaitable[T | ErrorData]],
        answers: tuple[type[T], ...],
    ) -> T | ErrorData:
        """Answer a question with a callback, or with an error if the callback fails.

        **Cancellation**: happens if the server withdraws the question or the connection ends. Cancels the callback.
        """
        modern = context.session.discover_result is not None
        if self._questions >= MAX_QUESTIONS:
            return self._refuse(kind, modern=modern)
        # In the legacy era this is a task of the SDK, outside of the handler of the request that the server works on.
        # If the callback calls the same server, the kernel must know that it does so within that request; otherwise
        # with max_in_flight=1 the call would wait for itself for ever.
        self._join_handler()
        asked = CallbackContext(server=self._server, request_id=context.request_id, meta=context.meta)
        self._questions += 1
        try:
            with self._progress_timeout_suspended():
                answer = await self._tasks.call(kind, lambda: ask(asked))
        except TookTooLong:
            reason = f"timed out after {self._callbacks.timeout:g} s"
            return self._failed(kind, reason, None, REQUEST_TIMEOUT, modern=modern)
        except Exception as exc:
            return self._failed(kind, f"raised {type(exc).__name__}", exc, INTERNAL_ERROR, modern=modern)
        finally:
            self._questions -= 1
        if isinstance(answer, (*answers, ErrorData)):
            try:
                # Here, where it fails one question: in the task that sends the answer, it would end the connection.
                to_json(answer)
            except PydanticSerializationError as exc:
                reason = "returned an answer that cannot be written as JSON"
                return self._failed(kind, reason, exc, INTERNAL_ERROR, modern=modern)
            return answer
        wanted = " or ".join(f"mcp.types.{each.__name__}" for each in answers)
        reason = f"returned {type(answer).__name__} instead of {wanted}"
        return self._failed(kind, reason, None, INTERNAL_ERROR, modern=modern)

    def _progress_timeout_suspended(self) -> AbstractContextManager[None]:
        """Suspend the progress_timeout of all requests. If the request is known, `_sdk` does that for it."""
        return nullcontext() if current_trace().deadline is not None else self._record.calls.deadlines.held()

    def _failed(self, kind: str, reason: str, cause: Exception | None, code: int, *, modern: bool) -> ErrorData:
        """Return the error of a callback that failed, without its text, which may be confidential."""
        logger.error("server %r: the %s callback %s", self._server, kind, reason, exc_info=cause)
        if modern:
            # The modern era has no message for the failure of a callback. The request that needed the answer ends here,
            # in its own task, and the SDK raises an error of its own for it. The caller gets this one instead.
            trace = current_trace()
            operation = f"{trace.deadline.operation}: " if trace.deadline is not None else ""
            error = ServerError(
                f"server {self._server!r}: {operation}the server asked for {kind}, and the callback for it {reason}; "
                "fix the callback, then repeat the request",
                server=self._server,
            )
            trace.failure = caused_by(error, cause)
        return ErrorData(code=code, message=f"the client's callback for {kind} failed")

    def _refuse_page(self, problem: str, *, modern: bool) -> ErrorData:
        """Refuse a question that sends a person to a page, before a callback can open it."""
        trace = current_trace()
        what = f"the server asks a person to open a page {problem}; report that to its operator"
        logger.warning("server %r: %s", self._server, what)
        if modern and trace.deadline is not None:  # as in `_failed`, the error is for the caller of the request
            words = f"server {self._server!r}: {trace.deadline.operation}: {what}"
            trace.failure = ServerError(words, server=self._server)
        return ErrorData(code=INVALID_PARAMS, message=f"the client opens no page {problem}")

    def _refuse(self, kind: str, *, modern: bool) -> ErrorData:
        self._refused += 1
        level = logging.WARNING if self._refused == 1 else logging.DEBUG
        logger.log(
            level,
            "server %r: more than %d questions are open, so further ones are refused; send fewer requests at a time",
            self._server,
            MAX_QUESTIONS,
        )
        trace = current_trace()
        if modern and trace.deadline is not None:  # as in `_failed`, the error is for the caller of the request
            trace.failure = LimitExceeded(
                f"server {self._server!r}: {trace.deadline.operation}: the server asked for {kind}, but too many "
                f"of its questions are open (limit: {MAX_QUESTIONS}); send fewer such requests at a time",
                server=self._server,
            )
        return ErrorData(code=INTERNAL_ERROR, message=f"too many open questions (limit: {MAX_QUESTIONS})")


def problem_of_page(url: str) -> str | None:
    """Return why a browser must not open the page that a server names, as the end of a sentence; None if it may."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # which raises ValueError if it is not one
    except ValueError:
        return "without a valid URL"
    if _NOT_IN_URL.search(url) or parts.scheme not in ("http", "https") or not parts.hostname:
        return "whose URL is not an http or https URL"
    return "with a user in front of the host" if "@" in parts.netloc else None
