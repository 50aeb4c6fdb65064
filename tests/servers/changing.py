"""A real server in this process whose tools change: its list has a version, and tells which one it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import trio
from attrs import define, field
from mcp import MCPError
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from mcp_actors import InProcess, ServerConfig, ServerGroup

Era = Literal["legacy", "2026-07-28"]


@define(eq=False)
class Changing:
    """The server, and what is done to it from outside.

    Attributes:
        era: what is to be spoken with it.
        version: of its list; the list holds the tool ``v<version>``, and ``same`` in each version.
        answers: what it does when it is asked next, once it has read the version: wait, raise, or (None) answer.
        descriptions: of its tools; a tool that is only named here is there too.
        asked: how often it was.
        before_reading: what it waits for when it is asked next, before it reads the version.
        until: what calls of tools wait for.
        called: the tools that were.
        before_answer: awaited when it has read the version, before it answers.
    """

    era: Era = "legacy"
    version: int = 1
    answers: list[trio.Event | MCPError | None] = field(factory=list)
    descriptions: dict[str, str] = field(factory=dict)
    asked: int = 0
    before_reading: trio.Event | None = None
    until: trio.Event | None = None
    called: list[str] = field(factory=list)
    before_answer: Callable[[], Awaitable[None]] | None = None
    bus: InMemorySubscriptionBus = field(factory=InMemorySubscriptionBus)
    listening: ListenHandler = field(init=False)
    server: Server[Any] = field(init=False)
    session: Any = None

    def __attrs_post_init__(self) -> None:
        self.listening = ListenHandler(self.bus)
        self.server = Server(
            "changing",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_subscriptions_listen=self.listening,
        )

    def config(self, **options: Any) -> ServerConfig:
        """Configure it, under the name ``here``; `options` are those of `ServerConfig`."""
        return ServerConfig("here", InProcess(self.server), protocol=self.era, **options)

    async def list_tools(self, context: Any, _: object) -> ListToolsResult:
        self.session = context.session
        self.asked += 1
        if self.before_reading is not None:
            wait, self.before_reading = self.before_reading, None
            await wait.wait()
        texts = {f"v{self.version}": None, "same": None, **self.descriptions}
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, trio.Event):
            await answer.wait()
        if isinstance(answer, MCPError):
            raise answer
        if self.before_answer is not None:
            await self.before_answer()
        tools = [Tool(name=name, description=text, input_schema={"type": "object"}) for name, text in texts.items()]
        return ListToolsResult(tools=tools, ttl_ms=3_600_000)

    async def call_tool(self, _: object, params: Any) -> CallToolResult:
        self.called.append(params.name)
        if self.until is not None:
            await self.until.wait()
        return CallToolResult(content=[TextContent(text=params.name)])

    async def change(self, *, notices: int = 1) -> None:
        """Change the list, and give notice so many times."""
        self.version += 1
        for _ in range(notices):
            await self.notify()

    async def notify(self) -> None:
        """Say that the list has changed."""
        if self.era == "legacy":
            await self.session.send_tool_list_changed()
        else:
            await self.bus.publish(ToolsListChanged())


def shown(group: ServerGroup) -> list[str]:
    """Return the names of the tools in the catalogue of a group."""
    return [tool.name for tool in group.tools]


async def wait_shown(group: ServerGroup, *names: str, within: float = 600) -> None:
    """Wait until the catalogue shows these tools, by minutes of the mock clock if it must be.

    Raises:
        AssertionError: it does not.
    """
    with trio.move_on_after(within):
        async with group.watch_events() as events:
            while shown(group) != list(names):
                await anext(events)
    assert shown(group) == list(names), f"not within {within} s"
