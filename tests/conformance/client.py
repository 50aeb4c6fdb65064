"""The client that MCP's conformance suite runs, once for each scenario: a program that uses nothing but the public API.

The suite gives it the URL of the server that plays the scenario as its last argument, and the rest in the environment:
``MCP_CONFORMANCE_SCENARIO``, ``MCP_CONFORMANCE_PROTOCOL_VERSION``, and for some scenarios ``MCP_CONFORMANCE_CONTEXT``,
a JSON object. It connects, uses all that the server offers, and leaves. An error that is not a server's answer ends
it with a traceback and an exit code, as it would end any program; the suite knows in which scenarios there may be one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import trio
from mcp import MCPError
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    TextContent,
)

from mcp_actors import Callbacks, CatalogTool, Http, RestartPolicy, ServerConfig, ServerGroup, bridge, open_servers
from mcp_actors.bridge import AsyncioServerGroup
from mcp_actors.config import CallbackContext

from .oauth import authorization

ON_ASYNCIO: Final = "--asyncio"
"""The argument with which it is a program on asyncio, with Trio in a thread."""

EXAMPLES: Final[Mapping[str, Any]] = {"string": "something", "integer": 5, "number": 5, "boolean": True}
"""An argument of each type."""


def configure(url: str, scenario: str, version: str, context: Mapping[str, Any]) -> ServerConfig:
    """Say how to connect to the server of a scenario."""
    return ServerConfig(
        "suite",
        Http(url, auth=authorization(url, scenario, context) if scenario.startswith("auth/") else None),
        protocol="legacy" if version < "2026-07-28" else "auto",
        restarts=RestartPolicy(max_restarts=2),
        # Some scenarios want to see calls that their own schemas do not allow.
        validate="schema" if scenario == "json-schema-ref-no-deref" else "required",
        callbacks=Callbacks(sampling=write_message, elicitation=fill_in, roots=list_roots),
    )


async def write_message(context: CallbackContext, params: CreateMessageRequestParams) -> CreateMessageResult:
    """Write a message in the place of a model."""
    content = TextContent(type="text", text="So be it.")
    return CreateMessageResult(role="assistant", content=content, model="none", stop_reason="endTurn")


async def fill_in(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    """Accept in the place of a user who leaves everything in the form as it is."""
    assert isinstance(params, ElicitRequestFormParams)
    fields = params.requested_schema.get("properties", {})
    content = {name: schema["default"] for name, schema in fields.items() if "default" in schema}
    return ElicitResult(action="accept", content=content)


async def list_roots(context: CallbackContext) -> ListRootsResult:
    """Let the server look at nothing."""
    return ListRootsResult(roots=[])


def tool_calls(tools: Iterable[CatalogTool], context: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls that the scenario asks for; or one of each tool, with an argument for all that it requires."""
    if "toolCalls" in context:
        yield from ((call["name"], call["arguments"]) for call in context["toolCalls"])
        return
    listed = list(tools)
    for tool in listed:
        if tool.name == "json_schema_echo":
            yield tool.name, {"schema": listed[0].input_schema}  # is it what the server has sent?
        else:
            properties = tool.input_schema.get("properties", {})
            yield tool.name, {name: example(properties[name]) for name in tool.input_schema.get("required", ())}


def example(schema: Mapping[str, Any]) -> Any:
    """Return a value that a schema allows."""
    return schema["default"] if "default" in schema else EXAMPLES[schema.get("type", "string")]


async def use_everything(servers: ServerGroup | AsyncioServerGroup, context: Mapping[str, Any]) -> None:
    """Use all that the server offers."""
    server = servers["suite"]
    for name, arguments in tool_calls(servers.tools, context):
        try:
            print(name, await server.call_tool(name, arguments))
        except MCPError as error:
            print(name, "was answered with an error:", error)
    for resource in await server.list_resources():
        print(resource.uri, await server.read_resource(resource.uri))
    for prompt in await server.list_prompts():
        print(prompt.name, await server.get_prompt(prompt.name))


async def main(door: AbstractAsyncContextManager[ServerGroup | AsyncioServerGroup], context: Mapping[str, Any]) -> None:
    """Play the client's part in one scenario, on Trio or on asyncio."""
    async with door as servers:
        await use_everything(servers, context)


if __name__ == "__main__":
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    scenario, version = os.environ["MCP_CONFORMANCE_SCENARIO"], os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    config = configure(sys.argv[-1], scenario, version, context)
    if ON_ASYNCIO in sys.argv:
        asyncio.run(main(bridge.open_servers(config, strict=True), context))
    else:
        trio.run(main, open_servers(config, strict=True), context)
