"""A-11: a server that crashes as soon as it is ready, again and again, costs its siblings nothing that counts."""

from __future__ import annotations

import statistics
from time import perf_counter

from mcp_actors import Backoff, RestartPolicy, open_servers
from mcp_actors.servers import ServerGroup

from .groups import server, state

RESTARTS = 25
CALLS = 50
GENEROUS = 0.05
"""Seconds. A call takes about a millisecond; starting a process at the same time may cost a few more."""


async def latency(servers: ServerGroup) -> float:
    """Call the healthy server once and return the seconds that it took."""
    before = perf_counter()
    await servers["healthy"].call_tool("echo", {"text": "hello"})
    return perf_counter() - before


async def test_a_crash_loop_does_not_slow_a_healthy_sibling_and_spends_its_budget() -> None:
    """A-11: measured against the same server without the loop; the budget is not given back for ever."""
    at_once = RestartPolicy(max_restarts=RESTARTS, backoff=Backoff())
    async with open_servers(server("healthy", required=True)) as servers:
        alone = statistics.median([await latency(servers) for _ in range(CALLS)])
    broken = server("broken", "--die-after-list", restart=at_once)
    async with open_servers(server("healthy", required=True), broken) as servers:
        beside: list[float] = []
        while state(servers, "broken") != "failed":
            beside.append(await latency(servers))
        assert len(beside) > RESTARTS
        assert statistics.median(beside) <= max(3 * alone, GENEROUS)
        assert servers["broken"].statistics().restarts == RESTARTS
        assert servers["healthy"].statistics().restarts == 0
