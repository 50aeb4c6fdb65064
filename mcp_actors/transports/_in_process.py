"""The links to a server object in this process.

| server | link | handler runs in |
|---|---|---|
| modern | `CalledServerLink` | the caller's task |
| legacy | `LegacyServerLink` | a task of its own |
| on another event loop | `StreamsLink` | that loop |

These links limit neither the size of messages nor the number of requests.

Owns: queued messages; lifespans of servers; tasks of legacy servers.
Writes: messages to servers; answers to requests; the connection's state; the log.
Calls: config, _exchange, _link, _request_table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
from attrs import define, field
from mcp import MCPError
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.runner import modern_on_request, serve_loop
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic_core import ValidationError

from .._collapse import is_failure
from .._foreign import Log
from .._text import plain_text
from ..config import InProcess, ServerConfig
from ._exchange import NOTICE_WAIT, CancelLine, MessageReader, MessageWriter
from ._link import Lifeline, Link, not_open
from ._request_table import CLOSED, Json, RequestTable, RequestUnderWay, ignore, notice_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from mcp.shared.dispatcher import CallOptions, OnRequest
    from mcp.types import RequestId

    from ._exchange import Messages, OutgoingLine, Receive, Unanswered


# --- Connect to a modern server in this process by calling its handler ------------------------------------------------

# A notification is handled in the step in which the handler sends it, in the handler's context variables. A
# cancellation of the caller reaches the handler.


logger = Log("mcp_actors.servers")

DIRECT: Final = TransportContext(kind="direct", can_send_request=False)
"""The SDK's description of a direct call. A modern server sends no requests."""


class CalledServerLink(Link):
    """A link to a server object whose handler runs in the task of the caller."""

    traced = False

    def __init__(self, name: str, endpoint: str, handle: OnRequest, lifeline: Lifeline) -> None:
        super().__init__(lifeline)
        self.endpoint = endpoint
        self._name = name
        self._handle = handle

    async def exchange(self, request: RequestUnderWay, receive: Receive) -> Json:
        request.sent = True
        try:
            return await self._handle(_DispatchedRequest(request, receive), request.method, request.params)
        except MCPError:
            raise
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
            problem = f"at {'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg'].lower()}"
            raise MCPError(INVALID_PARAMS, plain_text(f"Invalid request parameters: {problem}"), "") from exc
        except Exception:
            logger.exception("server %r: its handler of %s raised", self._name, request.method)
            raise MCPError(INTERNAL_ERROR, "Internal server error") from None
        except BaseException as exc:
            if not is_failure(exc):
                raise
            # For example asyncio's CancelledError, which would end the connection and all its other requests.
            reason = f"the in-process server raised {type(exc).__name__}: {exc}"
            raise MCPError(INTERNAL_ERROR, reason) from self.masker.clean(exc)

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """Drop a message: a modern server takes requests only."""
        await trio.lowlevel.checkpoint()

    async def read(self, receive: Receive) -> None:
        """Wait for ever: the server sends nothing outside of an exchange."""
        await trio.sleep_forever()


class _DispatchedRequest:
    """The `DispatchContext` of one request, by which a handler sees its caller."""

    __slots__ = ("_receive", "_request")

    transport: TransportContext = DIRECT
    can_send_request: bool = False
    message_metadata: None = None

    def __init__(self, request: RequestUnderWay, receive: Receive) -> None:
        self._request = request
        self._receive = receive

    @property
    def request_id(self) -> RequestId | None:
        return self._request.id

    @property
    def cancel_requested(self) -> anyio.Event:
        """An event that is never set: the cancellation reaches the handler itself."""
        return anyio.Event()

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could damage the tables of the actor
    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Pass a notification on. A checkpoint, because a handler may send without end."""
        await trio.lowlevel.checkpoint()
        await self._receive(
            JSONRPCNotification(jsonrpc="2.0", method=method, params=None if params is None else dict(params))
        )

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Refuse: a modern server returns its questions instead of an answer."""
        raise NoBackChannelError(method)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if (token := self._request.params.get("_meta", {}).get("progressToken")) is None:
            return
        report = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {key: each for key, each in report.items() if each is not None})


@asynccontextmanager
async def open_called_link(name: str, server: Server[Any], lifeline: Lifeline) -> AsyncIterator[CalledServerLink]:
    async with server.lifespan(server) as state:
        endpoint = f"the in-process server {server.name!r}"
        yield CalledServerLink(name, endpoint, modern_on_request(server, state), lifeline)


# --- Connect to a legacy server in this process without memory streams ------------------------------------------------

# Theory of operation
# -------------------
# Over the SDK's two memory streams, a call takes eight steps of the event loop. Here three are enough:
#
# - the caller, or the step that frees an in-flight slot, puts the request into a queue;
# - the read loop of the server starts the task of the handler;
# - the step in which the handler finishes settles the request.
#
# One queue has all messages to the server, so none overtakes another. The other direction needs no queue: the step that
# sends a message also handles it, in the context variables of the handler, and then yields to other tasks.


SHUTDOWN_GRACE: Final = 2.0
"""Seconds for a server to leave its lifespan after its input has ended, as in the SDK."""


@define(eq=False, repr=False)
class MemoryPipe(MessageReader):
    """The messages to a server in this process: a reading stream like `ContextReader`, and the `Pipe` of the link."""

    table: RequestTable = field(factory=RequestTable)
    on_room: Callable[[], None] = field(default=ignore, init=False)  # there always is room
    last_context: Context | None = field(default=None, init=False)
    _queue: OrderedDict[object, tuple[Context, SessionMessage, OutgoingLine | None]] = field(
        factory=OrderedDict, init=False
    )
    _arrived: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot, init=False)
    closed: bool = field(default=False, init=False)

    @trio.lowlevel.enable_ki_protection
    def offer(self, line: OutgoingLine) -> bool:
        if self.closed:
            return False
        # Parse here, where a failure concerns one request. In the server's read loop, it would end the connection.
        message = JSONRPCRequest.model_validate_json(line.line)
        self.put(line, SessionMessage(message), line)
        return True

    def begin(self, request: RequestUnderWay) -> None:
        if self.closed:
            request.settle(CLOSED)
        else:
            self.put(request, SessionMessage(JSONRPCRequest(**request.message)), request)

    def collect(self, line: OutgoingLine) -> None:
        if self.closed:
            line.withdrawn()
            return
        self.put(line, SessionMessage(JSONRPCNotification.model_validate_json(line.line)), line)

    def put(self, key: object, message: SessionMessage, line: OutgoingLine | None = None) -> None:
        """Add a message, with the context variables of this step."""
        self._queue[key] = copy_context(), message, line
        self._arrived.unpark()

    def withdraw(self, line: OutgoingLine) -> None:
        del self._queue[line]

    def withdraw_all(self) -> None:
        for key, (_, _, line) in list(self._queue.items()):
            if line is not None:
                del self._queue[key]
                line.withdrawn()

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could lose a message
    async def receive(self) -> SessionMessage:
        if self._queue:  # or a burst would be one long step: each message starts a task
            await trio.lowlevel.checkpoint()
        while not self._queue:
            if self.closed:
                raise anyio.EndOfStream
            await self._arrived.park()
        _, (self.last_context, message, line) = self._queue.popitem(last=False)
        if line is not None:
            line.sent = True
        if isinstance(line, CancelLine):
            line.withdrawn()
        return message

    async def aclose(self) -> None:
        """Take no more messages. Not a checkpoint: clean-up calls this."""
        self.closed, self.on_room = True, ignore
        self._arrived.unpark_all()


class LegacyServerLink(Link):
    """A link to a server object that is served as in the legacy era. The server writes to the link."""

    def __init__(self, server: Server[Any], lifeline: Lifeline) -> None:
        super().__init__(lifeline)
        self.endpoint = f"the in-process server {server.name!r}"
        self._server = server
        self._pipe = self.direct = MemoryPipe(self.table)
        self._receive: Receive | None = None
        self._ended = trio.Event()

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        await trio.lowlevel.checkpoint()
        if self._pipe.closed:
            raise MCPError.from_error_data(CLOSED)
        self._pipe.put(object(), SessionMessage(message))

    async def read(self, receive: Receive) -> None:
        """See `Link.read`. Tasks of the server pass the messages on."""
        self._receive = receive
        try:
            await self._ended.wait()
        finally:
            self._receive = None

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could damage the tables of the actor
    async def take(self, message: JSONRPCMessage) -> None:
        """Settle a request with its answer, or pass the message on."""
        await trio.lowlevel.checkpoint_if_cancelled()
        error = message.error if isinstance(message, JSONRPCError) else None
        if error is not None and (error.code, error.message) == (CLOSED.code, CLOSED.message):
            self.lifeline.lose()  # this text is the answer of a server that ends before its handler
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            if self._receive is not None:
                await self._receive(message)
            await trio.lowlevel.checkpoint()
        else:
            self.table.settle_message(message)

    async def serve(self) -> None:
        writer = ServerWriter(self)
        try:
            async with self._server.lifespan(self._server) as state:
                await serve_loop(self._server, self._pipe, writer, lifespan_state=state)
            self.lifeline.lose()  # or a call would wait for ever; does nothing if this side is closing
        finally:
            self._pipe.closed, writer.link = True, None  # the SDK's server is cyclic garbage that refers to both
            self._pipe.withdraw_all()
            self._ended.set()

    async def close(self) -> None:
        """End the input of the server, and wait up to `SHUTDOWN_GRACE` for the end of its lifespan."""
        self.lifeline.close()
        await self._pipe.aclose()
        with trio.move_on_after(SHUTDOWN_GRACE):
            await self._ended.wait()


@define(eq=False)
class ServerWriter(MessageWriter):
    link: LegacyServerLink | None

    async def send(self, item: SessionMessage, /) -> None:
        if self.link is not None:
            await self.link.take(item.message)

    async def aclose(self) -> None:
        """Do nothing: the end of `LegacyServerLink.serve` ends the connection."""


@asynccontextmanager
async def open_legacy_link(server: Server[Any], lifeline: Lifeline) -> AsyncIterator[LegacyServerLink]:
    link = LegacyServerLink(server, lifeline)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.serve, name=f"{server.name}:in process")
        try:
            yield link
        finally:
            await link.close()
            nursery.cancel_scope.cancel("the connection was left")


# --- The link to a server on another event loop of this process -------------------------------------------------------


GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError)
"""Raised by a stream whose other side has ended."""


class StreamsLink(Link):
    """A link over two streams, not closed here. Messages are handled in the reader's ``last_context``, if present."""

    def __init__(self, endpoint: str, reader: Messages, writer: MessageWriter, lifeline: Lifeline) -> None:
        super().__init__(lifeline)
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._malformed = 0

    @property
    def malformed_lines(self) -> int:
        return self._malformed

    async def exchange(self, request: RequestUnderWay, receive: Receive) -> Json:
        await trio.lowlevel.checkpoint_if_cancelled()
        # Mark the request before the write: an early answer would be dropped, and a cancelled write may have written.
        # After a cancellation only a shield lets this task send the notice, bounded because the other event loop may be
        # stuck.
        request.sent = True
        try:
            await self._write(JSONRPCRequest(**request.message))
            return await request.wait()
        except trio.Cancelled:
            if request.cancellable:
                self.table.remove(request.id)
                with trio.move_on_after(NOTICE_WAIT, shield=True), suppress(MCPError):
                    await self.send(notice_of(request.id))
            raise

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        await self._write(message)

    async def _write(self, message: JSONRPCRequest | Unanswered) -> None:
        try:
            await self._writer.send(SessionMessage(message))
        except GONE:
            raise MCPError.from_error_data(CLOSED) from None

    async def read(self, receive: Receive) -> None:
        try:
            async for item in self._reader:
                if isinstance(item, Exception):
                    self._malformed += 1
                    logger.debug("%s: skipped what is not a message: %s", self.endpoint, item)
                    continue
                message = item.message
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self.table.settle_message(message)
                else:
                    context: Context = getattr(self._reader, "last_context", None) or copy_context()
                    context.run(_finish, receive(message))
        except GONE:
            return


def _finish(handling: Awaitable[None]) -> None:
    try:
        next(handling.__await__())
    except StopIteration:
        return
    raise RuntimeError("receiving a message took more than one step")


class ElsewhereServer(ABC):
    """A server in this process on another event loop. `name` is the name of the server itself."""

    name: str

    @abstractmethod
    def connect(self, on_lost: Callable[[], None]) -> AbstractAsyncContextManager[tuple[Messages, MessageWriter]]:
        """Serve one connection for the duration of a block, which gets the streams of the client.

        Args:
            on_lost: called synchronously if the server ends the connection before the block does.
        """


# --- Open the link that fits a server object --------------------------------------------------------------------------


def lowlevel(server: Server[Any] | MCPServer) -> Server[Any]:
    """Return the server inside an `MCPServer`, for which the SDK has no public name; any other server unchanged.

    Raises:
        RuntimeError: an `MCPServer` of this version of the SDK has no such server.
    """
    if not isinstance(server, MCPServer):
        return server
    inner = getattr(server, "_lowlevel_server", None)
    if not isinstance(inner, Server):
        raise RuntimeError(
            "an MCPServer of this version of mcp has no `_lowlevel_server`; give InProcess() an mcp.server.Server, or "
            "install another version of mcp"
        )
    return inner


@asynccontextmanager
async def _open_streams_link(server: ElsewhereServer, lifeline: Lifeline) -> AsyncIterator[StreamsLink]:
    async with server.connect(lifeline.lose) as (reader, writer):
        try:
            yield StreamsLink(f"the in-process server {server.name!r}", reader, writer, lifeline)
        finally:
            lifeline.close()


def open_in_process_link(
    config: ServerConfig, transport: InProcess, *, on_lost: Callable[[], None]
) -> AbstractAsyncContextManager[Link]:
    """Open a link to the configured object. Leaving waits for the end of the server's lifespan.

    After `SHUTDOWN_GRACE`, the lifespan of a legacy server is cancelled.

    Raises:
        ConnectFailed: the object is not a server.
    """
    server: object = transport.server  # not all programs are type-checked
    lifeline = Lifeline(on_lost)
    if isinstance(server, ElsewhereServer):
        return _open_streams_link(server, lifeline)
    if not isinstance(server, Server | MCPServer):
        problem = f"the argument of InProcess() is not a server (type: {type(server).__name__})"
        raise not_open(config.name, f"{problem}; pass an mcp.server.MCPServer or mcp.server.Server", "configure")
    if config.protocol == "legacy":
        return open_legacy_link(lowlevel(server), lifeline)
    return open_called_link(config.name, lowlevel(server), lifeline)
