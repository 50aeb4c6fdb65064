"""Changing the child table while the supervisor runs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcp_actors.kernel import (
    ActorStartError,
    ActorStopped,
    Backoff,
    ChildError,
    ChildInfo,
    ChildrenCount,
    GaveUp,
    IgnoreStart,
    Restarting,
    RestartLimitReached,
    Stopped,
    SupervisorRef,
    open_supervisor,
)

from ..messages import Said
from .workers import Boom, Echo, Yard, crash, door_raises, nest, state, states


async def test_start_child_appends_a_child_that_serves_when_it_returns() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        b = await supervisor.start_child(yard.spec("b"))
        assert b == supervisor.child("b")
        assert await b.call(Echo(1)) == 1
        await supervisor.start_child(yard.spec("c"))
        assert [child.id for child in await supervisor.which_children()] == ["a", "b", "c"]
    assert yard.log[3:] == ["c down", "b down", "a down"]


async def test_which_children_reports_workers_and_supervisors() -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", restart="transient"), nest("n", yard.spec("b")), yard.spec("c", IgnoreStart())
    ) as supervisor:
        assert await supervisor.which_children() == (
            ChildInfo(id="a", state="running", incarnation=1, restart="transient", kind="worker"),
            ChildInfo(id="n", state="running", incarnation=1, restart="permanent", kind="supervisor"),
            ChildInfo(id="c", state="stopped", incarnation=1, restart="permanent", kind="worker"),
        )
        assert await supervisor.count_children() == ChildrenCount(specs=3, active=2, workers=2, supervisors=1)


async def test_a_stopped_child_stays_in_the_table_until_it_is_deleted() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), observers=[yard.events.append]) as supervisor:
        a = supervisor.child("a")
        await supervisor.stop_child("a")
        assert await states(supervisor) == ["stopped"]
        assert yard.of(Stopped) == ["a"]
        assert yard.of(Restarting) == []
        await supervisor.stop_child("a")
        assert yard.of(Stopped) == ["a"]
        with pytest.raises(ActorStopped, match="it was stopped"):
            await a.call(Echo(1))
        assert await supervisor.restart_child("a") == a
        assert await a.call(Echo(1)) == 1
        await supervisor.stop_child("a")
        await supervisor.delete_child("a")
        assert await states(supervisor) == []
        again = await supervisor.start_child(yard.spec("a"))
        assert again != a
        with pytest.raises(ActorStopped, match="no longer in the child table"):
            await a.call(Echo(1))


async def test_a_temporary_child_leaves_the_table_when_it_is_stopped() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", restart="temporary")) as supervisor:
        a = supervisor.child("a")
        await supervisor.stop_child("a", keep_mailbox=True)
        assert await states(supervisor) == []
        with pytest.raises(ActorStopped):
            await a.call(Echo(1))


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_a_change_that_does_not_fit_is_refused_with_its_reason(autojump_clock: MockClock, said: Said) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("up"),
        yard.spec("down", IgnoreStart()),
        yard.spec("waiting"),
        name="top",
        backoff=Backoff(first=100),
        window=1000,
    ) as supervisor:
        await crash(supervisor.child("waiting"))
        start = supervisor.start_child
        refusals: list[tuple[Callable[[], Awaitable[object]], str, str]] = [
            (partial(supervisor.stop_child, "x"), "not_found", "child not found"),
            (partial(supervisor.restart_child, "x"), "not_found", "child not found"),
            (partial(supervisor.delete_child, "x"), "not_found", "child not found"),
            (partial(supervisor.restart_child, "up"), "running", "child is running"),
            (partial(supervisor.delete_child, "up"), "running", "child is running"),
            (partial(supervisor.restart_child, "waiting"), "restarting", "child is about to restart"),
            (partial(supervisor.delete_child, "waiting"), "restarting", "child is about to restart"),
            (partial(start, yard.spec("up")), "already_started", "child exists and is running"),
            (partial(start, yard.spec("waiting")), "already_present", "child exists and is not running"),
            (partial(start, yard.spec("down")), "already_present", "child exists and is not running"),
        ]
        for change, reason, row in refusals:
            with pytest.raises(ChildError) as refused:
                await change()
            assert refused.value.reason == reason
            assert refused.value.actor == "top"
            [id] = re.findall("child '([a-z]+)'", str(refused.value))
            said(row, str(refused.value), id=f"'{id}'")
        ref: Any = supervisor.child("up")
        for change in (partial(supervisor.stop_child, ref), partial(supervisor.restart_child, ref)):
            with pytest.raises(TypeError) as wrong:
                await change()
            said("a ref for the id of a child", str(wrong.value))
        assert await states(supervisor) == ["running", "stopped", "backoff"]


async def test_start_child_refuses_an_invalid_spec_and_the_supervisor_lives() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        with pytest.raises(ValueError, match=r"every child is a ChildSpec, not 5; write ChildSpec\('name', factory\)"):
            await supervisor.start_child(5)  # type: ignore[arg-type]  # the mistake under test
        with pytest.raises(TypeError, match=r"does not understand Echo.*; use SupervisorRef's methods"):
            await supervisor.call(Echo(1))
        assert await states(supervisor) == ["running"]


async def test_the_error_for_an_unknown_child_lists_the_known_ones(said: Said) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), yard.spec("b")) as supervisor:
        with pytest.raises(ChildError) as refused:
            supervisor.child("x")
        said("child of a ref not found", str(refused.value))
        assert refused.value.reason == "not_found"


# --- failing starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", ["permanent", "temporary"])
async def test_a_strict_start_child_that_fails_leaves_nothing_in_the_table(restart: str) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        with pytest.raises(ActorStartError, match=r"child 'b' did not start: Boom\('broken'\)") as failed:
            await supervisor.start_child(yard.spec("b", Boom("broken"), restart=restart))
        assert failed.value.actor == "b"
        assert [child.id for child in await supervisor.which_children()] == ["a"]
        await supervisor.start_child(yard.spec("b"))
        assert await states(supervisor) == ["running", "running"]


async def test_a_caller_of_a_child_whose_strict_start_fails_gets_the_reason(autojump_clock: MockClock) -> None:
    async with open_supervisor() as supervisor:
        with trio.move_on_after(1):  # who started it leaves; its start goes on
            await supervisor.start_child(Yard().spec("a", 5.0, start_timeout=2.0))
        with pytest.raises(ActorStopped, match=r"child 'a' did not start: .*start timed out"):
            await supervisor.child("a").call(Echo(1))
        assert await supervisor.which_children() == ()


async def test_a_start_child_that_fails_and_is_not_strict_is_retried(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(strict=False, backoff=Backoff(first=10), window=100) as supervisor:
        a = await supervisor.start_child(yard.spec("a", Boom("broken")))
        assert a.state == "backoff"
        assert await a.call(Echo(1)) == 1
        dropped = await supervisor.start_child(yard.spec("b", Boom("broken"), restart="temporary"))
        assert dropped.state == "stopped"
        assert await states(supervisor) == ["running"]


async def test_a_strict_restart_child_that_fails_leaves_the_child_failed_until_another_succeeds() -> None:
    yard = Yard()
    broken = Boom("broken")
    async with open_supervisor(yard.spec("a", None, broken), observers=[yard.events.append]) as supervisor:
        a = supervisor.child("a")
        await supervisor.stop_child("a")
        with pytest.raises(ActorStartError, match=r"child 'a' did not start: Boom\('broken'\)"):
            await supervisor.restart_child("a")
        assert state(a) == "failed"
        assert yard.of(GaveUp, "error") == [(broken,)]
        with pytest.raises(ActorStopped, match="did not start"):
            await a.call(Echo(1))
        await supervisor.restart_child("a")
        assert state(a) == "running"


async def test_a_restart_child_that_fails_leaves_the_budget_as_it_is() -> None:
    yard = Yard()
    with door_raises(RestartLimitReached):
        async with open_supervisor(yard.spec("a", None, None, Boom("broken"))) as supervisor:
            await crash(supervisor.child("a"))
            await supervisor.stop_child("a")
            with pytest.raises(ActorStartError):
                await supervisor.restart_child("a")
            await supervisor.restart_child("a")
            await crash(supervisor.child("a"))
            await trio.sleep_forever()


async def test_a_child_added_with_nothing_to_run_keeps_its_place() -> None:
    yard = Yard()
    async with open_supervisor() as supervisor:
        a = await supervisor.start_child(yard.spec("a", IgnoreStart()))
        assert a.state == "stopped"
        assert await states(supervisor) == ["stopped"]


async def test_subscribers_see_the_events_of_the_tree_while_they_watch() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        async with supervisor.watch_events() as events:
            await crash(supervisor.child("a"))
            kinds = [type(event).__name__ for event in events.pending() if event.actor == "a"]
        assert [kind for kind in kinds if not kind.startswith(("Request", "Unhandled"))] == [
            "Crashed",
            "Restarting",
            "Starting",
            "Started",
        ]
        assert [event async for event in events] == []


async def test_a_reference_to_a_supervisor_is_one_wherever_it_comes_from() -> None:
    yard = Yard()
    async with open_supervisor() as supervisor:
        nested = await supervisor.start_child(nest("n", yard.spec("a")))
        assert isinstance(nested, SupervisorRef)
        assert await states(nested) == ["running"]


async def test_a_thousand_children_that_crash_once_are_restarted() -> None:
    yard = Yard()
    ids = [f"c{number}" for number in range(1000)]
    async with open_supervisor(*map(yard.spec, ids), max_restarts=1000, stop_order="concurrent") as supervisor:
        async with trio.open_nursery() as nursery:
            for id in ids:
                nursery.start_soon(crash, supervisor.child(id))
        assert (await supervisor.count_children()).active == 1000
        assert {child.incarnation for child in await supervisor.which_children()} == {2}
    assert yard.running == []
