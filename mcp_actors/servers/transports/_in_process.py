"""The links to a server object in this process.

A modern server is called (see ``_called_server``), a legacy one gets messages (see ``_memory_pipe``), and one that runs
elsewhere has two streams (see ``_streams_link``). Their tasks belong to the link.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from ..._errors import ConnectFailed
from ...config import InProcess, ServerConfig
from ._called_server import open_called_link
from ._link import Lifeline, Link
from ._memory_pipe import open_legacy_link
from ._streams_link import StreamsLink

if TYPE_CHECKING:
    from .wire import Messages, MessageWriter


class ElsewhereServer(ABC):
    """A server in this process that runs on another event loop than its connection.

    Attributes:
        name: the name of the server itself.
    """

    name: str

    @abstractmethod
    def connect(self, on_lost: Callable[[], None]) -> AbstractAsyncContextManager[tuple[Messages, MessageWriter]]:
        """Serve one connection for the duration of a block, which gets the streams of the client.

        Args:
            on_lost: called synchronously if the server ends the connection before the block does.
        """


def lowlevel(server: Server[Any] | MCPServer) -> Server[Any]:
    """Return the server that the SDK serves in place of an `MCPServer`; there is no public name.

    Raises:
        RuntimeError: an `MCPServer` of this version of the SDK has no such server.
    """
    if not isinstance(server, MCPServer):
        return server
    inner = getattr(server, "_lowlevel_server", None)
    if not isinstance(inner, Server):
        raise RuntimeError(
            "an MCPServer of this version of mcp has no `_lowlevel_server`; give InProcess() an mcp.server.Server, or "
            "install another version of mcp"
        )
    return inner


@asynccontextmanager
async def _open_streams_link(server: ElsewhereServer, lifeline: Lifeline) -> AsyncIterator[StreamsLink]:
    async with server.connect(lifeline.lose) as (reader, writer):
        try:
            yield StreamsLink(f"the in-process server {server.name!r}", reader, writer, lifeline)
        finally:
            lifeline.closing = True


@asynccontextmanager
async def open_in_process_link(
    config: ServerConfig, transport: InProcess, *, on_lost: Callable[[], None]
) -> AsyncIterator[Link]:
    """Check that the configured object is a server, and open a link to it.

    Raises:
        ConnectFailed: it is not a server.
    """
    server = transport.server
    if not isinstance(server, Server | MCPServer | ElsewhereServer):
        raise ConnectFailed(
            f"server {config.name!r}: the argument of InProcess() is not a server (type: {type(server).__name__}); "
            "pass an mcp.server.MCPServer or mcp.server.Server",
            server=config.name,
            phase="configure",
            hopeless=True,
        )
    lifeline = Lifeline(on_lost)
    async with _opening(config, server, lifeline) as link:
        yield link


def _opening(
    config: ServerConfig, server: Server[Any] | MCPServer | ElsewhereServer, lifeline: Lifeline
) -> AbstractAsyncContextManager[Link]:
    if isinstance(server, ElsewhereServer):
        return _open_streams_link(server, lifeline)
    if config.protocol == "legacy":
        return open_legacy_link(lowlevel(server), lifeline)
    return open_called_link(config.name, lowlevel(server), lifeline)
