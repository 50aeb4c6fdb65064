"""Measure the harm of a hostile server: the longest step of the event loop, a sibling's calls, and memory.

Each attack has a process of its own, with one hostile server and a good one, which is called all the time: first in
peace, then under attack. For comparison the same is done with two of the SDK's clients and nothing else. The garbage
collector is on, as it is for users; its share of a step is a column of its own. Hostile servers run at the lowest
priority, because the system distributes the processors, and these figures are about the event loop.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import perf_counter, thread_time
from typing import Any, Final, NoReturn

import trio
from attrs import define, field

from mcp_actors import Limits
from mcp_actors.transports._messages import parse_message

from .attacks import ATTACKS, Attack, Call, Scene
from .figures import Figure
from .measuring import ROOT
from .peers import quick_server

STEP_BOUND: Final = 20.0
"""Milliseconds of processor time, without garbage collection, that a step may take."""

SIBLING_BOUND: Final = 3.0
"""How many times its quiet value the 99th percentile of a sibling's calls may be."""

MEMORY_BOUND: Final = 100.0
"""MiB by which the process may grow."""

QUIET: Final = 1.0
"""Seconds in peace."""

LOUD: Final = 2.0
"""Seconds under attack."""

MESSAGE_BYTES: Final = 4 * 1024 * 1024
VALUES: Final = Limits().max_message_values - 10

ATTEMPTS: Final = 3

PAUSE: Final = 0.05
"""Seconds from one attack to the next."""

PATIENCE: Final = 30.0
"""Seconds for one process: an event loop may come to a standstill."""

PEERS: Final = ("ServerRef", "mcp.Client")


@define(eq=False)
class Steps(trio.abc.Instrument):
    """How long tasks keep all others from running, in processor time, and for how long of that garbage is collected.

    Attributes:
        longest: seconds of the longest step, without the collection of garbage in it.
        task: whose it was.
        collecting: seconds of the longest collection.
    """

    longest: float = 0.0
    task: str = ""
    collecting: float = 0.0
    _began: float = field(factory=thread_time)
    _collecting_since: float = 0.0
    _collected: float = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began, self._collected = thread_time(), 0.0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = thread_time() - self._began - self._collected
        if took > self.longest:
            self.longest, self.task = took, task.name

    def collect(self, phase: str, info: dict[str, int]) -> None:
        """Note a collection; one of `gc.callbacks`."""
        if phase == "start":
            self._collecting_since = thread_time()
        else:
            took = thread_time() - self._collecting_since
            self._collected += took
            self.collecting = max(self.collecting, took)


@asynccontextmanager
async def with_server_refs(attack: Attack) -> AsyncIterator[Scene]:
    """Ours."""
    from mcp_actors import ServerConfig, Stdio, open_servers

    command, *arguments = quick_server.command()
    with attack.serving() as evil:
        good = ServerConfig("good", Stdio(command, arguments))
        async with open_servers(evil.config("evil"), good, strict=True) as servers:
            yield Scene(servers["evil"].call_tool, servers["evil"].subscribe, servers["good"].call_tool)


@asynccontextmanager
async def with_mcp_clients(attack: Attack) -> AsyncIterator[Scene]:
    """The SDK's clients."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command, *arguments = quick_server.command()
    good = stdio_client(StdioServerParameters(command=command, args=arguments))
    with attack.serving() as evil:
        async with Client(good) as sibling, Client(evil.transport(), mode="legacy") as client:

            @asynccontextmanager
            async def subscribe(uri: str) -> AsyncIterator[None]:
                await client.subscribe_resource(uri)
                yield
                await client.unsubscribe_resource(uri)

            yield Scene(client.call_tool, subscribe, sibling.call_tool)


SCENES: Final[dict[str, Callable[[Attack], AbstractAsyncContextManager[Scene]]]] = {
    "ServerRef": with_server_refs,
    "mcp.Client": with_mcp_clients,
}


async def call_for(seconds: float, call: Call) -> tuple[float, float]:
    """Call one after the other; return how long half of the calls took at most, and 99 percent of them, in ms."""
    times: list[float] = []
    now = perf_counter()
    end = now + seconds
    while not times or now < end:
        began = now
        await call("echo", {"text": "hello"})
        now = perf_counter()
        times.append((now - began) * 1e3)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


def peak() -> float:
    """The most memory that this process ever had, in MiB."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 if sys.platform == "linux" else 1024 * 1024)


async def play(peer: str, attack: Attack, peace: float, war: float) -> None:
    """Measure one attack."""
    async with SCENES[peer](attack) as scene:
        await call_for(peace / 4, scene.good)
        quiet = await call_for(peace, scene.good)
        before, steps = peak(), Steps()
        gc.callbacks.append(steps.collect)
        trio.lowlevel.add_instrument(steps)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(be_attacked, attack, scene)
            loud = await call_for(war, scene.good)
            nursery.cancel_scope.cancel("the time is over")
        trio.lowlevel.remove_instrument(steps)
        report(
            {
                "step": steps.longest * 1e3,
                "task": steps.task,
                "gc": steps.collecting * 1e3,
                "quiet": quiet,
                "loud": loud,
                "memory": peak() - before,
            }
        )


def report(measured: dict[str, Any]) -> NoReturn:
    """Print what was measured, and end: to close the connection to a hostile server may take its time."""
    print(json.dumps(measured), flush=True)
    os._exit(0)


async def be_attacked(attack: Attack, scene: Scene) -> None:
    """Have it attack, and again whenever that is over: a server that lost its connection is restarted."""
    while True:
        with suppress(Exception):
            await attack.begin(scene)
        await trio.sleep(PAUSE)


def main(peer: str, name: str, quiet: str, loud: str) -> None:
    """Measure one attack on one peer, in this process."""
    logging.basicConfig(stream=open(os.devnull, "w"), level=logging.INFO)  # noqa: SIM115  # until the end
    trio.run(play, peer, ATTACKS[name], float(quiet), float(loud))


def measured(peer: str, name: str, *, quiet: float = QUIET, loud: float = LOUD) -> dict[str, Any] | None:
    """Measure in a fresh process; None if it did not come to an end."""
    command = [sys.executable, "-m", __name__, peer, name, str(quiet), str(loud)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return json.loads(output.splitlines()[-1]) if output else None


HEAD: Final = f"  {'attack':36} {'client':10} {'step ms':>7} {'gc ms':>6} {'p50 ms':>13} {'p99 ms':>13} {'MiB':>5}"


def row(name: str, peer: str, found: dict[str, Any] | None) -> str:
    """A row of the table."""
    if found is None:
        return f"  {name:36} {peer:10} stood still for {PATIENCE:g} s, or fell"
    p50, p99 = (f"{found['quiet'][index]:.1f} → {found['loud'][index]:.1f}" for index in (0, 1))
    return f"  {name:36} {peer:10} {found['step']:7.1f} {found['gc']:6.1f} {p50:>13} {p99:>13} {found['memory']:5.0f}"


def within_bounds(name: str, found: dict[str, Any] | None) -> bool:
    """Return True if no bound is exceeded."""
    return all(figure.verdict == "PASS" for figure in judged(name, found))


def step_bound(name: str) -> float:
    """Return the milliseconds that a step may take: the parse of a long message within the limits comes on top."""
    size = ATTACKS[name].message
    return STEP_BOUND + (parse_milliseconds(b'"%s"' % (b"x" * size)) if size else 0.0)


def parse_milliseconds(result: bytes) -> float:
    """Measure the parsing of a message with some content, in milliseconds."""
    message = b'{"jsonrpc":"2.0","id":1,"result":{"content":%s}}' % result
    began = thread_time()
    parse_message(message)
    return (thread_time() - began) * 1e3


def judged(name: str, found: dict[str, Any] | None) -> list[Figure]:
    """Return the figures that have a bound."""
    if found is None:
        return [Figure(f"{name}: the event loop stood still", PATIENCE, "s", bound=0)]
    return [
        Figure(f"{name}: longest step", found["step"], "ms", bound=step_bound(name), remark=found["task"]),
        Figure(f"{name}: a sibling's p99, to quiet", found["loud"][1] / found["quiet"][1], "", bound=SIBLING_BOUND),
        Figure(f"{name}: memory", found["memory"], "MiB", bound=MEMORY_BOUND),
    ]


def best(name: str) -> dict[str, Any] | None:
    """Measure ours, and again if a bound is missed: other load on the machine only ever adds."""
    for _ in range(ATTEMPTS - 1):
        found = measured(PEERS[0], name)
        if within_bounds(name, found):
            return found
    return measured(PEERS[0], name)


def parsing() -> list[Figure]:
    """Measure the only step that may be long: the parsing of one message that is within the limits."""
    found = []
    for name, result in {
        "one text": b'"%s"' % (b"x" * MESSAGE_BYTES),
        "escapes": b'"%s"' % (b"\\n" * (MESSAGE_BYTES // 2)),
        "as many values as it may have": b"[%s1]" % (b"1,".ljust(MESSAGE_BYTES // VALUES) * (VALUES - 1)),
    }.items():
        took = parse_milliseconds(result)
        found.append(Figure(f"parsing a message of {name}", took / (len(result) / 2**20), "ms/MiB"))
    return found


def figures() -> list[Figure]:
    """Print the table, and return the rest."""
    print(HEAD, flush=True)
    bounded = parsing()
    for name in ATTACKS:
        ours = best(name)
        print(row(name, PEERS[0], ours), flush=True)
        print(row("", PEERS[1], measured(PEERS[1], name)), flush=True)
        bounded += judged(name, ours)
    return bounded


if __name__ == "__main__":
    main(*sys.argv[1:])
