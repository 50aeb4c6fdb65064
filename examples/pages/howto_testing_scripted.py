"""Test a program with a server that misbehaves on command.

Prints::

    ......                                                                   [100%]
    6 passed in ...
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from mcp_actors import (
    Backoff,
    ConnectionLost,
    RequestTimedOut,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    ServerRef,
    StateChanged,
    open_servers,
)
from mcp_actors.testing import (
    Crash,
    EventRecorder,
    Fail,
    Gate,
    Hang,
    ScriptedServer,
)


async def weather(server: ServerRef, city: str) -> str:
    """The program under test."""
    result = await server.call_tool("weather", {"city": city}, idempotent=True)
    return str(result.structured_content["text"]) if result.structured_content else ""


async def test_the_weather_is_asked_for(scripted_server: ScriptedServer) -> None:
    scripted_server.add_tool("weather", lambda arguments: {"text": "sunny"})
    async with open_servers(ServerConfig("w", scripted_server.stdio())) as servers:
        assert await weather(servers["w"], "Paris") == "sunny"
    [call] = scripted_server.calls
    assert call.arguments == {"city": "Paris"}


async def test_a_crash_is_survived(scripted_server: ScriptedServer) -> None:
    scripted_server.add_tool("weather", lambda arguments: {"text": "sunny"})
    scripted_server.inject(Crash())
    config = ServerConfig(
        "w", scripted_server.http(), retry=RetryPolicy(backoff=Backoff())
    )
    async with open_servers(config) as servers:
        assert await weather(servers["w"], "Paris") == "sunny"
    assert len(scripted_server.calls) == 2


async def test_the_time_out_is_an_hour(
    scripted_server: ScriptedServer, autojump_clock: trio.testing.MockClock
) -> None:
    scripted_server.inject(Hang(), times=3)
    config = ServerConfig("w", scripted_server.in_process(), request_timeout=3600)
    async with open_servers(config) as servers:
        with pytest.raises(RequestTimedOut):
            await servers["w"].call_tool("echo", {"text": "hello"})
    assert trio.current_time() == 3600


async def test_two_answers_come_in_the_other_order(
    scripted_server: ScriptedServer,
) -> None:
    first, second = Gate(), Gate()
    scripted_server.inject(first)
    scripted_server.inject(second)
    answers: list[str] = []

    async def ask(server: ServerRef, text: str) -> None:
        await server.call_tool("echo", {"text": text})
        answers.append(text)
        first.open()

    async with (
        open_servers(ServerConfig("w", scripted_server.stdio())) as servers,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask, servers["w"], "one")
        await scripted_server.wait_call(number=1)
        nursery.start_soon(ask, servers["w"], "two")
        await scripted_server.wait_call(number=2)
        second.open()
    assert answers == ["two", "one"]


async def test_a_lost_server_comes_back(
    scripted_server: ScriptedServer, event_recorder: EventRecorder
) -> None:
    config = ServerConfig(
        "w",
        scripted_server.stdio(),
        restart=RestartPolicy(backoff=Backoff(first=0.0)),
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
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    raise SystemExit(subprocess.call(command))
