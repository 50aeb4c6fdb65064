"""Pass the notifications of a server to the user's callbacks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio
from mcp.types import LoggingMessageNotification

from ....config import CallbackContext
from ...record import Flooded, NotificationsMissed
from ._feed import NotificationFeed
from ._meter import NotificationMeter
from ._tasks import TookTooLong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

    from mcp.client.session import IncomingMessage

    from ...record import ServerRecord
    from ._tasks import CallbackTasks

__all__ = ["Notifications"]

logger = logging.getLogger("mcp_actors.servers")

LAST_NOTIFICATIONS: Final = 1.0
"""Seconds to wait for the delivery of earlier notifications when a connection ends. They may say why a server died."""


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
        self._logs = self._feed("logging", self._log) if self._callbacks.logging is not None else None
        self._messages = self._feed("message", self._pass_on) if self._callbacks.message is not None else None

    def _feed(self, kind: str, deliver: Callable[[Any, Context], Awaitable[None]]) -> NotificationFeed:
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
            self._logs.put(message)
        if self._messages is not None:
            self._messages.put(message)

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

    async def _log(self, message: LoggingMessageNotification, context: Context) -> None:
        fn = self._callbacks.logging
        assert fn is not None
        about = CallbackContext(server=self._server, meta=message.params.meta)
        await self._call("logging", lambda: fn(about, message.params), context)

    async def _pass_on(self, message: IncomingMessage, context: Context) -> None:
        fn = self._callbacks.message
        assert fn is not None
        about = CallbackContext(server=self._server, meta=getattr(getattr(message, "params", None), "meta", None))
        await self._call("message", lambda: fn(about, message), context)

    async def _call(self, kind: str, call: Callable[[], Awaitable[None]], context: Context) -> None:
        try:
            await self._tasks.call(kind, call, context)
        except TookTooLong:
            seconds = self._callbacks.timeout
            logger.error(
                "server %r: the %s callback timed out after %g s; raise Callbacks(timeout=…) if that is expected",
                self._server,
                kind,
                seconds,
            )
        except Exception:
            logger.exception("server %r: the %s callback raised; the connection goes on", self._server, kind)
