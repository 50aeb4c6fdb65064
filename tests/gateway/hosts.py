"""Clients of a gateway that speak raw JSON, and the servers behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig, open_servers
from mcp_actors.gateway import serve
from mcp_actors.servers import ServerGroup

BOUND: Final = 30.0

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"


class Host:
    """A client: it notes what it is sent, and answers as a test says."""

    def __init__(
        self, stream: trio.abc.Stream, version: str = LEGACY, capabilities: dict[str, Any] | None = None
    ) -> None:
        self.stream = stream
        self.version = version
        self.capabilities = capabilities or {}
        self.notices: list[dict[str, Any]] = []
        self.questions: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[Any, dict[str, Any]] = {}
        self.ended = trio.Event()
        self.connection: Any = None
        self.descriptor = -1
        self._news = trio.Event()
        self._number = 0
        self._sending = trio.Lock()  # whose waiters come in the order in which they have asked

    async def read(self) -> None:
        """Read until the end."""
        rest = b""
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            async for data in self.stream:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    await self._take(json.loads(line))
        self.ended.set()
        self._wake()

    async def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self.answers[message["id"]] = message
        elif "id" in message:
            self.asked.append(message)
            answer = self.questions.get(message["method"])
            if answer is not None:
                await self.send({"jsonrpc": "2.0", "id": message["id"], **answer(message)})
        else:
            self.notices.append(message)
        self._wake()

    def answer_pings(self) -> None:
        """Answer the pings of a gateway, which asks if it did not run for a while."""
        self.questions["ping"] = lambda _: {"result": {}}

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def send(self, *messages: Any) -> None:
        """Send messages in one write, behind those that other tasks send."""
        data = b"".join(json.dumps(each).encode() + b"\n" for each in messages)
        async with self._sending:
            await self.stream.send_all(data)

    def request(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Return a request with a new id."""
        self._number += 1
        params = dict(params or {})
        if self.version == MODERN:
            envelope = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            }
            params["_meta"] = {**envelope, **params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params, **more}

    async def answer_to(self, request: dict[str, Any]) -> dict[str, Any]:
        """Wait for the answer to a request that was sent."""
        with trio.fail_after(BOUND):
            while request["id"] not in self.answers:
                assert not self.ended.is_set(), "the gateway has closed the connection"
                await self._news.wait()
        return self.answers.pop(request["id"])

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return its whole answer."""
        request = self.request(method, params)
        await self.send(request)
        return await self.answer_to(request)

    async def result(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return its result."""
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return its error."""
        error: dict[str, Any] = (await self.ask(method, params))["error"]
        return error

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool, and return the text of its result."""
        return (await self.result("tools/call", {"name": tool, "arguments": arguments}))["content"][0]["text"]

    async def begin(self) -> dict[str, Any]:
        """Begin the session, and return what the gateway says of itself."""
        if self.version == MODERN:
            return await self.result("server/discover")
        client = {"name": "host", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": client}
        said = await self.result("initialize", params)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return said

    async def notice(self, method: str) -> dict[str, Any]:
        """Wait for a notification, and return its params."""
        with trio.fail_after(BOUND):
            while True:
                for each in self.notices:
                    if each["method"] == method:
                        self.notices.remove(each)
                        params: dict[str, Any] = each.get("params", {})
                        return params
                assert not self.ended.is_set(), "the gateway has closed the connection"
                await self._news.wait()


class Gateway:
    """A gateway on a socket, and the servers behind it."""

    def __init__(self, group: ServerGroup, path: str, nursery: trio.Nursery) -> None:
        self.group = group
        self.path = path
        self.hosts: list[Host] = []
        self._nursery = nursery

    async def connect(
        self, version: str = LEGACY, *, begin: bool = True, pings: bool = True, only: str = "", **capabilities: Any
    ) -> Host:
        """Connect a client that answers pings unless it is not to, and may name one server."""
        stream = await trio.open_unix_socket(self.path)
        if only:
            await stream.send_all(f"mcp-actors/1 {only}\n".encode())
            assert (await stream.receive_some()).endswith(b" ok\n")
        host = Host(stream, version, capabilities)
        if pings:
            host.answer_pings()
        self.hosts.append(host)
        self._nursery.start_soon(host.read)
        if begin:
            await host.begin()
        return host


@asynccontextmanager
async def gateway(
    path: Path,
    *configs: ServerConfig,
    naming: str = "{server}_{tool}",
    per_session: Sequence[ServerConfig] = (),
    **options: Any,
) -> AsyncIterator[Gateway]:
    """Serve servers at a socket in a folder during a block."""
    at = str(path / "g.sock")
    async with open_servers(*configs, naming=naming, **options) as group, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, group, path=at, per_session=per_session))
        door = Gateway(group, at, nursery)
        try:
            yield door
        finally:
            for host in door.hosts:
                await trio.aclose_forcefully(host.stream)
            nursery.cancel_scope.cancel()


def in_process(name: str, server: MCPServer, **options: Any) -> ServerConfig:
    """Configure a server in this process."""
    return ServerConfig(name, InProcess(server), **options)


def notes(name: str = "notes") -> MCPServer:
    """Make a server that has something of everything."""
    server = MCPServer(name, instructions=f"Use {name} for notes.")

    @server.tool(title="Echo", meta={"note": 1})
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.resource("note:///shopping", mime_type="text/plain")
    def shopping() -> str:
        return "milk"

    @server.resource("note:///{page}/lines")
    def lines(page: str) -> str:
        return f"{page}: 3"

    @server.prompt()
    def plan(meal: str) -> str:
        """Plan a meal."""
        return f"Plan {meal}."

    return server


def outcome_of(error: dict[str, Any]) -> tuple[str, str]:
    """Return what an error of the gateway says about a request, and the name of our error."""
    ours = error["data"]["mcp_actors"]
    return ours["outcome"], ours["error"]
