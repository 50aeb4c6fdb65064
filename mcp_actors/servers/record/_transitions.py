"""Compute the state of a server after an event.

A server's state is the fold of the events of its actor, and `next_state` is one step of it. Nothing else sets a state.
With replicas this holds for each of them, and the state of the server is that of the best one (`rank`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...kernel import Crashed, GaveUp, Restarting, Started, Starting, Stopped, Stopping
from ._events import Draining, HealthChanged, Recovered
from ._state import PARKED

if TYPE_CHECKING:
    from ...kernel import Event
    from ._state import ServerState

TRANSITIONS: Final[dict[ServerState, frozenset[ServerState]]] = {
    "pending": frozenset({"connecting", "stopped"}),
    "connecting": frozenset({"ready", "degraded", "backoff", "failed", "needs_auth", "stopped", "pending"}),
    "ready": frozenset({"degraded", "unhealthy", "backoff", "failed", "needs_auth", "stopping"}),
    "degraded": frozenset({"ready", "unhealthy", "backoff", "failed", "needs_auth", "stopping"}),
    "unhealthy": frozenset({"ready", "degraded", "backoff", "failed", "needs_auth", "stopping"}),
    "backoff": frozenset({"connecting", "failed", "needs_auth", "stopping", "stopped", "pending"}),
    "failed": frozenset({"connecting", "stopped", "pending"}),
    "needs_auth": frozenset({"connecting", "stopped", "pending"}),
    "stopping": frozenset({"stopped", "backoff", "pending"}),
    "stopped": frozenset({"connecting", "pending"}),
}
"""The allowed next states. A failed start leads to ``backoff``, or to ``failed`` or ``needs_auth`` if no attempt
follows. So does a connection that is lost while the server finishes its requests. A server that was idle, or is lazy
from now on, becomes ``pending`` again."""

_STATE_AFTER: Final[dict[type[Event], ServerState]] = {
    Starting: "connecting",
    Started: "ready",
    Recovered: "ready",
    HealthChanged: "ready",
    Crashed: "backoff",
    Restarting: "backoff",
    GaveUp: "failed",
    Draining: "stopping",
    Stopping: "stopping",
    Stopped: "stopped",
}


_FROM_BEST: Final[tuple[ServerState, ...]] = (
    *("ready", "degraded", "unhealthy", "stopping", "connecting"),
    *("backoff", "needs_auth", "failed", "pending", "stopped"),
)


def rank(state: ServerState) -> int:
    """Return the rank of a state, 0 for the best. The best state of its replicas is that of a server."""
    return _FROM_BEST.index(state)


def is_followed(state: ServerState, event: Event, *, of_pool: bool) -> bool:
    """Return True if a replica in this state follows an event: its own, or one of the pool, with which it ends.

    A pool that has given up stops its members. So a parked replica stays parked until the pool itself is stopped.
    """
    if of_pool:
        return isinstance(event, Stopped | GaveUp) and _STATE_AFTER[type(event)] in TRANSITIONS[state]
    return not (isinstance(event, Stopped) and state in PARKED)


def next_state(
    state: ServerState,
    event: Event,
    *,
    serving: ServerState = "ready",
    parked: ServerState = "failed",
    stopped: ServerState = "stopped",
) -> ServerState:
    """Return the state after an event of the server's actor; the same state if the event does not change it.

    Args:
        state: the state before the event.
        event: the event.
        serving: the state while it is connected: ``ready``, or worse if its tools or its health have a problem.
        parked: the state after its restarts have ended: ``failed``, or ``needs_auth`` if a person has to sign in.
        stopped: the state after it was stopped: ``stopped``, or ``pending`` if the reason is that it was idle.

    Raises:
        RuntimeError: the transition is not allowed, which is a bug of this library.
    """
    new = _STATE_AFTER.get(type(event), state)
    if new == "ready":
        new = serving
    elif new == "failed":
        new = parked
    elif new == "stopped":
        new = stopped
    if new != state and new not in TRANSITIONS[state]:
        raise RuntimeError(f"server {event.actor!r}: cannot go from {state!r} to {new!r} by {event!r}")
    return new
