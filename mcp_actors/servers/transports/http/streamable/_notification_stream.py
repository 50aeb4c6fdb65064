"""Keep the notification stream of a legacy HTTP server open.

Streams break often, because proxies close idle ones. So a stream that has ended, however it did, is opened again for as
long as the connection lasts, ever later while that fails. A server has none if it refuses the first stream for good.
Notifications that were sent between two streams are lost, so listeners are informed of the gap when the next stream is
open. They are lost before the first stream, too, which opens while the lists are requested.

A server may also send the answer to a request in this stream.
"""

from __future__ import annotations

import random
from contextlib import aclosing
from typing import Final

import httpx2
import trio
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from ....._backoff import Backoff
from ....._foreign import Log
from ...wire import (
    Receive,
    RequestTable,
    SkippedMessages,
    answer_over_limit,
    parse_message,
    unreadable_answer,
)
from .._bodies import NotificationBody
from .._events import Event, TooMuch, read_events
from ._reopening import MAX_REFUSED, Reopening
from ._session import HttpSession, has_events

logger = Log("mcp_actors.servers.http")

LASTING: Final = 30.0
"""Seconds after which a stream counts as stable, so the delay of `GAP_BACKOFF` starts from its beginning again."""

GAP_BACKOFF: Final = Backoff(first=0.0, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from a new stream until the gap before it is reported. Some servers end each stream at once, and listeners
request all lists again after each gap."""


REFUSED_BACKOFF: Final = Backoff(first=0.0, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from a failed attempt to open a stream to the next one, besides the time that the server asks for."""


PASSING: Final = (408, 425, 429)
"""The statuses of client errors that pass: the server was too slow, not ready, or asked too often."""

NOT_IMPLEMENTED: Final = 501


class NotificationStream:
    """The notification streams of one connection, one after the other.

    Args:
        session: opens the streams.
        table: the requests that wait for an answer.
    """

    def __init__(self, session: HttpSession, table: RequestTable) -> None:
        self._session = session
        self._table = table
        self._server = session.failures.server
        self._opened_at: float | None = None
        self._short = 0
        self._streams = Reopening()
        self._reporting = False
        self._skipped = SkippedMessages(self._server, logger)

    async def run(self, receive: Receive) -> None:
        """Read one stream after the other. Return if the server has none."""
        refused = 0
        while True:
            await trio.sleep(self._streams.delay(trio.current_time()))
            try:
                response = await self._session.open_stream(self._streams.last_id)
            except Exception as error:
                refused += 1
                logger.debug("server %r: the notification stream could not be opened", self._server, exc_info=error)
            else:
                if has_events(response):
                    refused = 0
                    await self._read(response, receive)
                else:
                    refused += 1
                    if refused >= MAX_REFUSED and not self._session.listened and is_for_good(response):
                        return
            await trio.sleep(self._streams.retry + REFUSED_BACKOFF.delay(max(refused, 1), random=random.random))

    async def _read(self, response: httpx2.Response, receive: Receive) -> None:
        """Read a stream to its end. An event that never ends loses the connection."""
        session = self._session
        self._note_opening()
        response.stream = NotificationBody(response.stream)  # type: ignore[arg-type]  # an AsyncClient's are async
        try:
            async with aclosing(read_events(response, session.limits, session.pace)) as events:
                async for event in events:
                    self._streams.note(event)
                    message = await self._take(event, receive)
                    request = isinstance(message, JSONRPCRequest)
                    await trio.sleep(session.pace.unasked(trio.current_time(), event.unpaced, request=request))
        except TooMuch as exc:
            reason = session.limits.message_too_large(exc.data.excess)
            session.lifeline.lose(session.failures.too_large(reason))
        except httpx2.HTTPError as error:
            logger.debug("server %r: the notification stream broke", self._server, exc_info=error)
        finally:
            await response.aclose()

    async def _take(self, event: Event, receive: Receive) -> JSONRPCMessage | None:
        """Handle the message in an event and return it; None if it has none."""
        if event.name != b"message" or not (event.data or event.skipped):
            return None
        message = self._message_in(event)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._session.admit(message)
            self._table.settle_message(message)
        elif message is not None:
            await self._session.take(message, receive)
        return message

    def _message_in(self, event: Event) -> JSONRPCMessage | None:
        """Return the message in an event, or an error in place of an unreadable answer; None for any other event."""
        if event.skipped is not None:
            excess = event.skipped.excess
            limit, remedy = self._session.limits.exceeded(excess)
            self._skipped.add(f"an event that is too large ({limit}); {remedy}")
            return answer_over_limit(event.skipped, self._session.limits.response_too_large(excess))
        try:
            message = parse_message(event.data)
        except ValueError:
            self._skipped.add("an event that is not an MCP message; fix the server")
            return unreadable_answer(event.data)
        self._streams.deliver()
        return message

    def _note_opening(self) -> None:
        """Note that a stream has begun, and report the gap before it."""
        now = trio.current_time()
        if self._opened_at is not None:
            self._short = 0 if now - self._opened_at >= LASTING else self._short + 1
        if not self._reporting:
            self._reporting = True
            delay = GAP_BACKOFF.delay(self._short + 1, random=random.random)
            self._session.background.start_soon(self._report_gap, delay, name=f"{self._server}:gap")
        self._opened_at = now
        self._session.listened = True
        self._streams.open(now)

    async def _report_gap(self, delay: float) -> None:
        await trio.sleep(delay)
        self._reporting = False
        self._session.lifeline.gap()


def is_for_good(refusal: httpx2.Response) -> bool:
    """Return True if a refusal does not look as if it would pass."""
    return (refusal.status_code < 500 and refusal.status_code not in PASSING) or refusal.status_code == NOT_IMPLEMENTED
