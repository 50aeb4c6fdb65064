"""The states of a server, and the sets of them that matter."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

ServerState = Literal[
    "pending", "connecting", "ready", "degraded", "unhealthy", "backoff", "failed", "needs_auth", "stopping", "stopped"
]

Departure: TypeAlias = Literal["block", "signal", "removal"]
"""Why a server leaves its group."""

STATES: Final[tuple[ServerState, ...]] = get_args(ServerState)
"""All states."""

CONNECTED: Final[frozenset[ServerState]] = frozenset({"ready", "degraded", "unhealthy"})
"""The server is connected."""

ACTIVE: Final[frozenset[ServerState]] = frozenset({"ready", "degraded"})
"""Requests are sent at once."""

FAILED: Final[frozenset[ServerState]] = frozenset({"unhealthy", "backoff", "failed", "needs_auth"})
"""The server has failed, and was not stopped."""

PARKED: Final[frozenset[ServerState]] = frozenset({"failed", "needs_auth"})
"""The server does not run; only a change, or an attempt after a long time, can bring it back."""

LISTED: Final[frozenset[ServerState]] = CONNECTED | {"pending", "backoff", "connecting"}
"""Known tools are shown: the server serves, or is about to, or will when it is used."""
