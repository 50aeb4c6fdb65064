"""Small runs of the benchmarks of the kernel; the figures themselves are for ``nox -s bench``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec

import pytest
import trio
from trio.testing import MockClock

from mcp_actors.kernel import open_actor

from . import depth, hops, kernel, lifecycle, measuring, memory, ticks
from .actors import Ask, Relay
from .figures import Figure
from .programs import EXPECTED, NODES, erlang


@pytest.mark.parametrize(("power", "seconds"), [(1, [2.0, 20.0, 200.0]), (2, [2.0, 200.0, 20_000.0]), (0, [2.0] * 3)])
def test_the_growth_exponent_is_the_power_of_the_number(power: int, seconds: list[float]) -> None:
    assert lifecycle.exponent([10, 100, 1000], seconds) == pytest.approx(power)


@pytest.mark.parametrize("name", hops.PEERS)
async def test_every_peer_handles_every_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "pykka" and find_spec("pykka") is None:
        pytest.skip("needs pykka: install the extra 'bench'")
    handled: list[object] = []

    class Recorded(Ask):
        def __getattribute__(self, attribute: str) -> object:
            found = super().__getattribute__(attribute)
            if attribute == "number":
                handled.append(found)
            return found

    monkeypatch.setattr(hops, "Ask", Recorded)
    async with hops.PEERS[name]() as peer:
        for messages, expected in (
            (partial(peer.call, 1, 4), [0, 1, 2, 3]),
            (partial(peer.call, 2, 4), [0, 0, 1, 1]),
            (partial(peer.send, 3), [0, 1, 2, 3]),
        ):
            handled.clear()
            await messages()
            assert sorted(handled) == expected  # type: ignore[type-var]  # they are numbers


def test_a_ratio_compares_an_actor_with_each_peer() -> None:
    figures = hops.against("a call", {"an actor": [4.0, 6.0, 8.0], "pykka": [8.0, 3.0, 4.0]}, 2)
    assert figures == [Figure("a call", 3e6, "µs"), Figure("a call, to pykka", 2.0, "")]


async def test_a_message_that_is_taken_without_a_task_is_answered_by_another() -> None:
    async with open_actor(Relay(), name="relay") as relay:
        assert await relay.call(Ask(7)) == 7


async def test_one_way_messages_to_a_plain_handler_are_compared_with_a_channel() -> None:
    (cost, ratio) = await hops.tells(32)
    assert cost.value > 0
    assert ratio.bound == 1.3


async def test_a_full_mailbox_is_worked_off() -> None:
    await hops.work_off(300)


async def test_each_stage_of_a_life_takes_time() -> None:
    assert len(await lifecycle.live(3)) == len(lifecycle.STAGES)
    assert len(await depth.live(3)) == len(depth.STAGES)


SMALLEST = dict.fromkeys(EXPECTED, 2 * NODES) | {"queens": 4, "short lives": 3, "radix sort": 20}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_peer_does_all_of_the_work_of_a_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erlang, "installed", lambda: False)
    size = SMALLEST[name]
    figures = kernel.compare(1, {name: size})
    found = {figure.name.removeprefix(f"{name}, ") for figure in figures}
    assert {str(size), "to Trio", "to asyncio"} <= found
    assert ("to Pykka" in found) == (find_spec("pykka") is not None)


@pytest.mark.skipif(not erlang.installed(), reason="needs Erlang: install erlang-base")
def test_erlang_does_all_of_the_work_of_every_program() -> None:
    assert erlang.seconds(SMALLEST, times=1).keys() == EXPECTED.keys()


def test_work_that_was_not_done_is_an_error() -> None:
    with pytest.raises(ValueError, match="returned 3 for the size 4, not 4"):
        kernel.run_and_check("ring", lambda _: 3, 4)


async def test_children_are_compared_with_tasks_that_have_the_same_parts() -> None:
    *_, both = await kernel.births(1, 2)
    assert both.bound == 2.2
    for kind in ("actors", "by hand"):
        assert isinstance(await kernel.weigh(kind, 2), float)
    for collects in (True, False):
        assert len(await kernel.storm(3, collects)) == 2


async def test_actors_are_weighed_a_minute_later(mock_clock: MockClock) -> None:
    before = trio.current_time()
    assert len(await memory.weigh(2, mock_clock, measuring.rss)) == 3
    assert trio.current_time() > before + 60


@pytest.mark.parametrize("measure", [ticks.measure_ours, ticks.measure_tasks])
async def test_a_tick_is_one_message_of_each_timer(
    measure: Callable[[MockClock], Awaitable[float]], mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticks, "TIMERS", 5)
    before = trio.current_time()
    assert await measure(mock_clock) > 0
    assert trio.current_time() == before + 2 * ticks.PERIOD
