"""Kill the actors of ``examples/job_runner.py`` while it works: each job is done once, or its outcome is unknown."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import pytest
import trio
from attrs import define, field
from job_runner import Job, JobFailed, Outcome, Report, Submit, Tool, ToolDied, job_runner
from trio.testing import MockClock

from mcp_actors.kernel import ActorCrashed, ActorRef, Event, GaveUp, SupervisorRef, open_supervisor
from mcp_actors.kernel._incarnation import Incarnation

from .programs import FULL_SIZE, SEED

RUNS: Final = 200 if FULL_SIZE else 8
JOBS: Final = 40
CLIENTS: Final = 2
"""Per job: all get the same outcome."""

KILLS: Final = 30
WORKERS: Final = 4
ACTORS: Final = [
    *("journal", "workers", "desk", "inspector"),
    *(f"workers/workers-{number}" for number in range(1, WORKERS + 1)),
]


@define(eq=False)
class Storm:
    """A job runner whose actors are killed at random moments while it has jobs to do."""

    random: random.Random
    path: Path
    effects: Counter[str] = field(factory=Counter)
    outcomes: dict[str, list[Outcome]] = field(factory=dict)
    kills: Counter[str] = field(factory=Counter)
    interrupted: int = 0

    async def run(self) -> None:
        """Submit all jobs while actors are killed, until each client has its outcome."""
        async with (
            open_supervisor(
                *job_runner(self.path, self.open_tool, WORKERS), max_restarts=1000, observers=[self.hear]
            ) as supervisor,
            trio.open_nursery() as nursery,
        ):
            async with trio.open_nursery() as clients:
                nursery.start_soon(self.kill, supervisor)
                for number in range(JOBS):
                    job = Job(f"job {number}", f"job {number}")
                    self.outcomes[job.id] = []
                    for _ in range(CLIENTS):
                        clients.start_soon(self.submit, supervisor.child("desk"), job)
            nursery.cancel_scope.cancel("all jobs have an outcome")

    @asynccontextmanager
    async def open_tool(self) -> AsyncIterator[Tool]:
        """Yield a tool that breaks if it is used again after a job was interrupted, and sometimes without a reason."""
        in_a_job = False

        async def use(expression: str) -> str:
            nonlocal in_a_job
            assert not in_a_job
            in_a_job = True
            await self.pause(1)
            self.effects[expression] += 1
            await self.pause(1)
            chance = self.random.randrange(10)
            if chance == 0:
                self.interrupted += 1
                raise ToolDied("it broke")
            in_a_job = False
            if chance == 1:
                raise JobFailed("it has no solution")
            return expression

        await self.pause(0.1)
        yield use

    async def submit(self, desk: ActorRef, job: Job) -> None:
        await self.pause(8)
        while True:
            try:
                self.outcomes[job.id].append(await desk.call(Submit(job)))
            except ActorCrashed:
                assert self.kills["desk"] > 0
                await self.pause(1)
            else:
                return

    async def kill(self, supervisor: SupervisorRef) -> None:
        for _ in range(KILLS):
            await self.pause(1)
            path = self.random.choice(ACTORS)
            incarnation = incarnation_of(supervisor.find(path))
            if incarnation is None or incarnation.actor is None:
                continue  # it is dead
            self.kills[path] += 1
            alone = 1 if incarnation.started else WORKERS  # a pool that is being started stops if a worker cannot start
            self.interrupted += {"workers": WORKERS, "desk": WORKERS, "journal": 0, "inspector": 0}.get(path, alone)
            incarnation.end("crashed", ConnectionError("the cable was pulled"))
            if self.random.randrange(2):
                incarnation.kill("no time to clean up")

    def hear(self, event: Event) -> None:
        if isinstance(event, GaveUp):  # the pool stops and restarts all workers
            self.interrupted += WORKERS

    async def pause(self, seconds: float) -> None:
        await trio.sleep(self.random.uniform(0, seconds))


def incarnation_of(ref: ActorRef) -> Incarnation | None:
    return cast("Incarnation | None", ref._record.mailbox.life)


@pytest.mark.parametrize("run", range(RUNS))
async def test_each_job_is_done_once_or_unknown(run: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    storm = Storm(random.Random(SEED + run), tmp_path / "journal")
    await storm.run()
    assert max(storm.effects.values()) == 1
    for job, outcomes in storm.outcomes.items():
        assert outcomes == outcomes[:1] * CLIENTS
        if outcomes[0].kind == "done":
            assert storm.effects[job] == 1
    kinds = Counter(outcomes[0].kind for outcomes in storm.outcomes.values())
    assert kinds["done"] > 0
    assert kinds["unknown"] <= storm.interrupted

    # The journal says the same, and nothing is done again.
    effects = storm.effects.copy()
    async with open_supervisor(*job_runner(storm.path, storm.open_tool)) as supervisor:
        for job, outcomes in storm.outcomes.items():
            assert await supervisor.child("desk").call(Submit(Job(job, job))) == outcomes[0]
    assert storm.effects == effects


async def test_the_inspector_reports_each_end_of_a_worker(tmp_path: Path, autojump_clock: MockClock) -> None:
    storm = Storm(random.Random(SEED), tmp_path / "journal")
    async with open_supervisor(*job_runner(storm.path, storm.open_tool, 1)) as supervisor:
        worker = supervisor.find("workers/workers-1")
        await trio.sleep(0.1)
        for cause in ("the fuse has blown", "the lamp has fallen"):
            incarnation = incarnation_of(worker)
            assert incarnation is not None
            incarnation.end("crashed", ConnectionError(cause))
            await trio.sleep(10)
        with trio.fail_after(1):
            ends = await supervisor.child("inspector").call(Report())
    assert ends == ("workers-1: crashed, the fuse has blown", "workers-1: crashed, the lamp has fallen")
