"""What a server tells, given to a callback of the user's one after the other and in order."""

from __future__ import annotations

import logging
from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

import trio

from ...._json_walk import measured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["NotificationFeed"]

logger = logging.getLogger("mcp_actors.servers")

MAX_WAITING: Final = 1000
"""Notifications that may wait for a slow callback; of more, the oldest are dropped: who is behind wants the news."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""What these may take, about, likewise. Ordinary ones take a thousandth. One that takes more is dropped itself."""


class NotificationFeed:
    """Takes notifications as they come, without waiting; a task of its own gives them on.

    Args:
        server: whose notifications they are.
        kind: which callback they are for.
        give: gives one on, in the context variables in which it came. It takes care of its own failures.

    Attributes:
        dropped: how many notifications were dropped.
    """

    def __init__(self, server: str, kind: str, give: Callable[[Any, Context], Awaitable[None]]) -> None:
        self.dropped = 0
        self._server = server
        self._kind = kind
        self._give = give
        self._waiting: deque[tuple[Any, Context, int]] = deque()
        self._bytes = 0
        self._giving = False
        self._change = trio.Event()
        self._idle = trio.Event()

    def put(self, notification: Any) -> None:
        """Take a notification."""
        size, _, _ = measured(notification, MAX_BYTES)
        if size > MAX_BYTES:
            self._drop()
            return
        while len(self._waiting) >= MAX_WAITING or self._bytes + size > MAX_BYTES:
            self._take()
            self._drop()
        self._waiting.append((notification, copy_context(), size))
        self._bytes += size
        self._change.set()

    def _take(self) -> tuple[Any, Context]:
        notification, context, size = self._waiting.popleft()
        self._bytes -= size
        return notification, context

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped == 1:
            logger.warning(
                "server %r: tells more than its %s callback can take; the oldest is dropped whenever more than %d "
                "wait, or %d bytes",
                self._server,
                self._kind,
                MAX_WAITING,
                MAX_BYTES,
            )

    async def run(self) -> None:
        """Give on what comes. **Cancellation**: what waits is dropped."""
        while True:
            while self._waiting:
                self._giving = True
                await self._give(*self._take())
            self._giving = False
            self._idle.set()
            await self._change.wait()
            self._change, self._idle = trio.Event(), trio.Event()

    @property
    def busy(self) -> bool:
        """Whether anything waits, or is being given on."""
        return self._giving or bool(self._waiting)

    async def wait_idle(self) -> None:
        """Wait until nothing is."""
        while self.busy:
            await self._idle.wait()
