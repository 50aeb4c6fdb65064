"""The simulated servers: their tools and work, behind pipes or in memory."""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

import trio
from attrs import define, field
from mcp import MCPError

from mcp_actors import InProcess, ServerConfig, Stdio
from mcp_actors.testing import Duplicate, ScriptedServer
from mcp_actors.testing.server._behavior import CONNECTION

from ..servers.wire_pipes import WireProcess
from .plan import SimulatedServer
from .trace import Trace

MODERN: Final = "2026-07-28"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"

Json = dict[str, Any]


class Machine(Protocol):
    """Runs a simulated server, one connection after the other."""

    def transport(self) -> InProcess | Stdio: ...
    def crash(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def change(self) -> None: ...


@define(eq=False)
class House:
    """A simulated server, over all its connections.

    Attributes:
        plan: what it is.
        trace: where it writes down what happens.
        tools: those that it lists.
        began: the calls that it carried out, by number.
        times: when it did so.
        frozen: True if it was frozen at any time, so requests may have waited in its pipe.
        down: True while connects are refused.
    """

    plan: SimulatedServer
    trace: Trace
    tools: list[str] = field(factory=lambda: ["work"])
    began: list[int] = field(factory=list)
    times: list[float] = field(factory=list)
    frozen: bool = False
    down: bool = False
    machine: Machine = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.machine = PipeMachine(self) if self.plan.way == "pipe" else MemoryMachine(self)

    def config(self, *, stop_timeout: float = 5.0) -> ServerConfig:
        """Return its configuration. A reload with another ``stop_timeout`` connects it again, and no more."""
        protocol: Any = "legacy" if self.plan.era == "legacy" else MODERN
        options = {**self.plan.options, "stop_timeout": stop_timeout}
        return ServerConfig(self.plan.name, self.machine.transport(), protocol=protocol, **options)

    def do(self, verb: str) -> None:
        """Let something happen to the server."""
        match verb:
            case "crash":
                self.machine.crash()
            case "freeze":
                self.frozen = True
                self.machine.freeze()
            case "thaw":
                self.machine.thaw()
            case "go down" | "come up":
                self.down = verb == "go down"
                (self.machine.crash if self.down else self.machine.thaw)()
            case "add tool":
                self.tools.append(f"t{len(self.tools)}")
                self.machine.change()
            case "remove tool":
                del self.tools[max(1, len(self.tools) - 1) :]
                self.machine.change()

    def begin(self, call: int) -> None:
        """Note that a call is carried out."""
        self.began.append(call)
        self.times.append(trio.current_time())
        self.trace.note(self.plan.name, f"carries out call {call}")


class PipeMachine:
    """Runs the server at the other end of pipes, as a process would."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._process: PipeProcess | None = None

    def transport(self) -> Stdio:
        return Stdio("simulated")

    async def start(self) -> WireProcess:
        """Start one, in place of `start_process`."""
        await trio.lowlevel.checkpoint()
        self._process = PipeProcess(self._house)
        if self._house.down:
            self._process.kill()
        return self._process

    def crash(self) -> None:
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        if self._process is not None:
            self._process.freeze()

    def thaw(self) -> None:
        if self._process is not None:
            self._process.thaw()

    def change(self) -> None:
        if self._process is not None and not self._process.has_exited():
            self._process.worker.notify()


class PipeProcess(WireProcess):
    """One process."""

    def __init__(self, house: House) -> None:
        super().__init__(house.plan.era, None)
        self.worker = Worker(house, self)
        self.server = self.worker  # type: ignore[assignment]  # what is asked of it is `take`

    def _exit(self, code: int) -> None:
        super()._exit(code)
        self.worker.end()


class Worker:
    """The server of one process, without the SDK: an independent reading of the protocol."""

    def __init__(self, house: House, process: PipeProcess) -> None:
        self._house = house
        self._process = process
        self._modern = house.plan.era == "modern"
        self._listening: list[object] = []
        self._running: dict[object, trio.CancelScope] = {}

    def take(self, message: Json) -> None:
        """Act on a message."""
        request, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "server/discover" if self._modern:
                capabilities = {"tools": {"listChanged": True}}
                self._reply(request, {"supportedVersions": [MODERN], "capabilities": capabilities})
            case "initialize" if not self._modern:
                capabilities = {"tools": {"listChanged": True}}
                info = {"name": self._house.plan.name, "version": "1"}
                version = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
                self._reply(request, version)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self._house.tools]
                self._reply(request, {"tools": tools})
            case "tools/call":
                trio.lowlevel.spawn_system_task(self._work, request, params["arguments"])
            case "subscriptions/listen" if self._modern:
                self._listening.append(request)
                about = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION: request}}
                self._send({"method": "notifications/subscriptions/acknowledged", "params": about})
            case "notifications/cancelled":
                if scope := self._running.get(params["requestId"]):
                    scope.cancel("the client has cancelled it")
            case "ping":
                self._reply(request, {})
            case _ if request is not None and "method" in message:
                self._send({"id": request, "error": {"code": -32601, "message": "Method not found"}})

    def end(self) -> None:
        """Stop all work."""
        for scope in self._running.values():
            scope.cancel("the process has exited")

    def notify(self) -> None:
        """Send a notification that the tools have changed."""
        for listener in self._listening if self._modern else [None]:
            params = {} if listener is None else {"_meta": {SUBSCRIPTION: listener}}
            self._send({"method": "notifications/tools/list_changed", "params": params})

    async def _work(self, request: object, arguments: Json) -> None:
        with trio.CancelScope() as scope:
            self._running[request] = scope
            if self._process.has_exited():
                return
            self._house.begin(arguments["call"])
            await trio.sleep(arguments["seconds"])
            match arguments["fate"]:
                case "crash":
                    self._process.kill()
                case "hang":
                    await trio.sleep_forever()
                case "refuse":
                    self._send({"id": request, "error": {"code": -32000, "message": f"refused {arguments['call']}"}})
                case fate:
                    for _ in range(2 if fate == "twice" else 1):
                        self._reply(request, {"content": [{"type": "text", "text": str(arguments["call"])}]})
        self._running.pop(request, None)

    def _reply(self, request: object, result: Json) -> None:
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self._modern else {}
        self._send({"id": request, "result": result | modern})

    def _send(self, message: Json) -> None:
        if not self._process.has_exited():
            self._process.put(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


class MemoryMachine:
    """Runs the SDK's server in the same event loop, without bytes."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._server = ScriptedServer(house.plan.name)
        self._server.remove_tool("echo", notify=False)
        self._server.add_tool("work", self._work, notify=False)

    def transport(self) -> InProcess:
        return self._server.in_process()

    async def _work(self, arguments: Json) -> str:
        self._house.begin(arguments["call"])
        await trio.sleep(arguments["seconds"])
        match arguments["fate"]:
            case "crash":
                CONNECTION.get().crash()
                await trio.sleep_forever()
            case "hang":
                await trio.sleep_forever()
            case "refuse":
                raise MCPError(-32000, f"refused {arguments['call']}")
            case "twice":
                self._server.inject(Duplicate())
        return str(arguments["call"])

    def crash(self) -> None:
        (self._server.go_down if self._house.down else self._server.come_up)()
        self._server.crash()

    def freeze(self) -> None:
        self._server.freeze()

    def thaw(self) -> None:
        (self._server.go_down if self._house.down else self._server.come_up)()
        self._server.thaw()

    def change(self) -> None:
        for name in {*self._house.tools} - {*self._server.tools}:
            self._server.add_tool(name, notify=False)
        for name in {*self._server.tools} - {*self._house.tools}:
            self._server.remove_tool(name, notify=False)
        self._server.notify()
