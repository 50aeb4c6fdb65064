"""A whole program for an agent of LangChain. The model is played.

Prints::

    human: What time is it?
    ai: I look at the clock.
    tool: {
      "timezone": "Europe/Paris",
      "datetime": "...",
      "day_of_week": "...",
      "is_dst": ...
    }
    ai: See above.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from mcp_actors import ServerConfig, Stdio
from mcp_actors.adapters import LangChainMiddleware
from mcp_actors.bridge import open_servers


class Played(GenericFakeChatModel):
    """Calls one tool, then says a sentence. A real model needs no class."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


CALL = {
    "id": "1",
    "name": "mcp__time__get_current_time",
    "args": {"timezone": "Europe/Paris"},
}


async def main() -> None:
    time = ServerConfig("time", Stdio("mcp-server-time"))
    says = [
        AIMessage("I look at the clock.", tool_calls=[CALL]),
        AIMessage("See above."),
    ]
    async with open_servers(time) as servers:
        agent = create_agent(
            Played(messages=iter(says)),  # a real one here, such as "openai:gpt-5"
            middleware=[LangChainMiddleware(servers)],
        )
        asked = {"messages": [{"role": "user", "content": "What time is it?"}]}
        for message in (await agent.ainvoke(asked))["messages"]:
            print(f"{message.type}: {message.text}")


asyncio.run(main())
