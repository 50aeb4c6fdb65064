"""The other ends of connections whose answers come apart from their requests, in the hands of a test.

A peer answers the handshake. Everything else that it is sent is for the test, which decides what the peer says and
when. One is behind HTTP with SSE, over real sockets; the others are servers in this process.
"""

from __future__ import annotations

import json
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from typing import Any, Final, Literal
from unittest.mock import patch

import anyio
import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from mcp_actors import HealthPolicy, InProcess, ServerConfig, ServerRef, Sse, open_servers
from mcp_actors.transports import ElsewhereServer, Messages, MessageWriter, _in_process

from .faults.http_faults import LEGACY, FaultyServer
from .groups import NEVER
from .processes import eventually

Json = dict[str, Any]
Kind = Literal["sse", "memory", "streams"]

KINDS: Final[tuple[Kind, ...]] = ("sse", "memory", "streams")
"""HTTP with SSE, a legacy server in this process, and a server on another event loop of this process."""

TOOL: Final = "sleep"

CAPABILITIES: Final[Json] = {"tools": {}, "resources": {}}
HANDSHAKE: Final[dict[str, Json]] = {
    "initialize": {
        "protocolVersion": LEGACY,
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "peer", "version": "1"},
    },
    "tools/list": {"tools": [{"name": TOOL, "inputSchema": {"type": "object"}}]},
}
"""The results that it has itself."""


def text(of: str) -> Json:
    """Return the result of a tool."""
    return {"content": [{"type": "text", "text": of}]}


class Peer(ABC):
    """The other end of one connection.

    Attributes:
        mute: the methods that it does not answer.
    """

    mute: set[str]

    @property
    @abstractmethod
    def received(self) -> list[Json]:
        """All messages that it was sent."""

    @abstractmethod
    async def say(self, **message: Any) -> None:
        """Send a message."""

    @abstractmethod
    def end(self) -> None:
        """End the connection."""

    def sent(self, method: str | None) -> list[Json]:
        """Return the messages of a method that it was sent; None stands for answers."""
        return [each for each in self.received if each.get("method") == method]

    def cancelled(self) -> list[object]:
        """Return the ids of the requests that it was asked to cancel."""
        return [each["params"]["requestId"] for each in self.sent("notifications/cancelled")]

    async def calls(self, number: int) -> list[Json]:
        """Wait until it was sent so many calls in all, and return them."""
        await eventually(lambda: len(self.sent("tools/call")) == number)
        return self.sent("tools/call")

    async def reply(self, call: Json, of: str) -> None:
        """Answer a call."""
        await self.say(id=call["id"], result=text(of))


class SsePeer(FaultyServer, Peer):
    """A server of HTTP with SSE."""

    def __init__(self) -> None:
        super().__init__("legacy")

    @property
    def received(self) -> list[Json]:
        return [each.message for each in tuple(self.requests) if each.body]

    async def say(self, **message: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.emit(json.dumps({"jsonrpc": "2.0", **message}))

    def end(self) -> None:
        self.die()

    def _emit_answer(self, message: Json) -> None:
        if message.get("method") in HANDSHAKE:
            super()._emit_answer(message)
        else:
            self._threads.discard(threading.current_thread())


class MemoryPeer(Peer):
    """A server whose messages are objects."""

    def __init__(self) -> None:
        self.mute = set()
        self._received: list[Json] = []
        self._writer: Any = None
        self._ended = trio.Event()

    @property
    def received(self) -> list[Json]:
        return self._received

    async def say(self, **message: Any) -> None:
        await self._writer.send(SessionMessage(jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})))

    def end(self) -> None:
        self._ended.set()

    async def serve(self, reader: Any, writer: Any) -> None:
        """Serve the connection until it ends."""
        self._writer = writer
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, reader)
            await self._ended.wait()
            nursery.cancel_scope.cancel("the peer ends")

    async def serve_loop(self, server: object, reader: Any, writer: Any, **_: object) -> None:
        """Serve in place of the SDK's function of this name."""
        await self.serve(reader, writer)

    async def _read(self, reader: Any) -> None:
        async for item in reader:
            message = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            self._received.append(message)
            if "id" in message and message.get("method") in HANDSHAKE.keys() - self.mute:
                await self.say(id=message["id"], result=deepcopy(HANDSHAKE[message["method"]]))
        self._ended.set()


class Elsewhere(ElsewhereServer):
    """A peer in the place of a server on another event loop."""

    name = "peer"

    def __init__(self, peer: MemoryPeer) -> None:
        self._peer = peer

    @asynccontextmanager
    async def connect(self, on_lost: Callable[[], None]) -> AsyncIterator[tuple[Messages, MessageWriter]]:
        """Serve one connection, around a block."""
        to_server, server_reads = anyio.create_memory_object_stream[SessionMessage](math.inf)
        to_client, client_reads = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)

        async def serve() -> None:
            with server_reads, to_client:
                await self._peer.serve(server_reads, to_client)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with to_server, client_reads:
                yield client_reads, to_server  # type: ignore[misc]  # anyio's streams have the methods of a writer
            nursery.cancel_scope.cancel("the connection was left")


@contextmanager
def serving(kind: Kind, auth: Any = None) -> Iterator[tuple[Peer, Any]]:
    """Run a peer; yield it, and the transport by which it is reached. `auth` is that of `Sse`."""
    if kind == "sse":
        server = SsePeer()
        try:
            yield server, Sse(server.url("/sse"), auth=auth)
        finally:
            server.close()
        return
    peer = MemoryPeer()
    with patch.object(_in_process, "serve_loop", peer.serve_loop):
        yield peer, InProcess(Elsewhere(peer) if kind == "streams" else Server("peer"))  # type: ignore[arg-type]  # an `ElsewhereServer`


@asynccontextmanager
async def connected(kind: Kind, auth: Any = None, **options: Any) -> AsyncIterator[tuple[Peer, ServerRef]]:
    """Connect to a peer; `options` are those of `ServerConfig`."""
    quiet: dict[str, Any] = {"protocol": "legacy", "restarts": NEVER, "health": HealthPolicy(interval=None)}
    with serving(kind, auth) as (peer, transport):
        async with open_servers(ServerConfig("a", transport, **quiet | options)) as servers:
            yield peer, servers["a"]
