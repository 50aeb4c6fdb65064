"""An agent on langchain-core that uses the tools of a group, and is told what fails.

The loop asks for the tools at each turn, so it sees what has changed. The model is played: `GenericFakeChatModel` is
LangChain's own, so the program needs no key and no network.

Prints::

    calls mcp__kitchen__cook: one omelette
    calls mcp__kitchen__cook: Error executing tool cook: ...
    says: One omelette is enough.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from mcp_actors import ServerConfig, Stdio
from mcp_actors.adapters import langchain_tools
from mcp_actors.bridge import open_servers

KITCHEN = ServerConfig("kitchen", Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")]))


def order(call_id: str, **arguments: Any) -> AIMessage:
    """What a model answers that wants a tool to be called."""
    return AIMessage("", tool_calls=[{"id": call_id, "name": "mcp__kitchen__cook", "args": arguments}])


ANSWERS = [order("1", dish="omelette"), order("2", dish=7), AIMessage("One omelette is enough.")]


async def main() -> None:
    """Ask the model and call what it asks for, until it asks for nothing."""
    model = GenericFakeChatModel(messages=iter(ANSWERS))
    messages: list[BaseMessage] = [HumanMessage("I am hungry")]
    async with open_servers(KITCHEN) as servers:
        while True:
            tools = {tool.name: tool for tool in await langchain_tools(servers, handle_tool_error=True)}
            answer = await model.ainvoke(messages)  # a real one: model.bind_tools(tools.values()).ainvoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                print("says:", answer.content)
                break
            for call in answer.tool_calls:
                messages.append(await tools[call["name"]].ainvoke(call))
                print(f"calls {call['name']}:", " ".join(str(messages[-1].content).split()))


asyncio.run(main())
