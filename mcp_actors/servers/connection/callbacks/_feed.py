"""Deliver notifications to a callback of the user, in order."""

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
"""Notifications that may wait for a slow callback. Then the oldest is dropped, because the latest matter most."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Approximate bytes that they may take, likewise. Ordinary ones take a thousandth of it. A single notification that
takes more is dropped."""


class NotificationFeed:
    """Queues notifications, and delivers them in a task of its own.

    Args:
        server: the name of the server.
        kind: the kind of the callback, for messages.
        deliver: delivers a notification, in the context in which it arrived. It handles its own exceptions.

    Attributes:
        dropped: the number of dropped notifications.
    """

    def __init__(self, server: str, kind: str, deliver: Callable[[Any, Context], Awaitable[None]]) -> None:
        self.dropped = 0
        self._server = server
        self._kind = kind
        self._deliver = deliver
        self._waiting: deque[tuple[Any, Context, int]] = deque()
        self._bytes = 0
        self._delivering = False
        self._change = trio.Event()
        self._idle = trio.Event()

    def put(self, notification: Any) -> None:
        """Queue a notification, without waiting."""
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
                "server %r: the %s callback is too slow, so its oldest notifications are dropped (limit: %d waiting "
                "notifications, %d bytes); make the callback faster",
                self._server,
                self._kind,
                MAX_WAITING,
                MAX_BYTES,
            )

    async def run(self) -> None:
        """Deliver the queued notifications. **Cancellation**: drops them."""
        while True:
            while self._waiting:
                self._delivering = True
                await self._deliver(*self._take())
            self._delivering = False
            self._idle.set()
            await self._change.wait()
            self._change, self._idle = trio.Event(), trio.Event()

    @property
    def busy(self) -> bool:
        """True if a notification is waiting or being delivered."""
        return self._delivering or bool(self._waiting)

    async def wait_idle(self) -> None:
        """Wait until all notifications were delivered."""
        while self.busy:
            await self._idle.wait()
