"""The policy of retries, with a budget per server."""

from __future__ import annotations

from typing import Any, Final

import attrs

from ..._backoff import Backoff
from ..._misuse import explained, is_number
from .. import _validators as check

# A tenth of a second for one-off failures (a proxy that switches its backend), then 0.5, 1, 2 … up to 10 seconds. Up to
# half as much is added at random, so that requests that failed together are not all retried in the same instant.
_RETRY_BACKOFF: Final = Backoff(first=0.1, initial=0.5, maximum=10.0, factor=2.0, jitter=0.5)

_MOST_TOKENS: Final = 1000
"""As in gRPC."""

_DECIMALS: Final = 3
"""As in gRPC: a bucket counts thousandths of tokens, so that its arithmetic is exact."""


def _check_token_ratio(instance: RetryBudget, attribute: attrs.Attribute[Any], value: Any) -> None:
    fits = is_number(value) and 0 < value <= _MOST_TOKENS and round(value, _DECIMALS) == value
    if not fits:
        remedy = f"give a number from 0.001 to {_MOST_TOKENS} with at most {_DECIMALS} decimals"
        raise check.refused_value(instance, attribute.name, value, remedy)


@explained
@attrs.frozen(kw_only=True)
class RetryBudget:
    """How many of the requests to one server may be retries: a token bucket.

    The rule and the names are those of gRPC's retry throttling (proposal A6). The bucket starts full. Each attempt with
    a transient failure takes one token, each success returns `token_ratio` tokens. While the bucket is half empty or
    less, nothing is retried, and a request fails with the error of its attempt. First attempts are never held back. So
    a few failures are retried at once, but in the long run there is one retry per ``1 / token_ratio`` successes.

    The defaults differ from gRPC's examples (10 and 0.1), which suit thousands of calls a second. When a connection is
    lost, up to ``max_in_flight`` requests (by default 64) fail together, and these must not empty the bucket. One retry
    for five successes is what other clients allow (Finagle, the AWS SDKs).

    Args:
        max_tokens: tokens in a full bucket, 1 to 1000. With 1 or 2 nothing is ever retried. Default 200: the hundredth
            failure in a row is the first that is not retried.
        token_ratio: tokens that a success returns, 0.001 to 1000, with at most three decimals. Default 0.2.

    Raises:
        ConfigError: a value is out of its range.
    """

    max_tokens: int = attrs.field(
        default=200,
        validator=check.count(1, f"give a whole number from 1 to {_MOST_TOKENS}", highest=_MOST_TOKENS),
    )
    token_ratio: float = attrs.field(default=0.2, validator=_check_token_ratio)


_BUDGET: Final = RetryBudget()


@explained
@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often, and after which delays, a failed request is sent again.

    Only transient failures are retried: a lost connection, the HTTP statuses 408, 425, 429 and 5xx (except 501 and
    505), and an internal error that the server reports. Any other answer (an unknown tool, a wrong argument, another
    4xx, a result with ``is_error``) is final.

    Only requests that are safe to repeat are retried: lists and reads always; a tool call if provably nothing of it was
    sent, if the caller passed ``idempotent=True``, or if the server is trusted (``trust_annotations``) and lists the
    tool as read-only or idempotent.

    A retry keeps the deadline of its request; a retry that could not begin before the deadline is not waited for. A
    ``Retry-After`` that is longer than the delay replaces it.

    Args:
        attempts: how often a request is sent, including the first time; all pages of a list and all connections share
            one count. 1 disables retrying. A request that was provably not sent is sent again without being counted.
            Default 3.
        backoff: the delays before the retries. Default ``Backoff(first=0.1, initial=0.5, maximum=10, factor=2,
            jitter=0.5)``.
        isolated: True retries on a separate connection, which is closed afterwards; connecting counts as part of the
            attempt. Default False: retry on the server's connection as soon as it is restored.
        budget: the retries of all requests to the server together. Default ``RetryBudget()``.

    Raises:
        ConfigError: a value is out of its range.
    """

    attempts: int = attrs.field(
        default=3, validator=check.count(1, "give a whole number of 1 or more; 1 disables retrying")
    )
    backoff: Backoff = attrs.field(default=_RETRY_BACKOFF, validator=check.kind(Backoff, remedy="give a Backoff(...)"))
    isolated: bool = attrs.field(default=False, validator=check.flag)
    budget: RetryBudget = attrs.field(
        default=_BUDGET, validator=check.kind(RetryBudget, remedy="give a RetryBudget(...)")
    )
