"""Handlers that finish when their actor is asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorStopped,
    ChildError,
    ChildSpec,
    Event,
    Pool,
    Postpone,
    Stopped,
    Stopping,
    Supervisor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Do, DoNow, Fatal, Gate, Get, Host, Put, hook, of, raising


class Finishing(Host):
    finish_on_stop = True


class Calls:
    """Outcomes of calls by their names."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.outcomes: dict[str, object] = {}
        self._nursery = nursery

    async def send(self, name: str, ref: Any, message: Any) -> None:
        async def call() -> None:
            try:
                self.outcomes[name] = await ref.call(message)
            except Exception as exc:
                self.outcomes[name] = type(exc)

        self._nursery.start_soon(call)
        await settle()


@pytest.mark.parametrize(
    ("factory", "drain", "outcomes"),
    [
        (Host, False, {"begun": ActorStopped, "queued": ActorStopped, "late": ActorStopped}),
        (Finishing, False, {"begun": "through", "queued": ActorStopped, "late": ActorStopped}),
        (Host, True, {"begun": "through", "queued": 1, "late": ActorStopped}),
        (Finishing, True, {"begun": "through", "queued": 1, "late": ActorStopped}),
    ],
)
async def test_what_has_begun_and_what_is_queued_is_finished_if_the_program_says_so(
    factory: Callable[[], Actor], drain: bool, outcomes: dict[str, object]
) -> None:
    """D-71: a message that comes after the request to stop is refused at once."""
    gate = Gate()
    async with open_supervisor(ChildSpec("a", factory)) as top, trio.open_nursery() as nursery:
        a, calls = top.child("a"), Calls(nursery)
        await calls.send("begun", a, Do(gate))
        await calls.send("queued", a, Get(1))
        nursery.start_soon(lambda: top.stop_child("a", drain=drain))
        await settle()
        assert a.state == ("stopping" if factory is Finishing or drain else "stopped")
        await calls.send("late", a, Get(2))
        assert calls.outcomes["late"] is ActorStopped
        gate.open()
        await a.wait_stopped()
        await settle()
        assert calls.outcomes == outcomes


async def test_an_actor_with_nothing_to_finish_stops_at_once(autojump_clock: MockClock) -> None:
    async with open_supervisor(ChildSpec("a", Finishing), ChildSpec("b", Host)) as top:
        assert await top.child("a").call(Get(1)) == 1
        for id in ("a", "b"):
            await top.stop_child(id, drain=True)
            assert top.child(id).state == "stopped"
        await top.stop_child("b", drain=True)
        with pytest.raises(ChildError):
            await top.stop_child("c", drain=True)
    assert trio.current_time() < 1


@pytest.mark.parametrize("shutdown", [3, "brutal_kill"])
async def test_a_handler_that_does_not_finish_in_time_is_cancelled(autojump_clock: MockClock, shutdown: Any) -> None:
    """D-71: within ``shutdown``."""
    events: list[Event] = []
    async with (
        open_supervisor(ChildSpec("a", Finishing, shutdown=shutdown), observers=[events.append]) as top,
        trio.open_nursery() as nursery,
    ):
        calls = Calls(nursery)
        await calls.send("begun", top.child("a"), Do(trio.sleep_forever))
        began = trio.current_time()
        await top.stop_child("a")
        assert trio.current_time() - began == pytest.approx(0 if shutdown == "brutal_kill" else 3)
        assert calls.outcomes == {"begun": ActorStopped}
        assert of(events, Stopping, Stopped) == ["Stopping", "Stopped"]


async def test_the_end_of_a_block_lets_handlers_finish() -> None:
    """D-71: also those of an actor without a supervisor, and of a child of a supervisor that stops."""
    gate = Gate()
    async with trio.open_nursery() as nursery:
        calls = Calls(nursery)
        async with open_actor(Finishing(), name="alone") as ref:
            await calls.send("alone", ref, Do(gate))
            nursery.start_soon(trio.testing.wait_all_tasks_blocked)
            gate.open()
        second = Gate()
        async with open_supervisor(ChildSpec("a", Finishing), ChildSpec("b", Host)) as top:
            await calls.send("child", top.child("a"), Do(second))
            await calls.send("other", top.child("b"), Do(second))

            async def open_later() -> None:
                await top.child("b").wait_stopped()
                second.open()

            nursery.start_soon(open_later)
    assert calls.outcomes == {"alone": "through", "child": "through", "other": ActorStopped}


async def test_a_crash_while_handlers_finish_ends_the_stop() -> None:
    gate = Gate()

    async def fail() -> None:
        await gate()
        raise Fatal

    async with open_supervisor(ChildSpec("a", Finishing), max_restarts=0) as top, trio.open_nursery() as nursery:
        calls = Calls(nursery)
        await calls.send("begun", top.child("a"), Do(fail))
        nursery.start_soon(top.stop_child, "a")
        await settle()
        gate.open()
        await settle()
        assert (top.child("a").state, calls.outcomes) == ("stopped", {"begun": Fatal})


async def test_with_an_open_mailbox_queued_messages_wait_for_the_next_incarnation() -> None:
    gate = Gate()
    async with open_supervisor(ChildSpec("a", Finishing)) as top, trio.open_nursery() as nursery:
        a, calls = top.child("a"), Calls(nursery)
        await calls.send("begun", a, Do(gate))
        await calls.send("queued", a, Get(1))
        nursery.start_soon(lambda: top.stop_child("a", keep_mailbox=True))
        await settle()
        await calls.send("late", a, Get(2))
        gate.open()
        await settle()
        assert calls.outcomes == {"begun": "through"}
        await top.restart_child("a")
        await settle()
        assert calls.outcomes == {"begun": "through", "queued": 1, "late": 2}


async def test_a_group_that_is_restarted_lets_handlers_finish() -> None:
    gate = Gate()
    async with (
        open_supervisor(ChildSpec("a", Finishing), ChildSpec("b", Host), strategy="one_for_all") as top,
        trio.open_nursery() as nursery,
    ):
        calls = Calls(nursery)
        await calls.send("begun", top.child("a"), Do(gate))
        await calls.send("fails", top.child("b"), Do(raising(Fatal())))
        assert top.child("a").state == "stopping"
        gate.open()
        await settle()
        assert calls.outcomes == {"begun": "through", "fails": Fatal}
        assert top.child("a").statistics().incarnation == 2


async def test_a_second_stop_does_not_cut_a_drain_short() -> None:
    gate = Gate()
    async with trio.open_nursery() as nursery:
        calls = Calls(nursery)
        async with open_supervisor(ChildSpec("a", Host)) as top:
            a = top.child("a")
            await calls.send("begun", a, Do(gate))
            await calls.send("queued", a, Get(1))

            async def drain() -> None:
                with suppress(ActorStopped):  # the supervisor may end first
                    await top.stop_child("a", drain=True)

            nursery.start_soon(drain)
            await settle()
            nursery.start_soon(_open, gate)
    assert calls.outcomes == {"begun": "through", "queued": 1}


async def _open(gate: Gate) -> None:
    await settle()
    gate.open()


async def test_deferred_messages_finish_if_they_keep_their_slot_and_control_messages_too() -> None:
    gate, control = Gate(), Gate()
    async with open_supervisor(ChildSpec("a", Finishing)) as top, trio.open_nursery() as nursery:
        a, calls = top.child("a"), Calls(nursery)
        await calls.send("control", a, DoNow(control))
        await calls.send("begun", a, Do(gate))
        nursery.start_soon(top.stop_child, "a")
        await settle()
        gate.open()
        await settle()
        assert (calls.outcomes, a.state) == ({"begun": "through"}, "stopping")
        control.open()
        await settle()
        assert a.state == "stopped"


async def test_a_message_that_is_postponed_while_others_finish_is_refused() -> None:
    gate = Gate()

    async def postpone() -> None:
        await gate()
        raise Postpone

    async with open_supervisor(ChildSpec("a", Finishing)) as top, trio.open_nursery() as nursery:
        calls = Calls(nursery)
        await calls.send("begun", top.child("a"), Do(postpone))
        nursery.start_soon(top.stop_child, "a")
        await settle()
        gate.open()
        await settle()
        assert calls.outcomes == {"begun": ActorStopped}


async def test_a_child_that_crashed_before_it_was_drained_leaves_no_message_behind() -> None:
    gate = Gate()

    async def fail() -> None:
        await gate()
        raise Fatal

    async with open_supervisor(ChildSpec("a", Host)) as top, trio.open_nursery() as nursery:
        calls = Calls(nursery)
        await calls.send("begun", top.child("a"), Do(fail))
        await calls.send("queued", top.child("a"), Get(1))
        nursery.start_soon(lambda: top.stop_child("a", drain=True))
        await settle()
        gate.open()
        await settle()
        assert calls.outcomes == {"begun": Fatal, "queued": ActorStopped}


async def test_a_handler_that_finishes_cannot_wait_for_the_end_of_its_actor() -> None:
    gate = Gate()
    async with open_supervisor(ChildSpec("a", Finishing)) as top, trio.open_nursery() as nursery:
        calls = Calls(nursery)

        async def change() -> None:
            await gate()
            await top.start_child(ChildSpec("b", Host))

        await calls.send("begun", top.child("a"), Do(change))
        nursery.start_soon(top.stop_child, "a")
        await settle()
        gate.open()
        await settle()
        assert calls.outcomes == {"begun": ActorError}


async def test_a_task_of_an_actor_that_finishes_may_call_others() -> None:
    gate, go_on, answers = Gate(), trio.Event(), []

    async def work(_: Host) -> None:
        await go_on.wait()
        answers.append(await other.call(Get(1)))
        gate.open()

    async with (
        open_actor(Host(), name="other") as other,
        open_supervisor(ChildSpec("a", Finishing, kwargs={"background": work})) as top,
        trio.open_nursery() as nursery,
    ):
        await Calls(nursery).send("begun", top.child("a"), Do(gate))
        nursery.start_soon(top.stop_child, "a")
        await settle()
        go_on.set()
    assert answers == [1]


@pytest.mark.parametrize("busy", [False, True])
async def test_an_actor_that_is_drained_handles_what_it_has_postponed(busy: bool) -> None:
    """D-71: whether a message is postponed before the request to stop, or after it."""

    class Waiting(Host):
        ready = False

        async def handle(self, message: Any) -> Any:
            if isinstance(message, Put | Get) and not self.ready:
                raise Postpone
            return await super().handle(message)

    gate, actor = Gate(), Waiting()

    async def begin() -> None:
        await gate()
        actor.ready = True
        actor.resume()

    async with open_supervisor(ChildSpec("a", lambda: actor)) as top, trio.open_nursery() as nursery:
        a, calls = top.child("a"), Calls(nursery)
        if busy:
            await calls.send("busy", a, Do(gate))
        await a.tell(Put(1))
        await calls.send("postponed", a, Get(2))
        await calls.send("begin", a, Do(begin))
        nursery.start_soon(lambda: top.stop_child("a", drain=True))
        await settle()
        gate.open()
        await a.wait_stopped()
        await settle()
        assert (actor.seen, calls.outcomes["postponed"]) == ([1, 2], 2)


@pytest.mark.parametrize("key", [None, lambda _: 0])
async def test_a_pool_whose_last_member_is_given_up_while_it_is_drained_has_stopped(
    key: Any, autojump_clock: MockClock
) -> None:
    """D-71: nothing is left that could handle what is queued, so its callers get an error."""
    gate = Gate()

    async def fail() -> None:
        await gate()
        raise Fatal

    pool = partial(Pool, Host, 1, key=key, max_restarts=0, on_limit="park")
    async with open_supervisor(ChildSpec("db", pool, shutdown=5)) as top, trio.open_nursery() as nursery:
        db, calls = top.child("db"), Calls(nursery)
        await calls.send("begun", db, Do(fail))
        await calls.send("queued", db, Get(1))
        nursery.start_soon(lambda: top.stop_child("db", drain=True))
        await settle()
        gate.open()
        await db.wait_stopped()
        await settle()
        assert (trio.current_time(), calls.outcomes) == (0, {"begun": Fatal, "queued": ActorStopped})


@pytest.mark.parametrize("key", [None, lambda message: id(message)])
async def test_a_pool_is_drained_by_all_of_its_members(key: Any) -> None:
    """D-71."""
    gate = Gate()
    seen: list[int] = []
    async with (
        open_supervisor(ChildSpec("db", lambda: Pool(lambda: Host(seen=seen), 2, key=key))) as top,
        trio.open_nursery() as nursery,
    ):
        db, calls = top.child("db", SupervisorRef), Calls(nursery)
        for id in ("db-1", "db-2"):
            await calls.send(id, db.child(id), Do(gate))
        for number in range(6):
            await db.tell(Put(number))
        nursery.start_soon(lambda: top.stop_child("db", drain=True))
        await settle()
        assert (db.state, seen) == ("stopping", [])
        gate.open()
        await db.wait_stopped()
        await settle()
        assert (sorted(seen), calls.outcomes) == ([*range(6)], {"db-1": "through", "db-2": "through"})


async def test_a_drain_that_cannot_be_carried_out_is_refused(said: Said) -> None:
    async with open_supervisor(ChildSpec("inner", Supervisor)) as top:
        with pytest.raises(ActorError) as refused:
            await top.stop_child("inner", drain=True)
        said("a supervisor cannot be drained", str(refused.value))
        with pytest.raises(ValueError) as wrong:  # noqa: PT011 - the table has the whole message
            await top.stop_child("inner", drain=True, keep_mailbox=True)
        said("keep_mailbox with drain", str(wrong.value))


async def test_a_child_that_starts_is_not_drained() -> None:
    gate = Gate()
    async with open_supervisor() as top, trio.open_nursery() as nursery:
        calls = Calls(nursery)

        async def start() -> None:
            with pytest.raises(ActorError):
                await top.start_child(ChildSpec("a", Finishing, kwargs={"start": hook(gate)}))

        nursery.start_soon(start)
        await settle()
        await calls.send("queued", top.child("a"), Get(1))
        await top.stop_child("a", drain=True)
        await settle()
        assert calls.outcomes == {"queued": ActorStopped}
