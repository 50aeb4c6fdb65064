"""An agent of Pydantic AI that uses the servers of a group, one of which dies in the midst of its run.

Failures are reported to the agent, so that it can go on.

The model is played: `think` answers as a model would, so the program needs no key and no network.

Logs::

    server 'kitchen': connection lost: its process was killed by SIGKILL while it was connected

Prints::

    turn 1: offered mcp__kitchen__clean_up, mcp__kitchen__cook
    turn 2: heard one omelette
    the kitchen is killed
    turn 3: heard one soup
    turn 4: heard Error executing tool cook: ...
    I had one omelette and one soup
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from mcp_actors import ServerConfig, StateChanged, Stdio
from mcp_actors.adapters import PydanticAIToolset
from mcp_actors.bridge import AsyncioServerGroup, open_servers

KITCHEN = ServerConfig(
    "kitchen",
    Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")]),
)


async def kill(servers: AsyncioServerGroup) -> None:
    """Kill the server, and wait until that was noticed."""
    pid = servers["kitchen"].statistics().pid
    assert pid is not None
    async with servers.watch_events() as events:
        os.kill(pid, signal.SIGKILL)
        async for event in events:
            if isinstance(event, StateChanged):
                break
    print("the kitchen is killed")


async def main() -> None:
    """Run the agent: it orders three times; once the server dies and comes back, and once the order is wrong."""
    async with open_servers(KITCHEN) as servers:

        async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            parts = [part for message in messages for part in message.parts]
            heard = [
                str(part.content) for part in parts if isinstance(part, ToolReturnPart)
            ]
            match len(heard):
                case 0:
                    print(
                        "turn 1: offered",
                        ", ".join(sorted(tool.name for tool in info.function_tools)),
                    )
                    return ModelResponse(
                        [ToolCallPart("mcp__kitchen__cook", {"dish": "omelette"})]
                    )
                case 1:
                    print("turn 2: heard", heard[-1])
                    await kill(servers)
                    return ModelResponse(
                        [ToolCallPart("mcp__kitchen__cook", {"dish": "soup"})]
                    )
                case 2:
                    print("turn 3: heard", heard[-1])
                    return ModelResponse(
                        [ToolCallPart("mcp__kitchen__cook", {"dish": 7})]
                    )
                case _:
                    print("turn 4: heard", " ".join(heard[-1].split()))
                    return ModelResponse([TextPart(f"I had {' and '.join(heard[:2])}")])

        kitchen = PydanticAIToolset(
            servers, tool_error_behavior="failed", server_error_behavior="failed"
        )
        agent = Agent(FunctionModel(think), toolsets=[kitchen])
        print((await agent.run("I am hungry")).output)


asyncio.run(main())
