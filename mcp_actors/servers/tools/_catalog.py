"""What is known of the tools of one server, and which of them are shown.

It outlives connections: while the server reconnects its tools stay listed. It is written by whoever has asked the
server (the connection when it begins, requests, the task that refreshes it), each in one synchronous step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio
from attrs import frozen

from ..._errors import LimitExceeded
from ...catalog import ToolChecks
from ._admission import Admission
from ._freshness import Currency
from ._known import KnownTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...catalog import CatalogTool, Pins, PinVerdict
    from ...config import ServerConfig
    from ._admission import ToolChanges
    from ._freshness import Ticket

__all__ = ["Difference", "ServerCatalog"]

MAX_TOLD: Final = 8
"""Tools of one listing whose excess is told one by one. A server must not fill logs, or push events out of a stream."""


@frozen(kw_only=True)
class Difference:
    """How the tools that are shown have changed: their names now, and those that are new, gone and different."""

    tools: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class Reporter(Protocol):
    """Who is told of what happens to a catalogue."""

    def changed(self, difference: Difference) -> None:
        """Other tools are shown."""

    def differs(self, verdict: PinVerdict) -> None:
        """What is listed is not what was accepted."""

    def listed_again(self) -> None:
        """A server that did not list its tools has done so."""

    def over_limit(self, error: LimitExceeded) -> None:
        """Something of it is too much."""


class _Silence:
    """Tells nobody."""

    def changed(self, difference: Difference) -> None: ...

    def differs(self, verdict: PinVerdict) -> None: ...

    def listed_again(self) -> None: ...

    def over_limit(self, error: LimitExceeded) -> None: ...


class ServerCatalog:
    """The tools of one server.

    Attributes:
        known: True once the server has listed its tools in this run.
        listed: what it has listed, all of it.
        tools: which of these are shown.
        shown: what the group's catalogue shows of them, but for public names; the same object while that is the same.
        version: how often that has changed.
        answers: how often the server has answered something else than the time before, shown or not.
        deferred: True as long as these were listed in an earlier run, and it has listed none in this one (`recall`).
        checks: what the tools ask of their arguments; follows `listed`.
        admission: decides which of the listed tools are shown.
        failure: why the server, which is connected, has not listed its tools on this connection; None: it has.

    Args:
        config: the server's configuration.
        tell: told synchronously of what happens.
    """

    def __init__(self, config: ServerConfig, tell: Reporter) -> None:
        self.known: bool = False
        self.listed: tuple[KnownTool, ...] = ()
        self.tools: tuple[KnownTool, ...] = ()
        self.shown: tuple[CatalogTool, ...] = ()
        self.version: int = 0
        self.answers: int = 0
        self.deferred: bool = False
        self.checks: ToolChecks = ToolChecks(config.name, mode=config.validate)
        self.admission: Admission = Admission(config)
        self.failure: Exception | None = None
        self._over_limit: dict[str, frozenset[str]] = {}
        self._answer: tuple[KnownTool, ...] = ()
        self._config = config
        self._tell = tell
        self._currency = Currency()
        self._became_stale = trio.Event()

    def lent(self) -> ServerCatalog:
        """Return another one for a connection of somebody's own: what is known now, and nobody is told of changes."""
        other = ServerCatalog(self._config, _Silence())
        other.listed, other.checks = self.listed, self.checks
        other._set(self.tools)
        other.admission = self.admission.lent()
        return other

    # --- listings ---------------------------------------------------------------------------------------------------

    def begin(self) -> Ticket:
        """The server is about to be asked for all its tools."""
        return self._currency.begin()

    def offer(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        """The server has answered. That is shown, unless it may be older than what is, or is known to be."""
        listed = self._compared(listed)
        match self._currency.judge(ticket, trio.current_time()):
            case "newest":
                self.replace(ticket, listed)
            case "crossed" if listed != self.listed:
                self.mark_stale()  # one of the two is old, and nobody knows which

    def replace(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        """Show this, whatever there was: it comes over a new connection, or is known to be the newest."""
        listed = self._compared(listed)
        self._currency.show(ticket, trio.current_time())
        if listed is not self.listed or not self.known:  # what was checked may have been declared only
            self.listed = listed
            self.checks = self.checks.updated(each.tool for each in listed)
        self.known = True
        verdict = self.admission.admit(listed)
        self._show(self.admission.admitted())
        if verdict is not None:
            self._tell.differs(verdict)
        if self.failure is not None:
            self.failure = None
            self._tell.listed_again()

    def _compared(self, listed: tuple[KnownTool, ...]) -> tuple[KnownTool, ...]:
        """Return an answer, as the same object as the one before if it is equal; count it if it is not."""
        if listed != self._answer:
            self._answer = listed
            self.answers += 1
        return self._answer

    @property
    def accepted(self) -> Pins | None:
        """What the next listing is to be judged against; None: there was none that counts. Remembered with `listed`."""
        return self.admission.accepted

    def recall(self, listed: tuple[KnownTool, ...], accepted: Pins | None) -> None:
        """Show what was listed in an earlier run. Nothing is told, and no arguments are checked against it."""
        self.listed = listed
        self.admission.recall(listed, accepted)
        self._set(self.admission.admitted())
        self.deferred = True

    def fall_back(self, ticket: Ticket, failure: Exception) -> None:
        """The server is connected, but does not list its tools: show what it listed before, or what is configured."""
        self._currency.show(ticket, trio.current_time())
        self.failure = failure
        self.mark_stale()
        if not self.known:
            declared = self._config.static_tools
            self.checks = self.checks.updated(declared)
            self._show(self.admission.stand_in(KnownTool.of(self._config.name, tool) for tool in declared))

    def note_over_limit(self, what: str, errors: Sequence[LimitExceeded]) -> None:
        """Tell what of a list is too much, unless that was told of the one before.

        Args:
            what: what was listed: ``"tools"``, ``"resources"`` and so on.
            errors: what is too much.
        """
        told, self._over_limit[what] = self._over_limit.get(what, frozenset()), frozenset(map(str, errors))
        news = [error for error in errors if str(error) not in told]
        for error in news[:MAX_TOLD]:
            self._tell.over_limit(error)
        if (more := len(news) - MAX_TOLD) > 0:
            server = self._config.name
            self._tell.over_limit(
                LimitExceeded(
                    f"server {server!r}: {more} more of its {what} are over a limit too, and left out", server=server
                )
            )

    # --- approval ---------------------------------------------------------------------------------------------------

    def approve(self, changes: ToolChanges, names: tuple[str, ...]) -> None:
        """Show what was hidden until somebody had looked at it.

        Raises:
            ToolNotFound: see `Admission.approve`.
        """
        self.admission.approve(changes, names)
        if self.known or self.deferred:
            self._show(self.admission.admitted(), deferred=self.deferred)

    def _show(self, tools: tuple[KnownTool, ...], *, deferred: bool = False) -> None:
        before, were_deferred = self.tools, self.deferred
        self.deferred = deferred
        if tools != before:
            self._set(tools)
        if tools != before or deferred != were_deferred:
            self.version += 1
            self._tell.changed(_difference(before, tools))

    def _set(self, tools: tuple[KnownTool, ...]) -> None:
        self.tools, self.shown = tools, tuple(each.shown for each in tools)

    # --- staleness --------------------------------------------------------------------------------------------------

    def mark_stale(self, _: object = None) -> None:
        """The server has said that its list has changed, or may have done so unheard."""
        self._currency.mark_stale(trio.current_time())
        self._became_stale.set()

    def is_stale(self) -> bool:
        """Whether what is shown is known to be out of date."""
        return self._currency.stale_since is not None

    async def wait_stale(self) -> None:
        """Wait until what is shown is out of date."""
        while not self.is_stale():
            self._became_stale = trio.Event()
            await self._became_stale.wait()


def _difference(before: tuple[KnownTool, ...], after: tuple[KnownTool, ...]) -> Difference:
    old, new = {each.name: each for each in before}, {each.name: each for each in after}
    return Difference(
        tools=tuple(tool.name for tool in after),
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
    )
