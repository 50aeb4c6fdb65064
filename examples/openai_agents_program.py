"""Agents of the OpenAI Agents SDK that share the servers of one group; only the chef's may clean up.

`Cook` plays the model, so the program needs no API key and no network.

Prints::

    the chef may use mcp__kitchen__clean_up, mcp__kitchen__cook
    chef: one omelette
    the guest may use mcp__kitchen__cook
    guest: one soup
    the critic may use mcp__kitchen__cook
    critic: It did not work: ... 'dish'...
    the kitchen is still ready
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from mcp_actors import CatalogTool, ServerConfig, Stdio, ToolFilter
from mcp_actors.adapters import OpenAIAgentsServer
from mcp_actors.bridge import open_servers
from mcp_actors.config import ToolContext


def may_use(tool: CatalogTool, context: ToolContext) -> bool:
    """Return whether an agent is shown a tool; the context has the SDK's agent and its run."""
    return tool.name == "cook" or context.agent.name == "chef"


KITCHEN = ServerConfig(
    "kitchen",
    Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")]),
    tool_filter=ToolFilter(predicate=may_use),
)


class Cook(Model):
    """A model that calls one tool, and then says what came of it."""

    def __init__(self, who: str, order: dict[str, str]) -> None:
        self.who = who
        self.order = order

    async def get_response(self, *_: Any, **asked: Any) -> ModelResponse:
        """Answer: the first time with a call, the second time with words."""
        results = [
            item["output"]
            for item in asked["input"]
            if item.get("type") == "function_call_output"
        ]
        if not results:
            print(
                f"the {self.who} may use {', '.join(sorted(tool.name for tool in asked['tools']))}"
            )
            output: Any = ResponseFunctionToolCall(
                type="function_call",
                call_id="1",
                name="mcp__kitchen__cook",
                arguments=json.dumps(self.order),
            )
        else:
            heard = results[0] if isinstance(results[0], str) else results[0][0]["text"]
            text = ResponseOutputText(type="output_text", text=heard, annotations=[])
            output = ResponseOutputMessage(
                id="2",
                type="message",
                role="assistant",
                status="completed",
                content=[text],
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Not needed here."""
        raise NotImplementedError


def tell(context: Any, error: Exception) -> str:
    """Put a call that failed into words for the model."""
    return f"It did not work: {error}"


async def serve(kitchen: OpenAIAgentsServer, name: str, order: dict[str, str]) -> str:
    """Run an agent."""
    agent = Agent(name=name, mcp_servers=[kitchen], model=Cook(name, order))
    result = await Runner.run(
        agent, "I am hungry", run_config=RunConfig(tracing_disabled=True)
    )
    return f"{name}: {result.final_output}"


async def main() -> None:
    """Let both agents use the same connection."""
    async with open_servers(KITCHEN) as servers:
        kitchen = OpenAIAgentsServer(servers, failure_error_function=tell)
        print(await serve(kitchen, "chef", {"dish": "omelette"}))
        print(await serve(kitchen, "guest", {"dish": "soup"}))
        print(await serve(kitchen, "critic", {}))
        print(f"the kitchen is still {servers['kitchen'].state}")


# The SDK logs failures too; here the critic reports them.
logging.getLogger("openai.agents").setLevel(logging.CRITICAL)
asyncio.run(main())
