"""The policy of the circuit breaker: failures until requests fail at once."""

from __future__ import annotations

import attrs

from ..._misuse import explained
from .. import _validators as check


@explained
@attrs.frozen(kw_only=True)
class BreakerPolicy:
    """The circuit breaker of a server: when requests fail at once, without being sent.

    After `failures` consecutive failures the breaker opens, and every request fails at once with `ServerUnavailable`,
    whose ``retry_at`` says until when. After `reset_after` seconds one request is let through as a probe. The breaker
    closes if the probe is answered, and stays open for another `reset_after` seconds if it fails.

    A failure is a timeout, a lost connection, or the HTTP status 408, 429 or 5xx. Every other answer is a success, even
    an error of a tool, because it shows that the server responds.

    Args:
        failures: consecutive failures that open the breaker. Default 5.
        reset_after: seconds for which it stays open. Default 30.

    Raises:
        ConfigError: a value is out of its range.
    """

    failures: int = attrs.field(default=5, validator=check.at_least_one)
    reset_after: float = attrs.field(default=30.0, validator=check.seconds())
