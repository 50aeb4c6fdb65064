"""The health of a server and of its connections.

`ConnectionHealth` counts the failures on one connection since the last answer, and decides when the next check is due
and what follows from failures. `ServerHealth`, at the end, is the health of all connections of a server.

Checks write here (``requests/_upkeep.py``), and so do requests that have timed out or, after failures, were answered,
the actor of a new connection, the exit of the process, and the group, which forgives failures and has the record
replace the policy. It reads the deadlines of the requests. It keeps the link of the connection, and asks it what it has
heard and whether another process may serve. It calls the function that it is given for changes, and reads Trio's clock;
the wait for a check also looks at the wall clock. It sends nothing and ends no connection: the checks and the actor do.

Theory of operation
-------------------
Each connection has one task (`keep_checking`) in the tree of the actor's owner, so it ends with the connection; the
results outlive it here. Checks go through the mailbox on the control lane: they overtake a full queue and take no slot
of ``max_in_flight``. Requests feed the same ladder: an answer resets it, and a request that timed out without a byte
from the server counts as a failure and triggers a check at once, if there are checks (``HealthPolicy.interval``). While
all is well this costs a call one comparison, when it was answered.

The ladder (`Ladder`) decides when a restart is due, `ConnectionHealth.verdict` whether it is allowed. It is, if the
process is suspended, or the other side is a gateway of this package, which answers checks whatever its servers do.
Otherwise the server may be busy, so two conditions must hold: no byte has come for ``HealthPolicy.silence`` (None never
allows it), and no request is within its deadline that was sent before the server fell silent. Later requests do not
count: they cannot be the reason for the silence.

A process may exit while another process holds its pipes: a wrapper with its server as a child, or a server with a
helper. It is checked once, and without an answer the connection is lost at once. A request that was sent before
protects it only if another process of the same session may be the server. If there is an answer, such a process is the
server from then on, and nothing reports its exit. So it is looked for at each later failure, and if it is gone, the
connection is lost at once, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field

from ..._backoff import sleep_through_suspend
from .._rules import Condition, Health, HealthStatus, Ladder, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config import HealthPolicy
    from ...transports import Link
    from .._deadlines import Deadlines

LAST_WORDS: Final = 0.25
"""Seconds from the exit of a process to the check whether its server lives on. Writing to a pipe without a reader ends
the connection, and the last output of the process, which may explain its exit, has to be read before that."""


@define(eq=False, repr=False)
class ConnectionHealth:
    """The health of one connection, kept when it is connected again.

    Attributes:
        policy: when it is checked, and what follows. Replaced with the configuration.
        on_change: called when its condition changes. Set by the record.
        ladder: its consecutive failures.
        last_check: the last check.
        last_error: the last failure.
        pings: whether the server answers a ping; None until that is known.

    Args:
        policy: see above.
        deadlines: the deadlines of the requests to the server.
        actor: the name of its actor: only what that has taken counts.
        failing: has the name of its actor while `failing`.
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
    # The process has exited, its pipes are open, and there was no answer since.
    _left_alone: bool = field(default=False, init=False)
    # The process has exited, and another one was found that may be the server.
    _succeeded: bool = field(default=False, init=False)

    @property
    def connected(self) -> bool:
        """True while there is a connection to check."""
        return self._link is not None

    @property
    def failing(self) -> bool:
        """True if anything has failed since the last answer."""
        return self.ladder.failures > 0

    @property
    def doubtful(self) -> bool:
        """True if anything has failed since the last answer, or if the process is suspended now."""
        return self.failing or (self._link is not None and self._link.suspended)

    @property
    def condition(self) -> Condition:
        """The condition of the server."""
        if self._left_alone and self.ladder.here:
            return "unhealthy"
        return self.ladder.condition(self.policy)

    @property
    def problem(self) -> Exception | None:
        """The last failure; None while the server is healthy."""
        return None if self.condition == "healthy" else self.last_error

    def status(self, *, connected: bool) -> HealthStatus:
        """Take a snapshot."""
        return HealthStatus(
            status=self.condition if connected else "unknown",
            last_check=self.last_check,
            failures=self.ladder.failures,
            last_error=self.last_error,
        )

    # --- evidence ---------------------------------------------------------------------------------------------------

    def answered(self) -> None:
        """Note an answer of the server."""
        before = self.condition
        self._climb(self.ladder.answered(trio.current_time()))
        self._left_alone = False
        if before != "healthy":
            self.on_change()

    def failed(self, asked: float, error: Exception) -> None:
        """Count a check or request, sent at `asked`, that was not answered in time; schedule the next check."""
        ladder = self.ladder.failed(asked, trio.current_time())
        if ladder is not self.ladder and self._link is not None and not self._link.lifeline.lost:
            before, self.last_error = self.condition, error
            self._climb(ladder)
            self._check_by(asked + self.policy.timeout)
            if self.condition != before:
                self.on_change()

    def timed_out(self, asked: float, error: Exception) -> None:
        """Count a sent request that timed out, unless the server has sent anything since: then it is only slow."""
        if self._link is not None and self._link.lifeline.heard_at <= asked and self.policy.interval is not None:
            self.failed(asked, error)
            self._check_by(trio.current_time())

    def forgive(self) -> None:
        """Forget all failures, because the server is started explicitly."""
        self._climb(Ladder())

    def _climb(self, ladder: Ladder) -> None:
        self.ladder = ladder
        (self._failing.add if ladder.failures else self._failing.discard)(self._actor)

    # --- checks -----------------------------------------------------------------------------------------------------

    def begin(self, link: Link) -> None:
        """Begin to check a new connection, which begins to serve in this step."""
        self._link, self.pings = link, None
        self._climb(self.ladder.reconnected(self.policy))
        link.lifeline.on_exit = self._exited
        interval = self.policy.timeout if self.failing else self.policy.interval or math.inf
        self._due = math.inf if self.policy.interval is None else trio.current_time() + interval
        self._left_alone = self._succeeded = False
        if link.lifeline.exited:
            self._exited()

    def end(self) -> None:
        """Stop checking the connection."""
        if self._link is not None:
            self._link.lifeline.on_exit = nothing
        self._link = None

    async def wait_due(self) -> None:
        """Wait until the next check is due."""
        await trio.lowlevel.checkpoint()
        while (left := self._due - trio.current_time()) > 0:
            with trio.CancelScope() as self._nap:
                await sleep_through_suspend(left)
                break
        self._due = math.inf if self.policy.interval is None else trio.current_time() + self.policy.interval

    def _check_by(self, time: float) -> None:
        if self.policy.interval is not None or self._left_alone:
            self._due = min(self._due, time)
            self._nap.cancel("a check is due earlier")

    def _exited(self) -> None:
        self._left_alone = True
        self._check_by(trio.current_time() + LAST_WORDS)
        self.on_change()

    async def verdict(self) -> Verdict | None:
        """Return the step to take now, or None. See the theory of operation at the top of the file."""
        assert self._link is not None
        due = self.ladder.verdict(self.policy)
        if self._link.lifeline.exited and not self.ladder.here:
            self._succeeded = self._succeeded or await self._link.may_serve_on()
        elif self._link.lifeline.exited and self._link.lifeline.heard_at <= self.ladder.since:
            if self._left_alone:
                return None if self._is_busy() and await self._link.may_serve_on() else "restart"
            if self._succeeded and not await self._link.may_serve_on():
                return "restart"
        if due is None or self._link.suspended or self._link.trusted:
            return due
        silence, silent = self.policy.silence, trio.current_time() - self._link.lifeline.heard_at
        return due if silence is not None and silent >= silence and not self._is_busy() else None

    def _is_busy(self) -> bool:
        """Return True if the server may be working on a request that it got before it fell silent."""
        return self._deadlines.any_sent_before(self.ladder.since, self._actor)


def nothing(*_: object) -> None:
    """Do nothing, in place of a function of what has ended."""


class ServerHealth:
    """The health of a server: that of its connections.

    Attributes:
        failing: the actors of connections on which anything has failed since the last answer. Each request looks at it.
        each: the health of each connection. Replaced by the record.
    """

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.each: tuple[ConnectionHealth, ...] = ()

    def status(self, *, connected: bool) -> HealthStatus:
        """Take a snapshot of the best connection."""
        best = min(self.each, key=lambda each: (not each.connected, each.ladder.failures))
        return best.status(connected=connected)

    def forgive(self) -> None:
        """Forget all failures, because the server is started explicitly."""
        for each in self.each:
            each.forgive()
