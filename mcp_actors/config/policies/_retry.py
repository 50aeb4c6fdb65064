"""How often a request that failed is sent again, and when a server has had enough of that."""

from __future__ import annotations

from typing import Any, Final

import attrs

from ..._backoff import Backoff
from ..._checks import is_number
from .. import _validators as check

# A tenth of a second for what was one-off (a proxy that changes its backend), then 0.5, 1, 2 … up to ten seconds. Half
# as much again at random, so that requests that failed together do not all come back in the same instant.
_BACKOFF: Final = Backoff(first=0.1, initial=0.5, maximum=10.0, factor=2.0, jitter=0.5)

_MOST_TOKENS: Final = 1000
"""As in gRPC."""

_DECIMALS: Final = 3
"""As in gRPC: a bucket counts thousandths of tokens, so that its arithmetic is exact."""


def _check_token_ratio(instance: RetryBudget, attribute: attrs.Attribute[Any], value: Any) -> None:
    fits = is_number(value) and 0 < value <= _MOST_TOKENS and round(value, _DECIMALS) == value
    if not fits:
        remedy = f"give a number from 0.001 to {_MOST_TOKENS} with at most {_DECIMALS} decimals"
        raise check.refused_value(instance, attribute.name, value, remedy)


@attrs.frozen(kw_only=True)
class RetryBudget:
    """How much of what is sent to one server may be retries: its bucket of tokens.

    The rule is gRPC's retry throttling (proposal A6), and so are the names. The bucket begins full. Each attempt that
    fails in a way that may pass takes one token out, each success puts `token_ratio` back. While half of the tokens or
    fewer are left nothing is retried: a request then fails with what its attempt failed with. First attempts are never
    held back. So a few failures are retried at once, but in the long run there is one retry for ``1 / token_ratio``
    successes, however much is asked of a server that fails.

    The defaults are not those of gRPC's examples, 10 and 0.1, which are made for thousands of calls a second: when one
    connection is lost, up to ``max_in_flight`` requests fail together, by default 64, and those must not empty the
    bucket. A fifth as retries is what other clients allow (Finagle, the AWS SDKs).

    Args:
        max_tokens: how many tokens the bucket holds, 1 to 1000. With 1 or 2 nothing is ever retried. Default 200:
            the hundredth failure in a row is the first that is not retried.
        token_ratio: how many tokens a success puts back, 0.001 to 1000, with at most three decimals. Default 0.2.

    Raises:
        ConfigError: a value is out of its range.
    """

    max_tokens: int = attrs.field(
        default=200,
        validator=check.count(1, f"give a whole number from 1 to {_MOST_TOKENS}", highest=_MOST_TOKENS),
    )
    token_ratio: float = attrs.field(default=0.2, validator=_check_token_ratio)


_BUDGET: Final = RetryBudget()


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often, and after which delays, a request that failed is sent again.

    Only failures that may pass are retried: a lost connection, the HTTP statuses 408, 425, 429 and 5xx (but for 501 and
    505), and an internal error that the server reports. And only requests that may be repeated: lists and reads always;
    a tool call if provably nothing of it was sent, if its caller said ``idempotent=True``, or if the server is trusted
    (``trust_annotations``) and lists the tool as read-only or idempotent. Whatever a server answers that will not
    change (an unknown tool, a wrong argument, any other 4xx, a result with ``is_error``) is final.

    A retry keeps the deadline of its request; one that could not begin before it is not waited for. A ``Retry-After``
    that is longer than the delay takes its place.

    Args:
        attempts: how often a request is sent, the first time included; one count for all the pages of a list, and
            over all connections. 1 disables retrying. What was provably not sent is sent again beyond that. Default 3.
        backoff: the delays before the retries. Default ``Backoff(first=0.1, initial=0.5, maximum=10, factor=2,
            jitter=0.5)``.
        isolated: True retries on a new connection of its own, which is closed after it; setting that up counts as part
            of the attempt. Default False: on the server's connection, once it is there again.
        budget: what all requests to the server have together. Default ``RetryBudget()``.

    Raises:
        ConfigError: a value is out of its range.
    """

    attempts: int = attrs.field(
        default=3, validator=check.count(1, "give a whole number of 1 or more; 1 disables retrying")
    )
    backoff: Backoff = attrs.field(default=_BACKOFF, validator=check.kind(Backoff, remedy="give a Backoff(...)"))
    isolated: bool = attrs.field(default=False, validator=check.flag)
    budget: RetryBudget = attrs.field(
        default=_BUDGET, validator=check.kind(RetryBudget, remedy="give a RetryBudget(...)")
    )
