"""Progress notifications of one request, given to its caller one after the other and in order."""

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
"""Progress, place in the order of arrival, total, message. In this order, so that notifications can be sorted."""

MAX_WAITING: Final = 1000
"""Notifications that may wait for a slow callback; of more, the oldest are dropped. No bar has so many steps."""

MAX_CHARACTERS: Final = 1024 * 1024
"""What the messages of these may have, likewise. No label beside a bar is longer than a line."""


class ProgressFeed:
    """Takes notifications as they come, and calls the caller's callback in a task of its own.

    The SDK starts a task for each notification, and tasks of one burst run in any order. The protocol has progress only
    ever increase, so sorting by it restores the order in which the server sent them.

    Args:
        server: whose notifications they are.
        callback: the caller's. What it raises is logged and changes nothing.
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
        """Take a notification. Called by the SDK, in a task per notification; never waits."""
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
        """The answer is there. Wait until what came before it was given on."""
        self._answered = True
        self._change.set()
        await self._done.wait()

    async def run(self) -> None:
        """Give on what comes, until `finish` was called and nothing waits. **Cancellation**: what waits is dropped."""
        while True:
            await self._change.wait()
            self._change = trio.Event()
            # All that came in one burst has been put when the tasks of that step have run.
            await trio.lowlevel.checkpoint()
            while self._waiting:
                await self._give(self._take())
            if self._answered:
                self._done.set()
                return

    @trio.lowlevel.disable_ki_protection  # a callback may compute for ever
    async def _give(self, notification: Notification) -> None:
        progress, _, total, message = notification
        try:
            await self._callback(progress, total, message)
        except Exception:
            logger.exception("server %r: a progress callback raised, which changes nothing", self._server)
