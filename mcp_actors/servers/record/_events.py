"""Events about servers, in addition to the kernel's events about their actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ...kernel import Event

if TYPE_CHECKING:
    from ..._errors import LimitExceeded
    from ._state import ServerState


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
