"""The user's callbacks, over one connection: who calls them, in which task, and what becomes of their failures.

Theory of operation
-------------------
What a server asks (sampling, elicitation, roots) is waited for by a task of the SDK's: one that belongs to the
connection and answers the server, in the legacy era; since 2026-07-28 the task of the request that the server needs it
for. The callback itself runs in a task of its own (``_tasks``), and the SDK's waits for it. So its time-out
holds whatever it does, be it that it reads from a terminal in a thread; the SDK's task can leave when it is cancelled
(the server takes its question back, or the connection ends), upon which the callback is cancelled too; and what it
raises reaches nobody but the log, and the server as an error.

These tasks stand outside the link: a callback that does not let itself be cancelled must not keep a process alive.
Which task enters, which leaves: the owner task of the server's actor enters `open_callbacks` before the link, and
leaves it after it.

A callback runs in the context variables of the task that waits for it. Since 2026-07-28, and over HTTP, these are those
of whoever made the request that it is for; over stdio in the legacy era, and over HTTP with SSE, nobody knows which
request that is, and they are those in which the group was opened.

What a server tells (logging, any message) goes through a `NotificationFeed` per callback, in which it waits for its
turn.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...basics import open_background
from ._notifications import Notifications
from ._questions import Questions
from ._tasks import CallbackTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ...record import ServerRecord

__all__ = ["open_callbacks"]


@asynccontextmanager
async def open_callbacks(record: ServerRecord, join_handler: Callable[[], None]) -> AsyncIterator[Questions]:
    """Open a place for the callbacks of a server, around one connection to it.

    When the block is left, what came before is still heard, for a moment; then all callbacks are cancelled.

    Args:
        record: the server's lasting part.
        join_handler: see `Questions`.

    Yields:
        What the session is to ask.
    """
    async with open_background() as background:
        tasks = CallbackTasks(record.config.name, record.callbacks.timeout, background)
        notifications = Notifications(record, tasks)
        with record.listeners.added(object, notifications.hear):
            try:
                yield Questions(record, tasks, join_handler)
            finally:
                await notifications.finish()
