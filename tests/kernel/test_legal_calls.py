"""B-35: calls that end by themselves are never refused, although they look like a circle."""

from __future__ import annotations

import contextvars
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorError, ChildSpec, SupervisorRef, open_actor, open_supervisor
from mcp_actors.kernel._circles import act_for_caller, current_sender

from .actors import Do, Gate, Get, Host, Put
from .test_circles import Fn, ask, hosts, outcome


def spawn(nursery: trio.Nursery, fn: Fn, said: list[Any]) -> Fn:
    """Return a function for a handler that starts a task in a nursery around the actor, and does not wait for it."""

    async def run() -> None:
        said.append(await outcome(fn))

    async def start() -> None:
        nursery.start_soon(run)

    return start


def then(*fns: Fn) -> Fn:
    """Return a function that awaits several, one after the other."""

    async def run() -> None:
        for fn in fns:
            await fn()

    return run


# --- tasks that a handler has started in the nursery of another task --------------------------------------------------


async def test_a_task_in_an_outer_nursery_may_call_the_actor_whose_handler_started_it() -> None:
    async with hosts(1) as [p], trio.open_nursery() as nursery:
        gate, said = Gate(), list[Any]()
        nursery.start_soon(p.call, Do(then(spawn(nursery, partial(p.call, Get(1)), said), gate)))
        await settle()
        assert p.statistics().queued == 1
        gate.open()
    assert said == [1]


async def test_a_call_of_a_task_in_an_outer_nursery_is_not_waited_for_by_the_handler() -> None:
    """The handler of p has started a task that calls q, which calls p. It waits for neither."""
    async with hosts(1, 1) as [p, q], trio.open_nursery() as nursery:
        gate, said = Gate(), list[Any]()
        nursery.start_soon(p.call, Do(then(spawn(nursery, ask(q, partial(p.call, Get(1))), said), gate)))
        await settle()
        assert p.statistics().queued == 1
        gate.open()
    assert said == [1]


async def test_a_task_in_an_outer_nursery_may_wait_for_room_in_the_mailbox() -> None:
    async with hosts(1, mailbox_size=1) as [p], trio.open_nursery() as nursery:
        gate, said = Gate(), list[Any]()
        tells = then(partial(p.tell, Put(1)), partial(p.tell, Put(2)))
        nursery.start_soon(p.call, Do(then(spawn(nursery, tells, said), gate)))
        await settle()
        assert p.statistics().queued == 2
        gate.open()
    assert said == [None]


async def test_a_child_task_of_a_task_in_an_outer_nursery_may_call_too() -> None:
    async with hosts(1) as [p], trio.open_nursery() as nursery:
        gate, said = Gate(), list[Any]()

        async def nested() -> None:
            async with trio.open_nursery() as inner:
                inner.start_soon(spawn(inner, partial(p.call, Get(1)), said))

        nursery.start_soon(p.call, Do(then(spawn(nursery, nested, []), gate)))
        await settle()
        gate.open()
    assert said == [1]


async def test_a_task_in_an_outer_nursery_may_have_its_child_stopped() -> None:
    said: list[Any] = []
    async with trio.open_nursery() as nursery, open_supervisor(ChildSpec("p", Host)) as supervisor:
        p = supervisor.child("p")
        await p.call(Do(spawn(nursery, partial(supervisor.stop_child, "p"), said)))
        await p.wait_stopped()
        await settle()
    assert said == [None]


async def test_a_task_in_an_outer_nursery_may_wait_for_the_start_of_the_actor_that_started_it() -> None:
    said: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def start(host: Host) -> None:
            await spawn(nursery, partial(host.ref.call, Get(1)), said)()
            await settle()

        async with open_actor(Host(start=start), name="host"):
            await settle()
            assert said == [1]


@pytest.mark.parametrize("abandon", [False, True])
async def test_a_thread_that_calls_back_counts_as_its_handler(abandon: bool) -> None:
    """The handler waits for the thread, in whatever task Trio runs what the thread asks for."""
    async with hosts(1) as [p]:

        async def in_thread() -> Any:
            call = partial(trio.from_thread.run, outcome, partial(p.call, Get(1)))
            return await trio.to_thread.run_sync(call, abandon_on_cancel=abandon)

        assert "called itself" in await outcome(partial(p.call, Do(in_thread)))


async def test_a_task_that_joins_the_handler_whose_context_it_has_counts_as_that() -> None:
    """Also if several handlers run."""
    async with hosts(1) as [q], trio.open_nursery() as nursery:
        host, gate, said = Host(max_in_flight=2), Gate(), list[Any]()
        async with open_actor(host, name="p") as p:

            async def join_and_call() -> Any:
                host.join_handler()
                return await p.call(Get(1))

            nursery.start_soon(p.call, Do(gate))
            nursery.start_soon(p.call, Do(then(spawn(nursery, join_and_call, said), gate)))
            await settle()
            gate.open()
            assert await q.call(Get(1)) == 1
    assert "called itself" in said[0]


async def test_a_task_may_act_for_the_caller_whose_context_it_has() -> None:
    """So does the bridge, for callers on asyncio."""
    async with hosts(1) as [p], trio.open_nursery() as nursery:
        gate, said = Gate(), list[Any]()

        async def for_caller() -> Any:
            act_for_caller()
            return await p.call(Get(1))

        nursery.start_soon(p.call, Do(then(spawn(nursery, for_caller, said), gate)))
        await settle()
        gate.open()
        act_for_caller()
        assert current_sender() is None
    assert "called itself" in said[0]


# --- deadlines --------------------------------------------------------------------------------------------------------


def within(seconds: float, fn: Fn) -> Fn:
    """Return a function that gives up after so many seconds, and then returns None."""

    async def run() -> Any:
        with trio.move_on_after(seconds):
            return await fn()

    return run


async def test_a_call_under_a_deadline_may_be_called_back(autojump_clock: MockClock) -> None:
    """The calls p → q → p, where p gives up after a second: q's call is served after that, as if p had been busy."""
    async with hosts(1, 1) as [p, q], trio.open_nursery() as nursery:
        said: list[Any] = []

        async def call_back() -> None:
            await spawn(nursery, partial(p.call, Get(1)), said)()
            said.append(await outcome(partial(p.call, Get(2))))

        await p.call(Do(within(1, ask(q, call_back))))
        assert trio.current_time() == 1
    assert said == [1]


async def test_a_call_back_under_a_deadline_is_not_refused(autojump_clock: MockClock) -> None:
    async with hosts(1, 1) as [p, q]:
        assert await p.call(Do(ask(q, within(1, partial(p.call, Get(1)))))) is None
        assert trio.current_time() == 1


async def test_a_tell_under_a_deadline_waits_for_room_that_long(autojump_clock: MockClock) -> None:
    async with hosts(1, mailbox_size=1) as [p]:
        await p.call(Do(then(partial(p.tell, Put(1)), within(1, partial(p.tell, Put(2))))))
        assert trio.current_time() == 1


async def test_a_tell_to_oneself_waits_for_room_that_another_handler_makes() -> None:
    gate = Gate()
    async with hosts(2, mailbox_size=1) as [p], trio.open_nursery() as nursery:
        nursery.start_soon(p.call, Do(gate))
        nursery.start_soon(p.call, Do(then(partial(p.tell, Put(1)), partial(p.tell, Put(2)))))
        await settle()
        assert p.statistics().queued == 2
        gate.open()


async def test_an_actor_that_starts_may_call_itself_under_a_deadline_of_its_own(autojump_clock: MockClock) -> None:
    answers: list[Any] = []

    async def start(host: Host) -> None:
        answers.append(await within(1, partial(host.ref.call, Get(1)))())

    async with open_actor(Host(start=start), name="host"):
        assert trio.current_time() == 1
    assert answers == [None]


async def test_an_actor_that_is_opened_under_a_deadline_may_call_back_the_handler(autojump_clock: MockClock) -> None:
    async with hosts(1) as [p]:

        async def start(host: Host) -> None:
            await p.call(Get(1))

        async def open_another() -> None:
            async with open_actor(Host(start=start), name="inner"):
                raise AssertionError("it never starts")

        await p.call(Do(within(1, open_another)))
        assert trio.current_time() == 1


async def test_a_child_may_ask_for_a_change_under_a_deadline_while_it_restarts(autojump_clock: MockClock) -> None:
    supervisor: SupervisorRef
    starts = iter([None])

    async def ask_for_a_while(_: Host) -> None:
        await within(1, partial(supervisor.delete_child, "q"))()

    specs = ChildSpec("p", lambda: Host(start=next(starts, ask_for_a_while))), ChildSpec("q", Host)
    async with open_supervisor(*specs) as supervisor:
        await supervisor.stop_child("p")
        await supervisor.restart_child("p")
        assert trio.current_time() == 1


async def test_a_deadline_around_a_circle_changes_nothing() -> None:
    """It ends the waiting, but in none of the handlers: only what a handler bounds by itself is not refused."""
    said: list[Any] = []

    async def start(host: Host) -> None:
        said.append(await outcome(partial(host.ref.call, Get(1))))

    with trio.fail_after(60):
        async with open_actor(Host(start=start), name="host"):
            pass
    assert "'host' (starting)" in said[0]


async def test_a_deadline_around_a_joined_task_changes_nothing_and_one_inside_does(autojump_clock: MockClock) -> None:
    host, said = Host(), list[Any]()
    host.reentrant = True
    async with trio.open_nursery() as nursery, open_actor(host, name="p") as p:

        async def join_and_call(seconds: float) -> None:
            with trio.fail_after(10):
                host.join_handler()
                said.append(await outcome(within(seconds, partial(p.call, Get(1)))))

        async def handler() -> None:
            for seconds in (20, 2):
                await spawn(nursery, partial(join_and_call, seconds), [])()
                await trio.sleep(5)

        await p.call(Do(handler))
    assert "deadlock" in said[0]
    assert said[1:] == [None]


async def test_a_deadline_around_code_that_enters_a_context_is_not_the_handlers() -> None:
    """The bridge enters contexts of asyncio's tasks, whose deadlines Trio does not know."""
    host, gate, contexts = Host(), Gate(), list[contextvars.Context]()
    host.reentrant = True
    async with open_actor(host, name="p") as p, trio.open_nursery() as nursery:

        async def leave_context() -> None:
            contexts.append(contextvars.copy_context())
            await gate()

        nursery.start_soon(p.call, Do(leave_context))
        await settle()
        with trio.fail_after(60):
            await trio.lowlevel.checkpoint()
            with pytest.raises(ActorError, match="deadlock"):
                contexts[0].run(p.send_request, Get(1))
        gate.open()
