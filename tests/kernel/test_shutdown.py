"""K5: a cancelled scope is a shutdown, interrupts leave bare after clean-up, and clean-up is bounded."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorRef,
    ActorStopped,
    Call,
    Event,
    Overdue,
    StopActor,
    StopFailed,
    Stopped,
    open_actor,
)
from mcp_actors.kernel._incarnation import Incarnation

from .actors import Boom, Do, DoNow, Fatal, Gate, Get, Host, Put, hook, leaving, of, open_child, raising, shielded

INTERRUPTS = [KeyboardInterrupt("^C"), SystemExit(3)]


async def test_cancelling_the_scope_around_an_actor_is_a_shutdown() -> None:
    """K5: clean-up runs with awaits, the state is stopped, and nothing is reported as a failure."""
    events: list[Event] = []
    cleaned = []

    async def clean_up(_: Host) -> None:
        await trio.lowlevel.checkpoint()
        cleaned.append(True)

    with trio.CancelScope() as scope:
        async with open_actor(Host(stop=clean_up), name="host", observers=[events.append]) as ref:
            scope.cancel("enough")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert cleaned == [True]
    assert ref.state == "stopped"
    assert of(events) == ["Starting", "Started", "Stopping", "Stopped"]


@pytest.mark.parametrize("interrupt", INTERRUPTS)
@pytest.mark.parametrize("where", ["start", "stop", "handler", "control", "handler's nursery", "background", "block"])
async def test_an_interrupt_is_raised_ungrouped_after_clean_up(where: str, interrupt: BaseException) -> None:
    """K5: the object itself, in no group, with everything of the actor released by awaits that worked."""
    released: list[str] = []
    go = trio.Event()

    async def release(_: Host) -> None:
        await trio.lowlevel.checkpoint()
        released.append("by itself")
        if where == "stop":
            raise interrupt

    async def background(_: Host) -> None:
        await go.wait()
        raise interrupt

    async def in_a_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raising(Boom()))
            nursery.start_soon(raising(interrupt))

    host = Host(
        start=hook(raising(interrupt)) if where == "start" else None,
        stop=release,
        background=background if where == "background" else None,
    )
    with leaving(type(interrupt)) as caught:
        async with open_actor(host, name="host") as ref:
            match where:
                case "handler" | "control" | "handler's nursery":
                    fn = in_a_nursery if where == "handler's nursery" else raising(interrupt)
                    with pytest.raises(ActorCrashed) as told:
                        await ref.call((DoNow if where == "control" else Do)(fn))
                    assert told.value.__cause__ is interrupt
                    await trio.sleep_forever()
                case "background":
                    go.set()
                    await trio.sleep_forever()
                case "block":
                    raise interrupt
    assert caught.value is interrupt
    assert released == ([] if where in ("start", "background") else ["by itself"])


@pytest.mark.parametrize("where", ["tell", "call", "running"])
async def test_an_interrupt_while_the_actor_stops_is_raised_ungrouped(where: str) -> None:
    """K5: the end was decided already, and an interrupt outranks that."""
    interrupt = KeyboardInterrupt("the second one")

    async def be_interrupted() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise interrupt

    async def be_called() -> None:
        with pytest.raises(ActorStopped):
            await ref.call(Do(be_interrupted))

    host = Host(stop=hook(raising(interrupt)) if where == "running" else None)
    with leaving(KeyboardInterrupt) as caught:
        async with open_actor(host, name="host") as ref:
            if where == "tell":
                await ref.tell(Do(be_interrupted))
                await settle()
            elif where == "call":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(be_called)
                    await settle()
                    host.stop()
                await ref.wait_stopped()
    assert caught.value is interrupt


async def test_an_interrupt_while_the_actor_is_asked_to_end_during_its_start_is_not_lost() -> None:
    interrupt = KeyboardInterrupt("during the start")

    async def start(host: Host) -> None:
        host.stop()
        try:
            await trio.sleep_forever()
        finally:
            raise interrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        async with open_actor(Host(start=start), name="host"):
            pytest.fail("it started")
    assert caught.value is interrupt


def run_interrupted(main: Callable[[], Awaitable[None]]) -> None:
    """Run a program into which a real SIGINT comes."""
    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("when", ["Starting", "Started", "Stopping", "Stopped", "RequestStarted"])
@pytest.mark.parametrize("raises", [False, True])
def test_a_ctrl_c_in_the_middle_of_a_kernel_step_is_raised_ungrouped_after_clean_up(when: str, raises: bool) -> None:
    """K5: an observer runs inside the kernel's own step, which is the worst moment for an interrupt."""
    log: list[str] = []

    def observe(event: Event) -> None:
        if type(event).__name__ == when:
            signal.raise_signal(signal.SIGINT)

    async def acquire(_: Host) -> None:
        await trio.lowlevel.checkpoint()
        log.append("acquired")

    async def release(_: Host) -> None:
        await trio.sleep(1)
        log.append("released")

    async def main() -> None:
        host = Host(start=acquire, stop=release)
        async with open_actor(host, name="host", observers=[observe]) as ref:
            await ref.call(Get(1))
            if raises:
                raise Boom

    run_interrupted(main)
    assert log in ([], ["acquired", "released"])
    assert log or when == "Starting"


async def test_a_ctrl_c_waits_for_the_end_of_a_kernel_step_but_not_for_a_handler() -> None:
    """K5: it could lose an envelope, or leave a resource held; but a handler that computes for ever must end."""
    protected: dict[str, bool] = {}

    def note(where: str) -> None:
        protected.setdefault(where, trio.lowlevel.currently_ki_protected())

    @frozen
    class Probe(Call[None]):
        @property
        def control(self) -> bool:  # type: ignore[override]  # first read inside the mailbox, which is the point
            note("mailbox")
            return False

    class Probed(Host):
        async def handle(self, message: object) -> None:
            note("handler")

        def is_hopeless(self, exc: BaseException) -> bool:
            note("decision")
            return False

    async def probe(where: str) -> None:
        note(where)

    host = Probed(start=hook(partial(probe, "start")), stop=hook(partial(probe, "stop")))
    with leaving(ActorCrashed):
        async with open_actor(host, name="host", observers=[lambda _: note("observer")]) as ref:
            await ref.call(Probe())
            host.fail(Boom())
            await trio.sleep_forever()
    assert {where for where, shut in protected.items() if shut} == {"mailbox", "decision", "observer", "start", "stop"}
    assert {where for where, shut in protected.items() if not shut} == {"handler"}


@pytest.mark.parametrize("where", ["handler", "start", "stop"])
def test_a_ctrl_c_in_a_handler_or_in_running_ends_everything(where: str) -> None:
    """K5: real signals, in user code that belongs to the actor."""
    log: list[str] = []

    async def interrupt() -> None:
        await trio.lowlevel.checkpoint()
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

    async def release(_: Host) -> None:
        await trio.sleep(1)
        log.append("released")
        if where == "stop":
            signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        host = Host(start=hook(interrupt) if where == "start" else None, stop=release)
        async with open_actor(host, name="host") as ref:
            if where == "handler":
                with pytest.raises(ActorCrashed):
                    await ref.call(Do(interrupt))
                await trio.sleep_forever()

    run_interrupted(main)
    assert log == (["released"] if where != "start" else [])


@pytest.mark.parametrize("how", ["asked", "StopActor", "crash", "handler"])
async def test_an_actor_that_does_not_stop_in_time_is_killed(how: str, autojump_clock: MockClock) -> None:
    """K5: also one that ended by itself, while the block goes on."""
    log: list[str] = []

    async def hang(_: Host) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            log.append("killed")
            raise

    async def handler() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await hang(host)

    host = Host(stop=None if how == "handler" else hang, shutdown=3.0)
    began = trio.current_time()
    with leaving(ActorCrashed) if how == "crash" else trio.CancelScope():
        async with open_actor(host, name="host") as ref:
            match how:
                case "StopActor":
                    await ref.tell(Do(raising(StopActor())))
                case "crash":
                    await ref.tell(Do(raising(Fatal())))
                case "handler":
                    await ref.tell(Do(handler))
                    await settle()
            if how in ("StopActor", "crash"):
                await ref.wait_stopped()
                assert trio.current_time() == began + 3
    assert log == ["killed"]
    assert trio.current_time() == (began if how == "handler" else began + 3)


@pytest.mark.parametrize("how", ["asked", "by itself", "handler"])
async def test_an_actor_in_a_foreign_shield_is_reported_as_overdue_and_awaited(
    how: str, autojump_clock: MockClock
) -> None:
    """K5: five seconds to stop, one more for synchronous release, then `Overdue`; it is never abandoned."""
    events: list[Event] = []
    began = trio.current_time()
    host = Host(stop=None if how == "handler" else hook(lambda: shielded(60)))
    async with open_actor(host, name="host", observers=[events.append]) as ref:
        if how == "by itself":
            host.stop()
            await ref.wait_stopped()
        elif how == "handler":
            await ref.tell(Do(lambda: shielded(60)))
            await settle()
    assert trio.current_time() == began + 60
    (overdue,) = (event for event in events if isinstance(event, Overdue))
    assert (overdue.actor, overdue.time, overdue.seconds) == ("host", began + 6, 6)
    assert of(events, Overdue, Stopped) == ["Overdue", "Stopped"]


@pytest.mark.parametrize("how", ["asked", "fail", "StopActor"])
async def test_errors_while_stopping_are_events(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """K8: and not exceptions; the failure that is the reason for the end stays the only one."""
    events: list[Event] = []
    late = Boom("on the way out")
    host = Host(stop=hook(raising(late)))
    with leaving(ActorCrashed, "the reason") if how == "fail" else trio.CancelScope():
        async with open_actor(host, name="host", observers=[events.append]) as ref:
            if how == "fail":
                host.fail(Boom("the reason"))
            elif how == "StopActor":
                await ref.tell(Do(raising(StopActor())))
            if how != "asked":
                await ref.wait_stopped()
                await trio.lowlevel.checkpoint()
    assert [event.error for event in events if isinstance(event, StopFailed)] == [late]
    assert "actor 'host': running() raised an exception while stopping" in caplog.text


async def test_a_failure_that_running_passes_on_is_reported_once() -> None:
    """The reason for the end comes out of ``running()`` again, in a nursery's group."""
    events: list[Event] = []
    boom, go = Boom(), trio.Event()

    async def background(host: Host) -> None:
        await go.wait()
        host.fail(boom)
        raise boom

    with leaving(ActorCrashed) as left:
        async with open_actor(Host(background=background), name="host", observers=[events.append]):
            go.set()
            await trio.sleep_forever()
    assert left.value.__cause__ is boom
    assert of(events) == ["Starting", "Started", "Crashed", "Stopped"]


async def test_a_resource_that_ends_its_scope_without_a_reason_is_a_crash() -> None:
    class Fleeting(Actor):
        def running(self) -> AbstractAsyncContextManager[None]:  # type: ignore[override]  # looser, which will do
            return trio.open_nursery()  # type: ignore[return-value]  # what it yields is not used

        async def handle(self, message: object) -> None:
            raise AssertionError("never called")

    actor = Fleeting()
    with leaving(ActorCrashed, r"running\(\) ended without a reason; call self.stop\(\) or self.fail\(\)"):
        async with open_actor(actor, name="host"):
            assert actor._incarnation is not None
            actor_nurseries(actor)[-1].cancel_scope.cancel("the resource dies silently")
            await trio.sleep_forever()


def actor_nurseries(actor: Actor) -> list[trio.Nursery]:
    """The nurseries of the owner task, the innermost last."""
    assert isinstance(actor._incarnation, Incarnation)
    owner = actor._incarnation._owner
    assert owner is not None
    return list(owner.child_nurseries)


async def test_an_actor_whose_resource_dies_restarts_with_its_cause() -> None:
    """A background task of ``running()`` fails; requests in flight get the error, not a cancellation."""
    go, gate = trio.Event(), Gate()
    hosts: list[Host] = []

    async def background(_: Host) -> None:
        await go.wait()
        if len(hosts) == 1:
            raise Boom("the connection")

    def make() -> Host:
        hosts.append(Host(background=background))
        return hosts[-1]

    events: list[Event] = []
    async with open_child(make, observers=[events.append]) as supervisor, trio.open_nursery() as nursery:
        ref = supervisor.child("child")

        async def ask(ref: ActorRef) -> None:
            with pytest.raises(ActorCrashed):
                await ref.call(Do(gate))

        nursery.start_soon(ask, ref)
        await settle()
        go.set()
        await settle()
        await ref.wait_state("running")
        assert await ref.call(Get(1)) == 1
        await ref.tell(Put(2))
    assert of(events).count("Crashed") == 1
