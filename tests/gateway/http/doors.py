"""A gateway over HTTP in this process, and clients that write and read bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio
from attrs import define, field

from mcp_actors import Callbacks, Http, ServerConfig, open_servers
from mcp_actors.gateway._front import Front
from mcp_actors.gateway._own import in_background, start_eager
from mcp_actors.gateway._session import Gateway
from mcp_actors.gateway.http import Access, HttpDoor, listen_at, serve_http
from mcp_actors.observe import Metrics

from ..hosts import BOUND, LEGACY, MODERN

TOKEN: Final = "a-token-for-tests-only"

META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}

JSON: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def text_of(result: Any) -> str:
    """Return the text of a result of the SDK."""
    return str(result.content[0].text)


@define
class Response:
    """A reply as it was read: its headers are in lower case, and its events are messages."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@define
class SignedIn:
    """A browser that is signed in to the page.

    Attributes:
        path: where the page is, with a slash at both ends.
        cookie: the headers with its cookie.
        rules: the rules of the cookie.
    """

    path: str
    cookie: dict[str, str]
    rules: str


class Peer:
    """A connection to a gateway: it writes what a test says, and reads replies."""

    def __init__(self, stream: trio.SocketStream, host: str) -> None:
        self.stream = stream
        self.host = host
        self._buffer = b""
        self._events: list[bytes] = []

    async def write(self, data: bytes | str) -> None:
        await self.stream.send_all(data if isinstance(data, bytes) else data.encode("latin-1"))

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        token: str | None = TOKEN,
    ) -> None:
        """Send a request in one write."""
        given = {"host": self.host} | ({} if token is None else {"authorization": f"Bearer {token}"})
        given |= {} if body is None else {"content-length": str(len(body))}
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in (given | dict(headers or {})).items()),
        ]
        await self.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))

    async def fetch(self, method: str, path: str, *args: Any, **options: Any) -> Response:
        """Send a request, and return the whole reply."""
        await self.send(method, path, *args, **options)
        return await self.read()

    async def sign_in(self, token: str = TOKEN) -> SignedIn:
        """Sign in to the page as a browser does."""
        form = {"content-type": "application/x-www-form-urlencoded"}
        reply = await self.fetch("POST", "/ui/sign-in", form, f"token={token}".encode(), token=None)
        assert reply.status == 303, reply
        cookie, _, rules = reply.headers["set-cookie"].partition("; ")
        return SignedIn(reply.headers["location"], {"cookie": cookie}, rules)

    async def read_head(self) -> Response:
        """Read the head of a reply."""
        with trio.fail_after(BOUND):
            while b"\r\n\r\n" not in self._buffer:
                await self._fill()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        return Response(int(line.split()[1]), headers, b"")

    async def read(self) -> Response:
        """Read a whole reply."""
        found = await self.read_head()
        if found.headers.get("transfer-encoding") == "chunked":
            with trio.fail_after(BOUND):  # also if the gateway only keeps it alive: then no chunk is late
                while (piece := await self.read_chunk()) != b"":
                    found.body += piece
        else:
            found.body = await self._exactly(int(found.headers.get("content-length", "0")))
        return found

    async def read_chunk(self) -> bytes:
        with trio.fail_after(BOUND):
            while b"\r\n" not in self._buffer:
                await self._fill()
        size, _, self._buffer = self._buffer.partition(b"\r\n")
        piece = await self._exactly(int(size, 16))
        assert await self._exactly(2) == b"\r\n"
        return piece

    async def read_event(self) -> Any:
        """Read the next event of a stream that is a message; None at the end."""
        with trio.fail_after(BOUND):  # as `read`
            while (piece := await self.read_chunk()) != b"":
                if piece.startswith(b"event: message\ndata: "):
                    return json.loads(piece.removeprefix(b"event: message\ndata: "))
        return None

    async def _exactly(self, size: int) -> bytes:
        with trio.fail_after(BOUND):
            while len(self._buffer) < size:
                await self._fill()
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    async def _fill(self) -> None:
        data = await self.stream.receive_some()
        assert data, f"the gateway has closed the connection after {self._buffer!r}"
        self._buffer += data

    async def wait_closed(self) -> bytes:
        """Wait until the gateway closes the connection, and return what it has sent before."""
        rest, self._buffer = self._buffer, b""
        with trio.fail_after(BOUND):
            try:
                while data := await self.stream.receive_some():
                    rest += data
            except trio.BrokenResourceError:
                pass
        return rest

    # --- messages ---------------------------------------------------------------------------------------------------

    async def post(self, message: Any, headers: Mapping[str, str] | None = None, **options: Any) -> None:
        """Send a message as the body of a POST."""
        await self.send("POST", "/mcp", {**JSON, **(headers or {})}, json.dumps(message).encode(), **options)

    async def post_modern(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        id: Any = 1,
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Send a request of 2026-07-28 with the headers that it needs."""
        params = {**(params or {}), "_meta": {**META, **(meta or {})}}
        given = {"mcp-protocol-version": MODERN, "mcp-method": method}
        if method in NAMED and NAMED[method] in params:
            given["mcp-name"] = str(params[NAMED[method]])
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        await self.post(message, given | dict(headers or {}), **options)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, *args: Any, **options: Any) -> Response:
        """Send a request of 2026-07-28, and return the whole reply."""
        await self.post_modern(method, params, *args, **options)
        return await self.read()

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool in the era since 2026-07-28, and return the text of the result."""
        reply = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        return reply.json["result"]["content"][0]["text"]


@define(eq=False)
class LegacySession:
    """A session of the era before 2026-07-28; each request is on a connection of its own."""

    house: House
    id: str
    token: str | None

    @property
    def headers(self) -> dict[str, str]:
        return {"mcp-session-id": self.id, "mcp-protocol-version": LEGACY}

    async def post(self, message: dict[str, Any]) -> Peer:
        """Post a message, and return the connection with its reply to come."""
        peer = await self.house.connect()
        await peer.post({"jsonrpc": "2.0", **message}, self.headers, token=self.token)
        return peer

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, id: Any = 1) -> Response:
        """Post a request, and return the whole reply."""
        return await (await self.post({"id": id, "method": method, "params": dict(params or {})})).read()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        reply = await (await self.post({"method": method, "params": dict(params or {})})).read()
        assert (reply.status, reply.body) == (202, b"")

    async def listen(self) -> Peer:
        """Open the stream of a GET."""
        peer = await self.house.connect()
        await peer.send("GET", "/mcp", {"accept": "text/event-stream", **self.headers}, token=self.token)
        head = await peer.read_head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        return peer

    async def end(self) -> Response:
        return await (await self.house.connect()).fetch("DELETE", "/mcp", self.headers, token=self.token)


@define(eq=False)
class House:
    """A gateway over HTTP in this process."""

    door: HttpDoor
    address: tuple[str, int]
    group: Any
    nursery: trio.Nursery
    peers: list[Peer] = field(factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.address[1]}/mcp"

    def transport(self, token: str = TOKEN) -> Http:
        """Return what our own client needs."""
        return Http(self.url, auth=token)

    async def connect(self) -> Peer:
        """Connect."""
        peer = Peer(await trio.open_tcp_stream(*self.address), f"127.0.0.1:{self.address[1]}")
        self.peers.append(peer)
        return peer

    async def begin(self, token: str | None = TOKEN, **capabilities: Any) -> LegacySession:
        """Begin a session of the era before 2026-07-28."""
        peer = await self.connect()
        params = {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        await peer.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, token=token)
        reply = await peer.read()
        assert reply.json["result"]["protocolVersion"] == LEGACY
        session = LegacySession(self, reply.headers["mcp-session-id"], token)
        await session.notify("notifications/initialized")
        return session


@asynccontextmanager
async def open_house(
    *configs: ServerConfig,
    tokens: Mapping[str, str] | None = None,
    host_names: Sequence[str] = (),
    origins: Sequence[str] = (),
    per_session: Sequence[ServerConfig] = (),
    per_identity: Sequence[ServerConfig] = (),
    naming: str = "{server}_{tool}",
) -> AsyncIterator[House]:
    """Serve servers over HTTP during a block."""
    access = Access({"me": TOKEN} if tokens is None else tokens, frozenset(host_names), frozenset(origins))
    gateway, metrics = Gateway(per_session=per_session), Metrics()
    callbacks = Callbacks(logging=gateway.log)
    async with (
        open_servers(*map(in_background, configs), naming=naming, callbacks=callbacks, observers=[metrics]) as group,
        trio.open_nursery() as nursery,
    ):
        gateway.front = Front(group, naming)
        start_eager(nursery, gateway.front, configs)
        listeners = await listen_at("127.0.0.1:0")
        address: tuple[str, int] = listeners[0].getsockname()
        serving = partial(serve_http, gateway, listeners, access, per_identity=per_identity, metrics=metrics)
        house = House(await nursery.start(serving), address, group, nursery)
        try:
            yield house
        finally:
            for peer in house.peers:
                await trio.aclose_forcefully(peer.stream)
            nursery.cancel_scope.cancel()
