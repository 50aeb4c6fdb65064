"""Timers: messages that an actor sends itself later, for as long as its incarnation runs."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    ActorStopped,
    ChildSpec,
    DeadLetter,
    Event,
    Later,
    Message,
    NotSent,
    RequestFinished,
    Supervisor,
    Timer,
    Unhandled,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Boom, Do, Fatal, Gate, Get, Host, Put, PutNow, open_child, raising

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


async def in_handler(ref: ActorRef, fn: Callable[[], Any]) -> Any:
    """Run a function in the handler of an actor."""

    async def run() -> Any:
        return fn()

    return await ref.call(Do(run))


def timer_tasks(name: str = "host") -> int:
    """The number of tasks that serve the timers of an actor, in the whole program."""
    found, tasks = 0, [trio.lowlevel.current_root_task()]
    while tasks:
        task = tasks.pop()
        assert task is not None
        found += task.name == f"{name}:timers"
        tasks.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return found


# --- what they do -----------------------------------------------------------------------------------------------------


async def test_after_sends_its_message_once_and_when_it_is_due(autojump_clock: MockClock) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        await in_handler(ref, lambda: host.after(2, Put("late")))
        await in_handler(ref, lambda: host.after(1, Put("early")))
        await trio.sleep(0.99)
        assert host.seen == []
        await trio.sleep(0.02)
        assert host.seen == ["early"]
        await trio.sleep(10)
        assert host.seen == ["early", "late"]


async def test_every_sends_its_message_once_a_period_without_drift(autojump_clock: MockClock) -> None:
    times: list[float] = []

    async def note() -> None:
        times.append(trio.current_time())

    host = Host()
    async with open_actor(host, name="host") as ref:
        began = trio.current_time()
        timer = await in_handler(ref, lambda: host.every(0.25, Do(note)))
        await trio.sleep(25.1)
        assert times == pytest.approx([began + 0.25 * number for number in range(1, 101)])
        assert timer.skipped == 0


async def test_timers_that_are_due_together_fire_in_the_order_in_which_they_were_set(autojump_clock: MockClock) -> None:
    host = Host()

    def set_all() -> None:
        host.every(2, Put("a"))
        host.after(2, Put("b"))
        host.every(1, Put("c"))
        host.after(0, Put("now"))

    async with open_actor(host, name="host") as ref:
        await in_handler(ref, set_all)
        await trio.sleep(2.5)
        assert host.seen == ["now", "c", "a", "b", "c"]


async def test_a_timer_that_is_due_before_all_others_wakes_the_task(autojump_clock: MockClock) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        await in_handler(ref, lambda: host.after(1000, Put("late")))
        await settle()
        await in_handler(ref, lambda: host.after(1, Put("early")))
        await trio.sleep(1.5)
        assert host.seen == ["early"]


async def test_a_handler_can_set_its_timer_again(autojump_clock: MockClock) -> None:
    host = Host()
    times: list[float] = []

    async def again() -> None:
        times.append(trio.current_time())
        host.after(len(times), Do(again))

    async with open_actor(host, name="host") as ref:
        began = trio.current_time()
        await ref.call(Do(again))
        await trio.sleep(11)
        assert times == pytest.approx([began, began + 1, began + 3, began + 6, began + 10])


async def test_one_task_serves_all_timers_and_none_is_left_when_there_are_none(autojump_clock: MockClock) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        assert timer_tasks() == 0
        timers: list[Timer] = []
        await in_handler(ref, lambda: timers.extend(host.after(1 + n, Put(n)) for n in range(10)))
        await settle()
        assert timer_tasks() == 1
        await trio.sleep(1.5)
        assert timer_tasks() == 1
        for timer in timers:
            timer.cancel()
        await settle()
        assert timer_tasks() == 0
        await in_handler(ref, lambda: host.after(1, Put("again")))
        await trio.sleep(2)
        assert (host.seen, timer_tasks()) == ([0, "again"], 0)


async def test_an_exception_of_its_handler_is_that_of_a_tell(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    host = Host()
    async with open_actor(host, name="host", observers=[events.append]) as ref:
        await in_handler(ref, lambda: host.every(1, Do(raising(Boom("tick")))))
        await trio.sleep(2.5)
        assert [str(event.error) for event in events if isinstance(event, Unhandled)] == ["tick", "tick"]
        assert await ref.call(Get(1)) == 1


async def test_a_message_on_the_control_lane_needs_no_slot(autojump_clock: MockClock) -> None:
    host, gate = Host(), Gate()
    async with open_actor(host, name="host") as ref:
        await in_handler(ref, lambda: host.after(1, PutNow("control")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call, Do(gate))
            await trio.sleep(2)
            assert host.seen == ["control"]
            gate.open()


# --- a slow handler and a full mailbox --------------------------------------------------------------------------------


async def test_every_skips_while_its_last_message_is_queued(autojump_clock: MockClock) -> None:
    """One message is handled, one waits, and the others are counted."""
    host = Host()

    async def slow() -> None:
        host.seen.append(trio.current_time())
        await trio.sleep(3.5)

    async with open_actor(host, name="host") as ref:
        began = trio.current_time()
        timer = await in_handler(ref, lambda: host.every(1, Do(slow)))
        await trio.sleep(7.9)
        assert host.seen == pytest.approx([began + 1, began + 4.5])
        assert timer.skipped == 4  # at 3 and 4, and at 6 and 7
        assert ref.statistics().queued == 1


async def test_every_counts_the_periods_in_which_the_whole_program_has_paused(mock_clock: MockClock) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        timer = await in_handler(ref, lambda: host.every(1, Put("tick")))
        await settle()
        mock_clock.jump(10.5)
        await settle()
        assert (host.seen, timer.skipped) == (["tick"], 9)
        mock_clock.jump(0.4)
        await settle()
        assert host.seen == ["tick"]
        mock_clock.jump(0.2)
        await settle()
        assert (host.seen, timer.skipped) == (["tick", "tick"], 9)


@pytest.mark.parametrize("overflow", ["wait", "fail"])
async def test_a_full_mailbox_loses_no_message_of_a_timer(autojump_clock: MockClock, overflow: Any) -> None:
    host, gate = Host(), Gate()
    async with open_actor(host, name="host", mailbox_size=1, overflow=overflow) as ref:
        timer = await in_handler(ref, lambda: host.every(1, Put("tick")))
        await in_handler(ref, lambda: host.after(1, Put("once")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call, Do(gate))
            await settle()
            ref.tell_nowait(Put("first"))
            await trio.sleep(3.5)
            assert ref.statistics().queued == 3
            assert timer.skipped == 2
            gate.open()
            await settle()
        assert host.seen == ["first", "tick", "once"]


async def test_a_message_that_is_removed_from_the_queue_lets_the_next_one_in(autojump_clock: MockClock) -> None:
    host, gate = Host(), Gate()
    async with open_actor(host, name="host", mailbox_size=1) as ref:
        timer = await in_handler(ref, lambda: host.after(1, Put("timer")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call, Do(gate))
            await trio.sleep(1.5)
            nursery.start_soon(ref.tell, Put("a"))
            await settle()
            nursery.start_soon(ref.tell, Put("b"))
            await settle()
            assert len(nursery.child_tasks) == 3  # both tells wait for room
            timer.cancel()
            await settle()
            assert len(nursery.child_tasks) == 2
            gate.open()
        await settle()
        assert host.seen == ["a", "b"]


# --- cancel -----------------------------------------------------------------------------------------------------------


async def test_a_canceled_timer_sends_nothing(autojump_clock: MockClock) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        once = await in_handler(ref, lambda: host.after(1, Put("once")))
        often = await in_handler(ref, lambda: host.every(1, Put("often")))
        await trio.sleep(0.5)
        once.cancel()
        await trio.sleep(1)
        often.cancel()
        often.cancel()
        await trio.sleep(10)
        assert host.seen == ["often"]


async def test_a_canceled_timer_that_is_still_in_the_heap_sends_nothing(autojump_clock: MockClock) -> None:
    host, gate = Host(), Gate()
    async with open_actor(host, name="host") as ref, trio.open_nursery() as nursery:
        timers: list[Timer] = await in_handler(ref, lambda: [host.every(1, Put(number)) for number in range(3)])
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        timers[0].cancel()
        await trio.sleep(1.5)
        assert ref.statistics().queued == 2
        gate.open()
        await settle()
        assert host.seen == [1, 2]


async def test_cancel_removes_a_message_that_is_queued(autojump_clock: MockClock) -> None:
    host, gate = Host(), Gate()
    async with open_actor(host, name="host") as ref:
        timer = await in_handler(ref, lambda: host.every(1, Put("tick")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call, Do(gate))
            await trio.sleep(1.5)
            assert ref.statistics().queued == 1
            timer.cancel()
            assert ref.statistics().queued == 0
            gate.open()
        await trio.sleep(5)
        assert host.seen == []


class OnTaken(trio.abc.Instrument):
    """Does something in the step in which a message was taken, and not yet handed over to its handler."""

    def __init__(self, name: str, fn: Callable[[], object]) -> None:
        self.name = name
        self.fn = fn
        trio.lowlevel.add_instrument(self)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task.name == self.name:
            trio.lowlevel.remove_instrument(self)
            self.fn()


async def test_cancel_stops_a_message_that_was_taken_and_not_yet_handed_over(autojump_clock: MockClock) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        timer = await in_handler(ref, lambda: host.after(1, Put("tick")))
        OnTaken("host:Put", timer.cancel)
        await trio.sleep(2)
        assert host.seen == []
        assert await ref.call(Get(1)) == 1


async def test_a_handler_may_cancel_its_own_timer_and_is_not_interrupted(autojump_clock: MockClock) -> None:
    host = Host()
    timers: list[Timer] = []

    async def tick() -> None:
        timers[0].cancel()
        await trio.sleep(1)
        host.seen.append("done")

    async with open_actor(host, name="host") as ref:
        timers.append(await in_handler(ref, lambda: host.every(1, Do(tick))))
        await trio.sleep(10)
        assert host.seen == ["done"]
        timers[0].cancel()


async def test_many_timers_that_are_set_and_canceled_leave_nothing_behind(autojump_clock: MockClock) -> None:
    """As a handler does that sets a timeout for each message: the canceled ones must not pile up until they are due."""
    host = Host()
    async with open_actor(host, name="host") as ref:
        gone: list[weakref.ref[Message]] = []

        def set_and_cancel() -> None:
            message = Note()
            gone.append(weakref.ref(message))
            host.after(3600, message).cancel()

        keep = await in_handler(ref, lambda: host.after(7200, Put("kept")))
        for _ in range(100):
            await in_handler(ref, set_and_cancel)
        gc.collect()
        assert sum(each() is not None for each in gone) <= 2
        await trio.sleep(7300)
        assert host.seen == ["kept"]
        assert keep.skipped == 0


@frozen(eq=False, slots=False)
class Note(Message):
    """A message to which a weak reference is possible."""


# --- the end of the incarnation ---------------------------------------------------------------------------------------


async def test_timers_end_with_the_incarnation(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    hosts: list[Host] = []

    def factory() -> Host:
        hosts.append(Host(seen=seen))
        return hosts[-1]

    async with open_child(factory) as supervisor:
        ref = supervisor.child("child")
        await in_handler(ref, lambda: hosts[0].every(1, Put("old")))
        await trio.sleep(1.5)
        with pytest.raises(Fatal):
            await ref.call(Do(raising(Fatal("broken"))))
        await trio.sleep(10)
        assert seen == ["old"]
        await in_handler(ref, lambda: hosts[1].after(1, Put("new")))
        await trio.sleep(2)
        assert seen == ["old", "new"]
        await supervisor.stop_child("child")
        await trio.sleep(5)
        assert timer_tasks("child") == 0


async def test_a_queued_message_of_a_timer_does_not_reach_the_next_incarnation(autojump_clock: MockClock) -> None:
    """It does not become a dead letter; other messages keep their order and get the room that it leaves."""
    seen: list[Any] = []
    hosts: list[Host] = []
    events: list[Event] = []
    gate = Gate()

    def factory() -> Host:
        hosts.append(Host(seen=seen))
        return hosts[-1]

    async def crash() -> None:
        await gate()
        raise Fatal("broken")

    async with (
        open_child(factory, mailbox_size=2, observers=[events.append]) as supervisor,
        trio.open_nursery() as nursery,
    ):
        ref = supervisor.child("child")
        await in_handler(ref, lambda: hosts[0].after(1, Put("timer 1")))
        await in_handler(ref, lambda: hosts[0].after(2, Put("timer 2")))
        nursery.start_soon(expect, Fatal, ref.call, Do(crash))
        await trio.sleep(0.5)
        ref.tell_nowait(Put("a"))
        await trio.sleep(1)  # timer 1 is in the queue, which is full
        nursery.start_soon(ref.tell, Put("b"))
        await trio.sleep(1)  # timer 2 is in the entrance
        nursery.start_soon(ref.tell, Put("c"))
        await settle()
        assert ref.statistics().queued == 5
        gate.open()
        await settle()
        assert seen == ["a", "b", "c"]
        assert [event for event in events if isinstance(event, DeadLetter)] == []


async def test_a_queued_message_of_a_timer_is_removed_when_the_end_is_decided(autojump_clock: MockClock) -> None:
    """Not only when the clean-up is done: it does not count as queued meanwhile, nor becomes a dead letter."""
    events: list[Event] = []
    gate = Gate()

    async def stop(_: Host) -> None:
        await trio.sleep(5)

    host = Host(stop=stop, shutdown=10.0)
    async with open_actor(host, name="host", observers=[events.append]) as ref, trio.open_nursery() as nursery:
        await in_handler(ref, lambda: host.after(1, Put("timer")))
        nursery.start_soon(expect, ActorStopped, ref.call, Do(gate))
        await trio.sleep(1.5)
        assert ref.statistics().queued == 1
        host.stop()
        assert ref.statistics().queued == 0
        await ref.wait_stopped()
    assert [event for event in events if isinstance(event, DeadLetter)] == []


async def test_a_message_of_a_timer_for_which_the_handler_raises_not_sent_ends_with_its_incarnation(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []
    hosts: list[Host] = []

    def factory() -> Host:
        hosts.append(Host(seen=seen))
        return hosts[-1]

    async def lost() -> None:
        seen.append("tried")
        hosts[-1].fail(Fatal("lost"))
        raise NotSent

    async with open_child(factory) as supervisor:
        ref = supervisor.child("child")
        await in_handler(ref, lambda: hosts[0].after(1, Do(lost)))
        await trio.sleep(5)
        assert (seen, ref.statistics().incarnation, ref.statistics().queued) == (["tried"], 2, 0)


async def test_a_message_that_was_taken_when_the_end_is_decided_is_not_returned(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    hosts: list[Host] = []

    def factory() -> Host:
        hosts.append(Host(seen=seen))
        return hosts[-1]

    async with open_child(factory) as supervisor:
        ref = supervisor.child("child")
        await in_handler(ref, lambda: hosts[0].after(1, Put("timer")))
        OnTaken("child:Put", lambda: hosts[0].fail(Fatal("in that step")))
        await trio.sleep(2)
        assert (ref.statistics().incarnation, ref.statistics().queued, seen) == (2, 0, [])


async def test_a_timer_may_be_set_before_the_actor_has_started(autojump_clock: MockClock) -> None:
    """Its messages wait until it has; one task of its own is enough, in the nursery of the incarnation."""

    async def start(host: Host) -> None:
        host.every(1, Put("tick"))
        host.after(2.5, Put("once"))
        await trio.sleep(3.2)

    host = Host(start=start)
    async with open_actor(host, name="host"):
        await settle()
        assert host.seen == ["tick", "once"]
        await trio.sleep(1)
        assert host.seen == ["tick", "once", "tick"]


async def test_a_start_that_fails_leaves_no_message_for_the_next_attempt(autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    attempts: list[Host] = []

    async def start(host: Host) -> None:
        attempts.append(host)
        if len(attempts) == 1:
            host.after(1, Put("of the first attempt"))
            await trio.sleep(2)
            raise Boom("no connection")

    async with open_supervisor(ChildSpec("child", lambda: Host(start=start, seen=seen)), strict=False) as supervisor:
        assert supervisor.child("child").statistics().queued == 0
        await trio.sleep(5)
        assert (len(attempts), seen) == (2, [])


async def test_a_timer_that_is_set_when_the_end_was_decided_has_no_effect(autojump_clock: MockClock) -> None:
    async def stop(host: Host) -> None:
        timer = host.every(1, Put("late"))
        await trio.sleep(3)
        timer.cancel()

    host = Host(stop=stop)
    async with open_actor(host, name="host") as ref:
        pass
    assert (host.seen, ref.statistics().queued) == ([], 0)
    host.after(0, Put("much later"))
    await settle()
    assert host.seen == []


async def test_a_running_timer_does_not_fire_during_the_clean_up(autojump_clock: MockClock) -> None:
    async def stop(host: Host) -> None:
        await trio.sleep(4)

    host = Host(stop=stop)
    async with open_actor(host, name="host") as ref:
        await in_handler(ref, lambda: host.every(1, Put("tick")))
        await trio.sleep(1.5)
    assert (host.seen, ref.statistics().queued) == (["tick"], 0)


async def test_a_timer_that_is_due_while_the_mailbox_is_closed_sends_nothing(autojump_clock: MockClock) -> None:
    """A supervisor that ends stops its children one after the other.

    If it is stopped itself meanwhile, it does not come back, and the mailboxes of children that still run are closed.
    """

    async def stop_slowly(_: Host) -> None:
        await trio.sleep(3)

    ticking = Host()
    slow = ChildSpec("slow", lambda: Host(stop=stop_slowly))
    inner = [ChildSpec("ticking", lambda: ticking), slow, ChildSpec("cause", Host)]
    async with (
        open_supervisor(ChildSpec("inner", lambda: Supervisor(*inner, max_restarts=0)), max_restarts=1) as outer,
        trio.open_nursery() as nursery,
    ):
        timer = await in_handler(outer.find("inner/ticking"), lambda: ticking.every(1, Put("tick")))
        with pytest.raises(Fatal):
            await outer.find("inner/cause").call(Do(raising(Fatal("broken"))))
        await trio.sleep(0.5)
        nursery.start_soon(outer.stop_child, "inner")
        await trio.sleep(2)
        assert (ticking.seen, timer.skipped) == ([], 0)


async def test_a_timer_outlives_a_cancellation_of_the_handler_that_has_set_it(autojump_clock: MockClock) -> None:
    host = Host()

    async def set_and_sleep() -> None:
        host.after(2, Put("timer"))
        await trio.sleep_forever()

    async with open_actor(host, name="host") as ref:
        with trio.move_on_after(1):
            await ref.call(Do(set_and_sleep))
        await trio.sleep(2)
        assert host.seen == ["timer"]


async def test_a_killed_actor_has_no_timers(autojump_clock: MockClock) -> None:
    async def hang(_: Host) -> None:
        await trio.sleep_forever()

    host = Host(stop=hang, shutdown=2.0)
    async with open_actor(host, name="host") as ref:
        await in_handler(ref, lambda: host.every(0.5, Put("tick")))
    assert host.seen == []


# --- context variables ------------------------------------------------------------------------------------------------


async def test_messages_of_timers_run_in_the_context_of_running(autojump_clock: MockClock) -> None:
    async def start(host: Host) -> None:
        tenant.set("of the actor")

    async def look() -> None:
        host.seen.append(tenant.get())
        if len(host.seen) < 3:
            tenant.set("of a message")
            host.after(1, Do(look))

    host = Host(start=start)
    async with open_actor(host, name="host") as ref:
        tenant.set("of the caller")
        await ref.call(Do(look))
        await trio.sleep(5)
        assert host.seen == ["of the caller", "of the actor", "of the actor"]


async def test_a_chain_of_timers_keeps_no_earlier_message_alive(autojump_clock: MockClock) -> None:
    host = Host()
    messages: list[weakref.ref[Message]] = []

    @frozen(eq=False, slots=False)
    class Again(Do[None]):
        pass

    async def again() -> None:
        message = Again(again)
        messages.append(weakref.ref(message))
        host.after(1, message)

    async with open_actor(host, name="host") as ref:
        await ref.call(Do(again))
        await trio.sleep(50.5)
        gc.collect()
        assert len(messages) == 51
        assert sum(each() is not None for each in messages) <= 2


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, True, "1", None])
async def test_after_refuses_what_is_not_a_delay(said: Said, seconds: Any) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        with pytest.raises(ValueError, match="actor 'host'") as refused:
            await in_handler(ref, lambda: host.after(seconds, Put(1)))
        number = isinstance(seconds, int | float) and seconds is not True
        row = "timer: wrong delay" if number else "timer: wrong delay of another kind"
        said(row, str(refused.value), seconds=repr(seconds))


@pytest.mark.parametrize("seconds", [0, 0.0001, -1, math.nan, math.inf, True, "1", None])
async def test_every_refuses_what_is_not_a_period(said: Said, seconds: Any) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        with pytest.raises(ValueError, match="actor 'host'") as refused:
            await in_handler(ref, lambda: host.every(seconds, Put(1)))
        number = isinstance(seconds, int | float) and seconds is not True
        row = "timer: wrong period" if number else "timer: wrong period of another kind"
        said(row, str(refused.value), seconds=f"not {seconds!r}")


async def test_what_is_not_a_message_is_refused_when_the_timer_is_set() -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        with pytest.raises(TypeError, match=r"'tick' is not a message; derive its class from Message"):
            await in_handler(ref, lambda: host.every(1, "tick"))


def test_an_actor_that_does_not_run_has_no_timers() -> None:
    with pytest.raises(RuntimeError, match="Host is not running"):
        Host().after(1, Put(1))


@pytest.mark.parametrize("taken", [True, False])
async def test_a_message_that_is_answered_later_keeps_its_slot_if_its_timer_is_canceled(
    autojump_clock: MockClock, taken: bool
) -> None:
    """Its handling has begun, and `Timer.cancel` does not interrupt that."""
    laters: list[Later[Any]] = []

    class Slow(Actor):
        def take(self, later: Later[Any]) -> bool:
            is_timed = taken and isinstance(later.message, Get)
            if is_timed:
                self.timer.cancel()
                laters.append(later)
            return is_timed

        async def handle(self, message: Get | Put) -> Any:
            if isinstance(message, Put):
                self.timer = self.every(1, Get(1))
                return None
            self.timer.cancel()
            laters.append(self.defer(message))
            return laters[0]

    events: list[Event] = []
    async with open_actor(Slow(), name="slow", observers=[events.append]) as ref:
        await ref.tell(Put(1))
        await trio.sleep(5)
        [later] = laters
        assert (later.open, ref.statistics().in_flight) == (True, 1)
        later.reply(None)
        assert (later.open, ref.statistics().in_flight) == (False, 0)
    finished = [(event.message, event.error) for event in events if isinstance(event, RequestFinished)]
    assert finished == [("Put", None), ("Get", None)]


async def test_a_timer_says_what_it_is(autojump_clock: MockClock) -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        once = await in_handler(ref, lambda: host.after(5, Put(1)))
        often = await in_handler(ref, lambda: host.every(0.5, Get(1)))
    assert repr(once) == "<Timer Put after 5 s>"
    assert repr(often) == "<Timer Get every 0.5 s, 0 skipped>"
    assert (often.seconds, often.message) == (0.5, Get(1))


async def expect(kind: type[BaseException], fn: Callable[..., Awaitable[object]], *args: object) -> None:
    with pytest.raises(kind):
        await fn(*args)
