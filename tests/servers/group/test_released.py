"""A server that was removed is held by nothing of its group."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from trio.testing import wait_all_tasks_blocked

from mcp_actors import InProcess, ServerConfig, Stdio, open_servers
from mcp_actors.servers._deadlines import Deadlines, DeadlineTimer

from ..scripted_server import command


def configured(kind: str, **options: Any) -> ServerConfig:
    if kind == "in process":
        return ServerConfig("a", InProcess(MCPServer("a")), **options)
    program, args = command()
    return ServerConfig("a", Stdio(program, args, env={"API_KEY": "s3cret-s3cret"}), protocol="legacy", **options)


@pytest.mark.parametrize("seconds", [60.0, None])
@pytest.mark.parametrize("kind", ["in process", "stdio", "replicas"])
async def test_the_credentials_of_a_removed_server_are_released_at_once(kind: str, seconds: float | None) -> None:
    """D-56: whatever its request_timeout, and although other servers are used."""
    limits = {"request_timeout": seconds, "progress_timeout": seconds}
    async with open_servers(ServerConfig("other", InProcess(MCPServer("other")))) as group:
        config = configured(kind, **limits, **({"replicas": 2} if kind == "replicas" else {}))
        gone: list[weakref.ref[Any]] = [weakref.ref(each) for each in (config, config.transport)]
        await group.add(config)
        del config
        await group["a"].wait_state("ready")
        gone.append(weakref.ref(group._roster.records["a"]))
        await group["a"].list_tools()
        await group["other"].list_tools()
        await group.remove("a")
        await wait_all_tasks_blocked()
        gc.collect()  # the parts of a record refer to each other
        assert [each() for each in gone] == [None] * 3
        await group["other"].list_tools()


async def test_progress_that_comes_after_the_end_of_a_request_keeps_nothing() -> None:
    """D-56: its caller has left, and the server has not read that yet."""
    timer = DeadlineTimer()
    deadlines = Deadlines("a", 60.0, 60.0, timer)
    with deadlines.begin("tools/call") as deadline:
        deadline.renew()
        assert [*timer.used] == [deadlines]
    deadline.renew()
    assert (len(deadlines._idle), [*timer.used]) == (0, [])
