"""K6: while an actor starts nothing is shielded; afterwards its block ends first."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorError,
    ActorRef,
    ActorStartError,
    ActorStopped,
    ChildSpec,
    Event,
    EventHub,
    IgnoreStart,
    Started,
    StartFailed,
    StopFailed,
    open_actor,
    open_supervisor,
)
from mcp_actors.kernel._mailbox import Mailbox
from mcp_actors.kernel._open import Root
from mcp_actors.kernel._record import Record
from mcp_actors.kernel._requests import Sweeper

from ..messages import Said
from .actors import Boom, Do, Get, Host, hook, leaving, of, raising, shielded


async def test_a_shielded_clean_up_call_in_the_block_is_answered() -> None:
    """K6: the block ends first, also when it is cancelled."""
    answers = []
    with trio.CancelScope() as scope:
        async with open_actor(Host(), name="host") as ref:
            try:
                scope.cancel("enough")
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    answers.append(await ref.call(Get(1)))
    assert answers == [1]
    with pytest.raises(ActorStopped, match=r"\(it has ended\)"):
        await ref.call(Get(2))


async def test_a_deadline_around_a_start_that_hangs_fires_at_once(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    began = trio.current_time()
    with leaving(trio.TooSlowError):
        with trio.fail_after(2):
            async with open_actor(Host(start=hook(trio.sleep_forever)), name="host", observers=[events.append]):
                pytest.fail("it started")
    assert trio.current_time() == began + 2
    assert of(events) == ["Starting", "Stopped"]


async def test_a_start_that_goes_on_is_named_less_and_less_often(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """With what it waits for, also by `open_actor`, and no longer once it has started, or is asked to stop."""

    async def ask(host: Host) -> None:
        assert host.supervisor is not None
        await host.supervisor.child("q").call(Do(partial(trio.sleep, 40)))

    slow = ChildSpec("p", Host, kwargs={"start": ask})
    quiet = ChildSpec("silent", type("Silent", (Host,), {"slow_after": None}), kwargs={"start": ask})
    async with open_supervisor(ChildSpec("q", Host, kwargs={"max_in_flight": 2}), start_order="parallel") as top:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(top.start_child, quiet)
            nursery.start_soon(top.start_child, slow)
            await trio.sleep(14.9)
            assert caplog.text == ""
        await trio.sleep(1000)
        first, second = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        said("slow start", first)
        assert second == first.replace("15 s", "30 s")
    caplog.clear()
    stubborn = Host(start=lambda _: shielded(50))
    with trio.move_on_after(20):
        async with open_actor(stubborn, name="alone"):
            pytest.fail("it started")
    [text] = [record.getMessage() for record in caplog.records if "starting" in record.getMessage()]
    said("slow start of an actor that is opened", text)


async def test_nothing_refers_to_a_start_that_is_over() -> None:
    """The check of a start is dropped after its success or failure, and would keep what has ended alive."""
    failing = ChildSpec("b", Host, kwargs={"start": hook(raising(Boom()))})
    async with open_supervisor(ChildSpec("a", Host), failing, strict=False, max_restarts=0, on_limit="park") as top:
        await top.child("b").wait_state("failed")
        sweeper: Any = top._record.sweeps
        assert sweeper._ids == {}


async def test_a_cancelled_start_is_cleaned_up(autojump_clock: MockClock) -> None:
    log = []

    async def start(_: Host) -> None:
        try:
            await trio.sleep_forever()
        finally:
            await shielded(1)
            log.append("released")

    with trio.move_on_after(2) as scope:
        async with open_actor(Host(start=start), name="host"):
            pytest.fail("it started")
    assert scope.cancelled_caught
    assert log == ["released"]


@pytest.mark.parametrize("group", [False, True])
async def test_an_error_while_a_cancelled_start_is_cleaned_up_does_not_replace_the_cancellation(group: bool) -> None:
    """K5, K8: a cancelled start is a shutdown, and errors while stopping are events."""
    events: list[Event] = []
    boom = Boom("from the clean-up")

    async def fail_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise boom

    async def start(_: Host) -> None:
        if not group:
            await fail_late()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_late)
            nursery.start_soon(trio.sleep_forever)

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_settled, scope)
            async with open_actor(Host(start=start), name="host", observers=[events.append]):
                pytest.fail("it started")
    assert scope.cancelled_caught
    assert [event.error for event in events if isinstance(event, StopFailed)] == [boom]
    assert of(events) == ["Starting", "StopFailed", "Stopped"]


async def cancel_when_settled(scope: trio.CancelScope) -> None:
    await settle()
    scope.cancel("enough")


@pytest.mark.parametrize("checkpoints", [0, 1, 5])
async def test_a_cancellation_at_any_moment_of_a_start_neither_hangs_nor_leaks(
    checkpoints: int, autojump_clock: MockClock
) -> None:
    """K6: sweep the moment of the cancellation over the start, the block and the stop, in many interleavings."""
    held: list[str] = []
    reached: set[str] = set()

    class Careful(Host):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            held.append("it")
            try:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                yield
            finally:
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                held.remove("it")

    async def cancel_after(ticks: int, scope: trio.CancelScope) -> None:
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        scope.cancel("at any moment")

    for ticks in [*range(25)] * 8:
        host = Careful()
        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as scope:
                    nursery.start_soon(cancel_after, ticks, scope)
                    async with open_actor(host, name="host") as ref:
                        reached.add("block")
                        assert await ref.call(Get(1)) == 1
                        reached.add("called")
                        await trio.sleep_forever()
                assert scope.cancelled_caught
        assert host.ref.state == "stopped"
        assert held == []
    assert reached == {"block", "called"}


@pytest.mark.parametrize("deadline", [0.0, 1.0])
async def test_a_deadline_that_expires_in_the_tick_of_the_start_neither_hangs_nor_leaks(
    deadline: float, autojump_clock: MockClock
) -> None:
    """K6: a shield that goes up in the tick in which a deadline fires would hide it (facts about Trio)."""
    for _ in range(50):
        host = Host(start=hook(partial(trio.sleep, deadline)))
        with trio.fail_after(100), trio.move_on_after(deadline) as scope:
            async with open_actor(host, name="host"):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert host.ref.state == "stopped"


async def test_a_cancellation_in_the_very_step_of_the_start_is_not_lost() -> None:
    """K6: the actor has started, the block has not; what leaves the door is the cancellation."""
    events: list[Event] = []
    with trio.CancelScope() as scope:

        def observe(event: Event) -> None:
            events.append(event)
            if isinstance(event, Started):
                scope.cancel("that was all we wanted to see")

        async with open_actor(Host(), name="host", observers=[observe]):
            pytest.fail("the block ran")
    assert scope.cancelled_caught
    assert of(events) == ["Starting", "Started", "Stopping", "Stopped"]


async def test_a_start_that_is_stuck_in_a_foreign_shield_is_reported_and_awaited(autojump_clock: MockClock) -> None:
    """K5: at the bound of a stop, and one second later."""
    events: list[Event] = []
    began = trio.current_time()
    with trio.move_on_after(2) as scope:
        async with open_actor(Host(start=hook(lambda: shielded(60))), name="host", observers=[events.append]):
            pytest.fail("it started")
    assert scope.cancelled_caught
    assert trio.current_time() == began + 60
    assert of(events) == ["Starting", "Overdue", "Stopped"]


async def test_a_failed_start_is_one_error_with_its_cause() -> None:
    """K8: no group, whatever nurseries it came through."""
    events: list[Event] = []
    boom = Boom("no connection")

    async def start(_: Host) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(raising(boom))

    with pytest.raises(ActorStartError, match=r"^actor 'host': did not start: no connection$") as caught:
        async with open_actor(Host(start=start), name="host", observers=[events.append]):
            pytest.fail("it started")
    assert caught.value.__cause__ is boom
    assert caught.value.actor == "host"
    assert [event.error for event in events if isinstance(event, StartFailed)] == [boom]
    assert of(events) == ["Starting", "StartFailed", "Stopped"]


@pytest.mark.parametrize(
    ("deed", "row"),
    [
        ("ignore", "start: nothing to run"),
        ("stop", "start: ended by itself"),
        ("fail", "start: failed"),
    ],
)
async def test_an_actor_may_give_up_its_start(deed: str, row: str, said: Said) -> None:
    async def start(host: Host) -> None:
        match deed:
            case "ignore":
                raise IgnoreStart
            case "stop":
                host.stop()
            case "fail":
                host.fail(Boom("gone"))

    with pytest.raises(ActorStartError) as caught:
        async with open_actor(Host(start=start), name="host"):
            pytest.fail("it started")
    said(row, str(caught.value))
    assert isinstance(caught.value.__cause__, Boom) == (deed == "fail")


async def test_ignoring_the_start_of_a_child_does_not_count_as_a_failure() -> None:
    async def start(_: Host) -> None:
        async with trio.open_nursery():
            raise IgnoreStart

    events: list[Event] = []
    async with open_supervisor(ChildSpec("child", lambda: Host(start=start)), observers=[events.append]) as supervisor:
        assert supervisor.child("child").state == "stopped"
        with pytest.raises(ActorStopped):
            await supervisor.child("child").call(Get(1))
    assert "StartFailed" not in of(events)


@pytest.mark.parametrize("clean_up", ["none", "raises", "interrupted"])
async def test_a_start_has_a_bound_if_its_child_spec_says_so(clean_up: str, autojump_clock: MockClock) -> None:
    boom = Boom("from the clean-up")

    async def start(_: Host) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if clean_up == "raises":
                raise boom
            if clean_up == "interrupted":
                raise KeyboardInterrupt

    began = trio.current_time()
    spec = ChildSpec("child", lambda: Host(start=start), start_timeout=3)
    with pytest.raises(KeyboardInterrupt if clean_up == "interrupted" else ActorStartError) as caught:
        async with open_supervisor(spec):
            pytest.fail("it started")
    assert trio.current_time() == began + 3
    if isinstance(caught.value, ActorStartError):
        assert "start timed out" in str(caught.value)
        late = caught.value.__cause__
        assert late is not None
        assert late.__cause__ is (boom if clean_up == "raises" else None)


async def test_the_bound_of_a_start_ends_with_the_start(autojump_clock: MockClock) -> None:
    async with open_supervisor(ChildSpec("child", Host, start_timeout=3)) as supervisor:
        await trio.sleep(100)
        assert await supervisor.child("child").call(Get(1)) == 1
        assert supervisor.child("child").statistics().incarnation == 1


async def test_an_actor_object_cannot_run_twice(said: Said) -> None:
    host = Host()
    async with open_actor(host, name="first"):
        pass
    with pytest.raises(ActorStartError) as caught:
        async with open_actor(host, name="second"):
            pytest.fail("it started")
    assert isinstance(caught.value.__cause__, ActorError)
    said("actor object has run before", str(caught.value.__cause__))


class Limited(Host):
    """Has a wrong number of slots."""

    def __init__(self, limit: object) -> None:
        super().__init__()
        self.max_in_flight = limit  # type: ignore[assignment]  # which is the point


def open_it(actor: object, name: object = "host", **options: object) -> object:
    return open_actor(actor, name=name, **options)  # type: ignore[arg-type]  # what users may get wrong


@pytest.mark.parametrize(
    ("arguments", "options", "row"),
    [
        ((Host,), {}, "open_actor: class instead of an actor"),
        ((42,), {}, "open_actor: not an actor"),
        ((Host(), ""), {}, "open_actor: empty name"),
        ((Host(), 7), {}, "open_actor: name=7"),
        ((Host(),), {"mailbox_size": 0}, "open_actor: mailbox_size=0"),
        ((Host(),), {"mailbox_size": True}, "open_actor: mailbox_size=True"),
        ((Host(),), {"mailbox_size": math.inf}, "open_actor: mailbox_size=math.inf"),
        ((Host(),), {"overflow": "drop"}, "open_actor: overflow=drop"),
        ((Limited(0),), {}, "open_actor: max_in_flight=0"),
        ((Limited(2.5),), {}, "open_actor: max_in_flight=2.5"),
        ((Limited(True),), {}, "open_actor: max_in_flight=True"),
    ],
)
async def test_open_actor_refuses_wrong_arguments(
    arguments: tuple[object, ...], options: dict[str, object], row: str, said: Said
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        async with open_it(*arguments, **options):  # type: ignore[attr-defined]  # it is a context manager
            pytest.fail("it opened")
    said(row, str(caught.value))


async def test_a_supervisors_name_is_checked_too() -> None:
    with pytest.raises(ValueError, match="an actor's name must be a non-empty str"):
        async with open_supervisor(name=""):
            pytest.fail("it opened")


async def test_a_factory_that_makes_a_wrong_actor_is_a_failed_start() -> None:
    with pytest.raises(ActorStartError, match="max_in_flight must be an int of at least 1, not 0"):
        async with open_supervisor(ChildSpec("child", lambda: Limited(0))):
            pytest.fail("it started")


async def test_an_actor_of_one_method_is_enough() -> None:
    class Echo(Actor):
        async def handle(self, message: Get) -> int:
            return message.number

    async with open_actor(Echo(), name="echo") as ref:
        assert isinstance(ref, ActorRef)
        assert await ref.call(Get(3)) == 3


async def test_leaving_is_waited_for(autojump_clock: MockClock) -> None:
    log = []

    async def leave(_: Host) -> None:
        await trio.sleep(4)
        log.append("left")

    began = trio.current_time()
    with leaving(Boom):
        async with open_actor(Host(stop=leave), name="host"):
            raise Boom
    assert (log, trio.current_time()) == (["left"], began + 4)


@pytest.mark.parametrize("killed", [False, True])
async def test_an_incarnation_that_is_stopped_before_its_task_begins_acquires_nothing(killed: bool) -> None:
    """It has no time to release anything: a clean-up of one step would be reported as too slow."""
    acquired: list[str] = []

    async def start(_: Host) -> None:
        acquired.append("a resource")
        await trio.lowlevel.checkpoint()

    record = Record("early", Mailbox("early"), EventHub())
    early = Root(record, Host(start=start), Sweeper())
    if killed:
        early.kill("before it began")
    early.end("shutdown", comes_back=False)
    await early.run()
    end = early.final
    assert end is not None
    assert (end.reason, early.started, acquired) == ("shutdown", False, [])


class Bare(Actor):
    async def running(self) -> AsyncIterator[None]:  # type: ignore[override]  # the mistake
        yield


class WithoutYield(Actor):
    async def running(self) -> None:  # type: ignore[override]  # the mistake
        pass


class Plain(Actor):
    @contextmanager
    def running(self) -> Iterator[None]:  # type: ignore[override]  # the mistake
        yield


class Leaving(Actor):
    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if not self.slow_after:
            yield


class Within(Actor):
    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Leaving().running():
            yield


class Named(Actor):
    def __init__(self, name: str) -> None:
        self.name = name


class Awaiting(Actor):
    async def __init__(self) -> None:  # type: ignore[misc]  # the mistake
        await trio.lowlevel.checkpoint()


class Early(Actor):
    def __init__(self) -> None:
        self.after(1, Get(1))


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (Bare, "start: Bare"),
        (WithoutYield, "start: WithoutYield"),
        (Plain, "start: Plain"),
        (Leaving, "start: Leaving"),
        (Within, "start: Within"),
        (Early, "start: Early"),
        (Named, "start: Named"),
        pytest.param(
            Awaiting,
            "start: Awaiting",
            marks=pytest.mark.filterwarnings(
                "ignore:.*Awaiting.__init__", "ignore::pytest.PytestUnraisableExceptionWarning"
            ),
        ),
    ],
)
async def test_a_running_of_the_wrong_form_is_named(kind: Callable[[], Actor], row: str, said: Said) -> None:
    with pytest.raises(ActorStartError) as caught:
        async with open_supervisor(ChildSpec("host", kind)):
            pytest.fail("it has started")
    said(row, str(caught.value))


@pytest.mark.parametrize("error", [None, Boom("broken")])
async def test_a_running_that_yields_twice_is_named(error: Boom | None, said: Said) -> None:
    class Twice(Actor):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            with suppress(Boom):
                yield
            yield

    heard: list[Event] = []
    with suppress(ActorCrashed):
        async with open_actor(actor := Twice(), name="host", observers=[heard.append]):
            if error is not None:
                actor.fail(error)
                await trio.sleep_forever()
    said("running() that yields twice", str(next(each.error for each in heard if isinstance(each, StopFailed))))
