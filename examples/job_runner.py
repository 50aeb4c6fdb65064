"""A job runner: each job is done once, by a process, even if actors and processes die.

- ``desk`` takes jobs, and answers each as soon as it has an outcome.
- ``workers`` is a pool. Each worker owns a process, and is replaced if that dies.
- ``journal`` owns a file. A worker asks it before a job begins, and after it has ended.
- ``inspector`` watches the workers, and knows why each of them ended.

A job begins at most once, whatever dies. If the journal has its begin and not its end,
the outcome is ``unknown``: only the client can decide if it may be repeated.

Prints::

    answer: done, 42
    nonsense: failed, ZeroDivisionError: division by zero
    deadly: unknown, it began, and has not come to its end
    workers-...: crashed, its process has exited
    supervisor/ ...
    --- later
    answer: done, 42
    nonsense: failed, ZeroDivisionError: division by zero
    deadly: unknown, it began, and has not come to its end
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

import trio
from attrs import asdict, frozen

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorRef,
    Call,
    ChildSpec,
    Down,
    Later,
    Message,
    Pool,
    SupervisorRef,
    handles,
    open_supervisor,
)

# --- data and messages ----------------------------------------------------------------


@frozen
class Job:
    """An expression of Python. The client names it: the same name is the same job."""

    id: str
    expression: str


@frozen
class Outcome:
    """The end of a job: its result, its error, or that it is unknown."""

    kind: Literal["done", "failed", "unknown"]
    text: str


BEGUN: Final = Outcome("unknown", "it began, and has not come to its end")
"""What the journal knows of a job between its begin and its end."""


@frozen
class Submit(Call[Outcome]):
    """To the desk: have a job done, unless it was done before."""

    job: Job


@frozen
class Do(Call[Outcome]):
    """To a worker: do a job that is new, and have the journal remember its outcome."""

    job: Job
    journal: ActorRef


@frozen
class Begin(Call[Outcome | None]):
    """To the journal. The answer None says that the job is new, and begins now."""

    job_id: str


@frozen
class End(Call[None]):
    """To the journal: remember the outcome."""

    job_id: str
    outcome: Outcome


@frozen
class Look(Message):
    """To the inspector, from its timer: watch the workers that have come since."""


@frozen
class Report(Call[tuple[str, ...]]):
    """To the inspector: say how workers have ended, as soon as one has."""


# --- the journal ----------------------------------------------------------------------


class Journal(Actor):
    """Owns the file. Its handlers have no checkpoint, so none is interrupted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, Outcome] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Read what earlier incarnations have written, and write on."""
        with self._path.open("a+") as self._file:
            self._file.seek(0)
            for line in self._file:
                job_id, outcome = json.loads(line)
                self._outcomes[job_id] = Outcome(**outcome)
            yield

    @handles(Begin)
    async def begin(self, message: Begin) -> Outcome | None:
        """Answer what is known about a job; if nothing is, write that it begins."""
        known = self._outcomes.get(message.job_id)
        if known is None:
            self._write(message.job_id, BEGUN)
        return known

    @handles(End)
    async def end(self, message: End) -> None:
        """Write down an outcome."""
        self._write(message.job_id, message.outcome)

    def _write(self, job_id: str, outcome: Outcome) -> None:
        self._file.write(json.dumps([job_id, asdict(outcome)]) + "\n")
        self._file.flush()
        self._outcomes[job_id] = outcome

    def is_fatal(self, exc: Exception) -> bool:
        """A file that cannot be written is opened again."""
        return isinstance(exc, OSError)


# --- the workers ----------------------------------------------------------------------


class JobFailed(Exception):
    """The job itself raised an exception. Its worker is fine."""


class ToolDied(Exception):
    """The process of a worker has died, with the job that it was doing."""


Tool = Callable[[str], Awaitable[str]]
"""Evaluates an expression, or raises `JobFailed` or `ToolDied`."""

OpenTool = Callable[[], AbstractAsyncContextManager[Tool]]


class Worker(Actor):
    """Owns a tool, and does jobs with it, one at a time."""

    def __init__(self, open_tool: OpenTool) -> None:
        self._open_tool = open_tool

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Get a tool, and put it away."""
        async with self._open_tool() as self._tool:
            yield

    @handles(Do)
    async def do(self, message: Do) -> Outcome:
        """Do a job between two entries in the journal."""
        job = message.job
        outcome = await message.journal.call(Begin(job.id))
        if outcome is None:
            outcome = await self._use_tool(job.expression)
            await message.journal.call(End(job.id, outcome))
        return outcome

    async def _use_tool(self, expression: str) -> Outcome:
        try:
            return Outcome("done", await self._tool(expression))
        except JobFailed as error:
            return Outcome("failed", str(error))
        except trio.Cancelled:
            # The desk has died. The tool is in the middle of a job, and useless.
            self.fail(ToolDied("left in the middle of a job"))
            raise

    def is_fatal(self, exc: Exception) -> bool:
        """A dead tool is replaced, together with its worker."""
        return isinstance(exc, ToolDied)


# --- the desk -------------------------------------------------------------------------


class Desk(Actor):
    """Takes jobs, and answers when they have an outcome."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Later[Outcome]]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Find the neighbors; at the end, leave the jobs that are under way."""
        assert self.supervisor is not None
        self._journal = self.supervisor.child("journal")
        self._workers = self.supervisor.child("workers")
        async with trio.open_nursery() as self._jobs:
            yield
            self._jobs.cancel_scope.cancel("the desk closes")

    @handles(Submit)
    async def submit(self, message: Submit) -> Later[Outcome]:
        """Begin a job, or wait with those who wait for the same one."""
        job = message.job
        if job.id not in self._waiting:
            self._waiting[job.id] = []
            self._jobs.start_soon(self._carry_out, job, name=f"job {job.id}")
        later = self.defer(message, keep_slot=False)
        self._waiting[job.id].append(later)
        return later

    async def _carry_out(self, job: Job) -> None:
        outcome = None
        while outcome is None:
            # If a worker has died, another one asks the journal if the job had begun.
            with suppress(ActorCrashed, ToolDied):
                outcome = await self._workers.call(Do(job, self._journal))
        for later in self._waiting.pop(job.id):
            later.reply(outcome)


# --- the inspector --------------------------------------------------------------------


class Inspector(Actor):
    """Watches the workers."""

    def __init__(self) -> None:
        self._watched: set[ActorRef] = set()
        self._ends: list[str] = []
        self._asking: list[Later[tuple[str, ...]]] = []

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Look at once, and then every second."""
        self.after(0, Look())
        self.every(1, Look())
        yield

    @handles(Look)
    async def look(self, message: Look) -> None:
        """Watch the workers that are not watched yet."""
        assert self.supervisor is not None
        workers = self.supervisor.child("workers", SupervisorRef)
        for info in await workers.which_children():
            worker = workers.child(info.id)
            if worker not in self._watched:
                self._watched.add(worker)
                self.watch(worker)

    @handles(Down)
    async def down(self, message: Down) -> None:
        """Remember why a worker ended, and watch its next incarnation."""
        self._ends.append(f"{message.ref.name}: {message.reason}, {message.error}")
        if message.comes_back:
            self.watch(message.ref)
        else:
            self._watched.discard(message.ref)
        for later in self._asking:
            later.reply(tuple(self._ends))
        self._asking.clear()

    @handles(Report)
    async def report(self, message: Report) -> tuple[str, ...] | Later[tuple[str, ...]]:
        """Answer now, or when the first worker has ended."""
        if self._ends:
            return tuple(self._ends)
        later = self.defer(message, keep_slot=False)
        self._asking.append(later)
        return later


# --- the system -----------------------------------------------------------------------


def job_runner(path: Path, open_tool: OpenTool, size: int = 4) -> list[ChildSpec]:
    """Describe the actors of a job runner. Each may die without the others."""
    return [
        ChildSpec("journal", partial(Journal, path)),
        ChildSpec("workers", lambda: Pool(partial(Worker, open_tool), size=size)),
        ChildSpec("desk", Desk),
        ChildSpec("inspector", Inspector),
    ]


EVALUATE: Final = """
import json, sys
for line in sys.stdin:
    try:
        answer = ["done", str(eval(line))]
    except Exception as error:
        answer = ["failed", f"{type(error).__name__}: {error}"]
    print(json.dumps(answer), flush=True)
"""


@asynccontextmanager
async def open_process() -> AsyncGenerator[Tool]:
    """A tool that is a process: an expression may even end it."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", EVALUATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    requests, answers = process.stdin, process.stdout

    async def evaluate(expression: str) -> str:
        line = b""
        try:
            await requests.send_all(expression.encode() + b"\n")
            while not line.endswith(b"\n"):
                chunk = await answers.receive_some()
                if not chunk:
                    raise ToolDied("its process has exited")
                line += chunk
        except trio.BrokenResourceError as error:
            raise ToolDied("its process has exited") from error
        kind, text = json.loads(line)
        if kind == "failed":
            raise JobFailed(text)
        return str(text)

    try:
        yield evaluate
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await requests.aclose()
            await answers.aclose()


JOBS: Final = (
    Job("answer", "6 * 7"),
    Job("nonsense", "1 / 0"),
    Job("deadly", "exit()"),
)


async def submit_all(desk: ActorRef, *jobs: Job) -> None:
    """Submit jobs at the same time, and print what became of them."""
    outcomes: dict[str, Outcome] = {}

    async def submit(job: Job) -> None:
        outcomes[job.id] = await desk.call(Submit(job))

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(submit, job)
    for job in jobs:
        print(f"{job.id}: {outcomes[job.id].kind}, {outcomes[job.id].text}")


async def main() -> None:
    """Do some jobs, lose a worker, and ask again after a restart of everything."""
    with tempfile.TemporaryDirectory() as folder:
        actors = job_runner(Path(folder) / "journal", open_process)
        async with open_supervisor(*actors) as supervisor:
            await submit_all(supervisor.child("desk"), *JOBS)
            print(*await supervisor.child("inspector").call(Report()), sep="\n")
            print(supervisor.tree())
        print("--- later")
        async with open_supervisor(*actors) as supervisor:
            await submit_all(supervisor.child("desk"), *JOBS)


if __name__ == "__main__":
    trio.run(main)
