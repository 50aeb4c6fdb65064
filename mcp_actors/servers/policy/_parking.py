"""Decide when a parked server is retried."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from ..._errors import ConnectFailed
from ...auth import SignInRequired

if TYPE_CHECKING:
    from ...config import RestartPolicy

SPREAD: Final = 0.1
"""Largest random fraction by which the delay is shortened, so servers that fail together do not reconnect together."""

_NEEDS_CREDENTIALS: Final = frozenset({401, 403})


def seconds_to_retry(policy: RestartPolicy, error: BaseException | None) -> float | None:
    """Return the seconds until a parked server is retried, or None if it is not retried by itself.

    Args:
        policy: the restart policy of the server.
        error: the last failure of the server.
    """
    if policy.park_retry is None or policy.max_restarts == 0:
        return None
    if isinstance(error, SignInRequired):
        return _spread(policy.park_retry)  # a person may have signed in with another program
    if isinstance(error, ConnectFailed) and (error.hopeless or error.http_status in _NEEDS_CREDENTIALS):
        return None
    return _spread(policy.park_retry)


def _spread(seconds: float) -> float:
    return seconds * (1.0 - SPREAD * random.random())
