"""The floor: a client on Trio's pipes that does what a call needs, validates the result, and nothing else.

It has no cancellation, no time-out, no limits and no partial writes, and it ends with its server.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field
from mcp.types import CallToolResult


@define(eq=False)
class Request:
    """A request that waits for its answer."""

    answered: trio.Event = field(factory=trio.Event)
    answer: Any = None


@define(eq=False)
class ByHand:
    """A connection over two pipes."""

    _stdin: int
    _stdout: int
    _waiting: dict[int, Request] = field(factory=dict, init=False)
    _last: int = field(default=0, init=False)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool."""
        result = await self.ask("tools/call", {"name": name, "arguments": arguments})
        return CallToolResult.model_validate(result, by_name=False)

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result."""
        self._last += 1
        request = self._waiting[self._last] = Request()
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        os.write(self._stdin, json.dumps(message).encode() + b"\n")
        await request.answered.wait()
        return request.answer["result"]

    async def read(self) -> None:
        """Wake the callers whose answers arrive, until stdout ends."""
        begun = b""
        while True:
            await trio.lowlevel.wait_readable(self._stdout)
            data = os.read(self._stdout, 64 * 1024)
            if not data:
                return
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                request = self._waiting.pop(answer["id"])
                request.answer = answer
                request.answered.set()


@asynccontextmanager
async def open_by_hand(command: Sequence[str]) -> AsyncIterator[ByHand]:
    """Start a server, and connect to it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:  # noqa: ASYNC220 - it takes a millisecond
        assert process.stdin is not None
        assert process.stdout is not None
        client = ByHand(process.stdin.fileno(), process.stdout.fileno())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            await client.ask("initialize", {"protocolVersion": "2025-06-18"})
            yield client
            process.stdin.close()
