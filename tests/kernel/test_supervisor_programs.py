"""The promises of a supervisor hold, whatever is done in whatever order.

The programs are drawn at random. See `run_programs`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from mcp_actors.kernel import (
    ActorError,
    ActorRef,
    ActorStopped,
    Backoff,
    ChildSpec,
    Crashed,
    Event,
    GaveUp,
    IgnoreStart,
    Overdue,
    Restarting,
    Started,
    StartFailed,
    Starting,
    Stopped,
    Stopping,
    SupervisorRef,
    open_supervisor,
)

from ..programs import run_programs
from .workers import Boom, Crash, Deed, Echo, Finish, Hang, Hopeless, Yard, shielded

RESTART = {"p": "permanent", "t": "transient", "m": "temporary"}
ENDING = ["t1", "t2", "m1", "m2"]
IDS = ["p1", "p2", "p3", "t1", "t2", "m1", "m2"]


@frozen
class Act:
    """One act on the supervisor, by a task that leaves after ``patience`` seconds."""

    verb: str
    id: str
    patience: float
    background: bool


@frozen
class Program:
    options: dict[str, Any]
    ids: list[str]
    starts: dict[str, list[Deed]]
    stops: dict[str, Deed]
    shutdowns: dict[str, Any]
    start_timeouts: dict[str, float | None]
    significant: set[str]
    acts: list[Act]


def fresh(deed: Deed) -> Deed:
    """An exception that is raised again and again keeps the frames of every time; each program gets its own."""
    return type(deed)(*deed.args) if isinstance(deed, BaseException) else deed


START_DEEDS: st.SearchStrategy[Deed] = st.sampled_from(
    [None, None, None, 0.5, 2.0, Boom("start"), Boom("start"), Hopeless("start"), IgnoreStart(), partial(shielded, 30)]
).map(fresh)
STOP_DEEDS: st.SearchStrategy[Deed] = st.sampled_from(
    [None, None, 0.5, 2.0, math.inf, Boom("stop"), partial(shielded, 30)]
).map(fresh)
LATER_DEEDS: st.SearchStrategy[Deed] = st.one_of(START_DEEDS, st.just(math.inf))
"""The acts of starts that no task awaits: all but the first of a child that the program begins with."""

VERBS = ["crash", "crash", "crash", "hopeless", "finish", "call", "call", "hang"]
VERBS += ["stop_child", "keep_mailbox", "restart_child", "delete_child", "start_child", "sleep", "which_children"]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    window = draw(st.sampled_from([1.0, 5.0, math.inf]))
    max_restarts = draw(st.integers(0, 3))
    backoffs = [Backoff(), Backoff(first=0.5), Backoff(initial=0.5), Backoff(first=1, initial=1, jitter=0.5)]
    options = {
        "max_restarts": max_restarts,
        "window": window,
        "backoff": draw(st.sampled_from([b for b in backoffs if b.total(max_restarts) < window])),
        "reset_after": draw(st.sampled_from([None, 3.0])),
        "strategy": draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])),
        "auto_shutdown": draw(st.sampled_from(["never", "never", "any_significant", "all_significant"])),
        "on_limit": draw(st.sampled_from(["end", "park"])),
        "start_order": draw(st.sampled_from(["sequential", "parallel"])),
        "stop_order": draw(st.sampled_from(["sequential", "concurrent"])),
        "strict": draw(st.booleans()),
    }
    ids = draw(st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=4))
    named = list(dict.fromkeys([*ids, draw(st.sampled_from(IDS))]))
    known = st.sampled_from([*ids, *named])
    starts = {id: draw(st.lists(LATER_DEEDS, max_size=4)) for id in named}
    for id in ids:
        starts[id][:1] = [draw(START_DEEDS)]
    act = st.builds(Act, st.sampled_from(VERBS), known, st.sampled_from([0.2, 1.0, 20.0, math.inf]), st.booleans())
    return Program(
        options=options,
        ids=ids,
        starts=starts,
        stops={id: draw(STOP_DEEDS) for id in named},
        shutdowns={id: draw(st.sampled_from([None, 1.0, "brutal_kill"])) for id in named},
        start_timeouts={id: draw(st.sampled_from([None, None, 1.0])) for id in named},
        significant=draw(st.sets(st.sampled_from(["t1", "t2", "m1", "m2"])))
        if options["auto_shutdown"] != "never"
        else set(),
        acts=draw(st.lists(act, min_size=3, max_size=25)),
    )


@define(eq=False)
class Run:
    """Runs a program and keeps what the checks need."""

    program: Program
    yard: Yard = field(factory=Yard)
    refs: list[ActorRef] = field(factory=list)
    asked: int = 0
    outcomes: list[str] = field(factory=list)
    order: list[str] = field(factory=list)
    entered: bool = False
    budget_was_cleared: bool = False
    failed: set[str] = field(factory=set)
    started: set[str] = field(factory=set)
    never_started: set[str] = field(factory=set)
    deeds: dict[str, Any] = field(factory=dict)
    told_to_stop: set[str] = field(factory=set)
    under_way: set[str] = field(factory=set)
    stopped_by_hand: set[str] = field(factory=set)
    unexplained: list[str] = field(factory=list)
    due: list[tuple[str, float]] = field(factory=list)

    async def main(self) -> None:
        self.order = [*self.program.ids]
        self.deeds = {id: iter(deeds) for id, deeds in self.program.starts.items()}
        specs = [self.spec(id) for id in self.program.ids]
        try:
            with trio.fail_after(1e6):
                async with (
                    trio.open_nursery() as nursery,
                    open_supervisor(*specs, observers=[self.observe], **self.program.options) as supervisor,
                ):
                    self.entered = True
                    for id in self.program.ids:
                        self.remember(supervisor, id)
                    for act in self.program.acts:
                        await self.do(act, supervisor, nursery)
        except* ActorError:  # the limit, or a failed strict start
            pass

    def spec(self, id: str) -> ChildSpec:
        made = self.yard.spec(id, stop=self.program.stops[id])
        worker = made.factory

        def factory() -> Any:
            actor = worker()
            actor.start_deed = next(self.deeds[id], None)  # type: ignore[attr-defined]  # it is a Worker
            return actor

        return ChildSpec(
            id,
            factory,
            restart=RESTART[id[0]],  # type: ignore[arg-type]  # a plain string
            shutdown=self.program.shutdowns[id],
            start_timeout=self.program.start_timeouts[id],
            significant=id in self.program.significant,
        )

    def observe(self, event: Event) -> None:
        self.yard.events.append(event)
        if isinstance(event, Starting) and event.actor in self.yard.running:
            self.unexplained.append(f"{event.actor} was started while it ran")
        if isinstance(event, Restarting):
            self.due.append((event.actor, event.time + event.delay))
        if isinstance(event, GaveUp):
            self.failed.add(event.actor)
        if isinstance(event, Starting) and event.incarnation == 1:
            self.started.discard(event.actor)
        if isinstance(event, Started):
            self.started.add(event.actor)
        if isinstance(event, (StartFailed, Overdue)) and event.actor not in self.started:
            self.never_started.add(event.actor)
        if isinstance(event, Starting) and event.actor in self.failed:
            self.budget_was_cleared = True
        if self.entered and isinstance(event, Starting) and event.incarnation == 1 and event.actor != "supervisor":
            # A child that is added later, or again, has its place at the end.
            self.order = [*(id for id in self.order if id != event.actor), event.actor]

    def remember(self, supervisor: SupervisorRef, id: str) -> ActorRef | None:
        try:
            ref = supervisor.child(id)
        except ActorError:
            return None
        self.refs.append(ref)
        return ref

    async def do(self, act: Act, supervisor: SupervisorRef, nursery: trio.Nursery) -> None:
        messages = {"crash": Crash(), "hopeless": Crash(Hopeless("crash")), "finish": Finish(), "hang": Hang()}
        ref = self.remember(supervisor, act.id)
        if act.verb == "sleep":
            await trio.sleep(min(act.patience, 100))
        elif act.verb in {*messages, "call"}:
            if ref is not None:
                self.asked += 1
                nursery.start_soon(self.call, ref, messages.get(act.verb, Echo(1)), act.patience)
        elif act.background:
            nursery.start_soon(self.change, act, supervisor)
        else:
            await self.change(act, supervisor)
        await wait_all_tasks_blocked()

    async def change(self, act: Act, supervisor: SupervisorRef) -> None:
        changes: dict[str, Callable[[], Awaitable[object]]] = {
            "which_children": supervisor.which_children,
            "keep_mailbox": partial(supervisor.stop_child, act.id, keep_mailbox=True),
            "stop_child": partial(supervisor.stop_child, act.id),
            "delete_child": partial(supervisor.delete_child, act.id),
            "restart_child": partial(supervisor.restart_child, act.id),
            "start_child": partial(supervisor.start_child, self.spec(act.id)),
        }
        if act.verb in ("start_child", "restart_child"):
            self.due.append((act.id, trio.current_time()))
        if act.verb == "stop_child":
            self.told_to_stop.add(act.id)
        is_stop = act.verb in ("stop_child", "keep_mailbox")
        if is_stop:
            self.under_way.add(act.id)
            self.stopped_by_hand.add(act.id)
        with trio.move_on_after(min(act.patience, 100)), suppress(ActorError):
            await changes[act.verb]()
            if is_stop:
                self.under_way.discard(act.id)

    async def call(self, ref: ActorRef, message: Any, patience: float) -> None:
        outcome = "left"
        with trio.move_on_after(patience):
            try:
                await ref.call(message)
                outcome = "answered"
            except (ActorError, Boom, Hopeless) as exc:
                outcome = type(exc).__name__
                if isinstance(exc, ActorStopped) and not self.ended_for_good(ref.name):
                    self.unexplained.append(str(exc))
        self.outcomes.append(outcome)

    def ended_for_good(self, id: str) -> bool:
        """Return True if there is a reason not to serve messages to a child; a stop with its group does not count."""
        if (
            id in self.told_to_stop
            or id in self.failed
            or (self.program.options["strict"] and id in self.never_started)
        ):
            return True
        return any(
            (event.actor == "supervisor" and isinstance(event, Stopping))
            or (event.actor == id and self.is_final(event))
            for event in self.yard.events
        )

    @staticmethod
    def is_final(event: Event) -> bool:
        if isinstance(event, Stopped) or (isinstance(event, Stopping) and event.reason != "shutdown"):
            return True
        return isinstance(event, (Stopping, Crashed, Overdue)) and event.actor.startswith("m")

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        assert self.yard.running == []
        assert len(self.outcomes) == self.asked
        assert self.unexplained == []
        assert all(event.incarnation == 1 for event in self.yard.events if self.is_start_of_temporary(event))
        assert all(ref.state in ("stopped", "failed") for ref in self.refs)
        trio.run(self.check_refusals)
        if self.program.options["reset_after"] is None and not self.budget_was_cleared:
            self.check_budget()
        if self.entered:
            self.check_stop_order()
            if (self.program.options["start_order"], self.program.options["strategy"]) == ("parallel", "one_for_one"):
                self.check_nobody_waited()

    @staticmethod
    def is_start_of_temporary(event: Event) -> bool:
        return isinstance(event, Starting) and event.actor.startswith("m")

    async def check_refusals(self) -> None:
        for ref in self.refs:
            try:
                await ref.call(Echo(1))
            except ActorStopped:
                continue
            raise AssertionError(f"{ref} took a message")

    def check_budget(self) -> None:
        window, most = self.program.options["window"], self.program.options["max_restarts"]
        times = [time for (time,) in self.yard.of(Restarting, "time")]
        for end in times:
            assert sum(0 <= end - time <= window for time in times) <= most

    def check_nobody_waited(self) -> None:
        """B-33: each start is made when it is due, whatever the others do; and each that is due is made."""
        overdue = set(self.yard.of(Overdue))
        starts = [start for start in self.yard.of(Starting, "actor", "time") if start[0] in IDS]
        for start in starts:
            due = [*self.due, *((id, 0) for id in self.program.ids)]
            assert start[0] in overdue or any(near(start, each) for each in due), start
        end = next(time for actor, time in self.yard.of(Stopping, "actor", "time") if actor == "supervisor")
        for event in self.yard.events:
            if isinstance(event, Restarting) and event.actor not in {*overdue, *self.stopped_by_hand}:
                time = event.time + event.delay
                assert end <= time or any(near(start, (event.actor, time)) for start in starts), event

    def check_stop_order(self) -> None:
        kinds = [(type(event), event.actor) for event in self.yard.events]
        tail = kinds[kinds.index((Stopping, "supervisor")) + 1 :]
        one_by_one = self.program.options["stop_order"] == "sequential" and not self.yard.of(Overdue)
        kind = Stopped if one_by_one else Stopping
        # A stop that was under way before the supervisor's own has its own place in time.
        others = {"supervisor", *self.under_way}
        stops = [actor for event, actor in tail if event is kind and actor not in others]
        assert stops == sorted(stops, key=self.order.index, reverse=True)


def near(start: tuple[str, float], due: tuple[str, float]) -> bool:
    return start[0] == due[0] and math.isclose(start[1], due[1], abs_tol=1e-6)


def test_a_supervisor_keeps_its_promises_whatever_is_done_to_it(record_property: Callable[[str, object], None]) -> None:
    run_programs(programs(), Run, record_property, number=80, full=5_000)
