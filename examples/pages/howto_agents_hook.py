"""A hook around the tool calls of an agent of Pydantic AI. The model is played.

Prints::

    served: one omelette for Ada
    served: ask the guest for a dish first
"""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from mcp_actors import InProcess, ServerConfig
from mcp_actors.adapters import PydanticAIToolset
from mcp_actors.bridge import open_servers

kitchen = MCPServer("kitchen")


@kitchen.tool()
def cook(dish: str, context: Context[Any]) -> str:
    """Cook a dish."""
    meta: Any = context.request_context.meta
    return f"one {dish} for {meta['guest']}"


async def for_the_guest(
    context: RunContext[str], call_tool: Any, name: str, arguments: dict[str, Any]
) -> Any:
    if not arguments.get("dish"):
        raise ModelRetry("ask the guest for a dish first")
    return await call_tool(name, arguments, metadata={"guest": context.deps})


async def played(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    for part in messages[-1].parts:
        if part.part_kind in ("tool-return", "retry-prompt"):
            return ModelResponse(parts=[TextPart(str(part.content))])
    dish = "omelette" if "omelette" in str(messages[-1]) else ""
    return ModelResponse(parts=[ToolCallPart("mcp__kitchen__cook", {"dish": dish})])


async def main() -> None:
    async with open_servers(ServerConfig("kitchen", InProcess(kitchen))) as servers:
        toolset = PydanticAIToolset(servers, process_tool_call=for_the_guest)
        agent = Agent(FunctionModel(played), deps_type=str, toolsets=[toolset])
        for wish in "an omelette, please", "I am hungry":
            print("served:", (await agent.run(wish, deps="Ada")).output)


asyncio.run(main())
