"""What happens to servers, beside what the kernel tells about their actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ...kernel import Event

if TYPE_CHECKING:
    from ..._errors import LimitExceeded
    from ._state import ServerState

__all__ = [
    "Flooded",
    "HealthChanged",
    "LimitReached",
    "PromptsChanged",
    "Recovered",
    "ResourcesChanged",
    "ServerEvent",
    "StateChanged",
    "ToolsChanged",
    "ToolsDiffer",
]


@frozen(kw_only=True)
class ServerEvent(Event):
    """Base of the events about a server; ``actor`` is its name."""

    @property
    def server(self) -> str:
        """The server's name."""
        return self.actor


@frozen(kw_only=True)
class StateChanged(ServerEvent):
    """A server's state changed from ``old`` to ``new``; ``reason`` says why, for people."""

    old: ServerState
    new: ServerState
    reason: str


@frozen(kw_only=True)
class ToolsChanged(ServerEvent):
    """Other tools of a server are shown than before, or some for the first time.

    Attributes:
        tools: the names of all that are shown now, as the server lists them.
        added: those that were not shown before.
        removed: the names that were shown before, and are not any more.
        changed: those whose definition is another one than before.
    """

    tools: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@frozen(kw_only=True)
class ToolsDiffer(ServerEvent):
    """A server lists tools that are not what was accepted (``ServerConfig.on_tool_change``).

    Attributes:
        added: the names of those that were never accepted.
        changed: the names of those that were accepted as something else.
        removed: those that were accepted and are gone.
        identity_changed: whether what the server is started from, or reached at, is not what it was.
        blocked: whether what was added or changed is hidden until it is approved.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    identity_changed: bool
    blocked: bool


@frozen(kw_only=True)
class LimitReached(ServerEvent):
    """A server lists too much (``ServerConfig.limits``): a tool that was left out, or a list; ``error`` says which."""

    error: LimitExceeded


@frozen(kw_only=True)
class Recovered(ServerEvent):
    """A server that was degraded is not so any more. It is told as a `StateChanged`."""


@frozen(kw_only=True)
class HealthChanged(ServerEvent):
    """The health of a connected server has changed. Users see it as a `StateChanged`."""


@frozen(kw_only=True)
class ResourcesChanged(ServerEvent):
    """A server says that it has other resources, or templates of them, than before; or may have said so unheard.

    The latter after it was connected anew, or its stream of notifications was interrupted. Several may come at once.
    """


@frozen(kw_only=True)
class PromptsChanged(ServerEvent):
    """A server says that it has other prompts than before, or may have said so unheard; as `ResourcesChanged`."""


@frozen(kw_only=True)
class Flooded(ServerEvent):
    """A server began to send more than ``limit`` notifications a second; callbacks hear of no more than that."""

    limit: int
