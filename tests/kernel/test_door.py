"""K8: what leaves `open_actor`: the user's exception as itself, or one failure, or both."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorCrashed, ActorRef, ActorStopped, StopActor, open_actor

from ..messages import Said
from .actors import Boom, Do, Fatal, Get, Host, hook, leaving, raising


@pytest.mark.parametrize("error", [Boom("mine"), ExceptionGroup("mine", [Boom("a"), Boom("b")]), SystemExit(2)])
async def test_an_exception_of_the_block_is_raised_unchanged(error: BaseException) -> None:
    """K8: the same object, with nothing added to it."""
    with leaving(type(error)) as caught:
        async with open_actor(Host(), name="host") as ref:
            await ref.call(Get(1))
            raise error
    assert caught.value is error
    assert error.__context__ is None
    assert error.__cause__ is None


async def test_an_exception_of_the_block_keeps_its_own_context() -> None:
    cause = KeyError("the cause")
    with leaving(Boom) as caught:
        async with open_actor(Host(), name="host"):
            try:
                raise cause
            except KeyError:
                raise Boom  # noqa: B904  # its context is the point
    assert caught.value.__context__ is cause


async def test_a_group_with_a_cancellation_in_it_leaves_as_itself() -> None:
    """K8: the scope outside takes its Cancelled out of it, and the rest goes on."""
    boom = Boom()

    async def fail_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise boom

    with leaving(ExceptionGroup) as caught, trio.CancelScope() as scope:
        async with open_actor(Host(), name="host"), trio.open_nursery() as nursery:
            nursery.start_soon(fail_late)
            nursery.start_soon(trio.sleep_forever)
            await settle()
            scope.cancel("enough")
    assert caught.value.exceptions == (boom,)
    assert scope.cancelled_caught


async def wait_for_it(ref: ActorRef) -> None:
    await trio.sleep_forever()


async def run_into_it(ref: ActorRef) -> None:
    await ref.call(Do(trio.sleep_forever))


async def send_another(ref: ActorRef) -> None:
    await ref.wait_state("stopping")
    await ref.call(Get(1))


async def end_normally(ref: ActorRef) -> None:
    with trio.CancelScope(shield=True):
        await ref.wait_state("stopping", "failed")


async def run_into_it_many_times(ref: ActorRef) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(run_into_it, ref)


@pytest.mark.parametrize("block", [wait_for_it, run_into_it, send_another, end_normally, run_into_it_many_times])
async def test_a_crash_while_the_block_runs_leaves_alone(
    block: Callable[[ActorRef], Awaitable[None]], said: Said
) -> None:
    """K8: the block is cancelled; that its calls failed is the echo of the same crash."""
    host, fatal = Host(max_in_flight=4), Fatal("broken")

    async def crash() -> None:
        await settle()
        host.fail(fatal)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(crash)
        with pytest.raises(ActorCrashed) as caught:
            async with open_actor(host, name="host") as ref:
                await block(ref)
    said("actor crashes around its block", str(caught.value))
    assert caught.value.__cause__ is fatal
    assert ref.state == "failed"


async def test_a_crash_ends_the_block_at_once_and_not_only_after_the_clean_up(autojump_clock: MockClock) -> None:
    """K8: no task works on with an actor that is gone, however long its clean-up takes."""

    async def clean_up(_: Host) -> None:
        await trio.sleep(4)

    host, times = Host(stop=clean_up), []

    async def block() -> None:
        async with open_actor(host, name="host"):
            try:
                host.fail(Fatal("broken"))
                await trio.sleep_forever()
            finally:
                times.append(trio.current_time())

    with pytest.raises(ActorCrashed):
        await block()
    assert [*times, trio.current_time()] == [0, 4]


async def test_the_error_of_the_call_that_crashed_the_actor_is_an_echo_too() -> None:
    """K8: the block did not catch it, so it is the cause of what leaves."""
    fatal = Fatal("broken")
    with pytest.raises(ActorCrashed) as caught:
        async with open_actor(Host(), name="host") as ref:
            await ref.call(Do(raising(fatal)))
    assert caught.value.__cause__ is fatal


@pytest.mark.parametrize("in_a_nursery", [False, True])
async def test_a_crash_and_an_error_of_the_blocks_own_leave_together(in_a_nursery: bool) -> None:
    """K8: as a group, in which no cancellation shows."""
    host, fatal, boom = Host(), Fatal("broken"), Boom("mine")

    async def fail_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise boom

    with leaving(ExceptionGroup, match="actor 'host' failed, and so did the block that opened it") as caught:
        async with open_actor(host, name="host"):
            host.fail(fatal)
            if not in_a_nursery:
                await fail_late()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_late)
                nursery.start_soon(trio.sleep_forever)
    crashed, own = caught.value.exceptions
    assert isinstance(crashed, ActorCrashed)
    assert crashed.__cause__ is fatal
    assert own is boom or (isinstance(own, ExceptionGroup) and own.exceptions == (boom,))


@pytest.mark.parametrize("own", [None, Boom("mine")])
async def test_a_defect_in_a_task_of_the_tree_leaves_the_block_in_place_of_the_cancellation(own: Boom | None) -> None:
    """K8: with an error of the block's own, as a group."""
    defect = LookupError("in a sweep")

    def sweep() -> float:
        raise defect

    with leaving((LookupError, ExceptionGroup)) as caught:
        async with open_actor(Host(), name="host") as ref:
            ref._record.sweeps.add(sweep, 0)
            try:
                await trio.sleep_forever()
            finally:
                if own is not None:
                    raise own
    assert ref.state == "stopped"
    if own is None:
        assert caught.value is defect
    else:
        assert isinstance(caught.value, ExceptionGroup)
        assert caught.value.exceptions == (defect, own)


@pytest.mark.parametrize("who", ["block", "actor", "block's nursery"])
async def test_an_interrupt_takes_precedence_over_another_failure(who: str) -> None:
    """K5, K8: it outranks what failed with it."""
    interrupt, host = KeyboardInterrupt(), Host()

    async def interrupted() -> None:
        raise interrupt

    with leaving((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        async with open_actor(host, name="host"):
            if who == "actor":
                host.fail(interrupt)
                raise Boom
            host.fail(Fatal())
            if who == "block":
                raise interrupt
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupted)
    if who == "block's nursery":
        # As the block raised it: the group is the user's own.
        assert isinstance(caught.value, BaseExceptionGroup)
        assert caught.value.exceptions == (interrupt,)
    else:
        assert caught.value is interrupt


@pytest.mark.parametrize("how", ["StopActor", "stop"])
async def test_a_normal_end_does_not_disturb_the_block(how: str, said: Said) -> None:
    """K8: its calls are refused from then on."""
    host = Host()
    async with open_actor(host, name="host") as ref:
        if how == "stop":
            host.stop("shutdown")
        else:
            with pytest.raises(ActorStopped) as caught:
                await ref.call(Do(raising(StopActor())))
            said("actor ends while it handles a message", str(caught.value))
        await ref.wait_stopped()
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            with pytest.raises(ActorStopped):
                await ref.call(Get(1))
        assert ref.state == "stopped"


async def test_actors_of_one_block_fail_one_by_one() -> None:
    """K8: each door adds nothing to the failure of another."""
    with pytest.raises(ActorCrashed) as caught:
        async with open_actor(Host(), name="outer"), open_actor(Host(), name="inner") as inner:
            await inner.call(Do(raising(Fatal())))
    assert caught.value.actor == "inner"


async def test_a_crash_while_the_actor_stops_is_raised() -> None:
    """A crash that was decided before the block ended is raised, however long the clean-up takes."""
    host = Host(stop=hook(settle))
    with leaving(ActorCrashed, "broken"):
        async with open_actor(host, name="host"):
            host.fail(Fatal("broken"))


@pytest.mark.parametrize("crash", [False, True])
async def test_the_raised_exception_is_in_no_reference_cycle(crash: bool) -> None:
    """Its traceback refers to the frames of the door, which must not refer back to it."""
    gone: list[weakref.ref[BaseException]] = []

    async def fail() -> None:
        host = Host()
        try:
            async with open_actor(host, name="host"):
                if crash:
                    host.fail(Boom())
                    await trio.sleep_forever()
                raise Boom
        except (Boom, ActorCrashed) as exc:
            gone.append(weakref.ref(exc))

    gc.collect()
    gc.disable()
    try:
        await fail()
        await trio.lowlevel.checkpoint()
        assert gone[0]() is None
    finally:
        gc.enable()
