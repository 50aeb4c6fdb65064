"""Messages that are taken without a task, and answered by any step of the actor's tree."""

from __future__ import annotations

import contextvars
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorError,
    ActorRef,
    ActorStopped,
    ChildSpec,
    Event,
    Later,
    NotSent,
    RequestFinished,
    RequestStarted,
    StopActor,
    Unhandled,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Boom, Do, Fatal, Get, Host, PutNow, leaving, make_cancelled, of, open_child
from .takers import Ask, Calls, Taker, counts, number_of, taking

OF_SENDER: contextvars.ContextVar[str] = contextvars.ContextVar("of_sender", default="nobody")


# --- taken without a task ---------------------------------------------------------------------------------------------


async def test_a_taken_message_is_answered_by_any_step_of_the_tree_in_any_order() -> None:
    taker = Taker()
    async with taking(taker) as calls:
        tasks = trio.lowlevel.current_statistics().tasks_living
        await calls.send(Ask(1), Ask(2), Ask(3))
        assert trio.lowlevel.current_statistics().tasks_living == tasks + 3  # the callers alone
        assert counts(calls.ref) == (3, 0)
        first, second, third = taker.taken
        assert third.reply(30)
        assert first.fail(Boom("one"))
        assert (first.open, second.open, third.open) == (False, True, False)
        assert counts(calls.ref) == (1, 0)
        await settle()
        assert calls.kinds == {1: Boom, 3: int}
        assert not third.reply(31)
        assert not third.fail(Boom())
        assert second.reply(20)
    assert calls.outcomes[2] == 20
    assert calls.outcomes[3] == 30
    assert taker.handled == []


async def test_a_message_that_is_not_taken_is_handled_in_a_task() -> None:
    taker = Taker()
    kept: list[Later[int]] = []

    def decline(_: Taker, later: Later[int]) -> bool:
        kept.append(later)
        return False

    async with taking(taker, observers=[]) as calls:
        await calls.send(Ask(1, decline), Get(2))
        assert calls.outcomes == {1: -1, 2: 2}
        assert not kept[0].open
        assert not kept[0].reply(5)
        assert counts(calls.ref) == (0, 0)


async def test_taken_and_handled_messages_share_the_slots_and_their_order() -> None:
    """`max_in_flight` is one count for both ways."""
    taker = Taker(max_in_flight=2)
    hold = trio.Event()
    async with taking(taker) as calls:
        await calls.send(Ask(1), Do(hold.wait), Ask(2), Get(3), Ask(4))
        assert (taker.numbers, counts(calls.ref)) == ([1], (2, 3))
        taker.taken[0].reply(0)
        assert (taker.numbers, counts(calls.ref)) == ([1, 2], (2, 2))
        hold.set()
        await settle()
        assert (taker.numbers, counts(calls.ref)) == ([1, 2, 4], (2, 0))
        assert calls.outcomes[3] == 3
        for later in taker.taken[1:]:
            later.reply(0)
    assert calls.ref.statistics().in_flight == 0


async def test_control_messages_are_not_offered() -> None:
    """They need no slot, and are answered while nothing can be taken."""
    offered: list[Any] = []

    class Watching(Taker):
        def take(self, later: Later[Any]) -> bool:
            offered.append(later.message)
            return super().take(later)

    taker = Watching()
    async with taking(taker) as calls:
        await calls.ref.tell(PutNow(1))
        await calls.ref.call(Get(2))
    assert offered == [Get(2)]
    assert taker.handled == [PutNow(1), Get(2)]


async def test_take_runs_in_a_copy_of_the_senders_context() -> None:
    """K7: in the step of the sender, and in that of another task."""
    found: list[str] = []

    def look(_: Taker, later: Later[int]) -> bool:
        found.append(OF_SENDER.get())
        assert later.context[OF_SENDER] == OF_SENDER.get()  # for a task that goes on with the message
        OF_SENDER.set("take")
        return later.reply(0)

    async def call(ref: ActorRef, name: str) -> None:
        OF_SENDER.set(name)
        await ref.call(Ask(take=look))
        assert OF_SENDER.get() == name

    taker = Taker(max_in_flight=1)
    async with taking(taker) as calls, trio.open_nursery() as nursery:
        await call(calls.ref, "direct")
        await calls.send(Ask(1))
        nursery.start_soon(call, calls.ref, "queued")
        await settle()
        taker.taken[0].reply(0)
    assert found == ["direct", "queued"]


async def test_a_tell_is_taken_like_a_call() -> None:
    """Its failure is logged and an event, as from a handler; its slot is freed too."""
    events: list[Event] = []
    taker = Taker(max_in_flight=1)
    async with taking(taker, observers=[events.append]) as calls:
        await calls.ref.tell(Ask(1))
        await calls.ref.tell(Ask(2))
        (first,) = taker.taken
        assert (first.open, first.reply(1), first.open) == (True, False, False)
        assert taker.numbers == [1, 2]
        assert not taker.taken[1].fail(Boom())
        assert counts(calls.ref) == (0, 0)
    (unhandled,) = [event for event in events if isinstance(event, Unhandled)]
    assert (unhandled.message, type(unhandled.error)) == ("Ask", Boom)


@pytest.mark.parametrize("taken", [None, 1, "yes"])
async def test_take_returns_a_bool(taken: Any, said: Said) -> None:
    """A forgotten ``return`` would have the message handled a second time."""
    taker = Taker(max_in_flight=1)
    async with taking(taker) as calls:
        await calls.send(Ask(1, lambda *_: taken), Ask(2))
        assert calls.kinds == {1: TypeError}
        said("take() without a bool", str(calls.outcomes[1]), taken=repr(taken))
        taker.taken[0].reply(2)
    assert taker.handled == []


async def test_an_exception_from_take_is_the_answer() -> None:
    taker = Taker(max_in_flight=1)

    def fail(*_: Any) -> bool:
        raise Boom

    async with taking(taker) as calls:
        await calls.send(Ask(1, fail), Ask(2))
        assert calls.kinds == {1: Boom}
        taker.taken[0].reply(2)


async def test_an_exception_from_take_after_the_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """K1: the answer counts."""

    def answer_and_fail(_: Taker, later: Later[int]) -> bool:
        assert later.reply(7)
        raise Boom

    taker = Taker(max_in_flight=1)
    async with taking(taker) as calls:
        await calls.send(Ask(1, answer_and_fail))
        assert calls.outcomes == {1: 7}
        assert counts(calls.ref) == (0, 0)
    assert "no caller gets the error" in caplog.text


@pytest.mark.parametrize("result", [True, False])
async def test_take_may_answer_at_once(result: bool) -> None:
    def answer(_: Taker, later: Later[int]) -> bool:
        later.reply(7)
        return result

    taker = Taker(max_in_flight=1)
    async with taking(taker) as calls:
        await calls.send(Ask(1, answer), Ask(2, answer))
        assert calls.outcomes == {1: 7, 2: 7}
        assert counts(calls.ref) == (0, 0)
    assert taker.handled == []


@pytest.mark.parametrize("exc", [Fatal(), StopActor(), GeneratorExit()])
async def test_an_exception_that_ends_the_incarnation_does_so_from_take_too(exc: BaseException) -> None:
    """The sender, in whose step it is raised, gets an answer and nothing else."""

    def end(*_: Any) -> bool:
        raise exc

    takers: list[Taker] = []

    def make() -> Taker:
        takers.append(Taker(max_in_flight=2))
        return takers[-1]

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Ask(1), Ask(2, end), Ask(3))
        assert calls.kinds == {1: ActorCrashed, 2: Fatal if isinstance(exc, Fatal) else ActorCrashed}
        assert takers[1].numbers == [3]
        assert takers[1].taken[0].reply(3)


async def test_a_cancelled_from_elsewhere_does_not_reach_the_caller() -> None:
    """K2."""
    stray = await make_cancelled()
    taker = Taker()
    async with taking(taker) as calls:
        await calls.send(Ask(1), Ask(2))
        assert taker.taken[0].fail(stray)
        calls.cancel(2)
        assert not taker.taken[1].fail(stray)
        await settle()
        assert calls.kinds == {1: ActorError, 2: str}


# --- refusing ---------------------------------------------------------------------------------------------------------


class Pipe(Taker):
    """Takes as many messages as it has room for, and refuses the others."""

    room = 0

    def take(self, later: Later[Any]) -> bool:
        if not self.room:
            raise NotSent
        self.room -= 1
        return super().take(later)

    def drain(self, room: int) -> None:
        self.room = room
        self.take_again()


async def test_a_refused_message_waits_in_its_old_place_and_nothing_overtakes_it() -> None:
    """K4: in the same step, too. A mailbox that went on would give the same message for ever."""
    pipe = Pipe(max_in_flight=100)
    async with taking(pipe, mailbox_size=2) as calls:
        await calls.send(*map(Ask, range(4)), Get(4))
        assert (pipe.numbers, counts(calls.ref)) == ([], (0, 5))
        pipe.drain(2)
        assert (pipe.numbers, counts(calls.ref)) == ([0, 1], (2, 3))
        pipe.room = 9
        pipe.taken[0].reply(0)
        assert pipe.numbers == [0, 1]  # a slot that is free again does not count
        pipe.take_again()
        assert pipe.numbers == [0, 1, 2, 3]
        pipe.take_again()
        for later in pipe.taken:
            later.reply(0)
    assert calls.outcomes == {0: 0, 1: 0, 2: 0, 3: 0, 4: 4}


async def test_a_younger_message_does_not_overtake_one_that_is_being_refused() -> None:
    """`take` frees a slot, and sends a message, before it refuses: neither has it called again meanwhile."""
    taker = Taker(max_in_flight=2)
    full = True

    def answer_another_and_refuse(taker: Taker, later: Later[int]) -> bool:
        if full:
            taker.taken[0].reply(0)
            taker.ref.tell_nowait(Ask(4))
            raise NotSent
        taker.taken.append(later)
        return True

    async with taking(taker) as calls:
        await calls.send(Ask(1), Ask(2, answer_another_and_refuse), Ask(3))
        assert (taker.numbers, counts(calls.ref)) == ([1], (0, 3))
        full = False
        taker.take_again()
        assert taker.numbers == [1, 2, 4]
        taker.taken[1].reply(2)
        assert taker.numbers == [1, 2, 4, 3]
        taker.taken[2].reply(4)
        taker.taken[3].reply(3)
    assert calls.outcomes == {1: 0, 2: 2, 3: 3}


async def test_a_message_that_take_sends_to_its_own_actor_is_taken_next() -> None:
    """In the step of the sender, if there is a slot for it."""

    def send(taker: Taker, later: Later[int]) -> bool:
        taker.ref.tell_nowait(Ask(2))
        taker.taken.append(later)
        return True

    taker = Taker(max_in_flight=2)
    async with taking(taker) as calls:
        await calls.ref.tell(Ask(1, send))
        assert (taker.numbers, counts(calls.ref)) == ([1, 2], (2, 0))


async def test_messages_that_take_itself_sends_come_after_those_that_wait() -> None:
    """A nested `take` would be called for the younger message first."""
    order: list[int] = []

    def note(taker: Taker, later: Later[int]) -> bool:
        order.append(number_of(later))
        if number_of(later) < 10:
            taker.ref.tell_nowait(Ask(number_of(later) + 10, note))
        order.append(number_of(later))
        return later.reply(0) or True

    taker = Taker(max_in_flight=1)
    async with taking(taker) as calls:
        await calls.send(Ask(0), Ask(1, note), Ask(2, note))
        taker.taken[0].reply(0)
        assert order == [1, 1, 2, 2, 11, 11, 12, 12]


async def test_a_caller_of_a_refused_message_may_leave_or_expire_in_the_queue() -> None:
    """It is never served then."""
    pipe = Pipe()
    async with taking(pipe) as calls:
        pending = calls.ref.send_request(Ask(0))
        await calls.send(Ask(1), Ask(2))
        calls.cancel(1)
        assert pending.expire(Boom())
        with pytest.raises(Boom):
            await pending.wait()
        pipe.drain(9)
        assert pipe.numbers == [2]
        pipe.taken[0].reply(2)
    assert calls.outcomes == {1: "cancelled", 2: 2}


async def test_a_taken_message_may_be_refused_later() -> None:
    """A line that was never written: its message returns to its old place, before younger ones."""
    taker = Taker(max_in_flight=2)
    async with taking(taker) as calls:
        await calls.send(*map(Ask, range(4)))
        first, second = taker.taken
        assert not second.fail(NotSent())
        assert not first.fail(NotSent())
        assert not first.open
        assert (taker.numbers, counts(calls.ref)) == ([0, 1], (0, 4))
        taker.take_again()
        assert taker.numbers == [0, 1, 0, 1]
        assert not first.reply(5)
        assert not first.fail(NotSent())
        assert taker.taken[2].reply(0)
        assert taker.numbers == [0, 1, 0, 1, 2]
        for later in taker.taken:
            later.reply(0)
    assert calls.outcomes == dict.fromkeys(range(4), 0)


async def test_a_take_that_ends_the_incarnation_refuses_to_the_next_one() -> None:
    """EPIPE before the first byte: all that was not written is kept, in order; all that was, is answered."""
    takers: list[Taker] = []

    def make() -> Taker:
        takers.append(Taker(max_in_flight=3))
        return takers[-1]

    def lose(taker: Taker, later: Later[int]) -> bool:
        if len(takers) > 1:
            taker.taken.append(later)
            return True
        taker.fail(Boom())
        raise NotSent

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Ask(1))
        await calls.send(Ask(2, lose), Ask(3), Ask(4))
        assert calls.kinds == {1: ActorCrashed}
        assert takers[1].numbers == [2, 3, 4]
        assert not takers[0].taken[0].reply(1)
        for later in takers[1].taken:
            later.reply(number_of(later))
    assert [calls.outcomes[number] for number in (2, 3, 4)] == [2, 3, 4]


@pytest.mark.parametrize("result", [True, False])
async def test_a_take_that_ends_the_incarnation_and_returns(result: bool) -> None:
    """True has it interrupted like all that are in flight; False returns it to the queue. Nothing more is taken."""
    takers: list[Taker] = []

    def make() -> Taker:
        takers.append(Taker(max_in_flight=1))
        return takers[-1]

    def end(taker: Taker, _: Later[int]) -> bool:
        if len(takers) > 1:
            return False
        taker.fail(Boom())
        return result

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Ask(0))
        await calls.send(Ask(1, end), Ask(2))
        takers[0].taken[0].reply(0)
        await settle()
        assert calls.outcomes[0] == 0
        assert calls.kinds.get(1) is (ActorCrashed if result else int)
        assert takers[1].numbers == [2]
        assert len(takers[1].handled) == (not result)
        takers[1].taken[0].reply(2)


def test_a_message_whose_take_ends_the_incarnation_is_watched_no_more() -> None:
    """D-67: the check for slow messages ends with the incarnation."""

    def end(taker: Taker, _: Later[int]) -> bool:
        taker.stop()
        return True

    async def main() -> int:
        async with open_supervisor(ChildSpec("taker", Taker)) as top:
            with pytest.raises(ActorCrashed):
                await top.child("taker").call(Ask(take=end))
            await trio.sleep(61)
            return top.child("taker").statistics().incarnation

    # Not by pytest-trio, which ignores the Cancelled that a failure of the kernel's own task would leave.
    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == 2


async def test_a_refused_message_that_finds_the_mailbox_closed_is_answered() -> None:
    """K1."""

    def stop(taker: Taker, _: Later[int]) -> bool:
        taker.stop()
        raise NotSent

    taker = Taker()
    async with taking(taker) as calls:
        await calls.send(Ask(1, stop))
        assert calls.kinds == {1: ActorStopped}


# --- callers that leave, deadlines, ends ------------------------------------------------------------------------------


async def test_a_caller_that_leaves_frees_the_slot_of_its_taken_message() -> None:
    """K3: the owner frees it; the caller's own step only marks it."""
    taker = Taker(max_in_flight=1)
    async with taking(taker) as calls:
        await calls.send(Ask(1), Ask(2))
        calls.cancel(1)
        assert (taker.numbers, counts(calls.ref)) == ([1], (1, 1))
        assert not taker.taken[0].open
        await settle()
        assert (taker.numbers, counts(calls.ref)) == ([1, 2], (1, 0))
        assert not taker.taken[0].reply(1)
        assert counts(calls.ref) == (1, 0)
        taker.taken[1].reply(2)
    assert calls.outcomes == {1: "cancelled", 2: 2}


async def test_an_answer_between_the_leaving_and_the_owners_step_frees_the_slot_once() -> None:
    cancelled: list[Later[int]] = []
    taker = Taker(max_in_flight=1, on_cancel=cancelled.append)
    async with taking(taker) as calls:
        await calls.send(Ask(1), Ask(2), Ask(3))
        calls.cancel(1)
        assert not taker.taken[0].reply(1)
        assert taker.numbers == [1, 2]
        await settle()
        assert (taker.numbers, cancelled) == ([1, 2], [])
        assert taker.taken[1].reply(2)
        assert taker.taken[2].reply(3)


async def test_with_on_cancel_the_slot_is_free_when_the_actor_settles() -> None:
    """A notice that the server must read first. It is called once for each, in order, and in the sender's context."""
    cancelled: list[tuple[int, str]] = []

    def note(later: Later[Any]) -> None:
        cancelled.append((number_of(later), OF_SENDER.get()))

    taker = Taker(max_in_flight=3, on_cancel=note)
    async with taking(taker) as calls:
        OF_SENDER.set("sender")
        await calls.send(Ask(1), Ask(2), Ask(3), Ask(4))
        calls.cancel(2)
        calls.cancel(1)
        await settle()
        assert cancelled == [(2, "sender"), (1, "sender")]
        assert (taker.numbers, counts(calls.ref)) == ([1, 2, 3], (3, 1))
        assert not taker.taken[0].reply(0)
        assert (taker.numbers, counts(calls.ref)) == ([1, 2, 3, 4], (3, 0))
        for later in taker.taken[2:]:
            later.reply(0)
        assert counts(calls.ref) == (1, 0)
        taker.stop()
        await settle()
    assert cancelled == [(2, "sender"), (1, "sender")]
    assert not taker.taken[1].open
    assert not taker.taken[1].fail(Boom())


async def test_on_cancel_may_settle_at_once() -> None:
    taker = Taker(max_in_flight=1, on_cancel=lambda later: later.reply(0))
    async with taking(taker) as calls:
        await calls.send(Ask(1), Ask(2))
        calls.cancel(1)
        await settle()
        assert taker.numbers == [1, 2]
        taker.taken[1].reply(0)


async def test_a_deadline_answers_for_a_taken_message() -> None:
    cancelled: list[Later[int]] = []
    taker = Taker(on_cancel=cancelled.append)
    async with taking(taker) as calls:
        pending = calls.ref.send_request(Ask(1))
        assert pending.handed_over
        assert pending.expire(Boom())
        assert not taker.taken[0].open
        assert cancelled == []  # this step may be one of Trio's that delivers a cancellation
        with pytest.raises(Boom):
            await pending.wait()
        await settle()
        assert cancelled == taker.taken
        assert counts(calls.ref) == (1, 0)
        taker.taken[0].reply(1)
        assert counts(calls.ref) == (0, 0)


async def test_the_end_answers_all_that_were_taken_in_one_step() -> None:
    """K1; and `on_cancel` runs before the resource is released."""
    steps: list[str] = []

    class Releasing(Taker):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            async with super().running():
                yield
            steps.append("released")

    takers: list[Taker] = []

    def make() -> Taker:
        takers.append(Releasing(on_cancel=lambda later: steps.append(f"cancel {number_of(later)}")))
        return takers[-1]

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Ask(1), Ask(2))
        await calls.ref.tell(Ask(3))
        takers[0].fail(Boom())
        assert [later.open for later in takers[0].taken] == [False, False, False]
        assert calls.ref.statistics().in_flight == 0
        await settle()
        assert calls.kinds == {1: ActorCrashed, 2: ActorCrashed}
        assert isinstance(calls.outcomes[1].__cause__, Boom)
        assert steps == ["cancel 1", "cancel 2", "cancel 3", "released"]
        assert not any(later.reply(0) for later in takers[0].taken)
        assert len(takers) == 2


def put_back_all_but_first(taker: Taker) -> None:
    for later in reversed(taker.taken[1:]):
        later.fail(NotSent())


@pytest.mark.parametrize("end", ["fails", "dies", "is stopped"])
async def test_what_is_put_back_at_the_end_is_served_by_the_next_incarnation_in_its_order(end: str) -> None:
    """K4."""
    takers: list[Taker] = []
    cancelled: list[Later[Any]] = []
    broken = trio.Event()

    async def background(_: Taker) -> None:
        await broken.wait()
        if len(takers) == 1:
            raise Boom
        await trio.sleep_forever()

    def make() -> Taker:
        takers.append(Taker(on_cancel=cancelled.append, background=background, on_end=put_back_all_but_first))
        return takers[-1]

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Ask(1), Ask(2), Ask(3))
        match end:
            case "fails":
                takers[0].fail(Boom())
            case "dies":
                broken.set()
            case "is stopped":
                await supervisor.stop_child("child", keep_mailbox=True)
                await supervisor.restart_child("child")
        await settle()
        assert calls.kinds == {1: ActorCrashed}
        assert [number_of(later) for later in cancelled] == [1]
        assert takers[1].numbers == [2, 3]
        assert [later.reply(0) for later in takers[1].taken] == [True, True]


async def test_what_is_put_back_at_the_last_end_was_not_handed_over() -> None:
    """K1."""
    taker = Taker(on_end=put_back_all_but_first)
    async with taking(taker) as calls:
        await calls.send(Ask(1), Ask(2))
        taker.stop()
    first, second = calls.outcomes[1], calls.outcomes[2]
    assert (first.handed_over, second.handed_over) == (True, False)


@pytest.mark.parametrize(("exc", "answer"), [(Boom(), ActorStopped), (KeyboardInterrupt(), ActorCrashed)])
async def test_a_raising_ending_keeps_no_answer_back(
    exc: BaseException, answer: type, caplog: pytest.LogCaptureFixture
) -> None:
    """K5: an exit leaves the block; anything else is logged."""

    def fail(_: Taker) -> None:
        raise exc

    taker = Taker(on_end=fail)
    with leaving(KeyboardInterrupt) if isinstance(exc, KeyboardInterrupt) else nullcontext():
        async with taking(taker) as calls:
            await calls.send(Ask(1))
            taker.stop()
    assert calls.kinds == {1: answer}
    assert "actor 'taker': ending() raised" in caplog.text


async def test_a_resource_that_dies_answers_all_that_were_taken() -> None:
    """`fail` was not called: the owner notices that, and still calls `on_cancel`."""
    cancelled: list[Later[int]] = []
    broken = trio.Event()

    async def background(_: Taker) -> None:
        await broken.wait()
        raise Boom

    def make() -> Taker:
        return Taker(on_cancel=cancelled.append, background=background)

    with leaving(ActorError):
        async with open_actor(make(), name="taker") as ref, trio.open_nursery() as nursery:
            calls = Calls(ref, nursery)
            await calls.send(Ask(1))
            broken.set()
            await settle()
    assert len(cancelled) == 1
    assert calls.kinds == {1: ActorStopped} or calls.kinds == {1: ActorCrashed}


async def test_a_raising_on_cancel_is_a_crash_of_the_actor_alone() -> None:
    """The others that left are cancelled as well."""
    cancelled: list[int] = []

    def fail(later: Later[Any]) -> None:
        cancelled.append(number_of(later))
        raise Boom

    takers: list[Taker] = []

    def make() -> Taker:
        takers.append(Taker(on_cancel=fail))
        return takers[-1]

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Ask(1), Ask(2), Ask(3))
        calls.cancel(1)
        calls.cancel(2)
        await settle()
        assert cancelled == [1, 2, 3]
        assert calls.kinds == {1: str, 2: str, 3: ActorCrashed}
        assert len(takers) == 2
        assert await calls.ref.call(Get(4)) == 4


async def test_an_on_cancel_that_settles_and_raises_frees_the_slot_once() -> None:
    def settle_and_fail(later: Later[Any]) -> None:
        later.reply(0)
        raise Boom

    takers: list[Taker] = []

    def make() -> Taker:
        takers.append(Taker(max_in_flight=1, on_cancel=settle_and_fail))
        return takers[-1]

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Ask(1))
        assert repr(takers[0].taken[0]) == "<Later open: Ask(number=1, take=None)>"
        calls.cancel(1)
        await settle()
        assert (len(takers), counts(calls.ref)) == (2, (0, 0))


async def test_a_chain_of_taken_messages_unwinds_one_owner_after_the_other(autojump_clock: trio.abc.Clock) -> None:
    """K3: a cancellation that went through all of them in one step would recurse."""
    length = 50
    takers = [Taker() for _ in range(length)]

    def forward(index: int) -> Any:
        def take(_: Taker, later: Later[int]) -> bool:
            pending = refs[index + 1].send_request(Ask(0, forward(index + 1) if index + 2 < length else None))

            def withdraw(later: Later[int]) -> None:
                pending.withdraw()
                later.reply(0)

            later.on_cancel = withdraw
            return True

        return take

    async with AsyncExitStack() as stack:
        refs = [
            await stack.enter_async_context(open_actor(taker, name=f"taker-{number}"))
            for number, taker in enumerate(takers)
        ]
        with trio.move_on_after(5):
            await refs[0].call(Ask(0, forward(0)))
        assert counts(refs[-1]) == (1, 0)
        await settle()
        assert [counts(ref) for ref in refs] == [(0, 0)] * length


async def test_a_later_of_another_thread_is_refused_and_loses_no_slot(said: Said) -> None:
    """B-30."""
    taker = Taker()
    async with taking(taker) as calls:
        await calls.send(Ask(1))
        (later,) = taker.taken
        for use in (partial(later.reply, 1), partial(later.fail, Boom())):
            with pytest.raises(RuntimeError) as caught:
                await trio.to_thread.run_sync(use)
            said("a Later settled outside its Trio run", str(caught.value))
        assert later.reply(1)
        with pytest.raises(TypeError) as wrong:
            later.fail("broken")  # type: ignore[arg-type]  # that is the test
        said("fail() without an exception", str(wrong.value))


# --- deadlocks --------------------------------------------------------------------------------------------------------


async def test_a_take_that_calls_its_own_actor_is_refused() -> None:
    """As from a handler; nothing waits in a task, so only the `Later` says who calls."""

    def call_itself(taker: Taker, _: Later[int]) -> bool:
        taker.ref.send_request(Get(1))
        return True

    async with taking(Taker()) as calls:
        await calls.send(Ask(1, call_itself))
        assert calls.kinds == {1: ActorError}
        assert "called itself" in str(calls.outcomes[1])


async def test_a_circle_through_a_taken_message_is_refused() -> None:
    """B-35: p → q → p, where q takes the message in p's own step, before p is known to wait for it."""
    q = Taker()
    async with open_actor(Host(), name="p") as p, open_actor(q, name="q") as q_ref:

        def back(_: Taker, later: Later[int]) -> bool:
            p.send_request(Get(1)).on_answer(lambda answer: later.reply(0))
            return True

        with pytest.raises(ActorError, match=r"'p' \(handling Do\) waits for 'q' \(handling Ask\)"):
            await p.call(Do(partial(q_ref.call, Ask(1, back))))
        await settle()
        assert counts(q_ref) == (0, 0)


async def test_a_circle_through_a_message_taken_from_the_queue_is_refused() -> None:
    q = Taker(max_in_flight=1)
    async with open_actor(Host(), name="p") as p, open_actor(q, name="q") as q_ref, trio.open_nursery() as nursery:

        def back(_: Taker, __: Later[int]) -> bool:
            p.send_request(Get(1))
            return True

        calls = Calls(q_ref, nursery)
        await calls.send(Ask(1))
        circle = Calls(p, nursery)
        await circle.send(Do(partial(q_ref.call, Ask(2, back))))
        q.taken[0].reply(1)
        await settle()
        assert set(circle.kinds.values()) == {ActorError}


async def test_a_call_that_waits_for_a_taken_message_is_not_refused() -> None:
    """Another task settles it, at an unknown time."""
    q = Taker(max_in_flight=1)
    async with open_actor(Host(), name="p") as p, taking(q) as calls, trio.open_nursery() as nursery:
        await calls.send(Ask(1))
        nursery.start_soon(p.call, Do(partial(calls.ref.call, Ask(2))))
        await settle()
        assert counts(calls.ref) == (1, 1)
        q.taken[0].reply(1)
        q.taken[1].reply(2)


async def test_a_task_that_take_starts_can_join_its_message() -> None:
    """Calls of the task then count as calls of the message, so a deadlock is found."""
    q = Taker(max_in_flight=5)
    failures: list[Exception] = []

    async with open_actor(Host(), name="p") as p, open_actor(q, name="q") as q_ref:

        def start(taker: Taker, later: Later[int]) -> bool:
            taker.nursery.start_soon(ask_back, taker, later)
            return True

        async def ask_back(taker: Taker, later: Later[int]) -> None:
            taker.join_handler()
            try:
                await p.call(Get(1))
            except ActorError as exc:
                failures.append(exc)
            later.reply(2)

        q_ref.tell_nowait(Ask(9))
        assert await p.call(Do(partial(q_ref.call, Ask(1, start)))) == 2
        assert len(failures) == 1


# --- events, garbage --------------------------------------------------------------------------------------------------


async def test_observers_see_when_a_taken_message_begins_and_ends(autojump_clock: trio.abc.Clock) -> None:
    events: list[Event] = []
    taker = Taker()
    full = True

    def refuse(taker: Taker, later: Later[int]) -> bool:
        if full:
            raise NotSent
        return later.reply(0)

    async with taking(taker, observers=[events.append]) as calls:
        await calls.send(Ask(1), Ask(2), Ask(3), Ask(4, lambda _, later: later.reply(4)), Ask(5, refuse))
        full = False
        taker.take_again()
        calls.cancel(1)
        await trio.sleep(2)
        taker.taken[1].fail(Boom())
        taker.stop()
    requests: list[Event] = [event for event in events if isinstance(event, (RequestStarted, RequestFinished))]
    finished = [event for event in requests if isinstance(event, RequestFinished)]
    began = "RequestStarted"
    ended = "RequestFinished"
    assert of(requests) == [began] * 4 + [ended, began, ended, began, ended] + [ended] * 3
    assert [(type(event.error), event.seconds) for event in finished] == [
        (type(None), 0),
        (NotSent, 0),
        (type(None), 0),
        (ActorError, 0),
        (Boom, 2),
        (ActorStopped, 2),
    ]


async def test_a_settled_message_leaves_nothing_for_the_garbage_collector() -> None:
    """Also one that was refused, and one that was refused and never served."""
    pipe = Pipe(max_in_flight=10)
    gc.collect()
    gc.disable()
    try:
        async with open_actor(pipe, name="pipe") as ref:
            sent: list[weakref.ref[Any]] = []
            for number in range(6):
                message = Ask(number)
                sent.append(weakref.ref(message))
                pending = ref.send_request(message)
                pending.on_answer(lambda _: None)
                if number == 5:
                    pending.withdraw()
                del message, pending
            pipe.drain(4)
            for later in pipe.taken[1:]:
                later.reply(1)
            pipe.taken[0].fail(Boom())
            pipe.taken.clear()
            del later
            assert [number for number, message in enumerate(sent) if message() is not None] == [4]
            pipe.stop()
            await ref.wait_stopped()
        assert [number for number, message in enumerate(sent) if message() is not None] == []
    finally:
        gc.enable()


async def test_the_context_of_a_message_that_is_over_is_empty() -> None:
    """A task that writes it to a connection may come when its caller has left."""
    taker = Taker()
    async with taking(taker) as calls:
        await calls.send(Ask(1))
        [later] = taker.taken
        assert list(later.context)
        calls.cancel(1)
        await settle()
        assert not list(later.context)
