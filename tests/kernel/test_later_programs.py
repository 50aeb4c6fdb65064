"""K1, K3, K4 for arbitrary programs of messages that are answered later, by a supervised actor."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import trio
from attrs import field, frozen
from hypothesis import strategies as st

from mcp_actors.kernel import Actor, ActorError, ActorRef, Call, ChildSpec, Later, NotSent, handles, open_supervisor

from ..programs import run_programs
from .actors import Boom, Fatal, at_once

times = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0])
sends = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["call", "call", "call", "tell", "expire"]),
        "way": st.sampled_from(["take", "take", "handle", "defer", "defer without slot", "control"]),
        "refused": st.sampled_from(["", "", "by take", "later", "with the end"]),
        "deed": st.sampled_from(["reply", "reply", "fail", "crash", "never", "at once"]),
        "takes": times,
        "plain": st.booleans(),
        "cleans_up": st.sampled_from([None, 0.0, 1.0]),
        "patience": st.sampled_from([0.0, 0.5, 1.0, math.inf, math.inf]),
        "then": times,
    }
)
commands = st.fixed_dictionaries(
    {"kind": st.sampled_from(["stop_child", "stop_child and keep", "restart_child", "crash"]), "then": times}
)
programs = st.tuples(
    st.lists(sends | sends | sends | commands, max_size=25), st.sampled_from([1, 2, 5]), st.sampled_from([1, 2, 100])
)


@frozen(eq=False)
class Work(Call[int]):
    """A message, and what is done with it."""

    number: int
    step: dict[str, Any]


@frozen(eq=False)
class WorkNow(Work):
    """The same on the control lane."""

    control: ClassVar[bool] = True


@frozen(eq=False)
class WorkAtOnce(Work):
    """The same for a plain handler, which takes no time itself."""


@frozen(eq=False)
class WorkNowAtOnce(WorkAtOnce):
    """The same on the control lane."""

    control: ClassVar[bool] = True


KINDS = {(False, False): Work, (True, False): WorkNow, (False, True): WorkAtOnce, (True, True): WorkNowAtOnce}
"""By whether they are for the control lane, and for a plain handler."""


@frozen
class Log:
    """The events of one program."""

    sent: list[int] = field(factory=list)
    outcomes: list[tuple[int, str]] = field(factory=list)
    offered: list[int] = field(factory=list)
    refused: set[int] = field(factory=set)
    served: list[int] = field(factory=list)
    heard: list[int] = field(factory=list)
    cancelled: list[int] = field(factory=list)


class Worker(Actor):
    def __init__(self, log: Log, max_in_flight: int) -> None:
        self.log = log
        self.max_in_flight = max_in_flight
        self.unsettled: set[Later[int]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as self.nursery:
            yield
            self.nursery.cancel_scope.cancel("the worker stops")

    def take(self, later: Later[Any]) -> bool:
        work = later.message
        assert isinstance(work, Work)
        if work.number not in self.log.refused:
            self.log.offered.append(work.number)
        if work.step["way"] != "take":
            return False
        if self._is_refused(work, "by take"):
            self._wait_for_room()
            raise NotSent
        if self._is_refused(work, "with the end"):
            self.fail(Boom())
            raise NotSent
        self._keep(later, work)
        return True

    @handles(WorkAtOnce)
    def work_at_once(self, message: WorkAtOnce) -> int | Later[int]:
        return at_once(self.work(message))

    @handles(Work)
    async def work(self, message: Work) -> int | Later[int]:
        if self._is_refused(message, "with the end"):
            await self._wait(message)
            self.fail(Boom())
            raise NotSent
        if message.step["way"] == "handle":
            self.log.served.append(message.number)
            await self._wait(message)
            return message.number
        later = self.defer(message, keep_slot=message.step["way"] == "defer")
        self._keep(later, message)
        return later

    @staticmethod
    async def _wait(message: Work) -> None:
        if not isinstance(message, WorkAtOnce):
            await trio.sleep(message.step["takes"])

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)

    def _is_refused(self, work: Work, how: str) -> bool:
        refused = work.step["refused"] == how and work.number not in self.log.refused
        if refused:
            self.log.refused.add(work.number)
        return refused

    def _wait_for_room(self) -> None:
        async def drain() -> None:
            await trio.sleep(1)
            self.take_again()

        self.nursery.start_soon(drain)

    def _keep(self, later: Later[int], work: Work) -> None:
        async def settle() -> None:
            await trio.sleep(work.step["takes"])
            if self._is_refused(work, "later"):
                self._wait_for_room()
                later.fail(NotSent())
                self.unsettled.discard(later)
            else:
                self.log.served.append(work.number)
                self._settle(later, work)

        async def clean_up() -> None:
            await trio.sleep(work.step["cleans_up"])
            later.reply(-1)
            self.unsettled.discard(later)

        def on_cancel(cancelled: Later[int]) -> None:
            assert cancelled is later
            assert not later.open
            self.log.cancelled.append(work.number)
            self.nursery.start_soon(clean_up)

        if work.step["cleans_up"] is not None:
            later.on_cancel = on_cancel
        self.unsettled.add(later)
        if work.step["deed"] == "at once":
            self.log.served.append(work.number)
            self._settle(later, work)
        else:
            self.nursery.start_soon(settle)

    def _settle(self, later: Later[int], work: Work) -> None:
        deeds: dict[str, Callable[[], bool]] = {
            "fail": lambda: later.fail(Boom()),
            "crash": lambda: later.fail(Fatal()),
            "never": lambda: False,
        }
        was_open = later.open
        heard = deeds.get(work.step["deed"], lambda: later.reply(work.number))()
        assert was_open or not heard
        if heard:
            self.log.heard.append(work.number)
        if work.step["deed"] != "never":
            assert not later.reply(-2)
            self.unsettled.discard(later)


class Run:
    """One program as it is run."""

    def __init__(self, program: tuple[list[dict[str, Any]], int, int]) -> None:
        self.steps, self.max_in_flight, self.size = program
        self.log = Log()
        self.workers: list[Worker] = []

    def make(self) -> Worker:
        self.workers.append(Worker(self.log, self.max_in_flight))
        return self.workers[-1]

    async def main(self) -> None:
        spec = ChildSpec("child", self.make, mailbox_size=self.size)
        with trio.fail_after(10_000):
            async with (
                open_supervisor(spec, max_restarts=1000, window=math.inf) as supervisor,
                trio.open_nursery() as self.nursery,
            ):
                ref = supervisor.child("child")
                for number, step in enumerate(self.steps):
                    match step["kind"]:
                        case "stop_child":
                            await supervisor.stop_child("child")
                        case "stop_child and keep":
                            await supervisor.stop_child("child", keep_mailbox=True)
                        case "restart_child":
                            if ref.state == "stopped":
                                await supervisor.restart_child("child")
                        case "crash":
                            if ref.state == "running":
                                self.workers[-1].fail(Boom())
                        case _:
                            self.nursery.start_soon(self.send, ref, number, step)
                    await trio.sleep(step["then"])
                await trio.sleep(100)
                if ref.state == "stopped":
                    self.nursery.start_soon(supervisor.stop_child, "child")
                else:
                    await self.empty(ref)

    async def empty(self, ref: ActorRef) -> None:
        """Settle what would never be settled, until all slots are free: none has leaked."""
        for _ in range(2 * len(self.steps) + 2):
            worker = self.workers[-1]
            for later in tuple(worker.unsettled):
                later.reply(-3)
                worker.unsettled.discard(later)
            await trio.sleep(10)
        worker = self.workers[-1]
        assert (ref.statistics().in_flight, ref.statistics().queued) == (0, 0)
        assert worker._requests is not None
        assert worker._requests.free == self.max_in_flight  # type: ignore[attr-defined]  # a `Requests`

    async def send(self, ref: ActorRef, number: int, step: dict[str, Any]) -> None:
        message = KINDS[step["way"] == "control", step["plain"]](number, step)
        outcome = "cancelled"
        with trio.move_on_after(step["patience"] if step["kind"] != "expire" else math.inf):
            # Up to its place in the mailbox a call has no checkpoint, so this is the order of arrival.
            self.log.sent.append(number)
            try:
                if step["kind"] == "tell":
                    await ref.tell(message)
                    outcome = "told"
                elif step["kind"] == "call":
                    outcome = "value" if await ref.call(message) == number else "late"
                else:
                    outcome = "value" if await self.expiring(ref, message) == number else "late"
            except (Boom, Fatal, TimeoutError, ActorError) as exc:
                outcome = type(exc).__name__
        self.log.outcomes.append((number, outcome))

    async def expiring(self, ref: ActorRef, message: Work) -> int:
        pending = ref.send_request(message)

        async def expire() -> None:
            await trio.sleep(message.step["patience"])
            pending.expire(TimeoutError())

        if message.step["patience"] < math.inf:
            self.nursery.start_soon(expire)
        return await pending.wait()

    def check(self) -> None:
        log, steps = self.log, self.steps
        numbers = [number for number, step in enumerate(steps) if "way" in step]
        assert sorted(number for number, _ in log.outcomes) == numbers
        assert len(log.served) == len(set(log.served))
        assert len(log.heard) == len(set(log.heard))
        assert len(log.cancelled) == len(set(log.cancelled))
        for number, outcome in log.outcomes:
            step = steps[number]
            if outcome in ("Boom", "Fatal") or (outcome == "value" and step["way"] != "handle"):
                assert number in log.heard
            if outcome in ("cancelled", "TimeoutError", "told"):
                assert number not in log.heard
            assert outcome != "ActorError" or (step["way"] == "control" and number in log.refused)
        # Each message is first offered in its turn. One that comes back to its old place is offered again, and one that
        # was taken in a task may come back without having been handled.
        firsts = [number for number in dict.fromkeys(log.offered) if number not in log.refused]
        places = [log.sent.index(number) for number in firsts if steps[number]["way"] == "take"]
        assert places == sorted(places)


def test_whatever_happens_each_message_has_one_outcome(record_property: Callable[[str, object], None]) -> None:
    """K1, K3, K4: no slot is lost, nothing is served twice, and nothing is overtaken."""
    run_programs(programs, Run, record_property, number=80, full=5000)
