"""Open the place where the callbacks of one connection run.

Theory of operation
-------------------
A task of the SDK waits for the answer to each question of a server (sampling, elicitation, roots). In the legacy era
the task belongs to the connection; since 2026-07-28 it is the task of the request for which the server asks. The
callback itself runs in another task (``_tasks``). So:

- its timeout holds whatever it does, even if it reads from a terminal in a thread
- if the SDK's task is cancelled (the server withdraws its question, or the connection ends), it leaves at once, and the
  callback is cancelled too
- an exception of a callback is logged and answered with an error, and reaches no other task

These tasks are started outside of the link, because a callback that cannot be cancelled must not keep a process alive.
Ownership: the owner task of the actor enters `open_callbacks` before the link and leaves it after the link.

A callback runs in the context variables of the task that waits for it. Since 2026-07-28, and over streamable HTTP,
these are the variables of the caller whose request the question belongs to. Over stdio in the legacy era, and over SSE,
that request is unknown, and they are the variables in which the group was opened.

Notifications (logging, any message) are queued in a `NotificationFeed` for each callback.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...._tasks import open_background
from ._notifications import Notifications
from ._questions import Questions
from ._tasks import CallbackTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ...record import ServerRecord


@asynccontextmanager
async def open_callbacks(record: ServerRecord, join_handler: Callable[[], None]) -> AsyncIterator[Questions]:
    """Run the callbacks of a server for the duration of one connection.

    On leaving, notifications that have arrived are delivered for a moment; then all callbacks are cancelled.

    Args:
        record: the record of the server.
        join_handler: see `Questions`.

    Yields:
        The callbacks for the session.
    """
    async with open_background() as background:
        tasks = CallbackTasks(record.config.name, record.callbacks.timeout, background)
        notifications = Notifications(record, tasks)
        with record.listeners.added(object, notifications.hear):
            try:
                yield Questions(record, tasks, join_handler)
            finally:
                await notifications.finish()
