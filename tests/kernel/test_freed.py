"""An incarnation that has ended is freed without the garbage collector."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorRef,
    ChildSpec,
    Later,
    StopActor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from .actors import Do, Get, Host, Put


class Broken(Exception):
    """Ends an incarnation."""


class Lives:
    """Makes actors and exceptions, and knows which of them still exist."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.actors: list[weakref.ref[Ends]] = []
        self.others: list[weakref.ref[Any]] = []
        self.die = trio.Event()

    def error(self) -> Broken:
        error = Broken()
        self.others.append(weakref.ref(error))
        return error

    def message(self, fn: Callable[[], Awaitable[Any]]) -> Do[Any]:
        message = Do(fn)
        self.others.append(weakref.ref(message))
        return message

    async def raise_error(self, _: Host | None = None) -> None:
        raise self.error()

    async def raise_later(self, _: Host) -> None:
        await self.die.wait()
        raise self.error()

    def make(self) -> Ends:
        hooks: dict[str, dict[str, Any]] = {
            "fails to start": {"start": self.raise_error},
            "fails to stop": {"stop": self.raise_error},
            "background": {"background": self.raise_later},
        }
        actor = Ends(**({} if self.actors else hooks.get(self.how, {})))
        self.actors.append(weakref.ref(actor))
        return actor

    @property
    def first(self) -> Ends:
        actor = self.actors[0]()
        assert actor is not None
        return actor


class Ends(Host):
    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Broken)


async def asked(lives: Lives, ref: ActorRef, _: SupervisorRef) -> None:
    with suppress(Broken):
        await ref.call(lives.message(lives.raise_error))


async def told(lives: Lives, ref: ActorRef, _: SupervisorRef | None = None) -> None:
    await ref.tell(lives.message(lives.raise_error))


async def failed(lives: Lives, ref: ActorRef, _: SupervisorRef) -> None:
    lives.first.fail(lives.error())


async def failed_in_flight(lives: Lives, ref: ActorRef, _: SupervisorRef) -> None:
    async def ask() -> None:
        with suppress(ActorCrashed):
            await ref.call(lives.message(trio.sleep_forever))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await settle()
        lives.first.fail(lives.error())


async def stopped(lives: Lives, ref: ActorRef, top: SupervisorRef) -> None:
    await top.stop_child("child")
    await top.restart_child("child")


async def stopped_itself(lives: Lives, ref: ActorRef, _: SupervisorRef) -> None:
    async def stop() -> None:
        raise StopActor

    await ref.tell(lives.message(stop))


async def with_a_timer(lives: Lives, ref: ActorRef, top: SupervisorRef) -> None:
    lives.first.every(5, Put(1))
    lives.first.watch(top)
    lives.first.fail(lives.error())


async def with_a_timer_that_runs(lives: Lives, ref: ActorRef, top: SupervisorRef) -> None:
    actor = lives.first
    actor.every(60, lives.message(trio.lowlevel.checkpoint))
    del actor
    await settle()
    await stopped(lives, ref, top)


async def in_the_background(lives: Lives, ref: ActorRef, _: SupervisorRef) -> None:
    lives.die.set()


async def at_once(lives: Lives, ref: ActorRef, _: SupervisorRef) -> None:
    """It has failed to start."""


ENDS: Final[dict[str, Callable[[Lives, ActorRef, SupervisorRef], Awaitable[None]]]] = {
    "asked": asked,
    "told": told,
    "failed": failed,
    "failed in flight": failed_in_flight,
    "stopped": stopped,
    "stopped itself": stopped_itself,
    "fails to stop": stopped,
    "fails to start": at_once,
    "background": in_the_background,
    "timer": with_a_timer,
    "timer that runs": with_a_timer_that_runs,
}


@pytest.fixture
def no_collector() -> Iterator[None]:
    logging.disable()  # pytest keeps the records, and so the exceptions
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.usefixtures("no_collector")
async def test_the_end_of_an_incarnation_frees_it_at_once(how: str) -> None:
    """C-37: the actor, its messages, and the exception that has ended it, whose traceback refers to all of them."""
    lives = Lives(how)
    with trio.fail_after(60):
        async with open_supervisor(ChildSpec("child", lives.make), strict=False, max_restarts=3) as top:
            await ENDS[how](lives, top.child("child"), top)
            await settle()
            assert top.child("child").statistics().incarnation == 2
            assert [actor() is None for actor in lives.actors] == [True, False]
            assert [each for each in lives.others if each() is not None] == []


@pytest.mark.parametrize("how", ["left", "crash"])
@pytest.mark.usefixtures("no_collector")
async def test_the_end_of_the_block_frees_its_actor_at_once(how: str) -> None:
    """C-37: without a supervisor too."""
    lives = Lives(how)
    with suppress(ActorCrashed):
        async with open_actor(lives.make(), name="alone") as ref:
            if how == "crash":
                await told(lives, ref)
                await trio.sleep_forever()
    await settle()
    assert lives.actors[0]() is None
    assert [each for each in lives.others if each() is not None] == []


class Defers(Actor):
    """Answers later, by what its program keeps."""

    def __init__(self, kept: list[Later[int]]) -> None:
        self.kept = kept

    async def handle(self, message: Get) -> Later[int]:
        self.kept.append(self.defer(message))
        return self.kept[-1]


@pytest.mark.usefixtures("no_collector")
async def test_a_later_that_the_program_keeps_does_not_keep_its_actor() -> None:
    """C-37."""
    kept: list[Later[int]] = []
    actor = Defers(kept)
    gone = weakref.ref(actor)
    async with open_actor(actor, name="defers") as ref, trio.open_nursery() as nursery:
        del actor
        nursery.start_soon(ref.call, Get(1))
        await settle()
        assert kept[0].reply(1)
    await settle()
    assert gone() is None
