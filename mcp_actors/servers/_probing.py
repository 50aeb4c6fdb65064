"""Check the health of a connected server, and end its connection if it is frozen.

Theory of operation
-------------------
Each connection has one task (`keep_checking`) in the tree of the actor's owner, so it ends with the connection; the
results outlive it in the record (`ServerHealth`). Checks go through the mailbox on the control lane: they overtake a
full queue and take no slot of ``max_in_flight``. Requests feed the same ladder: an answer resets it, and a request that
timed out without a byte from the server counts as a failure and triggers a check at once. While all is well this costs
a call one comparison, when it was answered.

The ladder (`_health`) decides when a restart is due, `ServerHealth.verdict` whether it is allowed. It is allowed if the
process is stopped. Otherwise the server may be busy, so two conditions must hold: no byte has come for
``HealthPolicy.silence``, and no request is within its deadline that was sent before the server fell silent. Later
requests do not count: they cannot be the reason for the silence.

A process may exit while another process holds its pipes: a wrapper with its server as a child, or a server with a
helper. It is checked once, and without an answer the connection is lost at once. A request that was sent before
protects it only if another process of the same session may be the server.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

import trio
from attrs import frozen
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import ValidationError

from .._errors import ActorError, HttpStatusError, RequestTimedOut
from .._suspend import sleep_through_suspend
from ._connection_errors import problem_of
from ._exchange import current_exchange
from ._health import Condition, Health, HealthStatus, Ladder, Verdict
from ._requests import Request
from ._state import CONNECTED

if TYPE_CHECKING:
    from mcp import Client

    from ..config import HealthPolicy
    from ..kernel import ActorRef
    from ._deadlines import Deadlines
    from ._record import ServerRecord
    from .transports import Link

__all__ = ["ServerHealth", "check_health", "keep_checking"]

TOO_MANY_REQUESTS: Final = 429
"""HTTP status that counts as an answer: a server that limits the rate of its requests is alive."""

LAST_WORDS: Final = 0.25
"""Seconds from the exit of a process to the check whether its server lives on. Writing to a pipe without a reader ends
the connection, and the last output of the process, which may explain its exit, has to be read before that."""


@frozen
class Probe(Request[None]):
    """A request that any live server answers, if only with an error."""

    control: ClassVar[bool] = True

    @property
    def operation(self) -> str:
        """The method in the legacy era."""
        return "ping"

    async def send(self, client: Client, record: ServerRecord) -> None:
        """Send ``ping``, or ``server/discover`` since 2026-07-28.

        Raises:
            mcp.MCPError: there was no answer; the transport knows the reason.
        """
        try:
            await self._ask(client, record.health)
        except ValidationError:
            pass  # an odd answer is an answer
        except MCPError as exc:
            if exc.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT) or current_exchange().failure is not None:
                raise

    async def _ask(self, client: Client, health: ServerHealth) -> None:
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await client.session.send_discover(client.protocol_version)
        elif health.pings or client.server_capabilities.tools is None or (health.pings is None and not health.failing):
            await client.session.send_ping()
            health.pings = True
        else:
            # The protocol requires an answer to a ping, but some servers ignore it. A server that never answered one is
            # sent tools/list, which it answered when it was connected.
            await client.list_tools(cache_mode="bypass")
            health.pings = False


class ServerHealth:
    """The health of one server, kept across its connections.

    Attributes:
        ladder: its consecutive failures.
        last_check: the last check.
        last_error: the last failure.
        pings: whether the server answers a ping; None until that is known.
    """

    def __init__(self, server: str, policy: HealthPolicy, deadlines: Deadlines, on_change: Callable[[], None]) -> None:
        self._server = server
        self._policy = policy
        self._deadlines = deadlines
        self._on_change = on_change
        self._link: Link | None = None
        self._due = math.inf
        self._nap = trio.CancelScope()
        self._left_alone = False  # the process has exited, its pipes are open, and there was no answer since
        self.ladder = Ladder()
        self.last_check: Health | None = None
        self.last_error: Exception | None = None
        self.pings: bool | None = None

    @property
    def failing(self) -> bool:
        """True if anything has failed since the last answer."""
        return self.ladder.failures > 0

    @property
    def condition(self) -> Condition:
        """The condition of the server."""
        if self._left_alone and self.ladder.here:
            return "unhealthy"
        return self.ladder.condition(self._policy)

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
        before, self.ladder = self.condition, self.ladder.answered(trio.current_time())
        self._left_alone = False
        if before != "healthy":
            self._on_change()

    def failed(self, asked: float, error: Exception) -> None:
        """Count a check or request, sent at `asked`, that was not answered in time; schedule the next check."""
        ladder = self.ladder.failed(asked, trio.current_time())
        if ladder is not self.ladder and self._link is not None and not self._link.lost:
            before, self.ladder, self.last_error = self.condition, ladder, error
            self._check_by(asked + self._policy.timeout)
            if self.condition != before:
                self._on_change()

    def timed_out(self, asked: float, error: Exception) -> None:
        """Count a sent request that timed out, unless the server has sent anything since: then it is only slow."""
        if self._link is not None and self._link.heard_at <= asked and self._policy.interval is not None:
            self.failed(asked, error)
            self._check_by(trio.current_time())

    def forgive(self) -> None:
        """Forget all failures, because the server is started explicitly."""
        self.ladder = Ladder()

    # --- checks -----------------------------------------------------------------------------------------------------

    def begin(self, link: Link) -> None:
        """Begin to check a new connection, which begins to serve in this step."""
        self._link, self.ladder, self.pings = link, self.ladder.reconnected(self._policy), None
        link.hear_of_exit(self._exited)
        interval = self._policy.timeout if self.failing else self._policy.interval or math.inf
        self._due = math.inf if self._policy.interval is None else trio.current_time() + interval
        self._left_alone = False
        if link.exited:
            self._exited()

    def end(self) -> None:
        """Stop checking the connection."""
        self._link = None

    async def wait_due(self) -> None:
        """Wait until the next check is due."""
        await trio.lowlevel.checkpoint()
        while (left := self._due - trio.current_time()) > 0:
            with trio.CancelScope() as self._nap:
                await sleep_through_suspend(left)
                break
        self._due = math.inf if self._policy.interval is None else trio.current_time() + self._policy.interval

    def _check_by(self, time: float) -> None:
        if self._policy.interval is not None or self._left_alone:
            self._due = min(self._due, time)
            self._nap.cancel("a check is due earlier")

    def _exited(self) -> None:
        self._left_alone = True
        self._check_by(trio.current_time() + LAST_WORDS)
        self._on_change()

    async def verdict(self) -> Verdict | None:
        """Return the step to take now, or None. See the theory of operation at the top of the file."""
        assert self._link is not None
        due = self.ladder.verdict(self._policy)
        if self._left_alone and self.ladder.here and self._link.heard_at <= self.ladder.since:
            return None if self._is_busy() and await self._link.may_serve_on() else "restart"
        if due is None or self._link.suspended:
            return due
        silence, silent = self._policy.silence, trio.current_time() - self._link.heard_at
        return due if silence is not None and silent >= silence and not self._is_busy() else None

    def _is_busy(self) -> bool:
        """Return True if the server may be working on a request that it got before it fell silent."""
        return self._deadlines.any_sent_before(self.ladder.since)


async def check_health(record: ServerRecord, actor: ActorRef) -> Health:
    """Check a server once, and count the result.

    **Cancellation**: leaves at once.
    """
    health, asked = record.health, trio.current_time()
    error: Exception | None = None
    if record.state in CONNECTED:
        error = await _ask(record, actor)
        if error is None:
            health.answered()
        elif not isinstance(error, ActorError):  # an ActorError: the connection has ended meanwhile
            health.failed(asked, error)
    else:
        await trio.lowlevel.checkpoint()
    seconds, now = trio.current_time() - asked, datetime.now(UTC)
    if record.state in CONNECTED and error is None:
        health.last_check = Health(status="healthy", message="it answers", latency=seconds, checked_at=now)
    else:
        problem = error if record.state in CONNECTED else record.error
        message = f"is {record.state}" + (f": {problem_of(problem)}" if problem is not None else "")
        health.last_check = Health(status="unhealthy", message=message, latency=None, checked_at=now)
    return health.last_check


async def _ask(record: ServerRecord, actor: ActorRef) -> Exception | None:
    """Send one check. Return None if it was answered, else the error."""
    timeout = record.config.health.timeout
    with trio.move_on_after(timeout):
        try:
            # An empty context: check_health() may be called inside a request of this server. The kernel would take the
            # check for a part of that request, and may refuse it as a deadlock.
            await contextvars.Context().run(actor.send_request, Probe()).wait()
        except HttpStatusError as exc:
            return None if exc.status == TOO_MANY_REQUESTS else exc
        except Exception as exc:
            record.masker.clean(exc)
            return exc
        return None
    return RequestTimedOut(
        f"server {record.config.name!r}: no answer to a health check within {timeout:g} s; check what it is busy with, "
        "or raise HealthPolicy.timeout",
        server=record.config.name,
        operation="ping",
        seconds=timeout,
        limit="health_timeout",
    )


async def keep_checking(record: ServerRecord, actor: ActorRef, end: Callable[[Verdict], None]) -> None:
    """Check the connection that `ServerHealth.begin` was given at each due time, until the connection ends.

    Args:
        record: the record of the server.
        actor: the actor of the server, whose mailbox takes the checks.
        end: called once to end the connection.
    """
    health = record.health
    try:
        while True:
            await health.wait_due()
            await check_health(record, actor)
            if (verdict := await health.verdict()) is not None:
                end(verdict)
                return
    finally:
        health.end()
