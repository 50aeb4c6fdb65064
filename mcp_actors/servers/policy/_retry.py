"""Decide whether and when a failed request is retried.

Pure functions: no clock, no tasks.

Theory of operation
-------------------
A request is retried if all five answers are yes:

1. Is the failure transient? An error about the request itself would be the same next time (`is_transient`).
2. May the request be repeated? If the server may have acted on it, only if a second time does no harm
   (`is_repeatable_call`). Most unsent requests never come here: their envelopes return to their place in the mailbox,
   which does not count as an attempt (gRPC calls it a transparent retry).
3. Is an attempt left? One budget per request covers all pages of a list and all connections (`Retries`).
4. Does the server cope? Its requests share a bucket of tokens, which failures drain (`RetryTokens`): the retry
   throttling of gRPC's proposal A6. Without it, an overloaded server that answers 503 would get three times the load.
5. Is there time? A retry that cannot begin before the request's deadline fails at once. The delay is the back-off, or
   ``Retry-After`` if that is longer: by RFC 9110 (10.2.3) it is a lower bound, so a 0 does not cancel the back-off.

The cancellation of a caller is not a failure of its request and never comes here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

from attrs import define, field, frozen
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, REQUEST_TIMEOUT

from ..._errors import ConnectFailed, ConnectionLost, HttpStatusError, LimitExceeded
from ._statuses import meaning_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import ToolAnnotations

    from ...config import RetryBudget, RetryPolicy

_TRANSIENT_CODES: Final = frozenset({INTERNAL_ERROR, REQUEST_TIMEOUT})
"""MCP's counterparts of the HTTP statuses 500 and 504. All other codes are about the request."""

MAX_WAIT: Final = 3600.0
"""The largest ``Retry-After`` that is honoured, in seconds."""

_THOUSAND: Final = 1000
"""Tokens are counted in thousandths, as in gRPC: as floats, ten times 0.1 would be less than 1."""


# --- 1. Is the failure transient? -----------------------------------------------------------------------------------


def is_transient(error: BaseException) -> bool:
    """Return True if the same request may succeed later without any change.

    Unknown failures are not transient: exceptions of user code, groups, cancellations. Neither is `RequestTimedOut`,
    because that time was the limit for all attempts.
    """
    match error:
        case ConnectionLost():
            # An oversized answer would be oversized again, and take every other request of the connection along.
            return not isinstance(error.__cause__, LimitExceeded)
        case ConnectFailed(hopeless=hopeless, http_status=status):
            return not hopeless and (status is None or meaning_of(status).transient)
        case HttpStatusError(status=status):
            return meaning_of(status).transient
        case MCPError():
            return error.code in _TRANSIENT_CODES
        case _:
            return False


# --- 2. May the request be repeated? --------------------------------------------------------------------------------


def is_repeatable_call(*, idempotent: bool | None, trusted: bool, annotations: ToolAnnotations | None) -> bool:
    """Return True if a tool may be called again after the server may have acted on the first call.

    Reads and lists may always be repeated.

    Args:
        idempotent: the caller's statement about this call, which wins over the annotations: the caller knows the
            arguments. None makes no statement.
        trusted: the server's ``trust_annotations``. The specification forbids decisions based on untrusted ones.
        annotations: the tool's annotations, if known.
    """
    if idempotent is not None:
        return idempotent
    if not trusted or annotations is None:
        return False
    return annotations.read_only_hint is True or annotations.idempotent_hint is True


# --- 4. Does the server cope? ---------------------------------------------------------------------------------------


@define(eq=False)
class RetryTokens:
    """The token bucket of one server, kept while the server is in its group. `RetryBudget` explains the rule.

    Attributes:
        budget: the size of the bucket.
    """

    budget: RetryBudget
    _most: int = field(init=False)
    _refund: int = field(init=False)
    _left: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._left = self._most = self.budget.max_tokens * _THOUSAND
        self._refund = round(self.budget.token_ratio * _THOUSAND)

    @property
    def left(self) -> float:
        """The number of tokens left."""
        return self._left / _THOUSAND

    @property
    def allows(self) -> bool:
        """Whether retries are allowed now: more than half of the tokens are left."""
        return 2 * self._left > self._most

    def succeeded(self) -> None:
        """Count an attempt that had a result."""
        # Nearly every bucket is full nearly always, and every request comes through here.
        if self._left < self._most:
            self._left = min(self._left + self._refund, self._most)

    def failed(self) -> None:
        """Count a transient failure."""
        self._left = max(self._left - _THOUSAND, 0)


# --- All five -------------------------------------------------------------------------------------------------------


@frozen
class Retry:
    """Send the request again.

    Attributes:
        delay: seconds to wait first.
    """

    delay: float


@frozen
class NoRetry:
    """Raise the failure to the caller.

    Attributes:
        reason: ``"final"``: the failure is not transient; ``"unsafe"``: the server may have acted on the request;
            ``"attempts"``: none is left; ``"budget"``: the server's retry tokens are spent; ``"deadline"``: the retry
            would begin too late.
    """

    reason: Literal["final", "unsafe", "attempts", "budget", "deadline"]


@define(eq=False)
class Retries:
    """The retry budget of one request, over all its pages and connections.

    It is created when the first attempt has failed; a request that succeeds at once needs none.

    Attributes:
        policy: the server's retry policy.
        tokens: the server's token bucket.
        repeatable: whether the request may be repeated after the server may have acted on it.
        deadline: when the request times out, on the clock of `failed`; infinite without a limit.
        attempts: how often the request was sent so far. A page of a list counts only if it failed.
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

        Args:
            error: the failure.
            now: the current time.
            sent: False only if provably nothing of the request reached the server. The class of the error does not
                tell: a middleware may raise any error at any time.
            random: a source of uniform numbers in [0, 1), such as `random.random`. None disables the jitter.
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
    """Return the ``Retry-After`` seconds of an error, at most `MAX_WAIT`; 0 without that header."""
    asked = error.retry_after if isinstance(error, HttpStatusError) else None
    return 0.0 if asked is None else min(asked, MAX_WAIT)
