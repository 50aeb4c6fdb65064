"""Run a cluster of Ray with two nodes, call through it, and kill or suspend a part of it.

``python -m tests.hosts.cluster SCENARIO FOLDER`` is a program of its own, because Ray changes the process that uses it.
It prints what has happened as JSON (`Report`). The host is on the second node at first, with a server that writes each
call into a ledger, and 128 callers call that through one connection. The truth is in the ledger.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio
from attrs import asdict, define, field

from mcp_actors import ConnectionLost, HealthPolicy, McpActorsError, ServerConfig, ServerGroup, Socket, open_servers

from ..gateway.daemons import counting, written
from ..servers.processes import eventually, parents
from ..source import ROOT

CALLERS: Final = 128

IN_FLIGHT: Final = 64

PART: Final = 3000
"""Calls that are answered before a fault, and after it."""

NAME: Final = "tools"
NAMESPACE: Final = "tests"

FREEZE: Final = 30.0
"""Seconds for which a worker is suspended."""

BOUND: Final = 120.0
"""Seconds in which anything here has happened, also on a busy machine."""

NOT_STARTED: Final = 77
"""The exit code where Ray cannot be started."""

HEALTH_CHECK: Final = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""Ray's own check of its nodes, quicker than by default, where a suspended node counts as dead after a minute."""

NODE: Final[dict[str, Any]] = {"include_dashboard": False, "object_store_memory": 100 * 1024 * 1024, "num_cpus": 1}
ROOM: Final = "host"
"""A resource that each node has once, so that one host fits there."""

PROBES: Final = HealthPolicy(interval=1, timeout=1, silence=5)
"""Notices within seconds that a host is suspended."""


@define
class Report:
    """The outcomes of the calls, and how long it took until they went on.

    Attributes:
        answered, unknown: how many ended so.
        others: how many ended in another way, by the name of the error.
        executed: how many are in the ledger.
        doubled: of these, those that are there more than once.
        unheard: those that were answered and are not there.
        unasked: those that are there and were neither answered nor unknown.
        losses: the faults that break a connection.
        engine: seconds from each fault until Ray had a new address.
        served: seconds from each fault until calls were answered over a new connection.
        noticed: seconds from the suspension of a worker until its connection was broken.
        outlived: calls that an old worker has answered while Ray had started its successor already.
        left: processes that are left when the cluster has ended, as their command lines.
    """

    answered: int = 0
    unknown: int = 0
    others: Counter[str] = field(factory=Counter)
    executed: int = 0
    doubled: int = 0
    unheard: int = 0
    unasked: int = 0
    losses: int = 0
    engine: list[float] = field(factory=list)
    served: list[float] = field(factory=list)
    noticed: float = 0.0
    outlived: int = 0
    left: list[str] = field(factory=list)


class Nodes:
    """The cluster, and the actor in it.

    Args:
        cluster: Ray's object for it.
        worker: Ray's object for the second node.
    """

    def __init__(self, cluster: Any, worker: Any) -> None:
        self.cluster = cluster
        self.worker = worker

    def raylet(self) -> int:
        """Return the process that manages the second node."""
        return int(self.worker.all_processes["raylet"][0].process.pid)

    def kill_raylet(self) -> None:
        """Kill that process. A zombie of it would look alive to the worker, which then lives on."""
        process = self.worker.all_processes["raylet"][0].process
        process.kill()
        process.wait()

    def process(self, kind: str) -> int:
        """Return the process of the actor of this class. Ray may have moved it to the first node."""
        raylets = {each.all_processes["raylet"][0].process.pid for each in self.cluster.list_all_nodes()}
        [pid] = [pid for pid, words in commands() if kind in words and parents().get(pid) in raylets]
        return pid


def commands() -> Iterator[tuple[int, str]]:
    """Yield the processes that run and their command lines."""
    for pid in parents():
        with suppress(OSError):
            yield pid, Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")


def left_of(folder: Path) -> list[str]:
    """Return the command lines of the processes of Ray, which inherit a mark, and of servers, which get the ledger."""
    found = []
    for pid, words in commands():
        with suppress(OSError):
            marked = f"MARK={folder}\0" in Path(f"/proc/{pid}/environ").read_text(errors="replace")
            if marked or str(folder / "ledger") in words:
                found.append(words)
    return found


@contextmanager
def cluster(folder: Path) -> Iterator[Nodes]:
    """Run a cluster of two nodes during a block, and connect this process to the first."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "MARK": str(folder)}
    import ray
    from ray.cluster_utils import Cluster

    room = {"resources": {ROOM: 1}, **NODE}
    try:
        both = Cluster(initialize_head=True, head_node_args={"_system_config": HEALTH_CHECK, **room})
    except Exception as exc:
        print(f"{type(exc).__name__}: {exc}", file=sys.stderr)
        sys.exit(NOT_STARTED)
    try:
        worker = both.add_node(**room)
        ray.init(address=both.address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        yield Nodes(both, worker)
    finally:
        ray.shutdown()
        both.shutdown()


class Placeholder:
    """An actor that has the room for a host, so that none is placed on its node."""

    def pid(self) -> int:
        """Return its process."""
        return os.getpid()


def place(kind: Callable[..., Any], node: Any, **options: Any) -> Any:
    """Return a class of Ray, whose actors are on a node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    return ray.remote(kind).options(num_cpus=0, scheduling_strategy=there, **options)


def start_host(nodes: Nodes, folder: Path, **entries: dict[str, Any]) -> Any:
    """Start an actor that serves these servers on the second node, and wait until it does. Ray may move it."""
    import ray

    from mcp_actors.hosts.ray import RayHost  # here, because Ray cannot be imported everywhere

    servers, secret = folder / "servers.json", folder / "secret"
    servers.write_text(json.dumps({"mcpServers": entries}))
    secret.touch(0o600)
    secret.write_text("a secret of this test")
    holds = place(Placeholder, nodes.cluster.head_node, resources={ROOM: 1}).remote()
    ray.get(holds.pid.remote())
    options = {"name": NAME, "max_restarts": -1, "num_cpus": 0, "resources": {ROOM: 1}}
    actor = ray.remote(RayHost).options(**options).remote(str(servers), secret_file=str(secret))
    ray.get(actor.address.remote())
    ray.kill(holds)
    return actor


class Storm:
    """Calls again and again, and knows which address is used and which one Ray would give.

    Args:
        nodes: the cluster.
        folder: where the ledger is.
    """

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        from mcp_actors.hosts.ray import ray_address

        self.nodes = nodes
        self.report = Report()
        self.addresses: list[str] = []
        self._ask: Callable[[], Awaitable[str]] = ray_address(NAME)
        self._folder = folder
        self._ids = count()
        self._answered: set[int] = set()
        self._unknown: set[int] = set()
        self._answer = trio.Event()
        self._ended = False
        self._current: tuple[str, float] = ("", 0.0)

    async def address(self) -> str:
        """Ask for the address of the actor, and note it."""
        address = await self._ask()
        self.addresses.append(address)
        return address

    async def run(self, scenario: Callable[[Storm, ServerGroup], Awaitable[None]]) -> None:
        """Call while a scenario is played."""
        engine = threading.Thread(target=self._watch_engine)
        engine.start()
        try:
            await self._run(scenario)
        finally:
            self._ended = True
            await trio.to_thread.run_sync(engine.join)
        self.report.answered, self.report.unknown = len(self._answered), len(self._unknown)

    async def _run(self, scenario: Callable[[Storm, ServerGroup], Awaitable[None]]) -> None:
        socket = Socket(self.address, secret_file=str(self._folder / "secret"))
        config = ServerConfig("counting", socket, max_in_flight=IN_FLIGHT, health=PROBES)
        with trio.fail_after(4 * BOUND):
            async with open_servers(config, strict=True) as servers, trio.open_nursery() as nursery:
                for _ in range(CALLERS):
                    nursery.start_soon(self._call, servers)
                await self.wait_answers(PART)
                await scenario(self, servers)
                await self.wait_answers(PART)
                self._ended = True

    async def _call(self, servers: ServerGroup) -> None:
        while not self._ended:
            id = next(self._ids)
            try:
                await servers["counting"].call_tool("run", {"id": id})
            except McpActorsError as error:
                if isinstance(error, ConnectionLost) and error.outcome == "unknown":
                    self._unknown.add(id)
                else:
                    self.report.others[f"{type(error).__name__}: {error}"] += 1
            else:
                self._answered.add(id)
                self._answer.set()

    async def wait_answers(self, number: int) -> None:
        """Wait until so many more calls were answered."""
        due = len(self._answered) + number
        while len(self._answered) < due:
            self._answer = trio.Event()
            await self._answer.wait()

    def _watch_engine(self) -> None:
        """Note since when Ray gives the address that it gives, in a thread."""
        import ray

        while not self._ended:
            with suppress(Exception):
                address = ray.get(ray.get_actor(NAME).address.remote(), timeout=1.0)
                if address != self._current[0]:
                    self._current = (address, time.monotonic())
            time.sleep(0.02)

    async def wait_engine(self, former: str) -> float:
        """Wait until Ray gives another address; return when it did."""
        await eventually(lambda: self._current[0] not in ("", former))
        return self._current[1]

    async def wait_served(self, began: float, connects: int) -> None:
        """Wait for an answer over another connection than the first so many, and note how long it took."""
        await eventually(lambda: len(self.addresses) > connects)
        await self.wait_answers(1)
        self.report.served.append(time.monotonic() - began)

    def compare(self) -> None:
        """Compare the ledger with the outcomes."""
        ledger = written(self._folder / "ledger")
        self.report.executed = len(ledger)
        self.report.doubled = sum(number > 1 for number in ledger.values())
        self.report.unheard = len(self._answered - ledger.keys())
        self.report.unasked = len(ledger.keys() - self._answered - self._unknown)


# --- Scenarios --------------------------------------------------------------------------------------------------------


async def calm(storm: Storm, servers: ServerGroup) -> None:
    """Nothing happens."""


async def _replaced(storm: Storm, fault: Callable[[], None]) -> None:
    """Commit a fault after which Ray starts the actor again, and wait until calls are answered there."""
    former, connects, began = storm.addresses[-1], len(storm.addresses), time.monotonic()
    fault()
    storm.report.losses += 1
    storm.report.engine.append(await storm.wait_engine(former) - began)
    await storm.wait_served(began, connects)


async def kill_worker(storm: Storm, servers: ServerGroup) -> None:
    """Kill the process of the actor, twice. Ray starts another one, on either node."""
    for _ in range(2):
        host = storm.nodes.process("RayHost")
        await _replaced(storm, lambda host=host: os.kill(host, signal.SIGKILL))  # type: ignore[misc]  # bound now
        await storm.wait_answers(PART)


async def kill_node(storm: Storm, servers: ServerGroup) -> None:
    """Kill the process that manages the node. Ray starts the actor on the other one."""
    await _replaced(storm, storm.nodes.kill_raylet)


async def freeze_node(storm: Storm, servers: ServerGroup) -> None:
    """Suspend that process until Ray believes the node dead, and resume it then. Its worker lives on meanwhile."""
    raylet, former = storm.nodes.raylet(), storm.addresses[-1]
    os.kill(raylet, signal.SIGSTOP)
    await storm.wait_engine(former)
    before = len(storm.addresses)
    await storm.wait_answers(PART)
    assert len(storm.addresses) == before, "the connection to the old worker was lost"
    storm.report.outlived = PART
    await servers["counting"].restart()
    assert storm.addresses[-1] != former
    await storm.wait_answers(PART)
    os.kill(raylet, signal.SIGCONT)


async def freeze_worker(storm: Storm, servers: ServerGroup) -> None:
    """Suspend the process of the actor. Ray starts no other one; the checks of the group break the connection."""
    host, connects = storm.nodes.process("RayHost"), len(storm.addresses)
    thaw = trio.current_time() + FREEZE
    os.kill(host, signal.SIGSTOP)
    storm.report.losses += 1
    with trio.fail_at(thaw):
        await servers["counting"].wait_state("backoff", "connecting")
    storm.report.noticed = trio.current_time() - (thaw - FREEZE)
    await trio.sleep_until(thaw)
    storm.report.engine.append(0.0)  # it has nothing to restart
    resumed = time.monotonic()
    os.kill(host, signal.SIGCONT)
    await storm.wait_served(resumed, connects)
    assert set(storm.addresses) == {storm.addresses[0]}


SCENARIOS: Final = {each.__name__: each for each in (calm, kill_worker, kill_node, freeze_node, freeze_worker)}


def main(scenario: str, folder: Path) -> None:
    """Play a scenario and print the report."""
    with cluster(folder) as nodes:
        actor = start_host(nodes, folder, counting=counting(folder / "ledger"))
        storm = Storm(nodes, folder)
        trio.run(storm.run, SCENARIOS[scenario])
        del actor
    deadline = time.monotonic() + BOUND
    while (left := left_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    storm.report.left = left
    storm.compare()
    print(json.dumps(asdict(storm.report)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
