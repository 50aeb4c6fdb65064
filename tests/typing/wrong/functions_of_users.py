"""Functions and objects of users that have another shape than is asked for. Nothing runs this file."""

from __future__ import annotations

from mcp.types import CreateMessageRequestParams, ElicitRequestParams, ElicitResult

from mcp_actors import (
    Callbacks,
    LoadedConfig,
    ServerConfig,
    ServerGroup,
    ServerRef,
    Stdio,
    ToolFilter,
    ToolRequest,
    open_servers,
)
from mcp_actors.adapters import McpClient
from mcp_actors.auth import OAuth
from mcp_actors.bridge import AsyncioLoop, AsyncioServerGroup
from mcp_actors.config import CallbackContext, CallNext, Rank
from mcp_actors.gateway import serve
from mcp_actors.kernel import LaterQueue
from mcp_actors.observe import health_app
from mcp_actors.testing import ScriptedServer


async def answers_text(request: ToolRequest, call_next: CallNext) -> str:
    return str(await call_next(request))


async def samples_text(context: CallbackContext, params: CreateMessageRequestParams) -> str:
    return ""


def takes_no_context(params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="cancel")


def takes_a_name(name: str) -> bool:
    return name != "wipe"


def takes_two(server: str, event: object) -> None: ...


class ReadsOne:
    name = "fixed"
    interval = 5.0
    rank = Rank.CODE
    settles = False

    def look(self) -> int:
        return 1

    def read(self) -> LoadedConfig:
        return LoadedConfig(())


class NotAsync:
    def load(self, key: str) -> str | None:
        return None

    def save(self, key: str, value: str) -> None: ...


async def double(number: int) -> int:
    return 2 * number


async def give(trio: ServerGroup, ref: ServerRef, asyncio: AsyncioServerGroup, loop: AsyncioLoop) -> None:
    ServerConfig("a", Stdio("a"), middleware=[answers_text])  # wrong
    Callbacks(sampling=samples_text)  # wrong
    Callbacks(elicitation=takes_no_context)  # wrong
    ToolFilter(predicate=takes_a_name)  # wrong
    open_servers("a.json", observers=[takes_two])  # wrong
    open_servers(ReadsOne())  # wrong
    OAuth(store=NotAsync())  # wrong
    health_app(ref)  # wrong
    McpClient(trio)  # wrong
    await serve(asyncio, path="/run/x.sock")  # wrong
    await loop.run(double, "3")  # wrong: mypy pyright pyrefly
    await ref.complete("plan", {"name": "city", "value": "R"})  # wrong
    LaterQueue[str]().reply(3)  # wrong
    ScriptedServer().inject("crash")  # wrong
    async with trio.watch_events() as events:
        for _ in events:  # wrong
            pass
