"""The link: an open transport to one server.

The owner task of the actor enters the link, enters ``mcp.Client(link.target)`` inside it, and leaves both in reverse
order. No other task may. The other work of a transport (reading stderr, writing to a pipe that was full, keeping an
HTTP client open) is done by background tasks that belong to the link and end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import trio
from mcp.client import Transport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from ._lifeline import Lifeline
from ._obituary import Obituary
from .credentials import Masker

__all__ = ["Link", "Target"]

Target: TypeAlias = Transport | Server[Any] | MCPServer
"""The argument of `mcp.Client`."""


class Link:
    """An open transport to one server. The defaults are those of a server that is not a child process.

    Attributes:
        target: the argument for `mcp.Client`, to be entered once, inside the link.
        endpoint: the command or URL of the server, without credentials, as messages show it.
        pid: the process of the server, which leads its own process group; None if it is not a child process.
        masker: masks the credentials of this connection in text from the server.
        max_connections: the maximum of concurrent connections to the server, of which each stream holds one; None if
            there is no limit here.
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
        """True if the other side ended the connection, or a write failed, before this side began to close it."""
        return self._lifeline.lost

    @property
    def failure(self) -> Exception | None:
        """The exception that ended a lost connection, for use as ``__cause__``; None if only its end is known."""
        return self._lifeline.failure

    @property
    def heard(self) -> bool | None:
        """True if something was sent and the server has read all of it; None if the system does not report that."""
        return None

    @property
    def malformed_lines(self) -> int:
        """The number of skipped lines or events that were not messages."""
        return 0

    @property
    def heard_at(self) -> float:
        """`trio.current_time` of the last byte from the server."""
        return self._lifeline.heard_at

    @property
    def exited(self) -> bool:
        """True if the started process has exited. Its child may be the real server and go on serving."""
        return self._lifeline.exited

    @property
    def suspended(self) -> bool:
        """True if the process is suspended (SIGSTOP) and cannot answer; False if the system does not report that."""
        return False

    @property
    def input_closed(self) -> bool:
        """True if no process can read what is sent any more; False if the system does not report that."""
        return False

    async def may_serve_on(self) -> bool:
        """Return True if a child of the exited process may be the server, or if the system does not report that."""
        await trio.lowlevel.checkpoint()
        return True

    def lose(self) -> None:
        """Mark the connection as lost."""
        self._lifeline.lose()

    def hear_of_exit(self, on_exit: Callable[[], None]) -> None:
        """Call a function, synchronously, when the started process has exited."""
        self._lifeline.on_exit = on_exit

    def hear_of_gaps(self, on_gap: Callable[[], None]) -> None:
        """Call a function, synchronously, whenever notifications of the server may have been missed."""
        self._lifeline.on_gap = on_gap

    def obituary(self) -> Obituary:
        """Return the known facts about the end of the server's process. Works at any time, also after the link."""
        return Obituary()

    async def wait_obituary(self) -> Obituary:
        """Return the obituary of a lost connection, after a short wait for facts that are about to arrive.

        Call it inside the link. stdout may end some milliseconds before the process exits and before the rest of its
        stderr is read. If the connection is not lost, there is no wait.
        """
        await trio.lowlevel.checkpoint()
        return self.obituary()
