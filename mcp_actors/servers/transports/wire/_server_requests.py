"""Limit the requests that a server makes.

The SDK starts a task for each of them. Each connection has one counter, whatever its transport. The reading stream
passes it every request and notification before the session sees them; the writing stream passes it every request and
response. A server that exceeds a limit loses its connection. Reading more slowly would delay the responses to our own
requests, which arrive in the same stream. Refusing each request would mean to write to a server that may not read.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from mcp.shared.dispatcher import coerce_request_id
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from ...._errors import LimitExceeded
from ...._text import plain_text
from ._request_table import comparable_id

EARNED: Final = 10
"""Further requests that a server may make for each request that it is sent. Ordinary ones need one or two."""

A_SECOND: Final = 30
"""Further requests per second: one tool call may ask for many samples. A flood has more."""

HELD_BYTES: Final = 64 * 1024 * 1024
"""Total size of the unanswered requests of a server: as much as one message may have by default."""

LATE: Final = 100
"""Requests that were cancelled and may be answered all the same. Some servers do so; the specification advises
against it, so without a limit their number would grow for the life of a connection."""

CANCELLED: Final = "notifications/cancelled"

NOT_AN_ANSWER: Final = nullcontext()

SHOWN: Final = 80
"""Maximum characters of a short text of the server, such as a method or a content type, that an error shows."""


class ServerRequests:
    """Counts the requests of one server over one connection, and those that are unanswered.

    Args:
        server: the name of the server.
        limit: the maximum of unanswered requests, and of requests at once (``Limits.max_requests``).
    """

    def __init__(self, server: str, limit: int) -> None:
        self._server = server
        self._limit = limit
        self._credit = float(limit)
        self._credited = 0.0
        self._awaited = 0
        self._late = 0
        # The sizes of unanswered requests by id. A server may use an id twice, so each id has a queue of sizes.
        self._unanswered: defaultdict[RequestId, deque[int]] = defaultdict(deque)
        self._count = 0
        self._bytes = 0

    def receive(self, message: JSONRPCMessage, size: int, now: float) -> None:
        """Count a message of the server if it is a request or cancels one.

        Args:
            message: the message.
            size: its size in bytes.
            now: `trio.current_time`.

        Raises:
            LimitExceeded: the message exceeds a limit, and the connection has to end.
        """
        if isinstance(message, JSONRPCRequest):
            reason = self._excess(size, now)
            if reason is not None:
                raise self._exceeded(reason, message.method)
            self._unanswered[coerce_request_id(message.id)].append(size)
            self._count += 1
            self._bytes += size
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            request_id = comparable_id((message.params or {}).get("requestId"))
            if request_id is not None:
                self._bytes -= self._forget(request_id)

    @property
    def awaits_answer(self) -> bool:
        """Whether a request waits for an answer of the server."""
        return self._awaited > 0

    def sent(self) -> None:
        """Count a request that the server is sent; it earns the server more of its own (`EARNED`)."""
        self._credit += EARNED
        self._awaited += 1

    def cancelled(self) -> None:
        """Count a request that the server is asked to cancel. It waits for no answer, but one may come."""
        if self._awaited:
            self._awaited -= 1
            self._late = min(self._late + 1, LATE)

    def answered(self) -> bool:
        """Count an answer of the server. Return False if no request that it was sent can be the one it answers."""
        if self._awaited:
            self._awaited -= 1
        elif self._late:
            self._late -= 1
        else:
            return False
        return True

    def is_answer(self, message: JSONRPCMessage) -> bool:
        """Return True if a message of the server may answer a request that it was sent, and count that answer."""
        return isinstance(message, JSONRPCResponse | JSONRPCError) and self.answered()

    def _excess(self, size: int, now: float) -> str | None:
        self._credit = min(self._limit, self._credit + (now - self._credited) * A_SECOND) - 1
        self._credited = now
        if self._credit < 0:
            return f"limit: {self._limit} at once, {A_SECOND} per second and {EARNED} for each request sent to it"
        if self._count >= self._limit:
            return f"limit: {self._limit} unanswered requests"
        if self._bytes and self._bytes + size > HELD_BYTES:
            return f"limit: {HELD_BYTES} bytes of unanswered requests"
        return None

    def _exceeded(self, reason: str, method: str) -> LimitExceeded:
        return LimitExceeded(
            f"server {self._server!r}: sent too many requests ({reason}; last request: "
            f"{plain_text(method, limit=SHOWN)}); check whether it reads its input, or raise "
            "limits=Limits(max_requests=…)",
            server=self._server,
        )

    def _forget(self, request_id: RequestId) -> int:
        """Remove an unanswered request and return its size; 0 if the id is unknown."""
        key = coerce_request_id(request_id)  # as the SDK compares them
        sizes = self._unanswered.get(key)
        if sizes is None:
            return 0
        size = sizes.pop()
        if not sizes:
            del self._unanswered[key]
        self._count -= 1
        return size

    def sending(self, message: JSONRPCMessage) -> AbstractContextManager[None]:
        """Return the block in which a message is sent. A request earns more (`EARNED`), an answer settles one."""
        if isinstance(message, JSONRPCRequest):
            self.sent()
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            return self._answering(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            self.cancelled()
        return NOT_AN_ANSWER

    @contextmanager
    def _answering(self, request_id: RequestId) -> Iterator[None]:
        # While the answer is being written it is counted separately. The server may cancel its request meanwhile, which
        # forgets the id, but the SDK's task still waits in this block and must stay counted.
        size = self._forget(request_id)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._bytes -= size
