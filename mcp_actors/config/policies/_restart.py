"""The policy of restarts: how often, how soon, and when to park."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

from ..._backoff import Backoff
from ..._misuse import explained
from .. import _validators as check

# The first restart happens at once (most failures are one-off), the next after 1, 2, 4, 8 … seconds, up to a minute.
# A tenth of jitter keeps servers that failed together from restarting in the same instant.
_RESTART_BACKOFF: Final = Backoff(first=0.0, initial=1.0, maximum=60.0, factor=2.0, jitter=0.1)


def _check_reachable(instance: RestartPolicy, attribute: attrs.Attribute[Any], value: Backoff) -> None:
    """Refuse a limit that can never be reached because the delays alone outlast the window."""
    window = instance.window
    if window == math.inf:
        return
    total = value.total(instance.max_restarts)
    if total >= window:
        raise check.refused(
            "RestartPolicy",
            "window",
            f"max_restarts={instance.max_restarts} can never be reached within window={window}, because the back-off "
            f"alone takes {total:g} s, so a failing server would be restarted forever; make "
            f"window longer than {total:g}, or max_restarts or the back-off smaller",
        )


@explained
@attrs.frozen(kw_only=True)
class RestartPolicy:
    """How often and how soon a failed server is restarted.

    Each attempt counts, successful or not. If a failure would need more than `max_restarts` attempts within `window`,
    the server is parked as ``failed`` (or the group ends, see ``ServerConfig.on_failure``). With the defaults this
    happens after five attempts in a row, after 0, 1, 2, 4 and 8 seconds, without a minute of serving in between.

    A parked server is retried every `park_retry` seconds, so it recovers by itself after an outage of any length.
    Exceptions are failures that a retry cannot fix (``ConnectFailed.hopeless``, and the HTTP statuses 401 and 403) and
    servers that were stopped with `ServerRef.stop`.

    Args:
        max_restarts: restarts that are allowed. 0 disables restarting. Default 5.
        window: seconds within which restarts are counted. Default infinity: only `reset_after` clears the count.
        reset_after: seconds of serving after which the count and the back-off are reset. None disables the reset.
            Default 60.
        backoff: the delays before the restarts. Default ``Backoff(first=0, initial=1, maximum=60, factor=2,
            jitter=0.1)``.
        park_retry: seconds until a parked server is retried (up to a tenth less, at random). Each retry is a single
            attempt: until the server has served for `reset_after`, its next failure parks it again. Time for which the
            machine was suspended counts. None disables these retries, as does ``max_restarts=0``. Default 60.

    Raises:
        ConfigError: a value is out of its range, or the delays of `backoff` before `max_restarts` restarts (without
            jitter) are not less than `window`, so that the limit could never be reached.
    """

    max_restarts: int = attrs.field(
        default=5, validator=check.count(0, "give a whole number of 0 or more; 0 disables restarting")
    )
    window: float = attrs.field(default=math.inf, validator=check.seconds(unlimited=True))
    reset_after: float | None = attrs.field(default=60.0, validator=check.seconds(optional=True))
    backoff: Backoff = attrs.field(
        default=_RESTART_BACKOFF, validator=[check.kind(Backoff, remedy="give a Backoff(...)"), _check_reachable]
    )
    park_retry: float | None = attrs.field(default=60.0, validator=check.seconds(optional=True))
