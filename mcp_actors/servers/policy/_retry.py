"""Whether a request that failed is sent again, and when. Pure decisions: no clock, no tasks.

Theory of operation
-------------------
Five questions, in this order; the first "no" is the answer:

1. May the failure pass? What a server answers about the request itself will be the same next time (`is_transient`).
2. May the request be repeated? What the server may have acted on is sent again only if that does no harm
   (`is_repeatable_call`), or if nothing was sent. Most of what was not sent never comes here: its envelope goes back to
   its place in the mailbox, and that is no attempt. (gRPC calls it a transparent retry.)
3. Is there an attempt left? There is one count per request, over all pages of a list and all connections (`Retries`).
4. Has the server had enough? All requests to it share a bucket of tokens, which failures empty (`RetryTokens`): the
   retry throttling of gRPC's proposal A6. Without it a server that answers nothing but 503, because it has too much to
   do, would be given three times as much.
5. Is there time? A retry that cannot begin before the deadline of its request is not waited for. The delay is that of
   the back-off, or what the server asked for if that is longer: RFC 9110 (10.2.3) has ``Retry-After`` as the time that
   a client ought to wait, so it is a lower bound, and a 0 is no reason to forget the back-off.

A caller that leaves is not a failure of its request. Its cancellation never comes here, and would be refused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

from attrs import define, field, frozen
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, REQUEST_TIMEOUT

from ..._errors import ConnectFailed, ConnectionLost, HttpStatusError, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import ToolAnnotations

    from ...config import RetryBudget, RetryPolicy

__all__ = ["NoRetry", "Retries", "Retry", "RetryTokens", "asked_to_wait", "is_repeatable_call", "is_transient"]

_TRANSIENT_4XX: Final = frozenset({408, 425, 429})
"""Request Timeout, Too Early, Too Many Requests: the 4xx that are about the moment, and not about the request."""

_LASTING_5XX: Final = frozenset({501, 505})
"""Not Implemented, HTTP Version Not Supported: the 5xx that the same request gets every time."""

_TRANSIENT_CODES: Final = frozenset({INTERNAL_ERROR, REQUEST_TIMEOUT})
"""What a server says in MCP where it would say 500 or 504 in HTTP. All other codes are about the request."""

MAX_WAIT: Final = 3600.0
"""Seconds that a server is waited for because it asks for that, at most."""

_THOUSAND: Final = 1000
"""Tokens are counted in thousandths, as in gRPC: in floats, ten times 0.1 would be less than 1."""


# --- 1. May the failure pass? ---------------------------------------------------------------------------------------


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later, although nobody changes anything.

    What is not known to be so is not: an exception of somebody's code, a group of several failures, a cancellation.
    Nor is a `RequestTimedOut`, because that time was the time for all attempts.
    """
    match error:
        case ConnectionLost():
            # A message that was too long will be so again, and would take every other request along again.
            return not isinstance(error.__cause__, LimitExceeded)
        case ConnectFailed(hopeless=hopeless, http_status=status):
            return not hopeless and (status is None or _is_transient_status(status))
        case HttpStatusError(status=status):
            return _is_transient_status(status)
        case MCPError():
            return error.code in _TRANSIENT_CODES
        case _:
            return False


def _is_transient_status(status: int) -> bool:
    return status in _TRANSIENT_4XX or (500 <= status <= 599 and status not in _LASTING_5XX)


# --- 2. May the request be repeated? --------------------------------------------------------------------------------


def is_repeatable_call(*, idempotent: bool | None, trusted: bool, annotations: ToolAnnotations | None) -> bool:
    """Whether a tool may be called again when the server may have acted on the first call.

    Reads and lists may be, always.

    Args:
        idempotent: what the caller said about this call; None: nothing. It counts for more than the annotations.
        trusted: the server's ``trust_annotations``. Without it they are claims, and the specification forbids to decide
            anything by them.
        annotations: the tool's, if it is known and has any.
    """
    if idempotent is not None:
        return idempotent
    if not trusted or annotations is None:
        return False
    return annotations.read_only_hint is True or annotations.idempotent_hint is True


# --- 4. Has the server had enough? ----------------------------------------------------------------------------------


@define(eq=False)
class RetryTokens:
    """The bucket of one server, which lives as long as the server is in its group. See `RetryBudget` for the rule.

    Attributes:
        budget: how large it is.
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
        """How many tokens are in it."""
        return self._left / _THOUSAND

    @property
    def allows(self) -> bool:
        """Whether anything is retried now: more than half of the tokens are left."""
        return 2 * self._left > self._most

    def succeeded(self) -> None:
        """An attempt had a result."""
        # Most are full most of the time, and this is done for every request.
        if self._left < self._most:
            self._left = min(self._left + self._refund, self._most)

    def failed(self) -> None:
        """An attempt failed in a way that may pass."""
        self._left = max(self._left - _THOUSAND, 0)


# --- All five -------------------------------------------------------------------------------------------------------


@frozen
class Retry:
    """The request is to be sent again.

    Attributes:
        delay: after so many seconds.
    """

    delay: float


@frozen
class NoRetry:
    """The failure is the outcome of the request.

    Attributes:
        reason: ``"final"``: it would be the same again; ``"unsafe"``: the server may have acted on the request;
            ``"attempts"``: they are spent; ``"budget"``: the server has had enough; ``"deadline"``: it would be too
            late.
    """

    reason: Literal["final", "unsafe", "attempts", "budget", "deadline"]


@define(eq=False)
class Retries:
    """What one request may still try: one budget over all its pages, connections and attempts.

    It is made when the first attempt has failed; a request that succeeds at once needs none.

    Attributes:
        policy: the server's.
        tokens: the server's.
        repeatable: whether it may be sent again when the server may have acted on it.
        deadline: when it expires; infinite for no bound. On the clock of the ``now`` that `failed` is given.
        attempts: how often it was sent so far. A page of a list that has come is no attempt, one that failed is.
    """

    policy: RetryPolicy
    tokens: RetryTokens
    repeatable: bool
    deadline: float = math.inf
    attempts: int = field(default=1, init=False)

    def failed(
        self, error: BaseException, now: float, *, sent: bool = True, random: Callable[[], float] | None = None
    ) -> Retry | NoRetry:
        """An attempt has failed: decide what becomes of the request, and account for it.

        Args:
            error: what it failed with.
            now: the time.
            sent: False only if it is known that nothing of it reached the server, for example because there was no
                connection for it. No class of errors says so: a middleware may raise any of them, at any time.
            random: a source of uniform numbers in [0, 1), such as `random.random`. None leaves out the jitter.
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
    """The seconds that the server asked to wait, no more than `MAX_WAIT`; 0 if it did not ask."""
    asked = error.retry_after if isinstance(error, HttpStatusError) else None
    return 0.0 if asked is None else min(asked, MAX_WAIT)
