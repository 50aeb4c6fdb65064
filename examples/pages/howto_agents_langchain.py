"""One turn of a loop of one's own that gives a model of LangChain the tools of a group. The model is played.

Prints::

    offered: mcp__kitchen__cook
    human: I am hungry
    tool: one omelette
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from mcp.server import MCPServer

from mcp_actors import InProcess, ServerConfig
from mcp_actors.adapters import langchain_tools
from mcp_actors.bridge import AsyncioServerGroup, open_servers

kitchen = MCPServer("kitchen")


@kitchen.tool()
def cook(dish: str) -> str:
    """Cook a dish."""
    return f"one {dish}"


class Played(GenericFakeChatModel):
    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Played:
        print("offered:", *(tool.name for tool in tools))
        return self


async def turn(
    model: Any, messages: list[BaseMessage], servers: AsyncioServerGroup
) -> list[BaseMessage]:
    tools = {
        tool.name: tool
        for tool in await langchain_tools(servers, handle_tool_error=True)
    }
    answer: AIMessage = await model.bind_tools(list(tools.values())).ainvoke(messages)
    results: list[ToolMessage] = [
        await tools[call["name"]].ainvoke(call) for call in answer.tool_calls
    ]
    return [*messages, answer, *results]


async def main() -> None:
    order = {"id": "1", "name": "mcp__kitchen__cook", "args": {"dish": "omelette"}}
    model = Played(messages=iter([AIMessage("", tool_calls=[order])]))
    async with open_servers(ServerConfig("kitchen", InProcess(kitchen))) as servers:
        for message in await turn(model, [HumanMessage("I am hungry")], servers):
            if message.content:
                print(f"{message.type}:", message.content)


asyncio.run(main())
