"""A scripted server: what a test holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...config import Http, InProcess, Sse, Stdio
from ._home import Home
from ._in_process import InProcessServer
from ._script import CONNECT, Answer, Era, Received, Script, ScriptedTool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from ._faults import Fault

ECHO: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NO_ARGUMENTS: Final = {"type": "object"}


class ScriptedServer:
    """An MCP server that misbehaves when the test says so. It offers the tool ``echo`` and those that a test adds.

    It can be reached in four ways, also at the same time: `stdio` (a real process), `http` and `sse` (real sockets on
    the loopback interface), and `in_process`. The first three need a ``with`` block around their use; the server runs
    in a thread of the test's process then, so a test on any event loop commands it. All methods may be called from any
    thread and take effect at once.

    Args:
        name: the name in its ``serverInfo``.
        era: the eras that it speaks: before 2026-07-28 (``"legacy"``), since then (``"modern"``), or ``"both"``.
    """

    def __init__(self, name: str = "scripted", *, era: Era = "both") -> None:
        self._script = Script(name, era)
        self._in_process = InProcessServer(self._script)
        self._home: Home | None = None
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

    # --- how it is reached ------------------------------------------------------------------------------------------

    def stdio(self) -> Stdio:
        """Return a transport that starts a process for each connection. `crash` and `freeze` signal that process."""
        return Stdio(*self._open("stdio").relay())

    def http(self) -> Http:
        """Return a transport over streamable HTTP."""
        return Http(self._open("http").url("/mcp"))

    def sse(self) -> Sse:
        """Return a transport over HTTP with SSE, which has no modern era."""
        return Sse(self._open("sse").url("/sse"))

    def in_process(self) -> InProcess:
        """Return a transport within the run of Trio that opens it, for tests with a mock clock. Needs no block."""
        return InProcess(self._in_process)  # one object, so that two configurations with it are equal

    def _open(self, way: str) -> Home:
        if not self._entered:
            raise RuntimeError(
                f"ScriptedServer.{way}() needs an open server; use it in `with ScriptedServer() as server:`"
            )
        if self._home is None:
            self._home = Home(self._script)
        return self._home

    # --- what it offers ---------------------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools, in the order in which they are listed."""
        return tuple(self._script.tools)

    def add_tool(
        self,
        name: str,
        answer: Answer = "done",
        description: str = "",
        *,
        input_schema: Mapping[str, Any] = NO_ARGUMENTS,
        notify: bool = True,
    ) -> None:
        """Offer a tool, or another definition of one.

        Args:
            name: its name.
            answer: a text; or a function of the arguments, async or not, which returns a text, a dict (structured
                content) or a `CallToolResult`. An async one runs on Trio.
            description: its description.
            input_schema: its schema. Default: any object.
            notify: True tells connected clients that the list has changed.
        """
        self._script.tools[name] = ScriptedTool(name, answer, description, input_schema)
        if notify:
            self.notify()

    def remove_tool(self, name: str, *, notify: bool = True) -> None:
        """Offer a tool no more."""
        del self._script.tools[name]
        if notify:
            self.notify()

    def notify(self) -> None:
        """Tell connected clients that the tools have changed, whether that is so or not."""
        for each in list(self._script.connections):
            each.notify()

    # --- what it does wrong -----------------------------------------------------------------------------------------

    def inject(self, fault: Fault, into: str = "tools/call", *, name: str | None = None, times: float = 1) -> None:
        """Let a fault happen in the next requests of a kind. Several faults happen one after the other.

        Args:
            fault: what happens.
            into: the method of the requests; ``"connect"`` is the handshake of either era.
            name: only in those of this tool.
            times: in how many requests; `math.inf` for all until `heal`.
        """
        self._script.plan(fault, into, name, times)

    def heal(self) -> None:
        """Let none of the injected faults happen from now on, thaw, and take connections."""
        self._script.forget_faults()
        self.thaw()
        self.come_up()

    def crash(self) -> None:
        """End all connections at once, as if the server was killed. It can be connected to again."""
        for each in list(self._script.connections):
            each.crash()

    def freeze(self) -> None:
        """Read and write nothing on all connections, as if the server was suspended."""
        for each in list(self._script.connections):
            each.freeze()

    def thaw(self) -> None:
        """End a `freeze`."""
        for each in list(self._script.connections):
            each.thaw()

    def go_down(self) -> None:
        """End all connections, and refuse new ones until `come_up`. A process over stdio ends at its handshake."""
        self._set_down(True)
        self.crash()

    def come_up(self) -> None:
        """Take connections again."""
        self._set_down(False)

    def forget_sessions(self) -> None:
        """Know none of the open sessions any more, as after a restart. Over HTTP in the legacy era only."""
        if self._home is not None and (process := self._home.endpoint.process) is not None:
            process.forget_sessions()

    def _set_down(self, down: bool) -> None:
        if self._script.refusing != down:
            self._script.refusing = down
            if self._home is not None:
                self._home.set_down(down)

    # --- what it was asked ------------------------------------------------------------------------------------------

    @property
    def received(self) -> tuple[Received, ...]:
        """All requests, in the order in which they arrived, over all connections."""
        return tuple(self._script.received)

    @property
    def calls(self) -> tuple[Received, ...]:
        """The requests that call a tool."""
        return tuple(each for each in self._script.received if each.method == "tools/call")

    @property
    def cancelled(self) -> tuple[Received, ...]:
        """The requests that the client has cancelled while they ran."""
        return tuple(self._script.cancelled)

    @property
    def answers(self) -> tuple[Mapping[str, Any], ...]:
        """The answers of the user to `Ask`."""
        return tuple(self._script.answers)

    async def wait_call(self, name: str | None = None, *, number: int = 1) -> Received:
        """Wait until a tool was called so many times (default: any tool); return the last of these calls."""
        return await self._script.wait_received("tools/call", name, number)

    async def wait_connected(self, number: int = 1) -> Received:
        """Wait for the handshake of so many connections, counted from the beginning; return that of the last."""
        return await self._script.wait_received(CONNECT, None, number)
