"""Keep the notification stream of a legacy HTTP server open.

The SDK opens this stream, and opens it again a second after it ended. But after it broke twice, the SDK gives up for
the rest of the session. Streams break often, because proxies close idle ones. So a stream that breaks is shown to the
SDK as one that ended. Notifications that were sent between two streams are lost, so listeners are informed of the gap
when the next stream is open. They are lost before the first stream, too, which opens while the lists are requested.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import httpx2
import trio
from mcp.types import JSONRPCMessage

from ....._backoff import Backoff
from ....._foreign import Log
from ....basics import Background
from ..._link import Lifeline
from ...wire import MessageLimits, SkippedMessages, parse_message
from .._events import Event
from ._replies import Reopening

logger = Log("mcp_actors.servers.http")

LASTING: Final = 30.0
"""Seconds after which a stream counts as stable, so the delay of `GAP_BACKOFF` starts from its beginning again."""

GAP_BACKOFF: Final = Backoff(first=0.0, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from a new stream until the gap before it is reported. Some servers end each stream at once, and listeners
request all lists again after each gap."""


class NotificationStream:
    """The notification streams of one connection, one after the other.

    Args:
        server: the name of the server.
        limits: the maximum size of one event.
        lifeline: is informed of gaps.
        background: runs the task that reports a gap.
    """

    def __init__(self, server: str, limits: MessageLimits, lifeline: Lifeline, background: Background) -> None:
        self._server = server
        self._limits = limits
        self._lifeline = lifeline
        self._background = background
        self._opened_at: float | None = None
        self._short = 0
        self._reopening = Reopening()
        self._reporting = False
        self._skipped = SkippedMessages(server, logger)

    @property
    def opened(self) -> bool:
        """True if there was a stream."""
        return self._opened_at is not None

    async def wait_turn(self) -> None:
        """Wait until the next stream may be opened."""
        await trio.sleep(self._reopening.delay(trio.current_time()))

    def open(self, response: httpx2.Response) -> None:
        """Note that a stream has begun, and report the gap before it."""
        now = trio.current_time()
        if self._opened_at is not None:
            self._short = 0 if now - self._opened_at >= LASTING else self._short + 1
        if not self._reporting:
            self._reporting = True
            delay = GAP_BACKOFF.delay(self._short + 1, random=random.random)
            self._background.start_soon(self._report_gap, delay, name=f"{self._server}:gap")
        self._opened_at = now
        self._reopening.open(now)
        response.stream = _Ending(response.stream, self._server)  # type: ignore[arg-type]  # an AsyncClient's are async

    def read(self, event: Event) -> JSONRPCMessage | None:
        """Return the message in an event; log it and return None if it is not valid."""
        if event.skipped is None:
            with suppress(ValueError):
                message = parse_message(event.data)
                self._reopening.deliver()
                return message
            self._skipped.add("an event that is not an MCP message; fix the server")
        else:
            limit, remedy = self._limits.exceeded(event.skipped.excess)
            self._skipped.add(f"an event that is too large ({limit}); {remedy}")
        return None

    async def _report_gap(self, delay: float) -> None:
        await trio.sleep(delay)
        self._reporting = False
        self._lifeline.gap()


class _Ending(httpx2.AsyncByteStream):
    """The body of a stream, which ends where it breaks."""

    def __init__(self, inner: httpx2.AsyncByteStream, server: str) -> None:
        self._inner = inner
        self._server = server

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except httpx2.TransportError as error:
            logger.debug("server %r: the notification stream broke", self._server, exc_info=error)

    async def aclose(self) -> None:
        await self._inner.aclose()
