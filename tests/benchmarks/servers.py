"""Measure a tool call over stdio, with and without this package, all with the same server.

The floor is a blocking pipe and `json`, with no library at all; everything is a ratio to it. Between is the SDK's own
client over its own stdio transport, on Trio.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp_actors import ServerConfig, Stdio, open_servers

from ..servers import scripted_server
from .figures import Figure
from .measuring import in_turns, median_ratio

ROUNDS: Final = 11
CALLS: Final = 512
"""Per round: about a tenth of a second for the SDK's client."""

CALLERS: Final = (1, 16, 128)
ARGUMENTS: Final = {"text": "hello"}

Call = Callable[[str, dict[str, Any]], Awaitable[object]]


class Pipe:
    """The floor: write a line, read a line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._id = 0
        self.ask("initialize", {"protocolVersion": "2025-06-18"})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask and wait for the answer."""
        self._id += 1
        self._stdin.write(json.dumps({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}).encode())
        self._stdin.write(b"\n")
        self._stdin.flush()
        return json.loads(self._stdout.readline())

    async def make_calls(self) -> None:
        """A round of calls. It blocks everything else, which is why it is the floor."""
        for _ in range(CALLS):
            self.ask("tools/call", {"name": "echo", "arguments": ARGUMENTS})


@contextmanager
def pipe() -> Iterator[Pipe]:
    """Start the server and talk to it without any library."""
    command, arguments = scripted_server.command()
    with subprocess.Popen([command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Pipe(process)


async def repeat(call: Call, times: int) -> None:
    """One caller, again and again."""
    for _ in range(times):
        await call("echo", ARGUMENTS)


async def make_calls(call: Call, callers: int) -> None:
    """A round of calls, shared among tasks."""
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(repeat, call, CALLS // callers)


async def measure() -> list[Figure]:
    """Measure all of it in one run, with a server process for each contestant."""
    command, arguments = scripted_server.command()
    parameters = StdioServerParameters(command=command, args=list(arguments))
    config = ServerConfig("scripted", Stdio(command, arguments), protocol="legacy", required=True)
    with pipe() as floor:
        async with Client(stdio_client(parameters), mode="legacy") as client, open_servers(config) as servers:
            contestants: dict[str, Call] = {"mcp.Client": client.call_tool, "ServerRef": servers["scripted"].call_tool}
            names = [(f"{name}, {callers} callers", name, callers) for callers in CALLERS for name in contestants]
            rounds = {label: partial(make_calls, contestants[name], callers) for label, name, callers in names}
            seconds = await in_turns({"pipe": floor.make_calls, **rounds}, rounds=ROUNDS)
    yardstick = seconds.pop("pipe")
    microseconds = sorted(yardstick)[ROUNDS // 2] / CALLS * 1e6
    return [Figure("a call over a blocking pipe, the yardstick", microseconds, "µs")] + [
        Figure(f"a tool call over stdio: {name}", median_ratio(each, yardstick), "pipes")
        for name, each in seconds.items()
    ]


def figures() -> list[Figure]:
    """Measure a tool call."""
    return trio.run(measure)
