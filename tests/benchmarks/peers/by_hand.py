"""The floor of each way to a server: clients that do what a call needs, validate the result, and nothing else.

They have no cancellation, no time-outs, no limits and no partial writes, and they end with their server. Over HTTP each
call has a kept connection for itself. To a server in the same process, a call is one of its handler, or two messages
through the memory streams of the SDK.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import trio
from attrs import define, field
from mcp.types import CallToolResult

if TYPE_CHECKING:
    from mcp.server import Server

INTRODUCTION: Final = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "by hand", "version": "1"},
}


@define(eq=False)
class Request:
    """A request that waits for its answer."""

    answered: trio.Event = field(factory=trio.Event)
    answer: Any = None


@define(eq=False)
class ByHand:
    """A connection over two pipes, or over a socket."""

    _stdin: int
    _stdout: int
    _prefix: str = ""
    _waiting: dict[int, Request] = field(factory=dict, init=False)
    _last: int = field(default=0, init=False)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool."""
        result = await self.ask("tools/call", {"name": self._prefix + name, "arguments": arguments})
        return CallToolResult.model_validate(result, by_name=False)

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result."""
        self._last += 1
        request = self._waiting[self._last] = Request()
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        os.write(self._stdin, json.dumps(message).encode() + b"\n")
        await request.answered.wait()
        return request.answer["result"]

    async def read(self) -> None:
        """Wake the callers whose answers arrive, until stdout ends."""
        begun = b""
        while True:
            await trio.lowlevel.wait_readable(self._stdout)
            data = os.read(self._stdout, 64 * 1024)
            if not data:
                return
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                request = self._waiting.pop(answer.get("id"), None)
                if request is not None:  # a gateway also sends notifications
                    request.answer = answer
                    request.answered.set()


@asynccontextmanager
async def open_by_hand(command: Sequence[str]) -> AsyncIterator[ByHand]:
    """Start a server, and connect to it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:  # noqa: ASYNC220 - it takes a millisecond
        assert process.stdin is not None
        assert process.stdout is not None
        client = ByHand(process.stdin.fileno(), process.stdout.fileno())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            await client.ask("initialize", INTRODUCTION)
            yield client
            process.stdin.close()


@asynccontextmanager
async def open_socket_by_hand(path: str, server: str) -> AsyncIterator[ByHand]:
    """Connect to a gateway at a unix socket, for the tools of one of its servers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)  # it takes no time
        client = ByHand(connection.fileno(), connection.fileno(), f"{server}_")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            await client.ask("initialize", INTRODUCTION)
            await client.ask("tools/list", {})  # which waits for the server
            yield client
            nursery.cancel_scope.cancel("the client leaves")


# --- Over HTTP --------------------------------------------------------------------------------------------------------


@define(eq=False)
class ByHandOverHttp:
    """The kept connections to a server over HTTP, each for one call at a time."""

    _host: str
    _port: int
    _free: list[socket.socket] = field(factory=list, init=False)
    _last: int = field(default=0, init=False)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool."""
        result = await self.ask("tools/call", {"name": name, "arguments": arguments})
        return CallToolResult.model_validate(result, by_name=False)

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result."""
        self._last += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: {self._host}:{self._port}\r\naccept: application/json, text/event-stream\r\n"
            f"content-type: application/json\r\nmcp-protocol-version: 2025-06-18\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        connection = self._free.pop() if self._free else self._connected()
        connection.send((head + body).encode())
        answer = json.loads(await self._read(connection))
        self._free.append(connection)
        return answer["result"]

    def _connected(self) -> socket.socket:
        connection = socket.create_connection((self._host, self._port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        return connection

    async def _read(self, connection: socket.socket) -> bytes:
        """Return the body of an answer: all of it, or the data of the last event that it is a stream of."""
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += await self._more(connection)
        (status, *lines), data = data[:end].lower().split(b"\r\n"), data[end + 4 :]
        headers = dict(line.split(b": ", 1) for line in lines)
        assert status.startswith(b"http/1.1 200"), status
        if headers[b"content-type"] == b"application/json":
            while len(data) < int(headers[b"content-length"]):
                data += await self._more(connection)
            return data
        body, size = b"", -1
        while size:
            while (end := data.find(b"\r\n")) < 0 or len(data) < end + 4 + int(data[:end], 16):
                data += await self._more(connection)
            size = int(data[:end], 16)
            body, data = body + data[end + 2 : end + 2 + size], data[end + 4 + size :]
        return body.rpartition(b"data: ")[2]

    async def _more(self, connection: socket.socket) -> bytes:
        await trio.lowlevel.wait_readable(connection)
        return connection.recv(64 * 1024)

    def close(self) -> None:
        """Close the connections."""
        for each in self._free:
            each.close()


@asynccontextmanager
async def open_http_by_hand(url: str) -> AsyncIterator[ByHandOverHttp]:
    """Connect to a server over HTTP."""
    parts = urlsplit(url)
    client = ByHandOverHttp(parts.hostname or "", parts.port or 0)
    await client.ask("initialize", INTRODUCTION)
    yield client
    client.close()


# --- To a server in the same process ----------------------------------------------------------------------------------


class Seen:
    """The caller, as the handler of a modern server sees it."""

    def __init__(self, number: int) -> None:
        from mcp.shared.transport_context import TransportContext

        self.request_id = number
        self.transport = TransportContext(kind="direct", can_send_request=False)
        self.can_send_request = False
        self.message_metadata = None
        self.cancel_requested = trio.Event()


@asynccontextmanager
async def open_server_by_hand(server: Server[Any]) -> AsyncIterator[Any]:
    """Call the handler of a modern server."""
    from mcp.server.runner import modern_on_request

    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": INTRODUCTION["clientInfo"],
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    last = 0

    async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
        nonlocal last
        last += 1
        params = {"name": name, "arguments": arguments, "_meta": meta}
        return CallToolResult.model_validate(await handle(Seen(last), "tools/call", params), by_name=False)

    async with server.lifespan(server) as state:
        handle: Any = modern_on_request(server, state)
        yield call_tool


@asynccontextmanager
async def open_streams_by_hand(server: Server[Any]) -> AsyncIterator[Any]:
    """Exchange messages with a legacy server."""
    from mcp.shared.memory import create_client_server_memory_streams
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCNotification, JSONRPCRequest

    waiting: dict[Any, Request] = {}
    last = 0

    async def read() -> None:
        async for item in reader:
            answer: Any = item
            request = waiting.pop(answer.message.id)
            request.answer = answer.message.result
            request.answered.set()

    async def ask(method: str, params: dict[str, Any]) -> Any:
        nonlocal last
        last += 1
        request = waiting[last] = Request()
        await writer.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=last, method=method, params=params)))
        await request.answered.wait()
        return request.answer

    async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
        result = await ask("tools/call", {"name": name, "arguments": arguments})
        return CallToolResult.model_validate(result, by_name=False)

    async with (
        create_client_server_memory_streams() as ((reader, writer), (its_reader, its_writer)),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(server.run, its_reader, its_writer, server.create_initialization_options())
        nursery.start_soon(read)
        await ask("initialize", INTRODUCTION)
        await writer.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")))
        yield call_tool
        nursery.cancel_scope.cancel("the client leaves")
