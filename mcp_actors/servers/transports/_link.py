"""The seam between a server actor and the way its server is reached.

A link is an open transport to one server. The owner task of the actor enters it, enters ``mcp.Client(link.target)``
inside it, and leaves both, in reverse order; no other task may. What a transport has to do beside that (read stderr,
write what a full pipe did not take, keep an HTTP client open) is done by background tasks that belong to the link and
end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import trio
from mcp.client import Transport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from ._lifeline import Lifeline
from ._masker import Masker
from ._obituary import Obituary

__all__ = ["Link", "Target"]

Target: TypeAlias = Transport | Server[Any] | MCPServer
"""What `mcp.Client` takes as its server."""


class Link:
    """An open transport to one server. As far as this class goes, the server is no process of ours.

    Attributes:
        target: what to give to `mcp.Client`; to be entered once, inside the link.
        endpoint: what is at the other end, to be shown to people: a command or a URL, without any credential.
        pid: the server's process, which also leads its own process group; None if it is not a process of ours.
        masker: masks the credentials of this connection in text from the server.
        max_connections: how many connections to the server there may be at a time, where each stream takes one; None
            if that is not bounded here.
    """

    target: Target
    endpoint: str
    pid: int | None = None
    max_connections: int | None = None

    def __init__(self, lifeline: Lifeline, masker: Masker | None = None) -> None:
        self._lifeline = lifeline
        self.masker = masker or Masker()

    @property
    def lost(self) -> bool:
        """The other side ended the connection, or a write to it failed, while we had not begun to close."""
        return self._lifeline.lost

    @property
    def failure(self) -> Exception | None:
        """What ended a lost connection, where more is known than that it ended: to be used as a ``__cause__``."""
        return self._lifeline.failure

    @property
    def heard(self) -> bool | None:
        """Whether something was sent, and the server has read all of it; None where the system does not tell."""
        return None

    @property
    def malformed_lines(self) -> int:
        """How much the server sent that was no message and was skipped."""
        return 0

    @property
    def heard_at(self) -> float:
        """`trio.current_time` of the last byte from the server."""
        return self._lifeline.heard_at

    @property
    def exited(self) -> bool:
        """The process that was started has exited. The server may be a child of it, and serve on."""
        return self._lifeline.exited

    @property
    def suspended(self) -> bool:
        """The process is stopped (SIGSTOP), so that it cannot answer; False where the system does not tell."""
        return False

    async def may_serve_on(self) -> bool:
        """Whether the server may be a child of the process that has exited; True where the system does not tell."""
        await trio.lowlevel.checkpoint()
        return True

    def lose(self) -> None:
        """Give the connection up as lost."""
        self._lifeline.lose()

    def hear_of_exit(self, on_exit: Callable[[], None]) -> None:
        """Have a function called, synchronously, when the process that was started has exited."""
        self._lifeline.on_exit = on_exit

    def hear_of_gaps(self, on_gap: Callable[[], None]) -> None:
        """Have a function called, synchronously, whenever notifications of the server may have been missed."""
        self._lifeline.on_gap = on_gap

    def obituary(self) -> Obituary:
        """What is known now about the end of the server. May be asked at any time, also after the link was left."""
        return Obituary()

    async def wait_obituary(self) -> Obituary:
        """What is known about the end of the server, after a short bounded wait for what is about to be known.

        To be asked inside the link when the connection is lost: stdout may end some milliseconds before the process
        does, and before the last of its stderr was read. Otherwise there is no wait.
        """
        await trio.lowlevel.checkpoint()
        return self.obituary()
