"""Compare a whole call to a server behind a host that Ray has placed with Ray's bare call to an actor on that node.

Ray's call takes a text to an actor and back, and nothing else: so many are submitted at a time, and awaited together,
which costs Ray least. Ours goes from as many tasks through a group, over TCP to the host, over stdio to the server
behind it, and back. What counts is the processor time of the calling process and of the actor's process, with all of
their threads. That of the server behind the host, which does the work, is a figure of its own.

Ray changes the process that uses it, so ``python -m tests.benchmarks.hosts FOLDER`` measures, and prints JSON.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import trio

from mcp_actors import ServerConfig, ServerGroup, Socket, open_servers

from ..hosts.cluster import NAME, Nodes, cluster, place, start_host
from ..servers.processes import children_of
from .figures import Figure
from .gateway import processor_time
from .measuring import in_fresh_process, median_ratio
from .peers import quick_server

CALLERS: Final = (1, 16, 128)
ROUNDS: Final = 11

CALLS: Final = {"Ray": 512, "ours": 1024}
"""Per round."""

BOUND: Final = 0.6
"""How much ours may compute, compared with Ray's."""


class Echo:
    """An actor that gives back what it gets."""

    def echo(self, text: str) -> str:
        """Return the text."""
        return text


class Meter:
    """Measures the processor time of this process and others.

    Args:
        pids: the others, by what they are.
    """

    def __init__(self, **pids: int) -> None:
        self._pids = pids

    def now(self) -> dict[str, float]:
        """Return the seconds that each has computed, and those of the clock."""
        return {"clock": time.perf_counter(), "caller": time.process_time()} | {
            name: processor_time(pid) for name, pid in self._pids.items()
        }


def play_ray(actor: Any, callers: int) -> None:
    """Make the calls of a round through Ray."""
    import ray

    for first in range(0, CALLS["Ray"], callers):
        texts = [f"hello {number}" for number in range(first, first + callers)]
        assert ray.get([actor.echo.remote(text) for text in texts]) == texts


async def play_ours(servers: ServerGroup, callers: int) -> None:
    """Make the calls of a round through the host."""
    numbers = iter(range(CALLS["ours"]))

    async def call() -> None:
        for number in numbers:
            result = await servers["quick"].call_tool("echo", {"text": f"hello {number}"})
            assert result.content[0].text == f"hello {number}"  # type: ignore[union-attr]  # it is text

    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(call)


async def measure(nodes: Nodes, folder: Path, echo: Any) -> dict[str, list[dict[str, float]]]:
    """Play rounds in turns; return the seconds of a call in each, by contestant and number of callers."""
    from mcp_actors.hosts.ray import ray_address

    found: dict[str, list[dict[str, float]]] = {}
    socket = Socket(ray_address(NAME), secret_file=str(folder / "secret"))
    host = nodes.process("RayHost")
    async with open_servers(ServerConfig("quick", socket, max_in_flight=max(CALLERS)), strict=True) as servers:
        await play_ours(servers, 1)
        [behind] = children_of(host)
        meters = {"Ray": Meter(host=nodes.process("Echo")), "ours": Meter(host=host, server=behind)}
        for callers in CALLERS:
            plays: dict[str, Callable[[], Any]] = {
                "Ray": partial(trio.to_thread.run_sync, partial(play_ray, echo, callers)),
                "ours": partial(play_ours, servers, callers),
            }
            for number in range(ROUNDS + 1):
                for name, play in plays.items():
                    before = meters[name].now()
                    await play()
                    spent = {each: (now - before[each]) / CALLS[name] for each, now in meters[name].now().items()}
                    if number:  # the first round pays for what happens only once
                        found.setdefault(f"{name} {callers}", []).append(spent)
    return found


def main(folder: Path) -> None:
    """Measure in a cluster, and print the seconds."""
    server, *arguments = quick_server.command()
    with cluster(folder) as nodes:
        host = start_host(nodes, folder, quick={"command": server, "args": arguments})
        echo = place(Echo, nodes.worker).remote()
        play_ray(echo, 1)  # it has started then
        print(json.dumps(trio.run(measure, nodes, folder, echo)))
        del host


def figures() -> list[Figure]:
    """Compare ours with Ray; nothing where Ray is not installed."""
    if find_spec("ray") is None:
        return [Figure("a call through a host of Ray", math.nan, "", remark="not installed: the extra `ray`")]
    with tempfile.TemporaryDirectory() as folder:
        spent = in_fresh_process("tests.benchmarks.hosts", folder)
    found = []
    for callers in CALLERS:
        both = {name: [each["caller"] + each["host"] for each in spent[f"{name} {callers}"]] for name in CALLS}
        label = f"processor time of caller and actor; in flight: {callers}"
        for name, seconds in both.items():
            found.append(Figure(f"{label}, {name}", statistics.median(seconds) * 1e6, "µs"))
        found.append(Figure(f"{label}, to Ray", median_ratio(both["ours"], both["Ray"]), "", bound=BOUND))
        behind = statistics.median(each["server"] for each in spent[f"ours {callers}"])
        found.append(Figure(f"the server behind the host; in flight: {callers}", behind * 1e6, "µs"))
        for name in CALLS:
            clock = statistics.median(each["clock"] for each in spent[f"{name} {callers}"])
            found.append(Figure(f"by the clock; in flight: {callers}, {name}", clock * 1e6, "µs"))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
