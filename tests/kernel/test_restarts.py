"""K4: what was not handed over survives a restart in its old place."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorCrashed, ActorError, ActorRef, ActorStopped, Event, NotSent, StopActor, open_actor
from mcp_actors.kernel._serving import NOT_SENT_PATIENCE

from ..messages import Said
from .actors import Boom, Do, DoNow, Fatal, Gate, Get, Host, Put, hook, of, open_child, raising


async def call_each(ref: ActorRef, *numbers: int) -> list[int]:
    """Send them in this order, and wait for all answers."""
    answers: list[int] = []

    async def call(number: int) -> None:
        answers.append(await ref.call(Get(number)))

    async with trio.open_nursery() as nursery:
        for number in numbers:
            nursery.start_soon(call, number)
            await settle()
    return answers


@pytest.mark.parametrize("warm", [False, True])
async def test_messages_that_were_taken_but_not_begun_go_back_to_their_place(warm: bool) -> None:
    """K4: the end is decided in the step that took them, before their tasks have made a step."""
    seen: list[object] = []
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host(max_in_flight=3, seen=seen))
        return hosts[-1]

    async with open_child(make) as supervisor:
        ref = supervisor.child("child")
        if warm:
            await call_each(ref, -1, -2, -3)
            seen.clear()
        for number in range(5):
            ref.tell_nowait(Put(number))  # three are taken, two are queued
        assert ref.statistics().queued == 2
        hosts[0].fail(Boom())
        ref.tell_nowait(Put(5))
        assert ref.state == "backoff"
        assert ref.statistics().queued == 3
        await ref.wait_state("running")
        assert await ref.call(Get(6)) == 6
        await settle()
        assert ref.statistics().incarnation == 2
    # Three at a time: in which order the first three act is not promised.
    assert sorted(map(str, seen)) == list("0123456")
    assert seen[0] in (0, 1, 2)


async def test_order_survives_a_restart() -> None:
    """K4: at max_in_flight=1, messages are handled in the order sent; one was taken, and goes back to the front."""
    seen: list[object] = []
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host(seen=seen))
        return hosts[-1]

    async with open_child(make) as supervisor:
        ref = supervisor.child("child")
        for number in range(20):
            ref.tell_nowait(Put(number))
            if number == 10:
                hosts[0].fail(Boom())
        await ref.wait_state("running")
        assert await ref.call(Get(20)) == 20
    assert seen == list(range(21))


async def test_a_call_waits_out_a_restart() -> None:
    gate = Gate()
    async with open_child() as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")

        async def crash() -> None:
            with pytest.raises(Fatal):
                await ref.call(Do(fall))

        async def fall() -> None:
            await gate()
            raise Fatal

        nursery.start_soon(crash)
        await settle()
        nursery.start_soon(gate_later, gate)
        assert await call_each(ref, 1, 2, 3) == [1, 2, 3]
        assert ref.statistics().incarnation == 2


async def gate_later(gate: Gate) -> None:
    for _ in range(10):
        await settle()
    gate.open()


async def test_a_message_that_was_handed_over_is_not_served_again() -> None:
    """K4: its caller's error says that its effect is unknown, also when a restart follows a normal end."""
    gate, host_calls = Gate(), 0
    async with open_child(lambda: Host(max_in_flight=2)) as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")

        async def call() -> None:
            nonlocal host_calls
            with pytest.raises(ActorCrashed, match=r"ended \(normal\) while it handled Do") as caught:
                await ref.call(Do(gate))
            assert caught.value.__cause__ is None
            host_calls += 1

        nursery.start_soon(call)
        await settle()
        with pytest.raises(ActorCrashed):
            await ref.call(Do(raising(StopActor())))
        await ref.wait_state("running")
        await settle()
        assert (gate.entered, gate.left, host_calls) == (1, 1, 1)


async def test_not_sent_returns_a_message_to_its_old_place() -> None:
    """K4: the next incarnation serves it before what came later."""
    seen: list[object] = []
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host(seen=seen))
        return hosts[-1]

    async def second_time_lucky() -> str:
        seen.append("attempt")
        await settle()
        if len(hosts) == 1:
            hosts[0].fail(Boom())
            raise NotSent
        return "sent"

    async def check_sent() -> None:
        assert await ref.call(Do(second_time_lucky)) == "sent"

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")
        nursery.start_soon(call_each, ref, 1)
        nursery.start_soon(check_sent)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(call_each, ref, 2)
    assert seen in ([1, "attempt", "attempt", 2], ["attempt", "attempt", 1, 2])


@pytest.mark.parametrize("message", [Do, DoNow])
@pytest.mark.parametrize("answered", [False, True])
async def test_not_sent_without_an_end_of_the_incarnation_is_an_error(
    message: type[Do[None]], answered: bool, autojump_clock: trio.abc.Clock, said: Said
) -> None:
    """B-36: it would be handled again and again; the next message is served."""
    attempts = 0
    events: list[Event] = []

    async def never_sent() -> None:
        nonlocal attempts
        attempts += 1
        await trio.lowlevel.checkpoint()
        if attempts > 50:
            pytest.fail("it goes round")
        raise NotSent

    async with open_actor(Host(), name="host", observers=[events.append]) as ref:
        if answered:
            with pytest.raises(ActorError) as caught:
                await ref.call(message(never_sent))
            assert type(caught.value) is ActorError
            said("NotSent without an end", str(caught.value), message=message.__name__)
        else:
            await ref.tell(message(never_sent))
            await trio.sleep(NOT_SENT_PATIENCE)
        assert await ref.call(Get(1)) == 1
        assert ref.statistics().queued == 0
        assert trio.current_time() == NOT_SENT_PATIENCE
    assert attempts == 1
    assert of(events).count("Unhandled") == (0 if answered else 1)


async def test_not_sent_just_before_another_task_ends_the_incarnation_is_in_time(
    autojump_clock: trio.abc.Clock,
) -> None:
    """K4: who reads from a connection may notice a little later than who writes to it."""
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host(max_in_flight=3))
        return hosts[-1]

    async def send() -> int:
        if len(hosts) == 1:
            raise NotSent
        return len(hosts)

    async def check_sent() -> None:
        assert await ref.call(Do(send)) == 2

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")
        for _ in range(3):
            nursery.start_soon(check_sent)
        with trio.move_on_after(0.1):
            await ref.call(Do(send))
        await trio.sleep(0.1)
        assert ref.statistics().in_flight == 0
        hosts[0].fail(Boom())


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("answered", [False, True])
async def test_fail_and_not_sent_together_leave_the_message_to_the_next_incarnation(
    wrapped: bool, answered: bool
) -> None:
    """K4: this is how a handler that finds its connection gone loses nothing."""
    hosts: list[Host] = []
    seen: list[object] = []

    def make() -> Host:
        hosts.append(Host(max_in_flight=2, seen=seen))
        return hosts[-1]

    async def send() -> str:
        if len(hosts) == 1:
            hosts[0].fail(Boom("connection lost"))
            if wrapped:
                async with trio.open_nursery():
                    raise NotSent
            raise NotSent
        seen.append("sent")
        return "sent"

    async with open_child(make) as supervisor:
        ref = supervisor.child("child")
        if answered:
            assert await ref.call(Do(send)) == "sent"
        else:
            await ref.tell(Do(send))
            assert await ref.call(Get(1)) == 1
        assert ref.statistics().incarnation == 2
    assert "sent" in seen


async def test_not_sent_after_the_end_was_decided_by_another_is_too_late_for_a_call() -> None:
    """K1: its caller was answered in that step already. A tell, which has no caller, is served again."""
    hosts: list[Host] = []
    begun: list[str] = []

    def make() -> Host:
        hosts.append(Host(max_in_flight=3))
        return hosts[-1]

    async def send(name: str) -> None:
        begun.append(name)
        if len(hosts) == 1:
            try:
                await trio.sleep_forever()
            finally:
                raise NotSent

    async def send_call() -> None:
        await send("call")

    async def send_tell() -> None:
        await send("tell")

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")

        async def call() -> None:
            with pytest.raises(ActorCrashed):
                await ref.call(Do(send_call))

        nursery.start_soon(call)
        await settle()
        await ref.tell(Do(send_tell))
        await settle()
        hosts[0].fail(Boom())
        await ref.wait_state("running")
        await settle()
    assert begun == ["call", "tell", "tell"]


async def test_not_sent_for_a_caller_that_has_left_is_dropped() -> None:
    attempts = 0

    async def never_sent() -> None:
        nonlocal attempts
        attempts += 1
        try:
            await trio.sleep_forever()
        finally:
            raise NotSent

    async with open_actor(Host(), name="host") as ref:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.call, Do(never_sent))
                await settle()
                scope.cancel("it gives up")
        await settle()
        assert ref.statistics().queued == 0
    assert attempts == 1


@pytest.mark.parametrize("answered", [False, True])
async def test_not_sent_by_an_actor_that_does_not_come_back_is_refused(answered: bool) -> None:
    """K1: there is no old place to return to."""
    events: list[Event] = []
    host = Host()

    async def stop_unsent() -> None:
        host.stop()
        raise NotSent

    async with open_actor(host, name="host", observers=[events.append]) as ref:
        if answered:
            with pytest.raises(ActorStopped):
                await ref.call(Do(stop_unsent))
        else:
            await ref.tell(Do(stop_unsent))
        await ref.wait_stopped()
    assert of(events).count("DeadLetter") == (0 if answered else 1)


async def test_taken_messages_are_answered_when_nothing_comes_back() -> None:
    """K1: they were taken in the step in which the end was decided."""
    host = Host(max_in_flight=2)
    events: list[Event] = []
    async with open_actor(host, name="host", observers=[events.append]) as ref:
        for number in range(3):
            ref.tell_nowait(Put(number))
        host.stop()
        with pytest.raises(ActorStopped):
            ref.tell_nowait(Put(3))
    assert host.seen == []
    assert of(events).count("DeadLetter") == 3


async def test_a_message_sent_between_two_incarnations_waits_in_its_lane() -> None:
    """The control lane needs no room in the queue, and is emptied first."""
    seen: list[object] = []
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host(seen=seen, start=hook(trio.lowlevel.checkpoint)))
        return hosts[-1]

    async def note() -> None:
        seen.append("control")

    async with open_child(make, mailbox_size=3) as supervisor:
        ref = supervisor.child("child")
        hosts[0].fail(Boom())
        ref.tell_nowait(Put("queued"))
        for _ in range(3):
            ref.tell_nowait(DoNow(note))
        assert ref.statistics().queued == 4
        await ref.wait_state("running")
        assert await ref.call(Get(1)) == 1
    assert seen.count("control") == 3


async def test_a_call_in_the_control_lane_is_withdrawn_like_any_other() -> None:
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host(start=hook(trio.sleep_forever) if hosts else None))
        return hosts[-1]

    gate = Gate()
    async with open_child(make) as supervisor:
        ref = supervisor.child("child")
        hosts[0].fail(Boom())
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.call, DoNow(gate))
                await settle()
                assert ref.statistics().queued == 1
                scope.cancel("it gives up")
        assert ref.statistics().queued == 0
    assert gate.entered == 0


@pytest.mark.parametrize("begun", [False, True])
async def test_a_message_that_went_back_is_withdrawn_like_any_other(begun: bool) -> None:
    """K3, K4: it was taken once, and waits again when its caller leaves; it takes up no room any more."""
    hosts: list[Host] = []
    served: list[str] = []

    def make() -> Host:
        hosts.append(Host(start=hook(trio.sleep_forever) if hosts else None))
        return hosts[-1]

    async def send() -> None:
        served.append("begun")
        hosts[0].fail(Boom())
        raise NotSent

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")
        await ref.call(Get(1))
        with trio.CancelScope() as scope:
            if not begun:
                # In the same tick as the call: it is taken and has made no step yet, or it is queued.
                nursery.start_soon(fail_at_once, hosts[0])
            async with trio.open_nursery() as callers:
                callers.start_soon(ref.call, Do(send))
                await settle()
                assert ref.statistics().queued == 1
                scope.cancel("it gives up")
        assert ref.statistics().queued == 0
    assert len(hosts) == 2


async def fail_at_once(host: Host) -> None:
    host.fail(Boom())
