"""What is known of the tools of one server, and which of them are shown.

It outlives connections: while the server reconnects its tools stay listed. It is written by whoever has asked the
server (the connection when it begins, requests, the task that refreshes it), each in one synchronous step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from attrs import frozen

from ..catalog import ToolChecks
from ._currency import Currency

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import Tool

    from ..catalog import Pins
    from ..config import ServerConfig
    from ._currency import Ticket

__all__ = ["Difference", "ServerCatalogue"]


@frozen(kw_only=True)
class Difference:
    """How the tools that are shown have changed: their names now, and those that are new, gone and different."""

    tools: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class ServerCatalogue:
    """The tools of one server.

    Attributes:
        listed: what the server has listed, all of it.
        tools: which of these are shown.
        version: how often that has changed.
        deferred: True as long as these were listed in an earlier run, and it has listed none in this one (`recall`).
        checks: what the tools ask of their arguments; follows `listed`.
        accepted: what the next listing is to be judged against; None: there was no listing that counts. It is
            remembered with what is listed.

    Args:
        config: the server's configuration.
        tell: called synchronously whenever what is shown has changed.
    """

    def __init__(self, config: ServerConfig, tell: Callable[[Difference], None]) -> None:
        self.listed: tuple[Tool, ...] = ()
        self.tools: tuple[Tool, ...] = ()
        self.version = 0
        self.deferred = False
        self.checks = ToolChecks(config.name, mode=config.validate)
        self.accepted: Pins | None = None
        self._config = config
        self._tell = tell
        self._currency = Currency()
        self._became_stale = trio.Event()

    def lent(self) -> ServerCatalogue:
        """Return another one for a connection of somebody's own: what is known now, and nobody is told of changes."""
        other = ServerCatalogue(self._config, lambda _: None)
        other.listed, other.tools, other.checks = self.listed, self.tools, self.checks
        return other

    # --- listings ---------------------------------------------------------------------------------------------------

    def begin(self) -> Ticket:
        """The server is about to be asked for all its tools."""
        return self._currency.begin()

    def offer(self, ticket: Ticket, listed: tuple[Tool, ...]) -> None:
        """The server has answered. That is shown, unless it may be older than what is, or is known to be."""
        match self._currency.judge(ticket, trio.current_time()):
            case "newest":
                self.replace(ticket, listed)
            case "crossed" if listed != self.listed:
                self.notice()  # one of the two is old, and nobody knows which

    def replace(self, ticket: Ticket, listed: tuple[Tool, ...]) -> None:
        """Show this, whatever there was: it comes over a new connection, or is known to be the newest."""
        self._currency.show(ticket, trio.current_time())
        self.listed = listed
        self.checks = self.checks.updated(listed)  # also if they are equal: to Python, 1 and true are
        self._show(listed)

    def recall(self, listed: tuple[Tool, ...], accepted: Pins | None) -> None:
        """Show what was listed in an earlier run. Nothing is told, and no arguments are checked against it."""
        self.listed = self.tools = listed
        self.accepted = accepted
        self.deferred = True

    def _show(self, tools: tuple[Tool, ...]) -> None:
        before, self.tools = self.tools, tools
        recalled, self.deferred = self.deferred, False
        if tools != before or recalled:
            self.version += 1
            self._tell(_difference(before, tools))

    # --- notices ----------------------------------------------------------------------------------------------------

    def notice(self, _: object = None) -> None:
        """The server has said that its list has changed, or may have done so unheard."""
        self._currency.notice(trio.current_time())
        self._became_stale.set()

    def is_stale(self) -> bool:
        """Whether what is shown is known to be out of date."""
        return self._currency.stale_since is not None

    async def wait_stale(self) -> None:
        """Wait until what is shown is out of date."""
        while not self.is_stale():
            self._became_stale = trio.Event()
            await self._became_stale.wait()


def _difference(before: tuple[Tool, ...], after: tuple[Tool, ...]) -> Difference:
    old, new = _by_name(before), _by_name(after)
    return Difference(
        tools=tuple(tool.name for tool in after),
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
    )


def _by_name(tools: tuple[Tool, ...]) -> dict[str, Tool]:
    """The tools by name. Of several of one name the first counts, as in the catalogue."""
    found: dict[str, Tool] = {}
    for tool in tools:
        found.setdefault(tool.name, tool)
    return found
