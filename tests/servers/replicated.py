"""A server with replicas in this process.

Users may replicate processes only; tests need a clock that they can wind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio
from mcp.server.mcpserver import Context, MCPServer

import mcp_actors
from mcp_actors import InProcess, ServerConfig, ServerGroup
from mcp_actors.servers import ReplicaChanged, StateChanged

from .fleet import Outcome
from .groups import Events
from .links import text_of

LONG_ENOUGH: Final = 7200.0
"""Seconds of the simulated clock, after which a test fails that waits for something that does not happen."""


@asynccontextmanager
async def open_servers(*configs: ServerConfig, **options: Any) -> AsyncIterator[ServerGroup]:
    """Open servers, for `LONG_ENOUGH` at most: health checks would keep a test that waits forever busy."""
    with trio.fail_after(LONG_ENOUGH):
        async with mcp_actors.open_servers(*configs, **options) as group:
            yield group


def replicated(config: ServerConfig, replicas: int) -> ServerConfig:
    """Return a configuration with replicas, whatever its transport is."""
    with attrs.validators.disabled():
        return attrs.evolve(config, replicas=replicas)


@attrs.define(eq=False)
class Session:
    """One connection to the server: what is held there, and how to end it."""

    number: int
    held: int = 0
    let_go: trio.Event = attrs.field(factory=trio.Event)
    break_down: trio.Event = attrs.field(factory=trio.Event)


class Shop:
    """A server that says which of its connections answers, and holds calls until a test lets them go.

    Attributes:
        sessions: its connections, in the order in which they were opened.
        refuses: how many of the next connects fail.
        open: closed, connects wait.
    """

    def __init__(self, name: str = "shop") -> None:
        self.name = name
        self.sessions: list[Session] = []
        self.refuses = 0
        self.open = trio.Event()
        self.open.set()
        self.server = MCPServer(name, lifespan=self._lifespan)
        self.server.add_tool(self.who, description="Say which connection answers.")
        self.server.add_tool(self.hold, description="Answer when the test says so.")

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[Session]:
        await self.open.wait()
        if self.refuses:
            self.refuses -= 1
            raise RuntimeError("it refuses")
        session = Session(len(self.sessions) + 1)
        self.sessions.append(session)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fail, session)
            yield session
            nursery.cancel_scope.cancel("the server is left")

    async def _fail(self, session: Session) -> None:
        await session.break_down.wait()
        raise RuntimeError("it broke down")

    async def who(self, ctx: Context[Any]) -> str:
        return str(ctx.request_context.lifespan_context.number)

    async def hold(self, ctx: Context[Any]) -> str:
        session = ctx.request_context.lifespan_context
        session.held += 1
        try:
            await session.let_go.wait()
        finally:
            session.held -= 1
        return str(session.number)

    @property
    def held(self) -> list[int]:
        """How many calls each connection holds."""
        return [session.held for session in self.sessions]

    def let_go(self) -> None:
        """Let all answer that is held."""
        for session in self.sessions:
            session.let_go.set()

    def config(self, replicas: int = 3, **options: Any) -> ServerConfig:
        """Configure it; `options` are those of `ServerConfig`."""
        return replicated(ServerConfig(self.name, InProcess(self.server), protocol="legacy", **options), replicas)


async def who(group: ServerGroup, name: str = "shop") -> str:
    """Ask a server which of its connections answers."""
    return text_of(await group[name].call_tool("who"))


def begin(nursery: trio.Nursery, number: int, fn: Callable[..., Awaitable[Any]], *args: Any) -> list[Outcome]:
    """Make the same call from several tasks, and return what becomes of each."""
    outcomes = [Outcome() for _ in range(number)]
    for each in outcomes:
        nursery.start_soon(each.of, fn, *args)
    return outcomes


def replica_states(events: Events, replica: str) -> list[str]:
    """Return the states that a replica came into."""
    return [event.new for event in events if isinstance(event, ReplicaChanged) and event.replica == replica]


def server_states(events: Events, name: str = "shop") -> list[str]:
    """Return the states that a server came into."""
    return [event.new for event in events if isinstance(event, StateChanged) and event.server == name]
