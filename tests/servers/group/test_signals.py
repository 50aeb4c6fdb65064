"""A signal ends the block and the program, or reloads the configuration. Against servers in this process."""

from __future__ import annotations

import json
import logging
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ConfigError, LoadedConfig, ServerRef, ServerUnavailable, open_servers
from mcp_actors.servers import Drained

from ...kernel.actors import leaving
from ...messages import Said
from ..fleet import Outcome
from ..groups import BOUND, Events, after
from ..houses import House
from ..processes import eventually
from ..sources.written import Written

TERMINATED = 128 + signal.SIGTERM


async def hold_for_ever(ref: ServerRef, answers: list[str]) -> None:
    """Work as a program does that never heard of drains."""
    while True:
        await ref.call_tool("hold")
        answers.append("done")


async def test_a_signal_finishes_all_requests_and_ends_the_program(autojump_clock: MockClock) -> None:
    """S2-40: no worker is disturbed by the others, which are about to send more; the exit code is that of a shell."""
    house, events, answers = House("a"), Events(), list[str]()
    with leaving(SystemExit) as caught:
        async with (
            open_servers(house.config(max_in_flight=2), stop_on=signal.SIGTERM, observers=[events]) as group,
            trio.open_nursery() as nursery,
        ):
            for _ in range(3):
                nursery.start_soon(hold_for_ever, group["a"], answers)
            await wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGTERM)
            await wait_all_tasks_blocked()
            assert group["a"].state == "stopping"
            nursery.start_soon(hold_for_ever, group["a"], answers)
            await trio.sleep(10)
            house.let_go.set()
            await trio.sleep(1)
            raise AssertionError("the block was not cancelled")
    assert caught.value.code == TERMINATED
    assert (answers, house.held) == (["done"] * 3, 3)
    assert trio.current_time() == pytest.approx(10.0)
    assert [event.unfinished for event in events.of(Drained)] == [0]


async def test_a_second_signal_does_not_wait(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """S2-40: nor does it leave a server behind. The log says of each signal what follows."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    house, answers = House("a"), list[str]()
    with leaving(SystemExit) as caught:
        async with (
            open_servers(house.config(), stop_on=[signal.SIGTERM, signal.SIGUSR1]) as group,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(hold_for_ever, group["a"], answers)
            await wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep(2)
            signal.raise_signal(signal.SIGUSR1)
            await trio.sleep_forever()
    assert caught.value.code == TERMINATED
    assert trio.current_time() == pytest.approx(2.0)
    assert group["a"].state == "stopped"
    assert [each for each in caplog.messages if each.startswith("received")] == [
        "received SIGTERM; finishing requests for at most 30 s, then stopping all servers",
        "received SIGUSR1 again; stopping without waiting for requests",
    ]


async def test_a_signal_without_requests_cancels_the_block_at_once(autojump_clock: MockClock) -> None:
    with leaving(SystemExit):
        async with open_servers(House("a").config(), stop_on=signal.SIGTERM):
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()
    assert trio.current_time() == 0


async def test_a_signal_ends_the_start_of_a_group() -> None:
    """S2-40: of a server that would not have answered for a minute."""

    async def send() -> None:
        await wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGTERM)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        with leaving(SystemExit):
            async with open_servers(after("a", "sleep 60", stop_timeout=0.1), stop_on=signal.SIGTERM):
                raise AssertionError("not reached")


async def test_a_block_that_ends_by_itself_waits_for_the_same_requests(autojump_clock: MockClock) -> None:
    """The wait that the signal has begun is not made a second time, and not skipped."""
    house, call = House("a"), Outcome()
    async with trio.open_nursery() as nursery:
        with leaving(SystemExit):
            async with open_servers(house.config(), stop_on=signal.SIGTERM) as group:
                nursery.start_soon(call.of, group["a"].call_tool, "hold")
                await wait_all_tasks_blocked()
                signal.raise_signal(signal.SIGTERM)
                await trio.sleep(1)
                nursery.start_soon(_set_later, house.let_go)
        assert trio.current_time() == pytest.approx(6.0)
    assert call.error is None


async def _set_later(event: trio.Event) -> None:
    await trio.sleep(5)
    event.set()


async def test_a_task_outside_the_block_is_refused_once_the_servers_have_stopped(autojump_clock: MockClock) -> None:
    house, held, late = House("a"), Outcome(), Outcome()
    async with trio.open_nursery() as nursery:
        with leaving(SystemExit):
            async with open_servers(house.config(), stop_on=signal.SIGTERM, drain_timeout=3) as group:
                nursery.start_soon(held.of, group["a"].call_tool, "hold")
                await wait_all_tasks_blocked()
                signal.raise_signal(signal.SIGTERM)
                await wait_all_tasks_blocked()
                nursery.start_soon(late.of, group["a"].call_tool, "who")
                await trio.sleep_forever()
    assert held.at == late.at == pytest.approx(3.0)
    assert isinstance(late.error, ServerUnavailable)
    assert isinstance(held.error, ServerUnavailable)
    assert (late.error.outcome, held.error.outcome) == ("not_sent", "unknown")


async def test_an_error_of_the_block_leaves_as_itself(autojump_clock: MockClock) -> None:
    error = KeyError("of the block")
    with leaving(KeyError) as caught:
        async with open_servers(House("a").config(), stop_on=signal.SIGTERM):
            try:
                signal.raise_signal(signal.SIGTERM)
                await trio.sleep_forever()
            finally:
                raise error
    assert caught.value is error


@pytest.mark.parametrize("option", ["stop_on", "reload_on"])
@pytest.mark.parametrize("value", [0, "SIGTERM", signal.SIGKILL, [signal.SIGTERM, 1000], None])
async def test_what_is_not_a_signal_is_refused(option: str, value: Any, said: Said) -> None:
    with pytest.raises(ConfigError) as caught:
        async with open_servers(House("a").config(), **{option: value}):
            raise AssertionError("not reached")
    said("not a signal", str(caught.value), option=option, value=repr(value))


async def test_outside_the_main_thread_signals_are_refused(said: Said) -> None:
    async def main() -> None:
        async with open_servers(House("a").config(), stop_on=signal.SIGTERM):
            raise AssertionError("not reached")

    with pytest.raises(RuntimeError) as caught:
        await trio.to_thread.run_sync(trio.run, main)
    said("signals in another thread", str(caught.value))


async def test_a_signal_reloads_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-15: without a restart of the program; a file that is not valid changes nothing, and that is logged."""
    file = tmp_path / "servers.json"

    def write(*names: str) -> None:
        file.write_text(json.dumps({"mcpServers": {name: {"url": "http://127.0.0.1:1/"} for name in names}}))

    async def hang_up() -> str:
        signal.raise_signal(signal.SIGHUP)
        with trio.fail_after(BOUND):
            async for message in received:
                if message.startswith("reload"):
                    return message
        raise AssertionError("unreachable")

    caplog.set_level(logging.INFO, "mcp_actors.servers")
    said, received = trio.open_memory_channel[str](math.inf)
    monkeypatch.setattr(caplog.handler, "emit", lambda record: said.send_nowait(record.getMessage()))
    write("a", "b")
    async with open_servers(file, reload_on=signal.SIGHUP) as group:
        write("b", "c")
        assert await hang_up() == "reload at SIGHUP: added c; removed a"
        assert [*group] == ["b", "c"]
        assert await hang_up() == "reload at SIGHUP: no change"
        file.write_text("{")
        assert (await hang_up()).startswith(f"reload at SIGHUP: {file}: ")
        assert [*group] == ["b", "c"]


async def test_a_group_that_starts_or_stops_is_not_killed_by_its_signal_to_reload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-15: signals before the block are one reload in it, those after it are dropped."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    house, held, others = House("a"), Outcome(), list[int]()
    house.entered = trio.Event()

    async def hang_up_twice(then: trio.Event) -> None:
        for _ in range(2):
            await wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGHUP)
        await wait_all_tasks_blocked()
        then.set()

    before = signal.signal(signal.SIGHUP, lambda number, _: others.append(number))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang_up_twice, house.entered)
            async with open_servers(house.config(), reload_on=signal.SIGHUP) as group:
                await group.wait_ready()
                nursery.start_soon(held.of, group["a"].call_tool, "hold")
                await wait_all_tasks_blocked()
                nursery.start_soon(hang_up_twice, house.let_go)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert others == []
    assert held.error is None
    assert [line for line in caplog.messages if "SIGHUP" in line] == ["reload at SIGHUP: no change"]


async def test_a_signal_finishes_the_requests_of_a_server_that_is_being_restarted(autojump_clock: MockClock) -> None:
    """S2-40: the restart waits for them too, and does not go on."""
    house, held = House("a"), Outcome()
    async with trio.open_nursery() as nursery:
        with leaving(SystemExit):
            async with open_servers(house.config(), stop_on=signal.SIGTERM) as group:
                nursery.start_soon(held.of, group["a"].call_tool, "hold")
                await wait_all_tasks_blocked()
                nursery.start_soon(Outcome().of, group["a"].restart)
                await wait_all_tasks_blocked()
                assert group["a"].state == "stopping"
                signal.raise_signal(signal.SIGTERM)
                nursery.start_soon(_set_later, house.let_go)
                await trio.sleep_forever()
    assert held.error is None
    assert trio.current_time() == pytest.approx(5.0)


async def test_a_call_by_public_name_after_a_signal_says_why_it_is_refused(autojump_clock: MockClock) -> None:
    """D-81: its tool is not called unknown because its server stops."""
    house, held = House("a"), Outcome()
    async with trio.open_nursery() as nursery:
        with leaving(SystemExit):
            async with open_servers(house.config(), stop_on=signal.SIGTERM) as group:
                nursery.start_soon(held.of, group["a"].call_tool, "hold")
                await wait_all_tasks_blocked()
                signal.raise_signal(signal.SIGTERM)
                await wait_all_tasks_blocked()
                for call in (group.call, group.call_tool):
                    why = "tool 'mcp__a__hold' cannot be called because SIGTERM was received"
                    with pytest.raises(ServerUnavailable, match=why):
                        await call("mcp__a__hold")
                house.let_go.set()
                await trio.sleep_forever()
    assert held.error is None


async def test_a_signal_that_is_to_stop_and_to_reload_is_refused(said: Said) -> None:
    with pytest.raises(ConfigError) as caught:
        async with open_servers(stop_on=[signal.SIGTERM, signal.SIGHUP], reload_on=signal.SIGHUP):
            raise AssertionError("not reached")
    said("a signal to stop and to reload", str(caught.value))


class Slow(Written):
    """A source whose first reading lasts until it is let go."""

    let_go: trio.Event

    def read(self) -> tuple[LoadedConfig, ...]:
        if not self.reads:
            trio.from_thread.run(self.let_go.wait)
        return super().read()


@pytest.fixture
def slow() -> Slow:
    source = Slow("slow", (House("a").config(),))
    source.let_go = trio.Event()
    return source


async def test_a_signal_while_the_sources_are_read_ends_the_program(slow: Slow) -> None:
    """C-26: as later, instead of by its default action, which would end it past every clean-up."""

    async def send() -> None:
        await wait_all_tasks_blocked(0.01)
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with leaving(SystemExit) as caught, trio.fail_after(BOUND):
                async with open_servers(slow, stop_on=signal.SIGTERM):
                    raise AssertionError("not reached")
            slow.let_go.set()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == TERMINATED


async def test_a_signal_to_reload_while_the_sources_are_read_is_a_reload_in_the_block(
    slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    """C-26: that reading may have begun before the edit that the signal is about."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")

    async def send() -> None:
        await wait_all_tasks_blocked(0.01)
        signal.raise_signal(signal.SIGHUP)
        await wait_all_tasks_blocked(0.01)
        slow.let_go.set()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            async with open_servers(slow, reload_on=signal.SIGHUP):
                await eventually(lambda: "reload at SIGHUP: no change" in caplog.messages)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert slow.reads == 2
