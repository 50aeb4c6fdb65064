"""The link to a server on another event loop of this process.

Its messages are objects, in two streams.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Final

import anyio
import trio
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from ..._foreign import Log
from ._link import Lifeline, Link
from .wire import CLOSED, NOTICE_WAIT, RequestTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from contextvars import Context

    from .wire import Exchange, Json, Messages, MessageWriter, Receive, Unanswered, Unasked

logger = Log("mcp_actors.servers")

GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError)
"""Raised by a stream whose other side has ended."""


class StreamsLink(Link):
    """A link over two streams, which it does not close.

    A reader may have a ``last_context``: the context variables in which its last message is handled.

    Args:
        endpoint: the server, as messages show it.
        reader: the messages of the server. What is not a message is an exception.
        writer: the messages to the server.
        lifeline: the state of the connection.
    """

    def __init__(self, endpoint: str, reader: Messages, writer: MessageWriter, lifeline: Lifeline) -> None:
        super().__init__(lifeline)
        self.endpoint = endpoint
        self.table = RequestTable()
        self._reader = reader
        self._writer = writer
        self._malformed = 0

    @property
    def malformed_lines(self) -> int:
        """The number of items that were not messages and were skipped."""
        return self._malformed

    async def exchange(self, request: Exchange, receive: Receive) -> Json:
        """See `Link.exchange`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        # Before it is written, or the answer could come first. Whether a cancelled write has written is not known.
        request.sent = True
        try:
            await self._write(JSONRPCRequest(**request.message))
            return await request.wait()
        except trio.Cancelled:
            if request.cancellable:
                self.table.remove(request.id)
                with trio.move_on_after(NOTICE_WAIT, shield=True):
                    await self._ask_to_cancel(request)
            raise

    async def _ask_to_cancel(self, request: Exchange) -> None:
        try:
            await self.send(request.notice)
        except MCPError:
            logger.debug("%s: dropped a cancellation: the connection has ended", self.endpoint)

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """See `Link.send`."""
        await self._write(message)

    async def _write(self, message: JSONRPCRequest | Unanswered) -> None:
        try:
            await self._writer.send(SessionMessage(message))
        except GONE:
            raise MCPError.from_error_data(CLOSED) from None

    async def read(self, receive: Receive) -> None:
        """See `Link.read`."""
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
                    self._pass_on(message, receive)
        except GONE:
            return

    def _pass_on(self, message: Unasked, receive: Receive) -> None:
        """Pass a message on, in the context variables of its sender."""
        context: Context = getattr(self._reader, "last_context", None) or copy_context()
        context.run(_finish, receive(message))


def _finish(handling: Awaitable[None]) -> None:
    """Run a coroutine that has no checkpoint to its end."""
    try:
        next(handling.__await__())
    except StopIteration:
        return
    raise RuntimeError("receiving a message took more than one step")
