"""A test's scripted server, its thread, and its in-process connections.

The thread runs Trio, and serves stdio, HTTP and SSE. In-process connections use the client's Trio run. For each
connection over stdio, the client starts a ``_relay`` process, which the test can kill and suspend.

Owns: tasks of in-process connections; the server's thread; its sockets.
Writes: tools and planned faults; in-process messages; signals to relay processes.
Calls: config, transports, _behavior, _connections.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import trio
from mcp.shared.message import SessionMessage

from .._python import our_python
from ..config import Http, InProcess, Sse, Stdio
from ..transports import ElsewhereServer, Messages, MessageWriter
from ._behavior import CONNECT, Answer, Era, Fault, Received, Script, ScriptedTool
from ._connections import Endpoint, LineConnection, StreamConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectSendStream

ECHO: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class ScriptedServer:
    """An MCP server that misbehaves when the test says so. Offers the tool ``echo``, and tools added by the test.

    A client can use four transports, also at the same time: `stdio` (a real process), `http` and `sse` (real sockets on
    the loopback interface), and `in_process`. The first three need a ``with`` block around their use. Tests on any
    event loop may use the server. All methods may be called from any thread, and take effect at once.

    Args:
        name: the name in the ``serverInfo``.
        era: the eras to speak: before 2026-07-28 (``"legacy"``), since then (``"modern"``), or ``"both"``.
    """

    def __init__(self, name: str = "scripted", *, era: Era = "both") -> None:
        self._script = Script(name, era)
        self._in_process = InProcessServer(self._script)
        self._home: TrioThread | None = None
        self._entered = False
        self.add_tool("echo", lambda arguments: arguments["text"], "Return the text.", input_schema=ECHO)

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        home, self._home = self._home, None
        if home is not None:
            home.close()

    def __repr__(self) -> str:
        return f"<ScriptedServer {self._script.name!r}, {len(self._script.received)} requests>"

    # --- transports -------------------------------------------------------------------------------------------------

    def stdio(self) -> Stdio:
        """Return a transport that starts a process for each connection. `crash` and `freeze` signal the process."""
        return Stdio(*self._open("stdio").relay())

    def http(self) -> Http:
        """Return a transport over streamable HTTP."""
        return Http(self._open("http").url("/mcp"))

    def sse(self) -> Sse:
        """Return a transport over HTTP with SSE, which has no modern era."""
        return Sse(self._open("sse").url("/sse"))

    def in_process(self) -> InProcess:
        """Return a transport within the run of Trio that opens it, for tests with a mock clock. Needs no block."""
        server: Any = self._in_process  # an `ElsewhereServer`, not for programs
        return InProcess(server)  # one object: two configurations with it are equal

    def _open(self, way: str) -> TrioThread:
        if not self._entered:
            remedy = "use it in `with ScriptedServer() as server:`"
            raise RuntimeError(f"ScriptedServer.{way}() needs an open server; {remedy}")
        if self._home is None:
            self._home = TrioThread(self._script)
        return self._home

    # --- tools ------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools, in listed order."""
        return tuple(self._script.tools)

    def add_tool(
        self,
        name: str,
        answer: Answer = "done",
        description: str = "",
        *,
        input_schema: Mapping[str, Any] = MappingProxyType({"type": "object"}),
        notify: bool = True,
    ) -> None:
        """Offer a tool, or replace a definition.

        Args:
            name: the name.
            answer: a text; or a function of the arguments, async or not, that returns a text, a dict (structured
                content) or a `CallToolResult`. Async functions run on Trio.
            description: the description.
            input_schema: the schema of the arguments. Default: any object.
            notify: True notifies connected clients of the changed list.
        """
        self._script.tools[name] = ScriptedTool(name, answer, description, input_schema)
        if notify:
            self.notify()

    def remove_tool(self, name: str, *, notify: bool = True) -> None:
        """Stop offering a tool."""
        del self._script.tools[name]
        if notify:
            self.notify()

    def notify(self) -> None:
        """Notify connected clients that the tools have changed, even if nothing has."""
        for each in list(self._script.connections):
            each.notify()

    # --- faults -----------------------------------------------------------------------------------------------------

    def inject(self, fault: Fault, into: str = "tools/call", *, name: str | None = None, times: float = 1) -> None:
        """Let a fault happen in the next requests of a kind. Several faults happen one after the other.

        Args:
            fault: the fault.
            into: the method of the requests; ``"connect"`` is the handshake of either era.
            name: only in requests for the tool of this name.
            times: in how many requests; `math.inf` for all until `heal`.
        """
        self._script.plan(fault, into, name, times)

    def heal(self) -> None:
        """Forget all injected faults, thaw, and accept connections."""
        self._script.forget_faults()
        self.thaw()
        self.come_up()

    def crash(self) -> None:
        """End all connections at once, like a killed server. Clients can connect again."""
        for each in list(self._script.connections):
            each.crash()

    def freeze(self) -> None:
        """Read and write nothing on all connections, like a suspended server."""
        for each in list(self._script.connections):
            each.freeze()

    def thaw(self) -> None:
        """End a `freeze`."""
        for each in list(self._script.connections):
            each.thaw()

    def go_down(self) -> None:
        """End all connections, and refuse new ones until `come_up`. Over stdio a new process ends at once."""
        self._set_down(True)
        self.crash()

    def come_up(self) -> None:
        """Accept connections again."""
        self._set_down(False)

    def forget_sessions(self) -> None:
        """Forget the open sessions, as after a restart. Over HTTP in the legacy era only."""
        if self._home is not None and (process := self._home.endpoint.process) is not None:
            process.forget_sessions()

    def _set_down(self, down: bool) -> None:
        if self._script.refusing != down:
            self._script.refusing = down
            if self._home is not None:
                self._home.set_down(down)

    # --- received requests ------------------------------------------------------------------------------------------

    @property
    def received(self) -> tuple[Received, ...]:
        """All requests over all connections, in order of arrival."""
        return tuple(self._script.received)

    @property
    def calls(self) -> tuple[Received, ...]:
        """The requests that call a tool."""
        return tuple(each for each in self._script.received if each.method == "tools/call")

    @property
    def cancelled(self) -> tuple[Received, ...]:
        """The requests that the client cancelled while running, without streams of notifications."""
        return tuple(self._script.cancelled)

    @property
    def answers(self) -> tuple[Mapping[str, Any], ...]:
        """The answers of the user to `Ask`."""
        return tuple(self._script.answers)

    async def wait_call(self, name: str | None = None, *, number: int = 1) -> Received:
        """Wait until a tool (default: any) was called `number` times; return the last of these calls."""
        return await self._script.wait_received("tools/call", name, number)

    async def wait_connected(self, number: int = 1) -> Received:
        """Wait for `number` handshakes, counted from the beginning; return the last of them."""
        return await self._script.wait_received(CONNECT, None, number)


# --- The thread in which a scripted server listens --------------------------------------------------------------------


HOST: Final = "127.0.0.1"
RELAY: Final = str(Path(__file__).with_name("_relay.py"))


class TrioThread:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._secret = secrets.token_hex(8)
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"scripted server {script.name}", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._nursery.start_soon, self._close)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def relay(self) -> tuple[str, tuple[str, ...]]:
        return our_python("a scripted server", RELAY), ("-S", "-E", RELAY, str(self._relay_port), self._secret)

    def url(self, path: str) -> str:
        return f"http://{HOST}:{self.endpoint.port}{path}"

    def set_down(self, down: bool) -> None:
        """Refuse connections, or accept again; return after the change."""
        done = threading.Event()

        async def set_down() -> None:
            try:
                await self.endpoint.set_listening(not down)
            finally:
                done.set()

        # `trio.from_thread.run` refuses a thread that runs Trio, as a test's may. So wait on a plain event, although
        # that blocks the test's event loop for a turn of the other thread: if this returned before the change, a client
        # could still connect after `go_down`.
        self._token.run_sync_soon(self._nursery.start_soon, set_down)
        done.wait()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = error
        finally:
            self._opened.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as self._nursery:
                [relays] = await trio.open_tcp_listeners(0, host=HOST)
                self._relay_port: int = relays.socket.getsockname()[1]
                self._nursery.start_soon(trio.serve_listeners, self._serve_relay, [relays])
                self.endpoint = Endpoint(self._script)
                await self._nursery.start(self.endpoint.run, HOST)
                self._opened.set()

    async def _close(self) -> None:
        await self.endpoint.close()
        self._scope.cancel("the scripted server is closed")

    async def _serve_relay(self, stream: trio.SocketStream) -> None:
        greeting = b""
        while not greeting.endswith(b"\n"):
            if not (byte := await stream.receive_some(1)):
                return
            greeting += byte
        token, pid = greeting.decode().split()
        if token == self._secret and not self._script.refusing:
            await _RelayConnection(self._script, stream, int(pid)).serve()


class _RelayConnection(LineConnection):
    """A connection through a process, the victim of crashes and freezes."""

    def __init__(self, script: Script, stream: trio.SocketStream, pid: int) -> None:
        super().__init__(script, stream)
        self._pid = pid

    def crash(self) -> None:
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # The pid is not reused while the socket is open: a zombie keeps it.
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)


# --- Serve a script in the run of its client, without bytes -----------------------------------------------------------


class InProcessServer(ElsewhereServer):
    """The argument of `InProcess` for a scripted server. Unlike other servers in the process, it can crash."""

    def __init__(self, script: Script) -> None:
        self.name = script.name
        self._script = script

    @asynccontextmanager
    async def connect(self, on_lost: Callable[[], None]) -> AsyncIterator[tuple[Messages, MessageWriter]]:
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
                    yield client_reads, _ClientMessages(connection, to_server)
                finally:
                    leaving = True
                    nursery.cancel_scope.cancel("the connection was left")


class _MemoryConnection(StreamConnection):
    def __init__(self, script: Script, reader: Any, to_client: MemoryObjectSendStream[Any]) -> None:
        super().__init__(script, reader)
        self._to_client = to_client

    async def deliver(self, item: SessionMessage) -> None:
        self._to_client.send_nowait(item)

    async def deliver_raw(self, line: bytes) -> None:
        self._to_client.send_nowait(ValueError(f"not a message: {line!r}"))

    async def wait_thawed(self) -> None:
        await self._thawed.wait()
        if self._scope.cancel_called:
            raise anyio.BrokenResourceError


class _ClientMessages(MessageWriter):
    def __init__(self, connection: _MemoryConnection, to_server: MemoryObjectSendStream[Any]) -> None:
        self._connection = connection
        self._to_server = to_server

    async def send(self, item: SessionMessage, /) -> None:
        await self._connection.wait_thawed()
        if not await self._connection.answers(item):
            await self._to_server.send(item)

    async def aclose(self) -> None:
        self._to_server.close()
