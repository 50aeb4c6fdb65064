"""Events about servers; a server's states, and all transitions between them.

`next_state` computes a connection's state after an event, by the table `TRANSITIONS`. A server with replicas shows the
state of its best connection, and may skip steps of the table.

Owns: nothing.
Writes: nothing.
Calls: kernel.
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

    `StateChanged` follows if this changes the state of the server (the state of the best replica).

    Attributes:
        replica: the name of the actor of the replica, as in the kernel's events: ``"time:2"``.
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
        added: the names of new tools.
        removed: the names of tools that are no longer shown.
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
        blocked: True if added and changed tools are hidden until approved.
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

    Also emitted after a reconnect or a gap in the notification stream, when changes may have been missed. Several may
    be emitted at once. With ``ServerConfig.keep_resources``, emitted once the kept lists differ.
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
        fields: the names of the changed `ServerConfig` fields. Their values may be secret.
    """

    fields: tuple[str, ...]


@frozen(kw_only=True, eq=False, repr=False)
class Draining(ServerEvent):
    """A server finishes its requests before it is disconnected. The state is ``stopping`` from now on.

    Attributes:
        requests: the number of requests to finish.
        seconds: how long the server may take.
    """

    requests: int
    seconds: float


@frozen(kw_only=True, eq=False, repr=False)
class Drained(ServerEvent):
    """A server has finished its requests, or the time is over; the disconnect follows.

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

SERVER_STATES: Final[tuple[ServerState, ...]] = get_args(ServerState)

CONNECTED: Final[frozenset[ServerState]] = frozenset({"ready", "degraded", "unhealthy"})
"""The server is connected."""

ACTIVE: Final[frozenset[ServerState]] = frozenset({"ready", "degraded"})
"""Requests are sent at once."""

FAILED: Final[frozenset[ServerState]] = frozenset({"unhealthy", "backoff", "failed", "needs_auth"})
"""The server has failed, and was not stopped."""

PARKED: Final[frozenset[ServerState]] = frozenset({"failed", "needs_auth"})
"""The server does not run, until a wish or a late retry (``RestartPolicy.park_retry``)."""

LISTED_STATES: Final[frozenset[ServerState]] = CONNECTED | {"pending", "backoff", "connecting"}
"""Known tools are shown: the server serves, is about to, or will at the first use."""


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
"""The allowed next states. A failed start leads to ``backoff``, or to ``failed`` or ``needs_auth`` without a further
attempt. A connection lost during a drain leads to ``backoff``. A server that was idle, or is lazy from now on, becomes
``pending`` again."""

_STATE_AFTER: Final[dict[type[Event], ServerState]] = {
    Starting: "connecting",
    **dict.fromkeys((Started, Recovered, HealthChanged), "ready"),
    **dict.fromkeys((Crashed, Restarting), "backoff"),
    GaveUp: "failed",
    Stopping: "stopping",
    Stopped: "stopped",
}


_FROM_BEST: Final[tuple[ServerState, ...]] = (
    *("ready", "degraded", "unhealthy", "stopping", "connecting"),
    *("backoff", "needs_auth", "failed", "pending", "stopped"),
)


def rank(state: ServerState) -> int:
    """Return the rank of a state, 0 for the best."""
    return _FROM_BEST.index(state)


def is_followed(state: ServerState, event: Event, *, own: bool, whole: bool) -> bool:
    """Return True if a connection in this state follows an event.

    A connection follows the events of its actor (`own`), and the end of whatever runs the whole server: the only actor
    or the pool (`whole`). A pool that gives up also stops its members, so a parked replica stays parked until the pool
    itself is stopped.
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
    """Return the state after an event of the server's actor.

    Some events have no actor: `HealthChanged`, `Recovered`, and a `Stopped` where no actor runs.

    `serving` is the state while connected: ``ready``, or worse for problems with tools or health. `parked` is
    ``failed`` or ``needs_auth``. `stopped` is ``stopped``, or ``pending`` for an idle server.

    Raises:
        RuntimeError: the transition is not allowed (a bug of this library).
    """
    shown: dict[ServerState, ServerState] = {"ready": serving, "failed": parked, "stopped": stopped}
    new = _STATE_AFTER.get(type(event), state)
    new = shown.get(new, new)
    if new != state and new not in TRANSITIONS[state]:
        raise RuntimeError(f"server {event.actor!r}: cannot go from {state!r} to {new!r} by {event!r}")
    return new
