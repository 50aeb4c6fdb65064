"""Decide when a parked server is tried again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from .._errors import ConnectFailed

if TYPE_CHECKING:
    from ..config import RestartPolicy

__all__ = ["seconds_to_retry"]

SPREAD: Final = 0.1
"""Part of the time by which it is shortened at random, so that servers which went down together come back spread."""

_NEEDS_CREDENTIALS: Final = frozenset({401, 403})


def seconds_to_retry(policy: RestartPolicy, error: BaseException | None) -> float | None:
    """Return the seconds until a parked server is tried again, or None if only `ServerRef.restart` may do that.

    Args:
        policy: the server's.
        error: its last failure.
    """
    if policy.park_retry is None or policy.max_restarts == 0:
        return None
    if isinstance(error, ConnectFailed) and (error.hopeless or error.http_status in _NEEDS_CREDENTIALS):
        return None
    return policy.park_retry * (1.0 - SPREAD * random.random())
