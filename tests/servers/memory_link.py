"""A connection through memory to a real server in this process, which can be cut like a pipe whose process was killed.

With it, and a mock clock, hours of crashes and time-outs pass in milliseconds.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import trio
from attrs import define, field
from mcp.server import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from mcp_actors.config import ServerConfig
from mcp_actors.transports._exchange import MessageReader, MessageWriter
from mcp_actors.transports._in_process import StreamsLink
from mcp_actors.transports._link import Lifeline


class Reader(MessageReader):
    """The messages from the server, and their end."""

    def __init__(self, inner: Any, lifeline: Lifeline) -> None:
        self._inner = inner
        self._lifeline = lifeline
        self.dead = False

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            message: SessionMessage | Exception = await self._inner.receive()
        except anyio.EndOfStream:
            self._lifeline.lose()
            raise
        if self.dead:  # what a process says on its way out is not what one says that was killed
            self._lifeline.lose()
            raise anyio.EndOfStream
        return message

    async def aclose(self) -> None:
        self._lifeline.closing = True
        await self._inner.aclose()


class Writer(MessageWriter):
    """The messages to the server."""

    def __init__(self, inner: Any, lifeline: Lifeline) -> None:
        self._inner = inner
        self._lifeline = lifeline

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)

    async def aclose(self) -> None:
        self._lifeline.closing = True
        await self._inner.aclose()


class MemoryLink(StreamsLink):
    """An open connection; to the actor it looks like one to a process."""

    pid = 1


@define(eq=False)
class Machine:
    """Runs the server for one connection after the other. Use `open_link` in place of the package's own.

    Attributes:
        server: what runs.
        connects: what the next connects do: None succeeds, a number is slept first, an exception is raised.
    """

    server: Server[Any]
    connects: list[float | Exception | None] = field(factory=list)
    _running: tuple[Reader, trio.CancelScope] | None = None

    def cut(self) -> bool:
        """Kill the server and what it is doing. Returns whether it ran."""
        if self._running is None:
            return False
        reader, scope = self._running
        reader.dead = True
        scope.cancel("killed")
        return True

    @asynccontextmanager
    async def open_link(
        self, config: ServerConfig, *, on_lost: Callable[[], None], **_: object
    ) -> AsyncIterator[MemoryLink]:
        deed = self.connects.pop(0) if self.connects else None
        if isinstance(deed, Exception):
            raise deed
        if deed is not None:
            await trio.sleep(deed)
        async with create_client_server_memory_streams() as ((reader, writer), server_streams):
            lifeline = Lifeline(on_lost)
            scope = trio.CancelScope()
            ended = trio.Event()
            trio.lowlevel.spawn_system_task(self._serve, scope, ended, *server_streams, name="machine")
            mine = self._running = Reader(reader, lifeline), scope
            try:
                yield MemoryLink("memory", mine[0], Writer(writer, lifeline), lifeline)
            finally:
                lifeline.closing = True
                scope.cancel("the connection is over")
                with trio.CancelScope(shield=True):
                    await ended.wait()
                if self._running is mine:
                    self._running = None

    async def _serve(self, scope: trio.CancelScope, ended: trio.Event, reader: Any, writer: Any) -> None:
        try:
            with scope:
                await self.server.run(reader, writer, self.server.create_initialization_options())
        finally:
            with trio.CancelScope(shield=True):
                await writer.aclose()
                await reader.aclose()
            ended.set()
