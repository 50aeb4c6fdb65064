"""mcp_actors on Trio: docs/tutorial.md, examples/one_server.py, docs/howto/timeouts.md.

The only server of a program is `required`, as in the example; one of several is not.
"""

from __future__ import annotations

import json
from typing import Any

import trio

from mcp_actors import Http, ServerConfig, Stdio, open_servers

from ..driver import Report, Servers, carry_out, describe, say, text_of


def configure(servers: Servers) -> list[ServerConfig]:
    """Return the configurations of the servers."""
    configs = []
    for name, each in servers.items():
        transport = Http(each["url"]) if "url" in each else Stdio(each["command"], each["args"])
        options: dict[str, Any] = {"required": len(servers) == 1}
        if each["timeout"] is not None:
            options["request_timeout"] = each["timeout"]
        configs.append(ServerConfig(name, transport, **options))
    return configs


class Group:
    """A group of servers."""

    def __init__(self, servers: Any) -> None:
        self._servers = servers

    async def list_tools(self, server: str) -> list[str]:
        """Return the names of the tools that it shows."""
        return [tool.name for tool in await self._servers[server].list_tools()]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        return text_of(await self._servers[server].call_tool(tool, arguments))

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress."""
        text_of(await self._servers[server].call_tool(tool, {}, progress=report))


async def answer(group: Group, command: dict[str, Any], scope: trio.CancelScope) -> None:
    """Carry out a command in a task of its own."""
    with scope:
        try:
            say(command["id"], ok=await carry_out(group, command))
        except Exception as error:
            say(command["id"], error=describe(error))
    if scope.cancelled_caught:
        say(command["id"], error="cancelled")


async def serve(servers: Servers) -> None:
    """Serve the commands on Trio."""
    stdin = trio.lowlevel.FdStream(0)
    rest = b""
    command: dict[str, Any] = {"do": "wait"}
    scopes: dict[int, trio.CancelScope] = {}

    async def read() -> dict[str, Any]:
        nonlocal rest
        while b"\n" not in rest:
            rest += (await stdin.receive_some()) or b'{"do": "close", "id": -1}\n'
        line, rest = rest.split(b"\n", 1)
        return dict(json.loads(line))

    command = await read()
    try:
        async with trio.open_nursery() as nursery, open_servers(*configure(servers)) as group:
            say(command["id"], ok="open")
            while (command := await read())["do"] != "close":
                if command["do"] == "cancel":
                    scopes[command["of"]].cancel("the caller has left")
                else:
                    scopes[command["id"]] = trio.CancelScope()
                    nursery.start_soon(answer, Group(group), command, scopes[command["id"]])
        say(command["id"], ok="closed")
    except Exception as error:
        say(command["id"], error=describe(error))


def run(servers: Servers) -> None:
    """Run on Trio."""
    trio.run(serve, servers)
