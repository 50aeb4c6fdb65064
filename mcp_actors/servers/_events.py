"""What happens to servers, beside what the kernel tells about their actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ..kernel import Event

if TYPE_CHECKING:
    from ._state import ServerState

__all__ = ["Flooded", "PromptsChanged", "ResourcesChanged", "ServerEvent", "StateChanged", "ToolsChanged"]


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
class ResourcesChanged(ServerEvent):
    """A server says that it has other resources, or templates of them, than before; or may have said so unheard.

    The latter after it was connected anew, or its stream of notices was interrupted. Several may come at once.
    """


@frozen(kw_only=True)
class Flooded(ServerEvent):
    """A server began to send more than ``limit`` notifications a second; callbacks hear of no more than that."""

    limit: int


@frozen(kw_only=True)
class PromptsChanged(ServerEvent):
    """A server says that it has other prompts than before, or may have said so unheard; as `ResourcesChanged`."""
