"""The states of a server, and the sets of them that matter."""

from __future__ import annotations

from typing import Final, Literal, get_args

__all__ = ["ACTIVE", "CONNECTED", "FAILED", "LISTED", "SETTLED", "STATES", "ServerState"]

ServerState = Literal[
    "pending", "connecting", "ready", "degraded", "unhealthy", "backoff", "failed", "stopping", "stopped"
]

STATES: Final[tuple[ServerState, ...]] = get_args(ServerState)
"""All of them."""

CONNECTED: Final[frozenset[ServerState]] = frozenset({"ready", "degraded", "unhealthy"})
"""A connection stands."""

ACTIVE: Final[frozenset[ServerState]] = frozenset({"ready", "degraded"})
"""Requests are served."""

FAILED: Final[frozenset[ServerState]] = frozenset({"unhealthy", "backoff", "failed"})
"""Something is wrong, and nobody has asked for it."""

SETTLED: Final[frozenset[ServerState]] = ACTIVE | {"failed", "stopped"}
"""It serves, or will not by itself."""

LISTED: Final[frozenset[ServerState]] = CONNECTED | {"pending", "backoff", "connecting"}
"""Its tools are shown, if any are known: it serves them, or is about to (again), or will when it is asked."""
