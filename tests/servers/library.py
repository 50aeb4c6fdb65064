"""A server of the SDK with everything that MCP has, page by page; it keeps what it was asked."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import anyio
import uvicorn
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.types import (
    LOG_LEVEL_META_KEY,
    Annotations,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    UnsubscribeRequestParams,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from mcp_actors import InProcess, ServerConfig
from tests.forkserver import interpreter

T = TypeVar("T")

RESOURCE_NOT_FOUND: Final = -32002

PAGE: Final = 2
"""Items on a page."""

RESOURCES: Final = [
    Resource(
        uri=f"file:///{name}",
        name=name,
        mime_type="text/plain",
        annotations=Annotations(audience=["user"], priority=0.5),
    )
    for name in ("a", "b", "c", "d", "e")
]

TEMPLATES: Final = [
    ResourceTemplate(uri_template=f"{name}:///{{key}}", name=name, annotations=Annotations(priority=1.0))
    for name in ("row", "page", "user")
]

PROMPTS: Final = [
    Prompt(name=f"prompt_{number}", arguments=[PromptArgument(name="topic", required=True)]) for number in range(5)
]

TOOL: Final = Tool(
    name="search",
    input_schema={"type": "object"},
    output_schema={"type": "object", "properties": {"found": {"type": "integer"}}},
    annotations=ToolAnnotations(read_only_hint=True),
    _meta={"acme/tier": "gold"},
)

LANGUAGES: Final = ("python", "pascal", "perl", "prolog")


class Library:
    """The server, and what it was asked: ``(method, what of it)``.

    Attributes:
        tools: what it lists.
        resources: its resources.
        levels: the log level that each request of the modern era brought along, in order.
        failing: what the requests of a method are answered with, in order, before anything else.
        sessions: in the legacy era, those over which it was asked for its tools.
        subscribed: in the legacy era, which resources, and over which session.
    """

    def __init__(self, instructions: str | None = None, **handlers: Any) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.levels: list[object] = []
        self.tools = [TOOL]
        self.resources = list(RESOURCES)
        self.failing: dict[str, list[MCPError]] = {}
        self.subscribed: dict[str, ServerSession] = {}
        self.sessions: list[ServerSession] = []
        self.bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self.bus)
        everything: dict[str, Any] = {
            "on_list_tools": self.list_tools,
            "on_call_tool": self.call_tool,
            "on_list_resources": self.list_resources,
            "on_list_resource_templates": self.list_templates,
            "on_read_resource": self.read,
            "on_list_prompts": self.list_prompts,
            "on_get_prompt": self.get_prompt,
            "on_completion": self.complete,
            "on_set_logging_level": self.set_level,
            "on_subscribe_resource": self.subscribe,
            "on_unsubscribe_resource": self.unsubscribe,
            "on_subscriptions_listen": self.listen,
        }
        with warnings.catch_warnings():  # the SDK warns about a server that can log
            warnings.simplefilter("ignore")
            self.server: Server[Any] = Server(
                "library", version="1.0", instructions=instructions, **{**everything, **handlers}
            )

    def config(self, name: str = "library", **options: Any) -> ServerConfig:
        """Configure it; `options` are those of `ServerConfig`."""
        return ServerConfig(name, InProcess(self.server), **options)

    def methods(self) -> list[str]:
        """The methods that it was asked for, in order, but for what belongs to a connect."""
        return [method for method, _ in self.asked if method != "tools/list"]

    def note(self, ctx: ServerRequestContext[Any, Any], method: str, about: object = None) -> None:
        """Remember a request, and fail if it is to fail."""
        self.asked.append((method, about))
        self.levels.append(dict(ctx.meta or {}).get(LOG_LEVEL_META_KEY))
        if self.failing.get(method):
            raise self.failing[method].pop(0)

    def page(
        self,
        ctx: ServerRequestContext[Any, Any],
        method: str,
        params: PaginatedRequestParams | None,
        items: Sequence[T],
    ) -> tuple[list[T], str | None]:
        """Return a page, and the cursor of the next one."""
        cursor = params.cursor if params is not None else None
        self.note(ctx, method, cursor)
        start = int(cursor or 0)
        end = start + PAGE
        return list(items[start:end]), str(end) if end < len(items) else None

    async def change(self, uri: str) -> None:
        """Notify subscribers that a resource has changed; of a part of one in the legacy era only."""
        for each, session in self.subscribed.items():
            if uri.startswith(each):
                await session.send_resource_updated(uri)
        await self.bus.publish(ResourceUpdated(uri))

    # --- the handlers -----------------------------------------------------------------------------------------------

    async def list_tools(self, ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        self.note(ctx, "tools/list")
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS and ctx.session not in self.sessions:
            self.sessions = [ctx.session]
        return ListToolsResult(tools=self.tools)

    async def call_tool(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        self.note(ctx, "tools/call", params.name)
        if params.name == "change":
            await self.change((params.arguments or {})["uri"])
        if params.name == "end":
            os._exit(0)
        return CallToolResult(content=[TextContent(type="text", text="found")], structured_content={"found": 1})

    async def list_resources(self, ctx: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        resources, cursor = self.page(ctx, "resources/list", params, self.resources)
        return ListResourcesResult(resources=resources, next_cursor=cursor)

    async def list_templates(self, ctx: Any, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        templates, cursor = self.page(ctx, "resources/templates/list", params, TEMPLATES)
        return ListResourceTemplatesResult(resource_templates=templates, next_cursor=cursor)

    async def read(self, ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        self.note(ctx, "resources/read", params.uri)
        if params.uri == "file:///missing":
            raise MCPError(RESOURCE_NOT_FOUND, "no such resource", {"uri": params.uri})
        return ReadResourceResult(
            contents=[
                TextResourceContents(uri=params.uri, mime_type="text/plain", text=f"text of {params.uri}"),
                BlobResourceContents(uri=params.uri, mime_type="image/png", blob="iVBORw0="),
            ]
        )

    async def list_prompts(self, ctx: Any, params: PaginatedRequestParams | None) -> ListPromptsResult:
        prompts, cursor = self.page(ctx, "prompts/list", params, PROMPTS)
        return ListPromptsResult(prompts=prompts, next_cursor=cursor)

    async def get_prompt(self, ctx: Any, params: GetPromptRequestParams) -> GetPromptResult:
        self.note(ctx, "prompts/get", params.name)
        text = f"{params.name}: {params.arguments}"
        return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(type="text", text=text))])

    async def complete(self, ctx: Any, params: CompleteRequestParams) -> CompleteResult:
        known = None if params.context is None else params.context.arguments
        self.note(ctx, "completion/complete", (params.ref, params.argument.name, known))
        values = [language for language in LANGUAGES if language.startswith(params.argument.value)]
        return CompleteResult(completion=Completion(values=values, total=len(values), has_more=False))

    async def set_level(self, ctx: Any, params: SetLevelRequestParams) -> EmptyResult:
        self.note(ctx, "logging/setLevel", params.level)
        return EmptyResult()

    async def subscribe(self, ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
        self.note(ctx, "resources/subscribe", params.uri)
        self.subscribed[params.uri] = ctx.session
        return EmptyResult()

    async def unsubscribe(self, ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
        self.note(ctx, "resources/unsubscribe", params.uri)
        del self.subscribed[params.uri]
        return EmptyResult()

    async def listen(self, ctx: Any, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        uris = params.notifications.resource_subscriptions
        if uris:
            self.note(ctx, "subscriptions/listen", tuple(uris))
        return await self.listening(ctx, params)


def command() -> tuple[str, tuple[str, ...]]:
    """Return the command and the arguments that run this server in a process, over stdio."""
    return interpreter(), ("-m", "tests.servers.library")


def main() -> None:
    """Serve it over stdio; or over HTTP on the port that is given (0: a free one), which is printed first."""
    library = Library()
    if len(sys.argv) == 1:
        anyio.run(serve_stdio, library.server, backend="trio")
        return
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[1])))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(library.server.streamable_http_app(), log_level="warning")).run(sockets=[listener])


async def serve_stdio(server: Server[Any]) -> None:
    """Serve over stdin and stdout until stdin ends."""
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    main()
