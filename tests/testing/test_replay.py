"""One number repeats a run to the letter."""

from __future__ import annotations

import gc
import math
import random
from typing import Any

import pytest
import trio

from mcp_actors import ConnectionLost, RetryPolicy, ServerConfig, open_servers
from mcp_actors.kernel import Actor, Backoff, Call, ChildSpec, Message, open_supervisor
from mcp_actors.testing import Delay, EventRecorder, ScriptedServer, run_seeded

from ..forkserver import run_python
from ..source import ROOT


class Die(Call[None]):
    """Crash the actor."""


class Mortal(Actor):
    async def handle(self, message: Message) -> None:
        raise RuntimeError("dead")

    def is_fatal(self, exc: Exception) -> bool:
        return True


async def lives() -> list[str]:
    """Crash several actors at the same time, and return all events with their times."""
    recorder = EventRecorder()
    specs = [ChildSpec(f"c{number}", Mortal) for number in range(5)]
    backoff = Backoff(first=1.0, initial=1.0, jitter=0.5)
    async with open_supervisor(
        *specs, backoff=backoff, max_restarts=1000, window=math.inf, observers=[recorder]
    ) as supervisor:

        async def crash(name: str) -> None:
            for _ in range(3):
                try:
                    await supervisor.child(name).call(Die())
                except RuntimeError:
                    await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            for spec in specs:
                nursery.start_soon(crash, spec.id)
    return [f"{event.time} {type(event).__name__} {event.actor} {event.incarnation}" for event in recorder]


def test_a_seed_gives_the_same_events_at_the_same_times() -> None:
    first = run_seeded(lives, seed=1)
    assert run_seeded(lives, seed=1) == first
    assert run_seeded(lives, seed=2) != first


def test_a_seed_gives_the_same_events_in_another_process() -> None:
    code = (
        "from tests.testing.test_replay import lives; from mcp_actors.testing import run_seeded;"
        "print(*run_seeded(lives, seed=1), sep='\\n')"
    )
    printed = run_python("-c", code, cwd=ROOT, timeout=60).stdout  # in a fork of an interpreter with other hashes
    assert printed.splitlines() == run_seeded(lives, seed=1)


def test_an_hour_takes_no_time_and_begins_at_zero() -> None:
    async def main() -> float:
        await trio.sleep(3600)
        return trio.current_time()

    assert run_seeded(main, seed=1) == 3600


@pytest.mark.parametrize("collects", [True, False])
def test_what_was_seeded_is_restored(collects: bool) -> None:
    scheduler: Any = trio._core._run

    def state() -> tuple[object, ...]:
        return (
            random.getstate(),
            scheduler._r.getstate(),
            scheduler._ALLOW_DETERMINISTIC_SCHEDULING,
            gc.isenabled(),
        )

    async def main() -> None:
        random.random()
        await trio.sleep(1)
        raise KeyError

    (gc.enable if collects else gc.disable)()
    try:
        before = state()
        with pytest.raises(KeyError):
            run_seeded(main, seed=1)
        assert state() == before
    finally:
        gc.enable()


def test_a_trio_that_cannot_be_seeded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(trio._core._run, "_r")
    with pytest.raises(RuntimeError, match=r"run_seeded\(\): trio .* cannot be seeded; install trio 0.35"):
        run_seeded(trio.sleep, 0, seed=1)


async def busy_group(steps: list[str]) -> None:
    """List many tools, call some and crash, and note each step of each task."""
    server = ScriptedServer(era="both")
    for number in range(300):
        server.add_tool(f"tool{number}", notify=False)
    retry = RetryPolicy(attempts=3, backoff=Backoff(initial=1.0, jitter=0.5))
    configs = [ServerConfig(name, server.in_process(), retry=retry) for name in ("a", "b")]
    recorder = EventRecorder()
    async with open_servers(*configs, observers=[recorder]) as servers, trio.open_nursery() as nursery:

        async def call(name: str, number: int) -> None:
            try:
                await servers[name].call_tool(f"tool{number}", idempotent=number % 2 == 0)
            except ConnectionLost:
                steps.append(f"tool{number} of {name} is lost")

        server.inject(Delay(1.0), times=20)
        for number in range(10):
            for name in servers:
                nursery.start_soon(call, name, number)
        await trio.sleep(0.5)
        server.crash()
        server.notify()
    steps += [f"{event.time} {type(event).__name__} {event.actor} {event.incarnation}" for event in recorder]


class Steps(trio.abc.Instrument):
    """Notes the name of the task that takes a step, and when."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken.append(f"{trio.current_time()} {task.name}")


@pytest.mark.parametrize("seed", range(3))
def test_a_group_takes_the_same_steps_whatever_the_speed_of_the_machine(seed: int) -> None:
    def run() -> list[str]:
        noted, steps = list[str](), Steps()
        run_seeded(busy_group, noted, seed=seed, instruments=[steps])
        return [*steps.taken, *noted]

    first, second = run(), run()
    assert first == second
    assert len(first) > 500
