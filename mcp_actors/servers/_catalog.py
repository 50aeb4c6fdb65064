"""The tools of one server: which are known, and which are shown.

`ServerCatalog` outlives connections: while the server reconnects, its tools stay listed. It keeps the listed and the
shown tools, their `ToolChecks`, and what it has reported; it calls its `Reporter` about changes and problems.
`Freshness`, the last part, decides whether a response is newer than the shown one; the kept resources use it, too.

The record owns one; that of an isolated retry has a copy. Its writers call synchronous methods: a new connection,
requests that list (those of resources and prompts report what they leave out), the notification of a change, the task
that lists again, the approval by a ref, a changed configuration, and the group (remembered tools, a server that rests).
It uses ``_admission``, and reads Trio's clock. It sends no request, starts no task and logs nothing itself. The memory
and the roster give pins to its `admission` directly. Only the tasks that list again wait here, for `Freshness.turn` and
in `Freshness.wait_stale`.
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
"""Items over a limit that are reported one by one. A server must not fill logs or push events out of a stream."""


class Difference(NamedTuple):
    """A change of the shown tools: all their names now, and the names that were added, removed and changed."""

    tools: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class Reporter:
    """Receives the changes of a catalogue, synchronously. This one ignores them.

    Attributes:
        mask: masks credentials in text of the server. This one knows none.
    """

    mask: Callable[[str], str] = str

    def changed(self, difference: Difference) -> None:
        """Report that the shown tools have changed."""

    def differs(self, verdict: PinVerdict) -> None:
        """Report that the listed tools are not the accepted ones."""

    def listed_again(self) -> None:
        """Report that a server which failed to list its tools has listed them."""

    def misnamed(self, names: str) -> None:
        """Report names in the filter that no tool has."""

    def over_limit(self, error: LimitExceeded) -> None:
        """Report that an item exceeds a limit and is left out."""

    def invalid(self, problem: str) -> None:
        """Report that an item is left out because it is not valid."""


class ServerCatalog:
    """The tools of one server.

    Attributes:
        known: True once the server has listed its tools in this run.
        listed: all listed tools.
        tools: the listed tools that are shown.
        shown: the same as entries of the group's catalogue; the same object while unchanged.
        version: the number of changes of `shown`.
        answers: the number of answers that differed from the answer before, shown or not.
        deferred: True while the tools come from an earlier run (`restore`) or connection (`defer`), and the server has
            not listed any since.
        checks: validates arguments against the schemas of `listed`.
        admission: decides which of the listed tools are shown.
        freshness: whether the last answer is outdated.
        failure: why the connected server has not listed its tools on this connection; None if it has.
        naming: the template of public names in the group.
        lasting: for how many milliseconds the last answer to each method that lists holds, as the server says; infinite
            without the capability or the method. Written by the requests that list.

    Args:
        config: the server's configuration.
        reporter: receives the changes.
        naming: the template.
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
        """Take over a changed configuration: its filter counts at once, all else from the next listing on."""
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
            self.known = False  # what is shown until the next listing is another program's, and is not remembered

    def copy_for_isolated(self) -> ServerCatalog:
        """Return a copy for an isolated attempt, which has a connection of its own; its changes are not reported."""
        other = ServerCatalog(self._config, Reporter(), self.naming)
        other.listed, other.checks = self.listed, self.checks
        other._set(self.tools)
        other.admission = self.admission.copy_for_isolated()
        return other

    def lists(self, name: str) -> bool:
        """Return True if the server lists a tool of this name."""
        return any(each.name == name for each in self.listed)

    # --- listings ---------------------------------------------------------------------------------------------------

    def begin(self) -> Ticket:
        """Register that the server is about to be asked for all its tools."""
        return self.freshness.begin()

    def offer(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        """Show an answer of the server, unless it is or may be older than the shown one."""
        listed = self._compared(listed)
        match self.freshness.judge(ticket, trio.current_time()):
            case "newest":
                self._replace(ticket, listed)
            case "crossed" if listed != self.listed:
                self.mark_stale()  # one of the two is outdated, and there is no way to tell which

    def replace(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        """Show an answer unconditionally: the first one on a new connection."""
        self._replace(ticket, listed)
        self.checks.sample()

    def _replace(self, ticket: Ticket, listed: tuple[KnownTool, ...]) -> None:
        listed = self._compared(listed)
        self.freshness.show(ticket, trio.current_time())
        if listed is not self.listed or not self.known:  # before, the checks may have come from static_tools
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
        """Report the names in the filter that no tool has, once for each filter and list."""
        judged = (self._config.tool_filter, self.listed)
        if judged[0] is self._judged[0] and judged[1] is self._judged[1]:
            return
        self._judged, before = judged, self._misnamed
        self._misnamed = self.admission.misnamed()
        if self._misnamed is not None and self._misnamed != before:
            self._reporter.misnamed(self._misnamed)

    def _compared(self, listed: tuple[KnownTool, ...]) -> tuple[KnownTool, ...]:
        """Return the previous answer if it is equal, so that identity tells a change; otherwise count a new one."""
        if listed != self._answer:
            self._answer = listed
            self.answers += 1
        return self._answer

    @property
    def accepted(self) -> Pins | None:
        """The pins that the next listing is judged by; None if no listing was judged yet. Stored with `listed`."""
        return self.admission.accepted

    def restore(self, listed: tuple[KnownTool, ...], accepted: Pins | None) -> None:
        """Show the tools of an earlier run, without reporting a change or validating arguments by their schemas."""
        self.listed = listed
        self.admission.restore(listed, accepted)
        self._set(self.admission.admitted())
        self.deferred = True

    def defer(self) -> None:
        """Keep showing the tools of a server that is disconnected until it is used again."""
        self.deferred = self.known or self.deferred

    def use_static(self, ticket: Ticket, failure: Exception) -> None:
        """Keep the earlier tools, or show the configured ``static_tools``, when a connected server cannot list any."""
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
        """Report the items of a list that exceed a limit, except those reported for the previous list.

        Args:
            what: the kind of items: ``"tools"``, ``"resources"`` and so on.
            errors: one error per item.
        """
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
        """Report the items of a list that are not valid, except those reported for the previous list.

        Args:
            what: the kind of items.
            problems: one phrase per item.
        """
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
            ToolNotFound: see `Admission.approve`.
        """
        self.admission.approve(changes, names)
        self.checks = copy(self.checks)  # a call that waits is checked once more
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
        """Mark the shown tools as outdated: the server has notified a change, or may have, unheard."""
        self.freshness.mark_stale(trio.current_time())


def _difference(before: tuple[KnownTool, ...], after: tuple[KnownTool, ...]) -> Difference:
    old, new = {each.name: each for each in before}, {each.name: each for each in after}
    both = [(name, old[name], now) for name, now in new.items() if name in old and old[name] is not now]
    return Difference(
        tools=tuple([tool.name for tool in after]),
        added=tuple([name for name in new if name not in old]),
        removed=tuple([name for name in old if name not in new]),
        # The hashes of most differ. The equality of tools, a function, would be called for each.
        changed=tuple([name for name, was, now in both if was.pin != now.pin or was != now]),
    )


# --- Decide whether a list response is newer than the one shown -------------------------------------------------------

# Two listings may cross: the server can have read them in either order, whatever the order of its answers. And a change
# notification may overtake a listing. An answer is therefore shown only if its request was sent after the shown answer
# had arrived, and no notification has arrived since the request. So the shown list never goes back in time. An answer
# that is not shown leaves `Freshness.stale_since` set, and the list has to be requested again.


STALE_GRACE: Final = 5.0
"""Seconds for which the shown list may be known to be outdated. After that even an overtaken answer is shown, because
it is newer: otherwise the list of a server that changes faster than it answers would never be updated."""

Verdict = Literal["newest", "overtaken", "crossed"]
"""An answer is the newest one, overtaken by a notification, or crossed with the shown one."""


class Ticket(NamedTuple):
    """The moment when a listing was requested: the number of listings and of notifications so far."""

    number: int
    notifications: int


@define(eq=False)
class Freshness:
    """How recent the shown answer is.

    Attributes:
        stale_since: when it was first known to be outdated; None while it is the newest one known.
    """

    stale_since: float | None = field(default=None, init=False)
    _notifications: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)
    _begun_when_shown: int = field(default=0, init=False)
    _became_stale: trio.Event | None = field(default=None, init=False)

    @cached_property
    def turn(self) -> trio.Lock:
        """Held by the task that lists again: of several replicas, by that of one."""
        return trio.Lock()

    @property
    def is_stale(self) -> bool:
        """Return True if the shown answer is known to be outdated."""
        return self.stale_since is not None

    def mark_stale(self, now: float) -> None:
        """Mark the shown answer as possibly outdated."""
        self._notifications += 1
        if self.stale_since is None:
            self.stale_since = now
        if self._became_stale is not None:
            self._became_stale.set()

    def begin(self) -> Ticket:
        """Register a request that is about to be sent."""
        self._begun += 1
        return Ticket(self._begun, self._notifications)

    def judge(self, ticket: Ticket, now: float) -> Verdict:
        """Judge an answer by the moment of its request."""
        if ticket.number <= self._begun_when_shown:
            return "crossed"
        patient = self.stale_since is not None and now - self.stale_since < STALE_GRACE
        return "overtaken" if ticket.notifications < self._notifications and patient else "newest"

    def show(self, ticket: Ticket, now: float) -> None:
        """Register that the answer to this request is shown."""
        self._begun_when_shown = self._begun
        self.stale_since = None if ticket.notifications == self._notifications else now

    async def wait_stale(self) -> None:
        """Wait until the shown answer may be outdated. Only the task that lists again waits for that."""
        while not self.is_stale:
            self._became_stale = trio.Event()
            await self._became_stale.wait()
