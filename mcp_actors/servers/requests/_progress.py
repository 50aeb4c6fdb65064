"""Deliver the progress notifications of one request to its caller, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ..._answers import answer_of
from ..._foreign import Log
from ..basics import Feed

if TYPE_CHECKING:
    from ...config import ProgressCallback

logger = Log("mcp_actors.servers")

MAX_CHARACTERS: Final = 1024 * 1024
"""Characters of the messages that may wait for a slow callback. The label of a progress bar is at most a line."""


class ProgressFeed(Feed[tuple[float, float | None, str | None]]):
    """Queues notifications and calls the caller's callback in a task of its own.

    The SDK starts one task per notification, and the tasks of one burst run in any order. The protocol requires
    progress to increase, so sorting by progress restores the order in which the server sent them.

    Args:
        server: the server's name.
        callback: the caller's callback. Its exceptions are logged and ignored.
    """

    def __init__(self, server: str, callback: ProgressCallback) -> None:
        @trio.lowlevel.disable_ki_protection  # so that Ctrl-C can interrupt a callback that computes for long
        async def deliver(notification: tuple[float, float | None, str | None]) -> None:
            try:
                await answer_of(callback(*notification))
            except Exception:
                logger.exception("server %r: a progress callback raised; the request continues", server)

        super().__init__(deliver, max_size=MAX_CHARACTERS)

    def notify(self, progress: float, total: float | None, message: str | None) -> None:
        """Queue a notification."""
        self.put((progress, total, message), len(message or ""), progress)
