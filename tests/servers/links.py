"""Open links to the scripted server and sessions over them, for the tests of transports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest
import trio
from mcp import MCPError
from mcp.types import (
    METHOD_NOT_FOUND,
    CallToolResult,
    Implementation,
    JSONRPCNotification,
    ListToolsResult,
    TextContent,
)

from mcp_actors.config import ServerConfig, Stdio
from mcp_actors.servers._dispatcher import LinkDispatcher
from mcp_actors.servers._session import ConnectionSession
from mcp_actors.transports import Link, Unasked
from mcp_actors.transports.stdio import _process
from mcp_actors.transports.stdio._link import StdioLink
from mcp_actors.transports.stdio._pipes import PipeWriter

from .processes import BOUND, eventually
from .scripted_server import command

MARGIN = 10.0
"""Seconds that a loaded machine may add to a bound that is asserted."""


def scripted(*flags: str, stop_timeout: float = BOUND, **options: Any) -> ServerConfig:
    """Configure the scripted server with `flags`, in time to leave by itself; `options` are those of `Stdio`."""
    program, args = command(*flags)
    return ServerConfig("scripted", Stdio(program, args, **options), stop_timeout=stop_timeout)


@contextmanager
def hanging_look_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[trio.Event]:
    """Let each look-up of a program hang until the end of the block, as on a dead file server.

    The block gets an event that a look-up sets when it begins.
    """
    begun, over = trio.Event(), Event()
    token = trio.lowlevel.current_trio_token()

    def find(*args: object, **options: object) -> str:
        token.run_sync_soon(begun.set)
        assert over.wait(timeout=60)
        return "/bin/true"

    monkeypatch.setattr(_process, "find_program", find)
    try:
        yield begun
    finally:
        over.set()


def never_lost() -> None:
    """Fail: to be used where a connection must not be reported as lost."""
    raise AssertionError("the connection was reported as lost")


class Client(ConnectionSession):
    """A session that calls and lists tools."""

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> CallToolResult:
        result = await self.ask("tools/call", {"name": name, "arguments": arguments or {}})
        return CallToolResult.model_validate(result, by_name=False)

    async def list_tools(self) -> ListToolsResult:
        return ListToolsResult.model_validate(await self.ask("tools/list", {}), by_name=False)


async def call(session: Client, tool: str, arguments: dict[str, Any] | None = None) -> CallToolResult:
    """Call a tool."""
    return await session.call_tool(tool, arguments)


@asynccontextmanager
async def open_session(link: Link, mode: str = "legacy") -> AsyncIterator[Client]:
    """Open a session on a link; what is wrapped around an exception of the block is taken off again."""
    session = Client(
        LinkDispatcher(link, "scripted", lambda _: {}, lambda: None), Implementation(name="tests", version="1"), {}
    )
    try:
        async with session.open():
            try:
                if mode == "legacy":
                    raise MCPError(METHOD_NOT_FOUND, "it is not asked")
                session.adopt(await session.discover())
            except MCPError:
                session.adopt(await session.initialize())
                await session.notify("notifications/initialized")
            yield session
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


def notification(text: str) -> JSONRPCNotification:
    """Make a small message."""
    return JSONRPCNotification(jsonrpc="2.0", method="test", params={"text": text})


class Messages:
    """The messages of a link that are not answers, one by one."""

    def __init__(self, link: StdioLink) -> None:
        self._link = link
        self._read: list[Unasked] = []

    async def receive(self) -> Unasked:
        """Return the next message.

        Raises:
            anyio.EndOfStream: there is none.
        """
        with trio.CancelScope() as scope:

            async def take(message: Unasked) -> None:
                self._read.append(message)
                scope.cancel("one is enough")

            if not self._read:
                await self._link.read(take)
        if not self._read:
            raise anyio.EndOfStream
        return self._read.pop(0)

    def close(self) -> None:
        """Read no more."""
        self._link._reader.close()


async def never_received(message: Unasked) -> None:
    """Fail: to be used where a server sends nothing unasked."""
    raise AssertionError(f"{message} was received")


def streams_of(link: Link) -> tuple[Messages, PipeWriter]:
    """Return the two sides of a link, without a session on top."""
    assert isinstance(link, StdioLink)
    return Messages(link), link._writer
