"""The link to a server object in this process.

The SDK's client calls the object directly; a legacy server gets messages (see ``_memory_pipe``). The link owns nothing:
the tasks of the server belong to the `mcp.Client` that the owner enters.
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
from ._link import Lifeline, Link, Target
from ._memory_pipe import MemoryPipe, connect_legacy

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams


class ElsewhereServer(ABC):
    """A server in this process that runs on another event loop than its connection.

    Attributes:
        name: the name of the server itself.
    """

    name: str

    @abstractmethod
    def connect(self, on_lost: Callable[[], None]) -> AbstractAsyncContextManager[TransportStreams]:
        """Serve one connection for the duration of a block.

        Args:
            on_lost: called synchronously if the server ends the connection before the block does.
        """


def lowlevel(server: Server[Any] | MCPServer) -> Server[Any]:
    """Return the server that the SDK serves in place of an `MCPServer`; there is no public name."""
    return server._lowlevel_server if isinstance(server, MCPServer) else server


class InProcessLink(Link):
    """A link to a server object."""

    def __init__(
        self, server: Server[Any] | MCPServer | ElsewhereServer, lifeline: Lifeline, *, legacy: bool = False
    ) -> None:
        super().__init__(lifeline)
        self.target: Target
        if isinstance(server, ElsewhereServer):
            self.target = server.connect(lifeline.lose)
        elif legacy:
            self.direct = MemoryPipe()
            self.target = connect_legacy(lowlevel(server), self.direct, lifeline)
        else:
            self.target = server
        self.endpoint = f"the in-process server {server.name!r}"


@asynccontextmanager
async def open_in_process_link(
    config: ServerConfig, transport: InProcess, *, on_lost: Callable[[], None]
) -> AsyncIterator[InProcessLink]:
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
    yield InProcessLink(server, Lifeline(on_lost), legacy=config.protocol == "legacy")
