"""A-11: a server that crashes as soon as it is ready, again and again, costs its siblings nothing that counts."""

from __future__ import annotations

import statistics
from pathlib import Path
from time import thread_time

from mcp_actors import Backoff, RestartPolicy, open_servers
from mcp_actors.servers import ServerGroup

from .groups import after, server, state

RESTARTS = 10
CALLS = 20
GENEROUS = 0.05
"""Seconds of processor time. A call takes about a millisecond; starting a process meanwhile may cost a few more."""


async def cost(servers: ServerGroup) -> float:
    """Call the healthy server once, and return the processor time of this thread until the answer."""
    before = thread_time()
    await servers["healthy"].call_tool("echo", {"text": "hello"})
    return thread_time() - before


async def test_a_crash_loop_does_not_slow_a_healthy_sibling_and_spends_its_budget(tmp_path: Path) -> None:
    """A-11: measured against the same server without the loop; the budget is not given back for ever.

    Each process of the other one waits for one more call to be answered, so calls are answered during each start.
    """
    at_once = RestartPolicy(max_restarts=RESTARTS, backoff=Backoff())
    async with open_servers(server("healthy", required=True)) as servers:
        alone = statistics.median([await cost(servers) for _ in range(CALLS)])
    starts, answers = tmp_path / "starts", tmp_path / "answers"
    answers.write_text("\n")  # for the first start, which is awaited
    wait = f"echo >> '{starts}'; while [ $(wc -l < '{answers}') -lt $(wc -l < '{starts}') ]; do sleep 0.01; done"
    broken = after("broken", wait, "--die-after-list", restarts=at_once)
    async with open_servers(server("healthy", required=True), broken) as servers:
        beside: list[float] = []
        while state(servers, "broken") != "failed":
            beside.append(await cost(servers))
            with answers.open("a") as file:
                file.write("\n")
        assert len(beside) >= RESTARTS
        assert statistics.median(beside) <= max(3 * alone, GENEROUS)
        assert servers["broken"].statistics().restarts == RESTARTS
        assert servers["healthy"].statistics().restarts == 0
