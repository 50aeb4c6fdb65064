"""Connect to a legacy server in this process without memory streams.

Theory of operation
-------------------
The SDK connects a client and a server of the legacy era by two memory streams. A call takes eight steps of the event
loop: two for each read loop and for a relay between them, and those of the caller and the handler. Here it takes three:

- the step of its caller, or the one that frees an in-flight slot, puts it into a queue;
- the read loop of the server starts the task of the handler;
- the step in which the handler has finished settles the request.

All messages to the server pass the same queue, so no message overtakes another. There is no queue in the other
direction: the step in which the server sends a message also handles it, in the context variables of the handler that
sends it. A server that sends without end yields to other tasks after each message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
from attrs import define, field
from mcp import MCPError
from mcp.server.runner import serve_loop
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest

from ..basics import open_trace
from ._link import Lifeline, Link
from .wire import CLOSED, Exchange, MessageReader, MessageWriter, RequestTable, wait_for_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server import Server

    from .wire import Json, OutgoingLine, Receive, Unanswered

SHUTDOWN_GRACE: Final = 2.0
"""Seconds for a server to leave its lifespan after its input has ended, as in the SDK's own transport."""


def _ignore() -> None:
    """Ignore that there is room: there always is."""


@define(eq=False, repr=False)
class MemoryPipe(MessageReader):
    """The messages to a server in this process. It is the `Pipe` of its link too.

    Attributes:
        last_context: the context variables of the sender of the last message, in which the SDK runs the handler.
    """

    table: RequestTable = field(factory=RequestTable, init=False)
    on_room: Callable[[], None] = field(default=_ignore, init=False)
    last_context: Context | None = field(default=None, init=False)
    _queue: OrderedDict[object, tuple[Context, SessionMessage, OutgoingLine | None]] = field(
        factory=OrderedDict, init=False
    )
    _arrived: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot, init=False)
    closed: bool = field(default=False, init=False)

    @trio.lowlevel.enable_ki_protection
    def offer(self, line: OutgoingLine) -> bool:
        """See `Pipe.offer`."""
        if self.closed:
            return False
        # Here, where it fails one request: in the read loop of the server, it would end the connection.
        message = JSONRPCRequest.model_validate_json(line.line)
        open_trace()  # the handler runs in this context, but must not be taken for a part of its caller's own request
        self.put(line, SessionMessage(message), line)
        return True

    async def exchange(self, request: Exchange) -> Json:
        """Send a request as an object, and wait for its answer. See `Link.exchange`.

        Raises:
            mcp.MCPError: the answer is an error, or the connection has ended.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.closed:
            raise MCPError.from_error_data(CLOSED)
        self.put(request, SessionMessage(JSONRPCRequest(**request.message)), request)
        return await wait_for_answer(self, request)

    def collect(self, line: OutgoingLine) -> None:
        """See `Pipe.collect`."""
        if self.closed:
            line.withdrawn()
            return
        self.put(line, SessionMessage(JSONRPCNotification.model_validate_json(line.line)), line)

    def put(self, key: object, message: SessionMessage, line: OutgoingLine | None = None) -> None:
        """Add a message, with the context variables of this step."""
        self._queue[key] = copy_context(), message, line
        self._arrived.unpark()

    def withdraw(self, line: OutgoingLine) -> None:
        """See `Pipe.withdraw`."""
        del self._queue[line]

    def withdraw_all(self) -> None:
        """See `Pipe.withdraw_all`."""
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


class LegacyServerLink(Link):
    """A link to a server object that is served as in the legacy era. It is the server's writing stream too."""

    def __init__(self, server: Server[Any], lifeline: Lifeline) -> None:
        super().__init__(lifeline)
        self.endpoint = f"the in-process server {server.name!r}"
        self._server = server
        self._pipe = self.direct = MemoryPipe()
        self.table: RequestTable = self._pipe.table
        self._receive: Receive | None = None
        self._ended = trio.Event()

    async def exchange(self, request: Exchange, receive: Receive) -> Json:
        """See `Link.exchange`."""
        return await self._pipe.exchange(request)

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """See `Link.send`."""
        await trio.lowlevel.checkpoint()
        if self._pipe.closed:
            raise MCPError.from_error_data(CLOSED)
        self._pipe.put(object(), SessionMessage(message))

    async def read(self, receive: Receive) -> None:
        """See `Link.read`. The messages are passed on by the tasks of the server."""
        self._receive = receive
        await self._ended.wait()

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could tear the tables of the actor
    async def take(self, message: JSONRPCMessage) -> None:
        """Settle the request that a message of the server answers, or pass the message on."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if _is_end(message):
            self._lifeline.lose()
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            if self._receive is not None:
                await self._receive(message)
            await trio.lowlevel.checkpoint()
        else:
            self.table.settle_message(message)

    async def serve(self) -> None:
        """Serve the connection until its input ends."""
        try:
            async with self._server.lifespan(self._server) as state:
                await serve_loop(self._server, self._pipe, ServerWriter(self), lifespan_state=state)
            self._lifeline.lose()  # unless this side is closing; without it, a call that waits would wait for ever
        finally:
            self._pipe.closed = True
            self._pipe.withdraw_all()
            self._ended.set()

    async def close(self) -> None:
        """End the input of the server, and wait until it has left its lifespan, but at most `SHUTDOWN_GRACE`."""
        self._lifeline.closing = True
        await self._pipe.aclose()
        with trio.move_on_after(SHUTDOWN_GRACE):
            await self._ended.wait()


@define(eq=False)
class ServerWriter(MessageWriter):
    """The writing stream of a server."""

    _link: LegacyServerLink

    async def send(self, item: SessionMessage, /) -> None:
        """See `LegacyServerLink.take`."""
        await self._link.take(item.message)

    async def aclose(self) -> None:
        """Do nothing: the end of `LegacyServerLink.serve` ends the connection."""


def _is_end(message: JSONRPCMessage) -> bool:
    """Return True if a server answers so because it ends before its handler; only the text says so."""
    return (
        isinstance(message, JSONRPCError)
        and message.error.code == CONNECTION_CLOSED
        and message.error.message == "Connection closed"
    )


@asynccontextmanager
async def open_legacy_link(server: Server[Any], lifeline: Lifeline) -> AsyncIterator[LegacyServerLink]:
    """Serve one connection around a block."""
    link = LegacyServerLink(server, lifeline)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.serve, name=f"{server.name}:in process")
        try:
            yield link
        finally:
            await link.close()
            nursery.cancel_scope.cancel("the connection was left")
