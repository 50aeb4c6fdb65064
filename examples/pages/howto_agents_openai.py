"""A whole program for the OpenAI Agents SDK. The model is played.

Prints::

    {
      "timezone": "Europe/Paris",
      "datetime": "...",
      "day_of_week": "...",
      "is_dst": ...
    }
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from mcp_actors import ServerConfig, Stdio
from mcp_actors.adapters import OpenAIAgentsServer
from mcp_actors.bridge import open_servers


class Played(Model):
    """Calls one tool, and repeats its result. A real model needs no class."""

    async def get_response(self, *_: Any, **turn: Any) -> ModelResponse:
        last = turn["input"][-1]
        if last.get("type") == "function_call_output":
            [heard] = last["output"]
            text = ResponseOutputText(
                text=heard["text"], type="output_text", annotations=[]
            )
            output: Any = ResponseOutputMessage(
                id="2",
                content=[text],
                role="assistant",
                status="completed",
                type="message",
            )
        else:
            output = ResponseFunctionToolCall(
                type="function_call",
                call_id="1",
                name="mcp__time__get_current_time",
                arguments=json.dumps({"timezone": "Europe/Paris"}),
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def main() -> None:
    time = ServerConfig("time", Stdio("mcp-server-time"))
    async with open_servers(time) as servers:
        agent = Agent(
            name="clock",
            model=Played(),  # a real one here, such as "gpt-5"
            mcp_servers=[OpenAIAgentsServer(servers)],
        )
        offline = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, "What time is it?", run_config=offline)
        print(result.final_output)


asyncio.run(main())
