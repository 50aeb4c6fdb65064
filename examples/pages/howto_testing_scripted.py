"""Test a program with a server that misbehaves on command.

Prints::

    ...                                                                      [100%]
    3 passed in ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcp_actors import (
    Backoff,
    ConnectionLost,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    ServerRef,
    StateChanged,
    open_servers,
)
from mcp_actors.testing import Crash, EventRecorder, Fail, ScriptedServer


async def weather(server: ServerRef, city: str) -> str:
    """The program under test."""
    result = await server.call_tool("weather", {"city": city}, idempotent=True)
    return str(result.structured_content["text"]) if result.structured_content else ""


async def test_a_crash_is_survived(scripted_server: ScriptedServer) -> None:
    scripted_server.add_tool("weather", lambda arguments: {"text": "sunny"})
    scripted_server.inject(Crash())
    config = ServerConfig(
        "w", scripted_server.http(), retry=RetryPolicy(backoff=Backoff())
    )
    async with open_servers(config) as servers:
        assert await weather(servers["w"], "Paris") == "sunny"
    assert len(scripted_server.calls) == 2


async def test_a_lost_server_comes_back(
    scripted_server: ScriptedServer, event_recorder: EventRecorder
) -> None:
    config = ServerConfig(
        "w",
        scripted_server.stdio(),
        restarts=RestartPolicy(backoff=Backoff(first=0.0)),
    )
    async with open_servers(config, observers=[event_recorder]) as servers:
        ready = await event_recorder.wait_for(StateChanged, server="w", new="ready")
        scripted_server.inject(Crash())
        with pytest.raises(ConnectionLost):
            await servers["w"].call_tool("echo", {"text": "hello"})
        await event_recorder.wait_for(
            StateChanged, server="w", new="ready", after=ready
        )


def test_it_works_on_asyncio(
    nothing_left: None,
    mcp_servers: Callable[..., Any],
    scripted_server: ScriptedServer,
) -> None:
    scripted_server.inject(Fail("no such city"))

    async def main() -> None:
        async with mcp_servers(ServerConfig("w", scripted_server.stdio())) as servers:
            with pytest.raises(Exception, match="no such city"):
                await servers["w"].call_tool("echo", {"text": "hello"})

    asyncio.run(main())


if __name__ == "__main__":
    import subprocess
    import sys

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    raise SystemExit(subprocess.call(command))
