"""Health of a server and of its connections.

`ConnectionHealth` counts failures since the last answer, schedules checks, and decides on restarts, which is hard: a
silent process may be busy, suspended or dead.

Owns: the health of servers and connections; schedules of checks.
Writes: exit callbacks of links.
Calls: servers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from ..._backoff import sleep_through_suspend
from .._rules import Condition, Health, HealthStatus, Ladder, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config import HealthPolicy
    from ...transports import Link
    from .._deadlines import Deadlines


@define(eq=False, repr=False)
class ConnectionHealth:
    """The health of one connection, kept across reconnects.

    A check needs no slot, and overtakes requests in the mailbox. Any answer resets the failures.

    A changed configuration replaces `policy`. The record sets `on_change`, called when the condition changes. `pings`
    is True if the server answered ``ping``, None until known. The replicas share the set `_failing`: a failure adds
    `_actor`, the name of the connection's actor, and the next answer removes the name.
    """

    policy: HealthPolicy
    _deadlines: Deadlines
    _actor: str
    _failing: set[str]
    on_change: Callable[[], object] = field(default=lambda: None, init=False)
    ladder: Ladder = field(factory=Ladder, init=False)
    last_check: Health | None = field(default=None, init=False)
    last_error: Exception | None = field(default=None, init=False)
    pings: bool | None = field(default=None, init=False)
    _link: Link | None = field(default=None, init=False)
    _due: float = field(default=math.inf, init=False)
    _nap: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    # The process has exited, the pipes are open, and no answer has come since.
    _exited_unanswered: bool = field(default=False, init=False)
    # The process has exited, and another process may be the server.
    _has_successor: bool = field(default=False, init=False)

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def failing(self) -> bool:
        """True after a failure, until the next answer."""
        return self.ladder.failures > 0

    @property
    def doubtful(self) -> bool:
        """True after a failure until the next answer, and while the process is suspended."""
        return self.failing or (self._link is not None and self._link.suspended)

    @property
    def condition(self) -> Condition:
        if self._exited_unanswered and self.ladder.here:
            return "unhealthy"
        return self.ladder.condition(self.policy)

    @property
    def problem(self) -> Exception | None:
        return None if self.condition == "healthy" else self.last_error

    def status(self, *, connected: bool) -> HealthStatus:
        return HealthStatus(
            status=self.condition if connected else "unknown",
            last_check=self.last_check,
            failures=self.ladder.failures,
            last_error=self.last_error,
        )

    # --- evidence ---------------------------------------------------------------------------------------------------

    def answered(self) -> None:
        before = self.condition
        self._climb(self.ladder.answered(trio.current_time()))
        self._exited_unanswered = False
        if before != "healthy":
            self.on_change()

    def failed(self, asked: float, error: Exception) -> None:
        """Count a check or request, sent at `asked`, without an answer in time; schedule the next check."""
        ladder = self.ladder.failed(asked, trio.current_time())
        if ladder is not self.ladder and self._link is not None and not self._link.lifeline.lost:
            before, self.last_error = self.condition, error
            self._climb(ladder)
            self._check_by(asked + self.policy.timeout)
            if self.condition != before:
                self.on_change()

    def timed_out(self, asked: float, error: Exception) -> None:
        """Count a request that timed out. A server that has sent anything since `asked` is only slow.

        With checks enabled (``HealthPolicy.interval``), the next check is due at once.
        """
        if self._link is not None and self._link.lifeline.heard_at <= asked and self.policy.interval is not None:
            self.failed(asked, error)
            self._check_by(trio.current_time())

    def forgive(self) -> None:
        self._climb(Ladder())

    def _climb(self, ladder: Ladder) -> None:
        self.ladder = ladder
        (self._failing.add if ladder.failures else self._failing.discard)(self._actor)

    # --- checks -----------------------------------------------------------------------------------------------------

    def begin(self, link: Link) -> None:
        """Begin to check a new connection, in the step in which it begins to serve."""
        self._link, self.pings = link, None
        self._climb(self.ladder.reconnected(self.policy))
        link.lifeline.on_exit = self._exited
        interval = self.policy.timeout if self.failing else self.policy.interval or math.inf
        self._due = math.inf if self.policy.interval is None else trio.current_time() + interval
        self._exited_unanswered = self._has_successor = False
        if link.lifeline.exited:
            self._exited()

    def end(self) -> None:
        if self._link is not None:
            self._link.lifeline.on_exit = nothing
        self._link = None

    async def wait_due(self) -> None:
        await trio.lowlevel.checkpoint()
        while (left := self._due - trio.current_time()) > 0:
            with trio.CancelScope() as self._nap:
                await sleep_through_suspend(left)
                break
        self._due = math.inf if self.policy.interval is None else trio.current_time() + self.policy.interval

    def _check_by(self, time: float) -> None:
        if self.policy.interval is not None or self._exited_unanswered:
            self._due = min(self._due, time)
            self._nap.cancel("a check is due earlier")

    def _exited(self) -> None:
        # A child may serve on over the pipes of the process, so the connection is only unhealthy now, and checked soon,
        # even without an `interval`. A check at once could end the connection on a broken pipe before the last output
        # is read, and the error would not say why the process exited.
        self._exited_unanswered = True
        self._check_by(trio.current_time() + 0.25)  # the last output is read meanwhile
        self.on_change()

    async def verdict(self) -> Verdict | None:
        """Return the step to take now, or None.

        A step that is due by failures (`Ladder`) is allowed only if

        - the process is suspended, or
        - the other side is a gateway of this package, which answers checks itself, or
        - no byte has come for ``HealthPolicy.silence`` (None: never), and no earlier request, which might keep the
          server busy, is within its deadline.

        A process may exit while another holds the pipes: a wrapper with the server as a child, or a server with a
        helper. One check follows, and without an answer the connection is lost at once, unless an earlier request still
        waits and the other process may be the server. If the check is answered, the other process is the server.
        Nothing reports the exit of this server, so each later failure starts a search for the process. If the process
        is gone, the connection is lost at once.
        """
        assert self._link is not None
        due = self.ladder.verdict(self.policy)
        if self._link.lifeline.exited and not self.ladder.here:
            self._has_successor = self._has_successor or await self._link.may_serve_on()
        elif self._link.lifeline.exited and self._link.lifeline.heard_at <= self.ladder.since:
            if self._exited_unanswered:
                return None if self._is_busy() and await self._link.may_serve_on() else "restart"
            if self._has_successor and not await self._link.may_serve_on():
                return "restart"
        if due is None or self._link.suspended or self._link.trusted:
            return due
        silence, silent = self.policy.silence, trio.current_time() - self._link.lifeline.heard_at
        return due if silence is not None and silent >= silence and not self._is_busy() else None

    def _is_busy(self) -> bool:
        return self._deadlines.any_sent_before(self.ladder.since, self._actor)


def nothing(*_: object) -> None:
    """Do nothing, in place of a released function."""


class ServerHealth:
    """The health of all connections of a server.

    Attributes:
        failing: the actors of connections that have failed since the last answer. Read at each request.
        each: one health per connection. Replaced by the record.
    """

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.each: tuple[ConnectionHealth, ...] = ()

    def status(self, *, connected: bool) -> HealthStatus:
        """Take a snapshot of the best connection."""
        return min(self.each, key=lambda each: (not each.connected, each.ladder.failures)).status(connected=connected)

    def forgive(self) -> None:
        for each in self.each:
            each.forgive()
