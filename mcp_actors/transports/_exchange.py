"""Limit a server's requests; define the `Pipe` and the message streams.

Each request by a server starts a task, so `IncomingRequests` limits floods. `exchange_lines` sends a request through a
`Pipe`; the hard case is a cancellation after the server may have read the request.

Owns: counters of requests; message streams.
Writes: lines to the pipe; the request table.
Calls: _request_table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import anyio
import trio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from .._errors import LimitExceeded
from .._text import plain_text
from ._request_table import CANCELLED, Json, RequestTable, RequestUnderWay, comparable_id, notice_of

# --- Limit the requests that a server makes ---------------------------------------------------------------------------

# One counter per connection sees every received request and notification before the session does, and every sent
# request and response. A server over a limit loses its connection, because milder ways fail: slower reading delays
# the server's responses too, and refusals never reach a server that does not read.


EARNED: Final = 10
"""Requests that a server may make for each request sent to it. Ordinary servers make one or two."""

REQUESTS_A_SECOND: Final = 30
"""Requests that a server may make per second in addition: one tool call may ask for many samples."""

HELD_BYTES: Final = 64 * 1024 * 1024
"""Maximum total size of a server's unanswered requests. Equals the default limit of one message."""

MAX_LATE_ANSWERS: Final = 100
"""Maximum late answers (to cancelled requests) that count as expected. MCP advises servers against late answers."""

NOT_AN_ANSWER: Final = nullcontext()

SHOWN_TEXT: Final = 80
"""Maximum characters of a server's text in an error, such as a method."""


class IncomingRequests:
    """Counts the requests of one server over one connection.

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
        # By id. A server may use an id twice, so each id has a queue of sizes.
        self._unanswered: defaultdict[RequestId, deque[int]] = defaultdict(deque)
        self._count = 0
        self._bytes = 0

    def receive(self, message: JSONRPCMessage, size: int, now: float) -> None:
        """Count a message of `size` bytes if it is a request or cancels one.

        Raises:
            LimitExceeded: the connection has to end.
        """
        if isinstance(message, JSONRPCRequest):
            if (reason := self._excess(size, now)) is not None:
                last = plain_text(message.method, limit=SHOWN_TEXT)
                what = f"server {self._server!r}: sent too many requests ({reason}; last request: {last})"
                remedy = "check whether it reads its input, or raise limits=Limits(max_requests=…)"
                raise LimitExceeded(f"{what}; {remedy}", server=self._server)
            self._unanswered[coerce_request_id(message.id)].append(size)
            self._count += 1
            self._bytes += size
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            request_id = comparable_id((message.params or {}).get("requestId"))
            if request_id is not None:
                self._bytes -= self._forget(request_id)

    @property
    def awaits_answer(self) -> bool:
        return self._awaited > 0

    def count_sent(self) -> None:
        """Count a request to the server, which may send `EARNED` more in return."""
        self._credit += EARNED
        self._awaited += 1

    def count_cancelled(self) -> None:
        """Count a request that the server is asked to cancel. A late answer may come."""
        if self._awaited:
            self._awaited -= 1
            self._late = min(self._late + 1, MAX_LATE_ANSWERS)

    def count_answered(self) -> bool:
        """Count an answer of the server. Return False if no request is waiting for one."""
        if self._awaited:
            self._awaited -= 1
        elif self._late:
            self._late -= 1
        else:
            return False
        return True

    def _excess(self, size: int, now: float) -> str | None:
        self._credit = min(self._limit, self._credit + (now - self._credited) * REQUESTS_A_SECOND) - 1
        self._credited = now
        if self._credit < 0:
            return (
                f"limit: {self._limit} at once, {REQUESTS_A_SECOND} per second and {EARNED} for each request sent to it"
            )
        if self._count >= self._limit:
            return f"limit: {self._limit} unanswered requests"
        if self._bytes and self._bytes + size > HELD_BYTES:
            return f"limit: {HELD_BYTES} bytes of unanswered requests"
        return None

    def _forget(self, request_id: RequestId) -> int:
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
        """Return the block in which a message is sent, counted by its kind."""
        if isinstance(message, JSONRPCRequest):
            self.count_sent()
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            return self._answering(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            self.count_cancelled()
        return NOT_AN_ANSWER

    @contextmanager
    def _answering(self, request_id: RequestId) -> Iterator[None]:
        # While the answer is written, count the request without its id, or a cancellation by the server would uncount
        # the request while the SDK's task still waits in this block. Such tasks could fill the memory.
        size = self._forget(request_id)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._bytes -= size


# --- A request that a task sends and whose answer it waits for --------------------------------------------------------


NOTICE_WAIT: Final = 5.0
"""Maximum seconds that a cancelled task waits until the server is asked to cancel, as in the SDK."""

Unasked: TypeAlias = JSONRPCRequest | JSONRPCNotification
"""A message of the server that is not an answer."""

Unanswered: TypeAlias = JSONRPCNotification | JSONRPCResponse | JSONRPCError
"""A message without an answer, to the server."""

Receive: TypeAlias = Callable[[Unasked], Coroutine[Any, Any, None]]
"""Takes an unsolicited message. Has no checkpoint and never raises."""


class OutgoingLine(Protocol):
    """A line that waits to be written to a pipe.

    Attributes:
        sent: written by the pipe. None before the first byte was offered to the server, then False, and True once all
            was written.
    """

    sent: bool | None

    @property
    def line(self) -> bytes:
        """The line with its newline."""

    def withdrawn(self) -> object:
        """Note that the connection ends before the line was written. Never raises."""


class CancelLine:
    """The line that asks the server to cancel a request.

    Args:
        request_id: the request.
        done: called once, when the line was begun or the connection ends.
    """

    __slots__ = ("line", "sent", "withdrawn")

    def __init__(self, request_id: RequestId, done: Callable[[], object]) -> None:
        self.withdrawn: Callable[[], object] = done
        self.sent: bool | None = None
        self.line: bytes = notice_of(request_id).model_dump_json(exclude_none=True).encode() + b"\n"


class Pipe(Protocol):
    """Writes lines in the step of the caller.

    Attributes:
        table: the sent requests, by id.
        on_room: called when there is room again after `offer` has refused a line.
    """

    table: RequestTable
    on_room: Callable[[], None]

    def offer(self, line: OutgoingLine) -> bool:
        """Write a request at once, or with all lines of this tick. Return False if the pipe has no room.

        Until begun (see ``sent``), the line may be withdrawn. After a False, `on_room` is called once there is room; if
        the server is gone, the connection is marked as lost soon instead.

        Raises:
            ValueError: a server in this process cannot parse the line, which is nested too deeply or has too long a
                number.
        """

    def begin(self, request: RequestUnderWay) -> None:
        """Write or collect a request that has an in-flight slot, before all later requests."""

    def collect(self, line: OutgoingLine) -> None:
        """Write a line with all lines of this tick, or as soon as the pipe has room."""

    def withdraw(self, line: OutgoingLine) -> None:
        """Drop an unwritten line."""

    def withdraw_all(self) -> None:
        """Withdraw all unwritten lines."""


async def exchange_lines(pipe: Pipe, request: RequestUnderWay) -> Json:
    """Write a request to a pipe, wait, and return the result. See `Link.exchange`."""
    await trio.lowlevel.checkpoint_if_cancelled()
    pipe.begin(request)
    try:
        return await request.wait()
    except trio.Cancelled:
        if request.sent is None:
            pipe.withdraw(request)
        elif request.cancellable:
            # The request leaves the table first, so a later answer is dropped. The task keeps its slot until the notice
            # is written, or notices would pile up behind a full pipe: only slots limit collected lines. The task is
            # cancelled already, so only a shield lets it wait, for a limited time: a frozen server never makes room.
            pipe.table.remove(request.id)
            done = trio.Event()
            pipe.collect(CancelLine(request.id, done.set))
            with trio.move_on_after(NOTICE_WAIT, shield=True):
                await done.wait()
        raise


# --- Base classes for the message streams of the SDK's servers --------------------------------------------------------


Messages: TypeAlias = AsyncIterable[SessionMessage | Exception]
"""Incoming messages, with an exception in place of an invalid message."""


class ClosingStream(ABC):
    """A stream that is closed on leaving its ``async with`` block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the stream. Closing twice does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class MessageReader(ClosingStream):
    """An asynchronous iterator of incoming messages."""

    @abstractmethod
    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            anyio.EndOfStream: the other side sends no more messages.
            anyio.ClosedResourceError: this stream was closed.
        """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class MessageWriter(ClosingStream):
    @abstractmethod
    async def send(self, item: SessionMessage, /) -> None:
        """Send a message.

        Raises:
            anyio.BrokenResourceError: the other side reads no more.
            anyio.ClosedResourceError: this stream was closed.
        """


class ContextReader(MessageReader):
    """Messages that carry the context variables of their senders.

    Attributes:
        last_context: the context variables of the last sender, in which the SDK handles the message.
    """

    def __init__(self, inner: MemoryObjectReceiveStream[tuple[Context, SessionMessage | Exception]]) -> None:
        self._inner = inner
        self.last_context: Context | None = None

    async def receive(self) -> SessionMessage | Exception:
        self.last_context, item = await self._inner.receive()
        return item

    async def aclose(self) -> None:
        self._inner.close()
