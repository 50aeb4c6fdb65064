"""Programs of users that every checker accepts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, assert_type

from mcp.types import CallToolResult, Tool

from mcp_actors import (
    ConnectFailed,
    LoadedConfig,
    McpActorsError,
    ServerGroup,
    ServerRef,
    ServerState,
    StateChanged,
    open_servers,
)
from mcp_actors.auth import OAuth
from mcp_actors.bridge import AsyncioServerGroup, AsyncioServerRef
from mcp_actors.config import Rank, Source
from mcp_actors.kernel import Actor, ActorRef, Call, ChildSpec, handles, open_supervisor
from mcp_actors.observe import health_app
from mcp_actors.sync import SyncServerGroup, SyncServerRef
from mcp_actors.testing import Probe


class Caller(Protocol):
    """The methods that a program needs of a reference."""

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool."""

    async def list_tools(self) -> tuple[Tool, ...]:
        """List the tools."""
        raise NotImplementedError


class BlockingCaller(Protocol):
    """The same without an event loop."""

    @property
    def name(self) -> str:
        """The name."""
        raise NotImplementedError

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """Call a tool."""
        raise NotImplementedError


def give(trio: ServerRef, asyncio: AsyncioServerRef, thread: SyncServerRef) -> tuple[list[Caller], BlockingCaller]:
    """All three fit a protocol."""
    return [trio, asyncio], thread


def serve_health(trio: ServerGroup, asyncio: AsyncioServerGroup) -> None:
    """Groups fit the protocols of this package."""
    health_app(trio)
    health_app(asyncio)


async def use(group: ServerGroup, view: AsyncioServerGroup, blocking: SyncServerGroup) -> None:
    """A call has the type of its result, by each door."""
    assert_type(await group["a"].call_tool("x"), CallToolResult)
    assert_type(await view["a"].call_tool("x", {"a": 1}, idempotent=True), CallToolResult)
    assert_type(blocking["a"].call_tool("x"), CallToolResult)
    assert_type(group["a"].state, ServerState)
    assert_type(blocking["a"].name, str)
    for name, ref in view.items():
        print(name, ref.statistics().queued)


def read(event: object, error: McpActorsError) -> str:
    """Facts narrow."""
    match event:
        case StateChanged(server=server, new="ready"):
            return server
        case StateChanged(new=new):
            return assert_type(new, ServerState)
        case _:
            pass
    return error.phase if isinstance(error, ConnectFailed) else str(error)


class Add(Call[int]):
    """A call."""


class Counter(Actor[Add]):
    """Owns something while it runs."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open and close it."""
        yield

    @handles(Add)
    async def add(self, message: Add) -> int:
        """Count."""
        return 1


class Fixed:
    """A source of a user."""

    name = "fixed"
    interval = 5.0
    rank = Rank.CODE
    settles = False

    def look(self) -> Hashable:
        """Return what changes with the content."""
        return 1

    def read(self) -> tuple[LoadedConfig, ...]:
        """Return the content."""
        return (LoadedConfig((), source=self.name),)


class Memory:
    """A store of a user."""

    async def load(self, key: str) -> str | None:
        """Return a value."""
        return None

    async def save(self, key: str, value: str) -> None:
        """Keep a value."""

    async def delete(self, key: str) -> None:
        """Forget a value."""

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None]:
        """Exclude other processes."""
        yield


def sign_in() -> tuple[Source, OAuth]:
    """Objects of users fit the protocols of this package."""
    return Fixed(), OAuth(store=Memory(), scopes="read write")


async def main() -> None:
    """Open both kinds of blocks."""
    async with open_servers(".mcp.json") as servers, open_supervisor(ChildSpec("counter", Counter)) as above:
        counter = assert_type(above.child("counter", Counter), ActorRef[Add])
        print(await counter.call(Add()) + 1, await servers["a"].call("x", a=1))


class Find(Call[float | None]):
    """A call that has one of two answers."""


class Load(Call[Any]):
    """A call that has any answer."""


def substitute(probe: Probe, given: type[Call[int]]) -> None:
    """Answers of a probe are those of the call."""
    probe.reply(Find, 9.5, None, 9)
    probe.hold(Find, None).set()
    probe.reply(Load, "text", 1)
    probe.reply(given, 1)
