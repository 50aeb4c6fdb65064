"""Limit the requests of a server; the interfaces of pipes and streams.

`IncomingRequests` counts the requests of a server and the answers that it owes, and raises `LimitExceeded` if there are
too many requests. A `Pipe` writes an `OutgoingLine`, such as a request or the `CancelLine`; `exchange_lines` sends a
request through one, and waits in the task of its caller. If that is cancelled and the server may have read the request,
it waits up to five seconds more for the notice to the server, unless the request is not `cancellable`. `MessageReader`
and `MessageWriter` are base classes of the message streams of the SDK's servers, and `ContextReader` is a reader.

All links use it; the bridge and `mcp_actors.testing` use the streams. It starts no task and opens nothing: a link or a
`Pipe` writes. It uses the requests under way, their table, and no other file of `transports`.
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

# The session starts a task for each of them. Each connection has one counter, whatever its transport. What reads
# passes it every request and notification before the session sees them; what writes passes it every request and
# response. A server that exceeds a limit loses its connection. Reading more slowly would delay the responses to our own
# requests, which arrive in the same stream. Refusing each request would mean to write to a server that may not read.


EARNED: Final = 10
"""Further requests that a server may make for each request that it is sent. Ordinary ones need one or two."""

A_SECOND: Final = 30
"""Further requests per second: one tool call may ask for many samples. A flood has more."""

HELD_BYTES: Final = 64 * 1024 * 1024
"""Total size of the unanswered requests of a server: as much as one message may have by default."""

LATE: Final = 100
"""Requests that were cancelled and may be answered all the same. Some servers do so; the specification advises
against it, so without a limit their number would grow for the life of a connection."""

NOT_AN_ANSWER: Final = nullcontext()

SHOWN: Final = 80
"""Maximum characters of a short text of the server, such as a method or a content type, that an error shows."""


class IncomingRequests:
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


# --- A request that a task sends and whose answer it waits for --------------------------------------------------------


NOTICE_WAIT: Final = 5.0
"""Maximum seconds in which a cancelled request waits for room in the pipe, as in the SDK."""

Unasked: TypeAlias = JSONRPCRequest | JSONRPCNotification
"""A message of the server that is not an answer."""

Unanswered: TypeAlias = JSONRPCNotification | JSONRPCResponse | JSONRPCError
"""A message to the server that it does not answer."""

Receive: TypeAlias = Callable[[Unasked], Coroutine[Any, Any, None]]
"""Takes a message that the server sends unasked. It has no checkpoint and never raises."""


class OutgoingLine(Protocol):
    """A line that waits to be written to a pipe.

    Attributes:
        sent: set by the pipe: to False once its first byte was offered to the server, which may read it, and to True
            once all of it was written. None before.
    """

    sent: bool | None

    @property
    def line(self) -> bytes:
        """The line with its newline."""

    def withdrawn(self) -> object:
        """Note that it is not written, because the connection ends. Never raises."""


class CancelLine:
    """The line that asks the server to cancel a request.

    Args:
        request_id: the request.
        done: called once when the line was begun, or the connection has ended.
    """

    __slots__ = ("line", "sent", "withdrawn")

    def __init__(self, request_id: RequestId, done: Callable[[], object]) -> None:
        self.withdrawn = done
        self.sent: bool | None = None
        self.line: bytes = notice_of(request_id).model_dump_json(exclude_none=True).encode() + b"\n"


class Pipe(Protocol):
    """Writes lines in the step of the caller.

    Attributes:
        table: the requests that were sent, by id.
        on_room: called when a line can be offered again after `offer` has refused one.
    """

    table: RequestTable
    on_room: Callable[[], None]

    def offer(self, line: OutgoingLine) -> bool:
        """Write a request at once, or with all lines of this tick. Return False if the pipe has no room for it.

        Until it has begun (``sent``), the line may be withdrawn. After a False, `on_room` is called once there is room.
        If the server is gone this returns False too, and the connection is marked as lost soon.

        Raises:
            ValueError: the server is in this process, and the line is nested too deeply or has too long a number to be
                parsed.
        """

    def begin(self, request: RequestUnderWay) -> None:
        """Write a request that has a slot already, which no later one may overtake."""

    def collect(self, line: OutgoingLine) -> None:
        """Write a line with all lines of this tick, or as soon as the pipe has room."""

    def withdraw(self, line: OutgoingLine) -> None:
        """Drop a line that was offered and is not yet written."""

    def withdraw_all(self) -> None:
        """Withdraw all lines that were not written."""


async def exchange_lines(pipe: Pipe, request: RequestUnderWay) -> Json:
    """Write a request to a pipe, wait for its answer, and return the result. See `Link.exchange`."""
    await trio.lowlevel.checkpoint_if_cancelled()
    pipe.begin(request)
    try:
        return await request.wait()
    except trio.Cancelled:
        if request.sent is None:
            pipe.withdraw(request)
        elif request.cancellable:
            # Its slot is free once that is written. A later answer is dropped. The task is cancelled, hence the shield.
            pipe.table.remove(request.id)
            done = trio.Event()
            pipe.collect(CancelLine(request.id, done.set))
            with trio.move_on_after(NOTICE_WAIT, shield=True):
                await done.wait()
        raise


# --- Base classes for the message streams of the SDK's servers --------------------------------------------------------


Messages: TypeAlias = AsyncIterable[SessionMessage | Exception]
"""Incoming messages. What is not a message is an exception."""


class Stream(ABC):
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


class MessageReader(Stream):
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


class MessageWriter(Stream):
    """Sends outgoing messages."""

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
        last_context: the context variables of the sender of the last message, in which the SDK handles it.
    """

    def __init__(self, inner: MemoryObjectReceiveStream[tuple[Context, SessionMessage | Exception]]) -> None:
        self._inner = inner
        self.last_context: Context | None = None

    async def receive(self) -> SessionMessage | Exception:
        """See `MessageReader.receive`."""
        self.last_context, item = await self._inner.receive()
        return item

    async def aclose(self) -> None:
        """Stop reading."""
        self._inner.close()
