"""An agent of the OpenAI Agents SDK reads the instructions of a server. The model is played.

Prints::

    You are the waiter.

    Instructions of the MCP server 'kitchen':
    Ask for allergies before you cook.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from mcp.server.mcpserver import MCPServer
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from mcp_actors import InProcess, ServerConfig
from mcp_actors.adapters import OpenAIAgentsServer
from mcp_actors.bridge import open_servers

program = MCPServer("kitchen", instructions="Ask for allergies before you cook.")


@program.tool()
def cook(dish: str) -> str:
    """Cook a dish."""
    return f"one {dish}"


class Played(Model):
    async def get_response(
        self, system_instructions: str | None, *_: Any, **__: Any
    ) -> ModelResponse:
        print(system_instructions)
        text = ResponseOutputText(
            text="Good evening", type="output_text", annotations=[]
        )
        answer = ResponseOutputMessage(
            id="1", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[answer], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def main() -> None:
    async with open_servers(ServerConfig("kitchen", InProcess(program))) as servers:
        kitchen = OpenAIAgentsServer(servers)
        agent = Agent(
            name="waiter",
            instructions=kitchen.instructions("You are the waiter."),
            mcp_servers=[kitchen],
            model=Played(),
        )
        await Runner.run(agent, "Hello", run_config=RunConfig(tracing_disabled=True))


asyncio.run(main())
