"""B-35: calls that would wait for each other for ever are refused, and only those."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorError,
    ActorRef,
    ActorStopped,
    Backoff,
    ChildSpec,
    Event,
    MailboxFull,
    Starting,
    Supervisor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)
from mcp_actors.kernel._circles import Node, find_circle, serving
from mcp_actors.kernel._incarnation import Incarnation

from ..messages import Said
from .actors import Do, DoNow, Fatal, Gate, Get, Host, Put, hook, open_child, raising

Fn = Callable[[], Awaitable[Any]]


def ask(ref: ActorRef, fn: Fn) -> Fn:
    """A step of a handler that makes another actor's handler do something."""
    return partial(ref.call, Do(fn))


async def outcome(fn: Fn) -> Any:
    """Return a result, or the text of a refusal."""
    # From outside, a deadlock fails the test and does not hang it. An actor's own deadline would end a circle.
    seconds = 10 if serving.get() is None else math.inf
    try:
        with trio.fail_after(seconds):
            return await fn()
    except ActorError as exc:
        return str(exc)


@asynccontextmanager
async def hosts(*limits: int, **options: Any) -> AsyncIterator[list[ActorRef]]:
    """Run actors ``"p"``, ``"q"``, ``"r"`` that handle so many messages at a time."""
    refs: list[ActorRef] = []
    async with trio.open_nursery() as nursery:
        done = trio.Event()

        async def run(name: str, limit: int, task_status: trio.TaskStatus[ActorRef]) -> None:
            async with open_actor(Host(max_in_flight=limit), name=name, **options) as ref:
                task_status.started(ref)
                await done.wait()

        for name, limit in zip("pqr", limits, strict=False):
            refs.append(await nursery.start(run, name, limit))
        yield refs
        done.set()


# --- one request ------------------------------------------------------------------------------------------------------


async def test_an_actor_that_is_called_back_is_not_waited_for() -> None:
    """B-35: p → q → p. The error says who waits for whom, and what to do; both serve on."""
    async with hosts(1, 1) as [p, q]:
        said = await outcome(ask(p, ask(q, partial(p.call, Get(1)))))
        assert said.startswith("actor 'p': this call would deadlock")
        assert "'q' (handling Do) waits for 'p' (handling Do), 'p' (handling Do) waits for 'q' (handling Do)" in said
        assert "tell()" in said
        assert "max_in_flight" in said
        assert await p.call(Get(1)) + await q.call(Get(2)) == 3


async def test_a_longer_circle_is_found() -> None:
    """B-35: p → q → r → p."""
    async with hosts(1, 1, 1) as [p, q, r]:
        said = await outcome(ask(p, ask(q, ask(r, partial(p.call, Get(1))))))
        assert [said.count(f"{name} (handling Do) waits for") for name in ("'p'", "'q'", "'r'")] == [1, 1, 1]


@pytest.mark.parametrize("busy", [False, True])
async def test_an_actor_with_another_slot_may_be_called_back(busy: bool) -> None:
    """B-35: also if that slot is taken just now, by something that gets on."""
    gate = Gate()
    async with hosts(2, 1) as [p, q], trio.open_nursery() as nursery:
        if busy:
            nursery.start_soon(p.call, Do(gate))
            await settle()
        answers: list[int] = []

        async def call() -> None:
            answers.append(await p.call(Do(ask(q, partial(p.call, Get(1))))))

        nursery.start_soon(call)
        await settle()
        assert answers == ([] if busy else [1])
        gate.open()
    assert answers == [1]


async def test_a_slot_whose_handler_has_not_begun_counts_as_making_progress() -> None:
    """B-35: its receiver has not begun yet, and may need no other actor."""
    async with hosts(2, 1) as [p, q]:

        async def call_back() -> int:
            p.tell_nowait(Put(0))
            return await p.call(Get(1))

        assert await p.call(Do(ask(q, call_back))) == 1


async def test_a_control_message_may_call_back() -> None:
    """B-35: a control message is served at once."""
    async with hosts(1, 1) as [p, q]:

        async def one() -> int:
            return 1

        assert await p.call(Do(ask(q, partial(p.call, DoNow(one))))) == 1


async def test_the_handler_of_a_tell_may_call_back() -> None:
    """B-35: no task waits for the outcome of a tell."""
    async with hosts(1, 1) as [p, q]:
        answers: list[int] = []

        async def call_back() -> None:
            answers.append(await p.call(Get(1)))

        await p.call(Do(partial(q.tell, Do(call_back))))
        await settle()
        assert answers == [1]


async def test_a_tell_back_to_a_full_mailbox_fails_instead_of_waiting() -> None:
    """B-35: a tell for which no room can come finds the mailbox full, whatever its policy."""
    async with hosts(1, 1, mailbox_size=1) as [p, q]:

        async def tell_back() -> None:
            await p.tell(Put(1))
            with pytest.raises(MailboxFull):
                await p.tell(Put(2))

        await p.call(Do(ask(q, tell_back)))


async def test_a_tell_to_a_full_mailbox_waits_while_a_handler_makes_progress() -> None:
    """B-35: as long as another actor makes room; a task that waits for it counts as waiting."""
    gate = Gate()
    async with hosts(1, 1, mailbox_size=1) as [p, q], trio.open_nursery() as nursery:
        nursery.start_soon(q.call, Do(gate))
        await settle()
        await q.tell(Put(1))
        nursery.start_soon(p.call, Do(partial(q.tell, Put(2))))
        await settle()
        assert p.statistics().in_flight == 1
        gate.open()


async def test_a_task_that_outlives_its_handler_may_call_the_busy_actor() -> None:
    """B-35: once the handler has returned, no task waits for the work that it started."""
    async with hosts(1) as [p], trio.open_nursery() as nursery:
        gate, go, answers = Gate(), trio.Event(), list[int]()

        async def later() -> None:
            await go.wait()
            answers.append(await p.call(Get(1)))

        async def start() -> None:
            nursery.start_soon(later)

        await p.call(Do(start))
        nursery.start_soon(p.call, Do(gate))
        await settle()
        go.set()
        await settle()
        assert p.statistics().queued == 1
        gate.open()
    assert answers == [1]


# --- several requests -------------------------------------------------------------------------------------------------


async def test_the_later_of_two_crossing_calls_is_refused() -> None:
    """B-35: p → q while q → p, of two requests. The other one is answered."""
    async with hosts(1, 1) as [p, q], trio.open_nursery() as nursery:
        gates, said = [Gate(), Gate()], {}

        async def cross(here: ActorRef, there: ActorRef, gate: Gate) -> None:
            async def handler() -> int:
                await gate()
                return await there.call(Get(1))

            said[here.name] = await outcome(ask(here, handler))

        nursery.start_soon(cross, p, q, gates[0])
        nursery.start_soon(cross, q, p, gates[1])
        await settle()
        gates[0].open()
        await settle()
        assert said == {}
        gates[1].open()
        await settle()
        assert said["p"] == 1
        assert said["q"].startswith("actor 'p': this call would deadlock ('q' (handling Do) waits for 'p'")


async def test_calls_that_cross_are_refused_only_if_all_slots_wait() -> None:
    """B-35: q has two slots; of three handlers the last one that would wait is refused."""
    async with hosts(1, 2) as [p, q], trio.open_nursery() as nursery:
        gates, said = [Gate() for _ in range(3)], {}

        async def cross(key: int, here: ActorRef, there: ActorRef) -> None:
            async def handler() -> int:
                await gates[key]()
                return await there.call(Get(key))

            said[key] = await outcome(ask(here, handler))

        for key, (here, there) in enumerate([(q, p), (p, q), (q, p)]):
            nursery.start_soon(cross, key, here, there)
            await settle()
        for gate in gates[:2]:
            gate.open()
            await settle()
        assert said == {}
        gates[2].open()
    assert (said[0], said[1]) == (0, 1)
    assert "deadlock" in said[2]


async def test_a_cancelled_call_does_not_count_as_waiting() -> None:
    """B-35: p gave its call up, so it gets on."""
    async with hosts(1, 1) as [p, q], trio.open_nursery() as nursery:
        gate, given_up, answers = Gate(), Gate(), list[int]()

        async def impatient() -> None:
            with trio.CancelScope() as scope:
                nursery.start_soon(leave, scope)
                await q.call(Get(1))
            await given_up()

        async def leave(scope: trio.CancelScope) -> None:
            await settle()
            scope.cancel("it gives up")

        async def patient() -> None:
            await gate()
            answers.append(await p.call(Get(2)))

        nursery.start_soon(q.call, Do(patient))
        await settle()
        nursery.start_soon(p.call, Do(impatient))
        await settle()
        gate.open()
        await settle()
        given_up.open()
    assert answers == [2]


async def test_a_handler_that_makes_many_calls_does_not_keep_them() -> None:
    async with hosts(1, 8) as [p, q]:
        kept: list[int] = []

        async def many() -> None:
            for number in range(1000):
                await q.call(Get(number))
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(q.call, Get(number))
            await q.call(Get(0))
            handled = serving.get()
            assert handled is not None
            kept.append(len(handled.calls or ()))

        await p.call(Do(many))
        assert kept[0] <= 50


# --- an actor's own code ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [math.inf, 30])
@pytest.mark.parametrize("through", [False, True])
async def test_an_actor_that_starts_may_not_call_itself(through: bool, seconds: float) -> None:
    """B-35: it would wait for its own start; through another actor, too. A deadline of its opener is not its own."""
    said: list[str] = []

    async def start(host: Host) -> None:
        call = partial(host.ref.call, Get(1))
        said.append(await outcome(ask(q, call) if through else call))

    async with hosts(1) as [q]:
        with trio.fail_after(seconds):
            async with open_actor(Host(start=start), name="host"):
                assert "'host' (starting)" in said[0]
                assert "deadlock" in said[0]


async def test_an_actor_that_serves_may_call_itself_from_its_own_tasks() -> None:
    answers: list[int] = []

    async def background(host: Host) -> None:
        await host.ref.wait_state("running")
        answers.append(await host.ref.call(Get(1)))

    async with open_actor(Host(background=background), name="host"):
        await settle()
    assert answers == [1]


async def test_an_actor_that_stops_for_a_restart_may_not_call_itself() -> None:
    """B-35: the next incarnation would answer, which waits for the end of this one."""
    said: list[str] = []

    async def stop(host: Host) -> None:
        said.append(await outcome(partial(host.ref.call, Get(1))))

    async with open_child(partial(Host, stop=stop)) as supervisor:
        child = supervisor.child("child")
        with pytest.raises(Fatal):
            await child.call(Do(raising(Fatal())))
        assert await child.call(Get(1)) == 1
    assert "'child' (stopping) waits for 'child' (stopping)" in said[0]


async def test_an_actor_that_is_opened_in_a_handler_may_not_call_back() -> None:
    """B-35: the handler waits for its start."""
    said: list[str] = []

    async with hosts(1) as [p]:

        async def start(host: Host) -> None:
            said.append(await outcome(partial(p.call, Get(1))))

        async def open_another() -> None:
            async with open_actor(Host(start=start), name="inner"):
                pass

        await p.call(Do(open_another))
    assert "'inner' (starting) waits for 'p' (handling Do)" in said[0]


# --- an actor and its supervisor --------------------------------------------------------------------------------------

Order = Literal["sequential", "parallel"]

ORDERS: Final[tuple[Order, ...]] = ("sequential", "parallel")

CHANGES: Final[list[tuple[Any, ...]]] = [
    ("start_child", ChildSpec("new", Host)),
    ("stop_child", "a"),
    ("restart_child", "a"),
    ("delete_child", "a"),
]


class Asking:
    """Asks a supervisor for something.

    Attributes:
        supervisor: whom.
        said: what came of it, each time.
    """

    supervisor: SupervisorRef

    def __init__(self, method: str, *args: Any) -> None:
        self._method = method
        self._args = args
        self.said: list[Any] = []

    async def __call__(self, *_: Host) -> None:
        self.said.append(await outcome(partial(getattr(self.supervisor, self._method), *self._args)))


async def crash(ref: ActorRef) -> None:
    with pytest.raises(Fatal):
        await ref.call(Do(raising(Fatal())))
    await settle()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("order", ORDERS)
async def test_a_starting_child_may_not_query_its_starting_supervisor(order: Order, nested: bool) -> None:
    """B-35: the supervisor does not serve yet."""
    asking = Asking("which_children")
    spec = ChildSpec("p", lambda: Host(start=asking))
    if nested:
        spec = ChildSpec("n", partial(Supervisor, spec, start_order=order))
    top = Supervisor(spec, start_order=order)

    def introduce(event: Event) -> None:
        if isinstance(event, Starting) and event.actor == "p":
            asking.supervisor = SupervisorRef(top.ref._record)

    async with open_actor(top, name="top", observers=[introduce]):
        pass
    assert "'top' (starting) waits for" in asking.said[0]
    assert "waits for 'p' (starting)" in asking.said[0]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_restarting_child_may_not_request_a_change_that_waits_for_it(change: Any, order: Order) -> None:
    """B-35: if starts are parallel nothing waits for it."""
    asking = Asking(*change)
    starts = iter([None])
    specs = ChildSpec("a", Host), ChildSpec("p", lambda: Host(start=next(starts, asking)))
    async with open_supervisor(*specs, start_order=order) as supervisor:
        asking.supervisor = supervisor
        await crash(supervisor.child("p"))
        await supervisor.child("p").wait_state("running")
    if order == "sequential":
        assert "supervisor 'supervisor': this change would deadlock" in asking.said[0]
        assert "waits for 'p' (starting), 'p' (starting) waits for 'supervisor'" in asking.said[0]
        assert "start_order='parallel'" in asking.said[0]
    else:
        assert "deadlock" not in str(asking.said[0])


async def test_a_restarting_child_may_query_and_stop_a_child_that_does_not_serve(autojump_clock: MockClock) -> None:
    """B-35: a question, and the stop of a child that does not serve."""
    looking, stopping = Asking("count_children"), Asking("stop_child", "z")
    starts = iter([None])

    async def look_and_stop(_: Host) -> None:
        await looking()
        await stopping()

    specs = ChildSpec("p", lambda: Host(start=next(starts, look_and_stop))), ChildSpec("z", Host)
    async with open_supervisor(*specs, max_restarts=2, backoff=Backoff(first=2.0), window=100) as supervisor:
        looking.supervisor = stopping.supervisor = supervisor
        await crash(supervisor.child("p"))
        await trio.sleep(1)
        await crash(supervisor.child("z"))
        await supervisor.child("p").wait_state("running")
        assert supervisor.child("z").state == "stopped"
    assert looking.said[0].specs == 2
    assert stopping.said == [None]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("by", ["its own code", "a handler"])
async def test_a_stopping_child_may_not_request_a_change_that_waits_for_it(
    autojump_clock: MockClock, by: str, order: Order
) -> None:
    """B-35: nor may a handler that is not to be cancelled, whose end the child waits for."""
    asking = Asking("start_child", ChildSpec("new", Host))

    async def tidy_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await asking()

    child = ChildSpec("p", partial(Host, stop=asking if by == "its own code" else None))
    async with open_supervisor(child, start_order=order) as supervisor, trio.open_nursery() as nursery:
        asking.supervisor = supervisor
        if by == "a handler":
            await supervisor.child("p").tell(Do(tidy_up))
            await settle()
        nursery.start_soon(supervisor.stop_child, "p")
        await settle()
        assert trio.current_time() == 0
        assert supervisor.child("p").state == "stopped"
    if order == "sequential":
        assert "'p' (stopping) waits for" in asking.said[0]
    else:
        assert isinstance(asking.said[0], ActorRef)


@pytest.mark.parametrize("by", ["a handler", "its own task"])
async def test_a_child_that_stops_itself_through_its_supervisor_gets_an_error(by: str) -> None:
    """B-35: the supervisor would stop it in the middle of asking for that."""
    asking = Asking("stop_child", "p")
    background = hook(lambda: go_and_ask()) if by == "its own task" else None

    async def go_and_ask() -> None:
        await go.wait()
        await asking()

    go = trio.Event()
    async with open_supervisor(ChildSpec("p", partial(Host, background=background))) as supervisor:
        asking.supervisor = supervisor
        if by == "a handler":
            await supervisor.child("p").call(Do(asking))
        else:
            go.set()
            await settle()
        assert supervisor.child("p").state == "running"
    assert "self.stop()" in asking.said[0]


async def test_a_handler_may_stop_the_child_that_waits_for_it() -> None:
    """B-35: that ends the work, and no task waits for it."""
    asking = Asking("stop_child", "p")
    specs = ChildSpec("p", Host), ChildSpec("q", Host)
    async with open_supervisor(*specs) as supervisor:
        asking.supervisor = supervisor
        p, q = supervisor.child("p"), supervisor.child("q")
        with pytest.raises(ActorStopped):
            await p.call(Do(ask(q, asking)))
        await p.wait_stopped()
        assert await q.call(Get(1)) == 1


# --- a change of the child table --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("method", ["start_child", "restart_child", "stop_child"])
async def test_a_child_may_not_call_the_handler_whose_change_waits_for_it(method: str, order: Order) -> None:
    """B-35: p's handler changes q, whose start or clean-up calls p. The change itself succeeds."""
    said: list[Any] = []
    starts = iter([] if method == "start_child" else [None])

    async def call_back(_: Host) -> None:
        said.append(await outcome(partial(supervisor.child("p").call, Get(1))))

    def make() -> Host:
        if method == "stop_child":
            return Host(stop=call_back, shutdown="infinity")
        return Host(start=next(starts, call_back))

    q = ChildSpec("q", make)
    specs = [ChildSpec("p", Host)] if method == "start_child" else [ChildSpec("p", Host), q]
    async with open_supervisor(*specs, start_order=order) as supervisor:
        if method == "restart_child":
            await supervisor.stop_child("q")
        change = partial(getattr(supervisor, method), q if method == "start_child" else "q")
        assert not isinstance(await outcome(partial(supervisor.child("p").call, Do(change))), str)
        assert await supervisor.child("p").call(Get(2)) == 2
    does = "stopping" if method == "stop_child" else "starting"
    assert f"'q' ({does}) waits for 'p' (handling Do), 'p' (handling Do) waits for 'supervisor'" in said[0]
    assert f"waits for 'q' ({does})" in said[0]


async def test_a_child_may_call_a_handler_that_waits_for_its_change_under_a_deadline(
    autojump_clock: MockClock,
) -> None:
    """B-35: that wait ends by itself."""
    answers: list[Any] = []

    async def call_back(_: Host) -> None:
        answers.append(await outcome(partial(supervisor.child("p").call, Get(1))))

    async def change() -> None:
        with trio.move_on_after(1):
            await supervisor.stop_child("q")

    q = ChildSpec("q", partial(Host, stop=call_back, shutdown="infinity"))
    async with open_supervisor(ChildSpec("p", Host), q) as supervisor:
        await supervisor.child("p").call(Do(change))
        await supervisor.child("q").wait_stopped()
    assert answers == [1]


async def test_children_that_stop_may_not_wait_for_the_ends_of_each_other() -> None:
    """B-35: of two stops that cross, the later one is refused, and both children stop."""
    said: dict[str, Any] = {}

    async def stop(other: str, _: Host) -> None:
        said[other] = await outcome(partial(supervisor.stop_child, other))

    specs = [ChildSpec(id, partial(Host, stop=partial(stop, other), shutdown="infinity")) for id, other in ("ab", "ba")]
    async with open_supervisor(*specs, start_order="parallel") as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.stop_child, "a")
        nursery.start_soon(supervisor.stop_child, "b")
        await settle()
        assert [supervisor.child(id).state for id in "ab"] == ["stopped", "stopped"]
    refused = [each for each in said.values() if each is not None]
    assert len(refused) == 1
    assert "would deadlock" in refused[0]


async def test_a_stopping_actor_may_not_wait_for_the_end_of_its_supervisor(said: Said) -> None:
    """B-35: that waits for it, from the step on in which the supervisor is asked to stop."""
    asking = Asking("stop_child", "nested")
    nested = ChildSpec("nested", lambda: Supervisor(ChildSpec("a", partial(Host, stop=asking, shutdown="infinity"))))
    async with open_supervisor(nested) as asking.supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(asking.supervisor.stop_child, "nested")
        await settle()
        assert asking.supervisor.child("nested").state == "stopped"
    said("wait for an end deadlocks", asking.said[0])


async def test_a_handler_may_not_wait_for_the_end_of_a_child_whose_shielded_handler_waits_for_it() -> None:
    """B-35: the child is asked to stop, but cannot while it calls inside a shield."""
    asking = Asking("stop_child", "p")

    async def call_shielded() -> None:
        with trio.CancelScope(shield=True):
            await supervisor.child("q").call(Do(asking))

    specs = ChildSpec("p", partial(Host, shutdown="infinity")), ChildSpec("q", Host)
    async with open_supervisor(*specs) as supervisor:
        asking.supervisor = supervisor
        with pytest.raises(ActorStopped):
            await supervisor.child("p").call(Do(call_shielded))
        await settle()
        assert supervisor.child("p").state == "stopped"
        assert await supervisor.child("q").call(Get(1)) == 1
    assert "waiting for the end of child 'p' would deadlock" in asking.said[0]


async def test_an_actor_that_serves_waits_for_none_of_its_handlers() -> None:
    gate = Gate()
    async with open_actor(host := Host(), name="host") as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        assert isinstance(host._incarnation, Incarnation)
        assert (gate.entered, host._incarnation.blockers()) == (1, [])
        gate.open()


def test_a_long_chain_of_calls_is_searched_once() -> None:
    """A chain of a thousand actors would stop the program for a second otherwise."""
    asked: list[Node] = []

    class Link(Node):
        def __init__(self, *blockers: Node) -> None:
            self._blockers = blockers

        @property
        def needs_all(self) -> bool:  # type: ignore[override]  # to see how often it is asked
            asked.append(self)
            return False

        def blockers(self) -> Sequence[Node]:
            return self._blockers

    first, caller = Node(), Link()  # a plain node waits for none
    for _ in range(200):
        first = Link(first)
    assert find_circle(caller, first) == []
    assert len(asked) == 200
    assert find_circle(caller, Link(first, caller))
