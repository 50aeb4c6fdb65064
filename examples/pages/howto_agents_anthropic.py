"""A whole program for the tool runner of anthropic. The service is played.

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

import httpx2
from anthropic import AsyncAnthropic
from anthropic.lib.tools.mcp import async_mcp_tool

from mcp_actors import ServerConfig, Stdio
from mcp_actors.adapters import McpClient
from mcp_actors.bridge import open_servers


def played(request: httpx2.Request) -> httpx2.Response:
    """Call one tool, and repeat its result, as the service would."""
    last = json.loads(request.content)["messages"][-1]["content"]
    part: dict[str, Any] = {
        "type": "tool_use",
        "id": "1",
        "name": "mcp__time__get_current_time",
        "input": {"timezone": "Europe/Paris"},
    }
    if not isinstance(last, str):
        part = {"type": "text", "text": last[0]["content"][0]["text"]}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "played",
        "content": [part],
        "stop_reason": "tool_use" if part["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return httpx2.Response(200, json=message)


async def main() -> None:
    time = ServerConfig("time", Stdio("mcp-server-time"))
    network = httpx2.AsyncClient(transport=httpx2.MockTransport(played))
    async with (
        open_servers(time) as servers,
        # With a key, the next line is: AsyncAnthropic() as anthropic,
        AsyncAnthropic(api_key="none", http_client=network) as anthropic,
    ):
        client = McpClient(servers)
        runner = anthropic.beta.messages.tool_runner(
            model="claude-opus-4-8",
            max_tokens=1000,
            messages=[{"role": "user", "content": "What time is it?"}],
            tools=[
                async_mcp_tool(tool, client)
                for tool in (await client.list_tools()).tools
            ],
        )
        print((await runner.until_done()).content[0].text)


asyncio.run(main())
