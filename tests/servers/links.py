"""Open links to the scripted server and sessions over them, for the tests of transports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp.types import CallToolResult, JSONRPCNotification, TextContent

from mcp_actors.config import ServerConfig, Stdio
from mcp_actors.servers.transports import Link
from mcp_actors.servers.transports.stdio._link import StdioLink
from mcp_actors.servers.transports.stdio._pipes import PipeReader
from mcp_actors.servers.transports.stdio._writer import PipeWriter

from .processes import BOUND, eventually
from .scripted_server import command

MARGIN = 10.0
"""Seconds that a loaded machine may add to a bound that is asserted."""


def scripted(*flags: str, stop_timeout: float = BOUND, **options: Any) -> ServerConfig:
    """Configure the scripted server with `flags`, in time to leave by itself; `options` are those of `Stdio`."""
    program, args = command(*flags)
    return ServerConfig("scripted", Stdio(program, args, **options), stop_timeout=stop_timeout)


def never_lost() -> None:
    """Fail: to be used where a connection must not be reported as lost."""
    raise AssertionError("the connection was reported as lost")


@asynccontextmanager
async def open_session(link: Link, mode: str = "legacy") -> AsyncIterator[Client]:
    """Open the SDK's client on a link; what it wraps around an exception of the block is taken off again."""
    try:
        async with Client(link.target, mode=mode) as client:
            yield client
    except ExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


def text_of(result: CallToolResult) -> str:
    """Return the one text that a result holds."""
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def wait_for_line(path: Path, text: str) -> None:
    """Wait until a log file holds a line."""
    await eventually(lambda: path.exists() and text in path.read_text().splitlines())


class Rounds:
    """Counts the turns of a task that has always something to do."""

    def __init__(self) -> None:
        self.number = 0

    async def count(self) -> None:
        """Run until it is cancelled."""
        while True:
            await trio.lowlevel.checkpoint()
            self.number += 1


def shell(script: str, stop_timeout: float = 0.5, **options: Any) -> ServerConfig:
    """Configure a server that is a shell script, for what a server in Python cannot do; `options` are of `Stdio`."""
    return ServerConfig("shell", Stdio("/bin/sh", ("-c", script), **options), stop_timeout=stop_timeout)


def notification(text: str) -> SessionMessage:
    """Make a small message."""
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="test", params={"text": text}))


async def streams_of(link: Link) -> tuple[PipeReader, PipeWriter]:
    """Return the bare streams of a link, without a session on top."""
    assert isinstance(link, StdioLink)
    reader, writer = await link.target.__aenter__()
    assert isinstance(reader, PipeReader)
    assert isinstance(writer, PipeWriter)
    return reader, writer
