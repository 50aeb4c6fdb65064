"""Calls that are sent first and awaited later, and that another task may end."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorRef, ActorStopped, PendingCall, open_actor

from .actors import Boom, Do, Gate, Get, Host, open_child


async def collect(call: PendingCall[object], into: list[object]) -> None:
    try:
        into.append(await call.wait())
    except Exception as exc:
        into.append(exc)


async def test_a_request_is_served_at_once_and_awaited_later() -> None:
    async with open_actor(Host(), name="host") as ref:
        calls = [ref.send_request(Get(number)) for number in range(3)]
        await settle()
        assert ref.statistics().queued == 0
        assert [await call.wait() for call in calls] == [0, 1, 2]


async def test_an_answer_that_has_arrived_is_returned_even_if_the_caller_is_cancelled() -> None:
    async with open_actor(Host(), name="host") as ref:
        call = ref.send_request(Get(1))
        await settle()
        with trio.CancelScope() as scope:
            scope.cancel()
            assert await call.wait() == 1
        assert not scope.cancelled_caught


async def test_a_call_that_expires_in_the_mailbox_is_never_served() -> None:
    host, gate, late = Host(), Gate(), Boom("too late")
    async with open_actor(host, name="host") as ref:
        first = ref.send_request(Do(gate))
        call = ref.send_request(Get(1))
        await settle()
        assert (first.handed_over, call.handed_over) == (True, False)
        assert call.expire(late)
        assert ref.statistics().queued == 0
        gate.open()
        assert await first.wait() == "through"
        with pytest.raises(Boom) as caught:
            await call.wait()
        await settle()
    assert caught.value is late
    assert host.seen == []


async def test_the_handler_of_a_call_that_expires_is_cancelled_and_its_slot_serves_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate, late = Gate(), Boom("too late")
    answers: list[object] = []
    async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:
        call = ref.send_request(Do(gate))
        nursery.start_soon(collect, call, answers)
        await settle()
        assert call.expire(late)
        await settle()
        assert answers == [late]
        assert (gate.entered, gate.left) == (1, 1)
        assert await ref.call(Get(1)) == 1
        assert not call.expire(Boom("once more"))
    assert caplog.records == []


async def test_an_expired_call_does_not_wait_for_its_handler_to_unwind(autojump_clock: trio.abc.Clock) -> None:
    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    answers: list[object] = []
    async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:
        call = ref.send_request(Do(stubborn))
        nursery.start_soon(collect, call, answers)
        await settle()
        call.expire(Boom("too late"))
        await settle()
        assert len(answers) == 1
        assert ref.statistics().in_flight == 1
        assert trio.current_time() < 1


async def test_a_call_that_was_answered_does_not_expire() -> None:
    async with open_actor(Host(), name="host") as ref:
        call = ref.send_request(Get(1))
        await settle()
        assert not call.expire(Boom("too late"))
        assert await call.wait() == 1


async def test_a_call_expires_while_its_actor_is_down_too(autojump_clock: trio.abc.Clock) -> None:
    async with open_child() as supervisor:
        await supervisor.stop_child("child", keep_mailbox=True)
        call = supervisor.child("child").send_request(Get(1))
        assert call.expire(Boom("too late"))
        with pytest.raises(Boom):
            await call.wait()
        await supervisor.restart_child("child")
        assert await supervisor.child("child").call(Get(2)) == 2


async def test_a_stopped_actor_refuses_messages() -> None:
    async with open_actor(Host(), name="host") as ref:
        pass
    with pytest.raises(ActorStopped):
        ref.send_request(Get(1))


async def test_an_actor_may_not_wait_for_itself() -> None:
    async def call_oneself(ref: ActorRef) -> None:
        ref.send_request(Get(1))

    async with open_actor(Host(), name="host") as ref:
        with pytest.raises(Exception, match="called itself while handling Do"):
            await ref.call(Do(lambda: call_oneself(ref)))


async def test_on_answer_calls_its_function_before_and_after_the_answer() -> None:
    gate = Gate()
    answers: list[object] = []
    async with open_actor(Host(), name="host") as ref:
        call = ref.send_request(Do(gate))
        call.on_answer(lambda answer: answers.append(answer.unwrap()))
        await settle()
        assert answers == []
        gate.open()
        await settle()
        assert answers == ["through"]
        later = ref.send_request(Get(1))
        await settle()
        later.on_answer(lambda answer: answers.append(answer.unwrap()))
    assert answers == ["through", 1]


async def test_a_call_that_is_withdrawn_is_cancelled_and_its_function_never_called() -> None:
    host, gate = Host(), Gate()
    answers: list[object] = []
    async with open_actor(host, name="host") as ref:
        calls = [ref.send_request(Do(gate)), ref.send_request(Get(1))]
        for call in calls:
            call.on_answer(answers.append)
        await settle()
        for call in (*calls, *calls):
            call.withdraw()
        await settle()
        assert (gate.entered, gate.left) == (1, 1)
        assert ref.statistics().queued == 0
    assert answers == []
    assert host.seen == []
