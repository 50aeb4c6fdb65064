"""How a lost connection ends: at once, or after the requests that were sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio
from mcp import MCPError
from mcp.server import Server
from mcp.types import CONNECTION_CLOSED, CallToolResult, ListToolsResult, TextContent, Tool
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ConnectionLost, InProcess, ServerConfig, StateChanged, open_servers
from mcp_actors.servers.connection import _actor
from mcp_actors.transports import Link, open_link

from .fleet import calls
from .groups import AT_ONCE, LATER, Events, crash, on_state, reach, server
from .links import text_of
from .memory_link import Machine


class Gate:
    """A server in this process whose tool waits until the gate is open."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.error: MCPError | None = None
        self.server = Server("gate", on_list_tools=self.list_tools, on_call_tool=self.call_tool)

    async def list_tools(self, context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="pass", input_schema={"type": "object"})])

    async def call_tool(self, context: Any, params: Any) -> CallToolResult:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return CallToolResult(content=[TextContent(text="passed")])


@pytest.mark.parametrize("pipe", [False, True])
async def test_only_without_a_pipe_is_a_lost_connection_drained(pipe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP each request has a connection of its own, and may be answered although the session is lost."""
    gate, links = Gate(), list[Link]()
    machine = Machine(gate.server)

    @asynccontextmanager
    async def note_link(config: ServerConfig, *, on_lost: Callable[[], None], **_: object) -> AsyncIterator[Link]:
        async with (open_link if pipe else machine.open_link)(config, on_lost=on_lost) as link:
            assert (link.direct is not None) == pipe
            links.append(link)
            yield link

    monkeypatch.setattr(_actor, "open_link", note_link)
    config = ServerConfig("gate", InProcess(gate.server), protocol="legacy", restarts=AT_ONCE)
    async with open_servers(config) as servers:
        async with calls(2, servers["gate"].call_tool, "pass") as outcomes:
            await wait_all_tasks_blocked()
            links[0].lifeline.lose()
            await wait_all_tasks_blocked()
            assert [outcome.over for outcome in outcomes] == [pipe] * 2
            gate.open.set()
        if not pipe:
            assert [text_of(outcome.value) for outcome in outcomes] == ["passed"] * 2
        else:
            assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 2
        assert text_of(await servers["gate"].call_tool("pass")) == "passed"
        assert (len(links), servers["gate"].statistics().incarnation) == (2, 2)


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_request_that_finds_an_in_process_server_gone_ends_the_connection(
    era: Literal["auto", "legacy"],
) -> None:
    """No link reports that: the SDK fails the request with a message of its own."""
    gate = Gate()
    gate.error = MCPError(CONNECTION_CLOSED, "Connection closed")
    gate.open.set()
    config = ServerConfig("gate", InProcess(gate.server), protocol=era, restarts=AT_ONCE)
    async with open_servers(config) as servers:
        with pytest.raises(ConnectionLost):
            await servers["gate"].call_tool("pass")
        gate.error = None
        await reach(servers, "gate", "ready")
        assert text_of(await servers["gate"].call_tool("pass")) == "passed"
        assert servers["gate"].statistics().incarnation == 2


async def test_a_crashed_server_has_no_pid_from_the_first_event_on() -> None:
    """Its process is stopped only after that, so the number may soon belong to another one."""
    pids: list[int | None] = []

    def observe() -> None:
        pids.append(servers["a"].statistics().pid)

    async with open_servers(server("a", restarts=LATER), observers=[on_state("a", "backoff", observe)]) as servers:
        assert servers["a"].statistics().pid is not None
        await crash(servers, "a")
        assert pids == [None]


async def test_a_failed_task_of_a_connection_is_the_known_cause_of_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the error of each caller and in the reason of the change, which come before the clean-up."""
    broken, events = trio.Event(), Events()

    async def keep_refreshed(*_: object) -> None:
        await broken.wait()
        raise RuntimeError("a defect")

    monkeypatch.setattr(_actor, "keep_refreshed", keep_refreshed)
    async with open_servers(server("a", restarts=LATER), observers=[events]) as servers:
        async with calls(1, servers["a"].call_tool, "sleep", {"seconds": 60}) as outcomes:
            await wait_all_tasks_blocked(0.01)
            broken.set()
        assert "a defect" in str(outcomes[0].error)
        assert events.of(StateChanged)[-1].reason == "session failed: a defect"
