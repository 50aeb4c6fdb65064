"""Who tells the group, and the log, of what happens to the tools of a server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from attrs import asdict, frozen

from ._events import LimitReached, ToolsChanged, ToolsDiffer

if TYPE_CHECKING:
    from .._errors import LimitExceeded
    from ..catalog import PinVerdict
    from ._catalog import Difference
    from ._record import ServerRecord

__all__ = ["CatalogReporter"]

logger = logging.getLogger("mcp_actors.servers")


@frozen
class CatalogReporter:
    """Tells what happens to the catalogue of one server."""

    record: ServerRecord

    def changed(self, difference: Difference) -> None:
        """Other tools are shown."""
        self.record.tell(ToolsChanged, **asdict(difference))

    def differs(self, verdict: PinVerdict) -> None:
        """What is listed is not what was accepted."""
        config, blocked = self.record.config, bool(verdict.hidden)
        place = f" (see {config.source})" if verdict.identity_changed and config.source is not None else ""
        logger.warning(
            "server %r: its tools are not what was accepted; %s%s%s",
            config.name,
            verdict.summary(),
            place,
            "; what is new or different is hidden until it is approved" if blocked else "",
        )
        self.record.tell(
            ToolsDiffer,
            added=verdict.added,
            changed=verdict.changed,
            removed=verdict.removed,
            identity_changed=verdict.identity_changed,
            blocked=blocked,
        )

    def listed_again(self) -> None:
        """A server that did not list its tools has done so."""
        self.record.recover()

    def over_limit(self, error: LimitExceeded) -> None:
        """Something of it is too much."""
        error.args = (self.record.masker(str(error)),)  # it names what the server lists
        logger.warning("%s", error)
        self.record.tell(LimitReached, error=error)
