"""The servers of a group as the tools of an agent.

Prints::

    success (no tool calls)
"""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from mcp_actors import ServerConfig, Stdio
from mcp_actors.adapters import PydanticAIToolset
from mcp_actors.bridge import open_servers


async def main() -> None:
    async with open_servers(ServerConfig("time", Stdio("mcp-server-time"))) as servers:
        model = TestModel(call_tools=[])  # a real one here
        agent = Agent(model, toolsets=[PydanticAIToolset(servers)])
        print((await agent.run("What time is it in Paris?")).output)


asyncio.run(main())
