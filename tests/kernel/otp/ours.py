"""Run programs on our supervisor.

The events come from the children's own ``running()`` and from the driver, never from the supervisor. The driver is not
the task that opened the supervisor, so that it goes on when that has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorStartError,
    ActorStopped,
    ChildError,
    ChildSpec,
    IgnoreStart,
    RestartLimitReached,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)

from .terms import Program, Term

STATES = {"running": "up", "backoff": "restarting", "stopped": "down", "failed": "down"}


class Killed(Exception):
    """Stands for a kill from outside."""


Begun = list[Callable[[], Awaitable[Term]]]
"""Calls whose results are still to come."""


@define(eq=False)
class Run:
    """Runs one program and records what happens.

    Attributes:
        program: the program.
        events: the recording.
        workers: the workers that run.
        supervisors: where the supervisors that run were started, also those that are still starting.
        starts: how often each child was started.
        hanging: the number of children that wait to be killed.
        gate: children wait for it; None while it is open.
        held: the children that wait at the gate, each with its supervisor.
    """

    program: Program
    events: list[Term] = field(factory=list)
    workers: dict[str, Worker] = field(factory=dict)
    supervisors: dict[str, str] = field(factory=dict)
    starts: dict[str, int] = field(factory=dict)
    hanging: int = 0
    gate: trio.Event | None = None
    held: list[tuple[str, str]] = field(factory=list)
    _root: SupervisorRef = field(init=False)
    _tasks: trio.Nursery = field(init=False)

    async def main(self) -> list[Term]:
        """Run the program in a supervisor that a task of its own opens and leaves."""
        leave = trio.Event()
        with trio.fail_after(1e6):  # in virtual time: an endless wait is an error
            async with trio.open_nursery() as self._tasks:
                if await self._tasks.start(self._hold, leave):
                    await self._drive(leave)
        return self.events

    async def _hold(self, leave: trio.Event, *, task_status: trio.TaskStatus[bool]) -> None:
        flags, specs, _ = self.program
        entered = False
        try:
            async with open_supervisor(*self.specs(specs, "root"), name="root", **flags_of(flags)) as self._root:
                entered = True
                self.events.append("sup_started")
                task_status.started(True)
                await leave.wait()
        except RestartLimitReached:
            assert entered
        except ActorStartError as exc:
            self.events.append(("sup_start_error", ("failed_to_start_child", exc.actor)))
            task_status.started(False)
        except ValueError as exc:
            self.events.append(("sup_start_error", ("start_spec", self._refusal(exc, specs))))
            task_status.started(False)

    async def _drive(self, leave: trio.Event) -> None:
        for action in self.program[2]:
            if action == "stop_sup":
                await self._stop(leave)
                self._living()
                self.events.append(("sup_alive", "false"))
                return
            await self._step(action)
        if self._root.state == "running":
            self._living()
            self.events.append(("sup_alive", "true"))
            await self._stop(leave)
        else:
            leave.set()
            self.events.append(("sup_exit", "shutdown"))
            self._living()
            self.events.append(("sup_alive", "false"))

    async def _stop(self, leave: trio.Event) -> None:
        self.events.append("sup_stop_requested")
        leave.set()
        await self._root.wait_stopped()
        self.events.append(("sup_exit", "shutdown"))

    def _living(self) -> None:
        ids = [spec["id"] for spec in self.program[1]]
        self.events.append(("alive", [id for id in ids if id in self.workers or id in self.supervisors]))

    # --- actions ----------------------------------------------------------------------------------------------------

    async def _step(self, action: Term) -> None:
        match action:
            case ("sleep", ms):
                await trio.sleep(ms / 1000)
            case "look":
                self.events.append(("look", await self._look("root")))
            case ("together", actions):
                await self._conclude(await self._together(actions))
            case ("at_once", deaths):
                for death in deaths:
                    self._begin(death)
                await self._conclude([])
            case ("during", trigger, actions):
                await self._conclude(await self._during(trigger, actions))
            case _:
                await self._conclude(self._begin(action))

    def _begin(self, action: Term) -> Begun:
        """Begin an action, and return the calls whose results are still to come."""
        match action:
            case ("kill", id):
                self._die(id, ("killed", id), Killed())
            case ("exit", id, reason):
                self._die(id, ("died", id, reason), _failure(reason))
            case ("on", home, (verb, argument)):
                return [self._call(home, verb, argument)]
            case (verb, argument):
                return [self._call("root", verb, argument)]
        return []

    def _die(self, id: str, last_words: Term, failure: Exception | None) -> None:
        worker = self.workers.get(id)
        if worker is None or worker.last_words is not None:
            self.events.append(("nobody", id))
        else:
            worker.finish(last_words, failure)

    def _call(self, home: str, verb: str, argument: Term) -> Callable[[], Awaitable[Term]]:
        id = argument["id"] if verb == "start_child" else argument
        results: list[Term] = []
        done = trio.Event()

        async def call() -> None:
            results.append(await self._result(home, verb, argument))
            done.set()

        async def event() -> Term:
            await done.wait()
            return ("call", verb, id, results[0])

        self._tasks.start_soon(call)
        return event

    async def _result(self, home: str, verb: str, argument: Term) -> Term:
        try:
            supervisor = self._find(home)
            # An actor that is not running but comes back keeps messages; OTP loses them.
            if supervisor.state != "running":
                return "gone"
            given = self.specs([argument], home)[0] if verb == "start_child" else argument
            await getattr(supervisor, verb)(given)
        except ChildError as exc:
            return exc.reason if exc.reason == "already_started" else ("error", exc.reason)
        except ActorStartError:
            return ("error", "start_failed")
        except (ActorStopped, ActorCrashed):
            return "gone"
        except ValueError as exc:
            return ("error", self._refusal(exc, [argument]))
        return "ok"

    def _find(self, id: str) -> SupervisorRef:
        """Return the reference to a supervisor that runs.

        Raises:
            ActorStopped: it does not.
        """
        if id == "root":
            return self._root
        if id not in self.supervisors:
            raise ActorStopped(id, actor=id)
        found = self._find(self.supervisors[id]).child(id)
        assert isinstance(found, SupervisorRef)
        return found

    @staticmethod
    def _refusal(exc: ValueError, specs: list[dict[str, Term]]) -> Term:
        """Return OTP's reason for what is a ValueError here."""
        message, ids = str(exc), [spec["id"] for spec in specs]
        if "two children" in message:
            return ("duplicate_child_name", next(id for id in ids if ids.count(id) > 1))
        rule = ("restart", "permanent") if "permanent child" in message else ("auto_shutdown", "never")
        return ("bad_combination", [rule, ("significant", "true")])

    async def _settle(self) -> None:
        """Wait until nothing is left to do, also not for children that wait to be killed."""
        await wait_all_tasks_blocked()
        with trio.fail_after(10):
            while self.hanging:
                await trio.sleep(0.001)
                await wait_all_tasks_blocked()

    async def _conclude(self, begun: Begun) -> None:
        """Wait until all is quiet, and record the results in the order of the calls."""
        await self._settle()
        self.events += [await event() for event in begun]

    # --- actions at the same time -----------------------------------------------------------------------------------

    async def _together(self, actions: list[Term]) -> Begun:
        chains = {above for action in actions for above in self._chain(self._home(action))}
        begun: Begun = []
        async with AsyncExitStack() as stack:
            # The stack lets the last one go on first.
            for id in sorted(sorted(chains, reverse=True), key=lambda id: len(self._chain(id))):
                await stack.enter_async_context(busy(self._find(id), self._settle))
            for action in actions:
                begun += self._begin(action)
                await wait_all_tasks_blocked()
        return begun

    def _chain(self, id: str | None) -> list[str]:
        """Return a supervisor and all above it, if they run."""
        if id == "root":
            return ["root"] if self._root.state == "running" else []
        return [id, *self._chain(self.supervisors[id])] if id in self.supervisors else []

    def _home(self, action: Term) -> str | None:
        match action:
            case ("kill", id) | ("exit", id, _):
                return self.workers[id].home if id in self.workers else None
            case ("on", home, _):
                return str(home)
        return "root"

    async def _during(self, trigger: Term, actions: list[Term]) -> Begun:
        self.gate = trio.Event()
        begun = self._begin(trigger)
        await self._settle()
        if self.held:
            [(held, home)] = self.held
            for action in actions:
                is_about_held = action[0] in ("kill", "exit") and action[1] == held
                if self._home(action) != home or is_about_held or self._find(home).state == "starting":
                    self.events.append(("refused", action))
                    continue
                begun += self._begin(action)
                await wait_all_tasks_blocked()
        self.held.clear()
        self.gate.set()
        self.gate = None
        return begun

    async def pass_gate(self, id: str, home: str) -> None:
        """Wait while the gate is closed."""
        if self.gate is not None:
            self.held.append((id, home))
            await self.gate.wait()

    # --- the tree ---------------------------------------------------------------------------------------------------

    async def _look(self, id: str) -> list[Term]:
        supervisor = self._find(id)
        if supervisor.state != "running":
            return []
        children = await supervisor.which_children()
        counts = await supervisor.count_children()
        rows = [(child.id, STATES.get(child.state, child.state)) for child in children]
        found = [(id, rows, [counts.specs, counts.active, counts.supervisors, counts.workers])]
        for child in children:
            if child.kind == "supervisor" and child.state == "running":
                found += await self._look(child.id)
        return found

    def specs(self, terms: Iterable[dict[str, Term]], home: str) -> list[ChildSpec]:
        """Return the child specs for a supervisor."""
        return [self._spec(term, home) for term in terms]

    def _spec(self, term: dict[str, Term], home: str) -> ChildSpec:
        options: dict[str, Term] = {name: term[name] for name in ("restart", "shutdown") if name in term}
        if isinstance(options.get("shutdown"), int):
            options["shutdown"] /= 1000
        if "significant" in term:
            options["significant"] = term["significant"] == "true"
        made_by = Nested if term.get("type") == "supervisor" else Worker
        return ChildSpec(term["id"], partial(made_by, self, term, home), **options)

    def next_start(self, term: dict[str, Term]) -> str:
        """Return what this start does."""
        number = self.starts.get(term["id"], 0)
        self.starts[term["id"]] = number + 1
        plan = term.get("init", [])
        return plan[number] if number < len(plan) else "ok"


def flags_of(flags: dict[str, Term]) -> dict[str, Term]:
    """Return a supervisor's options."""
    names = {"strategy": "strategy", "intensity": "max_restarts", "period": "window", "auto_shutdown": "auto_shutdown"}
    return {names[name]: value for name, value in flags.items()}


def _failure(reason: Term) -> Exception | None:
    is_shutdown = reason == "shutdown" or (isinstance(reason, tuple) and reason[0] == "shutdown")
    return None if is_shutdown or reason == "normal" else RuntimeError(f"exit: {reason}")


class Worker(Actor):
    """A process without children."""

    def __init__(self, run: Run, term: dict[str, Term], home: str) -> None:
        self.run = run
        self.term = term
        self.id = term["id"]
        self.home = home
        self.last_words: Term = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start and stop as the program says."""
        record = self.run.events.append
        match self.run.next_start(self.term):
            case "fail":
                record(("start_failed", self.id))
                raise RuntimeError("does not start")
            case "ignore":
                record(("start_ignored", self.id))
                raise IgnoreStart
            case "wait":
                record(("starting", self.id))
                await self.run.pass_gate(self.id, self.home)
        record(("started", self.id))
        self.run.workers[self.id] = self
        try:
            yield
            # A killed process gets no further than this.
            await trio.lowlevel.checkpoint()
            if self.last_words is None:
                await self._stop(self.term.get("stop", "ok"))
            record(self.last_words or ("stopped", self.id, "shutdown"))
        finally:
            del self.run.workers[self.id]

    async def _stop(self, plan: str) -> None:
        if plan == "asked":
            self.run.events.append(("asked", self.id))
            await self.run.pass_gate(self.id, self.home)
        elif plan == "hang":
            self.run.hanging += 1
            try:
                await trio.sleep_forever()
            finally:
                self.run.hanging -= 1

    def finish(self, last_words: Term, failure: Exception | None) -> None:
        """End by itself."""
        self.last_words = last_words
        if failure is not None:
            self.fail(failure)
        else:
            self.stop("normal" if last_words[-1] == "normal" else "shutdown")

    async def handle(self, message: object) -> None:
        """Receive no message."""
        raise NotImplementedError


class Nested(Supervisor):
    """A supervisor below another."""

    def __init__(self, run: Run, term: dict[str, Term], home: str) -> None:
        self.run = run
        self.term = term
        self.id = term["id"]
        self.home = home
        super().__init__(*run.specs(term.get("children", []), self.id), **flags_of(term.get("flags", {})))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start as the program says."""
        record = self.run.events.append
        plan = self.run.next_start(self.term)
        if plan == "ignore":
            record(("start_ignored", self.id))
            raise IgnoreStart
        if plan == "fail":
            record(("start_failed", self.id))
            raise RuntimeError("does not start")
        self.run.supervisors[self.id] = self.home
        served = False
        try:
            async with super().running():
                served = True
                record(("started", self.id))
                yield
        finally:
            if not served:
                record(("start_failed", self.id))
            del self.run.supervisors[self.id]


class Blocker(Actor):
    """Does not start, but takes a while for that."""

    def __init__(self, gate: trio.Event) -> None:
        self.gate = gate

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Wait, and fail."""
        await self.refuse()
        yield

    async def refuse(self) -> None:
        """Wait, and fail."""
        await self.gate.wait()
        raise RuntimeError("does not start")

    async def handle(self, message: object) -> None:
        """Receive no message."""
        raise NotImplementedError


@asynccontextmanager
async def busy(supervisor: SupervisorRef, settle: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Have a supervisor do nothing else until the block is left; then wait until it has done everything."""
    gate = trio.Event()

    async def block() -> None:
        with suppress(ActorStartError, ActorStopped, ActorCrashed):
            await supervisor.start_child(ChildSpec("blocker", lambda: Blocker(gate)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(block)
        await wait_all_tasks_blocked()
        yield
        gate.set()
    await settle()


def run_program(program: Program) -> list[Term]:
    """Run a program in virtual time, and return its recording."""
    return trio.run(Run(program).main, clock=MockClock(autojump_threshold=0))
