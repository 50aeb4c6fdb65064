"""The resources and templates that a server listed last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ..tools import Freshness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import Resource, ResourceTemplate

    from ..tools import Ticket


class KeptResources:
    """The resources of one server, with ``ServerConfig.keep_resources``; without it they stay empty.

    They outlive connections. Two places write them, one after the other: a new connection, and the task that lists them
    again (``connection.upkeep._resources``).

    Attributes:
        resources: the listed resources.
        templates: the listed templates.
        answers: the number of answers that differed from the answer before.
        freshness: whether the last answer is outdated.
        kept: whether they are listed. Changed by `keep`.

    Args:
        kept: see above.
        on_change: called at each change.
    """

    def __init__(self, kept: bool, on_change: Callable[[], None]) -> None:
        self.kept: bool = kept
        self.resources: tuple[Resource, ...] = ()
        self.templates: tuple[ResourceTemplate, ...] = ()
        self.answers: int = 0
        self.freshness: Freshness = Freshness()
        self._on_change = on_change

    def begin(self) -> Ticket:
        """Register that the server is about to be asked for its resources."""
        return self.freshness.begin()

    def show(self, ticket: Ticket, resources: tuple[Resource, ...], templates: tuple[ResourceTemplate, ...]) -> None:
        """Show the answer to a request."""
        self.freshness.show(ticket, trio.current_time())
        if (resources, templates) != (self.resources, self.templates):
            self.resources, self.templates = resources, templates
            self.answers += 1
            self._on_change()

    def keep(self, kept: bool) -> None:
        """Follow a changed configuration."""
        self.kept = kept
        if not kept:
            self.show(self.begin(), (), ())

    def mark_stale(self) -> None:
        """Have them listed again, because the server has announced a change, or may have.

        Without a list the event for a change is emitted now, and not only if the list differs.
        """
        if self.kept:
            self.freshness.mark_stale(trio.current_time())
        else:
            self._on_change()
