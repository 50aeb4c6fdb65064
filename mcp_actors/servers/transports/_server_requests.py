"""Bound the requests that a server makes: the SDK starts a task for each of them, however many come.

One object per connection stands at both ends of the wire, whatever the transport. The stream that reads shows it every
request and notification before the session sees them; the stream that writes shows it every request and answer. A
server that exceeds a limit loses its connection. Neither reading more slowly nor refusing each request would do:
answers to our own requests come the same way, and a refusal has to be written to a server that may not read.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from mcp.shared.dispatcher import coerce_request_id
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from ..._errors import LimitExceeded
from ..._plain_text import plain_text

__all__ = ["HELD_BYTES", "ServerRequests"]

EARNED: Final = 10
"""Requests that a server may make for each that it is sent. A conversation needs one or two."""

A_SECOND: Final = 30
"""Requests that it may make in each second besides: a tool may have a model sample many texts. A flood has more."""

HELD_BYTES: Final = 64 * 1024 * 1024
"""What the unanswered requests of a server may take together, which is as much as one message may have by default."""

CANCELLED: Final = "notifications/cancelled"

NOT_AN_ANSWER: Final = nullcontext()

SHOWN: Final = 80
"""Characters of a method that an error shows."""


class ServerRequests:
    """Counts what one server asks over one connection, and what of it is not answered.

    Args:
        server: its name.
        limit: how many requests may be unanswered, and how many may come at once (``Limits.max_requests``).
    """

    def __init__(self, server: str, limit: int) -> None:
        self._server = server
        self._limit = limit
        self._credit = float(limit)
        self._credited = 0.0
        self._awaited = 0
        # A server may use an id twice. The sizes of its requests, by id.
        self._unanswered: defaultdict[RequestId, deque[int]] = defaultdict(deque)
        self._count = 0
        self._bytes = 0

    def receive(self, message: JSONRPCMessage, size: int, now: float) -> None:
        """Count a message of the server, if it is a request, or takes one back.

        Args:
            message: what it sends.
            size: how many bytes it has.
            now: Trio's time.

        Raises:
            LimitExceeded: it is one too many, and the connection has to end.
        """
        if isinstance(message, JSONRPCRequest):
            problem = self._problem(size, now)
            if problem is not None:
                raise self._exceeded(problem, message.method)
            self._unanswered[coerce_request_id(message.id)].append(size)
            self._count += 1
            self._bytes += size
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            request_id = (message.params or {}).get("requestId")
            if isinstance(request_id, int | str):
                self._bytes -= self._forget(request_id)

    def is_answer(self, message: JSONRPCMessage) -> bool:
        """Count a message of the server; return whether it may be the answer to a request that it was sent."""
        if not self._awaited or not isinstance(message, JSONRPCResponse | JSONRPCError):
            return False
        self._awaited -= 1
        return True

    def _problem(self, size: int, now: float) -> str | None:
        self._credit = min(self._limit, self._credit + (now - self._credited) * A_SECOND) - 1
        self._credited = now
        if self._credit < 0:
            return (
                f"more than {self._limit} at once, {A_SECOND} a second and {EARNED} for each request that it was sent"
            )
        if self._count >= self._limit:
            return f"{self._limit} of them are unanswered"
        if self._bytes and self._bytes + size > HELD_BYTES:
            return f"those that are unanswered have more than {HELD_BYTES} bytes"
        return None

    def _exceeded(self, problem: str, method: str) -> LimitExceeded:
        return LimitExceeded(
            f"server {self._server!r}: sent too many requests of its own: {problem} (limit: {self._limit}; the last "
            f"one: {plain_text(method, limit=SHOWN)}); check whether it reads its input, or raise "
            "limits=Limits(max_requests=…) if it may ask so much",
            server=self._server,
        )

    def _forget(self, request_id: RequestId) -> int:
        """Count a request no more, and return its size; 0 if there is none."""
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
        """Return a block in which a message is sent to the server: a request earns it some, an answer settles one."""
        if isinstance(message, JSONRPCRequest):
            self._credit += EARNED
            self._awaited += 1
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            return self._answering(message.id)
        return NOT_AN_ANSWER

    @contextmanager
    def _answering(self, request_id: RequestId) -> Iterator[None]:
        # While it is sent it counts by itself: the server may take the request back, and the SDK's task waits on.
        size = self._forget(request_id)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._bytes -= size
