"""Limits of a whole group: on its servers, on those that connect at a time, and on processes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ConfigError, ConnectFailed, ServerConfig, ServerError, open_servers

from ...kernel.actors import leaving
from ...messages import Said
from ..groups import AT_ONCE, LATER, Events, overtaken, reach, server
from ..houses import House, absent, who


async def test_too_many_servers_are_refused_before_any_is_started(said: Said) -> None:
    """S2-44: with the limit, its value, and a remedy."""
    events = Events()
    configs = [House(name).config() for name in "abc"]
    with pytest.raises(ConfigError) as caught:
        async with open_servers(*configs, max_servers=2, observers=[events]):
            raise AssertionError("not reached")
    said("too many servers", str(caught.value))
    assert not events


async def test_a_disabled_server_does_not_count() -> None:
    async with open_servers(House("a").config(), House("b").config(enabled=False), max_servers=1) as group:
        assert [*group] == ["a"]


async def test_a_group_does_not_grow_beyond_its_limit() -> None:
    """S2-44: neither by one server nor by a reload, which changes nothing then."""
    a, b, c = (House(name).config() for name in "abc")
    async with open_servers(a, b, max_servers=2) as group:
        with pytest.raises(ConfigError, match="max_servers=2"):
            await group.add(c)
        with pytest.raises(ConfigError, match="max_servers=2"):
            await group.reload(b, a, c)
        assert [*group] == ["a", "b"]
        await group.reload(b, c)
        assert [*group] == ["b", "c"]
        assert group["b"].statistics().incarnation == 1


async def test_each_replica_counts() -> None:
    """S2-44: also at a reload that changes only the number of replicas."""

    def config(name: str, replicas: int) -> ServerConfig:
        return absent(name, connect="lazy", replicas=replicas)

    with pytest.raises(ConfigError, match="4 servers are too many"):
        async with open_servers(config("a", 3), config("b", 1), max_servers=3):
            raise AssertionError("not reached")
    async with open_servers(config("a", 2), max_servers=3) as group:
        with pytest.raises(ConfigError, match="4 servers are too many"):
            await group.add(config("b", 2))
        with pytest.raises(ConfigError, match="4 servers are too many"):
            await group.reload(config("a", 4))
        await group.reload(config("a", 3))
        assert group["a"].statistics().replicas.total == 3


async def test_servers_connect_in_turns_and_in_order(autojump_clock: MockClock) -> None:
    """S1-04: one after the other, if that is asked for."""
    houses = [House(name) for name in "abc"]
    for house in houses:
        house.entered = trio.Event()
    async with trio.open_nursery() as nursery:

        async def admit() -> None:
            for number, house in enumerate(houses, start=1):
                await trio.sleep(1)
                assert [started(each) for each in houses] == [True] * number + [False] * (3 - number)
                house.entered.set()

        def started(house: House) -> bool:
            return house.starts == 1

        nursery.start_soon(admit)
        async with open_servers(*(house.config() for house in houses), max_starting=1) as group:
            assert len(group.active) == 3
            assert trio.current_time() == pytest.approx(3.0)


async def test_a_turn_ends_with_a_connect_that_fails(autojump_clock: MockClock) -> None:
    a, b = House("a"), House("b")
    a.entered = trio.Event()
    async with open_servers(
        a.config(connect_timeout=3, restarts=LATER), b.config(connect_timeout=30), max_starting=1
    ) as group:
        assert trio.current_time() == pytest.approx(3.0)
        assert [ref.name for ref in group.active] == ["b"]


async def test_a_server_that_is_stopped_leaves_the_queue(autojump_clock: MockClock) -> None:
    a, b, c = houses = [House(name) for name in "abc"]
    a.entered = trio.Event()
    configs = [house.config(connect="lazy") for house in houses]
    async with open_servers(*configs, max_starting=1) as group, trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(who, group, name) if name != "b" else nursery.start_soon(overtaken, group["b"].start)
            await wait_all_tasks_blocked()
        await group["b"].stop()
        a.entered.set()
    assert [house.starts for house in (a, b, c)] == [1, 0, 1]


async def test_a_block_does_not_wait_for_a_turn_longer_than_for_a_connect(
    autojump_clock: MockClock, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    """B-01: `connect_timeout` is what anybody waits for an optional server, whatever it waits for."""
    a, b = House("a"), House("b")
    a.entered = trio.Event()
    async with open_servers(
        a.config(connect_timeout=50), b.config(connect_timeout=10), max_starting=1, strict=False
    ) as group:
        assert trio.current_time() == pytest.approx(50.0)
        assert await who(group, "b") == "b"
    [text] = [message for message in caplog.messages if "turn" in message]
    said("a turn is awaited", text)


async def test_servers_that_wait_for_their_turn_are_one_line_with_their_number(
    autojump_clock: MockClock, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    """And one more when servers have to wait again, after none did."""
    houses = [House(name) for name in "abcd"]
    configs = [house.config(connect_timeout=50, connect="lazy", restarts=LATER) for house in houses]
    configs[1] = houses[1].config(connect_timeout=20, connect="lazy")
    async with open_servers(*configs, max_starting=1) as group:

        async def start(name: str) -> None:
            with suppress(ServerError):  # "a" has failed, and "b" is late
                await group[name].start()

        for _ in range(2):
            houses[0].entered = trio.Event()
            async with trio.open_nursery() as nursery:
                for name in "abcd":
                    nursery.start_soon(start, name)
            for name in "bcd":
                await reach(group, name, "ready")
            [text] = [message for message in caplog.messages if "turn" in message]
            said("turns are awaited", text)
            caplog.clear()
            for name in "abcd":
                await group[name].stop()


async def test_a_slow_process_keeps_no_turn() -> None:
    """A package that is downloaded for minutes delays the others by `connect_timeout` at most."""
    slow = server("slow", "--never-answer", connect_timeout=0.3, startup_timeout=600.0)
    async with open_servers(slow, server("b"), max_starting=1) as group:
        await reach(group, "b", "ready")
        assert group["slow"].state == "connecting"


async def test_too_many_processes_are_refused_and_retried(said: Said) -> None:
    """S2-44: a server in this process does not count, nor one that has ended."""
    configs = [server(name, restarts=AT_ONCE, connect="lazy") for name in "ab"]
    async with open_servers(*configs, House("c").config(), max_processes=1) as group:
        await group["a"].start()
        await group["b"].start()
        error = group.errors["b"]
        assert isinstance(error, ConnectFailed)
        said("too many processes", str(error))
        await group["a"].stop()
        await group["b"].restart()
        assert group["b"].state == "ready"


@pytest.mark.parametrize("option", ["max_servers", "max_starting", "max_processes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "10"])
async def test_a_limit_that_is_not_a_number_is_refused(option: str, value: Any, said: Said) -> None:
    with leaving(ConfigError) as caught:
        async with open_servers(House("a").config(), **{option: value}):
            raise AssertionError("not reached")
    said("a limit is not a number", str(caught.value), option=option, value=repr(value))
