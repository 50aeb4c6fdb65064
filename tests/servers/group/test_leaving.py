"""Servers finish their requests before they are disconnected. Against servers in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ConfigError, ConnectionLost, ServerUnavailable, StateChanged, open_servers
from mcp_actors._tasks import ClosingOrder
from mcp_actors.kernel import Event, Stopped, Stopping
from mcp_actors.servers import Drained, Draining, ServerRemoved

from ...messages import Said
from ..fleet import Outcome
from ..groups import AT_ONCE, LATER, Events, overtaken
from ..houses import House, who
from ..links import text_of

STEPS = (StateChanged, Draining, Drained, Stopping, Stopped, ServerRemoved)


def steps(events: list[Event], *actors: str) -> list[str]:
    """Return the steps of leaving, as text."""
    return [
        f"{event.actor} {event.new if isinstance(event, StateChanged) else type(event).__name__}"
        for event in events
        if isinstance(event, STEPS) and event.actor in actors
    ]


async def test_at_the_end_of_the_block_accepted_requests_are_finished(autojump_clock: MockClock) -> None:
    """S2-37: refuse, drain, close, record: each is an event. A queued request was accepted too."""
    events = Events()
    a, b = House("a"), House("b")
    calls = [Outcome(), Outcome()]
    async with trio.open_nursery() as nursery:
        async with open_servers(a.config(max_in_flight=1), b.config(), observers=[events]) as group:
            for call in calls:
                nursery.start_soon(call.of, group["a"].call_tool, "hold")
            await wait_all_tasks_blocked()
            events.clear()

            async def let_go() -> None:
                await trio.sleep(10)
                for ref in group.configured:
                    assert ref.state == "stopping"
                    with pytest.raises(ServerUnavailable, match="block has exited"):
                        await ref.call_tool("who")
                a.let_go.set()

            nursery.start_soon(let_go)
        assert trio.current_time() == pytest.approx(10.0)
    assert [text_of(await call.result()) for call in calls] == ["a", "a"]
    assert steps(events, "a") == [
        *("a Draining", "a stopping", "a Drained"),
        *("a Stopping", "a Stopped", "a stopped"),
    ]
    [draining], [drained] = events.of(Draining, "a"), events.of(Drained, "a")
    assert (draining.requests, draining.seconds, drained.unfinished) == (2, 30.0, 0)
    assert events.of(StateChanged, "a")[0].reason == "finishing 2 requests, for at most 30 s"


async def test_servers_close_in_reverse_order_once_all_are_drained(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2-37: closes begin in reverse order, however long each server needed."""
    order, begin = list[str](), ClosingOrder.begin
    houses = [House(name) for name in "abc"]

    def noted(closing: ClosingOrder, server: str) -> None:
        order.append(f"{server} closes")
        begin(closing, server)

    def note(event: Event) -> None:
        if isinstance(event, Drained):
            order.append(f"{event.server} is drained")

    monkeypatch.setattr(ClosingOrder, "begin", noted)
    async with trio.open_nursery() as nursery:
        async with open_servers(*(house.config() for house in houses), observers=[note]) as group:
            for number, house in enumerate(houses):
                nursery.start_soon(group[house.name].call_tool, "hold")
                nursery.start_soon(_set_after, 1.0 + number, house.let_go)
            await wait_all_tasks_blocked()
        assert trio.current_time() == pytest.approx(3.0)
    assert order == ["a is drained", "b is drained", "c is drained", "c closes", "b closes", "a closes"]


async def _set_after(seconds: float, event: trio.Event) -> None:
    await trio.sleep(seconds)
    event.set()


async def test_what_is_not_finished_in_time_ends_without_an_answer(autojump_clock: MockClock) -> None:
    """S2-37: the wait has a limit, and the whole end takes no longer than that and the slowest stop."""
    events = Events()
    a, call = House("a"), Outcome()
    async with trio.open_nursery() as nursery:
        async with open_servers(a.config(), drain_timeout=7, observers=[events]) as group:
            nursery.start_soon(call.of, group["a"].call_tool, "hold")
            await wait_all_tasks_blocked()
        assert trio.current_time() == pytest.approx(7.0)
    assert isinstance(call.error, ServerUnavailable)
    assert call.error.outcome == "unknown"
    assert [event.unfinished for event in events.of(Drained)] == [1]


async def test_without_requests_there_is_no_wait(autojump_clock: MockClock) -> None:
    events = Events()
    async with open_servers(House("a").config(), House("b").config(), observers=[events]) as group:
        await who(group, "a")
        await group.reconnect("a")
        await group.remove("b")
    assert trio.current_time() == 0
    assert not events.of(Draining)


class Enough(Exception):
    """A failure of the block."""


@pytest.mark.parametrize("how", ["raise", "cancel", "interrupt", "zero"])
async def test_only_a_block_that_ends_normally_waits(how: str, autojump_clock: MockClock) -> None:
    """Not one that is left by an exception, a cancellation or Ctrl-C; or with ``drain_timeout=0``."""
    events = Events()
    a, call = House("a"), Outcome()

    async def block(scope: trio.CancelScope) -> None:
        async with open_servers(a.config(), drain_timeout=0 if how == "zero" else 30, observers=[events]) as group:
            nursery.start_soon(call.of, group["a"].call_tool, "hold")
            await wait_all_tasks_blocked()
            match how:
                case "raise":
                    raise Enough
                case "cancel":
                    scope.cancel("enough")
                    await trio.sleep_forever()
                case "interrupt":
                    signal.raise_signal(signal.SIGINT)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope, suppress(Enough, KeyboardInterrupt):
            await block(scope)
    assert trio.current_time() == 0
    assert isinstance(call.error, ServerUnavailable)
    assert not events.of(Draining)


async def test_a_cancellation_ends_the_wait(autojump_clock: MockClock) -> None:
    a, call = House("a"), Outcome()
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(3):
            async with open_servers(a.config()) as group:
                nursery.start_soon(call.of, group["a"].call_tool, "hold")
                await wait_all_tasks_blocked()
        assert trio.current_time() == pytest.approx(3.0)
    assert isinstance(call.error, ServerUnavailable)


async def test_a_change_is_refused_while_servers_finish(autojump_clock: MockClock) -> None:
    a, b = House("a"), House("b")
    async with trio.open_nursery() as nursery, open_servers(a.config()) as group:
        nursery.start_soon(group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()

        async def change() -> None:
            await wait_all_tasks_blocked()
            refused: list[Callable[[], Any]] = [
                lambda: group.add(b.config()),
                lambda: group.remove("a"),
                group.reload,
                group.reconnect,
                group["a"].restart,
                group["a"].stop,
            ]
            for each in refused:
                with pytest.raises(ServerUnavailable, match="block has exited"):
                    await each()
            a.let_go.set()

        nursery.start_soon(change)
    assert trio.current_time() == 0


async def test_a_removed_server_finishes_what_it_has_accepted(autojump_clock: MockClock) -> None:
    """S2-37: and it refuses what comes later, while the others serve."""
    events = Events()
    a, b = House("a"), House("b")
    calls = [Outcome(), Outcome()]
    async with open_servers(a.config(max_in_flight=1), b.config(), observers=[events]) as group:
        ref = group["a"]
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(call.of, ref.call_tool, "hold")
            await wait_all_tasks_blocked()
            events.clear()
            nursery.start_soon(group.remove, "a")
            await trio.sleep(1)
            assert ref.state == "stopping"
            assert [tool.server for tool in group.tools] == ["b", "b"]
            with pytest.raises(ServerUnavailable, match="was removed from its group"):
                await ref.call_tool("who")
            assert await who(group, "b") == "b"
            a.let_go.set()
        assert [text_of(await call.result()) for call in calls] == ["a", "a"]
        assert trio.current_time() == pytest.approx(1.0)
        assert steps(events, "a") == [
            *("a Draining", "a stopping", "a Drained"),
            *("a Stopping", "a Stopped", "a stopped", "a ServerRemoved"),
        ]


@pytest.mark.parametrize("change", ["restart", "reconnect", "reload"])
async def test_a_server_that_comes_back_finishes_what_is_in_flight(change: str, autojump_clock: MockClock) -> None:
    """The queued request, and those that come meanwhile, are served by the next connection."""
    events = Events()
    a = House("a")
    in_flight, queued, late = Outcome(), Outcome(), Outcome()
    async with open_servers(a.config(max_in_flight=1), observers=[events]) as group:
        ref = group["a"]
        changes: dict[str, Callable[[], Any]] = {
            "restart": ref.restart,
            "reconnect": lambda: group.reconnect("a"),
            "reload": lambda: group.reload(a.config(max_in_flight=1, request_timeout=50.0)),
        }
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_flight.of, ref.call_tool, "hold")
            await wait_all_tasks_blocked()
            nursery.start_soon(queued.of, ref.call_tool, "who")
            await wait_all_tasks_blocked()
            nursery.start_soon(changes[change])
            await trio.sleep(1)
            assert ref.state == "stopping"
            assert [tool.server for tool in group.tools] == ["a", "a"]
            nursery.start_soon(late.of, ref.call_tool, "who")
            await wait_all_tasks_blocked()
            assert not queued.over
            a.let_go.set()
        assert [text_of(await call.result()) for call in (in_flight, queued, late)] == ["a", "a", "a"]
        assert trio.current_time() == pytest.approx(1.0)
        assert ref.statistics().incarnation == 2
        assert events.states("a")[2:] == ["stopping", "stopped", "connecting", "ready"]
        assert [event.requests for event in events.of(Draining)] == [1]


async def test_a_server_that_comes_back_takes_nothing_more_though_it_could(autojump_clock: MockClock) -> None:
    """It has free slots. Under a constant load it would never come to its end otherwise."""
    a, late = House("a"), Outcome()
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(group["a"].restart)
        await wait_all_tasks_blocked()
        nursery.start_soon(late.of, group["a"].call_tool, "who")
        await trio.sleep(1)
        assert not late.over
        a.let_go.set()
        assert text_of(await late.result()) == "a"
        assert group["a"].statistics().incarnation == 2


@pytest.mark.parametrize(
    ("leaves", "change"),
    [("block", "restart"), ("block", "max_lifetime"), ("block", "reload"), ("remove", "restart")],
)
async def test_a_server_that_leaves_while_it_finishes_for_another_connection_finishes_all(
    leaves: str, change: str, autojump_clock: MockClock
) -> None:
    """S2-37: no other connection follows. So this one takes what waits for it, and new requests are refused."""
    events = Events()
    a, calls, late, changed = House("a"), [Outcome() for _ in range(4)], Outcome(), Outcome()
    lifetime = 100.0 if change == "max_lifetime" else None
    async with trio.open_nursery() as nursery:
        config = a.config(max_in_flight=3, max_lifetime=lifetime, request_timeout=None)
        async with open_servers(config, observers=[events]) as group:
            ref = group["a"]
            for call in calls[:2]:
                nursery.start_soon(call.of, ref.call_tool, "hold")
            await wait_all_tasks_blocked()
            if change == "restart":
                nursery.start_soon(changed.of, ref.restart)
            elif change == "reload":
                nursery.start_soon(changed.of, group.reload, a.config(max_in_flight=1))
            await ref.wait_state("stopping")
            for call in calls[2:]:
                nursery.start_soon(call.of, ref.call_tool, "hold")
            await trio.sleep(20)
            assert a.held == 2

            async def let_go() -> None:
                await trio.sleep(20)  # the time for the change is over, and that for leaving is not
                assert a.held == 3
                nursery.start_soon(late.of, ref.call_tool, "who")
                await wait_all_tasks_blocked()
                assert isinstance(late.error, ServerUnavailable)
                a.let_go.set()

            nursery.start_soon(let_go)
            if leaves == "remove":
                await group.remove("a")
                assert [call.over for call in calls] == [True] * 4
    assert [text_of(await call.result()) for call in calls] == ["a"] * 4
    assert events.states("a") == ["connecting", "ready", "stopping", "stopped"]
    assert [event.requests for event in events.of(Draining)] == [2, 4]
    first, last = [event.unfinished for event in events.of(Drained)]  # the first one is cut short
    assert (first in (2, 3), last) == (True, 0)


async def test_a_changed_configuration_waits_for_what_a_restart_finishes(autojump_clock: MockClock) -> None:
    a, in_flight, queued = House("a"), Outcome(), Outcome()
    async with open_servers(a.config(max_in_flight=1)) as group, trio.open_nursery() as nursery:
        ref = group["a"]
        nursery.start_soon(in_flight.of, ref.call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(queued.of, ref.call_tool, "who")
        nursery.start_soon(ref.restart)
        await trio.sleep(1)
        nursery.start_soon(group.reload, a.config(max_in_flight=1, stop_timeout=1.0))
        await trio.sleep(1)
        assert (in_flight.over, queued.over) == (False, False)
        a.let_go.set()
        assert [text_of(await call.result()) for call in (in_flight, queued)] == ["a", "a"]
        assert trio.current_time() == pytest.approx(2.0)


async def test_a_connection_that_is_lost_while_it_finishes_its_calls_is_replaced_at_once(
    autojump_clock: MockClock,
) -> None:
    """The requests that wait for the next connection do not wait for those of the lost one."""
    a, call, late, changed = House("a"), Outcome(), Outcome(), Outcome()
    async with open_servers(a.config(restarts=AT_ONCE)) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(changed.of, group["a"].restart)
        await group["a"].wait_state("stopping")
        nursery.start_soon(late.of, group["a"].call_tool, "who")
        await trio.sleep(1)
        assert not late.over
        a.break_down.set()
        assert text_of(await late.result()) == "a"
        await changed.result()
        assert (group["a"].state, a.starts) == ("ready", 2)
        assert trio.current_time() == pytest.approx(1.0)
        with pytest.raises(ConnectionLost):
            await call.result()


async def test_a_stop_ends_the_wait_of_a_restart(autojump_clock: MockClock) -> None:
    a, call = House("a"), Outcome()
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(overtaken, group["a"].restart)
        await trio.sleep(1)
        await group["a"].stop()
        assert group["a"].state == "stopped"
        with pytest.raises((ServerUnavailable, ConnectionLost)):
            await call.result()
    assert trio.current_time() == pytest.approx(1.0)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_connection_that_is_lost_ends_the_wait(comes_back: bool, autojump_clock: MockClock) -> None:
    events = Events()
    a, call = House("a"), Outcome()
    async with open_servers(a.config(restarts=LATER), observers=[events]) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(group["a"].restart if comes_back else lambda: group.remove("a"))
        await trio.sleep(1)
        a.break_down.set()
        with pytest.raises((ServerUnavailable, ConnectionLost)):
            await call.result()
        await wait_all_tasks_blocked()
        assert trio.current_time() == pytest.approx(1.0)
        assert [*group] == (["a"] if comes_back else [])
        if comes_back:
            assert await who(group, "a") == "a"
        assert events.states("a")[2:4] == ["stopping", "backoff"]


@pytest.mark.parametrize(("failures", "condition"), [(1, "ready"), (3, "unhealthy")])
async def test_a_server_that_does_not_answer_is_not_waited_for(
    failures: int, condition: str, autojump_clock: MockClock
) -> None:
    """One check without an answer is enough; the others finish their requests."""
    events = Events()
    a, b = House("a"), House("b")
    calls = [Outcome(), Outcome()]
    async with trio.open_nursery() as nursery:
        async with open_servers(a.config(), b.config(), observers=[events]) as group:
            for call, name in zip(calls, "ab", strict=True):
                nursery.start_soon(call.of, group[name].call_tool, "hold")
            await wait_all_tasks_blocked()
            record = group._roster.records["a"]
            for _ in range(failures):
                await trio.sleep(0.1)
                record.connections[0].health.failed(trio.current_time(), TimeoutError("no answer"))
            assert group["a"].state == condition
            b.let_go.set()
        assert trio.current_time() < 30
    assert isinstance(calls[0].error, ServerUnavailable)
    assert text_of(await calls[1].result()) == "b"
    assert not events.of(Draining, "a")


@pytest.mark.parametrize("change", ["restart", "remove"])
async def test_a_change_does_not_wait_for_a_server_that_does_not_answer(change: str, autojump_clock: MockClock) -> None:
    a, call = House("a"), Outcome()
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        await trio.sleep(1)
        group._roster.records["a"].connections[0].health.failed(trio.current_time(), TimeoutError("no answer"))
        await (group["a"].restart() if change == "restart" else group.remove("a"))
        assert trio.current_time() == pytest.approx(1.0)
        with pytest.raises((ServerUnavailable, ConnectionLost)):
            await call.result()


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), True, "10", None])
async def test_a_time_that_is_not_valid_is_refused(seconds: Any, said: Said, autojump_clock: MockClock) -> None:
    with pytest.raises(ConfigError) as caught:
        async with open_servers(House("a").config(), drain_timeout=seconds):
            raise AssertionError("not reached")
    said("drain_timeout is not a number", str(caught.value), value=repr(seconds))


async def test_a_caller_of_remove_that_leaves_does_not_shorten_the_wait(autojump_clock: MockClock) -> None:
    a, call = House("a"), Outcome()
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await group.remove("a")
        await trio.sleep(1)
        a.let_go.set()
        assert text_of(await call.result()) == "a"
        await wait_all_tasks_blocked()
        assert not group
