"""Rules of one server: HTTP statuses, circuit breaker, health, parking, retries.

Each rule decides on plain data, with the time as an argument: no clock, no task, no log. Only `seconds_to_retry` draws
a random number.

Owns: states of circuit breakers; retry tokens; counts of attempts.
Writes: nothing.
Calls: auth.
"""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from attrs import define, field, frozen
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, REQUEST_TIMEOUT

from .._collapse import caused_by
from .._errors import (
    ConnectFailed,
    ConnectionLost,
    HttpStatusError,
    InvalidResult,
    LimitExceeded,
    RequestTimedOut,
    ServerError,
    ServerUnavailable,
)
from .._text import own_shortage, problem_of
from ..auth import SignInRequired

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import ToolAnnotations

    from .._errors import ServerState
    from ..config import BreakerPolicy, HealthPolicy, RestartPolicy, RetryBudget, RetryPolicy


# --- Classify HTTP error statuses for retries and the circuit breaker -------------------------------------------------


@frozen
class Meaning:
    """The meaning of a status.

    Attributes:
        transient: True if the unchanged request may succeed later (retry).
        trouble: True if the server has trouble; False if it has judged the request (circuit breaker).
    """

    transient: bool
    trouble: bool


_CLIENT_ERROR: Final = Meaning(transient=False, trouble=False)
_SERVER_TROUBLE: Final = Meaning(transient=True, trouble=True)

_EXCEPTIONS: Final = {
    408: _SERVER_TROUBLE,  # Request Timeout
    425: Meaning(transient=True, trouble=False),  # Too Early
    429: _SERVER_TROUBLE,  # Too Many Requests
    501: Meaning(transient=False, trouble=True),  # Not Implemented: would get the same answer again
    505: Meaning(transient=False, trouble=True),  # HTTP Version Not Supported
}


def meaning_of(status: int) -> Meaning:
    return _EXCEPTIONS.get(status, _SERVER_TROUBLE if 500 <= status <= 599 else _CLIENT_ERROR)


# --- The circuit breaker of one server, as a pure state machine -------------------------------------------------------

# Nygard's pattern (*Release It!*): while a server has trouble, its requests fail at once, unsent, except for a probe
# now and then.
#
#     closed ── several failures in a row ──► open ── reset_after has passed, and a request asks ──► half-open
#       ▲                                      ▲                                                      │    │
#       │                                      └────────────────── the probe fails ───────────────────┘    │
#       └───────────────────────────────────────────────── the probe is answered ──────────────────────────┘
#
# There is no timer: the first request after `reset_after` becomes the probe. If the probe ends without evidence (its
# caller left), the next request becomes the probe, so the breaker cannot get stuck half-open.
#
# Each admitted request holds a ticket, the number of the breaker's phase, and its outcome counts only in that phase: a
# call from before the breaker opened may time out after the probe was answered, and must not reopen the breaker.


BreakerState = Literal["closed", "open", "half_open"]
Evidence = Literal["success", "failure", "nothing"]
Ticket = int


def evidence(error: BaseException | None, *, server: str, serves: bool = False) -> Evidence:
    """Classify the outcome of a request as evidence about its server.

    Args:
        error: the failure; None for any result, including ``is_error``.
        server: the name of the request's server. Errors about other servers count as ``"nothing"``.
        serves: whether another replica serves. Then a lost replica counts as ``"nothing"``, because all its requests
            fail together.

    Returns:
        ``"failure"`` for a timeout, a lost or failed connection, and the HTTP statuses 408, 429 and 5xx. ``"success"``
        for any other answer. ``"nothing"`` for outcomes not caused by the server: a cancellation, a local limit or
        shortage, an exception of a middleware.
    """
    match error:
        case ServerError() if error.server != server or own_shortage(error) is not None:
            return "nothing"
        case ConnectionLost() if serves:
            return "nothing"
        case RequestTimedOut() | ConnectionLost() | ConnectFailed():
            return "failure"
        case HttpStatusError(status=status):
            return "failure" if meaning_of(status).trouble else "success"
        case None | MCPError() | InvalidResult():
            return "success"
        case _:
            return "nothing"


@define(eq=False)
class Breaker:
    """The breaker of one server, kept while the server is in its group.

    All times are in seconds by `trio.current_time`.

    Attributes:
        policy: when the breaker opens, and for how long.
        state: ``"half_open"`` only while a probe is under way.
        failures: the failures since the last success.
        retry_at: when the next probe is admitted; None while closed.
        last_error: the latest failure that counted; None after a success.
    """

    server: str
    policy: BreakerPolicy
    state: BreakerState = field(default="closed", init=False)
    failures: int = field(default=0, init=False)
    retry_at: float | None = field(default=None, init=False)
    last_error: BaseException | None = field(default=None, init=False)
    _phase: Ticket = field(default=0, init=False)

    def admit(self, now: float) -> Ticket | None:
        """Admit or refuse a request.

        Returns:
            A ticket, to be passed to `settle` however the request ends; None if the request must not be sent (see
            `refusal`).
        """
        if self.retry_at is None:
            return self._phase
        if self.state == "half_open" or now < self.retry_at:
            return None
        self._enter("half_open")
        return self._phase

    def settle(self, ticket: Ticket, now: float, error: BaseException | None = None, *, serves: bool = False) -> None:
        """Count the outcome of an admitted request: the error, a cancellation included, or None for a result.

        `serves` is True if another replica serves.
        """
        if ticket != self._phase:
            return
        match evidence(error, server=self.server, serves=serves):
            case "success":
                self._succeeded()
            case "failure":
                self._failed(now, error)
            case "nothing" if self.state == "half_open":
                self._enter("open")

    def refusal(self, state: ServerState, now: float, wall: datetime, *, again: bool = False) -> ServerUnavailable:
        """Return the error for a refused request.

        `wall` is the current wall-clock time. `again` is True if a retry was refused.
        """
        assert self.retry_at is not None  # a closed breaker refuses nothing
        left = self.retry_at - now
        after = f" ({problem_of(self.last_error)})" if self.last_error is not None else ""
        what = "1 request" if self.failures == 1 else f"{self.failures} requests"
        until = f"the next request is sent in {max(left, 0.1):.1f} s" if left > 0 else "a probe request is under way"
        this = "this one was not retried" if again else "this one was not sent"
        error = ServerUnavailable(
            f"server {self.server!r}: circuit breaker open: its last {what} failed{after}, so {this}; {until}; "
            "retry later, or check the server",
            server=self.server,
            state=state,
            last_error=self.last_error,
            outcome="not_sent",
            retry_at=wall + timedelta(seconds=left),
        )
        return caused_by(error, self.last_error)

    def _succeeded(self) -> None:
        self.failures = 0
        self.last_error = None
        if self.state != "closed":
            self.retry_at = None
            self._enter("closed")

    def _failed(self, now: float, error: BaseException | None) -> None:
        self.failures += 1
        self.last_error = error
        if self.failures >= self.policy.failures:  # also after a failed probe: the count was not reset
            self.retry_at = now + self.policy.reset_after
            self._enter("open")

    def _enter(self, state: BreakerState) -> None:
        self.state = state
        self._phase += 1


# --- Decide from consecutive failures how healthy a server is ---------------------------------------------------------

# On the wire a frozen server looks like a single-threaded server in a long tool, so the ladder has two halves. Lower
# rungs (``degraded``, ``unhealthy``) follow from failures alone and do no harm: the next answer reverts them. Upper
# rungs (``restart``, ``fail``) end requests in progress, and need more than silence: see `ConnectionHealth.verdict`.


Condition = Literal["healthy", "degraded", "unhealthy"]
Verdict = Literal["restart", "fail"]


@frozen(kw_only=True)
class Health:
    """The result of one health check.

    Attributes:
        status: ``"healthy"`` if the server is connected and answered in time, else ``"unhealthy"``.
        message: the finding, for people.
        latency: seconds until the answer; None without an answer.
        checked_at: the wall-clock time at the end of the check, in UTC.
    """

    status: Literal["healthy", "unhealthy"]
    message: str
    latency: float | None
    checked_at: datetime


@frozen(kw_only=True)
class HealthStatus:
    """The health of a server at one moment.

    Attributes:
        status: ``"healthy"``, ``"degraded"`` or ``"unhealthy"``; ``"unknown"`` while not connected.
        last_check: the last check; None before the first. Answers to requests reset `failures` but are not checks.
        failures: consecutive failures, without any answer in between.
        last_error: the last failure, kept after recovery.
    """

    status: Literal["healthy", "degraded", "unhealthy", "unknown"]
    last_check: Health | None
    failures: int
    last_error: Exception | None


@frozen
class Ladder:
    """Consecutive failures of one server.

    Attributes:
        before: failures carried over from earlier connections: a reconnect is not an answer.
        here: failures on this connection.
        since: when the first request that failed here was sent.
        known_at: the time of the last failure or answer. Failures of requests sent earlier do not count: requests sent
            together that time out together are one failure.
    """

    before: int = 0
    here: int = 0
    since: float = math.inf
    known_at: float = -math.inf

    @property
    def failures(self) -> int:
        return self.before + self.here

    def failed(self, asked: float, now: float) -> Ladder:
        """Count the failure of a request that was sent at `asked`."""
        if asked < self.known_at:
            return self
        return Ladder(self.before, self.here + 1, self.since if self.here else asked, now)

    def answered(self, now: float) -> Ladder:
        return Ladder(known_at=now)

    def reconnected(self, policy: HealthPolicy) -> Ladder:
        return Ladder(self._rung(policy))

    def condition(self, policy: HealthPolicy) -> Condition:
        """Return the server's condition; ``healthy`` on a new connection until a check fails."""
        if self.here and self.failures >= policy.unhealthy_after:
            return "unhealthy"
        return "degraded" if self.here and self.failures >= policy.warn_after else "healthy"

    def verdict(self, policy: HealthPolicy) -> Verdict | None:
        """Return the step due by failures alone, without regard to evidence that the server is busy."""
        if self.here and self._rung(policy) >= policy.fail_after:
            return "fail"
        return "restart" if self.here >= policy.restart_after else None

    def _rung(self, policy: HealthPolicy) -> int:
        # A busy server may fail many checks before its restart is allowed. Without this cap, these failures
        # could park the server before any restart.
        return self.before + min(self.here, policy.restart_after)


# --- Decide when a parked server is retried ---------------------------------------------------------------------------


def seconds_to_retry(policy: RestartPolicy, error: BaseException | None) -> float | None:
    """Return the seconds until a server parked with an error is retried, or None if never."""
    if policy.park_retry is None or policy.max_restarts == 0:
        return None
    refused = isinstance(error, ConnectFailed) and (error.hopeless or error.http_status in (401, 403))
    if refused and not isinstance(error, SignInRequired):  # a person may sign in with another program
        return None
    # Up to a tenth less, so servers that fail together do not reconnect together.
    return policy.park_retry * (1.0 - 0.1 * random.random())


# --- Decide whether and when a failed request is retried --------------------------------------------------------------

# Theory of operation
# -------------------
# A request is retried if all five answers are yes:
#
# 1. Is the failure transient? An error about the request itself would come again.
# 2. May the request be repeated? If the server may have acted, only if a second time does no harm. Most unsent requests
#    never come here: their envelopes return to their place in the mailbox, not counted as an attempt (gRPC's
#    transparent retry).
# 3. Is an attempt left? One budget per request covers all pages of a list and all connections.
# 4. Does the server cope? Its requests share a bucket of tokens, drained by failures: the retry throttling of gRPC's
#    proposal A6. Without it, an overloaded server that answers 503 would get three times the load.
# 5. Is there time? A retry that would begin after the request's deadline fails at once. The delay is the back-off, or a
#    longer ``Retry-After``: by RFC 9110 (10.2.3) a lower bound, so 0 does not cancel the back-off.
#
# A cancelled caller is not a failure, and never comes here.


_THOUSAND: Final = 1000
"""Tokens count in thousandths, as in gRPC: as floats, ten times 0.1 would be less than 1."""


def is_transient(error: BaseException) -> bool:
    """Return True if the unchanged request may succeed later.

    Unknown failures are not transient: exceptions of user code, groups, cancellations. Neither is `RequestTimedOut`,
    whose limit covers all attempts.
    """
    match error:
        case ConnectionLost():
            # An oversized answer would come again, and take all requests of the connection along.
            return not isinstance(error.__cause__, LimitExceeded)
        case ConnectFailed(hopeless=hopeless, http_status=status):
            return not hopeless and (status is None or meaning_of(status).transient)
        case HttpStatusError(status=status):
            return meaning_of(status).transient
        case MCPError():
            # MCP's counterparts of the HTTP statuses 500 and 504. All other codes are about the request.
            is_own_failure = error.code in (INTERNAL_ERROR, REQUEST_TIMEOUT)
            return is_own_failure and not hasattr(error, "outcome")  # see `mcp_error`
        case _:
            return False


def is_repeatable_call(*, idempotent: bool | None, trusted: bool, annotations: ToolAnnotations | None) -> bool:
    """Return True if a tool may be called again although the first call may have had an effect.

    Args:
        idempotent: the caller's statement about this call, which wins: the caller knows the arguments. None makes no
            statement.
        trusted: the server's ``trust_annotations``. The specification forbids decisions based on untrusted annotations.
        annotations: the tool's annotations, if known.
    """
    if idempotent is not None:
        return idempotent
    if not trusted or annotations is None:
        return False
    return annotations.read_only_hint is True or annotations.idempotent_hint is True


@define(eq=False)
class RetryTokens:
    """The token bucket of one server, kept while the server is in its group (see `RetryBudget`)."""

    budget: RetryBudget
    _most: int = field(init=False)
    _refund: int = field(init=False)
    _left: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._left = self._most = self.budget.max_tokens * _THOUSAND
        self._refund = round(self.budget.token_ratio * _THOUSAND)

    @property
    def left(self) -> float:
        return self._left / _THOUSAND

    @property
    def allows(self) -> bool:
        """Whether retries are allowed: more than half of the tokens are left."""
        return 2 * self._left > self._most

    def succeeded(self) -> None:
        # Every request comes through here, and nearly every bucket is full.
        if self._left < self._most:
            self._left = min(self._left + self._refund, self._most)

    def failed(self) -> None:
        self._left = max(self._left - _THOUSAND, 0)


@frozen
class Retry:
    """Send the request again, after `delay` seconds."""

    delay: float


@frozen
class NoRetry:
    """Raise the failure to the caller.

    Attributes:
        reason: ``"final"``: not transient; ``"unsafe"``: the server may have acted; ``"attempts"``: none is left;
            ``"budget"``: the server's retry tokens are spent; ``"deadline"``: the retry would begin too late.
    """

    reason: Literal["final", "unsafe", "attempts", "budget", "deadline"]


@define(eq=False)
class Retries:
    """The retry budget of one request, over all its pages and connections, created when the first attempt has failed.

    Attributes:
        repeatable: whether the request may be repeated after a possible effect.
        deadline: when the request times out, on the clock of `failed`; infinite without a limit.
        attempts: how often the request was sent. A page of a list counts only if it failed.
    """

    policy: RetryPolicy
    tokens: RetryTokens
    repeatable: bool
    deadline: float = math.inf
    attempts: int = field(default=1, init=False)

    def failed(
        self, error: BaseException, now: float, *, sent: bool = True, random: Callable[[], float] | None = None
    ) -> Retry | NoRetry:
        """Count a failed attempt and decide what happens next.

        `sent` is False only if provably nothing reached the server. The class of the error does not decide: a
        middleware may raise any error at any time. `random` returns uniform numbers in [0, 1), like `random.random`;
        None disables the jitter.
        """
        if not is_transient(error):
            return NoRetry("final")
        self.tokens.failed()
        if sent and not self.repeatable:
            return NoRetry("unsafe")
        if self.attempts >= self.policy.attempts:
            return NoRetry("attempts")
        if not self.tokens.allows:
            return NoRetry("budget")
        delay = max(self.policy.backoff.delay(self.attempts, random=random), asked_to_wait(error))
        if now + delay >= self.deadline:
            return NoRetry("deadline")
        self.attempts += 1
        return Retry(delay)


def asked_to_wait(error: BaseException | None) -> float:
    """Return the ``Retry-After`` seconds of an error, at most an hour; 0 without the header."""
    asked = error.retry_after if isinstance(error, HttpStatusError) else None
    return 0.0 if asked is None else min(asked, 3600.0)
