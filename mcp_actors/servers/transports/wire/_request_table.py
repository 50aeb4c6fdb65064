"""Match answers with the requests that this package sends by itself.

Such a request shares its connection with those of the SDK's session, whose ids begin at 1. The ids here begin where the
SDK never gets, so one look at the id of an answer tells whose it is, before the SDK parses it.

A server may guess ids. So an answer counts only once the whole request was written: before that it cannot be the answer
to it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Protocol

from mcp.shared.dispatcher import coerce_request_id
from mcp.types import ErrorData, JSONRPCError, JSONRPCResponse, RequestId
from pydantic_core import ValidationError

FIRST_ID: Final = 2**30
"""The SDK would reach it after a year of a request every 30 ms on one connection."""

LAST_ID: Final = 2**31 - 1
"""The largest id that every server can keep: some use 32-bit integers. `FIRST_ID` follows it."""


def comparable_id(request_id: object) -> RequestId | None:
    """Return an id in the form in which ids are compared; None if it is not an id.

    Some servers return "7" or 7.0 for 7. The SDK accepts the former, too.
    """
    if type(request_id) is float and request_id.is_integer():
        return int(request_id)
    return coerce_request_id(request_id) if type(request_id) is int or type(request_id) is str else None


class WaitingRequest(Protocol):
    """A request that waits for its answer.

    One of these methods is called, in the step that reads the answer; they never raise.
    """

    @property
    def sent(self) -> bool | None:
        """True once the whole request was written."""

    def succeeded(self, result: dict[str, Any]) -> None:
        """Take the result, as it was parsed from JSON."""

    def refused(self, error: ErrorData) -> None:
        """Take the server's error, or one about an answer that cannot be read (see `is_unreadable`)."""


class RequestTable:
    """The unanswered requests of one connection, by id."""

    def __init__(self) -> None:
        self._waiting: dict[int, WaitingRequest] = {}
        self._session: set[RequestId] = set()
        self._last = FIRST_ID - 1

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: WaitingRequest) -> int:
        """Add a request, and return its new id."""
        self._last = FIRST_ID if self._last == LAST_ID else self._last + 1
        while self._last in self._waiting:  # only after the ids have begun again
            self._last = FIRST_ID if self._last == LAST_ID else self._last + 1
        self._waiting[self._last] = request
        return self._last

    def remove(self, request_id: int) -> None:
        """Forget a request; a later answer to it is dropped."""
        self._waiting.pop(request_id, None)

    def sent_by_session(self, request_id: RequestId) -> None:
        """Note that a request of the SDK's session was written, whole."""
        self._session.add(request_id)

    def forget(self, request_id: object) -> None:
        """Forget a request of the SDK's session, which asks the server to cancel it."""
        if (known := comparable_id(request_id)) is not None:
            self._session.discard(known)

    def answers_session(self, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Return True if a message may answer a request of the SDK's session, and forget that request.

        An error without an id may be about any request.
        """
        request_id = comparable_id(message.id)
        if request_id is None:
            return True
        if request_id not in self._session:
            return False
        self._session.remove(request_id)
        return True

    def settle(self, message: Any) -> bool:
        """Pass a parsed message to the request that it answers.

        Return False if it is for the SDK: it answers none of these requests, or is not a valid answer at all. A valid
        answer to a request that is not waiting any more, or was not sent yet, is dropped.
        """
        if type(message) is not dict or message.get("method") is not None or message.get("jsonrpc") != "2.0":
            return False
        request_id = self._own(message.get("id"))
        if request_id is None:
            return False
        error = message.get("error")
        if type(error) is dict:
            with suppress(ValidationError):
                return self._refuse(request_id, ErrorData.model_validate(error, by_name=False))
        result = message.get("result")
        return type(result) is dict and self._succeed(request_id, result)

    def settle_message(self, message: object) -> bool:
        """Like `settle`, for a message that is an object: one that never was JSON, or an `unreadable_answer`."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return False
        request_id = self._own(message.id)
        if request_id is None:
            return False
        if isinstance(message, JSONRPCError):
            return self._refuse(request_id, message.error)
        return self._succeed(request_id, message.result)

    @staticmethod
    def _own(request_id: object) -> int | None:
        """Return an id of these requests as a number; None for any other value."""
        if type(request_id) is not int:
            request_id = comparable_id(request_id)
        return request_id if type(request_id) is int and FIRST_ID <= request_id <= LAST_ID else None

    def _succeed(self, request_id: int, result: dict[str, Any]) -> bool:
        if (request := self._waiting.pop(request_id, None)) is not None:
            if request.sent:
                request.succeeded(result)
            else:
                self._waiting[request_id] = request
        return True

    def _refuse(self, request_id: int, error: ErrorData) -> bool:
        if (request := self._waiting.pop(request_id, None)) is not None:
            if request.sent:
                request.refused(error)
            else:
                self._waiting[request_id] = request
        return True
