"""A LangChain agent that is built once and sees the current tools of the group at every turn.

The model is LangChain's own `GenericFakeChatModel`, so the program needs no API key and no network.

Prints::

    offered: mcp__kitchen__cook, open_bakery
    heard: the bakery is ready
    offered: mcp__bakery__cook, mcp__kitchen__cook, open_bakery
    heard: Error executing tool cook: ...
    offered: mcp__bakery__cook, mcp__kitchen__cook, open_bakery
    heard: one baguette
    offered: mcp__bakery__cook, mcp__kitchen__cook, open_bakery
    says: One baguette is enough.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from mcp_actors import ServerConfig, Stdio, ToolFilter
from mcp_actors.adapters import LangChainMiddleware
from mcp_actors.bridge import open_servers

COOK = Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")])
KITCHEN = ServerConfig("kitchen", COOK, tool_filter=ToolFilter(allow=["cook"]))
BAKERY = ServerConfig("bakery", COOK, tool_filter=ToolFilter(allow=["cook"]))


def call(call_id: str, name: str, **arguments: Any) -> AIMessage:
    """Return the message of a model that calls a tool."""
    return AIMessage("", tool_calls=[{"id": call_id, "name": name, "args": arguments}])


ANSWERS = [
    call("1", "open_bakery"),
    call("2", "mcp__bakery__cook", dish=7),
    call("3", "mcp__bakery__cook", dish="baguette"),
    AIMessage("One baguette is enough."),
]


class Played(GenericFakeChatModel):
    """LangChain's own fake model, which tells what it is offered."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Played:
        """Take the tools of a turn."""
        print("offered:", ", ".join(sorted(tool.name for tool in tools)))
        return self


async def main() -> None:
    """Run an agent whose own tool starts a server."""
    async with open_servers(KITCHEN, BAKERY) as servers:
        await servers["bakery"].stop()

        async def open_bakery() -> str:
            """Open the bakery."""
            await servers["bakery"].start()
            return f"the bakery is {servers['bakery'].state}"

        agent = create_agent(
            Played(messages=iter(ANSWERS)),
            tools=[open_bakery],
            middleware=[LangChainMiddleware(servers, handle_tool_error=True)],
        )
        async for step in agent.astream(
            {"messages": [HumanMessage("I am hungry")]}, stream_mode="updates"
        ):
            [update] = step.values()
            for message in update["messages"]:
                if isinstance(message, ToolMessage):
                    print("heard:", " ".join(str(message.content).split()))
                elif message.content:
                    print("says:", message.content)


asyncio.run(main())
