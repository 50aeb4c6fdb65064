"""What a server tells (logging, any message), and the user's callbacks that hear of it."""

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
"""Seconds that the end of a connection waits for what came before it to be heard: why a server has died, maybe."""


class Notifications:
    """Lets the callbacks of one server hear what it tells, over one connection.

    Args:
        record: the server's lasting part.
        tasks: where to run them.
    """

    def __init__(self, record: ServerRecord, tasks: CallbackTasks) -> None:
        self._record = record
        self._server = record.config.name
        self._callbacks = record.callbacks
        self._tasks = tasks
        self._meter = NotificationMeter(record.config.limits.max_notifications)
        self._logs = self._feed("logging", self._log) if self._callbacks.logging is not None else None
        self._messages = self._feed("message", self._pass_on) if self._callbacks.message is not None else None

    def _feed(self, kind: str, give: Callable[[Any, Context], Awaitable[None]]) -> NotificationFeed:
        feed = NotificationFeed(self._server, kind, give)
        self._tasks.background.start_soon(feed.run, name=f"{self._server}:{kind}")
        return feed

    def hear(self, message: object) -> None:
        """Take what the server tells; a listener (see `Listeners`)."""
        if isinstance(message, NotificationsMissed):
            return  # no message of its
        if not self._meter.admit(trio.current_time()):
            if self._meter.dropped == 1:
                self._flooded()
            return
        if self._logs is not None and isinstance(message, LoggingMessageNotification):
            self._logs.put(message)
        if self._messages is not None:
            self._messages.put(message)

    def _flooded(self) -> None:
        heard = self._logs is not None or self._messages is not None
        logger.warning(
            "server %r: sends more than %d notifications a second; %s",
            self._server,
            self._meter.limit,
            "callbacks hear of that many each second and not of the rest; if it may send so many, raise "
            "limits=Limits(max_notifications=…)"
            if heard
            else "nobody here listens to them, but each takes time: have the server send less, or stop it",
        )
        self._record.tell(Flooded, limit=self._meter.limit)

    async def finish(self) -> None:
        """The connection has ended. Let what came before that be heard, for a moment."""
        with trio.move_on_after(LAST_NOTIFICATIONS):
            for feed in (self._logs, self._messages):
                if feed is not None:
                    await feed.wait_idle()

    async def _log(self, message: LoggingMessageNotification, context: Context) -> None:
        fn = self._callbacks.logging
        assert fn is not None
        told = self._told(message.params.meta)
        await self._give("logging", lambda: fn(told, message.params), context)

    async def _pass_on(self, message: IncomingMessage, context: Context) -> None:
        fn = self._callbacks.message
        assert fn is not None
        told = self._told(getattr(getattr(message, "params", None), "meta", None))
        await self._give("message", lambda: fn(told, message), context)

    def _told(self, meta: Any) -> CallbackContext:
        return CallbackContext(server=self._server, meta=meta)

    async def _give(self, kind: str, call: Callable[[], Awaitable[None]], context: Context) -> None:
        try:
            await self._tasks.call(kind, call, context)
        except TookTooLong:
            seconds = self._callbacks.timeout
            logger.error("server %r: the %s callback took longer than its timeout of %g s", self._server, kind, seconds)
        except Exception:
            logger.exception("server %r: the %s callback raised, which changes nothing", self._server, kind)
