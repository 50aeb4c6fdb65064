"""The events about servers, the states of a server, and their transitions.

First the classes of events, two of them internal; then the sets of states that matter; then the table
`TRANSITIONS`, and `next_state`, which makes one step. The state of a connection is the fold of the events of its actor
and a few of its own (`HealthChanged`, `Recovered`, and a `Stopped` where no actor runs); while it drains, it shows
``stopping``. The state of a server is that of its best connection; `is_followed` and `rank` are for that.

Values and pure functions: no clock, no log, no task. They use the kernel's events, and import no other file of
``servers``. `ConnectionLife` keeps the state and takes the steps. A step that the table forbids is a `RuntimeError`;
the state that a server shows for its connections is not a step, so it may go from ``ready`` to ``connecting``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from attrs import frozen

from ..._errors import LimitExceeded, ServerState as ServerState
from ...kernel import Crashed, Event, GaveUp, Restarting, Started, Starting, Stopped, Stopping

# --- Events about servers, in addition to the kernel's events about their actors --------------------------------------


class ServerEvent(Event):
    """Base of all events about a server; ``actor`` is the name of the server."""

    __slots__ = ()

    @property
    def server(self) -> str:
        """The server's name."""
        return self.actor


@frozen(kw_only=True, eq=False, repr=False)
class StateChanged(ServerEvent):
    """The state of a server changed from ``old`` to ``new``, for this ``reason``."""

    old: ServerState
    new: ServerState
    reason: str


@frozen(kw_only=True, eq=False, repr=False)
class ReplicaChanged(ServerEvent):
    """The state of one replica of a server changed from ``old`` to ``new``, for this ``reason``.

    `StateChanged` follows if this changes the state of the server, which is that of its best replica.

    Attributes:
        replica: the name of the actor that runs it, as in the kernel's events: ``"time:2"``.
    """

    replica: str
    old: ServerState
    new: ServerState
    reason: str


@frozen(kw_only=True, eq=False, repr=False)
class ToolsChanged(ServerEvent):
    """The shown tools of a server have changed, or are shown for the first time.

    Attributes:
        tools: the names of all shown tools, as the server lists them.
        added: the names of tools that were not shown before.
        removed: the names of tools that are not shown any more.
        changed: the names of tools whose definition has changed.
    """

    tools: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@frozen(kw_only=True, eq=False, repr=False)
class ToolsDiffer(ServerEvent):
    """A server lists tools that differ from the accepted ones (``ServerConfig.on_tool_change``).

    Attributes:
        added: the names of tools that were never accepted.
        changed: the names of tools that were accepted with another definition.
        removed: the names of accepted tools that are gone.
        identity_changed: True if the command or URL of the server has changed.
        blocked: True if added and changed tools are hidden until they are approved.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    identity_changed: bool
    blocked: bool


@frozen(kw_only=True, eq=False, repr=False)
class LimitReached(ServerEvent):
    """A tool, or a whole list, exceeds ``ServerConfig.limits`` and was left out; ``error`` says which."""

    error: LimitExceeded


class Recovered(ServerEvent):
    """A degraded server is ``ready`` again. Internal: observers receive a `StateChanged`."""

    __slots__ = ()


class HealthChanged(ServerEvent):
    """The health of a connected server has changed. Internal: observers receive a `StateChanged`."""

    __slots__ = ()


class ResourcesChanged(ServerEvent):
    """The resources or resource templates of a server changed, or may have changed.

    This event is also emitted after a reconnect or a gap in the notification stream, when changes may have been missed.
    Several may be emitted at once. With ``ServerConfig.keep_resources`` it is emitted once the kept lists differ.
    """

    __slots__ = ()


class PromptsChanged(ServerEvent):
    """The prompts of a server changed, or may have changed; see `ResourcesChanged`."""

    __slots__ = ()


class ServerAdded(ServerEvent):
    """A server was added to the group (`ServerGroup.add`, `ServerGroup.reload`)."""

    __slots__ = ()


class ServerRemoved(ServerEvent):
    """A server was removed from the group and has stopped (`ServerGroup.remove`, `ServerGroup.reload`)."""

    __slots__ = ()


@frozen(kw_only=True, eq=False, repr=False)
class ConfigChanged(ServerEvent):
    """A server has a new configuration, and connects with it if it should be running (`ServerGroup.reload`).

    Attributes:
        fields: the names of the `ServerConfig` fields that have changed. Their values may be secret.
    """

    fields: tuple[str, ...]


@frozen(kw_only=True, eq=False, repr=False)
class Draining(ServerEvent):
    """A server finishes its requests before it is disconnected. Its state is ``stopping`` from now on.

    Attributes:
        requests: the number of requests that it finishes.
        seconds: how long it has for that.
    """

    requests: int
    seconds: float


@frozen(kw_only=True, eq=False, repr=False)
class Drained(ServerEvent):
    """A server has finished its requests, or their time is over; it is disconnected now.

    Attributes:
        unfinished: the number of requests that end without an answer.
    """

    unfinished: int


@frozen(kw_only=True, eq=False, repr=False)
class Flooded(ServerEvent):
    """A server began to send more than ``limit`` notifications per second; the excess is dropped."""

    limit: int


# --- The states of a server, and the sets of them that matter ---------------------------------------------------------


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


def is_followed(state: ServerState, event: Event, *, own: bool, whole: bool) -> bool:
    """Return True if a connection in this state follows an event.

    It follows the events of its actor, and the end of what runs the whole server. A pool that has given up stops its
    members. So a parked replica stays parked until the pool itself is stopped.

    Args:
        state: the state of the connection.
        event: the event.
        own: whether it is one of the actor of the connection.
        whole: whether it is one of the actor that has the name of the server: the only one, or the pool.
    """
    if own and not whole:
        return not (isinstance(event, Stopped) and state in PARKED)
    return own or (whole and isinstance(event, Stopped | GaveUp) and _STATE_AFTER[type(event)] in TRANSITIONS[state])


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
