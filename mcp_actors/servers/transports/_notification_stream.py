"""The stream over which an HTTP server sends notifications, in the legacy era: what it means when it ends.

The SDK opens it, and opens it anew a second after it has ended; but only until it has broken for the second time, and
then nothing more is heard for as long as the session lasts. Streams break all the time, since whatever is between
ends those in which nothing happens. So to the SDK a stream that breaks has just ended; and as nothing is sent again
that was sent while there was none, whoever listens is told when there is one again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import httpx2
import trio

from ..._backoff import Backoff
from .._background import Background
from ._events import Event
from ._lifeline import Lifeline
from ._messages import parse_message

__all__ = ["NotificationStream"]

logger = logging.getLogger("mcp_actors.servers.http")

LASTING: Final = 30.0
"""Seconds after which a stream counts as one that stood: its end is then the first of a new row."""

TELL: Final = Backoff(first=0.0, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from a new stream to telling of the gap before it. Some servers end each stream at once; those who listen ask
for everything anew whenever they are told."""


LOGGED: Final = 10
"""Malformed events that are logged at a level that is seen."""


class NotificationStream:
    """One stream after the other, of one connection.

    Args:
        server: its name.
        lifeline: told of gaps.
        background: runs the task that tells.

    Attributes:
        malformed: events that were no messages and were skipped.
    """

    def __init__(self, server: str, lifeline: Lifeline, background: Background) -> None:
        self._server = server
        self._lifeline = lifeline
        self._background = background
        self._opened_at: float | None = None
        self._short = 0
        self._telling = False
        self.malformed = 0

    @property
    def opened(self) -> bool:
        """Whether there was one."""
        return self._opened_at is not None

    def open(self, response: httpx2.Response) -> None:
        """A stream has begun."""
        now = trio.current_time()
        if self._opened_at is not None:
            self._short = 0 if now - self._opened_at >= LASTING else self._short + 1
            if not self._telling:
                self._telling = True
                delay = TELL.delay(self._short + 1, random=random.random)
                self._background.start_soon(self._tell, delay, name=f"{self._server}:gap")
        self._opened_at = now
        response.stream = _Ending(response.stream, self._server)  # type: ignore[arg-type]  # an AsyncClient's are async

    def admit(self, event: Event) -> bool:
        """Return whether an event is a message that the SDK can read. It logs all others, with a traceback."""
        if event.skipped is None:
            with suppress(ValueError):
                # An event without data has nothing but an id.
                return not event.data or parse_message(event.data) is not None
        self.malformed += 1
        logger.log(
            logging.WARNING if self.malformed <= LOGGED else logging.DEBUG,
            "server %r: skipped an event that %s",
            self._server,
            f"has too many {event.skipped.excess}" if event.skipped else "is not an MCP message",
        )
        return False

    async def _tell(self, delay: float) -> None:
        await trio.sleep(delay)
        self._telling = False
        self._lifeline.on_gap()


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
            logger.debug("server %r: its stream of notifications broke", self._server, exc_info=error)

    async def aclose(self) -> None:
        await self._inner.aclose()
