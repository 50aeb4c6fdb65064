"""The states of a server, and which may follow which.

A server's state is the fold of what its actor's life reports: `next_state` is that fold's step, a pure function. In
between, nobody sets a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from ..kernel import Crashed, GaveUp, Restarting, Started, Starting, Stopped, Stopping
from ._events import HealthChanged, Recovered

if TYPE_CHECKING:
    from ..kernel import Event

__all__ = ["ServerState", "next_state"]

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

TRANSITIONS: Final[dict[ServerState, frozenset[ServerState]]] = {
    "pending": frozenset({"connecting", "stopped"}),
    "connecting": frozenset({"ready", "degraded", "backoff", "failed", "stopped"}),
    "ready": frozenset({"degraded", "unhealthy", "backoff", "failed", "stopping"}),
    "degraded": frozenset({"ready", "unhealthy", "backoff", "failed", "stopping"}),
    "unhealthy": frozenset({"ready", "degraded", "backoff", "failed", "stopping"}),
    "backoff": frozenset({"connecting", "failed", "stopping", "stopped"}),
    "failed": frozenset({"connecting", "stopped"}),
    "stopping": frozenset({"stopped"}),
    "stopped": frozenset({"connecting"}),
}
"""Which state may follow which. A start that fails goes to ``backoff``, or to ``failed`` when no other is to follow."""

_STATE_AFTER: Final[dict[type[Event], ServerState]] = {
    Starting: "connecting",
    Started: "ready",
    Recovered: "ready",
    HealthChanged: "ready",
    Crashed: "backoff",
    Restarting: "backoff",
    GaveUp: "failed",
    Stopping: "stopping",
    Stopped: "stopped",
}


def next_state(state: ServerState, event: Event, *, serving: ServerState = "ready") -> ServerState:
    """The state after an event of the server's actor; the same if the event changes nothing.

    Args:
        state: the state before.
        event: what happened.
        serving: what it is while it is connected: ``ready``, unless it does not bring all that it should.

    Raises:
        RuntimeError: the actor's life does not go that way, which would be a mistake of this library.
    """
    new = _STATE_AFTER.get(type(event), state)
    if new == "ready":
        new = serving
    if new != state and new not in TRANSITIONS[state]:
        raise RuntimeError(f"server {event.actor!r}: cannot go from {state!r} to {new!r} by {event!r}")
    return new
