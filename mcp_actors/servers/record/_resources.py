"""The resources and templates that a server listed last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import Resource, ResourceTemplate

__all__ = ["KeptResources"]


class KeptResources:
    """The resources of one server, with ``ServerConfig.keep_resources``; without it they stay empty.

    They outlive connections. Two places write them, one after the other: a new connection, and the task that lists them
    again (``connection.upkeep._resources``).

    Attributes:
        resources: the listed resources.
        templates: the listed templates.
        version: the number of changes.

    Args:
        on_change: called at each change.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.resources: tuple[Resource, ...] = ()
        self.templates: tuple[ResourceTemplate, ...] = ()
        self.version: int = 0
        self._on_change = on_change
        self._notices = 0
        self._shown = 0
        self._became_stale = trio.Event()

    def begin(self) -> int:
        """Return the ticket for a request that is about to be sent: the number of notices that its answer covers."""
        return self._notices

    def show(self, ticket: int, resources: tuple[Resource, ...], templates: tuple[ResourceTemplate, ...]) -> None:
        """Show the answer to a request."""
        self._shown = ticket
        if (resources, templates) != (self.resources, self.templates):
            self.resources, self.templates = resources, templates
            self.version += 1
            self._on_change()

    def mark_stale(self) -> None:
        """Note that the server has announced a change, or may have."""
        self._notices += 1
        self._became_stale.set()

    def is_stale(self) -> bool:
        """Return True if a notice has arrived that no answer covers."""
        return self._shown != self._notices

    async def wait_stale(self) -> None:
        """Wait until `is_stale`."""
        while not self.is_stale():
            self._became_stale = trio.Event()
            await self._became_stale.wait()
