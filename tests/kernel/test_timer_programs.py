"""Timers and monitors keep their promises through random crashes, stops, restarts and changes.

No message of a timer is handled after the end of its incarnation or after `cancel`, none is lost and none comes early.
A monitor reports exactly once, to the incarnation that watches. The programs are drawn at random; see `run_programs`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorRef,
    Backoff,
    Call,
    ChildSpec,
    Crashed,
    Down,
    Event,
    Message,
    Monitor,
    Restarting,
    StartFailed,
    Starting,
    StopActor,
    Supervisor,
    SupervisorRef,
    Timer,
    open_actor,
    open_supervisor,
)

from ..programs import run_programs
from .workers import Boom, Deed, do, shielded

RESTART = {"p": "permanent", "t": "transient", "m": "temporary"}
PATHS = ["p1", "t1", "m1", "n", "n/p2", "n/t2"]
"""``n`` is a nested supervisor."""

QUIET = 500.0
"""Seconds at the end in which nothing is done, so that all timers of the actors that still run are due."""

STARTS: st.SearchStrategy[Deed] = st.sampled_from([None, None, None, 0.5, 2.0, "boom", partial(shielded, 20)])
STOPS: st.SearchStrategy[Deed] = st.sampled_from([None, None, 0.5, 3.0, "boom", partial(shielded, 20)])
VERBS = ["after", "after", "every", "cancel", "watch", "watch", "watch", "watch", "unwatch", "busy", "sleep"]
VERBS += [
    "crash",
    "crash",
    "crash",
    "finish",
    "stop_child",
    "stop_child",
    "keep_mailbox",
    "restart_child",
    "delete_child",
]


@frozen
class Act:
    verb: str
    path: str
    other: str
    seconds: float


@frozen
class Program:
    options: dict[str, Any]
    starts: dict[str, list[Any]]
    stops: dict[str, Any]
    mailbox_size: int
    overflow: Any
    acts: list[Act]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    options = {
        "max_restarts": draw(st.sampled_from([0, 1, 3, 100])),
        "window": math.inf,
        "backoff": draw(st.sampled_from([Backoff(), Backoff(first=0.5), Backoff(first=9.0)])),
        "strategy": draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])),
        "on_limit": draw(st.sampled_from(["end", "park"])),
        "start_order": draw(st.sampled_from(["sequential", "parallel"])),
        "stop_order": draw(st.sampled_from(["sequential", "concurrent"])),
        "strict": draw(st.booleans()),
    }
    leaves = [path for path in PATHS if path != "n"]
    act = st.builds(
        Act,
        st.sampled_from(VERBS),
        st.sampled_from(PATHS),
        st.sampled_from(PATHS),
        st.sampled_from([0.0, 0.3, 1.0, 7.0]),
    )
    return Program(
        options=options,
        starts={path: [None, *draw(st.lists(STARTS, max_size=3))] for path in leaves},
        stops={path: draw(STOPS) for path in leaves},
        mailbox_size=draw(st.sampled_from([1, 2, 256])),
        overflow=draw(st.sampled_from(["wait", "fail"])),
        acts=draw(st.lists(act, min_size=10, max_size=40)),
    )


@frozen(eq=False)
class Tick(Message):
    """The message of a timer."""

    set_timer: SetTimer


@frozen(eq=False)
class Ask(Call[None]):
    """Have a handler run a function of its actor."""

    fn: Callable[[Member], Awaitable[None]]


@define(eq=False)
class SetTimer:
    """A timer, and what came of it."""

    owner: Member
    at: float
    seconds: float
    repeats: bool
    timer: Timer | None = None
    canceled: bool = False
    handled: list[float] = field(factory=list)


@define(eq=False)
class SetMonitor:
    """A monitor, and its reports."""

    owner: Member
    path: str
    monitor: Monitor
    canceled: bool = False
    reports: list[Down] = field(factory=list)


@define(eq=False)
class Life:
    """The timers and monitors of one incarnation, for the checks."""

    timers: list[SetTimer] = field(factory=list)
    monitors: list[SetMonitor] = field(factory=list)


class Member(Actor):
    """Does what it is asked to, and notes what it gets."""

    def __init__(self, run: Run, start: Any = None, stop: Any = None) -> None:
        self.run = run
        self.start_deed = Boom("start") if start == "boom" else start
        self.stop_deed = Boom("stop") if stop == "boom" else stop
        self.ended = False
        self.life = Life()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.run.lives.append(self)
        await self.run.after(self, seconds=0.4)
        try:
            await do(self.start_deed)
            yield
        finally:
            self.ended = True
        await do(self.stop_deed)

    async def handle(self, message: Ask | Tick | Down) -> None:
        match message:
            case Ask(fn):
                await fn(self)
            case Tick(each):
                self.run.check_tick(self, each)
                each.handled.append(trio.current_time())
            case Down():
                self.run.note_down(self, message)

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Boom)


@define(eq=False)
class Run:
    """Runs a program and keeps what the checks need."""

    program: Program
    lives: list[Member] = field(factory=list)
    events: list[Event] = field(factory=list)
    wrong: list[str] = field(factory=list)
    waited: list[tuple[str, Down | None]] = field(factory=list)
    explicit: set[str] = field(factory=set)
    deeds: dict[str, Any] = field(factory=dict)

    async def main(self) -> None:
        self.deeds = {path: iter(deeds) for path, deeds in self.program.starts.items()}
        inner = [self.spec("n/p2"), self.spec("n/t2")]
        specs = [self.spec("p1"), self.spec("t1"), ChildSpec("n", partial(Supervisor, *inner, **self.program.options))]
        with trio.fail_after(1e6):
            async with open_actor(Member(self), name="outside") as outside, trio.open_nursery() as nursery:
                try:
                    async with open_supervisor(
                        *specs, self.spec("m1"), observers=[self.events.append], **self.program.options
                    ) as top:
                        for act in self.program.acts:
                            await self.do(act, top, outside, nursery)
                        await trio.sleep(QUIET)
                        self.check_fired()
                except* ActorError:  # the limit
                    pass
                await wait_all_tasks_blocked()
                self.check_monitors(self.lives[0])

    def spec(self, path: str) -> ChildSpec:
        id = path.rpartition("/")[2]
        stop = self.program.stops[path]
        return ChildSpec(
            id,
            lambda: Member(self, next(self.deeds[path], None), stop),
            restart=RESTART[id[0]],  # type: ignore[arg-type]  # a plain string
            shutdown=1.0,
            mailbox_size=self.program.mailbox_size,
            overflow=self.program.overflow,
        )

    async def do(self, act: Act, top: SupervisorRef, outside: ActorRef, nursery: trio.Nursery) -> None:
        ref, other = self.find(top, act.path), self.find(top, act.other)
        if act.verb == "sleep":
            await trio.sleep(act.seconds)
        elif act.verb in ("stop_child", "keep_mailbox", "restart_child", "delete_child"):
            await self.change(act, top)
        elif ref is None or other is None:
            return
        elif act.verb == "watch":
            nursery.start_soon(self.wait_for, other)
            for each in (ref, outside):
                nursery.start_soon(self.ask, each, partial(self.watch, ref=other, path=act.other))
        elif not isinstance(ref, SupervisorRef):
            nursery.start_soon(self.ask, ref, partial(getattr(self, act.verb), seconds=act.seconds))
        await wait_all_tasks_blocked()

    @staticmethod
    def find(top: SupervisorRef, path: str) -> ActorRef | None:
        try:
            return top.find(path)
        except (ActorError, TypeError):
            return None

    async def change(self, act: Act, top: SupervisorRef) -> None:
        above, _, id = act.path.rpartition("/")
        self.explicit.add(id)
        with trio.move_on_after(5), suppress(ActorError, TypeError):
            supervisor = top.find(above, SupervisorRef) if above else top
            if act.verb == "keep_mailbox":
                await supervisor.stop_child(id, keep_mailbox=True)
            else:
                await getattr(supervisor, act.verb)(id)

    async def ask(self, ref: ActorRef, fn: Callable[[Member], Awaitable[None]]) -> None:
        if isinstance(ref, SupervisorRef):
            return
        with trio.move_on_after(50), suppress(ActorError, Boom):
            await ref.call(Ask(fn))

    async def wait_for(self, ref: ActorRef) -> None:
        """Watch an actor from a task."""
        place = len(self.waited)
        self.waited.append((ref.path, None))
        async with ref.watch() as monitor:
            self.waited[place] = (ref.path, await monitor.wait())

    # --- in a handler -----------------------------------------------------------------------------------------------

    async def after(self, member: Member, seconds: float) -> None:
        each = SetTimer(member, trio.current_time(), seconds, repeats=False)
        each.timer = member.after(seconds, Tick(each))
        member.life.timers.append(each)

    async def every(self, member: Member, seconds: float) -> None:
        each = SetTimer(member, trio.current_time(), seconds or 0.7, repeats=True)
        each.timer = member.every(each.seconds, Tick(each))
        member.life.timers.append(each)

    async def cancel(self, member: Member, seconds: float) -> None:
        for each in member.life.timers[::2]:
            assert each.timer is not None
            each.timer.cancel()
            each.canceled = True

    async def watch(self, member: Member, ref: ActorRef, path: str) -> None:
        if ref != member.ref:
            member.life.monitors.append(SetMonitor(member, path, member.watch(ref)))

    async def unwatch(self, member: Member, seconds: float) -> None:
        for each in member.life.monitors[::2]:
            member.unwatch(each.monitor)
            each.canceled = True

    async def busy(self, member: Member, seconds: float) -> None:
        await trio.sleep(seconds)

    async def crash(self, member: Member, seconds: float) -> None:
        await trio.sleep(seconds)
        raise Boom("crash")

    async def finish(self, member: Member, seconds: float) -> None:
        raise StopActor

    # --- checks -----------------------------------------------------------------------------------------------------

    def check_tick(self, member: Member, each: SetTimer) -> None:
        if each.owner is not member or member.ended:
            self.wrong.append("a timer fired after the end of its incarnation")
        if each.canceled:
            self.wrong.append("a timer fired after it was canceled")
        earliest = each.at + each.seconds * (len(each.handled) + 1)
        if trio.current_time() < earliest - 1e-6 or (each.handled and not each.repeats):
            self.wrong.append("a timer fired early or twice")

    def check_fired(self) -> None:
        """Each timer of an actor that still runs has fired as often as it was due."""
        now = trio.current_time()
        for member in self.lives:
            for each in member.life.timers:
                if member.ended or each.canceled:
                    continue
                assert each.timer is not None
                if not each.repeats:
                    assert len(each.handled) == 1
                else:
                    periods = (now - each.at) / each.seconds
                    assert abs(periods - len(each.handled) - each.timer.skipped) < 1 + 1e-6

    def note_down(self, member: Member, down: Down) -> None:
        if member.ended:
            self.wrong.append("a report reached an actor after its end")
        # Reports about one actor come in the order in which its monitors were set, so the first without one gets it.
        waiting = [each for each in member.life.monitors if each.monitor.ref == down.ref and not each.reports]
        waiting = [each for each in waiting if not each.canceled]
        if not waiting:
            self.wrong.append(f"a report that no monitor waits for: {down}")
        else:
            waiting[0].reports.append(down)

    def check_monitors(self, outside: Member) -> None:
        """All watched actors have ended: each monitor of the actor that outlives them has reported exactly once."""
        for each in outside.life.monitors:
            assert len(each.reports) == (0 if each.canceled else 1), each
        assert all(down is not None for _, down in self.waited), self.waited

    def check(self) -> None:
        assert self.wrong == []
        reports = [down for _, down in self.waited if down is not None]
        reports += [down for member in self.lives for each in member.life.monitors for down in each.reports]
        for down in reports:
            self.check_report(down)

    def check_report(self, down: Down) -> None:
        happened = [event for event in self.events if (event.actor, event.incarnation) == self.key(down)]
        if down.reason == "crashed":
            assert any(isinstance(event, (Crashed, StartFailed)) for event in happened), down
        if down.reason in ("normal", "shutdown"):
            assert not any(isinstance(event, Crashed) for event in happened), down
        if down.reason == "not_running":
            assert not down.comes_back
        if not down.comes_back and not self.explicit & {down.ref.name, "n"} and not self.revived_by_group(down):
            name, number = self.key(down)
            later = [event for event in self.events if isinstance(event, Starting) and event.actor == name]
            assert not any(event.incarnation > number for event in later), down

    def revived_by_group(self, down: Down) -> bool:
        """Return True if the failure of a sibling may have started it again later, although it had ended for good."""
        restarting = {event.actor for event in self.events if isinstance(event, Restarting)}
        return self.program.options["strategy"] != "one_for_one" and bool(restarting - {down.ref.name})

    @staticmethod
    def key(down: Down) -> tuple[str, int]:
        return down.ref.name, down.incarnation


def test_timers_and_monitors_keep_their_promises(record_property: Callable[[str, object], None]) -> None:
    run_programs(programs(), Run, record_property, number=25, full=3_000)
