"""Who tells the group, and the log, of what happens to the tools of a server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from attrs import asdict, frozen

from ._events import LimitReached, ToolsChanged, ToolsDiffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._errors import LimitExceeded
    from ...catalog import PinVerdict
    from ...config import ServerConfig
    from ..tools import Difference

__all__ = ["CatalogReporter"]

logger = logging.getLogger("mcp_actors.servers")


@frozen
class CatalogReporter:
    """Tells what happens to the catalogue of one server.

    Attributes:
        config: the configuration of the server.
        emit: emits an event about the server.
        recover: called when the server lists its tools again.
        mask: masks the credentials of the current connection.
    """

    config: ServerConfig
    emit: Callable[..., None]
    recover: Callable[[], None]
    mask: Callable[[str], str]

    def changed(self, difference: Difference) -> None:
        """Other tools are shown."""
        self.emit(ToolsChanged, **asdict(difference))

    def differs(self, verdict: PinVerdict) -> None:
        """What is listed is not what was accepted."""
        config, blocked = self.config, bool(verdict.hidden)
        place = f" (see {config.source})" if verdict.identity_changed and config.source is not None else ""
        logger.warning(
            "server %r: its tools are not what was accepted; %s%s%s",
            config.name,
            verdict.summary(),
            place,
            "; what is new or different is hidden until it is approved" if blocked else "",
        )
        self.emit(
            ToolsDiffer,
            added=verdict.added,
            changed=verdict.changed,
            removed=verdict.removed,
            identity_changed=verdict.identity_changed,
            blocked=blocked,
        )

    def listed_again(self) -> None:
        """A server that did not list its tools has done so."""
        self.recover()

    def over_limit(self, error: LimitExceeded) -> None:
        """Something of it is too much."""
        error.args = (self.mask(str(error)),)  # it names what the server lists
        logger.warning("%s", error)
        self.emit(LimitReached, error=error)
