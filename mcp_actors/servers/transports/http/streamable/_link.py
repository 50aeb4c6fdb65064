"""The link over streamable HTTP, where each request is a POST.

A request that fails, fails alone. The connection is lost when the server can no longer be reached (see `_reach`), or no
longer knows the session (see `_refusals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, partial

import httpx2
import trio
from mcp import MCPError
from mcp.types import JSONRPCNotification

from .....config import Http
from ...credentials import discreet
from ...wire import INITIALIZED, Exchange, Json, MessageLimits, Receive, RequestTable, Unanswered
from .._client import real_url
from .._link import HttpLink
from ._exchange import HttpExchange
from ._notification_stream import NotificationStream
from ._session import HttpSession


class StreamableHttpLink(HttpLink[Http]):
    """A link over streamable HTTP."""

    _session: HttpSession

    @cached_property
    def _initialized(self) -> trio.Event:
        """Set when a legacy server knows that the handshake is over."""
        return trio.Event()

    @cached_property
    def _reading(self) -> trio.CancelScope:
        """The scope around reading what comes unasked. It exists early: a server may send too much at any time."""
        return trio.CancelScope()

    async def live(self) -> None:
        """Serve until the link is left, then end the session. Nothing is sent at first."""
        self.table: RequestTable = RequestTable()
        self._session = HttpSession(
            self._client,
            httpx2.URL(real_url(self._transport)),
            self._failures,
            MessageLimits(self._transport.max_body_bytes, self._max_values, "max_body_bytes"),
            self._pace,
            self._requests,
            self._lifeline,
            self._background,
            self.admit,
            partial(self._reading.cancel, "the server has sent too many requests"),
        )
        self._opened.set()
        await self._left.wait()
        await self._session.end()

    async def exchange(self, request: Exchange, receive: Receive) -> Json:
        """See `Link.exchange`."""
        with discreet(self.masker, self.configured_url):
            return await HttpExchange(self._session, request, receive).run()

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """See `Link.send`. Only the end of the handshake is waited for: no request may overtake it."""
        await self.wait_turn(message)
        with discreet(self.masker, self.configured_url):
            if isinstance(message, JSONRPCNotification) and message.method == INITIALIZED:
                await self._session.notify(message, headers or {})
                self._initialized.set()
            else:
                self._session.notify_soon(message, headers or {})

    async def read(self, receive: Receive) -> None:
        """See `Link.read`. Without sessions, a server sends everything in its responses."""
        try:
            with self._reading, discreet(self.masker, self.configured_url):
                await self._initialized.wait()
                if self._session.id is not None:
                    with suppress(MCPError):  # the server has sent too many requests, so the scope is cancelled
                        await NotificationStream(self._session, self.table).run(receive)
                await trio.sleep_forever()
        finally:
            self._lifeline.closing = True
