"""One group of servers, from the connections of a LangChain program, for four agent libraries.

Logs::

    server 'cellar': has failed and is not retried: command 'not-installed' not found; ...

Prints::

    active: kitchen
    failed: cellar
    tools: mcp__kitchen__cook mcp__kitchen__clean_up
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mcp_actors.adapters import (
    McpClient,
    OpenAIAgentsServer,
    PydanticAIToolset,
    langchain_tools,
)
from mcp_actors.bridge import open_servers

PROGRAM = Path(__file__).parent.parent / "servers" / "kitchen.py"


async def main() -> None:
    connections = {
        "kitchen": {
            "transport": "stdio",
            "command": sys.executable,
            "args": [str(PROGRAM)],
        },
        "cellar": {"transport": "stdio", "command": "not-installed"},
    }
    async with open_servers(connections) as servers:
        print("active:", *(server.name for server in servers.active))
        print("failed:", *(server.name for server in servers.failed))
        server = OpenAIAgentsServer(servers)  # for Agent(mcp_servers=[server])
        toolset = PydanticAIToolset(servers)  # for Agent(toolsets=[toolset])
        tools = await langchain_tools(servers)  # for create_agent(model, tools=tools)
        session = McpClient(servers)  # for a library that takes a ClientSession
        print("tools:", *(tool.name for tool in tools))
        del server, toolset, session


asyncio.run(main())
