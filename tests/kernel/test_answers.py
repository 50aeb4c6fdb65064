"""K1: every envelope is answered exactly once, whatever happens to either side."""

from __future__ import annotations

import collections
import math
import pickle
import random
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorError,
    ActorRef,
    ActorStopped,
    ChildSpec,
    Started,
    StopActor,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Boom, Do, DoNow, Fatal, Gate, Get, Host, Put, hook, leaving, open_child, raising

Outcomes = dict[str, str]


async def ask(ref: ActorRef, outcomes: Outcomes, key: str, message: Do[Any]) -> None:
    """Call, and write down what came of it."""
    try:
        outcomes[key] = f"value {await ref.call(message)}"
    except (ActorError, Boom, Fatal) as exc:
        outcomes[key] = type(exc).__name__


async def test_a_call_is_answered_with_what_handle_returns_or_raises() -> None:
    async with open_actor(Host(), name="host") as ref:
        assert await ref.call(Get(7)) == 7
        boom = Boom()
        with pytest.raises(Boom) as caught:
            await ref.call(Do(raising(boom)))
        assert caught.value is boom
        assert await ref.call(Get(8)) == 8


async def test_a_call_that_the_end_has_answered_is_not_in_flight_while_its_handler_cleans_up() -> None:
    host, gate, outcomes, done = Host(max_in_flight=2), Gate(), Outcomes(), trio.Event()

    async def clean_up() -> None:
        try:
            await gate()
        finally:
            with trio.CancelScope(shield=True):
                await done.wait()

    async with open_supervisor(ChildSpec("host", lambda: host)) as tree, trio.open_nursery() as nursery:
        ref = tree.child("host")
        nursery.start_soon(ask, ref, outcomes, "slow", Do(clean_up))
        await settle()
        assert ref.statistics().in_flight == 1
        host.fail(Boom())
        await settle()
        assert (outcomes, gate.left) == ({"slow": "ActorCrashed"}, 1)
        assert ref.statistics().in_flight == 0
        done.set()


@pytest.mark.parametrize("how", ["fatal", "fail", "stop", "StopActor", "background", "left block", "interrupt"])
async def test_calls_in_flight_and_in_the_queue_are_answered_when_the_actor_ends(how: str) -> None:
    die, gate, outcomes = trio.Event(), Gate(), Outcomes()

    async def background(_: Host) -> None:
        await die.wait()
        raise Boom("background")

    host = Host(max_in_flight=2, background=background)
    door = leaving(KeyboardInterrupt) if how == "interrupt" else leaving(ActorCrashed)
    crashes = how in ("fatal", "fail", "background", "interrupt")
    async with trio.open_nursery() as callers:
        with door if crashes else trio.CancelScope():
            async with open_actor(host, name="host") as ref:
                for key in ("in flight 1", "in flight 2", "queued"):
                    callers.start_soon(ask, ref, outcomes, key, Do(gate))
                    await settle()
                match how:
                    case "fatal":
                        await ref.tell(DoNow(raising(Fatal())))
                    case "fail":
                        host.fail(Boom())
                    case "stop":
                        host.stop()
                    case "StopActor":
                        await ref.tell(DoNow(raising(StopActor())))
                    case "background":
                        die.set()
                    case "interrupt":
                        await ref.tell(DoNow(raising(KeyboardInterrupt())))
                if how != "left block":
                    await settle()
                    await ref.wait_stopped()
    lost = "ActorCrashed" if crashes else "ActorStopped"
    assert outcomes == {"in flight 1": lost, "in flight 2": lost, "queued": "ActorStopped"}
    assert (gate.entered, gate.left) == (2, 2)


@pytest.mark.parametrize("slow", ["close", "handler"])
async def test_calls_are_answered_before_a_slow_clean_up_ends(slow: str, autojump_clock: trio.abc.Clock) -> None:
    """K1: also a message that is sent after the end was decided is answered at once."""

    async def linger() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)

    async def unwind_slowly() -> None:
        try:
            await trio.sleep_forever()
        finally:
            await linger()

    host = Host(stop=hook(linger) if slow == "close" else None, max_in_flight=2)
    outcomes = Outcomes()
    async with open_actor(host, name="host") as ref, trio.open_nursery() as callers:
        callers.start_soon(ask, ref, outcomes, "in flight", Do(unwind_slowly))
        await settle()
        began = trio.current_time()
        host.stop()
        await settle()
        assert outcomes == {"in flight": "ActorStopped"}
        with pytest.raises(ActorStopped, match="it ended by itself: normal"):
            await ref.call(Get(1))
        assert ref.state == "stopping"
        assert trio.current_time() == began
        await ref.wait_stopped()
        assert trio.current_time() - began == 3


async def test_a_handler_may_end_its_actor_and_still_answer() -> None:
    """K1: the others in flight are answered in that step; the one that decides answers for itself."""
    host, gate, outcomes = Host(max_in_flight=3), Gate(), Outcomes()

    async def stop_and_answer() -> str:
        host.stop()
        return "last words"

    async def stop_and_wait() -> None:
        host.stop()
        await trio.sleep_forever()

    async def stop_from_a_task() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_and_wait)
            await trio.sleep_forever()

    for decide, told in (
        (stop_and_answer, "value last words"),
        (stop_and_wait, "ActorStopped"),
        (stop_from_a_task, "ActorStopped"),
    ):
        host = Host(max_in_flight=3)
        async with open_actor(host, name="host") as ref, trio.open_nursery() as callers:
            callers.start_soon(ask, ref, outcomes, "other", Do(gate))
            await settle()
            callers.start_soon(ask, ref, outcomes, "decides", Do(decide))
        assert outcomes == {"other": "ActorStopped", "decides": told}


async def test_a_slot_that_is_settled_refuses_a_second_answer_silently() -> None:
    """K1: the handler returns a value although its caller was answered when the end was decided."""
    host, outcomes = Host(max_in_flight=2), Outcomes()

    async def answer_late() -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "too late"

    async with open_actor(host, name="host") as ref, trio.open_nursery() as callers:
        callers.start_soon(ask, ref, outcomes, "call", Do(answer_late))
        await settle()
        host.stop()
    assert outcomes == {"call": "ActorStopped"}


async def test_a_message_that_an_observer_sends_at_the_end_is_answered() -> None:
    """K1: an observer runs inside the kernel's own step; what it does there must not fall between two stools."""
    outcomes, caught = Outcomes(), []
    host = Host()
    refs: list[ActorRef] = []

    def observe(event: object) -> None:
        if type(event).__name__ in ("Stopping", "Stopped"):
            try:
                refs[0].tell_nowait(Put(1))
            except ActorStopped as exc:
                caught.append(exc)

    async with open_actor(host, name="host", observers=[observe]) as ref:
        refs.append(ref)
        await ask(ref, outcomes, "call", Do(raising(StopActor())))
        await ref.wait_stopped()
    assert outcomes == {"call": "ActorStopped"}
    assert len(caught) == 2
    assert host.seen == []


@pytest.mark.parametrize("event", ["Starting", "Started"])
async def test_an_observer_may_end_an_actor_while_it_starts(event: str) -> None:
    host, calls = Host(), Outcomes()

    def observe(happened: object) -> None:
        if type(happened).__name__ == event and host._incarnation is not None:
            host.stop()

    async with open_actor(host, name="host", observers=[observe]) as ref:
        if event == "Starting":
            return
        await ask(ref, calls, "call", Do(raising(Boom())))
        await ref.wait_stopped()
    assert calls == {"call": "ActorStopped"}


async def test_a_child_that_an_observer_ends_while_it_starts_is_restarted() -> None:
    """K4: and takes nothing out of the mailbox any more."""
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host())
        return hosts[-1]

    def observe(happened: object) -> None:
        if isinstance(happened, Started) and happened.actor == "child" and happened.incarnation < 3:
            hosts[-1].fail(Boom())

    async with open_child(make, observers=[observe]) as supervisor:
        assert await supervisor.child("child").call(Get(1)) == 1
        assert supervisor.child("child").statistics().incarnation == 3


class Fickle(Actor):
    """Ends in many ways, all of them while it serves."""

    def __init__(self, chance: random.Random, served: collections.Counter[int], max_in_flight: int) -> None:
        self.chance = chance
        self.served = served
        self.max_in_flight = max_in_flight

    async def handle(self, message: Get) -> int:
        self.served[message.number] += 1
        for _ in range(self.chance.randrange(4)):
            await trio.sleep(self.chance.random())
        dice = self.chance.random()
        if dice < 0.05:
            raise Fatal
        if dice < 0.1:
            self.fail(Boom())
        elif dice < 0.15:
            raise StopActor
        elif dice < 0.2:
            self.stop("shutdown")
        elif dice < 0.3:
            raise Boom
        return message.number

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)


@pytest.mark.parametrize("max_in_flight", [1, 3, 50])
@pytest.mark.parametrize("seed", range(2))
async def test_in_a_storm_each_call_has_one_outcome_and_is_handled_once(
    seed: int, max_in_flight: int, autojump_clock: trio.abc.Clock
) -> None:
    """K1, K4: calls, cancels, crashes, ends and restarts at random; nothing hangs, nothing is handled twice."""
    chance = random.Random(seed)
    served: collections.Counter[int] = collections.Counter()
    outcomes: dict[int, list[str]] = collections.defaultdict(list)

    async def caller(ref: ActorRef, number: int) -> None:
        await trio.sleep(chance.random() * 40)
        with trio.move_on_after(chance.choice([0, 1, 10, math.inf])) as scope:
            try:
                assert await ref.call(Get(number)) == number
                outcomes[number].append("value")
            except (Boom, Fatal, ActorCrashed) as exc:
                outcomes[number].append(type(exc).__name__)
        if scope.cancelled_caught:
            outcomes[number].append("Cancelled")

    with trio.fail_after(10_000):
        async with open_child(lambda: Fickle(chance, served, max_in_flight)) as supervisor:
            ref = supervisor.child("child")
            async with trio.open_nursery() as callers:
                for number in range(600):
                    callers.start_soon(caller, ref, number)
            assert ref.statistics().queued == 0
    assert {len(ends) for ends in outcomes.values()} == {1}
    assert len(outcomes) == 600
    assert max(served.values()) == 1
    kinds = {ends[0] for ends in outcomes.values()}
    assert kinds == {"value", "Boom", "Fatal", "ActorCrashed", "Cancelled"}
    assert all(served[number] for number, ends in outcomes.items() if ends != ["Cancelled"])


# --- whatever goes wrong ----------------------------------------------------------------------------------------------


def deep(depth: int) -> Exception:
    error: Exception = Boom("at the bottom")
    for _ in range(depth):
        error = ExceptionGroup("level", [error])
    return error


@pytest.mark.parametrize("depth", [500, 20_000])
async def test_a_group_of_any_depth_loses_no_call(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    """C-31: out of a handler with and without a caller; the actor goes on."""
    error = deep(depth)
    with trio.fail_after(60):
        async with open_actor(Host(), name="host") as ref:
            with pytest.raises(ExceptionGroup) as caught:
                await ref.call(Do(raising(error)))
            assert caught.value is error
            await ref.tell(Do(raising(error)))
            assert await ref.call(Get(1)) == 1
    assert "at the bottom" in caplog.text


@pytest.mark.parametrize("where", ["start", "stop", "fail", "handle"])
async def test_a_group_of_any_depth_ends_its_actor_like_any_failure(where: str) -> None:
    """C-31: the text of the failure names the exception at the bottom."""
    errors = [ExceptionGroup("two", [deep(20_000), Boom("another")])]

    async def fail(_: Host) -> None:
        if errors:
            raise errors.pop()

    host = Host(start=fail if where == "start" else None, stop=fail if where == "stop" else None)
    with trio.fail_after(60):
        spec = ChildSpec("child", lambda: host if errors else Host())
        async with open_supervisor(spec, strict=False, max_restarts=3) as top:
            child = top.child("child")
            if where == "fail":
                host.fail(errors.pop())
            elif where == "stop":
                await top.stop_child("child")
                await top.restart_child("child")
            elif where == "handle":
                host.is_fatal = lambda exc: True  # type: ignore[method-assign]  # for this one
                with pytest.raises(ExceptionGroup):
                    await child.call(Do(raising(errors.pop())))
            await settle()
            assert await child.call(Get(1)) == 1
            assert child.statistics().incarnation == 2
            if where != "stop":
                assert "at the bottom" in str(top.tree().children[0].last_error)


async def test_an_exception_with_a_deep_group_as_its_cause_can_be_pickled() -> None:
    """C-31: pickle would exceed the recursion limit."""
    error = ActorCrashed("it crashed", actor="a")
    error.__cause__ = deep(20_000)
    loaded = pickle.loads(pickle.dumps(error)).__cause__
    assert isinstance(loaded, ExceptionGroup)
    assert [str(leaf) for leaf in loaded.exceptions] == ["at the bottom"]


@pytest.mark.parametrize("kind", ["call", "tell"])
async def test_a_handler_that_ends_without_an_answer_answers_with_an_error(
    kind: str, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """C-31: also because of a defect of the kernel; here, one that cannot tell what the exception means."""

    def broken(_: BaseException) -> BaseException:
        raise RecursionError

    with trio.fail_after(60):
        async with open_child() as top:
            child = top.child("child")
            monkeypatch.setattr("mcp_actors.kernel._serving.collapse", broken)
            if kind == "call":
                with pytest.raises(ActorError) as caught:
                    await child.call(Do(raising(Boom())))
                said("handler without an answer", str(caught.value))
            else:
                await child.tell(Do(raising(Boom())))
            monkeypatch.undo()
            await settle()
            assert await child.call(Get(1)) == 1
