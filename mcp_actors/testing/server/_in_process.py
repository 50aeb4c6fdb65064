"""Serve a script in the run of its client, without bytes."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import trio
from mcp.shared.message import SessionMessage

from ...transports import ElsewhereServer, Messages, MessageWriter
from ._connection import StreamConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.streams.memory import MemoryObjectSendStream

    from ._script import Script


class InProcessServer(ElsewhereServer):
    """The argument of `InProcess` for a scripted server. Unlike other servers in this process, it can crash.

    Args:
        script: what it does.
    """

    def __init__(self, script: Script) -> None:
        self.name = script.name
        self._script = script

    @asynccontextmanager
    async def connect(self, on_lost: Callable[[], None]) -> AsyncIterator[tuple[Messages, MessageWriter]]:
        """Serve one connection, around a block."""
        if self._script.refusing:
            raise ConnectionRefusedError(f"{self.name} is down")
        to_server, server_reads = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        to_client, client_reads = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        connection = _MemoryConnection(self._script, server_reads, to_client)
        leaving = False

        async def serve() -> None:
            try:
                await connection.serve()
            finally:
                for stream in (to_client, server_reads):
                    stream.close()
            if not leaving:
                on_lost()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, name=f"{self.name}:in process")
            with to_server, client_reads:
                try:
                    yield client_reads, _Requests(connection, to_server)
                finally:
                    leaving = True
                    nursery.cancel_scope.cancel("the connection was left")


class _MemoryConnection(StreamConnection):
    """A connection whose messages stay objects."""

    def __init__(self, script: Script, reader: Any, to_client: MemoryObjectSendStream[Any]) -> None:
        super().__init__(script, reader)
        self._to_client = to_client

    async def deliver(self, item: SessionMessage) -> None:
        self._to_client.send_nowait(item)

    async def deliver_raw(self, line: bytes) -> None:
        self._to_client.send_nowait(ValueError(f"not a message: {line!r}"))

    async def wait_thawed(self) -> None:
        """Wait while the connection is frozen.

        Raises:
            anyio.BrokenResourceError: it has ended.
        """
        await self._thawed.wait()
        if self._scope.cancel_called:
            raise anyio.BrokenResourceError


class _Requests(MessageWriter):
    """The messages of the client to the server."""

    def __init__(self, connection: _MemoryConnection, to_server: MemoryObjectSendStream[Any]) -> None:
        self._connection = connection
        self._to_server = to_server

    async def send(self, item: SessionMessage, /) -> None:
        await self._connection.wait_thawed()
        if not await self._connection.answers(item):
            await self._to_server.send(item)

    async def aclose(self) -> None:
        self._to_server.close()
