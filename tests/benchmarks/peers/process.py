"""The process of one peer: ``python -m tests.benchmarks.peers.process CONTEST PEER``.

It prepares itself and prints its process id; then it plays one round for each line on its stdin and prints what it
measured. Between two rounds it blocks, loop and all, so that nothing of it disturbs the others.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import Any, Final

import trio
from attrs import define, field
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from . import quick_server
from .clients import CLIENTS, CallTool, Client

Play = Callable[..., Awaitable[Any]]

SHOWN_STEPS: Final = 2
"""The number of longest steps of a round that are reported: the one that may be long, and the longest other one."""


async def serve(play: Play) -> None:
    """Play a round for each line, which holds the arguments of the round."""
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        print(json.dumps(await play(*json.loads(line))), flush=True)


async def calls(client: Client) -> None:
    """Small tool calls; a round gives its seconds."""
    async with client.connect(quick_server.command()) as call_tool:
        await serve(partial(play_calls, client, call_tool, {}))


async def play_calls(client: Client, call_tool: CallTool, options: dict[str, Any], callers: int, times: int) -> float:
    """Make so many calls with these options; return the seconds."""

    async def repeat() -> None:
        for _ in range(times // callers):
            await call_tool("echo", {"text": "hello"}, **options)

    began = perf_counter()
    await (repeat() if callers == 1 else client.together(callers, repeat))
    return perf_counter() - began


async def counted(client: Client) -> None:
    """Small tool calls of a kind, without the garbage collector, which would run by chance."""
    gc.disable()
    # An OpenTelemetry SDK of the user would make such a span; what that costs is not counted.
    context = SpanContext(trace_id=1, span_id=2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    span = NonRecordingSpan(context)
    options: dict[str, dict[str, Any]] = {"progress": {client.progress: hear}, "_meta": {"meta": {"example.com/k": 1}}}
    async with client.connect(quick_server.command()) as call_tool:

        async def play(callers: int, times: int, kind: str) -> float:
            with use_span(span) if kind == "span" else nullcontext():
                return await play_calls(client, call_tool, options.get(kind, {}), callers, times)

        await serve(play)


async def hear(progress: float, total: float | None, message: str | None) -> None:
    """Hear of progress."""


@define(eq=False)
class Steps(trio.abc.Instrument):
    """How long each step of a task takes, during which no other task runs."""

    seconds: list[float] = field(factory=list)
    _began: float = field(factory=perf_counter)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seconds.append(perf_counter() - self._began)


async def long_line(client: Client) -> None:
    """One long answer; a round gives its seconds, and those of its longest steps, the longest first."""
    async with client.connect(quick_server.command()) as call_tool:

        async def play(length: int) -> tuple[float, list[float]]:
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            began = perf_counter()
            await call_tool("fill", {"length": length})
            seconds = perf_counter() - began
            trio.lowlevel.remove_instrument(steps)
            return seconds, sorted(steps.seconds, reverse=True)[:SHOWN_STEPS]

        await serve(play)


async def starts(client: Client) -> None:
    """Servers that take their time; a round gives the seconds until all are connected."""

    async def play(number: int, seconds: float) -> float:
        assert client.connect_many is not None
        began = perf_counter()
        async with client.connect_many([quick_server.command(seconds)] * number):
            return perf_counter() - began

    await serve(play)


async def recovery(client: Client) -> None:
    """A server of ours that is killed; a round gives the seconds until it is ready again."""
    from mcp_actors import Backoff, RestartPolicy, ServerConfig, StateChanged, Stdio, open_servers

    ready = trio.Event()

    def watch(event: object) -> None:
        if isinstance(event, StateChanged) and event.new == "ready":
            ready.set()

    async def play() -> float:
        nonlocal ready
        ready = trio.Event()
        pid = servers["quick"].statistics().pid
        assert pid is not None
        began = perf_counter()
        os.kill(pid, signal.SIGKILL)
        await ready.wait()
        return perf_counter() - began

    command, *arguments = quick_server.command()
    restart = RestartPolicy(max_restarts=sys.maxsize, backoff=Backoff())
    config = ServerConfig("quick", Stdio(command, arguments), required=True, restarts=restart)
    async with open_servers(config, observers=[watch]) as servers:
        await serve(play)


CONTESTS: Final = {
    "calls": calls,
    "counted": counted,
    "long_line": long_line,
    "starts": starts,
    "recovery": recovery,
}


def main(contest: str, peer: str) -> None:
    """Run one peer in one contest."""
    client = CLIENTS[peer]
    client.run(CONTESTS[contest], client)


if __name__ == "__main__":
    main(*sys.argv[1:])
