"""Actors and supervisors that the code of an actor opens."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    ChildSpec,
    Crashed,
    Event,
    RequestStarted,
    Started,
    Supervisor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from .actors import Do, Fatal, Host, hook, of, raising


class Owns(Host):
    """Opens a supervisor for its incarnation."""

    inner: SupervisorRef

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with (
            open_supervisor(ChildSpec("a", Host), name="inner", max_restarts=5) as Owns.inner,
            open_actor(Host(), name="alone"),
            super().running(),
        ):
            yield


async def test_what_an_actor_opens_is_in_the_tree_and_its_events_reach_the_observers() -> None:
    """D-69: of the tree that the actor is in, also those that come later."""
    events: list[Event] = []
    async with (
        open_supervisor(ChildSpec("owner", Owns), name="top", max_restarts=5, observers=[events.append]) as top,
        top.watch_events() as stream,
    ):
        for _ in range(2):
            assert [node.path for node in top.tree().walk()] == [
                "top",
                "top/owner",
                "top/owner/inner",
                "top/owner/inner/a",
                "top/owner/alone",
            ]
            assert "│  └─ a" in str(top.tree()).replace("   │", "│")
            events.clear()
            with pytest.raises(Fatal):
                await Owns.inner.child("a").call(Do(raising(Fatal())))
            await settle()
            assert [event.actor for event in events if isinstance(event, Crashed)] == ["a"]
            assert "RequestStarted" in of(events, RequestStarted)
            with pytest.raises(Fatal):
                await top.child("owner").call(Do(raising(Fatal())))
            await settle()
        assert {event.actor for event in stream.pending() if isinstance(event, Started)} == {
            "owner",
            "inner",
            "a",
            "alone",
        }
        await top.stop_child("owner")
        assert [node.path for node in top.tree().walk()] == ["top", "top/owner"]
        assert top.child("owner").supervisor == top


async def test_a_supervisor_that_a_task_of_an_actor_opens_is_in_the_tree() -> None:
    opened = trio.Event()

    async def work(_: Host) -> None:
        async with open_supervisor(ChildSpec("a", Host), name="inner"):
            opened.set()
            await trio.sleep_forever()

    async with open_supervisor(ChildSpec("owner", Host, kwargs={"background": work})) as top:
        await opened.wait()
        assert [node.id for node in top.tree().walk()] == ["supervisor", "owner", "inner", "a"]


# --- Nothing of an incarnation waits for the garbage collector --------------------------------------------------------


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def fail() -> None:
    raise Fatal


async def crash(ref: ActorRef, _: SupervisorRef) -> None:
    with suppress(Fatal, TypeError):  # a supervisor does not understand it
        await ref.call(Do(fail))


async def stop(ref: ActorRef, top: SupervisorRef) -> None:
    await top.stop_child(ref.name)


async def crash_while_idle(ref: ActorRef, _: SupervisorRef) -> None:
    actor: Actor = ref._record.mailbox.life.actor  # type: ignore[union-attr]  # an incarnation
    actor.fail(Fatal())


@pytest.mark.parametrize(
    "factory",
    [Host, partial(Host, background=hook(trio.sleep_forever)), lambda: Supervisor(ChildSpec("b", Host))],
    ids=["an actor", "one with a task", "a supervisor"],
)
@pytest.mark.parametrize("end", [crash, stop, crash_while_idle])
@pytest.mark.usefixtures("no_collector")
async def test_an_end_leaves_nothing_for_the_collector(
    end: Callable[[ActorRef, SupervisorRef], Awaitable[None]], factory: Callable[[], Actor]
) -> None:
    """D-69: ``gc.collect()`` finds nothing after it."""
    async with open_supervisor(max_restarts=99) as top:
        for number in range(5):
            await top.start_child(ChildSpec(f"a{number}", factory))
        await settle()
        gc.collect()
        for number in range(5):
            await end(top.child(f"a{number}"), top)
        await settle()
        assert gc.collect() == 0
