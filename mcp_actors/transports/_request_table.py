"""Match answers with requests, by id.

Each connection has one `RequestTable` for the requests that it sends and their reports of progress. A server may guess
ids, so an answer counts only for a request that is marked as sent. `comparable_id` normalizes ids, `error_of` reads the
error of a response, and `WaitingRequest` is what a request must offer.

`mcp_actors.servers` adds and removes requests, passes reports of progress on, and closes the table. Links that read
messages settle the requests that are answered, which calls the request in the same step, and remove some that are
cancelled. It does no I/O, starts no task, and imports no file of the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from mcp import MCPError
from mcp.shared.dispatcher import coerce_request_id
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, RequestId
from pydantic_core import ValidationError, to_json

LAST_ID: Final = 2**31 - 1
"""The largest id that every server can keep: some use 32-bit integers. 1 follows it."""

PROGRESS: Final = "notifications/progress"

Report: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes a report of progress: the progress, the total and a message. It returns at once and never raises."""


NO_IDS: Final = (None, "", -1, 0)
"""What servers write as the id of an error if they do not know the request."""


def comparable_id(request_id: object) -> RequestId | None:
    """Return an id in the form in which ids are compared; None if it is not an id.

    Some servers return "7" or 7.0 for 7.
    """
    if type(request_id) is float and request_id.is_integer():
        return int(request_id)
    return coerce_request_id(request_id) if type(request_id) is int or type(request_id) is str else None


def _number(value: object) -> float | None:
    """Return a number of the server; None if it is not finite, or an integer that is too large for a float."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is int:
        with suppress(OverflowError):
            float(value)
            return value  # as it is: a callback that prints it prints what the server has sent
    return None


def error_of(error: object) -> ErrorData:
    """Return the error of a response. If it has no valid code or message, its text is kept as the message."""
    with suppress(ValidationError):
        return ErrorData.model_validate(error, by_name=False)
    members = error if type(error) is dict else {}
    code, message = members.get("code"), members.get("message", error)
    if type(message) is not str or not message:
        message = to_json(error).decode()
    return ErrorData(code=code if type(code) is int else INTERNAL_ERROR, message=message, data=members.get("data"))


class UnmatchedError(ErrorData):
    """An error without an id, for the only request that it can be about. The outcome of that is unknown."""


def mcp_error(error: ErrorData) -> MCPError:
    """Return the exception for an error. That for an `UnmatchedError` has an ``outcome``, and is never retried."""
    raised = MCPError.from_error_data(error)
    if isinstance(error, UnmatchedError):
        raised.outcome = "unknown"  # type: ignore[attr-defined]  # as errors of this package have
    return raised


class WaitingRequest(Protocol):
    """A request that waits for its answer.

    One of its three methods is called, once, in the step that reads the answer. They never raise.

    Attributes:
        sent: True once the whole request was written.
        report: takes the server's reports of progress; None if the request asked for none.
    """

    @property
    def sent(self) -> bool | None: ...

    @property
    def report(self) -> Report | None: ...

    def succeeded(self, result: dict[str, Any]) -> None:
        """Take the result, as it was parsed from JSON."""

    def refused(self, error: ErrorData) -> None:
        """Take the server's error, or one about an answer that cannot be read (see `is_unreadable`)."""

    def closed(self) -> None:
        """Note that no answer will come, because the connection has ended."""


class RequestTable:
    """The unanswered requests of one connection, by id.

    Attributes:
        logged: whether all messages are logged, so that no report of progress is taken before its log line.
        disturbed: True if something other than a request that waits was sent since the last answer to one. An error
            without an id may be about that.
    """

    def __init__(self) -> None:
        self.logged: bool = False
        self._waiting: dict[RequestId, WaitingRequest] = {}
        self._last = 0
        self.disturbed: bool = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: WaitingRequest, request_id: RequestId | None = None) -> RequestId:
        """Add a request, and return its id: a new one, unless it is given.

        Raises:
            ValueError: a request with the given id waits already.
        """
        if request_id is not None:
            if (known := coerce_request_id(request_id)) in self._waiting:
                raise ValueError(f"a request with the id {request_id!r} waits already")
            self._waiting[known] = request
            return request_id
        return self.add_new(request)

    def add_new(self, request: WaitingRequest) -> int:
        """Add a request, and return its new id."""
        self._last = 1 if self._last == LAST_ID else self._last + 1
        while self._last in self._waiting:  # only after the ids have begun again, or if an id was given
            self._last = 1 if self._last == LAST_ID else self._last + 1
        self._waiting[self._last] = request
        return self._last

    def remove(self, request_id: RequestId) -> None:
        """Forget a request; a later answer to it is dropped."""
        request = self._waiting.pop(coerce_request_id(request_id), None)
        if request is not None and request.sent is not None:
            self.disturbed = True

    def awaits(self, request_id: RequestId | None) -> bool:
        """Return True if a request with this id was sent and waits."""
        return request_id in self._waiting and bool(self._waiting[request_id].sent)

    def settle(self, message: Any) -> bool:
        """Pass a parsed message to the request that it answers.

        Return False if it is not a valid answer, or has an id that no request can have. A valid one is dropped if no
        request waits for it, or if the request was not sent yet.
        """
        if type(message) is not dict or message.get("method") is not None or message.get("jsonrpc") != "2.0":
            return False
        request_id = message.get("id")
        if type(request_id) is not int and (request_id := comparable_id(request_id)) is None:
            return False
        error = message.get("error")
        if type(error) is dict:
            with suppress(ValidationError):
                return self._refuse(request_id, ErrorData.model_validate(error, by_name=False))
        result = message.get("result")
        if type(result) is dict:
            if (request := self._sent(request_id)) is not None:
                request.succeeded(result)
                return True
            return request_id not in NO_IDS
        return error is not None and self._refuse(request_id, error_of(error))

    def settle_message(self, message: object) -> bool:
        """Do what `settle` does, for a message object: one that was never JSON, or an `unreadable_answer`."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return False
        request_id = comparable_id(message.id)
        if request_id is None:
            return True  # an error about no request in particular
        if isinstance(message, JSONRPCError):
            self._refuse(request_id, message.error)
        elif (request := self._sent(request_id)) is not None:
            request.succeeded(message.result)
        return True

    def _refuse(self, request_id: RequestId, error: ErrorData) -> bool:
        if (request := self._sent(request_id)) is not None:
            request.refused(error)
        return request_id not in NO_IDS

    def refuse_only(self, error: ErrorData) -> bool:
        """Pass an error without an id to the request that waits, if nothing else can have caused it."""
        only = next(iter(self._waiting), None) if len(self._waiting) == 1 and not self.disturbed else None
        request = None if only is None else self._sent(only)
        if request is not None:
            request.refused(UnmatchedError(**dict(error)))
        return request is not None

    def _sent(self, request_id: RequestId) -> WaitingRequest | None:
        """Remove and return the request with an id; None if there is none, or it was not sent yet."""
        request = self._waiting.get(request_id)
        if request is None or not request.sent:
            return None
        del self._waiting[request_id]
        self.disturbed = False
        return request

    def reported(self, message: Any) -> bool:
        """Pass a parsed report of progress to the request that asked for it. Return False for any other message."""
        if self.logged or type(message) is not dict or message.get("method") != PROGRESS or "id" in message:
            return False
        params = message.get("params")
        return message.get("jsonrpc") == "2.0" and type(params) is dict and self.report(params)

    def report(self, params: Mapping[str, Any] | None) -> bool:
        """Pass a report of progress to the request that asked for it. Return False if it is not valid."""
        if params is None or (token := comparable_id(params.get("progressToken"))) is None:
            return False
        request, progress = self._waiting.get(token), _number(params.get("progress"))
        if request is None or request.report is None or progress is None:
            return False
        message = params.get("message")
        request.report(progress, _number(params.get("total")), message if isinstance(message, str) else None)
        return True

    def close(self) -> None:
        """Note that the connection has ended, for all requests that wait."""
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            request.closed()
