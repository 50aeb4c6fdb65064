"""Supervisors under supervisors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorRef,
    ActorStopped,
    Backoff,
    ChildSpec,
    GaveUp,
    IgnoreStart,
    MailboxFull,
    Restarting,
    RestartLimitReached,
    Stopped,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)

from .workers import Boom, Crash, Echo, Hang, Yard, crash, door_raises, nest, shielded, state, states


def below(supervisor: SupervisorRef, id: str = "n") -> SupervisorRef:
    nested = supervisor.child(id)
    assert isinstance(nested, SupervisorRef)
    return nested


async def test_a_tree_starts_and_stops_in_order() -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), nest("n", yard.spec("b"), nest("m", yard.spec("c")), yard.spec("d")), yard.spec("e")
    ):
        assert yard.take_log() == ["a up", "b up", "c up", "d up", "e up"]
    assert yard.log == ["e down", "d down", "c down", "b down", "a down"]


async def test_a_crash_below_does_not_affect_the_upper_supervisor() -> None:
    yard = Yard()
    async with open_supervisor(nest("n", yard.spec("a"), yard.spec("b")), observers=[yard.events.append]) as supervisor:
        await crash(below(supervisor).child("a"))
        assert await states(supervisor) == ["running"]
        assert [child.incarnation for child in await below(supervisor).which_children()] == [2, 1]
        assert yard.of(Restarting) == ["a"]


async def test_a_permanent_supervisor_that_gave_up_is_restarted_with_its_children() -> None:
    yard = Yard()
    async with open_supervisor(
        nest("n", yard.spec("a"), yard.spec("b"), max_restarts=0), observers=[yard.events.append]
    ) as supervisor:
        a = below(supervisor).child("a")
        yard.take_log()
        await crash(a)
        assert yard.take_log() == ["a down", "b down", "a up", "b up"]
        assert yard.of(GaveUp) == ["a"]
        assert yard.of(Restarting) == ["n"]
        assert yard.of(Stopped) == []
        assert await a.call(Echo(1)) == 1
        assert a == below(supervisor).child("a")
        assert a.statistics().incarnation == 2


@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_another_supervisor_that_gave_up_is_not_restarted(restart: str) -> None:
    yard = Yard()
    async with open_supervisor(
        nest("n", yard.spec("a"), yard.spec("b"), max_restarts=0, child={"restart": restart}), yard.spec("c")
    ) as supervisor:
        a, b = below(supervisor).child("a"), below(supervisor).child("b")
        await crash(a)
        assert (state(a), state(b)) == ("failed", "stopped")
        assert await states(supervisor) == (["stopped", "running"] if restart == "transient" else ["running"])
        for ref in (a, b):
            with pytest.raises(ActorStopped):
                await ref.call(Echo(1))


async def test_the_limit_goes_up_from_supervisor_to_supervisor() -> None:
    yard = Yard()
    last = Boom("the last")
    with door_raises(RestartLimitReached, match="gave up on child 'n'") as limit:
        async with open_supervisor(yard.spec("c"), nest("n", yard.spec("a"), max_restarts=0), max_restarts=1) as top:
            a = below(top).child("a")
            await crash(a)
            await crash(a, last)
            await trio.sleep_forever()
    below_limit = limit.value.__cause__
    assert isinstance(below_limit, RestartLimitReached)
    assert "gave up on child 'a'" in str(below_limit)
    assert below_limit.__cause__ is last
    assert yard.log == ["c up", "a up", "a down", "a up", "a down", "c down"]


async def test_messages_for_a_child_survive_the_restart_of_its_supervisor(autojump_clock: MockClock) -> None:
    yard = Yard()
    answers: list[int] = []

    async def ask(number: int) -> None:
        answers.append(await b.call(Echo(number)))

    async def interrupted() -> None:
        with pytest.raises(ActorCrashed, match=r"ended \(shutdown\) while it handled Hang"):
            await b.call(Hang())

    async with (
        open_supervisor(
            nest("n", yard.spec("a"), yard.spec("b"), max_restarts=0), backoff=Backoff(first=10), window=100
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        b = below(supervisor).child("b")
        nursery.start_soon(interrupted)
        await settle()
        for number in (1, 2):
            nursery.start_soon(ask, number)
            await settle()
        await crash(below(supervisor).child("a"))
        assert (state(b), b.statistics().queued) == ("backoff", 2)
        nursery.start_soon(ask, 3)
        await trio.sleep(9)
        assert answers == []
        await trio.sleep(2)
        assert answers == [1, 2, 3]


async def test_messages_for_the_child_that_reached_the_limit_survive_the_restart_of_its_supervisor(
    autojump_clock: MockClock,
) -> None:
    """K2, K4: it comes back by itself, with its supervisor, so no caller gets an error that it does not."""
    yard = Yard()
    answers: list[int] = []

    async def ask(number: int) -> None:
        answers.append(await a.call(Echo(number)))

    async with (
        open_supervisor(
            nest("n", yard.spec("a"), yard.spec("b"), max_restarts=0), backoff=Backoff(first=10), window=100
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        a = below(supervisor).child("a")
        a.tell_nowait(Crash())
        nursery.start_soon(ask, 1)
        await settle()
        nursery.start_soon(ask, 2)
        await trio.sleep(5)
        assert (state(a), a.statistics().queued, answers) == ("backoff", 2, [])
        await trio.sleep(6)
        assert (state(a), answers) == ("running", [1, 2])


async def test_messages_survive_a_failed_attempt_to_restart_their_supervisor(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        nest("n", yard.spec("a", None, Boom("broken")), yard.spec("b"), max_restarts=0),
        max_restarts=2,
        window=100,
        backoff=Backoff(first=10, initial=10),
    ) as supervisor:
        a, b = below(supervisor).child("a"), below(supervisor).child("b")
        await crash(a)
        assert await b.call(Echo(1)) == 1
        assert await a.call(Echo(2)) == 2
        assert trio.current_time() == 20
        assert below(supervisor).statistics().incarnation == 3


@pytest.mark.parametrize("on_limit", ["end", "park"])
async def test_messages_are_answered_when_their_supervisor_is_given_up(
    autojump_clock: MockClock, on_limit: str
) -> None:
    yard = Yard()
    answered: list[str] = []

    async def ask() -> None:
        with pytest.raises(ActorStopped):
            await b.call(Echo(1))
        answered.append("b")

    with trio.move_on_after(100):
        try:
            async with (
                trio.open_nursery() as nursery,
                open_supervisor(
                    nest("n", yard.spec("a", None, Boom("broken"), Boom("broken")), yard.spec("b"), max_restarts=0),
                    max_restarts=2,
                    window=100,
                    backoff=Backoff(first=10, initial=10),
                    on_limit="park" if on_limit == "park" else "end",
                    observers=[yard.events.append],
                ) as supervisor,
            ):
                b = below(supervisor).child("b")
                await crash(below(supervisor).child("a"))
                nursery.start_soon(ask)
                await trio.sleep_forever()
        except* RestartLimitReached:
            pass
    assert answered == ["b"]
    assert set(yard.of(Stopped, "actor", "time")) >= {("a", 20), ("b", 20)}


@pytest.mark.parametrize("when", ["while it cleans up", "in back-off"])
async def test_messages_are_answered_when_their_supervisor_is_stopped_after_it_gave_up(
    autojump_clock: MockClock, when: str
) -> None:
    yard = Yard()
    async with open_supervisor(
        nest("n", yard.spec("a"), yard.spec("b", stop=5.0), max_restarts=0), backoff=Backoff(first=10), window=100
    ) as supervisor:
        a, b = below(supervisor).child("a"), below(supervisor).child("b")
        await crash(a)
        await trio.sleep(1 if when == "while it cleans up" else 6)
        assert (state(a), state(b)) == ("backoff", "backoff")
        await supervisor.stop_child("n")
        assert (state(a), state(b)) == ("failed", "stopped")
        for ref in (a, b):
            with pytest.raises(ActorStopped):
                await ref.call(Echo(1))


async def test_a_parked_supervisor_is_revived_with_its_children_and_their_refs() -> None:
    yard = Yard()
    async with open_supervisor(
        nest("n", yard.spec("a"), yard.spec("b"), max_restarts=0), max_restarts=0, on_limit="park"
    ) as supervisor:
        a = below(supervisor).child("a")
        await crash(a)
        assert await states(supervisor) == ["failed"]
        with pytest.raises(ActorStopped):
            await below(supervisor).which_children()
        await supervisor.restart_child("n")
        assert await states(below(supervisor)) == ["running", "running"]
        assert await a.call(Echo(1)) == 1


async def test_children_that_were_added_later_do_not_come_back_with_their_supervisor() -> None:
    yard = Yard()
    async with open_supervisor(nest("n", yard.spec("a"), max_restarts=0)) as supervisor:
        added = await below(supervisor).start_child(yard.spec("added"))
        await crash(below(supervisor).child("a"))
        assert [child.id for child in await below(supervisor).which_children()] == ["a"]
        with pytest.raises(ActorStopped):
            await added.call(Echo(1))


async def test_stop_child_keeps_the_mailboxes_below_if_asked_to() -> None:
    yard = Yard()
    async with open_supervisor(nest("n", yard.spec("a"))) as supervisor, trio.open_nursery() as nursery:
        a = below(supervisor).child("a")
        await supervisor.stop_child("n", keep_mailbox=True)
        nursery.start_soon(a.call, Echo(1))
        await settle()
        await supervisor.restart_child("n")
        await settle()
        await supervisor.stop_child("n")
        with pytest.raises(ActorStopped):
            await a.call(Echo(1))
        await supervisor.restart_child("n")
        assert await a.call(Echo(1)) == 1


async def test_a_temporary_supervisor_that_is_stopped_keeps_no_mailboxes_below() -> None:
    """It leaves the child table, so nothing could start it again."""
    yard = Yard()
    spec = ChildSpec("n", lambda: Supervisor(yard.spec("a")), restart="temporary")
    async with open_supervisor(spec) as supervisor:
        a = below(supervisor).child("a")
        await supervisor.stop_child("n", keep_mailbox=True)
        assert a.state == "stopped"
        with pytest.raises(ActorStopped, match="no longer in the child table"):
            await a.call(Echo(1))


async def test_children_that_a_restarted_supervisor_no_longer_lists_have_ended() -> None:
    """Their callers and watchers would wait for ever otherwise."""
    yard, outcomes, reasons = Yard(), list[Any](), list[str]()
    listed = [yard.spec("a"), yard.spec("b"), nest("m", yard.spec("c"))]

    async def ask(ref: ActorRef) -> None:
        with pytest.raises(ActorStopped) as refused:
            await ref.call(Echo(1))
        outcomes.append(str(refused.value))

    async def watch(ref: ActorRef) -> None:
        async with ref.watch() as monitor:
            reasons.append((await monitor.wait()).reason)

    spec = ChildSpec("n", lambda: Supervisor(*listed))
    async with open_supervisor(spec) as supervisor, trio.open_nursery() as nursery:
        n = below(supervisor)
        refs = [n.child("b"), n.find("m/c")]
        await n.stop_child("b")
        await supervisor.stop_child("n", keep_mailbox=True)
        for ref in refs[1:]:
            nursery.start_soon(ask, ref)
            nursery.start_soon(watch, ref)
        await settle()
        del listed[1:]
        await supervisor.restart_child("n")
        await settle()
        assert [child.id for child in await n.which_children()] == ["a"]
        assert [ref.state for ref in refs] == ["stopped", "stopped"]
        assert reasons == ["not_running"]
        assert "supervisor 'n' was started again without it" in outcomes.pop()
        assert not outcomes


async def test_a_child_that_comes_back_with_its_supervisor_has_the_limits_of_its_new_spec() -> None:
    """The messages that wait are kept, and those that found no room move up."""
    yard = Yard()
    limits: list[dict[str, Any]] = [
        {"mailbox_size": 1},
        {"mailbox_size": 2, "overflow": "fail"},
        {"mailbox_size": 1, "overflow": "fail"},
    ]

    def nested() -> Supervisor:
        start = IgnoreStart(keep_mailbox=True) if limits else None
        return Supervisor(yard.spec("a", start, **(limits.pop(0) if limits else {})))

    async with open_supervisor(ChildSpec("n", nested)) as supervisor, trio.open_nursery() as nursery:
        a = below(supervisor).child("a")

        async def begin_again() -> None:
            await supervisor.stop_child("n", keep_mailbox=True)
            await supervisor.restart_child("n")

        accepted = trio.Event()

        async def tell_late() -> None:
            await a.tell(Echo(2))
            accepted.set()

        await a.tell(Echo(1))
        nursery.start_soon(tell_late)
        await settle()
        assert not accepted.is_set()
        await begin_again()
        await settle()
        assert accepted.is_set()
        with pytest.raises(MailboxFull):
            await a.tell(Echo(3))
        await begin_again()
        assert a.statistics().queued == 2
        await begin_again()
        assert await a.call(Echo(4)) == 4
        assert a.statistics().queued == 0


async def test_an_exit_out_of_a_grandchild_is_raised_ungrouped_after_clean_up() -> None:
    yard = Yard()
    error = KeyboardInterrupt()
    with door_raises(KeyboardInterrupt) as raised:
        async with open_supervisor(
            yard.spec("a"), nest("n", yard.spec("b"), nest("m", yard.spec("c", stop=error)))
        ) as supervisor:
            await crash(below(below(supervisor), "m").child("c"))
            await trio.sleep_forever()
    assert raised.value is error
    assert yard.log == ["a up", "b up", "c up", "b down", "a down"]


async def test_an_exit_out_of_the_start_of_a_grandchild_is_raised_ungrouped_after_clean_up() -> None:
    yard = Yard()
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as raised:
        async with open_supervisor(yard.spec("a"), nest("n", yard.spec("b"), yard.spec("c", error))):
            raise AssertionError("not reached")
    assert raised.value is error
    assert yard.log == ["a up", "b up", "c failed", "b down", "a down"]


async def test_an_exit_out_of_the_stop_of_a_grandchild_is_raised_ungrouped_after_clean_up() -> None:
    yard = Yard()
    error = SystemExit()
    with pytest.raises(SystemExit) as raised:
        async with open_supervisor(yard.spec("a"), nest("n", yard.spec("b"), yard.spec("c", stop=error))):
            pass
    assert raised.value is error
    assert yard.log == ["a up", "b up", "c up", "b down", "a down"]


async def test_a_supervisor_with_an_overdue_child_is_awaited(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), nest("n", yard.spec("b", stop=partial(shielded, 50), shutdown=2)), yard.spec("c")
    ):
        pass
    assert trio.current_time() == 50
    assert yard.log == ["a up", "b up", "c up", "c down", "a down", "b killed"]


class Lingering(Supervisor):
    """Takes long to end when all its children have ended."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            yield
        await trio.sleep(1000)


async def test_a_kill_reaches_what_ends_late_below_a_supervisor_with_an_overdue_child(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    overdue = yard.spec("b", stop=partial(shielded, 5), shutdown=1)
    upper = nest("m", ChildSpec("l", partial(Lingering, overdue)))
    slow = yard.spec("a", stop=100.0, shutdown=100)
    async with open_supervisor(nest("t", slow, upper, child={"shutdown": 30})):
        pass
    assert trio.current_time() == 30
