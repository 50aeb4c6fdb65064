"""References: typed calls, snapshots, waiting for states, validity across restarts."""

from __future__ import annotations

from typing import assert_type

import outcome
import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    ActorState,
    ActorStatistics,
    ActorStopped,
    Call,
    Message,
    StopActor,
    open_actor,
)
from mcp_actors.kernel._envelope import Reply

from ..messages import Said
from .actors import Boom, Do, Fatal, Gate, Get, Host, Put, hook, leaving, open_child, raising


class Length(Call[int]):
    """Answered with a number."""


class Names(Call[tuple[str, ...]]):
    """Answered with names."""


class Clear(Call[None]):
    """Answered with nothing."""


class Typed(Actor):
    async def handle(self, message: Length | Names | Clear | Message) -> int | tuple[str, ...] | None:
        match message:
            case Length():
                return 1
            case Names():
                return ("one",)
            case _:
                return None


async def test_the_type_checker_knows_the_result_type_of_a_call() -> None:
    """``class Length(Call[int])`` makes ``await ref.call(Length())`` an ``int``; checked by mypy, and here."""
    async with open_actor(Typed(), name="typed") as ref:
        assert_type(ref, ActorRef)
        length = assert_type(await ref.call(Length()), int)
        names = assert_type(await ref.call(Names()), tuple[str, ...])
        await ref.call(Clear())
        await ref.tell(Length())
        await ref.call(Message())  # type: ignore[arg-type]  # a plain message has no answer to wait for
        assert (length, names) == (1, ("one",))
    async with open_actor(Host(), name="host") as ref:
        assert assert_type(await ref.call(Do(give_text)), str) == "text"


async def give_text() -> str:
    return "text"


async def test_calls_and_tells_are_checkpoints() -> None:
    async with open_actor(Host(), name="host") as ref:
        with assert_checkpoints():
            await ref.call(Get(1))
        with assert_checkpoints():
            await ref.tell(Put(1))
        with assert_checkpoints():
            await ref.wait_state("running")


async def test_a_reference_shows_what_its_actor_is_doing() -> None:
    gate = Gate()
    async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:
        assert repr(ref) == "<ActorRef 'host' running, 0 in flight, 0 queued>"
        for _ in range(3):
            nursery.start_soon(ref.call, Do(gate))
        await settle()
        assert repr(ref) == "<ActorRef 'host' running, 1 in flight, 2 queued>"
        assert ref.statistics() == ActorStatistics(state="running", incarnation=1, queued=2, in_flight=1)
        assert ref.name == "host"
        gate.open()
    assert repr(ref) == "<ActorRef 'host' stopped, 0 in flight, 0 queued>"


async def test_references_to_the_same_actor_are_equal() -> None:
    first, second = Host(), Host()
    async with open_actor(first, name="host") as ref, open_actor(second, name="host") as other:
        assert ref == first.ref
        assert hash(ref) == hash(first.ref)
        assert ref != other
        assert ref != "host"
        assert len({ref, other, first.ref}) == 2


async def test_a_reference_stays_valid_across_restarts(said: Said) -> None:
    async with open_child() as supervisor:
        ref = supervisor.child("child")
        for incarnation in (1, 2, 3):
            assert await ref.call(Get(1)) == 1
            assert ref.statistics().incarnation == incarnation
            with pytest.raises(Fatal):
                await ref.call(Do(raising(Fatal())))
        await supervisor.stop_child("child")
        with pytest.raises(ActorStopped) as refused:
            await ref.call(Get(1))
        said("actor has stopped", str(refused.value))
        await supervisor.restart_child("child")
        assert await ref.call(Get(1)) == 1


async def test_states_can_be_waited_for() -> None:
    reached: list[ActorState] = []

    async def watch(ref: ActorRef, *states: ActorState) -> None:
        reached.append(await ref.wait_state(*states))

    host = Host(stop=hook(settle))
    async with trio.open_nursery() as nursery, open_actor(host, name="host") as ref:
        nursery.start_soon(watch, ref, "running")
        nursery.start_soon(watch, ref, "failed", "stopping")
        nursery.start_soon(watch, ref, "stopped")
        await settle()
        assert reached == ["running"]
        await ref.tell(Do(raising(StopActor())))
        await ref.wait_stopped()
    assert reached == ["running", "stopping", "stopped"]


async def test_a_failed_actor_counts_as_stopped() -> None:
    host = Host()
    with leaving(Exception, "crashed"):
        async with open_actor(host, name="host") as ref:
            host.fail(Boom())
            with trio.CancelScope(shield=True):
                await ref.wait_stopped()
    assert ref.state == "failed"


# --- the slot through which one task answers another ------------------------------------------------------------------


async def test_a_reply_may_be_settled_before_it_is_awaited() -> None:
    reply = Reply[int]()
    assert reply.settle(outcome.Value(3))
    assert not reply.settle(outcome.Error(Boom()))
    assert not reply.awaited
    assert await reply.wait() == 3
    failed = Reply[int]()
    assert failed.settle(outcome.Error(Boom()))
    with pytest.raises(Boom):
        await failed.wait()


async def test_a_reply_whose_waiter_has_left_takes_no_answer() -> None:
    reply = Reply[int]()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reply.wait)
            await settle()
            assert reply.awaited is True
            assert reply.open
            scope.cancel("it gives up")
    assert not reply.open
    assert not reply.settle(outcome.Value(3))
