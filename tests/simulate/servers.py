"""The simulated servers: their tools and work, and those in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import trio
from attrs import define, field
from mcp import MCPError

from mcp_actors import Http, InProcess, ServerConfig, Stdio
from mcp_actors.testing import Duplicate, ScriptedServer
from mcp_actors.testing._behavior import CONNECTION

from .http import HttpMachine
from .pipes import PipeMachine
from .plan import SimulatedServer
from .trace import Trace
from .worker import MODERN, Json


class Machine(Protocol):
    """Runs a simulated server, one connection after the other."""

    def transport(self) -> Http | InProcess | Stdio: ...
    def crash(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def change(self) -> None: ...
    def update(self) -> None: ...
    def cut(self) -> None: ...
    def lose(self) -> None: ...
    def sign_in(self) -> None: ...


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
        unproven: True if credentials were refused that it had never accepted. They are not renewed.
        down: True while connects are refused.
        token: the credential that it accepts, if it is behind HTTP.
        signed_in: False while a person has to sign in to get a new one.
        number: what its resource contains.
        connect: whether it is lazy or eager, which reloads may change.
    """

    plan: SimulatedServer
    trace: Trace
    tools: list[str] = field(factory=lambda: ["work"])
    began: list[int] = field(factory=list)
    times: list[float] = field(factory=list)
    frozen: bool = False
    unproven: bool = False
    down: bool = False
    token: str = "token-0"
    signed_in: bool = True
    number: int = 0
    connect: str = field(init=False)
    machine: Machine = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.connect = self.plan.options.get("connect", "eager")
        self.machine = MACHINES[self.plan.way](self)

    def config(self, *, stop_timeout: float = 5.0) -> ServerConfig:
        """Return its configuration. A reload with another ``stop_timeout`` connects it again, and no more."""
        protocol: Any = "legacy" if self.plan.era == "legacy" else MODERN
        options = {**self.plan.options, "stop_timeout": stop_timeout, "connect": self.connect}
        return ServerConfig(self.plan.name, self.machine.transport(), protocol=protocol, **options)

    def do(self, verb: str) -> None:
        """Let something happen to the server."""
        match verb:
            case "crash" | "thaw" | "cut" | "lose":
                getattr(self.machine, verb)()
            case "freeze":
                self.frozen = True
                self.machine.freeze()
            case "go down" | "come up":
                self.down = verb == "go down"
                (self.machine.crash if self.down else self.machine.thaw)()
            case "expire" | "sign out":
                self.token = f"token-{int(self.token.removeprefix('token-')) + 1}"
                self.signed_in = self.signed_in and verb == "expire"
            case "sign in":
                self.signed_in = True
                self.machine.sign_in()
            case "update":
                self.update()
            case "add tool":
                self.tools.append(f"t{len(self.tools)}")
                self.machine.change()
            case "remove tool":
                del self.tools[max(1, len(self.tools) - 1) :]
                self.machine.change()

    def update(self) -> None:
        """Change its resource."""
        self.number += 1
        self.machine.update()

    def begin(self, call: int) -> None:
        """Note that a call is carried out."""
        self.began.append(call)
        self.times.append(trio.current_time())
        self.trace.note(self.plan.name, f"carries out call {call}")


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

    def update(self) -> None:
        """Do nothing: it has no resource."""

    def cut(self) -> None:
        """Do nothing: there is no network."""

    def lose(self) -> None:
        """Do nothing: there is no network."""

    def sign_in(self) -> None:
        """Do nothing: there are no credentials."""


MACHINES: Final[dict[str, Callable[[House], Machine]]] = {
    "http": HttpMachine,
    "memory": MemoryMachine,
    "pipe": PipeMachine,
}
"""The ways to a server."""
