"""Messages that keep a connection in order: health, log level, roots.

All go through the mailbox of the connection's actor. Since protocol 2026-07-28 the log level is part of each request
(`meta_for`), and servers ask for the roots when they need them, so only older servers are sent messages about these.

Owns: nothing.
Writes: the connection's health and log level; its actor's mailbox; requests to the server; the log.
Calls: catalog, servers, servers.record, _request.
"""

from __future__ import annotations

import contextvars
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final, cast, get_args

import trio
from attrs import define
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, LoggingLevel

from ..._errors import ActorCrashed, ActorError, ActorStopped, HttpStatusError, NotSupported, RequestTimedOut
from ..._foreign import Log
from ..._text import own_shortage, problem_of
from ...catalog._schemas import kind_of
from .._rules import Health
from ..record import CONNECTED, require
from ._request import Request, refused, request_internally

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernel import ActorRef
    from .._rules import Verdict
    from .._session import ConnectionSession
    from ..record import ConnectionHealth, ConnectionLife, ConnectionRecord, ServerLife


@define(eq=False)
class HealthProbe(Request[None]):
    """A request that any live server answers, perhaps with an error."""

    control: ClassVar[bool] = True

    operation: ClassVar[str] = "ping"

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        """Send ``server/discover`` since 2026-07-28; before, ``ping``, or ``tools/list`` if the server ignores pings.

        Raises:
            mcp.MCPError, ServerError, ConnectionOver: there was no answer.
        """
        health = record.health
        method = "server/discover" if session.modern else "ping" if _is_pinged(session, health) else "tools/list"
        try:
            await session.ask(method, {}, attempt=self.deadline)
            health.pings = method == "ping"
        except MCPError as exc:
            if exc.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                raise


def _is_pinged(session: ConnectionSession, health: ConnectionHealth) -> bool:
    # The protocol requires an answer to a ping, but some servers ignore pings. A failing server that never answered a
    # ping gets tools/list, which was answered at the connect.
    return bool(health.pings) or session.capabilities.tools is None or (health.pings is None and not health.failing)


async def check_health(record: ConnectionRecord, actor: ActorRef) -> Health:
    health, asked = record.health, trio.current_time()
    error: Exception | None = None
    if record.life.state in CONNECTED:
        error = await _ask(record, actor)
        if error is None:
            health.answered()
        elif not isinstance(error, ActorError) and own_shortage(error) is None:
            # After an ActorError the connection has ended; after a shortage of this program the server was not asked.
            health.failed(asked, error)
    else:
        await trio.lowlevel.checkpoint()
    if record.life.state in CONNECTED and error is None:
        seconds, now = trio.current_time() - asked, datetime.now(UTC)
        health.last_check = Health(status="healthy", message="it answers", latency=seconds, checked_at=now)
    else:
        health.last_check = unhealthy(record.life, error)
    return health.last_check


def unhealthy(life: ConnectionLife | ServerLife, error: Exception | None = None) -> Health:
    problem = error if life.state in CONNECTED else life.error
    message = f"is {life.state}" + (f": {problem_of(problem)}" if problem is not None else "")
    return Health(status="unhealthy", message=message, latency=None, checked_at=datetime.now(UTC))


async def _ask(record: ConnectionRecord, actor: ActorRef) -> Exception | None:
    timeout = record.config.health.timeout
    with trio.move_on_after(timeout):
        try:
            # An empty context, because check_health() may be called inside a request of this server. The kernel follows
            # calls through the context: it would take the check for a part of that request, and may refuse it as a
            # deadlock.
            await contextvars.Context().run(actor.send_request, HealthProbe()).wait()
        except HttpStatusError as exc:
            return None if exc.status == 429 else exc  # a server that limits the rate of requests is alive
        except Exception as exc:
            record.session.masker.clean(exc)
            return exc
        return None
    what = (
        f"server {record.config.name!r}: health check timed out after {timeout:g} s; check what the server is busy "
        "with, or raise HealthPolicy.timeout"
    )
    return RequestTimedOut(what, server=record.config.name, operation="ping", seconds=timeout, limit="health_timeout")


async def keep_checking(record: ConnectionRecord, actor: ActorRef, end: Callable[[Verdict], None]) -> None:
    """Check a connection at each due time; at the first verdict, call `end` with the verdict and return."""
    health = record.health
    try:
        while True:
            await health.wait_due()
            await check_health(record, actor)
            if (verdict := await health.verdict()) is not None:
                end(verdict)
                return
    finally:
        health.end()


# --- The lowest level of a server's log messages, kept across connections ---------------------------------------------


logger = Log("mcp_actors.servers")

LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)


@define(eq=False)
class SetLogLevel(Request[None]):
    """Set the lowest level of log messages, for this connection and all later ones.

    A `level` of None repeats the latest level on a new connection.
    """

    level: LoggingLevel | None = None

    operation: ClassVar[str] = "logging/setLevel"

    of_the_session: ClassVar[bool] = True

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        before = record.next_connect.log_level
        level = self.level or before
        if level is None:
            return
        # Set before the send: of two concurrent calls, the last to send then also wins here.
        record.next_connect.log_level = level
        if session.modern:
            return
        # If this raises, callbacks still keep to the level.
        require("logging", session.capabilities, record.config.name, self.operation)
        try:
            await session.ask("logging/setLevel", {"level": level}, attempt=self.deadline)
        except Exception:
            if record.next_connect.log_level == level:  # unless a later call has replaced it meanwhile
                record.next_connect.log_level = before
            raise


async def keep_log_level(record: ConnectionRecord, actor: ActorRef) -> None:
    try:
        await request_internally(record, actor, SetLogLevel())
    except (ActorCrashed, ActorStopped, NotSupported):
        return  # the connection was lost, or the server has no logging capability
    except Exception as exc:
        name = record.config.name
        logger.warning("server %r: setting its log level failed: %s; call set_log_level() again", name, problem_of(exc))


def given_level(server: str, level: object) -> LoggingLevel:
    if level not in LEVELS:
        shown = f"is {level!r:.40}" if isinstance(level, str) else f"is {kind_of(level)}"
        raise refused(server, "logging/setLevel", "level", (), f"{shown}; expected one of {', '.join(LEVELS)}")
    return cast("LoggingLevel", level)


# --- The message that notifies a server of changed roots --------------------------------------------------------------


@define(eq=False)
class TellRootsChanged(Request[None]):
    operation: ClassVar[str] = "notifications/roots/list_changed"

    of_the_session: ClassVar[bool] = True

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        """Send the notification. Servers since 2026-07-28 ask for the roots when needed.

        Raises:
            NotSupported: the server has no callback for roots.
        """
        if record.server.callbacks.roots is None:
            raise NotSupported(
                f"server {record.config.name!r}: changed roots are not supported without a callback for roots; "
                "configure Callbacks(roots=...)",
                server=record.config.name,
                capability="roots",
            )
        if not session.modern:
            await session.notify("notifications/roots/list_changed")
