"""From which level on a server sends log messages: one wish, two ways to say it.

In the legacy era the server is told once per connection. Since 2026-07-28 there are no connections to remember it, and
every request says for itself what it wants to hear.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast, get_args

from attrs import frozen
from mcp import MCPError
from mcp.types import EmptyResult, LoggingLevel, SetLevelRequest, SetLevelRequestParams
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from .._errors import ActorCrashed, ActorStopped, NotSupported
from ..catalog.schemas import kind_of
from ._given import refused
from ._problems import problem_of
from ._request import Request, ask_from_beside
from ._supported import require

if TYPE_CHECKING:
    from mcp import Client

    from ..kernel import ActorRef
    from ._record import ServerRecord

__all__ = ["SetLogLevel", "given_level", "keep_log_level"]

logger = logging.getLogger("mcp_actors.servers")

LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)


@frozen
class SetLogLevel(Request[None]):
    """Have log messages sent from a level on, by this connection and all that follow.

    Attributes:
        level: from which on; None: the one that was wished for last, as a new connection does not know it.
    """

    level: LoggingLevel | None = None

    @property
    def operation(self) -> str:
        """``logging/setLevel``."""
        return "logging/setLevel"

    @property
    def of_the_session(self) -> bool:
        """It is about the connection that is used by everybody."""
        return True

    async def send(self, client: Client, record: ServerRecord) -> None:
        """Tell the server, if it is one that can be told; else there is nothing to send."""
        before = record.log_level
        level = self.level or before
        if level is None:
            return
        # Before it is sent, so that of two wishes at a time the one that is sent last is the one that is kept.
        record.log_level = level
        try:
            if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                require("logging", client, record.config.name, self.operation)
                await send_log_level(client, level)
        except (MCPError, NotSupported):
            if record.log_level == level:  # else there was another wish meanwhile, and that one counts
                record.log_level = before
            raise


async def send_log_level(client: Client, level: LoggingLevel) -> None:
    """``logging/setLevel``, to a server of the legacy era.

    Raises:
        mcp.MCPError: as for `Request.send`.
    """
    # The SDK's own function for it warns that it is of the legacy era.
    await client.session.send_request(SetLevelRequest(params=SetLevelRequestParams(level=level)), EmptyResult)


async def keep_log_level(record: ServerRecord, actor: ActorRef) -> None:
    """Tell a new connection the level that was configured, or set since; if that fails, only say so."""
    if record.log_level is None:
        return
    try:
        await ask_from_beside(record, actor, SetLogLevel())
    except (ActorCrashed, ActorStopped, NotSupported):
        return  # the connection has ended, or it does not log
    except Exception as exc:
        name = record.config.name
        logger.warning("server %r: its log level was not set again: %s; use set_log_level", name, problem_of(exc))


def given_level(server: str, level: object) -> LoggingLevel:
    """Return a log level.

    Raises:
        InvalidArguments: there is no such level.
    """
    if level not in LEVELS:
        shown = f"is {level!r:.40}" if isinstance(level, str) else f"is {kind_of(level)}"
        raise refused(server, "logging/setLevel", "level", (), f"{shown}; expected one of {', '.join(LEVELS)}")
    return cast("LoggingLevel", level)
