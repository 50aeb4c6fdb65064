"""Two agents of the OpenAI Agents SDK that share the servers of one group; the guest's agent may not clean up.

The model is played: `Cook` answers as a model would, so the program needs no key and no network.

Prints::

    the chef may use mcp__kitchen__clean_up, mcp__kitchen__cook
    the guest may use mcp__kitchen__cook
    chef: one omelette
    guest: one soup
    the kitchen is still ready
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from mcp_actors import CatalogTool, ServerConfig, Stdio, ToolFilter
from mcp_actors.adapters import OpenAIAgentsServer
from mcp_actors.bridge import open_servers
from mcp_actors.config import ToolContext


def may_use(tool: CatalogTool, context: ToolContext) -> bool:
    """Whether an agent is shown a tool; the context holds the SDK's agent, and its run."""
    return tool.name == "cook" or context.agent.name == "chef"


KITCHEN = ServerConfig(
    "kitchen",
    Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")]),
    tools=ToolFilter(predicate=may_use),
)


class Cook(Model):
    """A model that calls one tool, and then says what came of it."""

    def __init__(self, who: str, dish: str) -> None:
        self.who = who
        self.dish = dish

    async def get_response(self, *_: Any, **asked: Any) -> ModelResponse:
        """Answer: the first time with a call, the second time with words."""
        results = [item["output"] for item in asked["input"] if item.get("type") == "function_call_output"]
        if not results:
            print(f"the {self.who} may use {', '.join(sorted(tool.name for tool in asked['tools']))}")
            arguments = json.dumps({"dish": self.dish})
            output: Any = ResponseFunctionToolCall(
                type="function_call", call_id="1", name="mcp__kitchen__cook", arguments=arguments
            )
        else:
            text = ResponseOutputText(type="output_text", text=results[0][0]["text"], annotations=[])
            output = ResponseOutputMessage(id="2", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Not needed here."""
        raise NotImplementedError


async def serve(kitchen: OpenAIAgentsServer, name: str, dish: str) -> str:
    """Run an agent."""
    agent = Agent(name=name, mcp_servers=[kitchen], model=Cook(name, dish))
    result = await Runner.run(agent, f"one {dish}, please", run_config=RunConfig(tracing_disabled=True))
    return f"{name}: {result.final_output}"


async def main() -> None:
    """Let both agents use the same connection."""
    async with open_servers(KITCHEN) as servers:
        kitchen = OpenAIAgentsServer(servers)
        chef = await serve(kitchen, "chef", "omelette")
        guest = await serve(kitchen, "guest", "soup")
        print(chef, guest, f"the kitchen is still {servers['kitchen'].state}", sep="\n")


asyncio.run(main())
