"""Pass the notifications of a server to the user's callbacks."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

import trio
from mcp.types import LoggingMessageNotification

from ...._foreign import Log, answer_of
from ...._tasks import MAX_WAITING, Feed
from ...._text import measured
from ....config import CallbackContext
from ...record import Flooded, NotificationsMissed
from ._meter import NotificationMeter
from ._tasks import TookTooLong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...record import ServerRecord
    from ._tasks import CallbackTasks

logger = Log("mcp_actors.servers")

LAST_NOTIFICATIONS: Final = 1.0
"""Seconds to wait for the delivery of earlier notifications when a connection ends. They may say why a server died."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Approximate bytes of the notifications that may wait for a slow callback. Ordinary ones take a thousandth of it."""


class NotificationFeed(Feed[tuple[Any, Context]]):
    """Queues notifications, and delivers them in a task of its own.

    Args:
        server: the name of the server.
        kind: the kind of the callback, for messages.
        deliver: delivers a notification, in the context in which it arrived. It handles its own exceptions.

    Attributes:
        dropped: the number of dropped notifications.
    """

    def __init__(self, server: str, kind: str, deliver: Callable[[tuple[Any, Context]], Awaitable[None]]) -> None:
        self.dropped = 0
        self._server = server
        self._kind = kind
        super().__init__(deliver, max_size=MAX_BYTES, on_drop=self._drop)

    def hear(self, notification: Any) -> None:
        """Queue a notification."""
        size, _, _ = measured(notification, MAX_BYTES)
        self.put((notification, copy_context()), size)

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


class Notifications:
    """Passes the notifications of one connection to the callbacks.

    Args:
        record: the record of the server.
        tasks: runs the callbacks.
    """

    def __init__(self, record: ServerRecord, tasks: CallbackTasks) -> None:
        self._record = record
        self._server = record.config.name
        self._callbacks = record.callbacks
        self._tasks = tasks
        self._meter = NotificationMeter(record.config.limits.max_notifications)
        self._logs = self._feed("logging", self._callbacks.logging, lambda message: message.params)
        self._messages = self._feed("message", self._callbacks.message, lambda message: message)

    def _feed(
        self,
        kind: str,
        fn: Callable[[CallbackContext, Any], Awaitable[None] | None] | None,
        argument: Callable[[Any], Any],
    ) -> NotificationFeed | None:
        """Start the feed of a callback, whose second argument is made from the message; None without a callback."""
        if fn is None:
            return None

        async def deliver(arrived: tuple[Any, Context]) -> None:
            message, context = arrived
            about = CallbackContext(server=self._server, meta=getattr(getattr(message, "params", None), "meta", None))
            await self._call(kind, lambda: answer_of(fn(about, argument(message))), context)

        feed = NotificationFeed(self._server, kind, deliver)
        self._tasks.background.start_soon(feed.run, name=f"{self._server}:{kind}")
        return feed

    def hear(self, message: object) -> None:
        """Queue a message of the server for the callbacks. A listener (see `Listeners`)."""
        if isinstance(message, NotificationsMissed):
            return  # not a message of the server
        if not self._meter.admit(trio.current_time()):
            if self._meter.dropped == 1:
                self._flooded()
            return
        if self._logs is not None and isinstance(message, LoggingMessageNotification):
            self._logs.hear(message)
        if self._messages is not None:
            self._messages.hear(message)

    def _flooded(self) -> None:
        has_callbacks = self._logs is not None or self._messages is not None
        logger.warning(
            "server %r: sent more than %d notifications in a second (%s); %s",
            self._server,
            self._meter.limit,
            "callbacks do not get the rest" if has_callbacks else "no callback is set, but each one takes time",
            "raise limits=Limits(max_notifications=…) if that is expected"
            if has_callbacks
            else "make the server send fewer, or stop it",
        )
        self._record.life.emit(Flooded, limit=self._meter.limit)

    async def finish(self) -> None:
        """Wait a moment until the notifications that arrived before the end of the connection were delivered."""
        with trio.move_on_after(LAST_NOTIFICATIONS):
            for feed in (self._logs, self._messages):
                if feed is not None:
                    await feed.wait_idle()

    async def _call(self, kind: str, call: Callable[[], Awaitable[None]], context: Context) -> None:
        try:
            await self._tasks.call(kind, call, context)
        except TookTooLong:
            logger.error(
                "server %r: the %s callback timed out after %g s; raise Callbacks(timeout=…) if that is expected",
                self._server,
                kind,
                self._callbacks.timeout,
            )
        except Exception:
            logger.exception("server %r: the %s callback raised; the connection goes on", self._server, kind)
