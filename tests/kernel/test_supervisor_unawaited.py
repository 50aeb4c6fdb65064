"""First starts with ``await_start=False``: the supervisor serves while its children start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Backoff,
    ChildSpec,
    IgnoreStart,
    Observer,
    RestartLimitReached,
    StartFailed,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)

from .workers import Boom, Echo, Hopeless, Yard, door_raises, nest, state

Order = Literal["sequential", "parallel"]
ORDERS: Final[tuple[Order, ...]] = ("sequential", "parallel")


@asynccontextmanager
async def open_nested(
    *specs: ChildSpec, observers: Iterable[Observer] = (), **options: Any
) -> AsyncIterator[SupervisorRef]:
    """Run a supervisor that does not await its children, below one that awaits it."""
    nested = nest("n", *specs, strict=False, await_start=False, **options)
    async with open_supervisor(nested, max_restarts=0, observers=observers) as supervisor:
        n = supervisor.child("n")
        assert isinstance(n, SupervisorRef)
        yield n


@pytest.mark.parametrize("start_order", ORDERS)
async def test_without_await_start_a_supervisor_serves_while_its_children_start(
    autojump_clock: MockClock, start_order: Order
) -> None:
    yard = Yard()
    began = trio.current_time()
    async with open_nested(yard.spec("a", 3), yard.spec("b", 2), start_order=start_order) as supervisor:
        assert trio.current_time() == began
        assert [child.state for child in await supervisor.which_children()] == ["starting", "starting"]
        assert await supervisor.child("b").call(Echo(7)) == 7
        assert await supervisor.child("a").call(Echo(8)) == 8
        assert trio.current_time() == began + (5 if start_order == "sequential" else 3)
    assert yard.log[2:] == ["b down", "a down"]


async def test_an_unawaited_start_that_fails_is_retried_or_given_up_as_if_not_strict(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()

    async def after_a_second() -> None:
        await trio.sleep(1)
        raise Boom

    async with open_nested(
        yard.spec("a", after_a_second),
        yard.spec("b", IgnoreStart()),
        yard.spec("c", Boom(), restart="temporary"),
        yard.spec("d", Hopeless()),
        on_limit="park",
        backoff=Backoff(first=10),
        window=100,
        observers=[yard.events.append],
    ) as supervisor:
        began = trio.current_time()
        d = supervisor.child("d")
        assert await supervisor.child("a").call(Echo(1)) == 1
        assert trio.current_time() == began + 11
        states = {child.id: child.state for child in await supervisor.which_children()}
        assert states == {"a": "running", "b": "stopped", "d": "failed"}
        assert state(d) == "failed"
    assert yard.of(StartFailed) == ["a", "c", "d"]


async def test_a_supervisor_stops_at_once_while_its_unawaited_children_start(autojump_clock: MockClock) -> None:
    yard = Yard()
    began = trio.current_time()
    async with open_nested(yard.spec("a"), yard.spec("b", 1000), yard.spec("c")):
        await settle()
    assert trio.current_time() == began
    assert yard.log == ["a up", "b failed", "a down"]


@pytest.mark.parametrize("start_order", ORDERS)
async def test_a_child_can_be_stopped_before_and_during_its_unawaited_start(
    autojump_clock: MockClock, start_order: Order
) -> None:
    yard = Yard()
    async with open_nested(yard.spec("a", 1000), yard.spec("b", 1000), start_order=start_order) as supervisor:
        began = trio.current_time()
        b = supervisor.child("b")
        await supervisor.stop_child("b")
        assert (state(b), trio.current_time()) == ("stopped", began)
        await supervisor.stop_child("a")
        await settle()
        assert trio.current_time() == began
        assert yard.running == []
        await supervisor.restart_child("b")
        assert await b.call(Echo(1)) == 1


@pytest.mark.parametrize("start_order", ORDERS)
async def test_an_exit_out_of_an_unawaited_start_is_raised_ungrouped(start_order: Order) -> None:
    yard = Yard()
    error = KeyboardInterrupt()

    async def later() -> None:
        await settle()
        raise error

    with door_raises(KeyboardInterrupt) as raised:
        async with open_nested(yard.spec("a"), yard.spec("b", later), start_order=start_order):
            await trio.sleep_forever()
    assert raised.value is error
    assert yard.log == ["a up", "b failed", "a down"]


async def test_a_nested_supervisor_that_gives_up_on_an_unawaited_start_fails() -> None:
    yard = Yard()
    with door_raises(RestartLimitReached):
        async with open_nested(yard.spec("a", Boom()), max_restarts=0):
            await trio.sleep_forever()


@pytest.mark.parametrize("start_order", ORDERS)
async def test_messages_wait_for_an_unawaited_start_after_a_stop(start_order: Order) -> None:
    """As soon as the supervisor has started: its manager begins the start later."""
    yard = Yard()
    async with open_supervisor(
        nest("n", yard.spec("a"), strict=False, await_start=False, start_order=start_order)
    ) as top:
        await settle()
        await top.child("n", SupervisorRef).stop_child("a")
        await top.stop_child("n", keep_mailbox=True)
        await top.restart_child("n")
        assert await top.find("n/a").call(Echo(1)) == 1


def test_a_strict_supervisor_must_await_its_starts() -> None:
    with pytest.raises(ValueError, match="strict=True and await_start=False"):
        Supervisor(await_start=False)
    with pytest.raises(ValueError, match="await_start must be True or False, not 1"):
        Supervisor(await_start=1)  # type: ignore[arg-type]  # a user's mistake
