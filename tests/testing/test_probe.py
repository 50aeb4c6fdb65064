"""A probe does what a test says, over all incarnations of its actor."""

from __future__ import annotations

import asyncio

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from mcp_actors import bridge
from mcp_actors.kernel import ActorStartError, Call, ChildSpec, Message, open_actor, open_supervisor
from mcp_actors.testing import Probe


@frozen
class Get(Call[int]):
    number: int


@frozen
class Note(Message):
    text: str


class Boom(Exception):
    pass


async def test_values_answer_in_order_and_the_last_one_from_then_on() -> None:
    probe = Probe()
    probe.reply(Get, 1, 2)
    async with open_actor(probe.actor(), name="probe") as ref:
        assert [await ref.call(Get(number)) for number in range(3)] == [1, 2, 2]
    assert probe.received == [Get(0), Get(1), Get(2)]


async def test_a_value_that_was_given_gives_way_to_what_is_planned_next() -> None:
    probe = Probe()
    async with open_actor(probe.actor(), name="probe") as ref:
        probe.reply(Get, 1)
        assert await ref.call(Get(0)) == 1
        probe.reply(Get, 2)
        assert [await ref.call(Get(1)), await ref.call(Get(2))] == [2, 2]
        probe.fail(Get, Boom())
        with pytest.raises(Boom):
            await ref.call(Get(3))
        probe.reply(Get, 3)
        probe.reply(Get, 4)
        assert [await ref.call(Get(4)), await ref.call(Get(5))] == [3, 4]


async def test_a_call_without_an_answer_fails_and_a_plain_message_needs_none() -> None:
    probe = Probe()
    async with open_actor(probe.actor(), name="probe") as ref:
        await ref.tell(Note("a"))
        with pytest.raises(LookupError, match=r"probe: no answer for Get; call reply\(Get, …\) or fail\(…\) before"):
            await ref.call(Get(0))
    assert probe.received == [Note("a"), Get(0)]


async def test_a_failure_is_for_one_message() -> None:
    probe = Probe()
    probe.fail(Get, Boom())
    probe.reply(Get, 7)
    async with open_actor(probe.actor(), name="probe") as ref:
        with pytest.raises(Boom):
            await ref.call(Get(0))
        assert await ref.call(Get(1)) == 7


async def test_a_crash_restarts_the_actor_and_the_probe_goes_on() -> None:
    probe = Probe()
    probe.fail(Get, Boom(), crash=True)
    probe.reply(Get, 7)
    async with open_supervisor(ChildSpec("x", probe.actor)) as supervisor:
        ref = supervisor.child("x")
        with pytest.raises(Boom):
            await ref.call(Get(0))
        assert await ref.call(Get(1)) == 7
    assert (probe.starts, probe.received) == (2, [Get(0), Get(1)])


async def test_a_start_fails_as_often_as_a_test_says() -> None:
    probe = Probe()
    probe.fail_start(Boom())
    with pytest.raises(ActorStartError):
        async with open_actor(probe.actor(), name="probe"):
            raise AssertionError("it started")
    async with open_actor(probe.actor(), name="probe"):
        assert probe.starts == 2


async def test_a_message_is_held_until_the_test_goes_on() -> None:
    probe = Probe()
    gate = probe.hold(Get, 7)
    async with open_actor(probe.actor(), name="probe") as ref, trio.open_nursery() as nursery:

        async def call() -> None:
            assert await ref.call(Get(0)) == 7

        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        assert ref.statistics().in_flight == 1
        gate.set()
    assert probe.received == [Get(0)]


async def test_a_test_waits_for_a_message_by_class_fields_and_number() -> None:
    probe = Probe(max_in_flight=2)
    probe.reply(Get, 0)
    async with open_actor(probe.actor(), name="probe") as ref:
        for message in (Get(1), Note("a"), Get(2)):
            await ref.tell(message)
        assert await probe.wait_for(Note) == Note("a")
        assert await probe.wait_for(Get, number=2) == Get(2)
        with trio.move_on_after(0) as scope:
            await probe.wait_for(Note, text="b")
        assert scope.cancelled_caught


def test_an_asyncio_test_waits_for_a_message_that_arrives_in_the_thread_of_trio() -> None:
    """In its debug mode, asyncio refuses to be called from there."""

    async def main() -> None:
        probe = Probe()
        probe.reply(Get, 7)
        async with bridge.open_supervisor(ChildSpec("probe", probe.actor)) as supervisor:
            waiting = asyncio.create_task(probe.wait_for(Get))
            await asyncio.sleep(0)
            assert await supervisor.child("probe").call(Get(0)) == 7
            assert await waiting == Get(0)

    asyncio.run(main(), debug=True)


def test_an_asyncio_test_lets_a_message_go_on_that_is_held_on_trio() -> None:
    async def main() -> None:
        probe = Probe()
        gate = probe.hold(Get, 7)
        async with bridge.open_supervisor(ChildSpec("probe", probe.actor)) as supervisor:
            call = asyncio.create_task(supervisor.child("probe").call(Get(0)))
            assert await probe.wait_for(Get) == Get(0)
            assert not gate.is_set()
            gate.set()
            assert await call == 7

    asyncio.run(main(), debug=True)
