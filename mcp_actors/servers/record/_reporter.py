"""Report changes of a server's tools as events and log records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from ..._foreign import Log
from ..tools import Reporter
from ._events import LimitReached, ToolsChanged, ToolsDiffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._errors import LimitExceeded
    from ...catalog import PinVerdict
    from ...config import ServerConfig
    from ..tools import Difference

logger = Log("mcp_actors.servers")


@define
class CatalogReporter(Reporter):
    """Reports changes of the catalogue of one server.

    Attributes:
        config: the configuration of the server. Replaced when that changes.
        emit: emits an event about the server.
        recover: called when the server lists its tools again.
        mask: masks the credentials of the current connection.
    """

    config: ServerConfig
    emit: Callable[..., None]
    recover: Callable[[], None]
    mask: Callable[[str], str]

    def changed(self, difference: Difference) -> None:
        """Report that the shown tools have changed."""
        self.emit(ToolsChanged, **difference._asdict())

    def differs(self, verdict: PinVerdict) -> None:
        """Report that the listed tools differ from the accepted ones."""
        config, blocked = self.config, bool(verdict.hidden)
        place = f" (see {config.source})" if verdict.identity_changed and config.source is not None else ""
        logger.warning(
            "server %r: tools differ from the accepted ones; %s%s%s",
            config.name,
            self.mask(verdict.summary()),
            place,
            "; new and changed tools are hidden until they are approved" if blocked else "",
        )
        self.emit(
            ToolsDiffer,
            added=verdict.added,
            changed=verdict.changed,
            removed=verdict.removed,
            identity_changed=verdict.identity_changed,
            blocked=blocked,
        )

    def misnamed(self, names: str) -> None:
        """Report names in the filter that no tool has."""
        logger.warning(
            "server %r: its ToolFilter has names of tools that the server does not list: %s; correct "
            "ServerConfig.tools",
            self.config.name,
            self.mask(names),
        )

    def listed_again(self) -> None:
        """Report that the server lists its tools again."""
        self.recover()

    def invalid(self, problem: str) -> None:
        """Report that an item is left out because it is not valid."""
        logger.warning("server %r: %s", self.config.name, self.mask(problem))

    def over_limit(self, error: LimitExceeded) -> None:
        """Report that a limit was exceeded."""
        error.args = (self.mask(str(error)),)  # it quotes names of the server
        logger.warning("%s", error)
        self.emit(LimitReached, error=error)
