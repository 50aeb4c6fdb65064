"""K1, K3, K4 for arbitrary programs of messages, failures and changes, on pools of every shape."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import trio
from attrs import field, frozen
from hypothesis import given, settings, strategies as st

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorRef,
    Call,
    ChildSpec,
    DeadLetter,
    Event,
    Later,
    Message,
    NotSent,
    Pool,
    StopActor,
    SupervisorRef,
    handles,
    open_supervisor,
)
from tests.programs import number_of

from .actors import at_once, sent_as
from .members import Boom

deeds = st.sampled_from(["return", "return", "return", "later", "now", "refuse", "raise", "crash", "stop", "not sent"])
times = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0, 20.0])
sends = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["call", "call", "call", "tell", "tell_nowait"]),
        "key": st.integers(0, 3),
        "deed": deeds,
        "takes": times,
        "plain": st.booleans(),
        "patience": st.sampled_from([0.5, 1.0, math.inf, math.inf, math.inf]),
        "then": times,
    }
)
changes = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["stop member", "restart member", "restart pool", "fail starts"]),
        "member": st.integers(1, 3),
        "then": times,
    }
)
programs = st.lists(sends | sends | sends | sends | changes, max_size=25)
shapes = st.sampled_from([(1, 1, False), (3, 3, False), (1, 3, False), (2, 3, False), (1, 1, True), (3, 3, True)])
"""The smallest and the greatest number of members, and whether there is a key."""


@frozen(eq=False)
class Work(Call[int]):
    number: int
    key: int
    deed: str
    takes: float


@frozen(eq=False)
class WorkAtOnce(Work):
    """The same for a plain handler, which takes no time."""


@frozen(eq=False)
class Settle(Message):
    """Has a deferred answer given; control, because that keeps the slot."""

    control: ClassVar[bool] = True
    later: Later[int]
    number: int


@frozen(eq=False)
class Again(Message):
    """Has messages taken again after one was refused."""

    control: ClassVar[bool] = True


@frozen(eq=False)
class Run:
    """The course of a program."""

    outcomes: list[tuple[int, str]] = field(factory=list)
    sent: list[tuple[int, int]] = field(factory=list)
    begun: list[tuple[int, int]] = field(factory=list)
    unsent: set[int] = field(factory=set)
    events: list[Event] = field(factory=list)
    sizes: list[int] = field(factory=list)
    failing: list[bool] = field(factory=list)


class Member(Actor):
    def __init__(self, run: Run, max_in_flight: int) -> None:
        if run.failing:
            run.failing.pop()
            raise Boom
        self.run = run
        self.max_in_flight = max_in_flight

    def take(self, later: Later[Any]) -> bool:
        message = later.message
        assert isinstance(message, Work)
        if message.deed == "refuse" and message.number not in self.run.unsent:
            self.run.unsent.add(message.number)
            self.after(message.takes, Again())
            raise NotSent
        if message.deed != "now":
            return False
        self.run.begun.append((message.key, message.number))
        later.reply(message.number)
        return True

    @handles(Settle)
    def settle(self, message: Settle) -> None:
        message.later.reply(message.number)

    @handles(Again)
    async def again(self, message: Again) -> None:
        self.take_again()

    @handles(WorkAtOnce)
    def work_at_once(self, message: WorkAtOnce) -> int | Later[int]:
        return at_once(self.work(message))

    @handles(Work)
    async def work(self, message: Work) -> int | Later[int]:
        if message.deed == "not sent" and message.number not in self.run.unsent:
            self.run.unsent.add(message.number)
            await self.wait(message)
            self.fail(Boom())
            raise NotSent
        self.run.begun.append((message.key, message.number))
        if message.deed == "later":
            later: Later[int] = self.defer(message)
            self.after(message.takes, Settle(later, message.number))
            return later
        await self.wait(message)
        match message.deed:
            case "raise":
                raise ValueError
            case "crash":
                raise Boom
            case "stop":
                raise StopActor
        return message.number

    @staticmethod
    async def wait(message: Work) -> None:
        if not isinstance(message, WorkAtOnce):
            await trio.sleep(message.takes)

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Boom)


async def send(ref: ActorRef, run: Run, number: int, step: dict[str, Any]) -> None:
    message = (WorkAtOnce if step["plain"] else Work)(number, step["key"], step["deed"], step["takes"])
    outcome = "cancelled"
    with trio.move_on_after(step["patience"]):
        # Up to its place in the mailbox a call has no checkpoint, so this is the order of arrival.
        run.sent.append((step["key"], number))
        try:
            outcome = await sent_as(step["kind"], ref, message, number)
        except (ValueError, Boom, ActorError) as exc:
            outcome = type(exc).__name__
    run.outcomes.append((number, outcome))


async def change(house: SupervisorRef, run: Run, step: dict[str, Any]) -> None:
    """Change the pool from outside, if that is possible now."""
    db, member = house.child("db", SupervisorRef), f"db-{step['member']}"
    try:
        match step["kind"]:
            case "stop member":
                await db.stop_child(member)
            case "restart member":
                await db.restart_child(member)
            case "restart pool":
                await house.stop_child("db", keep_mailbox=True)
                await house.restart_child("db")
            case "fail starts":
                run.failing.append(True)
    except ActorError:
        pass  # no such member, or not in this state


async def play(program: list[dict[str, Any]], shape: tuple[int, int, bool], slots: int, size: int) -> Run:
    run = Run()
    least, most, keyed = shape

    def pool() -> Pool:
        return Pool(
            lambda: Member(run, slots),
            (least, most),
            key=(lambda message: message.key) if keyed else None,
            shrink_after=5.0,
            max_restarts=1000,
            window=math.inf,
            on_limit="park",
            strict=False,
        )

    def observe(event: Event) -> None:
        run.events.append(event)
        if supervisors:
            run.sizes.append(len(supervisors[0].tree().children[0].children))

    supervisors: list[SupervisorRef] = []
    spec = ChildSpec("db", pool, mailbox_size=size)
    with trio.fail_after(100_000):
        async with open_supervisor(spec, observers=[observe]) as house, trio.open_nursery() as nursery:
            supervisors.append(house)
            for number, step in enumerate(program):
                if "deed" in step:
                    nursery.start_soon(send, house.child("db"), run, number, step)
                else:
                    await change(house, run, step)
                await trio.sleep(step["then"])
            await trio.sleep(1000)
            # The messages that are left wait for a member that was stopped. The end of the pool answers them.
            await house.stop_child("db")
    return run


@settings(max_examples=number_of(200))
@given(programs, shapes, st.sampled_from([1, 1, 2]), st.sampled_from([1, 2, 100]))
def test_whatever_happens_each_message_to_a_pool_has_one_outcome(
    program: list[dict[str, Any]], shape: tuple[int, int, bool], slots: int, size: int
) -> None:
    run = trio.run(play, program, shape, slots, size, clock=trio.testing.MockClock(autojump_threshold=0))
    numbers = [number for number, step in enumerate(program) if "deed" in step]
    assert sorted(number for number, _ in run.outcomes) == numbers
    begun = [number for _, number in run.begun]
    assert len(begun) == len(set(begun))
    outcomes = dict(run.outcomes)
    for number in numbers:
        step, outcome = program[number], outcomes[number]
        if step["kind"] != "call":
            assert outcome in ("told", "ActorStopped", "MailboxFull", "cancelled")
        if outcome in ("value", "ValueError", "Boom"):
            assert number in begun
        if outcome == "MailboxFull" or (outcome == "cancelled" and step["kind"] == "tell"):
            assert number not in begun
    handled = {*begun, *run.unsent}
    lost = [number for number in numbers if outcomes[number] == "told" and number not in handled]
    dropped = [event for event in run.events if isinstance(event, DeadLetter)]
    assert len(lost) <= len(dropped)
    assert max(run.sizes, default=0) <= shape[1]
    if slots == 1:
        for key in range(4) if shape[2] else [None] if shape[1] == 1 else []:
            places = [run.sent.index(each) for each in run.begun if key in (None, each[0])]
            assert places == sorted(places)
