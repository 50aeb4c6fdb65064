"""Waiting before an attempt, and giving up without ending: back-off and park."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorStartError,
    ActorState,
    ActorStopped,
    Backoff,
    ChildError,
    ChildSpec,
    GaveUp,
    Restarting,
    Starting,
    Stopped,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)

from ..messages import Said
from .actors import Do, Fatal, Get, Host, hook, leaving, raising
from .workers import Boom, Crash, Deed, Echo, Hopeless, Yard, crash, state, states

FOREVER = 1000 * [Boom("does not start")]


# --- back-off ---------------------------------------------------------------------------------------------------------


async def test_delays_grow_from_first_and_initial_by_the_factor_up_to_the_maximum(autojump_clock: MockClock) -> None:
    yard = Yard()
    backoff = Backoff(first=0, initial=1, factor=2, maximum=5)
    async with open_supervisor(
        yard.spec("a", None, *FOREVER),
        backoff=backoff,
        max_restarts=6,
        window=math.inf,
        on_limit="park",
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        await supervisor.child("a").wait_state("failed")
    assert yard.of(Restarting, "attempt", "delay") == [(1, 0), (2, 1), (3, 2), (4, 4), (5, 5), (6, 5)]
    starts = [time for (time,) in yard.of(Starting, "time")][2:]  # the supervisor's own, and the one that crashed
    assert [later - earlier for earlier, later in pairwise(starts)] == [1, 2, 4, 5, 5]


async def test_jitter_only_lengthens_a_delay_and_no_more_than_it_may(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", None, *FOREVER),
        backoff=Backoff(first=10, initial=10, factor=1, jitter=0.1),
        max_restarts=50,
        window=math.inf,
        on_limit="park",
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        await supervisor.child("a").wait_state("failed")
    delays = [delay for (delay,) in yard.of(Restarting, "delay")]
    assert all(10 <= delay < 11 for delay in delays)
    assert len(set(delays)) > 1


class Rough(Backoff):
    """A back-off whose delays are wrong."""

    given: ClassVar[Any]

    def delay(self, attempt: int, **_: Any) -> float:
        if isinstance(self.given, BaseException):
            raise self.given
        wrong: float = self.given
        return wrong


WRONG = [-1.0, -1e-9, math.nan, None, "soon", True, KeyError("delay")]


@pytest.fixture(params=WRONG, ids=repr)
def rough(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Rough:
    monkeypatch.setattr(Rough, "given", request.param, raising=False)
    return Rough()


async def test_a_back_off_that_is_wrong_crashes_its_supervisor(rough: Rough) -> None:
    """C-30: and neither the whole program nor the supervisor above."""

    def make() -> Supervisor:
        return Supervisor(ChildSpec("x", Host), backoff=rough)

    async with open_supervisor(ChildSpec("healthy", Host), ChildSpec("below", make)) as top:
        below = top.child("below", SupervisorRef)
        with pytest.raises(Fatal):
            await below.child("x").call(Do(raising(Fatal())))
        await settle()
        assert [(child.id, child.incarnation) for child in await top.which_children()] == [("healthy", 1), ("below", 2)]
        assert await below.child("x").call(Get(1)) == 1


@pytest.mark.parametrize("when", ["crash", "start_child", "open"])
async def test_a_back_off_that_is_wrong_is_the_cause_of_the_end_of_its_supervisor(rough: Rough, when: str) -> None:
    """C-30: also if a first start has failed, by which the caller of a change is not left waiting."""
    y = ChildSpec("y", partial(Host, start=hook(raising(Boom("does not start")))))
    specs = [ChildSpec("x", Host), y] if when == "open" else [ChildSpec("x", Host)]
    with leaving(ActorStartError if when == "open" else ActorCrashed) as caught, trio.fail_after(10):
        async with open_supervisor(*specs, backoff=rough, strict=False) as top:
            if when == "crash":
                await top.child("x").tell(Do(raising(Fatal())))
            else:
                with pytest.raises(ActorCrashed):
                    await top.start_child(y)
            await trio.sleep_forever()
    cause = caught.value.__cause__
    assert cause is rough.given or "Rough.delay() returned" in str(cause)


async def test_a_long_enough_run_makes_the_back_off_begin_anew(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        backoff=Backoff(first=1, initial=2),
        max_restarts=9,
        window=math.inf,
        reset_after=60,
        observers=[yard.events.append],
    ) as supervisor:
        a = supervisor.child("a")
        for lasted in (10, 59, 60, 10):
            await trio.sleep(lasted)
            await crash(a)
            await a.wait_state("running")
    assert yard.of(Restarting, "attempt", "delay") == [(1, 1), (2, 2), (1, 1), (2, 2)]


async def test_without_a_reset_the_back_off_goes_on_growing(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), backoff=Backoff(initial=2), window=100, observers=[yard.events.append]
    ) as supervisor:
        a = supervisor.child("a")
        for _ in range(3):
            await trio.sleep(1000)
            await crash(a)
            await a.wait_state("running")
    assert yard.of(Restarting, "delay") == [(0,), (2,), (4,)]


async def test_in_back_off_questions_are_answered_and_siblings_restarted_at_once(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), yard.spec("b"), backoff=Backoff(first=10, initial=5), max_restarts=2, window=100
    ) as supervisor:
        began = trio.current_time()
        await crash(supervisor.child("a"))
        assert await states(supervisor) == ["backoff", "running"]
        assert (await supervisor.count_children()).active == 1
        await supervisor.stop_child("b")
        await supervisor.restart_child("b")
        assert trio.current_time() == began
        await supervisor.child("a").wait_state("running")
        assert trio.current_time() == began + 10


async def test_stop_child_ends_a_back_off_at_once_even_if_the_manager_is_busy(autojump_clock: MockClock) -> None:
    """A back-off of 100 s, while another child takes 50 s to start."""
    yard = Yard()
    async with (
        open_supervisor(
            yard.spec("a"), backoff=Backoff(first=100), window=1000, observers=[yard.events.append]
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        a = supervisor.child("a")
        await crash(a)
        nursery.start_soon(supervisor.start_child, yard.spec("slow", 50))
        await settle()
        began = trio.current_time()
        await supervisor.stop_child("a")
        assert await states(supervisor) == ["stopped", "starting"]
        assert yard.of(Stopped) == ["a"]
        with pytest.raises(ActorStopped, match="it was stopped"):
            await a.call(Echo(1))
        assert trio.current_time() == began
        await trio.sleep(200)
        assert await states(supervisor) == ["stopped", "running"]


async def test_a_stale_alarm_starts_nothing(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), backoff=Backoff(first=10), window=100, observers=[yard.events.append]
    ) as supervisor:
        a = supervisor.child("a")
        await crash(a)
        await trio.sleep(9)
        await supervisor.stop_child("a")
        await supervisor.restart_child("a")
        await trio.sleep(100)
        assert a.statistics().incarnation == 2
    assert yard.log == ["a up", "a down", "a up", "a down"]


async def test_an_alarm_that_went_off_while_the_manager_was_busy_is_stale_too(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(yard.spec("a"), backoff=Backoff(first=10), window=100) as supervisor,
        trio.open_nursery() as nursery,
    ):
        await crash(supervisor.child("a"))
        nursery.start_soon(supervisor.start_child, yard.spec("slow", 50))
        await trio.sleep(20)
        await supervisor.stop_child("a")
        await trio.sleep(100)
        assert supervisor.child("a").state == "stopped"
        assert supervisor.child("a").statistics().incarnation == 1


async def test_an_attempt_without_delay_that_waits_for_its_turn_is_stale_after_a_stop(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    go_on = trio.Event()

    async def fail_then() -> None:
        await go_on.wait()
        raise Boom("does not start")

    async with (
        open_supervisor(yard.spec("a", None, fail_then), max_restarts=2) as supervisor,
        trio.open_nursery() as nursery,
    ):
        await crash(supervisor.child("a"))
        nursery.start_soon(supervisor.start_child, yard.spec("slow", 50))
        await settle()
        go_on.set()
        await settle()
        assert await states(supervisor) == ["backoff", "starting"]
        await supervisor.stop_child("a")
        await trio.sleep(100)
        assert await states(supervisor) == ["stopped", "running"]
        assert supervisor.child("a").statistics().incarnation == 2


async def test_messages_wait_through_a_back_off(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), backoff=Backoff(first=10), window=100) as supervisor:
        a = supervisor.child("a")
        await crash(a)
        began = trio.current_time()
        assert await a.call(Echo(5)) == 5
        assert trio.current_time() == began + 10


async def test_the_supervisor_ends_at_once_while_children_back_off(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), backoff=Backoff(first=10), window=100) as supervisor:
        await crash(supervisor.child("a"))
        began = trio.current_time()
    assert trio.current_time() == began
    assert supervisor.child("a").state == "stopped"


async def test_the_states_of_a_child_are_visible_while_it_is_in_them(autojump_clock: MockClock) -> None:
    yard = Yard()
    seen: list[ActorState] = []
    async with (
        open_supervisor(
            yard.spec("a", None, 2, stop=3.0), backoff=Backoff(first=10), max_restarts=1, window=100
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        a = supervisor.child("a")
        seen.append(a.state)
        nursery.start_soon(partial(a.tell, Crash()))
        await trio.sleep(4)
        seen.append(a.state)
        await trio.sleep(10)
        seen.append(a.state)
        await trio.sleep(2)
        seen.append(a.state)
        nursery.start_soon(supervisor.stop_child, "a")
        await trio.sleep(1)
        seen.append(a.state)
        await trio.sleep(3)
        seen.append(a.state)
    assert seen == ["running", "backoff", "starting", "running", "stopping", "stopped"]


# --- park -------------------------------------------------------------------------------------------------------------


async def test_a_parked_child_is_failed_and_its_queue_is_answered_and_its_siblings_serve() -> None:
    yard = Yard()
    outcomes: list[str] = []

    async def ask() -> None:
        try:
            await a.call(Echo(1))
        except ActorStopped as exc:
            outcomes.append(str(exc))

    # The second start lasts until a task waits.
    waiting = trio.Event()

    async def fail_then() -> None:
        await waiting.wait()
        raise Boom("does not start")

    async with (
        open_supervisor(
            yard.spec("a", None, fail_then),
            yard.spec("b"),
            on_limit="park",
            observers=[yard.events.append],
            name="top",
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        a = supervisor.child("a")
        await crash(a)
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await settle()
        assert outcomes == []
        waiting.set()
        await settle()
        assert len(outcomes) == 2
        assert "supervisor 'top' gave up on it: restart limit reached (1 restart within 5 s)" in outcomes[0]
        assert "Boom('does not start')" in outcomes[0]
        assert yard.of(GaveUp) == ["a"]
        assert await states(supervisor) == ["failed", "running"]
        await a.wait_stopped()
        assert await supervisor.child("b").call(Echo(2)) == 2
    assert supervisor.child("a").state == "failed"


async def test_restart_child_revives_a_parked_child_with_the_same_ref_and_a_fresh_budget() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), window=math.inf, on_limit="park") as supervisor:
        a = supervisor.child("a")
        for incarnation in (2, 4):
            await crash(a)
            assert state(a) == "running"
            await crash(a)
            assert state(a) == "failed"
            assert a.statistics().incarnation == incarnation
            with pytest.raises(ActorStopped):
                await a.call(Echo(1))
            assert await supervisor.restart_child("a") == a
            assert await a.call(Echo(1)) == 1


async def test_restart_child_of_a_stopped_child_leaves_the_budget_as_it_is() -> None:
    """OTP's supervisor neither counts explicit restarts nor resets its count for them."""
    yard = Yard()
    async with open_supervisor(yard.spec("a"), window=math.inf, on_limit="park") as supervisor:
        a = supervisor.child("a")
        await crash(a)
        await supervisor.stop_child("a")
        await supervisor.restart_child("a")
        assert state(a) == "running"
        await crash(a)
        assert state(a) == "failed"


async def test_restart_child_makes_the_back_off_begin_anew(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        backoff=Backoff(first=1, initial=50),
        max_restarts=3,
        window=1000,
        observers=[yard.events.append],
    ) as supervisor:
        a = supervisor.child("a")
        for _ in range(2):
            await crash(a)
            await a.wait_state("running")
        await supervisor.stop_child("a")
        await supervisor.restart_child("a")
        await crash(a)
    assert yard.of(Restarting, "delay") == [(1,), (50,), (1,)]


@pytest.mark.parametrize("when", ["at the first start", "at a restart", "while it serves"])
async def test_a_hopeless_failure_parks_at_once(when: str, said: Said) -> None:
    yard = Yard()
    hopeless = Hopeless("no such command")
    plans: dict[str, list[Deed]] = {"at the first start": [hopeless], "at a restart": [None, hopeless]}
    async with open_supervisor(
        yard.spec("a", *plans.get(when, [])),
        yard.spec("b"),
        on_limit="park",
        strict=False,
        max_restarts=10,
        observers=[yard.events.append],
    ) as supervisor:
        if when == "at a restart":
            await crash(supervisor.child("a"))
        elif when == "while it serves":
            await crash(supervisor.child("a"), hopeless)
        assert await states(supervisor) == ["failed", "running"]
        assert yard.of(Restarting) == (["a"] if when == "at a restart" else [])
        assert yard.of(GaveUp, "error") == [(hopeless,)]
        with pytest.raises(ActorStopped) as caught:
            await supervisor.child("a").call(Echo(1))
        said("hopeless child", str(caught.value))
        await supervisor.restart_child("a")
        assert await states(supervisor) == ["running", "running"]


async def test_stop_child_leaves_a_parked_child_parked_and_delete_child_removes_it() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), max_restarts=0, on_limit="park") as supervisor:
        a = supervisor.child("a")
        await crash(a)
        await supervisor.stop_child("a")
        assert state(a) == "failed"
        await supervisor.delete_child("a")
        assert await supervisor.which_children() == ()
        with pytest.raises(ChildError, match="child 'a' not found; it has no children"):
            supervisor.child("a")
