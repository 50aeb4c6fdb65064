"""K2 and K3: `trio.Cancelled` stays in its task, and a caller that is cancelled leaves at once."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorCrashed, ActorError, ActorRef, Event, Unhandled, open_actor

from ..messages import Said
from .actors import Boom, Do, DoNow, Fatal, Gate, Get, Host, Put, leaving, make_cancelled, raising, shielded


async def swallow() -> str:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        return "swallowed"


async def raise_instead() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise Boom("while it was cancelled")


async def use_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)


async def raise_in_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(raise_instead)


HANDLERS = [trio.sleep_forever, swallow, raise_instead, use_a_nursery, raise_in_a_nursery]


@pytest.mark.parametrize("handler", HANDLERS)
async def test_an_actor_keeps_serving_however_a_cancelled_handler_ends(
    handler: Callable[[], Awaitable[object]], caplog: pytest.LogCaptureFixture
) -> None:
    """K2, K3: the caller has left; neither a swallowed nor a replaced Cancelled hurts anybody else."""
    caplog.set_level(logging.CRITICAL, logger="mcp_actors.kernel")
    gate = Gate()
    async with open_actor(Host(max_in_flight=2), name="host") as ref, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(ref.call, Do(gate))
            nursery.start_soon(cancel_when_settled, scope)
            await ref.call(Do(handler))
        assert scope.cancelled_caught
        await settle()
        assert ref.statistics().in_flight == 1
        assert [await ref.call(Get(number)) for number in range(3)] == [0, 1, 2]
        assert ref.state == "running"
        gate.open()


@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_caller_never_sees_cancelled_when_the_actor_crashes(
    handler: Callable[[], Awaitable[object]],
) -> None:
    """K2: a crash has one cause, and each caller an exception object of its own."""
    host, told = Host(max_in_flight=3), list[ActorCrashed]()

    async def ask(ref: ActorRef) -> None:
        with pytest.raises(ActorCrashed, match=r"incarnation 1 ended \(crashed\) while it handled Do") as caught:
            await ref.call(Do(handler))
        told.append(caught.value)

    fatal = Fatal("the cause")
    async with trio.open_nursery() as callers:
        with leaving(ActorCrashed) as left:
            async with open_actor(host, name="host") as ref:
                callers.start_soon(ask, ref)
                callers.start_soon(ask, ref)
                await settle()
                host.fail(fatal)
                await trio.sleep_forever()
    assert told[0] is not told[1]
    assert [exc.__cause__ for exc in (*told, left.value)] == [fatal] * 3


async def cancel_when_settled(scope: trio.CancelScope) -> None:
    await settle()
    scope.cancel("the caller gives up")


async def test_a_cancelled_of_another_task_stops_at_the_handler(caplog: pytest.LogCaptureFixture, said: Said) -> None:
    """K2: foreign code may catch a Cancelled in one task and raise it in another."""
    stray = await make_cancelled()
    events: list[Event] = []
    async with open_actor(Host(), name="host", observers=[events.append]) as ref:
        with pytest.raises(ActorError) as stopped:
            await ref.call(Do(raising(stray)))
        said("handler raises a Cancelled of another task", str(stopped.value))
        await ref.tell(Do(raising(stray)))
        assert await ref.call(Get(1)) == 1
    assert [event.message for event in events if isinstance(event, Unhandled)] == ["Do"]
    assert "no caller gets the error" in caplog.text


@pytest.mark.parametrize("where", ["before", "after", "fail"])
async def test_a_cancelled_of_another_task_does_not_leave_running(where: str) -> None:
    stray = await make_cancelled()

    async def escape(_: Host) -> None:
        raise stray

    host = Host(start=escape if where == "before" else None, stop=escape if where == "after" else None)
    with leaving(ActorError, "without a reason") if where == "before" else trio.CancelScope():
        async with open_actor(host, name="host") as ref:
            if where == "fail":
                host.fail(stray)
            assert await ref.call(Get(1)) == 1


async def test_a_cancelled_caller_leaves_at_once_and_its_slot_is_held_until_the_handler_has_unwound(
    autojump_clock: trio.abc.Clock,
) -> None:
    """K3: the caller left at once; the next message waits for the slot, not the caller."""
    left_at: list[float] = []
    host = Host()

    async def unwind_slowly() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await shielded(7)
            host.seen.append("unwound")

    async def caller(ref: ActorRef) -> None:
        with trio.move_on_after(1):
            await ref.call(Do(unwind_slowly))
        left_at.append(trio.current_time())

    async with open_actor(host, name="host") as ref, trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(caller, ref)
        await settle()
        assert await ref.call(Get(1)) == 1
        assert left_at == [began + 1]
        assert trio.current_time() == began + 8
    assert host.seen == ["unwound", 1]


async def test_a_queued_message_whose_caller_left_is_never_served() -> None:
    """K3: and those behind it move up."""
    gate, host = Gate(), Host()
    async with open_actor(host, name="host", mailbox_size=2) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        scopes = [trio.CancelScope() for _ in range(5)]
        for number, scope in enumerate(scopes):
            nursery.start_soon(call_inside, scope, ref, number)
            await settle()
        assert ref.statistics().queued == 5
        scopes[0].cancel("it gives up")
        scopes[3].cancel("it gives up, in the entrance")
        await settle()
        assert ref.statistics().queued == 3
        gate.open()
    assert host.seen == [1, 2, 4]


async def call_inside(scope: trio.CancelScope, ref: ActorRef, number: int) -> None:
    with scope:
        assert await ref.call(Get(number)) == number


async def test_with_a_cancellation_pending_nothing_is_sent() -> None:
    """K3: `call` and `tell` look for one before they do anything."""
    host = Host()
    async with open_actor(host, name="host") as ref:
        with trio.CancelScope() as scope:
            scope.cancel("before the call")
            await ref.call(Get(1))
        with trio.CancelScope() as scope:
            scope.cancel("before the tell")
            await ref.tell(Put(2))
        await settle()
    assert host.seen == []
    for send in (ref.call(Get(3)), ref.tell(Put(4))):
        with trio.CancelScope() as scope:
            scope.cancel("before it could be refused")
            await send
        assert scope.cancelled_caught


async def test_a_message_withdrawn_between_being_taken_and_its_first_step_is_never_handled() -> None:
    """K3: there is a tick between the two."""
    host, scope = Host(), trio.CancelScope()

    async def call(ref: ActorRef) -> None:
        with scope:
            # Taken in this very step: a slot is free. Its task makes its first step in the next tick, and by then
            # the caller has left.
            scope_is_cancelled_soon(scope)
            await ref.call(Get(1))

    async with open_actor(host, name="host") as ref:
        for warm in (False, True):
            scope = trio.CancelScope()
            if warm:
                await ref.call(Get(0))
            await call(ref)
            assert scope.cancelled_caught
            await settle()
            assert ref.statistics().in_flight == 0
        assert await ref.call(Get(2)) == 2
    assert host.seen == [0, 2]


def scope_is_cancelled_soon(scope: trio.CancelScope) -> None:
    """Cancel it right after the step in which this is called, before any task that this step starts has run."""
    task = trio.lowlevel.current_task()

    class Canceller(trio.abc.Instrument):
        def after_task_step(self, stepped: trio.lowlevel.Task) -> None:
            if stepped is task:
                trio.lowlevel.remove_instrument(self)
                scope.cancel("between two steps")

    trio.lowlevel.add_instrument(Canceller())


@pytest.mark.parametrize("order", ["handler first", "caller first"])
async def test_a_caller_that_leaves_as_its_handler_ends_does_not_have_the_next_request_cancelled(order: str) -> None:
    """K3: the slot belongs to another request by the time the owner handles the cancellation."""
    for _ in range(50):
        host, release = Host(), trio.Event()
        async with open_actor(host, name="host") as ref, trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            nursery.start_soon(call_do_inside, scope, ref, release)
            await settle()
            nursery.start_soon(check_echo, ref)
            await settle()
            if order == "handler first":
                release.set()
                scope.cancel("in the very tick")
            else:
                scope.cancel("in the very tick")
                release.set()


async def call_do_inside(scope: trio.CancelScope, ref: ActorRef, release: trio.Event) -> None:
    with scope:
        await ref.call(Do(release.wait))


async def check_echo(ref: ActorRef) -> None:
    async def take_a_while() -> str:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        return "done"

    assert await ref.call(Do(take_a_while)) == "done"


async def test_a_cancelled_request_ends_alone_and_its_slot_is_replaced() -> None:
    """K3: concurrent and later requests are not cancelled with it."""
    gate = Gate()
    async with open_actor(Host(max_in_flight=2), name="host") as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        for _ in range(20):
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_when_settled, scope)
                await ref.call(Do(trio.sleep_forever))
            assert scope.cancelled_caught
            assert await ref.call(Get(1)) == 1
        assert (gate.entered, gate.left) == (1, 0)
        gate.open()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_scope_that_a_handler_has_left_open_does_not_surround_the_next_one(cancelled: bool) -> None:
    """As an asynchronous generator leaves it that is not exhausted: handlers share a task, so the next has another."""
    left_open: list[trio.CancelScope] = []

    async def leave_open() -> None:
        left_open.append(trio.CancelScope())
        left_open[-1].__enter__()
        if cancelled:
            await trio.sleep_forever()

    async def is_not_cancelled() -> bool:
        left_open[-1].cancel("when the next handler runs")
        await trio.lowlevel.checkpoint()
        return True

    async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:
        assert await ref.call(Get(1)) == 1
        with trio.CancelScope() as scope:
            if cancelled:
                nursery.start_soon(cancel_when_settled, scope)
            await ref.call(Do(leave_open))
        assert scope.cancelled_caught is cancelled
        await settle()
        assert await ref.call(Do(is_not_cancelled)) is True


async def test_a_nursery_that_a_handler_has_left_open_crashes_its_actor() -> None:
    """Trio cannot close it, so whatever runs in it would be lost."""

    async def leave_open() -> None:
        await trio.open_nursery().__aenter__()

    with leaving(ActorCrashed, "stack corrupted"):
        async with open_actor(Host(), name="host") as ref:
            await ref.call(Do(leave_open))
            await trio.sleep_forever()


async def test_a_chain_of_many_waiting_actors_is_cancelled_without_recursion() -> None:
    """K3: each owner wakes in a tick of its own."""
    length = 500
    gate = Gate()

    def forward(ref: ActorRef) -> Callable[[], Awaitable[object]]:
        async def run() -> object:
            return await ref.call(Do(nexts[ref]))

        return run

    nexts: dict[ActorRef, Callable[[], Awaitable[object]]] = {}
    async with AsyncExitStack() as stack:
        refs = [await stack.enter_async_context(open_actor(Host(), name=f"link {n}")) for n in range(length)]
        nexts[refs[-1]] = gate
        for ref, following in itertools.pairwise(refs):
            nexts[ref] = forward(following)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref_call, refs[0], nexts[refs[0]])
                while not gate.entered:
                    await settle()
                scope.cancel("the first caller gives up")
        while any(ref.statistics().in_flight for ref in refs):
            await settle()
        assert gate.left == 1
        assert await refs[0].call(Do(forward_value)) == "fine"


async def ref_call(ref: ActorRef, fn: Callable[[], Awaitable[object]]) -> None:
    await ref.call(Do(fn))


async def forward_value() -> str:
    return "fine"


async def test_a_control_message_is_cancelled_with_its_caller_too() -> None:
    gate = Gate()
    async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_settled, scope)
            await ref.call(DoNow(gate))
        await settle()
        assert (gate.entered, gate.left) == (1, 1)
        assert ref.statistics().in_flight == 0
