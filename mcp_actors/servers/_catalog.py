"""Keep the listed tools and the shown tools of one server.

A catalogue outlives connections: tools stay listed while the server reconnects. Answers to ``tools/list`` may be
outdated or out of order, so `Freshness` judges each answer.

Owns: listed and shown tools of a server; checks of arguments; reported problems; the freshness of answers.
Writes: reports of changes and problems.
Calls: catalog, _admission.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import trio
from attrs import define, field

from .._errors import LimitExceeded
from ..catalog import ToolChecks
from ._admission import Admission, KnownTool, ToolChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..catalog import CatalogEntry, Pins, PinVerdict
    from ..config import ServerConfig


MAX_REPORTED: Final = 8
"""At most this many dropped items of a list are reported one by one. More would fill logs and event streams."""


class ToolDifference(NamedTuple):
    """A change of the shown tools: all names now, and the names of added, removed and changed tools."""

    tools: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class Reporter:
    """Receives the changes of a catalogue, synchronously. The base class ignores every report.

    Attributes:
        mask: masks credentials in text of the server; in the base class, changes nothing.
    """

    mask: Callable[[str], str] = str

    def changed(self, difference: ToolDifference) -> None:
        """Report a change of the shown tools."""

    def differs(self, verdict: PinVerdict) -> None:
        """Report a difference between the listed and the accepted tools."""

    def listed_again(self) -> None:
        """Report the first listing after a failure to list."""

    def misnamed(self, names: str) -> None:
        """Report names in the filter without a listed tool."""

    def over_limit(self, error: LimitExceeded) -> None:
        """Report an item left out for exceeding a limit."""

    def invalid(self, problem: str) -> None:
        """Report an item left out as invalid."""


class ServerCatalog:
    """The tools of one server.

    Connections, listing requests, approvals and configuration changes write by synchronous methods, and never see half
    of a change.

    Attributes:
        known: True once the server has listed its tools in this run.
        tools: the listed tools that are shown.
        shown: `tools` as entries of the group's catalogue; the same object while unchanged.
        version: counts the changes of `shown`.
        answers: counts the answers that differed from the previous answer, shown or not.
        deferred: True while the tools come from an earlier run (`restore`) or connection (`defer`), with no listing
            since.
        checks: validates arguments against the schemas of `listed`.
        failure: why the server has not listed its tools on this connection; None if listed.
        naming: the template of public names in the group.
        lasting: milliseconds for which the last answer to each listing method holds, as stated by the server; infinite
            without the capability or method. Written by the requests that list.
    """

    def __init__(self, config: ServerConfig, reporter: Reporter, naming: str) -> None:
        self.naming: str = naming
        self.lasting: dict[str, float] = {}
        self.known: bool = False
        self.listed: tuple[KnownTool, ...] = ()
        self.tools: tuple[KnownTool, ...] = ()
        self.shown: tuple[CatalogEntry, ...] = ()
        self.version: int = 0
        self.answers: int = 0
        self.deferred: bool = False
        self.checks: ToolChecks = ToolChecks(config.name, mode=config.validate, mask=reporter.mask)
        self.admission: Admission = Admission(config)
        self.freshness: Freshness = Freshness()
        self.failure: Exception | None = None
        self._over_limit: dict[str, frozenset[str]] = {}
        self._invalid: dict[str, frozenset[str]] = {}
        self._answer: tuple[KnownTool, ...] = ()
        self._judged: tuple[object, object] = (None, None)
        self._misnamed: str | None = None
        self._config = config
        self._reporter = reporter

    def configure(self, config: ServerConfig) -> None:
        """Take over a changed configuration: filter, approval and validation at once, the rest at the next listing."""
        self._config = config
        checks = ToolChecks(config.name, mode=config.validate, mask=self._reporter.mask)
        self.checks = checks.updated(each.tool for each in self.listed)
        identity = self.admission.identity
        verdict = self.admission.configure(config)
        if self.known or self.deferred:
            self._show(self.admission.admitted(), deferred=self.deferred)
        if self.known:
            self._report_misnamed()
        if verdict is not None:
            self._reporter.differs(verdict)
        if self.admission.identity != identity:
            self.known = False  # until the next listing, the tools are another program's: do not store them

    def copy_for_isolated(self) -> ServerCatalog:
        """Return a copy for an isolated attempt. The copy reports nothing."""
        other = ServerCatalog(self._config, Reporter(), self.naming)
        other.listed, other.checks = self.listed, self.checks
        other._set(self.tools)
        other.admission = self.admission.copy_for_isolated()
        return other

    def lists(self, name: str) -> bool:
        return any(each.name == name for each in self.listed)

    # --- listings ---------------------------------------------------------------------------------------------------

    def offer(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        """Show an answer, unless possibly outdated or older than the shown answer."""
        listed = self._compared(listed)
        match self.freshness.judge(ticket, trio.current_time()):
            case "newest":
                self._replace(ticket, listed)
            case "crossed" if listed != self.listed:
                self.mark_stale()  # one of the two answers is outdated, perhaps the shown one

    def replace(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        """Show an answer unconditionally: the first on a new connection."""
        self._replace(ticket, listed)
        self.checks.sample()

    def _replace(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        listed = self._compared(listed)
        self.freshness.show(ticket, trio.current_time())
        if listed is not self.listed or not self.known:  # the checks may come from static_tools
            self.listed = listed
            self.checks = self.checks.updated(each.tool for each in listed)
        self.known = True
        verdict = self.admission.admit(listed)
        self._show(self.admission.admitted())
        self._report_misnamed()
        if verdict is not None:
            self._reporter.differs(verdict)
        if self.failure is not None:
            self.failure = None
            self._reporter.listed_again()

    def _report_misnamed(self) -> None:
        """Report the filter's names that no listed tool has, once for each filter and list."""
        judged = (self._config.tool_filter, self.listed)
        if judged[0] is self._judged[0] and judged[1] is self._judged[1]:
            return
        self._judged, before = judged, self._misnamed
        self._misnamed = self.admission.misnamed()
        if self._misnamed is not None and self._misnamed != before:
            self._reporter.misnamed(self._misnamed)

    def _compared(self, listed: tuple[KnownTool, ...]) -> tuple[KnownTool, ...]:
        """Return the previous tuple for an equal answer (``is`` finds a change); otherwise count a new answer."""
        if listed != self._answer:
            self._answer = listed
            self.answers += 1
        return self._answer

    def restore(self, listed: tuple[KnownTool, ...], accepted: Pins | None) -> None:
        """Show the tools of an earlier run, without reporting a change or validating arguments."""
        self.listed = listed
        self.admission.restore(listed, accepted)
        self._set(self.admission.admitted())
        self.deferred = True

    def defer(self) -> None:
        """Keep showing the tools of a resting server until its next listing."""
        self.deferred = self.known or self.deferred

    def use_static(self, ticket: Ticket, failure: Exception) -> None:
        """Keep the earlier tools, or show ``static_tools``, when a connected server cannot list any."""
        self.freshness.show(ticket, trio.current_time())
        self.failure = failure
        self.mark_stale()
        if not self.known:
            declared = self._config.static_tools
            self.checks = self.checks.updated(declared)
            self._show(
                self.admission.admit_static(KnownTool.of(self._config.name, tool, self.naming) for tool in declared)
            )

    def note_over_limit(self, what: str, errors: Sequence[LimitExceeded]) -> None:
        """Report a list's items over a limit, unless reported for the previous list."""
        before, self._over_limit[what] = self._over_limit.get(what, frozenset()), frozenset(map(str, errors))
        new = [error for error in errors if str(error) not in before]
        for error in new[:MAX_REPORTED]:
            self._reporter.over_limit(error)
        if (more := len(new) - MAX_REPORTED) > 0:
            server = self._config.name
            self._reporter.over_limit(
                LimitExceeded(
                    f"server {server!r}: {more} more of its {what} exceed a limit and are left out; see the "
                    "configured limits",
                    server=server,
                )
            )

    def note_invalid(self, what: str, problems: Sequence[str]) -> None:
        """Report a list's invalid items, unless reported for the previous list."""
        before, self._invalid[what] = self._invalid.get(what, frozenset()), frozenset(problems)
        new = [problem for problem in dict.fromkeys(problems) if problem not in before]
        for problem in new[:MAX_REPORTED]:
            self._reporter.invalid(problem)
        if (more := len(new) - MAX_REPORTED) > 0:
            self._reporter.invalid(f"{more} more of its {what} are not valid and are left out; fix the server")

    # --- approval ---------------------------------------------------------------------------------------------------

    def approve(self, changes: ToolChanges, names: tuple[str, ...]) -> None:
        """Approve reviewed changes and show their tools.

        Raises:
            TypeError, ToolNotFound: see `Admission.approve`.
        """
        self.admission.approve(changes, names)
        self.checks = copy(self.checks)  # a new object: waiting calls are checked again
        if self.known or self.deferred:
            self._show(self.admission.admitted(), deferred=self.deferred)

    def _show(self, tools: tuple[KnownTool, ...], *, deferred: bool = False) -> None:
        before, were_deferred = self.tools, self.deferred
        self.deferred = deferred
        if tools != before:
            self._set(tools)
        if tools != before or deferred != were_deferred:
            self.version += 1
            self._reporter.changed(_difference(before, tools))

    def _set(self, tools: tuple[KnownTool, ...]) -> None:
        self.tools, self.shown = tools, tuple([each.entry for each in tools])

    # --- staleness --------------------------------------------------------------------------------------------------

    def mark_stale(self) -> None:
        """Mark the shown tools as possibly outdated: the server has, or may have, notified a change."""
        self.freshness.mark_stale(trio.current_time())


def _difference(before: tuple[KnownTool, ...], after: tuple[KnownTool, ...]) -> ToolDifference:
    old, new = {each.name: each for each in before}, {each.name: each for each in after}
    both = [(name, old[name], now) for name, now in new.items() if name in old and old[name] is not now]
    return ToolDifference(
        tools=tuple([tool.name for tool in after]),
        added=tuple([name for name in new if name not in old]),
        removed=tuple([name for name in old if name not in new]),
        # Most hashes differ; comparing tools would cost a function call for each.
        changed=tuple([name for name, was, now in both if was.pin != now.pin or was != now]),
    )


# --- Decide whether a list response is newer than the one shown -------------------------------------------------------

# Two listings may cross: the server may read them in either order, whatever the order of answers. And a notification
# may overtake a listing. So an answer is shown only if its request was sent after the shown answer had arrived, and no
# notification has arrived since. Any other answer leaves `Freshness.stale_since` set, so the list is requested again.


STALE_GRACE: Final = 5.0
"""Seconds for which a list known to be outdated may be shown. After that, a newer answer replaces the list even if
overtaken by a notification: tools may keep changing faster than the server answers."""

Verdict = Literal["newest", "overtaken", "crossed"]
"""The newest answer, overtaken by a notification, or crossed with the shown answer."""


class Ticket(NamedTuple):
    """The moment of a request: the numbers of listings begun and of notifications received."""

    number: int
    notifications: int


@define(eq=False)
class Freshness:
    """How recent the shown answer is.

    Attributes:
        stale_since: when the shown answer became outdated; None while newest.
    """

    stale_since: float | None = field(default=None, init=False)
    _notifications: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)
    _begun_when_shown: int = field(default=0, init=False)
    _became_stale: trio.Event | None = field(default=None, init=False)

    @cached_property
    def turn(self) -> trio.Lock:
        """The lock of the listing task; all replicas share it."""
        return trio.Lock()

    @property
    def is_stale(self) -> bool:
        return self.stale_since is not None

    def mark_stale(self, now: float) -> None:
        self._notifications += 1
        if self.stale_since is None:
            self.stale_since = now
        if self._became_stale is not None:
            self._became_stale.set()

    def begin(self) -> Ticket:
        self._begun += 1
        return Ticket(self._begun, self._notifications)

    def judge(self, ticket: Ticket, now: float) -> Verdict:
        if ticket.number <= self._begun_when_shown:
            return "crossed"
        patient = self.stale_since is not None and now - self.stale_since < STALE_GRACE
        return "overtaken" if ticket.notifications < self._notifications and patient else "newest"

    def show(self, ticket: Ticket, now: float) -> None:
        """Note that the answer to this request is shown."""
        self._begun_when_shown = self._begun
        self.stale_since = None if ticket.notifications == self._notifications else now

    async def wait_stale(self) -> None:
        """Wait until the shown answer may be outdated. Only the listing task may wait."""
        while not self.is_stale:
            self._became_stale = trio.Event()
            await self._became_stale.wait()
