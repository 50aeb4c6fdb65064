"""Check a connected server from time to time, and end a connection that is of no more use.

Theory of operation
-------------------
One task for each connection (`keep_checking`), in the tree of the actor's owner, so it ends with the connection; what
it learns outlives it, in the record (`ServerHealth`). It asks through the mailbox, but on the control lane: past a full
queue and past ``max_in_flight=1``. Requests feed the same ladder: an answer resets it, and a request that timed out
without a byte from the server counts as a failure and asks for a check at once. Nothing of that is on the way of a call
while all is well, but for one look at a number when it was answered.

The ladder says when a restart is due (`_health`), `ServerHealth.verdict` whether it may be carried out. It may when the
process is stopped. Otherwise the server might only be busy: no byte must have come for ``HealthPolicy.silence``, and no
request may be within its deadline that was sent before the server fell silent. A later one is not what it is busy with.

A process that has exited while something else holds its pipes is asked once, as the server may be the child of a
wrapper. If it does not answer, the connection is lost; no silence is needed, and such a request protects it only if
another process of the same session may be the server.
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
"""A server that refuses a check for being asked too often is alive, and more checks would not help it."""

LAST_WORDS: Final = 0.25
"""Seconds from the exit of a process to the question whether its server lives on. Writing to a pipe that nobody reads
ends the connection, and what the process said before it exited may still be on its way: it may be why."""


@frozen
class Probe(Request[None]):
    """Ask a server for a sign of life: any answer will do."""

    control: ClassVar[bool] = True

    @property
    def operation(self) -> str:
        """What it is in the legacy era."""
        return "ping"

    async def send(self, client: Client, record: ServerRecord) -> None:
        """``ping``, or ``server/discover`` since 2026-07-28.

        Raises:
            mcp.MCPError: there was no answer, which the transport knows more about.
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
            # A ping must be answered, but not every server knows that. One that never did is asked for what it did
            # answer before, when it was connected.
            await client.list_tools(cache_mode="bypass")
            health.pings = False


class ServerHealth:
    """What is known about the health of one server; outlives its connections.

    Attributes:
        ladder: its consecutive failures.
        last_check: the last check.
        last_error: the last failure.
        pings: whether it answers a ping; None if that is not known yet.
    """

    def __init__(self, server: str, policy: HealthPolicy, deadlines: Deadlines, on_change: Callable[[], None]) -> None:
        self._server = server
        self._policy = policy
        self._deadlines = deadlines
        self._on_change = on_change
        self._link: Link | None = None
        self._due = math.inf
        self._nap = trio.CancelScope()
        self._left_alone = False  # the process has exited, something holds its pipes, and has not answered since
        self.ladder = Ladder()
        self.last_check: Health | None = None
        self.last_error: Exception | None = None
        self.pings: bool | None = None

    @property
    def failing(self) -> bool:
        """Whether something was not answered since the last answer."""
        return self.ladder.failures > 0

    @property
    def condition(self) -> Condition:
        """How healthy it counts."""
        if self._left_alone and self.ladder.here:
            return "unhealthy"
        return self.ladder.condition(self._policy)

    @property
    def problem(self) -> Exception | None:
        """What is wrong; None while it counts as healthy."""
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
        """The server has answered something."""
        before, self.ladder = self.condition, self.ladder.answered(trio.current_time())
        self._left_alone = False
        if before != "healthy":
            self._on_change()

    def failed(self, asked: float, error: Exception) -> None:
        """The server did not answer what it was asked then, in its time; it is asked again soon."""
        ladder = self.ladder.failed(asked, trio.current_time())
        if ladder is not self.ladder and self._link is not None and not self._link.lost:
            before, self.ladder, self.last_error = self.condition, ladder, error
            self._check_by(asked + self._policy.timeout)
            if self.condition != before:
                self._on_change()

    def timed_out(self, asked: float, error: Exception) -> None:
        """A request that was with the server has timed out. It may only be slow, but not if it sent nothing at all."""
        if self._link is not None and self._link.heard_at <= asked and self._policy.interval is not None:
            self.failed(asked, error)
            self._check_by(trio.current_time())

    def forgive(self) -> None:
        """Somebody starts it explicitly: earlier failures count no more."""
        self.ladder = Ladder()

    # --- checks -----------------------------------------------------------------------------------------------------

    def begin(self, link: Link) -> None:
        """Watch a new connection, which begins to serve in this step."""
        self._link, self.ladder, self.pings = link, self.ladder.reconnected(self._policy), None
        link.hear_of_exit(self._exited)
        interval = self._policy.timeout if self.failing else self._policy.interval or math.inf
        self._due = math.inf if self._policy.interval is None else trio.current_time() + interval
        self._left_alone = False
        if link.exited:
            self._exited()

    def end(self) -> None:
        """Watch the connection no more."""
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
        """What is to be done now about the failures there were. See the top of `_probing`."""
        assert self._link is not None
        due = self.ladder.verdict(self._policy)
        if self._left_alone and self.ladder.here and self._link.heard_at <= self.ladder.since:
            return None if self._is_busy() and await self._link.may_serve_on() else "restart"
        if due is None or self._link.suspended:
            return due
        silence, silent = self._policy.silence, trio.current_time() - self._link.heard_at
        return due if silence is not None and silent >= silence and not self._is_busy() else None

    def _is_busy(self) -> bool:
        """Whether something is with the server that it may be working on since before it fell silent."""
        return self._deadlines.any_sent_before(self.ladder.since)


async def check_health(record: ServerRecord, actor: ActorRef) -> Health:
    """Ask a server for a sign of life, and take into account what comes of it.

    **Cancellation**: leaves at once.
    """
    health, asked = record.health, trio.current_time()
    error: Exception | None = None
    if record.state in CONNECTED:
        error = await _ask(record, actor)
        if error is None:
            health.answered()
        elif not isinstance(error, ActorError):  # else the connection has ended meanwhile
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
    """Ask once. Returns why there was no answer, or None if there was."""
    timeout = record.config.health.timeout
    with trio.move_on_after(timeout):
        try:
            # In a context of its own: it may be asked from within a request of this very server.
            await contextvars.Context().run(actor.send_request, Probe()).wait()
        except HttpStatusError as exc:
            return None if exc.status == TOO_MANY_REQUESTS else exc
        except Exception as exc:
            record.masker.clean(exc)
            return exc
        return None
    return RequestTimedOut(
        f"server {record.config.name!r}: no answer to a health check within {timeout:g} s; see what it is busy with, "
        "or raise HealthPolicy.timeout",
        server=record.config.name,
        operation="ping",
        seconds=timeout,
        limit="health_timeout",
    )


async def keep_checking(record: ServerRecord, actor: ActorRef, end: Callable[[Verdict], None]) -> None:
    """Check the connection that `ServerHealth.begin` was given whenever that is due, until it ends.

    Args:
        record: the server's lasting part.
        actor: the server's, for what is to go through the mailbox.
        end: ends the connection.
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
