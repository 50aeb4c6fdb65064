"""Slots that are not needed any more are closed: an idle actor costs no more than one that was never used."""

from __future__ import annotations

import gc
import weakref

import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import ChildSpec, open_actor, open_supervisor
from mcp_actors.kernel._requests import SWEEP_PERIOD, SWEEP_STEP, Sweeper

from .actors import Boom, Do, Gate, Get, Host


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def pass_time(clock: MockClock, seconds: float) -> None:
    clock.jump(seconds)
    await settle()


async def test_after_a_burst_one_slot_is_left_and_after_a_minute_none(mock_clock: MockClock) -> None:
    async with open_actor(Host(max_in_flight=10), name="host") as ref, trio.open_nursery() as nursery:
        await settle()
        before = tasks()
        gate = Gate()
        for _ in range(10):
            nursery.start_soon(ref.call, Do(gate))
        await settle()
        await pass_time(mock_clock, SWEEP_PERIOD)
        assert tasks() == before + 20  # callers and slots
        gate.open()
        await settle()
        assert tasks() == before + 10
        await pass_time(mock_clock, SWEEP_PERIOD)
        assert tasks() == before + 1
        await pass_time(mock_clock, SWEEP_PERIOD)
        assert tasks() == before
        assert await ref.call(Get(1)) == 1
        await settle()
        assert tasks() == before + 1


async def test_a_slot_in_use_is_kept(mock_clock: MockClock) -> None:
    async with open_actor(Host(), name="host") as ref:
        await settle()
        before = tasks()
        for number in range(5):
            assert await ref.call(Get(number)) == number
            await pass_time(mock_clock, SWEEP_PERIOD)
            assert tasks() == before + 1
        await pass_time(mock_clock, SWEEP_PERIOD)
        assert tasks() == before


async def test_no_deadline_wakes_a_tree_that_is_idle(mock_clock: MockClock) -> None:
    async with open_actor(Host(), name="host") as ref:
        await ref.call(Get(1))
        await settle()
        for _ in range(2):
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == SWEEP_PERIOD
            await pass_time(mock_clock, SWEEP_PERIOD)
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline > 1e6


async def test_an_incarnation_that_has_ended_is_not_kept_for_the_next_sweep(mock_clock: MockClock) -> None:
    hosts: list[weakref.ref[Host]] = []

    def make() -> Host:
        host = Host()
        hosts.append(weakref.ref(host))
        return host

    async with open_supervisor(ChildSpec("child", make)) as supervisor:
        ref = supervisor.child("child")
        await ref.call(Get(1))
        first = hosts[0]()
        assert first is not None
        first.fail(Boom())
        del first
        await settle()
        assert await ref.call(Get(2)) == 2
        gc.collect()
        assert [each() is None for each in hosts] == [True, False]


async def test_one_sweeper_serves_a_tree_also_across_restarts(mock_clock: MockClock) -> None:
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host())
        return hosts[-1]

    number = SWEEP_STEP + 5
    specs = [ChildSpec(f"child-{index}", make) for index in range(number)]
    async with open_supervisor(*specs, max_restarts=10) as supervisor:
        refs = [supervisor.child(spec.id) for spec in specs]
        await settle()
        before = tasks()
        for ref in refs:
            await ref.call(Get(1))
        await settle()
        assert tasks() == before + number
        hosts[0].fail(Boom())
        await settle()
        assert await refs[0].call(Get(2)) == 2
        await settle()
        for left in (number, 0):
            await pass_time(mock_clock, SWEEP_PERIOD)
            assert tasks() == before + left


async def test_checks_of_actors_that_have_ended_are_not_kept_until_they_are_due() -> None:
    class Patient(Host):
        slow_after = 9e9

    async with open_supervisor(ChildSpec("lasts", Patient)) as top, trio.open_nursery() as nursery:
        nursery.start_soon(top.child("lasts").call, Do(trio.sleep_forever))
        await settle()
        for _ in range(2 * SWEEP_STEP):
            ref = await top.start_child(ChildSpec("ends", Patient, restart="temporary"))
            assert await ref.call(Get(1)) == 1
            await top.stop_child("ends")
        sweeper = top._record.sweeper
        assert isinstance(sweeper, Sweeper)
        assert len(sweeper._heap) <= SWEEP_STEP + 9
        nursery.cancel_scope.cancel("nothing is left to do")
