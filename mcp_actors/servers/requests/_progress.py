"""Deliver the progress notifications of one request to its caller, in order."""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

__all__ = ["ProgressFeed"]

logger = logging.getLogger("mcp_actors.servers")

Notification = tuple[float, int, float | None, str | None]
"""Progress, arrival number, total, message; in this order, so that notifications sort by progress."""

MAX_WAITING: Final = 1000
"""Notifications that may wait for a slow callback, then the oldest is dropped. No progress bar has so many steps."""

MAX_CHARACTERS: Final = 1024 * 1024
"""Characters of the waiting messages, likewise. The label of a progress bar is at most a line."""


class ProgressFeed:
    """Queues notifications and calls the caller's callback in a task of its own.

    The SDK starts one task per notification, and the tasks of one burst run in any order. The protocol requires
    progress to increase, so sorting by progress restores the order in which the server sent them.

    Args:
        server: the server's name.
        callback: the caller's callback. Its exceptions are logged and ignored.
    """

    def __init__(self, server: str, callback: ProgressFnT) -> None:
        self._server = server
        self._callback = callback
        self._waiting: list[Notification] = []
        self._characters = 0
        self._arrived = 0
        self._answered = False
        self._change = trio.Event()
        self._done = trio.Event()

    async def put(self, progress: float, total: float | None, message: str | None) -> None:
        """Queue a notification. The SDK calls this in one task per notification; it never waits."""
        self._arrived += 1
        heapq.heappush(self._waiting, (progress, self._arrived, total, message))
        self._characters += len(message or "")
        while len(self._waiting) > MAX_WAITING or self._characters > MAX_CHARACTERS:
            self._take()
        self._change.set()

    def _take(self) -> Notification:
        notification = heapq.heappop(self._waiting)
        self._characters -= len(notification[3] or "")
        return notification

    async def finish(self) -> None:
        """Wait until the notifications that arrived before the answer are delivered."""
        self._answered = True
        self._change.set()
        await self._done.wait()

    async def run(self) -> None:
        """Deliver notifications until `finish` was called and the queue is empty.

        **Cancellation**: drops the queued notifications.
        """
        while True:
            await self._change.wait()
            self._change = trio.Event()
            # One checkpoint lets the SDK's other tasks of the same burst queue theirs first; without it the first
            # notification to run would be delivered before smaller progress of the same burst.
            await trio.lowlevel.checkpoint()
            while self._waiting:
                await self._deliver(self._take())
            if self._answered:
                self._done.set()
                return

    @trio.lowlevel.disable_ki_protection  # so that Ctrl-C can interrupt a callback that computes for long
    async def _deliver(self, notification: Notification) -> None:
        progress, _, total, message = notification
        try:
            await self._callback(progress, total, message)
        except Exception:
            logger.exception("server %r: a progress callback raised; the request continues", self._server)
