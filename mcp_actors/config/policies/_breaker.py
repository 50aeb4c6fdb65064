"""When a server that fails is left alone for a while."""

from __future__ import annotations

import attrs

from .. import _validators as check


@attrs.frozen(kw_only=True)
class BreakerPolicy:
    """When requests to a server fail at once, without being sent: its circuit breaker.

    After so many failures in a row the breaker opens, and every request fails at once with `ServerUnavailable`, whose
    ``retry_at`` says until when. Then one request is let through as a probe. If it is answered the breaker closes, if
    it fails the breaker is open for as long again.

    A failure is a time-out, a lost connection, or the HTTP status 408, 429 or 5xx. Whatever else the server answers is
    a success, errors of tools included: it shows that the server answers.

    Args:
        failures: how many failures in a row open it. Default 5.
        reset_after: seconds for which it is open. Default 30.

    Raises:
        ConfigError: a value is out of its range.
    """

    failures: int = attrs.field(default=5, validator=check.count(1, "give a whole number of 1 or more"))
    reset_after: float = attrs.field(default=30.0, validator=check.seconds())
