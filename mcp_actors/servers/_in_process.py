"""Servers that live in this process: the SDK's client calls them directly.

There is nothing to own here: the server's tasks belong to the `mcp.Client` that the owner enters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import frozen
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from .._errors import ConnectFailed
from ..config import InProcess, ServerConfig
from ._obituary import Obituary

__all__ = ["InProcessLink", "open_in_process_link"]


@frozen
class InProcessLink:
    """A link to a server object. It is never lost: there is no other side that could go away."""

    target: Server[Any] | MCPServer
    endpoint: str
    pid: None = None
    lost: bool = False
    failure: None = None
    malformed_lines: int = 0

    def obituary(self) -> Obituary:
        """Return an empty one: there is no process."""
        return Obituary()

    async def wait_obituary(self) -> Obituary:
        """Return an empty one: there is no process."""
        await trio.lowlevel.checkpoint()
        return Obituary()


@asynccontextmanager
async def open_in_process_link(config: ServerConfig, transport: InProcess) -> AsyncIterator[InProcessLink]:
    """Check that the configured object is a server and hand it on.

    Raises:
        ConnectFailed: it is not one.
    """
    server = transport.server
    if not isinstance(server, Server | MCPServer):
        raise ConnectFailed(
            f"server {config.name!r}: InProcess() was given an object of type {type(server).__name__!r}, which is not "
            "a server; pass an mcp.server.MCPServer or mcp.server.Server",
            server=config.name,
            phase="configure",
            hopeless=True,
        )
    yield InProcessLink(server, f"the in-process server {server.name!r}")
