"""The tool runner of the anthropic SDK, with its own helpers for MCP clients, on the servers of a group.

The service is played: `answer` takes the place of the network, so the program needs no key.

Prints::

    offered: mcp__kitchen__cook, mcp__kitchen__clean_up
    heard: one omelette
    says: Thank you.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from anthropic.lib.tools.mcp import async_mcp_tool

from mcp_actors import ServerConfig, Stdio
from mcp_actors.adapters import McpClient
from mcp_actors.bridge import open_servers

KITCHEN = ServerConfig(
    "kitchen",
    Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")]),
)


def answer(request: httpx2.Request) -> httpx2.Response:
    """Answer as the service does: first with a call, then with words."""
    asked = json.loads(request.content)
    last = asked["messages"][-1]["content"]
    if isinstance(last, str):
        print("offered:", ", ".join(tool["name"] for tool in asked["tools"]))
        return message(
            {
                "type": "tool_use",
                "id": "1",
                "name": "mcp__kitchen__cook",
                "input": {"dish": "omelette"},
            }
        )
    print("heard:", last[0]["content"][0]["text"])
    return message({"type": "text", "text": "Thank you."})


def message(part: dict[str, Any]) -> httpx2.Response:
    """Make a message of the model of one part."""
    reason = "tool_use" if part["type"] == "tool_use" else "end_turn"
    head = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "played",
        "stop_sequence": None,
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    return httpx2.Response(
        200, json={**head, "content": [part], "stop_reason": reason, "usage": usage}
    )


async def run(runner: Any, client: McpClient) -> Any:
    """Run the tools that the model calls, and pass it the changed tools each turn."""
    known = {tool.name: tool for tool in (await client.list_tools()).tools}
    last = None
    async for message in runner:
        # Run the tools now, so that their changes are seen below.
        await runner.generate_tool_call_response()
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        runner.remove_tools(*(known.keys() - tools.keys()))
        runner.add_tools(
            *(
                async_mcp_tool(tool, client)
                for name, tool in tools.items()
                if known.get(name) != tool
            )
        )
        last, known = message, tools
    return last


async def main() -> None:
    """Ask the model, until it asks for no more tools."""
    played = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with (
        open_servers(KITCHEN) as servers,
        AsyncAnthropic(api_key="none", http_client=played) as anthropic,
    ):
        client = McpClient(servers)
        runner = anthropic.beta.messages.tool_runner(
            model="played",
            max_tokens=100,
            thread=False,
            betas=["inline-tools-2026-09-15"],
            messages=[{"role": "user", "content": "I am hungry"}],
            tools=[
                async_mcp_tool(tool, client)
                for tool in (await client.list_tools()).tools
            ],
        )
        last = await run(runner, client)
        print("says:", last.content[0].text)


asyncio.run(main())
