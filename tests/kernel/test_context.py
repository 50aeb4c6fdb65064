"""K7: handlers run in their sender's context variables."""

from __future__ import annotations

import gc
import weakref
from contextvars import ContextVar
from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorRef, NotSent, open_actor

from .actors import Boom, Do, DoNow, Gate, Host, open_child

who: ContextVar[str] = ContextVar("who", default="nobody")


async def ask_who() -> str:
    """Read a variable of the sender, and set one that no other task may see."""
    found = who.get()
    who.set("a handler")
    await trio.lowlevel.checkpoint()
    return found


async def ask_as(name: str, ref: ActorRef, answers: list[str]) -> None:
    who.set(name)
    found = await ref.call(Do(ask_who))
    assert who.get() == name
    answers.append(f"{name} {found}")


async def test_a_handler_sees_its_senders_variables_on_the_direct_path() -> None:
    """K7: and in a slot that served others before, it sees nothing of theirs."""
    async with open_actor(Host(), name="host") as ref:
        for name in ("ada", "grace", "ada"):
            who.set(name)
            assert await ref.call(Do(ask_who)) == name
            assert await ref.call(DoNow(ask_who)) == name
            assert who.get() == name


async def test_a_handler_sees_its_senders_variables_after_the_queue_and_the_entrance() -> None:
    gate, answers = Gate(), list[str]()
    who.set("the test")
    async with open_actor(Host(), name="host", mailbox_size=1) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        for name in ("ada", "grace", "mary"):
            nursery.start_soon(ask_as, name, ref, answers)
            await settle()
        gate.open()
    assert answers == ["ada ada", "grace grace", "mary mary"]


async def test_a_message_does_not_keep_earlier_messages_alive() -> None:
    """K7: each was sent in a context that knows the one before; an actor that tells itself may do so for years."""
    alive, kept = weakref.WeakSet[Do[None]](), list[int]()

    async def tell_next(ref: ActorRef, left: int) -> None:
        kept.append(len(alive))
        if left:
            alive.add(message := Do(partial(tell_next, ref, left - 1)))
            ref.tell_nowait(message)

    async with open_actor(Host(), name="host") as ref:
        await ref.tell(Do(partial(tell_next, ref, 100)))
        await settle()
    assert len(kept) == 101
    assert max(kept) <= 2


async def test_a_tell_keeps_the_variables_of_the_moment_in_which_it_was_sent() -> None:
    gate, found = Gate(), list[str]()

    async def note_who() -> None:
        found.append(await ask_who())

    async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        for name in ("then", "later"):
            who.set(name)
            await ref.tell(Do(note_who))
        who.set("now")
        gate.open()
        await settle()
    assert found == ["then", "later"]


async def test_a_handler_sees_its_senders_variables_after_a_restart() -> None:
    """K7: whether the message was taken already or not; and nothing of an attempt that was not sent."""
    hosts: list[Host] = []
    answers: list[str] = []

    def make() -> Host:
        hosts.append(Host(max_in_flight=1))
        return hosts[-1]

    async def ask_unless_first() -> str:
        found = await ask_who()
        if len(hosts) == 1:
            hosts[0].fail(Boom())
            raise NotSent
        return found

    async def ask(name: str) -> None:
        who.set(name)
        answers.append(f"{name} {await ref.call(Do(ask_unless_first))}")

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")
        for name in ("ada", "grace"):
            nursery.start_soon(ask, name)
    assert sorted(answers) == ["ada ada", "grace grace"]
    assert len(hosts) == 2


async def test_an_idle_actor_does_not_keep_its_last_senders_variables_alive() -> None:
    """K7: the slot stays open for the next request, but holds no context."""

    class Big:
        pass

    held: ContextVar[Big | None] = ContextVar("held", default=None)

    async def call() -> weakref.ref[Big]:
        big = Big()
        held.set(big)
        await ref.call(Do(ask_who))
        return weakref.ref(big)

    async def run() -> None:
        found.append(await call())

    found: list[weakref.ref[Big]] = []
    async with open_actor(Host(), name="host") as ref:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
        gc.collect()
        assert found[0]() is None
