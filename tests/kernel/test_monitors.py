"""Monitors: an actor or a task learns, once, that an incarnation of another actor has ended."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorError,
    ActorRef,
    ActorStartError,
    Backoff,
    Down,
    IgnoreStart,
    Monitor,
    RestartLimitReached,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Boom, Do, Fatal, Gate, Host, open_child, raising, shielded
from .test_timers import OnTaken, in_handler
from .workers import Echo, Yard, crash, door_raises, finish, nest


class Watcher(Host):
    """Keeps the reports that it gets in `seen`."""

    async def handle(self, message: Any) -> Any:
        if isinstance(message, Down):
            self.seen.append(message)
            return None
        return await super().handle(message)

    def take_seen(self) -> list[tuple[str, str, bool]]:
        """Name, reason and ``comes_back`` of the reports so far, and forget them."""
        seen, self.seen = self.seen, []
        return [(down.ref.name, down.reason, down.comes_back) for down in seen]


async def watch(watcher: Watcher, *refs: ActorRef) -> list[Monitor]:
    """Have an actor watch others, from its handler."""
    found: list[Monitor] = await in_handler(watcher.ref, lambda: [watcher.watch(ref) for ref in refs])
    return found


# --- reasons ----------------------------------------------------------------------------------------------------------


async def test_a_crash_is_reported_once_with_its_error_when_everything_is_released(autojump_clock: MockClock) -> None:
    released: list[float] = []

    async def release(_: Host) -> None:
        await trio.sleep(3)
        released.append(trio.current_time())

    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_child(lambda: Host(stop=release), shutdown=10.0) as supervisor,
    ):
        ref = supervisor.child("child")
        (monitor,) = await watch(watcher, ref)
        assert (repr(monitor), monitor.ref) == ("<Monitor of 'child'>", ref)
        with pytest.raises(Fatal):
            await ref.call(Do(raising(Fatal("broken"))))
        assert watcher.seen == []
        await trio.sleep(4)
        (down,) = watcher.seen
        assert len(released) == 1
        assert isinstance(down.error, Fatal)
        assert (down.ref, down.reason, down.incarnation, down.comes_back) == (ref, "crashed", 1, True)
        with pytest.raises(Fatal):
            await ref.call(Do(raising(Fatal("again"))))
        await trio.sleep(4)
        assert watcher.seen == [down]


async def test_the_reason_says_how_the_actor_has_ended(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(
            yard.spec("normal", restart="transient"),
            yard.spec("shutdown", restart="transient"),
            yard.spec("again"),
            yard.spec("stopped"),
            yard.spec("kept"),
            yard.spec("killed", shutdown="brutal_kill"),
            yard.spec("late", stop=trio.sleep_forever, shutdown=1.0),
            max_restarts=5,
        ) as supervisor,
    ):
        names = [child.id for child in await supervisor.which_children()]
        await watch(watcher, *(supervisor.child(name) for name in names))
        await finish(supervisor.child("normal"))
        await finish(supervisor.child("shutdown"), "shutdown")
        await finish(supervisor.child("again"))
        await supervisor.stop_child("stopped")
        await supervisor.stop_child("kept", keep_mailbox=True)
        await supervisor.stop_child("killed")
        await supervisor.stop_child("late")
        await settle()
        assert watcher.take_seen() == [
            ("normal", "normal", False),
            ("shutdown", "shutdown", False),
            ("again", "normal", True),
            ("stopped", "shutdown", False),
            ("kept", "shutdown", True),
            ("killed", "killed", False),
            ("late", "killed", False),
        ]


async def test_a_crash_whose_clean_up_had_to_be_killed_is_still_a_crash(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(yard.spec("a", stop=trio.sleep_forever, shutdown=1.0)) as supervisor,
    ):
        await watch(watcher, supervisor.child("a"))
        await crash(supervisor.child("a"))
        await trio.sleep(2)
        assert watcher.take_seen() == [("a", "crashed", True)]


async def test_an_actor_that_has_stopped_is_reported_at_once(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(yard.spec("a"), yard.spec("b"), max_restarts=0, on_limit="park") as supervisor,
    ):
        await supervisor.stop_child("a")
        await crash(supervisor.child("b"))
        await watch(watcher, supervisor.child("a"), supervisor.child("b"), supervisor.child("a"))
        await settle()
        assert [(down.ref.name, down.reason, down.error, down.incarnation) for down in watcher.seen] == [
            ("a", "not_running", None, 1),
            ("b", "not_running", None, 1),
            ("a", "not_running", None, 1),
        ]


# --- starts -----------------------------------------------------------------------------------------------------------


async def test_a_start_that_fails_is_a_crash_of_that_incarnation(autojump_clock: MockClock) -> None:
    """The first start of a strict supervisor is not tried again; all other starts are."""
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(
            yard.spec("old", None, Boom("again"), None), max_restarts=3, window=100.0, backoff=Backoff(first=1.0)
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):

        async def start() -> None:
            with pytest.raises(ActorStartError):
                await supervisor.start_child(yard.spec("new", slow_failure))

        nursery.start_soon(start)
        await settle()
        await watch(watcher, supervisor.child("new"))
        await trio.sleep(3)
        assert watcher.take_seen() == [("new", "crashed", False)]
        await crash(supervisor.child("old"))
        await watch(watcher, supervisor.child("old"))  # it is in back-off
        await trio.sleep(5)
        assert watcher.take_seen() == [("old", "crashed", True)]
        assert supervisor.child("old").state == "running"


async def slow_failure() -> None:
    await trio.sleep(2)
    raise Boom("no network")


async def slow_ignore() -> None:
    await trio.sleep(2)
    raise IgnoreStart


async def test_a_start_that_is_ignored_or_cut_short_is_reported(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(start_order="parallel", strict=False, max_restarts=9) as supervisor,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(supervisor.start_child, yard.spec("ignored", slow_ignore))
        nursery.start_soon(ignore_error, supervisor.start_child, yard.spec("cut", trio.sleep_forever))
        nursery.start_soon(supervisor.start_child, yard.spec("failed", slow_failure, slow_failure))
        await settle()
        await watch(watcher, *(supervisor.child(name) for name in ("ignored", "cut", "failed")))
        await supervisor.stop_child("cut")
        await trio.sleep(3)
        assert sorted(watcher.take_seen()) == [
            ("cut", "shutdown", False),
            ("failed", "crashed", True),
            ("ignored", "ignored", False),
        ]


async def ignore_error(fn: Callable[..., Any], *args: Any) -> None:
    with suppress(ActorError):
        await fn(*args)


async def test_a_child_whose_turn_to_start_never_comes_is_reported(autojump_clock: MockClock) -> None:
    """Its strict supervisor fails with the start of another child before."""
    yard = Yard()
    async with open_supervisor(strict=False) as outer, trio.open_nursery() as nursery:
        nursery.start_soon(ignore_error, outer.start_child, nest("inner", yard.spec("a", slow_failure), yard.spec("b")))
        await settle()
        b = outer.find("inner/b")
        async with b.watch() as monitor:
            await outer.stop_child("inner")
            assert (await monitor.wait()).reason == "not_running"
            assert (await monitor.wait()).incarnation == 0
        nursery.cancel_scope.cancel("the test is done")


# --- restarts ---------------------------------------------------------------------------------------------------------


async def test_between_two_incarnations_the_next_one_is_watched(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(yard.spec("a"), max_restarts=3, window=100, backoff=Backoff(first=5)) as supervisor,
    ):
        a = supervisor.child("a")
        await crash(a)
        await watch(watcher, a)
        await trio.sleep(10)
        assert (a.state, watcher.seen) == ("running", [])
        await crash(a)
        assert watcher.seen[0].incarnation == 2
        assert watcher.take_seen() == [("a", "crashed", True)]


@pytest.mark.parametrize("on_limit", ["park", "end"])
async def test_a_watched_actor_that_is_not_restarted_after_all_is_not_running(on_limit: Any) -> None:
    """The crash is reported when it happens, before its supervisor decides; who watches it again gets that decision."""
    yard = Yard()
    async with open_actor(watcher := Watcher(), name="watcher"):
        with door_raises(RestartLimitReached) if on_limit == "end" else nullcontext():
            async with open_supervisor(
                nest("inner", yard.spec("a"), max_restarts=0, on_limit=on_limit), max_restarts=0
            ) as outer:
                a = outer.find("inner/a")
                await watch(watcher, a)
                OnTaken("watcher:Down", partial(watcher.watch, a))
                await crash(a)
        await settle()
        assert watcher.take_seen() == [("a", "crashed", True), ("a", "not_running", False)]


async def test_a_stop_during_the_back_off_is_reported_as_not_running(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(yard.spec("a"), backoff=Backoff(first=4.0), max_restarts=1) as supervisor,
    ):
        await crash(supervisor.child("a"))
        await watch(watcher, supervisor.child("a"))
        await supervisor.stop_child("a")
        await settle()
        assert watcher.take_seen() == [("a", "not_running", False)]


async def test_a_deleted_child_is_not_running() -> None:
    yard = Yard()
    async with open_actor(watcher := Watcher(), name="watcher"), open_supervisor(yard.spec("a")) as supervisor:
        a = supervisor.child("a")
        await watch(watcher, a)
        await supervisor.stop_child("a")
        await supervisor.delete_child("a")
        await watch(watcher, a)
        await settle()
        assert watcher.take_seen() == [("a", "shutdown", False), ("a", "not_running", False)]


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_restart_of_a_group_is_reported_for_each_member(strategy: Any) -> None:
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(yard.spec("a"), yard.spec("b"), yard.spec("m", restart="temporary"), strategy=strategy) as top,
    ):
        await watch(watcher, top.child("a"), top.child("b"), top.child("m"))
        await crash(top.child("a"))
        await settle()
        assert watcher.take_seen() == [("a", "crashed", True), ("m", "shutdown", False), ("b", "shutdown", True)]


async def test_children_of_a_supervisor_that_is_restarted_or_ends_are_reported(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_actor(watcher := Watcher(), name="watcher"):
        async with open_supervisor(
            nest("inner", yard.spec("a"), yard.spec("b"), max_restarts=0), max_restarts=1
        ) as outer:
            inner = outer.child("inner", SupervisorRef)
            added = await inner.start_child(yard.spec("added"))
            await watch(watcher, inner, inner.child("a"), inner.child("b"), added)
            await crash(inner.child("a"))
            await settle()
            assert inner.state == "running"
            (down,) = [down for down in watcher.seen if down.ref == inner]
            assert isinstance(down.error, RestartLimitReached)
            assert isinstance(down.ref, SupervisorRef)
            assert watcher.take_seen() == [
                ("a", "crashed", True),
                ("added", "shutdown", False),
                ("b", "shutdown", True),
                ("inner", "shutdown", True),
            ]
            await watch(watcher, inner, inner.child("a"), inner.child("b"), outer, added)
        await settle()
        assert watcher.take_seen() == [
            ("added", "not_running", False),
            ("b", "shutdown", False),
            ("a", "shutdown", False),
            ("inner", "shutdown", False),
            ("supervisor", "shutdown", False),
        ]


async def test_a_child_that_waits_for_its_restart_when_its_supervisors_end_is_not_running(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    async with open_actor(watcher := Watcher(), name="watcher"):
        async with open_supervisor(nest("inner", yard.spec("a"), backoff=Backoff(first=4.0), max_restarts=1)) as outer:
            await crash(outer.find("inner/a"))
            await watch(watcher, outer.find("inner/a"))
        await settle()
        assert watcher.take_seen() == [("a", "not_running", False)]


async def test_an_overdue_incarnation_is_reported_when_it_is_over(autojump_clock: MockClock) -> None:
    async def stop() -> None:
        await shielded(60)

    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(yard.spec("a", stop=stop, shutdown=1.0), yard.spec("b")) as supervisor,
        trio.open_nursery() as nursery,
    ):
        await watch(watcher, supervisor.child("a"))
        nursery.start_soon(supervisor.stop_child, "a")
        await trio.sleep(30)
        await watch(watcher, supervisor.child("a"))
        assert watcher.seen == []
        await trio.sleep(40)
        assert watcher.take_seen() == [("a", "killed", False), ("a", "killed", False)]


async def test_an_overdue_start_of_a_parked_child_is_reported_when_it_is_over(autojump_clock: MockClock) -> None:
    """Its state is ``failed`` long before."""

    async def start() -> None:
        await shielded(60)

    yard = Yard()
    async with (
        open_actor(watcher := Watcher(), name="watcher"),
        open_supervisor(
            yard.spec("a", start, start_timeout=1.0, shutdown=1.0),
            strict=False,
            max_restarts=0,
            on_limit="park",
        ) as supervisor,
    ):
        a = supervisor.child("a")
        assert a.state == "failed"
        await watch(watcher, a)
        await settle()
        assert watcher.seen == []
        await trio.sleep(70)
        assert watcher.take_seen() == [("a", "crashed", False)]


# --- under open_actor -------------------------------------------------------------------------------------------------


async def test_an_actor_without_a_supervisor_can_be_watched() -> None:
    async with open_actor(watcher := Watcher(), name="watcher"):
        with door_raises(ActorCrashed):
            async with open_actor(Host(), name="crashes") as ref:
                await watch(watcher, ref)
                with pytest.raises(Fatal):
                    await ref.call(Do(raising(Fatal("broken"))))
                await trio.sleep_forever()
        async with open_actor(Host(), name="stops") as ref:
            await watch(watcher, ref)
        await settle()
        await watch(watcher, ref)
        await settle()
        assert watcher.take_seen() == [
            ("crashes", "crashed", False),
            ("stops", "shutdown", False),
            ("stops", "not_running", False),
        ]


# --- the watcher ends -------------------------------------------------------------------------------------------------


async def test_monitors_end_with_the_incarnation_that_watches() -> None:
    watchers: list[Watcher] = []

    def factory() -> Watcher:
        watchers.append(Watcher())
        return watchers[-1]

    yard = Yard()
    async with open_child(factory) as top, open_supervisor(yard.spec("a"), max_restarts=9) as supervisor:
        a = supervisor.child("a")
        for _ in range(100):
            await watch(watchers[-1], a, a)
            with pytest.raises(Fatal):
                await top.child("child").call(Do(raising(Fatal("broken"))))
            await settle()
        assert a._record._watchers == {}
        await crash(a)
        assert [watcher.seen for watcher in watchers] == [[]] * 101


async def test_a_report_that_is_queued_does_not_reach_the_next_incarnation() -> None:
    watchers: list[Watcher] = []
    gate = Gate()

    def factory() -> Watcher:
        watchers.append(Watcher())
        return watchers[-1]

    async def fail() -> None:
        await gate()
        raise Fatal("broken")

    yard = Yard()
    async with (
        open_child(factory, mailbox_size=1, overflow="fail") as top,
        open_supervisor(yard.spec("a"), yard.spec("b")) as supervisor,
        trio.open_nursery() as nursery,
    ):
        ref = top.child("child")
        await watch(watchers[0], supervisor.child("a"), supervisor.child("b"))

        async def wait_for_failure() -> None:
            with pytest.raises(Fatal):
                await ref.call(Do(fail))

        nursery.start_soon(wait_for_failure)
        await settle()
        await supervisor.stop_child("a")
        await supervisor.stop_child("b")
        assert ref.statistics().queued == 2  # neither is refused
        gate.open()
        await settle()
        assert (ref.statistics().incarnation, ref.statistics().queued) == (2, 0)
        assert [watcher.seen for watcher in watchers] == [[], []]


async def test_an_actor_that_ends_watches_no_actor_any_more() -> None:
    monitors: list[Monitor] = []
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:

        async def stop(host: Host) -> None:
            monitors.append(host.watch(supervisor.child("a")))

        watcher = Watcher(stop=stop)
        async with open_actor(watcher, name="watcher"):
            pass
        assert supervisor.child("a")._record._watchers == {}
        await crash(supervisor.child("a"))
        assert watcher.seen == []
        monitors[0].cancel()


# --- unwatch ----------------------------------------------------------------------------------------------------------


async def test_a_canceled_monitor_reports_nothing_also_if_its_report_is_queued() -> None:
    yard, gate = Yard(), Gate()
    async with (
        open_actor(watcher := Watcher(), name="watcher") as ref,
        open_supervisor(yard.spec("a"), yard.spec("b"), yard.spec("c")) as supervisor,
    ):
        first, second, third = await watch(watcher, *(supervisor.child(id) for id in "abc"))
        first.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call, Do(gate))
            for id in "abc":
                await supervisor.stop_child(id)
            assert ref.statistics().queued == 2
            watcher.unwatch(second)
            assert ref.statistics().queued == 1
            second.cancel()
            gate.open()
        await settle()
        assert watcher.take_seen() == [("c", "shutdown", False)]
        third.cancel()


async def test_a_monitor_may_be_canceled_in_the_step_that_reports_to_another() -> None:
    """The order is that in which the monitors were set."""
    yard = Yard()
    async with (
        open_actor(watcher := Watcher(max_in_flight=2), name="watcher"),
        open_supervisor(yard.spec("a")) as supervisor,
    ):
        a = supervisor.child("a")
        first, second = await watch(watcher, a, a)
        OnTaken("watcher:Down", second.cancel)
        await supervisor.stop_child("a")
        await settle()
        assert watcher.take_seen() == [("a", "shutdown", False)]
        with pytest.raises(RuntimeError, match="was canceled"):
            await second.wait()
        assert (await first.wait()).reason == "shutdown"


# --- tasks ------------------------------------------------------------------------------------------------------------


async def test_a_task_waits_for_the_end_of_an_incarnation(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        a = supervisor.child("a")
        async with a.watch() as monitor:
            with trio.move_on_after(5) as patience:
                await monitor.wait()
            assert patience.cancelled_caught
            await crash(a, Boom("broken"))
            down = await monitor.wait()
            assert (down.reason, str(down.error), down.comes_back) == ("crashed", "broken", True)
            assert await monitor.wait() is down
        assert await a.call(Echo(1)) == 1


async def test_several_tasks_may_wait_and_the_end_of_the_block_wakes_them(said: Said) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor, trio.open_nursery() as nursery:
        a = supervisor.child("a")

        async def wait(monitor: Monitor) -> None:
            with pytest.raises(RuntimeError) as canceled:
                await monitor.wait()
            said("monitor was canceled", str(canceled.value))

        async with a.watch() as monitor:
            nursery.start_soon(wait, monitor)
            nursery.start_soon(wait, monitor)
            await settle()
        assert a._record._watchers == {}


async def test_an_actor_that_stopped_is_reported_to_a_task_at_once() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        a = supervisor.child("a")
        await supervisor.stop_child("a")
        async with a.watch() as monitor:
            assert (await monitor.wait()).reason == "not_running"


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_an_actor_cannot_watch_itself(said: Said) -> None:
    async with open_actor(watcher := Watcher(), name="watcher") as ref:
        with pytest.raises(ActorError) as refused:
            await watch(watcher, ref)
        said("actor watches itself", str(refused.value))


async def test_only_a_reference_can_be_watched(said: Said) -> None:
    async with open_actor(watcher := Watcher(), name="watcher"):
        with pytest.raises(TypeError) as refused:
            await watch(watcher, "a")  # type: ignore[arg-type]  # that is what is tested
        said("watch: not a reference", str(refused.value))


async def test_an_actor_of_another_run_cannot_be_watched() -> None:
    others: list[ActorRef] = []

    def run_elsewhere() -> None:
        async def main() -> None:
            async with open_actor(Host(), name="other") as ref:
                others.append(ref)

        trio.run(main)

    await trio.to_thread.run_sync(run_elsewhere)
    async with open_actor(watcher := Watcher(), name="watcher"):
        with pytest.raises(RuntimeError, match="actor 'other': used outside its Trio run"):
            await watch(watcher, others[0])
        with pytest.raises(RuntimeError, match="actor 'other': used outside its Trio run"):
            async with others[0].watch():
                raise AssertionError("it can be watched")


# --- growth -----------------------------------------------------------------------------------------------------------


async def test_monitors_that_have_reported_do_not_pile_up() -> None:
    yard = Yard()
    gone: list[weakref.ref[Down]] = []

    class Forgetful(Watcher):
        async def handle(self, message: Any) -> Any:
            if isinstance(message, Down):
                gone.append(weakref.ref(message))
                return None
            return await super().handle(message)

    async with (
        open_actor(watcher := Forgetful(), name="watcher"),
        open_supervisor(yard.spec("a"), max_restarts=10**6, window=5.0) as supervisor,
    ):
        a = supervisor.child("a")
        for _ in range(100):
            await watch(watcher, a)
            await crash(a)
        gc.collect()
        assert len(gone) == 100
        assert sum(each() is not None for each in gone) <= 1
        assert a._record._watchers == {}
