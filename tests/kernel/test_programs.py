"""K1, K3, K4 for arbitrary programs of calls, tells, cancellations and ends, on a supervised actor."""

from __future__ import annotations

import math
from typing import Any

import trio
from attrs import field, frozen
from hypothesis import given, settings, strategies as st

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorRef,
    Call,
    ChildSpec,
    NotSent,
    handles,
    open_supervisor,
)
from tests.programs import number_of

from .actors import Boom, Fatal, at_once, end_by, sent_as

deeds = st.sampled_from(["return", "raise", "crash", "fail", "stop", "not sent", "fail, not sent"])
times = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0])
sends = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["call", "call", "tell", "tell_nowait"]),
        "deed": deeds,
        "takes": times,
        "plain": st.booleans(),
        "patience": st.sampled_from([0.0, 0.5, 1.0, math.inf, math.inf]),
        "then": times,
    }
)
commands = st.fixed_dictionaries(
    {"kind": st.sampled_from(["stop_child", "stop_child and keep", "restart_child"]), "then": times}
)
programs = st.lists(sends | sends | sends | commands, max_size=25)


@frozen(eq=False)
class Work(Call[int]):
    number: int
    deed: str
    takes: float


@frozen(eq=False)
class WorkAtOnce(Work):
    """The same for a plain handler, which takes no time."""


@frozen
class Run:
    """The recorded events."""

    sent: list[int] = field(factory=list)
    outcomes: list[tuple[int, str]] = field(factory=list)
    begun: list[int] = field(factory=list)
    not_sent: set[int] = field(factory=set)


class Worker(Actor):
    def __init__(self, run: Run, max_in_flight: int) -> None:
        self.run = run
        self.max_in_flight = max_in_flight

    @handles(WorkAtOnce)
    def work_at_once(self, message: WorkAtOnce) -> int:
        return at_once(self.work(message))

    @handles(Work)
    async def work(self, message: Work) -> int:
        deed = message.deed
        if deed.endswith("not sent") and message.number not in self.run.not_sent:
            self.run.not_sent.add(message.number)
            await self.wait(message)
            if deed.startswith("fail"):
                self.fail(Boom())
            raise NotSent
        self.run.begun.append(message.number)
        await self.wait(message)
        end_by(self, deed)
        return message.number

    @staticmethod
    async def wait(message: Work) -> None:
        if not isinstance(message, WorkAtOnce):
            await trio.sleep(message.takes)

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)


async def send(ref: ActorRef, run: Run, number: int, step: dict[str, Any]) -> None:
    message = (WorkAtOnce if step["plain"] else Work)(number, step["deed"], step["takes"])
    outcome = "cancelled"
    with trio.move_on_after(step["patience"]):
        # Up to its place in the mailbox a call has no checkpoint, so this is the order of arrival.
        run.sent.append(number)
        try:
            outcome = await sent_as(step["kind"], ref, message, number)
        except (Boom, Fatal, ActorError) as exc:
            outcome = type(exc).__name__
    run.outcomes.append((number, outcome))


async def play(program: list[dict[str, Any]], max_in_flight: int, size: int) -> Run:
    run = Run()
    spec = ChildSpec("child", lambda: Worker(run, max_in_flight), mailbox_size=size)
    with trio.fail_after(10_000):
        async with (
            open_supervisor(spec, max_restarts=1000, window=math.inf) as supervisor,
            trio.open_nursery() as nursery,
        ):
            ref = supervisor.child("child")
            for number, step in enumerate(program):
                match step["kind"]:
                    case "stop_child":
                        await supervisor.stop_child("child")
                    case "stop_child and keep":
                        await supervisor.stop_child("child", keep_mailbox=True)
                    case "restart_child":
                        if ref.state == "stopped":
                            await supervisor.restart_child("child")
                    case _:
                        nursery.start_soon(send, ref, run, number, step)
                await trio.sleep(step["then"])
            await trio.sleep(100)
            if ref.state == "stopped":
                # A task that still waits for a restart does so on purpose; the end of the tree answers it.
                nursery.start_soon(supervisor.stop_child, "child")
    return run


@settings(max_examples=number_of(150))
@given(programs, st.sampled_from([1, 2, 5]), st.sampled_from([1, 2, 100]))
def test_whatever_happens_each_message_has_one_outcome(
    program: list[dict[str, Any]], max_in_flight: int, size: int
) -> None:
    run = trio.run(play, program, max_in_flight, size, clock=trio.testing.MockClock(autojump_threshold=0))
    numbers = [number for number, step in enumerate(program) if "deed" in step]
    assert sorted(number for number, _ in run.outcomes) == numbers
    assert len(run.begun) == len(set(run.begun))
    outcomes = dict(run.outcomes)
    for number in numbers:
        step, outcome = program[number], outcomes[number]
        if step["kind"] != "call":
            assert outcome in ("told", "ActorStopped", "MailboxFull", "cancelled")
        if outcome in ("value", "Boom", "Fatal"):
            assert number in run.begun
        if outcome == "ActorError":
            assert step["deed"] == "not sent"
        if outcome == "MailboxFull" or (outcome == "cancelled" and step["kind"] == "tell"):
            assert number not in run.begun
    if max_in_flight == 1:
        places = [run.sent.index(number) for number in run.begun]
        assert places == sorted(places)
