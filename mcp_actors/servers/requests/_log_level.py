"""The lowest level of a server's log messages, kept across connections.

Up to protocol 2025-11-25 the level is sent once per connection (``logging/setLevel``). Since 2026-07-28 a connection
has no such state, and every request carries the level in its ``_meta``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast, get_args

from attrs import define
from mcp import MCPError
from mcp.types import LoggingLevel

from ..._errors import ActorCrashed, ActorStopped, NotSupported
from ..._foreign import Log
from ..._text import problem_of
from ...catalog._schemas import kind_of
from ..record import require
from ._arguments import refused
from ._request import Request, request_internally

if TYPE_CHECKING:
    from ...kernel import ActorRef
    from ..record import ServerRecord
    from ..session import Session

logger = Log("mcp_actors.servers")

LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)


@define(eq=False)
class SetLogLevel(Request[None]):
    """Set the lowest level of log messages, for this connection and all later ones.

    Attributes:
        level: the level. None repeats the latest one, which a new connection does not know.
    """

    level: LoggingLevel | None = None

    operation: ClassVar[str] = "logging/setLevel"

    of_the_session: ClassVar[bool] = True

    async def send(self, session: Session, record: ServerRecord) -> None:
        """Remember the level, and send it to a server of the legacy era."""
        before = record.opening.log_level
        level = self.level or before
        if level is None:
            return
        # Set before sending: of two concurrent calls, the one that is sent last also wins here.
        record.opening.log_level = level
        try:
            if not session.modern:
                require("logging", session.capabilities, record.config.name, self.operation)
                await session.ask("logging/setLevel", {"level": level})
        except (MCPError, NotSupported):
            if record.opening.log_level == level:  # unless a later call has replaced it meanwhile
                record.opening.log_level = before
            raise


async def keep_log_level(record: ServerRecord, actor: ActorRef) -> None:
    """Send the configured or latest level on a new connection; log a failure."""
    try:
        await request_internally(record, actor, SetLogLevel())
    except (ActorCrashed, ActorStopped, NotSupported):
        return  # the connection was lost, or the server has no logging capability
    except Exception as exc:
        name = record.config.name
        logger.warning("server %r: setting its log level failed: %s; call set_log_level() again", name, problem_of(exc))


def given_level(server: str, level: object) -> LoggingLevel:
    """Return a valid log level.

    Raises:
        InvalidArguments: the level is unknown.
    """
    if level not in LEVELS:
        shown = f"is {level!r:.40}" if isinstance(level, str) else f"is {kind_of(level)}"
        raise refused(server, "logging/setLevel", "level", (), f"{shown}; expected one of {', '.join(LEVELS)}")
    return cast("LoggingLevel", level)
