"""The resources, templates and prompts that a server listed last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ..tools import Freshness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import Prompt, Resource, ResourceTemplate

    from ..tools import Ticket


class KeptResources:
    """The resources and prompts of one server, with ``ServerConfig.keep_resources``; without it they stay empty.

    They outlive connections. Two places write them, one after the other: a new connection, and the task that lists them
    again (``connection.upkeep._resources``).

    Attributes:
        resources: the listed resources.
        templates: the listed templates.
        prompts: the listed prompts.
        answers: the number of answers that differed from the answer before.
        freshness: whether the last answer is outdated.
        kept: whether they are listed. Changed by `keep`.

    Args:
        kept: see above.
        on_change: called at each change of the resources or templates.
        on_prompts: called at each change of the prompts.
    """

    def __init__(self, kept: bool, on_change: Callable[[], None], on_prompts: Callable[[], None]) -> None:
        self.kept: bool = kept
        self.resources: tuple[Resource, ...] = ()
        self.templates: tuple[ResourceTemplate, ...] = ()
        self.prompts: tuple[Prompt, ...] = ()
        self.answers: int = 0
        self.freshness: Freshness = Freshness()
        self._on_change = on_change
        self._on_prompts = on_prompts

    def begin(self) -> Ticket:
        """Register that the server is about to be asked for its resources."""
        return self.freshness.begin()

    def show(
        self,
        ticket: Ticket,
        resources: tuple[Resource, ...],
        templates: tuple[ResourceTemplate, ...],
        prompts: tuple[Prompt, ...],
    ) -> None:
        """Show the answer to a request."""
        self.freshness.show(ticket, trio.current_time())
        changed, prompts_changed = (resources, templates) != (self.resources, self.templates), prompts != self.prompts
        self.resources, self.templates, self.prompts = resources, templates, prompts
        if changed or prompts_changed:
            self.answers += 1
        if changed:
            self._on_change()
        if prompts_changed:
            self._on_prompts()

    def keep(self, kept: bool) -> None:
        """Follow a changed configuration."""
        self.kept = kept
        if not kept:
            self.show(self.begin(), (), (), ())

    def mark_stale(self) -> None:
        """Have all listed again, because the server has announced a change of resources, or may have.

        Without a list the event for a change is emitted now, and not only if the list differs.
        """
        self._changed(self._on_change)

    def mark_prompts_stale(self) -> None:
        """Have all listed again, because the server has announced a change of prompts, or may have."""
        self._changed(self._on_prompts)

    def _changed(self, emit: Callable[[], None]) -> None:
        if self.kept:
            self.freshness.mark_stale(trio.current_time())
        else:
            emit()
