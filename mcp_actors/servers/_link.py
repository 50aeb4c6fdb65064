"""The seam between a server actor and the way its server is reached.

A link is an open transport to one server. The owner task of the actor enters it, enters ``mcp.Client(link.target)``
inside it, and leaves both, in reverse order; no other task may. What a transport has to do beside that (read stderr,
write what a full pipe did not take, keep an HTTP client open) is done by background tasks that belong to the link and
end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from mcp.client import Transport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from ..config import Http, ServerConfig, Sse, Stdio
from ._credentials import resolve_transport
from ._http import StreamableHttpLink
from ._http_link import open_link_over_http
from ._in_process import open_in_process_link
from ._obituary import Obituary
from ._sse import SseLink
from ._stdio import open_stdio_link

__all__ = ["Link", "Target", "open_link"]

Target: TypeAlias = Transport | Server[Any] | MCPServer
"""What `mcp.Client` takes as its server."""


class Link(Protocol):
    """An open transport to one server."""

    @property
    def target(self) -> Target:
        """What to give to `mcp.Client`; to be entered once, inside the link."""

    @property
    def endpoint(self) -> str:
        """What is at the other end, to be shown to people: a command or a URL, without any credential."""

    @property
    def pid(self) -> int | None:
        """The server's process, which also leads its own process group; None if it is not a process of ours."""

    @property
    def lost(self) -> bool:
        """The other side ended the connection, or a write to it failed, while we had not begun to close."""

    @property
    def failure(self) -> Exception | None:
        """What ended a lost connection, where more is known than that it ended: to be used as a ``__cause__``."""

    @property
    def malformed_lines(self) -> int:
        """How much the server sent that was no message and was skipped."""

    def obituary(self) -> Obituary:
        """What is known now about the end of the server. May be asked at any time, also after the link was left."""

    async def wait_obituary(self) -> Obituary:
        """What is known about the end of the server, after a short bounded wait for what is about to be known.

        To be asked inside the link when the connection is lost: stdout may end some milliseconds before the process
        does, and before the last of its stderr was read. Otherwise there is no wait.
        """


def open_link(config: ServerConfig, *, on_lost: Callable[[], None]) -> AbstractAsyncContextManager[Link]:
    """Open the transport of a configured server; close it, and everything it started, on leaving.

    Credentials are resolved at each opening and not kept. Leaving is bounded by ``config.stop_timeout``, whatever the
    server does and also when cancelled. An exception of the block leaves as itself.

    **Cancellation:** cancelled while opening, nothing is left behind.

    Args:
        config: what to connect to.
        on_lost: called synchronously, at most once, by whichever task notices that the other side is gone. Never
            called once this side has begun to close, not even by closing only one of the two streams.

    Raises:
        ConnectFailed: the transport cannot be opened; ``hopeless`` if it will not until something is changed.
    """
    transport = resolve_transport(config)
    if isinstance(transport, Stdio):
        return open_stdio_link(config, transport, on_lost=on_lost)
    if isinstance(transport, Http):
        return open_link_over_http(StreamableHttpLink, config, transport, on_lost=on_lost)
    if isinstance(transport, Sse):
        return open_link_over_http(SseLink, config, transport, on_lost=on_lost)
    return open_in_process_link(config, transport)
