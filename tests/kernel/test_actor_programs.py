"""Random programs of calls, late answers, timers, monitors and ends: what the kernel promises holds in all of them.

See `run_programs`. `test_programs` does the same for handlers alone, in more detail.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
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
    Down,
    Later,
    Message,
    Monitor,
    NotSent,
    SupervisorRef,
    Timer,
    handles,
    open_supervisor,
)

from ..programs import run_programs
from .actors import Boom, Fatal, at_once, end_by

LATER = ["later", "later, free", "later, early", "later, twice", "later, never", "later, raise", "later, crash"]
LATER += ["later, not sent"]
DEEDS = ["return", "raise", "crash", "fail", "stop", "not sent", "not sent", *LATER]
DEEDS += ["after", "every", "cancel", "watch", "watch", "unwatch"]
NAMES = ["a", "b"]


@frozen
class Step:
    """A message from a task of its own, or a change by the driver, and the time until the next step."""

    kind: str
    to: str
    deed: str
    takes: float
    plain: bool
    patience: float
    then: float


@frozen
class Program:
    """A number of steps, and the actors that are used.

    Attributes:
        taking: whether messages are taken without a task.
        held: whether an actor keeps the slot of a message whose caller has left for a while.
        backoff: the seconds between a crash and the restart.
    """

    steps: list[Step]
    max_in_flight: int
    size: int
    taking: bool
    held: bool
    backoff: float


TIMES = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0])
KINDS = st.sampled_from(
    ["call"] * 8 + ["tell", "tell_nowait", "monitor", "monitor", "stop_child", "keep", "restart_child"]
)
PATIENCE = st.sampled_from([0.0, 0.5, 1.0, math.inf, math.inf])
THEN = st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.5, 2.0])
"""Mostly nothing, so that messages wait."""
STEPS = st.builds(
    Step, KINDS, st.sampled_from(["a", "a", "a", "b"]), st.sampled_from(DEEDS), TIMES, st.booleans(), PATIENCE, THEN
)
PROGRAMS = st.builds(
    Program,
    st.lists(STEPS, min_size=5, max_size=40),
    st.sampled_from([1, 1, 2, 5]),
    st.sampled_from([1, 2, 100]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.75]),
)


@frozen(eq=False)
class Job(Call[int]):
    """A message whose handler does something."""

    number: int
    deed: str
    takes: float


@frozen(eq=False)
class JobAtOnce(Job):
    """The same for a plain handler, which takes no time."""


@frozen(eq=False)
class Tick(Message):
    """A message of a timer."""

    alarm: Alarm


@define(eq=False)
class Alarm:
    """A timer and what is known about it."""

    unit: Unit
    due: float
    timer: Timer = field(init=False)
    canceled: bool = False
    ticks: int = 0


@define(eq=False)
class Run:
    """Runs a program and keeps what the checks need.

    Attributes:
        sent: the numbers of all messages, by receiver, in the order of arrival.
        outcomes: what each sender got.
        begun: the messages whose handling has begun, by receiver.
        heard: the messages of which `Later` said that their callers get the answer.
        not_sent: the messages that were put back once.
        released: the incarnations that have released everything.
        monitors: the reports to tasks outside.
        units: all incarnations.
        in_the_end: how many messages were queued and in flight when the tree had ended.
        wrong: what was not as promised.
    """

    program: Program
    sent: dict[str, list[int]] = field(factory=lambda: {name: [] for name in NAMES})
    outcomes: list[tuple[int, str]] = field(factory=list)
    begun: dict[str, list[int]] = field(factory=lambda: {name: [] for name in NAMES})
    heard: list[int] = field(factory=list)
    not_sent: set[int] = field(factory=set)
    released: set[tuple[str, int]] = field(factory=set)
    monitors: list[Down] = field(factory=list)
    units: list[Unit] = field(factory=list)
    in_the_end: list[tuple[int, int]] = field(factory=list)
    wrong: list[str] = field(factory=list)

    async def main(self) -> None:
        specs = [ChildSpec(name, partial(Unit, self, name), mailbox_size=self.program.size) for name in NAMES]
        with trio.fail_after(10_000):
            async with trio.open_nursery() as nursery:
                async with open_supervisor(
                    *specs, max_restarts=10_000, window=math.inf, backoff=Backoff(first=self.program.backoff)
                ) as supervisor:
                    for number, step in enumerate(self.program.steps):
                        await self.take_step(nursery, supervisor, number, step)
                        await trio.sleep(step.then)
                    await trio.sleep(100)
                    await wait_all_tasks_blocked()
                    for unit in self.units:
                        unit.check_quiet()
                for name in NAMES:
                    statistics = supervisor.child(name).statistics()
                    self.in_the_end.append((statistics.queued, statistics.in_flight))

    async def take_step(self, nursery: trio.Nursery, supervisor: SupervisorRef, number: int, step: Step) -> None:
        ref = supervisor.child(step.to)
        match step.kind:
            case "monitor":
                nursery.start_soon(self.watch, ref)
            case "stop_child" | "keep":
                await supervisor.stop_child(step.to, keep_mailbox=step.kind == "keep")
            case "restart_child":
                if ref.state == "stopped":
                    await supervisor.restart_child(step.to)
            case _:
                nursery.start_soon(self.send, ref, number, step)

    async def watch(self, ref: ActorRef) -> None:
        async with ref.watch() as monitor:
            down = await monitor.wait()
        self.check_released(down)
        self.monitors.append(down)

    def check_released(self, down: Down) -> None:
        self.expect(
            down.reason == "not_running" or (down.ref.name, down.incarnation) in self.released,
            "an actor was reported as ended before it has released everything",
        )

    def expect(self, is_true: bool, what: str) -> None:
        """Note what is wrong: an exception in an actor would only end that."""
        if not is_true:
            self.wrong.append(what)

    async def send(self, ref: ActorRef, number: int, step: Step) -> None:
        message = (JobAtOnce if step.plain else Job)(number, step.deed, step.takes)
        outcome = "cancelled"
        with trio.move_on_after(step.patience):
            self.sent[step.to].append(number)
            try:
                match step.kind:
                    case "call":
                        assert await ref.call(message) == number
                        outcome = "value"
                    case "tell":
                        await ref.tell(message)
                        outcome = "told"
                    case _:
                        ref.tell_nowait(message)
                        outcome = "told"
            except (Boom, Fatal, ActorError) as exc:
                outcome = type(exc).__name__
        self.outcomes.append((number, outcome))

    def check(self) -> None:
        assert self.wrong == []
        steps = self.program.steps
        numbers = [n for n, step in enumerate(steps) if step.kind in ("call", "tell", "tell_nowait")]
        assert sorted(number for number, _ in self.outcomes) == numbers
        outcomes = dict(self.outcomes)
        assert len(self.heard) == len(set(self.heard))
        for number in self.heard:
            assert outcomes[number] in ("value", "Boom", "Fatal", "cancelled")
        for name in NAMES:
            begun = self.begun[name]
            assert len(begun) == len(set(begun))
            if self.program.max_in_flight == 1:
                places = [self.sent[name].index(number) for number in begun]
                assert places == sorted(places)
            for number in begun:
                assert not (outcomes[number] == "cancelled" and steps[number].kind == "tell")
                assert outcomes[number] != "MailboxFull"
        assert len(self.monitors) == sum(step.kind == "monitor" for step in steps)
        assert self.in_the_end == [(0, 0)] * len(NAMES)


class Unit(Actor):
    """An actor that does what its messages say, and checks what it gets."""

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name
        self.max_in_flight = run.program.max_in_flight
        self.ended = False
        self.alarms: list[Alarm] = []
        self.monitors: list[Monitor] = []
        self.reports = self.reports_due = 0
        self.handlers = 0
        self.held: list[Later[Any]] = []
        self.laters: list[Later[Any]] = []
        run.units.append(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.number = self.ref.statistics().incarnation
        try:
            async with trio.open_nursery() as self.tasks:
                yield
                self.ended = True
                self.tasks.cancel_scope.cancel("the actor stops")
        finally:
            self.ended = True
            self.run.released.add((self.name, self.number))

    # --- messages ---------------------------------------------------------------------------------------------------

    def take(self, later: Later[Any]) -> bool:
        message = later.message
        if not self.run.program.taking or not isinstance(message, Job) or not message.deed.startswith("later"):
            return False
        if message.deed == "later, not sent" and message.number not in self.run.not_sent:
            self.run.not_sent.add(message.number)
            self.tasks.start_soon(self.run_again, message.takes)
            raise NotSent
        self.begin(message)
        self.keep(later)
        self.check_slots()
        self.answer_in_time(later, message)
        return True

    @handles(Tick)
    def handle_tick(self, message: Tick) -> None:
        with self.handling():
            self.tick(message.alarm)

    @handles(Down)
    async def handle_down(self, message: Down) -> None:
        with self.handling():
            self.down(message)

    @handles(JobAtOnce)
    def work_at_once(self, message: JobAtOnce) -> int | Later[int]:
        with self.handling():
            return at_once(self.work(message))

    @handles(Job)
    async def work_in_task(self, message: Job) -> int | Later[int]:
        with self.handling():
            return await self.work(message)

    @contextmanager
    def handling(self) -> Iterator[None]:
        self.run.expect(not self.ended, "a message was handled after the end")
        self.handlers += 1
        try:
            self.check_slots()
            yield
        finally:
            self.handlers -= 1

    def begin(self, message: Job) -> None:
        self.run.expect(not self.ended, "a message was taken after the end")
        self.run.begun[self.name].append(message.number)

    async def work(self, message: Job) -> int | Later[int]:
        if "not sent" in message.deed and message.number not in self.run.not_sent:
            self.run.not_sent.add(message.number)
            if message.deed.startswith("later"):
                later = self.defer(message)
                self.keep(later)
                self.tasks.start_soon(self.put_back, later, message.takes)
                return later
            await self.wait(message)
            self.fail(Boom())
            raise NotSent
        self.begin(message)
        if message.deed.startswith("later"):
            later = self.defer(message, keep_slot=message.deed != "later, free")
            self.keep(later)
            self.answer_in_time(later, message)
            return later
        await self.wait(message)
        self.do(message)
        return message.number

    @staticmethod
    async def wait(message: Job) -> None:
        if not isinstance(message, JobAtOnce):
            await trio.sleep(message.takes)

    def do(self, message: Job) -> None:
        """End, or do what does not end it."""
        end_by(self, message.deed)
        self.arrange(message)

    def arrange(self, message: Job) -> None:
        """Set and cancel timers and monitors."""
        match message.deed:
            case "after":
                self.set(message.takes, self.after)
            case "every":
                self.set(message.takes or 0.25, self.every)
            case "cancel":
                for alarm in self.alarms:
                    alarm.canceled = True
                    alarm.timer.cancel()
            case "watch":
                self.watch_other()
            case "unwatch":
                self.reports_due = self.reports
                for monitor in self.monitors:
                    self.unwatch(monitor)

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)

    # --- late answers -----------------------------------------------------------------------------------------------

    def keep(self, later: Later[Any]) -> None:
        self.laters.append(later)
        if self.run.program.held:
            later.on_cancel = self.let_go

    def let_go(self, later: Later[Any]) -> None:
        if not self.ended:
            self.held.append(later)
            self.tasks.start_soon(self.drop, later)

    async def drop(self, later: Later[Any]) -> None:
        await trio.sleep(0.5)
        self.freed(later)
        self.run.expect(not later.reply(-1), "a caller that had left got an answer")

    def freed(self, later: Later[Any]) -> None:
        """Note that the actor settles a message: if its caller had left, this frees the slot."""
        if later in self.held:
            self.held.remove(later)

    async def run_again(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.take_again()

    async def put_back(self, later: Later[int], seconds: float) -> None:
        await trio.sleep(seconds)
        self.freed(later)
        later.fail(NotSent())
        await self.run_again(seconds)

    def answer_in_time(self, later: Later[Any], message: Job) -> None:
        match message.deed:
            case "later, early":
                self.answer(later, message)
            case "later, never":
                pass
            case _:
                self.tasks.start_soon(self.answer_after, message.takes, later, message)

    async def answer_after(self, seconds: float, later: Later[Any], message: Job) -> None:
        await trio.sleep(seconds)
        self.answer(later, message)
        if message.deed == "later, twice":
            self.run.expect(not later.open and not later.reply(-1), "a message was answered twice")

    def answer(self, later: Later[Any], message: Job) -> None:
        self.freed(later)
        give: Callable[[], bool] = partial(later.reply, message.number)
        if message.deed in ("later, raise", "later, crash"):
            give = partial(later.fail, Boom() if message.deed == "later, raise" else Fatal())
        if give():
            self.run.heard.append(message.number)

    def check_slots(self) -> None:
        self.run.expect(self.in_flight <= self.max_in_flight, "more messages were in flight than allowed")

    @property
    def in_flight(self) -> int:
        """The messages with a slot."""
        laters = [*self.held, *(later for later in self.laters if later.open)]
        return self.handlers + sum(later.keep_slot for later in laters)

    # --- timers and monitors ----------------------------------------------------------------------------------------

    def set(self, seconds: float, fn: Callable[[float, Message], Timer]) -> None:
        alarm = Alarm(self, trio.current_time() + seconds)
        alarm.timer = fn(seconds, Tick(alarm))
        self.alarms.append(alarm)

    def tick(self, alarm: Alarm) -> None:
        self.run.expect(alarm.unit is self, "an incarnation got the message of another one's timer")
        self.run.expect(not alarm.canceled, "a canceled timer has sent a message")
        self.run.expect(trio.current_time() >= alarm.due, "a timer was early")
        alarm.ticks += 1

    def watch_other(self) -> None:
        self.reports_due += 1
        self.monitors.append(self.watch(self.other))

    @property
    def other(self) -> ActorRef:
        assert self.supervisor is not None
        return self.supervisor.child(NAMES[1 - NAMES.index(self.name)])

    def down(self, down: Down) -> None:
        self.run.check_released(down)
        self.reports += 1
        self.run.expect(self.reports <= self.reports_due, "a monitor has reported twice, or was canceled")

    def check_quiet(self) -> None:
        """Check that nothing is missing a long time after the last step, unless no slot is free."""
        if self.ended:
            return
        if self.ref.statistics().queued:
            self.run.expect(self.in_flight == self.max_in_flight, "a message waits while a slot is free")
            return
        if self.other.state in ("stopped", "failed"):
            self.run.expect(self.reports == self.reports_due, "a monitor has not reported")
        for alarm in self.alarms:
            self.run.expect(alarm.canceled or alarm.ticks > 0, "a timer has sent nothing")


def test_actors_keep_their_promises_in_random_programs(record_property: Callable[[str, object], None]) -> None:
    run_programs(PROGRAMS, Run, record_property, number=80, full=5000)
