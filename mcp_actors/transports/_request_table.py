"""Requests under way, and the table that finds them by id.

A server may return "7" for 7, guess ids, or send errors without an id. A wrong match would give a caller the answer to
another request. So ids are compared in one form (`comparable_id`), and an answer counts only for a request marked as
sent.

Owns: unanswered requests of the connection.
Writes: ids and outcomes of requests; progress reports. Wakes waiting tasks.
Calls: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import trio
from mcp import MCPError
from mcp.shared.dispatcher import coerce_request_id
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    RequestId,
)
from pydantic_core import ValidationError, to_json

LAST_ID: Final = 2**31 - 1
"""The largest id that every server can keep: some use 32-bit integers. After it, ids begin again at 1."""

PROGRESS: Final = "notifications/progress"

Report: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes the progress, the total and a message. Returns at once and never raises."""


NO_IDS: Final = (None, "", -1, 0)
"""Ids in errors of servers that do not know which request failed."""


def comparable_id(request_id: object) -> RequestId | None:
    """Return an id in comparable form, as 7 for "7" or 7.0; None for anything else."""
    if type(request_id) is float and request_id.is_integer():
        return int(request_id)
    return coerce_request_id(request_id) if type(request_id) is int or type(request_id) is str else None


def _number(value: object) -> float | None:
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is int:
        with suppress(OverflowError):
            float(value)
            return value  # unchanged: a callback may print what the server has sent
    return None


def error_of(error: object) -> ErrorData:
    """Return the error of a response. An invalid code becomes `INTERNAL_ERROR`, an invalid message the whole error."""
    with suppress(ValidationError):
        return ErrorData.model_validate(error, by_name=False)
    members = error if type(error) is dict else {}
    code, message = members.get("code"), members.get("message", error)
    if type(message) is not str or not message:
        message = to_json(error).decode()
    return ErrorData(code=code if type(code) is int else INTERNAL_ERROR, message=message, data=members.get("data"))


class UnmatchedError(ErrorData):
    """An error without an id, for the only request it can be about. The outcome of the request is unknown."""


def mcp_error(error: ErrorData) -> MCPError:
    """Return the exception for an error. An `UnmatchedError` gets an ``outcome``, and is never retried."""
    raised = MCPError.from_error_data(error)
    if isinstance(error, UnmatchedError):
        raised.outcome = "unknown"  # type: ignore[attr-defined]  # as errors of this package have
    return raised


# --- A request under way ----------------------------------------------------------------------------------------------


Json: TypeAlias = dict[str, Any]

CLOSED = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
"""The outcome of a request whose connection has ended: the SDK's own error."""

WITHDRAWN = ErrorData(**dict(CLOSED))
"""The outcome of a request of which nothing was written before its connection ended."""

ABANDONED = ErrorData(**dict(CLOSED))
"""The outcome of a request without a task, once the caller has left."""

CANCELLED: Final = "notifications/cancelled"


def ignore() -> None:
    """Do nothing: a default callback."""


def notice_of(request_id: RequestId) -> JSONRPCNotification:
    params = {"requestId": request_id, "reason": "caller cancelled"}
    return JSONRPCNotification(jsonrpc="2.0", method=CANCELLED, params=params)


class RequestUnderWay:
    """A request from its id to its outcome, for a task that waits, or for the `Later` of a message.

    Args:
        method: the protocol's method.
        params: the complete params.
        attempt: the deadline of the caller's request, with the request's attempts; None while a connection is opened.
        headers: extra headers over HTTP.
        report: takes the server's reports of progress; None if the request asks for no reports.
        cancellable: whether the server is asked to cancel if the caller leaves.

    Attributes:
        id: written by the table.
        sent: None before the first byte was offered to the server, then False, and True once all was written.
        line: the line over a pipe.
        outcome: the result, an exception, `CLOSED`, `WITHDRAWN` or `ABANDONED`. None before.
        on_outcome: called with the request in the step that settles it; must not raise. In `wait`, it wakes the task.
        later: the `Later` of a message without a task.
        extras: the rare parts of a message; may be None.
        span: the span; may be None.
    """

    __slots__ = (
        *("attempt", "cancellable", "extras", "headers", "id", "later", "line", "method", "on_outcome", "outcome"),
        *("params", "report", "sent", "span"),
    )

    def __init__(
        self,
        method: str,
        params: Json,
        attempt: Any = None,
        headers: Mapping[str, str] | None = None,
        report: Report | None = None,
        cancellable: bool = True,
    ) -> None:
        self.method = method
        self.params = params
        self.attempt = attempt
        self.headers = headers
        self.report = report
        self.cancellable = cancellable
        self.id: RequestId
        self.sent: bool | None = None
        self.line: bytes
        self.outcome: Json | ErrorData | Exception | None = None
        self.on_outcome: Callable[[RequestUnderWay], object] | None = None
        self.later: Any
        self.extras: Any
        self.span: Any = None

    @property
    def message(self) -> Json:
        message: Json = {"jsonrpc": "2.0", "id": self.id, "method": self.method}
        if self.params:
            message["params"] = self.params
        return message

    def settle(self, outcome: Json | ErrorData | Exception) -> None:
        """Take the first outcome, in the step that learns the outcome. Never raises."""
        if self.outcome is None:
            self.outcome = outcome
            if (hear := self.on_outcome) is not None:
                self.on_outcome = None  # breaks a reference cycle
                hear(self)

    def withdrawn(self) -> None:
        """See `OutgoingLine.withdrawn`."""
        self.settle(WITHDRAWN)

    def caller_left(self, _: object) -> None:
        """Note that the caller of a message has left; see `Later.on_cancel`."""
        self.settle(ABANDONED)

    async def wait(self) -> Json:
        """Wait for the outcome, and return the result. A checkpoint unless the outcome is known.

        Raises:
            mcp.MCPError: the answer is an error, or the connection has ended.
            Exception: the request has failed.
        """
        if self.outcome is None:
            task = trio.lowlevel.current_task()
            self.on_outcome = lambda _: trio.lowlevel.reschedule(task)
            # Trio calls `_leave` only for a task that still sleeps, and `settle` reschedules in the step that reads the
            # answer. So a cancellation in the same tick cannot take the answer away: its caller would repeat a request
            # that has taken effect.
            await trio.lowlevel.wait_task_rescheduled(self._leave)
        outcome = self.outcome
        assert outcome is not None
        if isinstance(outcome, dict):
            return outcome
        try:
            raise outcome if isinstance(outcome, Exception) else mcp_error(outcome)
        finally:
            self.outcome = outcome = CLOSED  # breaks the reference cycle: the traceback refers to this frame

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self.on_outcome = None
        return trio.lowlevel.Abort.SUCCEEDED


# --- The table --------------------------------------------------------------------------------------------------------


class RequestTable:
    """The unanswered requests of a connection, by id.

    Attributes:
        logged: whether all messages are logged; then `reported` takes no report.
        disturbed: True if anything but a waiting request was sent since the last answer: an error without an id may
            be about that.
    """

    def __init__(self) -> None:
        self.logged: bool = False
        self._waiting: dict[RequestId, RequestUnderWay] = {}
        self._last = 0
        self.disturbed: bool = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: RequestUnderWay, request_id: RequestId | None = None) -> RequestId:
        """Add a request under `request_id`, or else under a new id; write and return the id.

        Raises:
            ValueError: a request with the given id waits already.
        """
        known: RequestId
        if request_id is None:
            known = request_id = self._last = 1 if self._last == LAST_ID else self._last + 1
            while known in self._waiting:  # only once the ids have begun again, or if an id was given
                known = request_id = self._last = 1 if self._last == LAST_ID else self._last + 1
        elif (known := coerce_request_id(request_id)) in self._waiting:
            raise ValueError(f"a request with the id {request_id!r} waits already")
        request.id = request_id
        self._waiting[known] = request
        return request_id

    def remove(self, request_id: RequestId) -> None:
        """Forget a request; a later answer is dropped."""
        request = self._waiting.pop(coerce_request_id(request_id), None)
        if request is not None and request.sent is not None:
            self.disturbed = True

    def awaits(self, request_id: RequestId | None) -> bool:
        return request_id in self._waiting and bool(self._waiting[request_id].sent)

    def settle(self, message: Any) -> bool:
        """Pass a parsed message to the request that it answers.

        Return False if the message is not a valid answer. If no sent request has the answer's id, return False for an
        id in `NO_IDS`, and True for any other: the answer is dropped.
        """
        if type(message) is not dict or message.get("method") is not None or message.get("jsonrpc") != "2.0":
            return False
        request_id = message.get("id")
        if type(request_id) is not int and (request_id := comparable_id(request_id)) is None:
            return False
        error = message.get("error")
        if type(error) is dict:
            with suppress(ValidationError):
                parsed = ErrorData.model_validate(error, by_name=False)
                return self._refuse(request_id, parsed) or request_id not in NO_IDS
        result = message.get("result")
        if type(result) is dict:
            request = self._waiting.get(request_id)
            if request is None or not request.sent:
                return request_id not in NO_IDS
            del self._waiting[request_id]  # as `_sent` does, which is a call more
            self.disturbed = False
            request.settle(result)
            return True
        return error is not None and (self._refuse(request_id, error_of(error)) or request_id not in NO_IDS)

    def settle_message(self, message: object) -> bool:
        """Like `settle`, for a message object. Return False only if this is not a response."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return False
        request_id = comparable_id(message.id)
        if request_id is None:
            return True  # an error about no particular request
        if isinstance(message, JSONRPCError):
            self._refuse(request_id, message.error)
        elif (request := self._sent(request_id)) is not None:
            request.settle(message.result)
        return True

    def _refuse(self, request_id: RequestId, error: ErrorData) -> bool:
        request = self._sent(request_id)
        if request is not None:
            request.settle(mcp_error(error))
        return request is not None

    def refuse_only(self, error: ErrorData) -> bool:
        """Pass an error without an id to the only waiting request, unless anything else may have caused the error."""
        only = next(iter(self._waiting), None) if len(self._waiting) == 1 and not self.disturbed else None
        return only is not None and self._refuse(only, UnmatchedError(**dict(error)))

    def _sent(self, request_id: RequestId) -> RequestUnderWay | None:
        request = self._waiting.get(request_id)
        if request is None or not request.sent:
            return None
        del self._waiting[request_id]
        self.disturbed = False
        return request

    def reported(self, message: Any) -> bool:
        """Pass a parsed report of progress to its request. Return False for anything else."""
        if self.logged or type(message) is not dict or message.get("method") != PROGRESS or "id" in message:
            return False
        params = message.get("params")
        return message.get("jsonrpc") == "2.0" and type(params) is dict and self.report(params)

    def report(self, params: Mapping[str, Any] | None) -> bool:
        """Pass a report of progress to its request. Return False if the report is not valid."""
        if params is None or (token := comparable_id(params.get("progressToken"))) is None:
            return False
        request, progress = self._waiting.get(token), _number(params.get("progress"))
        if request is None or request.report is None or progress is None:
            return False
        message = params.get("message")
        request.report(progress, _number(params.get("total")), message if isinstance(message, str) else None)
        return True

    def close(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            request.settle(CLOSED)
