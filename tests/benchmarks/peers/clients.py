"""The peers, each in the way its users use it, with all its defaults: a connection, and a tool call.

Each imports its library only when it is asked for, so that the process of one has nothing of the others in it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import trio
from attrs import frozen

from . import quick_http_server, quick_server

if TYPE_CHECKING:
    from mcp.server import Server

    from mcp_actors.bridge import Host

CallTool = Callable[..., Awaitable[object]]
Repeat = Callable[[], Awaitable[None]]
Era = Literal["auto", "legacy"]

GATEWAY: Final = "BENCHMARK_GATEWAY"
"""The variable with the path of the socket of a gateway."""


@frozen
class Client:
    """One peer.

    Attributes:
        run: runs an async function and what it calls.
        together: runs a function in so many tasks at the same time.
        connect: starts the server with this command and connects to it; gives the call of a tool.
        connect_many: starts and connects to several servers side by side, where the peer has a way to.
        progress: the argument of its calls for what is called with each progress notification.
    """

    run: Callable[..., None]
    together: Callable[[int, Repeat], Awaitable[None]]
    connect: Callable[[Sequence[str]], AbstractAsyncContextManager[CallTool]]
    connect_many: Callable[[Sequence[Sequence[str]]], AbstractAsyncContextManager[None]] | None = None
    progress: str = "progress_callback"


@asynccontextmanager
async def connect_server_ref(command: Sequence[str], **options: Any) -> AsyncIterator[CallTool]:
    """Ours; `options` are those of `ServerConfig`, here and below."""
    from mcp_actors import ServerConfig, Stdio, open_servers

    config = ServerConfig("quick", Stdio(command[0], command[1:]), required=True, **options)
    async with open_servers(config) as servers:
        yield servers["quick"].call_tool


@asynccontextmanager
async def connect_through_socket(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """Ours, through the gateway at a unix socket, which has started the server."""
    from mcp_actors import ServerConfig, Socket, open_servers

    async with open_servers(ServerConfig("quick", Socket(os.environ[GATEWAY]), required=True)) as servers:
        yield servers["quick"].call_tool


@asynccontextmanager
async def connect_observed(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """Ours, with metrics."""
    from mcp_actors import ServerConfig, Stdio, open_servers
    from mcp_actors.observe import Metrics

    config = ServerConfig("quick", Stdio(command[0], command[1:]), required=True)
    async with open_servers(config, observers=[Metrics()]) as servers:
        yield servers["quick"].call_tool


@asynccontextmanager
async def connect_through_bridge(command: Sequence[str], host: Host = "thread") -> AsyncIterator[CallTool]:
    """Ours, in a program on asyncio."""
    from mcp_actors import ServerConfig, Stdio
    from mcp_actors.bridge import open_servers

    config = ServerConfig("quick", Stdio(command[0], command[1:]), required=True)
    async with open_servers(config, host=host) as servers:
        yield servers["quick"].call_tool


@asynccontextmanager
async def connect_mcp_client(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """The SDK's client over the SDK's transport."""
    from mcp import Client as SdkClient
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(command=command[0], args=list(command[1:]))
    async with SdkClient(stdio_client(parameters)) as client:
        yield client.call_tool


@asynccontextmanager
async def connect_server_ref_over_http(
    command: Sequence[str], kind: str = "json", **options: Any
) -> AsyncIterator[CallTool]:
    """Ours, over streamable HTTP."""
    from mcp_actors import Http, ServerConfig, open_servers

    with quick_http_server.running(kind) as url:
        async with open_servers(ServerConfig("quick", Http(url), required=True, **options)) as servers:
            yield servers["quick"].call_tool


@asynccontextmanager
async def connect_mcp_client_over_http(command: Sequence[str], kind: str = "json") -> AsyncIterator[CallTool]:
    """The SDK's client, over streamable HTTP."""
    from mcp import Client as SdkClient

    with quick_http_server.running(kind) as url:
        async with SdkClient(url) as client:
            yield client.call_tool


@asynccontextmanager
async def connect_server_ref_in_process(
    command: Sequence[str], era: Era = "auto", **options: Any
) -> AsyncIterator[CallTool]:
    """Ours, to a server object in the same process."""
    from mcp_actors import InProcess, ServerConfig, open_servers

    config = ServerConfig("quick", InProcess(server_object()), protocol=era, required=True, **options)
    async with open_servers(config) as servers:
        yield servers["quick"].call_tool


@asynccontextmanager
async def connect_mcp_client_in_process(command: Sequence[str], era: Era = "auto") -> AsyncIterator[CallTool]:
    """The SDK's client, to a server object in the same process."""
    from mcp import Client as SdkClient

    async with SdkClient(server_object(), mode=era) as client:
        yield client.call_tool


def server_object() -> Server[Any]:
    """Return a server of the SDK that does what the quick server does."""
    from mcp.server import Server
    from mcp.types import CallToolResult, ListToolsResult

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult.model_validate(quick_server.TOOLS)

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        message = {"method": "tools/call", "params": {"name": params.name, "arguments": params.arguments}}
        return CallToolResult.model_validate(quick_server.result_of(message))

    return Server("quick", on_list_tools=list_tools, on_call_tool=call_tool)


@asynccontextmanager
async def connect_session_group(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """The SDK's group of sessions."""
    from mcp import ClientSessionGroup
    from mcp.client.stdio import StdioServerParameters

    async with ClientSessionGroup() as group:
        await group.connect_to_server(StdioServerParameters(command=command[0], args=list(command[1:])))
        yield group.call_tool


@asynccontextmanager
async def connect_openai_agents(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """The package openai-agents."""
    from agents.mcp import MCPServerStdio

    async with MCPServerStdio({"command": command[0], "args": list(command[1:])}) as server:
        yield server.call_tool


@asynccontextmanager
async def connect_fastmcp(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """The package fastmcp."""
    from fastmcp import Client as FastClient
    from fastmcp.client.transports import StdioTransport

    async with FastClient(StdioTransport(command[0], list(command[1:]), keep_alive=False)) as client:
        yield client.call_tool


@asynccontextmanager
async def connect_pydantic_ai(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """The package pydantic-ai."""
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(StdioTransport(command[0], list(command[1:]), keep_alive=False)) as toolset:
        yield toolset.direct_call_tool


@asynccontextmanager
async def connect_many_server_refs(commands: Sequence[Sequence[str]]) -> AsyncIterator[None]:
    """Ours."""
    from mcp_actors import ServerConfig, Stdio, open_servers

    configs = [
        ServerConfig(f"server-{index}", Stdio(command[0], command[1:])) for index, command in enumerate(commands)
    ]
    async with open_servers(*configs) as servers:
        assert len(servers.connected) == len(commands)
        yield


@asynccontextmanager
async def connect_many_openai_agents(commands: Sequence[Sequence[str]]) -> AsyncIterator[None]:
    """The package openai-agents: in parallel, which is not its default. It lists the tools only when it is asked to."""
    from agents.mcp import MCPServerManager, MCPServerStdio

    servers = [MCPServerStdio({"command": command[0], "args": list(command[1:])}) for command in commands]
    async with MCPServerManager(servers, connect_in_parallel=True) as manager:
        assert len(manager.active_servers) == len(commands)
        await asyncio.gather(*(server.list_tools() for server in servers))
        yield


def run_trio(main: Callable[..., Awaitable[None]], *args: object) -> None:
    """`trio.run`."""
    trio.run(main, *args)


def run_asyncio(main: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
    """Plain `asyncio.run`."""
    asyncio.run(main(*args))


async def together_in_trio(number: int, repeat: Repeat) -> None:
    """In tasks of a nursery."""
    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(repeat)


async def together_in_asyncio(number: int, repeat: Repeat) -> None:
    """In tasks of a task group."""

    async def call_repeat() -> None:
        await repeat()

    async with asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(call_repeat())


@asynccontextmanager
async def connect_by_hand(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """The floor."""
    from .by_hand import open_by_hand

    async with open_by_hand(command) as client:
        yield client.call_tool


@asynccontextmanager
async def connect_socket_by_hand(command: Sequence[str]) -> AsyncIterator[CallTool]:
    """The floor through the gateway at a unix socket."""
    from .by_hand import open_socket_by_hand

    async with open_socket_by_hand(os.environ[GATEWAY], "quick") as client:
        yield client.call_tool


@asynccontextmanager
async def connect_http_by_hand(command: Sequence[str], kind: str = "json") -> AsyncIterator[CallTool]:
    """The floor over streamable HTTP."""
    from .by_hand import open_http_by_hand

    with quick_http_server.running(kind) as url:
        async with open_http_by_hand(url) as client:
            yield client.call_tool


@asynccontextmanager
async def connect_server_by_hand(command: Sequence[str], era: Era = "auto") -> AsyncIterator[CallTool]:
    """The floor to a server object in the same process."""
    from .by_hand import open_server_by_hand, open_streams_by_hand

    async with (open_server_by_hand if era == "auto" else open_streams_by_hand)(server_object()) as call_tool:
        yield call_tool


@asynccontextmanager
async def connect_many_by_hand(commands: Sequence[Sequence[str]]) -> AsyncIterator[None]:
    """The floor: it blocks in between, but uses next to no processor time, which it would take from the servers."""
    from ..servers import Pipe

    pipe = subprocess.PIPE
    with ExitStack() as stack:
        servers = [
            stack.enter_context(subprocess.Popen(each, stdin=pipe, stdout=pipe))  # noqa: ASYNC220 - nothing else runs
            for each in commands
        ]
        for server in servers:
            Pipe(server).ask("tools/list", {})
        yield


async def pass_on(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do what a middleware does that does nothing."""
    return await call_next(request)


OURS: Final[dict[str, Callable[..., AbstractAsyncContextManager[CallTool]]]] = {
    "ServerRef": connect_server_ref,
    "ServerRef, HTTP": connect_server_ref_over_http,
    "ServerRef, HTTP, events": partial(connect_server_ref_over_http, kind="events"),
    "ServerRef, in process": connect_server_ref_in_process,
    "ServerRef, in process, legacy": partial(connect_server_ref_in_process, era="legacy"),
}

BY_HAND: Final[dict[str, Callable[..., AbstractAsyncContextManager[CallTool]]]] = {
    ", HTTP": connect_http_by_hand,
    ", HTTP, events": partial(connect_http_by_hand, kind="events"),
    ", in process": connect_server_by_hand,
    ", in process, legacy": partial(connect_server_by_hand, era="legacy"),
    ", Socket": connect_socket_by_hand,
}

CONFIGURED: Final[dict[str, dict[str, Any]]] = {
    "": {},
    ", schema": {"validate": "schema"},
    ", middleware": {"middleware": (pass_on,)},
}
"""How ours may be configured, by the end of its name."""

CLIENTS: Final = {
    **{
        f"{name}{end}": Client(run_trio, together_in_trio, partial(connect, **options), progress="progress")
        for name, connect in OURS.items()
        for end, options in CONFIGURED.items()
    },
    "by hand on Trio": Client(run_trio, together_in_trio, connect_by_hand, connect_many_by_hand),
    **{f"by hand on Trio{end}": Client(run_trio, together_in_trio, connect) for end, connect in BY_HAND.items()},
    "ServerRef": Client(run_trio, together_in_trio, connect_server_ref, connect_many_server_refs, "progress"),
    "ServerRef, Socket": Client(run_trio, together_in_trio, connect_through_socket),
    "ServerRef, metrics": Client(run_trio, together_in_trio, connect_observed),
    "bridge, thread": Client(run_asyncio, together_in_asyncio, connect_through_bridge),
    "bridge, guest": Client(run_asyncio, together_in_asyncio, partial(connect_through_bridge, host="guest")),
    "mcp.Client": Client(run_trio, together_in_trio, connect_mcp_client),
    "mcp.Client, HTTP": Client(run_trio, together_in_trio, connect_mcp_client_over_http),
    "mcp.Client, in process": Client(run_trio, together_in_trio, connect_mcp_client_in_process),
    "mcp.Client, HTTP, events": Client(
        run_trio, together_in_trio, partial(connect_mcp_client_over_http, kind="events")
    ),
    "mcp.Client, in process, legacy": Client(
        run_trio, together_in_trio, partial(connect_mcp_client_in_process, era="legacy")
    ),
    "ClientSessionGroup": Client(run_asyncio, together_in_asyncio, connect_session_group),
    "openai-agents": Client(run_asyncio, together_in_asyncio, connect_openai_agents, connect_many_openai_agents),
    "fastmcp": Client(run_asyncio, together_in_asyncio, connect_fastmcp),
    "pydantic-ai": Client(run_asyncio, together_in_asyncio, connect_pydantic_ai),
}
