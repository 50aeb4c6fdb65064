"""Actors that get more than they can handle, or wait for too long."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorRef,
    ActorStopped,
    Call,
    ChildSpec,
    HandledMessage,
    Later,
    MailboxFull,
    Message,
    Pool,
    Postpone,
    SupervisorRef,
    handles,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Boom, Do, DoNow, Fatal, Gate, Get, Host, Put, PutNow, hook, raising

# --- Control messages -------------------------------------------------------------------------------------------------


async def test_control_messages_are_bounded_and_counted() -> None:
    """D-64: as many wait as the mailbox holds, and the policy decides about one more."""
    gate = Gate()
    async with open_actor(Host(), name="host", mailbox_size=1, overflow="fail") as ref:
        ref.tell_nowait(DoNow(gate))
        full = 0
        for number in range(20_000):
            try:
                ref.tell_nowait(PutNow(number))
            except MailboxFull:
                full += 1
        await settle()
        assert (full, ref.statistics().queued, ref.statistics().in_flight) == (19_999, 1, 1)
        gate.open()
        await settle()
        assert (ref.statistics().queued, ref.statistics().in_flight) == (0, 0)


async def test_the_sender_of_one_more_control_message_waits_for_room() -> None:
    """D-64."""
    gate = Gate()
    seen: list[object] = []
    sent: list[object] = []
    async with open_actor(Host(seen=seen), name="host", mailbox_size=1) as ref, trio.open_nursery() as nursery:

        async def tell(number: int) -> None:
            await ref.tell(PutNow(number))
            sent.append(number)

        nursery.start_soon(ref.call, DoNow(gate))
        await settle()
        for number in range(3):
            nursery.start_soon(tell, number)
            await settle()
        assert (sent, ref.statistics().queued) == ([0], 3)
        gate.open()
        await settle()
        assert (sent, seen) == ([0, 1, 2], [0, 1, 2])


async def test_handlers_of_control_messages_run_one_at_a_time_and_between_two_awaits_of_another() -> None:
    """D-64."""
    first, second, ordinary = Gate(), Gate(), Gate()
    async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:
        for message in (Do(ordinary), DoNow(first), DoNow(second)):
            nursery.start_soon(ref.call, message)
            await settle()
        assert (ordinary.entered, first.entered, second.entered) == (1, 1, 0)
        first.open()
        await settle()
        assert (second.entered, ordinary.left) == (1, 0)
        second.open()
        ordinary.open()


async def test_control_messages_that_would_wait_for_each_other_are_refused() -> None:
    async with open_supervisor(ChildSpec("a", Host), ChildSpec("b", Host)) as top:
        a, b = top.child("a"), top.child("b")

        async def back() -> object:
            return await a.call(DoNow(trio.lowlevel.checkpoint))

        with pytest.raises(ActorError, match=r"'a' \(handling DoNow\) waits for 'b' \(handling Do\)|would deadlock"):
            await a.call(DoNow(lambda: b.call(Do(back))))


async def test_control_messages_to_an_actor_that_starts_wait_for_it() -> None:
    gate = Gate()
    async with open_supervisor() as top, trio.open_nursery() as nursery:
        nursery.start_soon(top.start_child, ChildSpec("a", Host, kwargs={"start": hook(gate)}))
        await settle()
        a = top.child("a")

        async def back() -> object:
            return await a.call(DoNow(trio.lowlevel.checkpoint))

        nursery.start_soon(back)
        await settle()
        assert a.statistics().queued == 1
        gate.open()


# --- A full mailbox ---------------------------------------------------------------------------------------------------


async def test_a_tell_that_would_deadlock_shows_the_circle(said: Said) -> None:
    """D-66: to wait for room would last for ever."""
    async with open_actor(Host(), name="host", mailbox_size=1) as ref:

        async def fill() -> None:
            await ref.tell(Put(1))
            await ref.tell(Put(2))

        with pytest.raises(MailboxFull) as full:
            await ref.call(Do(fill))
        said("tell deadlocks", str(full.value))

        async def fill_at_once() -> None:
            ref.tell_nowait(Put(3))
            ref.tell_nowait(Put(4))

        with pytest.raises(MailboxFull) as full:
            await ref.call(Do(fill_at_once))
        said("full for tell_nowait", str(full.value))


@pytest.mark.parametrize("kind", ["tell", "tell_nowait"])
async def test_a_full_mailbox_may_drop_its_oldest_message(kind: str, said: Said) -> None:
    """D-72: they are counted, and a caller among them gets an error."""
    seen: list[Any] = []
    gate = Gate()
    async with open_supervisor(
        ChildSpec("a", Host, kwargs={"seen": seen}, mailbox_size=2, overflow="drop_oldest")
    ) as top:
        ref = top.child("a")
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(MailboxFull) as dropped:
                    await ref.call(Get(1))
                said("dropped for a newer message", str(dropped.value))

            nursery.start_soon(ref.call, Do(gate))
            await settle()
            nursery.start_soon(call)
            await settle()
            for number in (2, 3, 4):
                if kind == "tell":
                    await ref.tell(Put(number))
                else:
                    ref.tell_nowait(Put(number))
            assert (ref.statistics().queued, ref.statistics().dropped) == (2, 2)
            assert "2 dropped" in str(top.tree())
            gate.open()
        await settle()
        assert seen == [3, 4]


async def test_messages_that_return_to_a_full_mailbox_are_dropped_first() -> None:
    """D-72: the others keep their order, and no sender waits."""

    class Waiting(Host):
        async def handle(self, message: Any) -> Any:
            if isinstance(message, Put) and message.item < 2:
                raise Postpone
            return await super().handle(message)

    actor, gate = Waiting(), Gate()
    async with (
        open_actor(actor, name="a", mailbox_size=2, overflow="drop_oldest") as ref,
        trio.open_nursery() as nursery,
    ):
        for number in range(2):
            await ref.tell(Put(number))
        await settle()
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        for number in range(2, 4):
            ref.tell_nowait(Put(number))
        actor.resume()
        for number in range(4, 7):
            ref.tell_nowait(Put(number))
        assert (ref.statistics().queued, ref.statistics().dropped) == (2, 5)
        gate.open()
        await settle()
        assert actor.seen == [5, 6]


async def test_the_messages_of_an_actor_to_itself_are_not_dropped(autojump_clock: MockClock) -> None:
    class Tick(Message):
        pass

    ticks = []

    class Ticking(Host):
        async def handle(self, message: Any) -> Any:
            if isinstance(message, Tick):
                ticks.append(trio.current_time())
                return None
            return await super().handle(message)

    actor = Ticking()
    gate = Gate()
    async with (
        open_actor(actor, name="a", mailbox_size=1, overflow="drop_oldest") as ref,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        actor.after(1, Tick())
        await trio.sleep(2)
        nursery.start_soon(ref.tell, Put(1))
        await settle()
        with pytest.raises(MailboxFull, match="or wait for room with"):
            ref.tell_nowait(Put(2))
        assert (ref.statistics().queued, ref.statistics().dropped) == (2, 0)
        gate.open()
    assert (len(ticks), actor.seen) == (1, [1])


@pytest.mark.parametrize("key", [None, lambda _: 0])
async def test_a_pool_sends_a_message_to_every_member(key: Any, said: Said) -> None:
    """D-72: in front of what waits for the pool; not to members that have stopped."""
    members: list[Host] = []

    def make() -> Host:
        members.append(Host())
        return members[-1]

    async with open_actor(Pool(make, 3, key=key), name="db") as pool, trio.open_nursery() as nursery:
        assert isinstance(pool, SupervisorRef)
        gate = Gate()
        if key is not None:
            await pool.stop_child("db-2")
        for id in ("db-1", "db-3", "db-2")[: 3 if key is None else 2]:
            nursery.start_soon(pool.child(id).call, Do(gate))
        await settle()
        await pool.tell(Put("later"))
        assert await Pool.broadcast(pool, Put("all")) == (3 if key is None else 2)
        gate.open()
        await settle()
        got = [member.seen for member in members]
        assert sum(seen.count("all") for seen in got) == (3 if key is None else 2)
        assert key is not None or all(seen[0] == "all" for seen in got)
    async with open_actor(Host(), name="host") as ref:
        with pytest.raises(TypeError) as refused:
            await Pool.broadcast(ref, Put(1))
        said("broadcast to an actor that is not a pool", str(refused.value))


async def test_a_broadcast_waits_for_room_and_leaves_with_its_caller() -> None:
    """D-72."""
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host())
        return hosts[-1]

    async with open_supervisor(
        ChildSpec("db", lambda: Pool(make, 2, key=lambda message: message.item), mailbox_size=1)
    ) as top:
        pool = top.child("db")
        gate, counts = Gate(), []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(top.find("db/db-1").call, Do(gate))
            await settle()
            await top.find("db/db-1").tell(Put("fills"))
            with trio.move_on_after(0.01):
                await Pool.broadcast(pool, Put("gone"))

            async def send() -> None:
                counts.append(await Pool.broadcast(pool, Put("all")))

            nursery.start_soon(send)
            await settle()
            assert counts == []
            gate.open()
        await settle()
        assert counts == [2]
        assert sorted(item for host in hosts for item in host.seen) == ["all", "all", "fills", "gone"]


async def test_a_broadcast_reaches_all_others_if_a_member_is_full_or_stops() -> None:
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host())
        return hosts[-1]

    def pool(overflow: Any) -> ChildSpec:
        options = {"key": lambda message: message.item}
        return ChildSpec("db", Pool, args=(make, 2), kwargs=options, mailbox_size=1, overflow=overflow)

    gate = Gate()
    async with open_supervisor(pool("fail")) as top, trio.open_nursery() as nursery:
        nursery.start_soon(top.find("db/db-1").call, Do(gate))
        await settle()
        await top.find("db/db-1").tell(Put("fills"))
        with pytest.raises(MailboxFull):
            await Pool.broadcast(top.child("db"), Put("all"))
        await settle()
        assert sorted(host.seen for host in hosts) == [[], ["all"]]
        gate.open()
    hosts.clear()
    async with open_supervisor(pool("wait")) as top, trio.open_nursery() as nursery:
        gate, counts = Gate(), []

        async def send() -> None:
            counts.append(await Pool.broadcast(top.child("db"), Put("all")))

        async def call() -> None:
            with pytest.raises(ActorStopped):
                await top.find("db/db-1").call(Do(gate))

        nursery.start_soon(call)
        await settle()
        await top.find("db/db-1").tell(Put("fills"))
        nursery.start_soon(send)
        await settle()
        await top.child("db", SupervisorRef).stop_child("db-1")
        await settle()
        assert counts == [1]


# --- Messages that take long ------------------------------------------------------------------------------------------


@frozen
class Next(Call[int]):
    pass


@frozen
class Free(Message):
    all: bool = False


class Deferring(Actor[Next | Free]):
    max_in_flight = 2
    laters: ClassVar[list[Later[int]]] = []

    @handles(Next)
    async def next(self, message: Next) -> Later[int]:
        self.laters.append(self.defer(message))
        return self.laters[-1]

    @handles(Free)
    def free(self, message: Free) -> None:
        """Answer."""


async def block(actor: Actor[Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Fill all slots with deferred answers, and let a message wait. Return the warnings, which take a second."""
    Deferring.laters.clear()
    async with open_actor(actor, name="jobs") as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Next())
        await ref.tell(Free())  # one slot is free
        await settle()
        nursery.start_soon(ref.call, Next())
        await trio.sleep(5)
        assert caplog.text == ""
        nursery.start_soon(ref.tell, Free())
        await trio.sleep(0.5)
        assert caplog.text == ""
        await trio.sleep(5)
        for later in Deferring.laters:
            later.reply(1)
    assert {record.levelname for record in caplog.records} <= {"WARNING"}
    return [record.getMessage() for record in caplog.records]


async def test_deferred_answers_that_block_their_actor_are_logged_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """D-60: after a second, with the actor and the deferred messages."""
    [warning] = await block(Deferring(), caplog)
    said("deferred answers hold all slots", warning)


@pytest.mark.parametrize("key", [None, lambda _: 0])
async def test_deferred_answers_that_block_a_pool_are_logged_for_its_members(
    key: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """D-60: without a key, the messages wait in the mailbox of the pool, and not in that of the member."""
    [warning] = await block(Pool(Deferring, size=1, key=key), caplog)
    assert warning.startswith("actor 'jobs-1': all slots wait for deferred answers")
    assert "(deferred: 2 of Next; queued: 1)" in warning


async def test_deferred_answers_that_come_in_time_are_not_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    Deferring.laters.clear()
    async with open_actor(Deferring(), name="jobs") as ref, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(ref.call, Next())
            await settle()
        await trio.sleep(0.5)
        Deferring.laters.pop().reply(1)
        await trio.sleep(5)
        nursery.start_soon(ref.call, Next())
        await trio.sleep(5)
        assert caplog.text == ""
        for later in Deferring.laters:
            later.reply(1)


async def test_the_tree_says_since_when_a_message_is_handled_and_for_whom_it_waits(autojump_clock: MockClock) -> None:
    """D-67: an actor that is called, one whose queue the call waits in, and a `Later`."""
    Deferring.laters.clear()
    gate = Gate()
    async with (
        open_supervisor(ChildSpec("p", Host), ChildSpec("q", Host), ChildSpec("jobs", Deferring)) as top,
        trio.open_nursery() as nursery,
    ):
        p, q, jobs = top.child("p"), top.child("q"), top.child("jobs")
        nursery.start_soon(q.call, Do(gate))
        await trio.sleep(1)
        nursery.start_soon(p.call, Do(lambda: q.call(Get(1))))
        nursery.start_soon(jobs.call, Next())
        await trio.sleep(4)
        nodes = {node.id: node.handling for node in top.tree().walk()}
        assert nodes["q"] == (HandledMessage("Do", pytest.approx(5)),)  # type: ignore[arg-type]  # it compares
        [waits] = nodes["p"]
        assert (waits.message, waits.waits_for) == ("Do", ("'q' (to handle Get)",))
        assert [each.waits_for for each in nodes["jobs"]] == [("its Later",)]
        assert "1 in flight (Do for 4.0 s, waits for 'q' (to handle Get))" in str(top.tree())
        gate.open()
        Deferring.laters[0].reply(1)


async def test_a_plain_handler_sees_itself_in_the_tree() -> None:
    seen = []

    class Looks(Actor):
        @handles(Next)
        def next(self, message: Next) -> int:
            assert self.supervisor is not None
            seen.append(self.supervisor.tree().children[0].handling)
            return 1

    async with open_supervisor(ChildSpec("a", Looks)) as top:
        assert await top.child("a").call(Next()) == 1
    assert seen == [(HandledMessage("Next", 0.0),)]


async def test_a_message_that_is_handled_for_too_long_is_named_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """D-67: after ``slow_after``, 60 s by default, with what its handler waits for."""
    async with (
        open_supervisor(ChildSpec("p", Host, kwargs={"max_in_flight": 2}), ChildSpec("q", Host)) as top,
        trio.open_nursery() as nursery,
    ):
        p, q = top.child("p"), top.child("q")
        nursery.start_soon(p.call, Do(lambda: q.call(Do(trio.sleep_forever))))
        await trio.sleep(30)
        nursery.start_soon(p.call, Do(partial(trio.sleep, 50)))
        await trio.sleep(29.9)
        assert caplog.text == ""
        await trio.sleep(1000)
        assert sorted(record.levelname for record in caplog.records) == ["WARNING", "WARNING"]
        texts = sorted(record.getMessage() for record in caplog.records)
        said("slow message", texts[0])
        said("slow message without a call", texts[1])
        nursery.cancel_scope.cancel("the test is done")


async def test_a_check_never_asks_to_be_made_again_at_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A trap: of times that binary numbers round, a difference may be less than the limit when the sum is not."""
    async with open_actor(Host(max_in_flight=100), name="host") as ref, trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(ref.call, Do(trio.sleep_forever))
            await trio.sleep(0.1 + number / 7)
        await trio.sleep(1000)
        assert len(caplog.records) == 100
        nursery.cancel_scope.cancel("the test is done")


@pytest.mark.parametrize("limit", [None, 5.0])
async def test_the_limit_for_slow_messages_may_differ_or_be_off(
    limit: float | None, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """D-67: a `Later` counts as well."""
    Deferring.laters.clear()

    class Patient(Deferring):
        slow_after = limit

        @handles(Next)
        def next(self, message: Next) -> Later[int]:  # type: ignore[override]  # a plain one
            self.laters.append(self.defer(message, keep_slot=False))
            return self.laters[-1]

    async with open_actor(Patient(), name="patient") as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Next())
        await trio.sleep(100)
        assert caplog.text.count("Next has been handled for 5 s (it waits for its Later)") == (limit is not None)
        Deferring.laters[0].reply(1)
        await settle()
        nursery.start_soon(ref.call, Next())
        await trio.sleep(1)
        Deferring.laters[1].reply(1)
        await trio.sleep(100)
        assert len(caplog.records) == (limit is not None)


async def test_an_end_forgets_what_was_watched(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_supervisor(ChildSpec("a", Host), max_restarts=3) as top:
        ref: ActorRef[Any] = top.child("a")
        with pytest.raises(Fatal):
            await ref.call(Do(raising(Fatal())))
        with pytest.raises(Boom):
            await ref.call(Do(raising(Boom())))
        await trio.sleep(1000)
        assert "has been handled" not in caplog.text
