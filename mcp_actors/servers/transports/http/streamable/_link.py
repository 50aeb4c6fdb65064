"""The link over streamable HTTP, around the SDK's transport.

The SDK's transport runs in the task of the link (see `HttpLink`), because it reacts to some errors by cancelling
everything inside it. `_containment` keeps most errors from it, so a request that fails, fails alone. The connection is
lost when the server can no longer be reached (see `_reach`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import httpx2
import trio
from attrs import define
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, JSONRPCResponse

from .....config import Http
from ..._link import DirectPosts, Lifeline
from ...credentials import discreet
from ...wire import MessageLimits, MessageReader, OpenStreams, Stream, with_result_type
from .._client import real_url
from .._link import HttpLink
from ._containment import ContainedClient, posted
from ._posts import PlainPosts
from ._stubs import replace_stub

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable

    from mcp.client._transport import ReadStream, WriteStream

CAUSE_WAIT: Final = 0.5
"""Seconds between the end of the stream and the end of the SDK's transport, which brings the cause. Usually none."""


@define(eq=False, repr=False)
class _WatchedReader(MessageReader):
    """The SDK's stream of messages: exchanges stubs for messages, and notes its end."""

    _inner: ReadStream[SessionMessage | Exception]
    _lifeline: Lifeline
    _admit: Callable[[JSONRPCMessage], None]
    _transport_ended: trio.Event

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context in which the last message was sent; the session starts its handler in that."""
        context: contextvars.Context | None = getattr(self._inner, "last_context", None)
        return context

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        try:
            item = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            # The SDK ends this stream, or closes it under its reader, before it raises the cause. Wait for the cause:
            # `lose` takes the first exception only, and callers fail as soon as this method has raised.
            if not self._lifeline.closing:
                with trio.move_on_after(CAUSE_WAIT):
                    await self._transport_ended.wait()
                self._lifeline.lose()
            raise
        if isinstance(item, SessionMessage):
            message = replace_stub(item.message, self.last_context)
            if not isinstance(message, JSONRPCResponse):
                self._admit(message)
            item.message = with_result_type(message)
        return item

    async def aclose(self) -> None:
        """Stop reading."""
        self._lifeline.closing = True
        await self._inner.aclose()


@define(eq=False, repr=False)
class _WatchedWriter(Stream):
    """The SDK's stream of outgoing messages, which notes when this side begins to close."""

    _inner: WriteStream[SessionMessage]
    _link: StreamableHttpLink
    _lifeline: Lifeline

    async def send(self, item: SessionMessage, /) -> None:
        """Pass one message to the SDK's transport. `posted` holds it in the context in which the SDK posts."""
        await self._link.wait_turn(item.message)
        token = posted.set(item.message)
        try:
            with discreet(self._link.masker, self._link.configured_url):
                await self._inner.send(item)
        finally:
            posted.reset(token)

    async def aclose(self) -> None:
        """Take no more messages. The SDK's transport then ends its other stream, which does not count as a loss."""
        self._lifeline.closing = True
        await self._inner.aclose()


class StreamableHttpLink(HttpLink[Http]):
    """A link over streamable HTTP."""

    target: OpenStreams

    async def live(self) -> None:
        """Run the SDK's transport with a client that lets no request fail. Nothing is sent yet."""
        url = real_url(self._transport)
        shown = str(httpx2.URL(url).copy_with(query=None))
        contained = ContainedClient(
            self._client,
            url=url,
            shown=shown,
            failures=self._failures,
            limits=MessageLimits(self._transport.max_body_bytes, self._max_values, "max_body_bytes"),
            pace=self._pace,
            requests=self._requests,
            lifeline=self._lifeline,
            background=self._background,
        )
        # The limits on events are in the client.
        async with streamable_http_client(shown, http_client=contained, max_sse_event_size=None) as (reader, writer):
            watched = _WatchedReader(reader, self._lifeline, self.admit, self._ended)
            self.target = OpenStreams(watched, _WatchedWriter(writer, self, self._lifeline))
            self.posts: DirectPosts | None = PlainPosts(
                contained, self._name, self._lifeline, self._background, self.masker, self.configured_url
            )
            self._opened.set()
            await self._left.wait()
