"""Servers that hang, with nothing configured: how soon that is noticed, and what is left alone for how long."""

from __future__ import annotations

import os
import signal

import trio

from mcp_actors import open_servers

from ..idle_clock import IdleClock
from ..servers.fleet import http_config, http_server, kill, pid_of
from ..servers.groups import server, shell
from ..servers.links import text_of
from ..servers.test_unresponsive import leaving_a_child

STOP = 5.0
"""Seconds: the default of ``stop_timeout``, which the other tests' servers do not have."""

MARGIN = 10.0
"""Seconds for what happens between two deadlines."""


async def test_an_idle_server_that_is_frozen_is_unhealthy_within_the_interval_and_15_s(idle_clock: IdleClock) -> None:
    """B-05, B-06: a process that is stopped, HTTP that accepts and never answers, and one killed under its child."""
    with http_server() as (port, process):
        configs = server("stopped", stop_timeout=STOP), http_config(port, "mute"), shell("orphan", leaving_a_child())
        async with open_servers(*configs) as servers:
            began, pid = trio.current_time(), pid_of(servers["stopped"])
            killed = kill(servers["orphan"])
            process.send_signal(signal.SIGSTOP)
            os.kill(pid, signal.SIGSTOP)
            with trio.fail_after(5 + MARGIN):
                await servers["orphan"].wait_state("backoff", "connecting")
            for name in ("stopped", "mute"):
                with trio.fail_after(75 + MARGIN):
                    await servers[name].wait_state("unhealthy")
            assert 60 < trio.current_time() - began < 75 + MARGIN
            with trio.fail_after(10 + MARGIN):
                await servers["stopped"].wait_state("backoff", "connecting")
                await servers["stopped"].wait_state("ready")
            assert trio.current_time() - began < 90 + 2 * MARGIN
            assert {pid, killed}.isdisjoint({pid_of(servers["stopped"]), pid_of(servers["orphan"])})
            assert servers["mute"].state == "unhealthy"
            with trio.fail_after(300 - 75 + MARGIN):
                await servers["mute"].wait_state("backoff", "connecting")
            assert trio.current_time() - began + MARGIN >= 300
            process.send_signal(signal.SIGCONT)
            with trio.fail_after(60):
                await servers["mute"].wait_ready()
                assert text_of(await servers["mute"].call_tool("echo", {"text": "x"})) == "x"
