"""Connect to a legacy server in this process without memory streams.

Theory of operation
-------------------
The SDK connects a client and a server of the legacy era by two memory streams. A call takes eight steps of the event
loop: two for each read loop and for a relay between them, and those of the caller and the handler. A plain request
(see ``connection/_direct``) takes three:

- the step of its caller, or the one that frees an in-flight slot, parses its line and puts it into a queue;
- the read loop of the server starts the task of the handler;
- the step in which the handler has finished settles the message.

Messages of the session pass the same queue, so no message overtakes another. All that the server sends, except answers
to plain requests, goes to the session's read loop through a memory stream that holds one message, as in the SDK: a
server that sends without end waits for its reader.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
from attrs import define, field, frozen
from mcp.server.runner import serve_loop
from mcp.shared._context_streams import ContextSendStream, create_context_streams
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest

from ..basics import open_trace
from .wire import MessageReader, RequestTable, Stream

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.server import Server

    from ._link import Lifeline, OutgoingLine

SHUTDOWN_GRACE: Final = 2.0
"""Seconds for a server to leave its lifespan after its input has ended, as in the SDK's own transport."""


def _ignore() -> None:
    """Ignore that there is room: there always is."""


@define(eq=False, repr=False)
class MemoryPipe(MessageReader):
    """The messages to a server in this process. It is the `DirectPipe` of its link too.

    Attributes:
        last_context: the context variables of the sender of the last message, in which the SDK runs the handler.
    """

    table: RequestTable = field(factory=RequestTable, init=False)
    on_room: Callable[[], None] = field(default=_ignore, init=False)
    meta: bytes | None = field(default=None, init=False)
    last_context: Context | None = field(default=None, init=False)
    _queue: OrderedDict[object, tuple[Context, SessionMessage, OutgoingLine | None]] = field(
        factory=OrderedDict, init=False
    )
    _arrived: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot, init=False)
    closed: bool = field(default=False, init=False)

    @trio.lowlevel.enable_ki_protection
    def offer(self, line: OutgoingLine) -> bool:
        """See `DirectPipe.offer`."""
        if self.closed:
            return False
        # Here, where it fails one request: in the read loop of the server, it would end the connection.
        message = JSONRPCRequest.model_validate_json(line.line)
        open_trace()  # the handler runs in this context, but must not be taken for a part of its caller's own request
        self.put(line, SessionMessage(message), line)
        return True

    def collect(self, line: OutgoingLine) -> None:
        """See `DirectPipe.collect`."""
        self.put(line, SessionMessage(JSONRPCNotification.model_validate_json(line.line)), line)

    def put(self, key: object, message: SessionMessage, line: OutgoingLine | None = None) -> None:
        """Add a message, with the context variables of this step."""
        self._queue[key] = copy_context(), message, line
        self._arrived.unpark()

    def withdraw(self, line: OutgoingLine) -> None:
        """See `DirectPipe.withdraw`."""
        del self._queue[line]

    def withdraw_all(self) -> None:
        """See `DirectPipe.withdraw_all`."""
        for key, (_, _, line) in list(self._queue.items()):
            if line is not None:
                del self._queue[key]
                line.withdrawn()

    def count_request(self) -> None:
        """Do nothing: the requests of a server in this process are not limited."""

    def count_cancelled(self) -> None:
        """Do nothing, likewise."""

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could lose a message
    async def receive(self) -> SessionMessage:
        """Return the next message.

        Raises:
            anyio.EndOfStream: the pipe was closed.
        """
        if self._queue:  # a burst must not be a long step: the server starts a task for each message
            await trio.lowlevel.checkpoint()
        while not self._queue:
            if self.closed:
                raise anyio.EndOfStream
            await self._arrived.park()
        _, (self.last_context, message, line) = self._queue.popitem(last=False)
        if line is not None:
            line.sent = True
            line.written()
        return message

    async def aclose(self) -> None:
        """Take no more messages. Not a checkpoint: clean-up uses it."""
        self.closed = True
        self._arrived.unpark_all()


@frozen(eq=False)
class SessionWriter(Stream):
    """The writing stream of the client's session."""

    _pipe: MemoryPipe
    _lifeline: Lifeline

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message.

        Raises:
            anyio.ClosedResourceError: either side has closed the pipe.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._pipe.closed:
            raise anyio.ClosedResourceError
        self._pipe.put(object(), item)

    async def aclose(self) -> None:
        """End the input of the server."""
        self._lifeline.closing = True
        await self._pipe.aclose()


@frozen(eq=False)
class ServerWriter(Stream):
    """The writing stream of the server."""

    _table: RequestTable
    _session: ContextSendStream[SessionMessage | Exception]
    _lifeline: Lifeline

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could tear the tables of the actor
    async def send(self, item: SessionMessage, /) -> None:
        """Settle the plain request that a message answers, or pass the message to the session."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if _is_end(item.message):
            self._lifeline.lose()
        if not self._table.settle_message(item.message):
            await self._session.send(item)

    async def aclose(self) -> None:
        """End the input of the session."""
        self._session.close()


def _is_end(message: JSONRPCMessage) -> bool:
    """Return True if a server answers so because it ends before its handler; only the text says so."""
    return (
        isinstance(message, JSONRPCError)
        and message.error.code == CONNECTION_CLOSED
        and message.error.message == "Connection closed"
    )


@asynccontextmanager
async def connect_legacy(server: Server[Any], pipe: MemoryPipe, lifeline: Lifeline) -> AsyncIterator[TransportStreams]:
    """Serve one connection around a block, which gets the streams of the client."""
    to_client, client_reads = create_context_streams[SessionMessage | Exception](1)
    ended = trio.Event()

    async def serve() -> None:
        try:
            async with server.lifespan(server) as state:
                writer = ServerWriter(pipe.table, to_client, lifeline)
                await serve_loop(server, pipe, writer, lifespan_state=state)
        finally:
            to_client.close()
            ended.set()

    async with trio.open_nursery() as nursery, client_reads:
        nursery.start_soon(serve, name=f"{server.name}:in process")
        writer = SessionWriter(pipe, lifeline)
        try:
            yield client_reads, writer
        finally:
            await writer.aclose()
            with trio.move_on_after(SHUTDOWN_GRACE):
                await ended.wait()
            nursery.cancel_scope.cancel("the connection was left")
