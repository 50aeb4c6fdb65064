"""Serve an in-process server on the event loop of an asyncio program.

The SDK's messages cross between the two, each with the context variables of its sender. Each direction is a memory
stream. The writing side posts a function to the reading side, so no stream is touched from the wrong event loop.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from ...transports import ContextReader, ElsewhereServer, Messages, MessageWriter, lowlevel
from ._functions import on_loop

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer

    from .._bridge import Bridge
    from .._lane import Step

Item: TypeAlias = "SessionMessage | Exception"
Sent: TypeAlias = "tuple[Context, Item]"

SHUTDOWN_GRACE: Final = 2.0
"""Seconds for a server to leave its lifespan after its input has ended, as in the SDK's own transport."""


class LoopServer(ElsewhereServer):
    """A server object of an asyncio program, for a connection on Trio's side.

    Args:
        bridge: the bridge between the two sides.
        server: the server of the program.
    """

    def __init__(self, bridge: Bridge, server: Server[Any] | MCPServer) -> None:
        self.name = server.name
        self._bridge = bridge
        self._server: Server[Any] = lowlevel(server)

    @asynccontextmanager
    async def connect(self, on_lost: Callable[[], None]) -> AsyncIterator[tuple[Messages, MessageWriter]]:
        """Serve one connection, around a block. A request, and not `on_lost`, notices the end of the server."""
        to_server, server_reads = anyio.create_memory_object_stream[Sent](math.inf)
        to_client, client_reads = anyio.create_memory_object_stream[Sent](math.inf)
        served = trio.Event()
        async with trio.open_nursery() as nursery, ContextReader(client_reads) as reader:
            client_writes = PostedWriter(self._bridge.to_loop, to_server)
            nursery.start_soon(self._serve, server_reads, to_client, served, name=f"{self.name}:in process")
            try:
                yield reader, client_writes
            finally:
                await client_writes.aclose()
                with trio.move_on_after(SHUTDOWN_GRACE):
                    await served.wait()
                nursery.cancel_scope.cancel("the connection was left")

    async def _serve(
        self,
        server_reads: MemoryObjectReceiveStream[Sent],
        to_client: MemoryObjectSendStream[Sent],
        served: trio.Event,
    ) -> None:
        """Run the server on the event loop until its input ends."""

        async def run() -> None:
            async with ContextReader(server_reads) as reader:
                writer = PostedWriter(self._bridge.to_trio, to_client)
                await self._server.run(reader, writer, self._server.create_initialization_options())

        try:
            run_on_loop: Callable[[], Awaitable[None]] = on_loop(self._bridge, run)
            await run_on_loop()
        finally:
            to_client.close()
            served.set()


class PostedWriter(MessageWriter):
    """The writing end of a stream whose reader is on the other side."""

    def __init__(self, post: Callable[[Step], object], stream: MemoryObjectSendStream[Sent]) -> None:
        self._post = post
        self._stream = stream

    async def send(self, item: SessionMessage, /) -> None:
        """Post a message with the sender's context variables; drop it if the reader has gone."""
        await anyio.lowlevel.checkpoint()
        self._post_step(partial(self._put, (copy_context(), item)))

    async def aclose(self) -> None:
        """End the reader's input."""
        self._post_step(self._stream.close)

    def _put(self, sent: Sent) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._stream.send_nowait(sent)

    def _post_step(self, step: Step) -> None:
        with suppress(RuntimeError):  # the event loop of the other side has ended, and the reader with it
            self._post(step)
