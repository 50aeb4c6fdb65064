"""The mailbox: two lanes, two overflow policies, and what closing it does."""

from __future__ import annotations

import math
from typing import Any

import outcome
import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorRef, ActorStopped, Call, DeadLetter, Event, MailboxFull, open_actor
from mcp_actors.kernel._circles import Sender
from mcp_actors.kernel._envelope import Envelope, Holder
from mcp_actors.kernel._mailbox import Mailbox

from ..messages import Said
from .actors import Do, DoNow, Gate, Get, Host, Put, PutNow


class Taker(Holder):
    """Takes envelopes and keeps them."""

    name = "taker"
    ending = False
    free_control = math.inf
    idle = False

    def __init__(self, free: int) -> None:
        self.free = free
        self.taken: list[Envelope] = []

    def take(self, envelope: Envelope) -> None:
        envelope.holder = self
        self.free -= not envelope.message.control
        self.taken.append(envelope)

    def forget(self, envelope: Envelope) -> None:
        raise AssertionError("nobody leaves")

    def makes_progress(self, sender: Sender) -> bool:
        raise AssertionError("nobody here is an actor")

    def holders_if_full(self) -> list[Envelope]:
        raise AssertionError("nobody here is an actor")

    def controls(self) -> list[Envelope]:
        raise AssertionError("nobody here is an actor")

    @property
    def items(self) -> list[Any]:
        return [envelope.message.item for envelope in self.taken]  # type: ignore[attr-defined]  # all are Puts


def put_all(mailbox: Mailbox, *messages: Put) -> None:
    for message in messages:
        mailbox.put(Envelope(message, is_call=False))


async def test_an_envelope_goes_to_a_free_slot_or_waits() -> None:
    mailbox, taker = Mailbox("box"), Taker(2)
    mailbox.attach(taker)
    put_all(mailbox, *map(Put, range(5)))
    assert (taker.items, mailbox.queued) == ([0, 1], 3)
    taker.free = 2
    mailbox.feed()
    assert (taker.items, mailbox.queued) == ([0, 1, 2, 3], 1)


async def test_control_overtakes_and_needs_no_slot() -> None:
    mailbox, taker = Mailbox("box"), Taker(0)
    put_all(mailbox, Put(1), PutNow(2), Put(3), PutNow(4))
    mailbox.attach(taker)
    put_all(mailbox, PutNow(5))
    assert (taker.items, mailbox.queued) == ([2, 4, 5], 2)


@pytest.mark.parametrize("kind", [Put, PutNow])
async def test_an_envelope_that_is_put_back_returns_to_its_old_place(kind: type[Put]) -> None:
    """K4: in front of what came later, in whatever order it is put back."""
    mailbox, dying, heir = Mailbox("box"), Taker(3), Taker(100)
    mailbox.attach(dying)
    put_all(mailbox, *map(kind, range(3)))
    mailbox.detach()
    put_all(mailbox, *map(kind, range(3, 6)))
    for index in (1, 2, 0):
        assert mailbox.put_back(dying.taken[index])
    mailbox.attach(heir)
    assert heir.items == list(range(6))


async def test_envelopes_that_return_to_an_actor_that_goes_on_are_served_in_their_order() -> None:
    mailbox, taker = Mailbox("box"), Taker(3)
    mailbox.attach(taker)
    put_all(mailbox, *map(Put, range(6)))
    for index in (1, 2, 0):
        mailbox.put_back(taker.taken[index])
    taker.free = 6
    mailbox.feed()
    assert taker.items[3:] == [*range(6)]


async def test_many_that_return_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted one by one, ten thousand messages in flight would stop the program for a minute."""
    compared: list[int] = []

    def number_of(envelope: Envelope) -> int:
        compared.append(envelope.number)
        return envelope.number

    monkeypatch.setattr("mcp_actors.kernel._mailbox.attrgetter", lambda _: number_of)
    mailbox, dying = Mailbox("box"), Taker(100)
    mailbox.attach(dying)
    put_all(mailbox, *map(Put, range(200)))
    mailbox.detach()
    for envelope in reversed(dying.taken[50:]):
        mailbox.put_back(envelope)
    assert not compared
    for envelope in dying.taken[:50]:
        mailbox.put_back(envelope)
    following = Taker(200)
    mailbox.attach(following)
    assert following.items == [*range(200)]
    assert len(compared) == 200


async def test_a_closed_mailbox_refuses_until_it_is_reopened() -> None:
    """K1: everybody is answered, also who is put back later; each gets an exception object of its own."""
    mailbox, taker = Mailbox("box"), Taker(1)
    mailbox.attach(taker)
    put_all(mailbox, *map(Put, range(3)))
    mailbox.detach()
    dropped = mailbox.close(lambda: ActorStopped("closed", actor="box"))
    assert [envelope.message for envelope in dropped] == [Put(1), Put(2)]
    assert not mailbox.put_back(taker.taken[0])
    refusals = []
    for _ in range(2):
        with pytest.raises(ActorStopped) as caught:
            put_all(mailbox, Put(4))
        refusals.append(caught.value)
    assert refusals[0] is not refusals[1]
    assert mailbox.queued == 0
    mailbox.reopen()
    put_all(mailbox, Put(5))
    assert mailbox.queued == 1


async def test_a_closed_mailbox_is_not_open() -> None:
    mailbox = Mailbox("box")
    mailbox.check_open()
    mailbox.close(lambda: ActorStopped("closed", actor="box"))
    with pytest.raises(ActorStopped):
        mailbox.check_open()


async def test_the_way_from_the_entrance_to_the_queue_makes_no_wait_shorter(
    autojump_clock: trio.testing.MockClock,
) -> None:
    mailbox, taker = Mailbox("box", size=1), Taker(1)
    assert [mailbox.queued_since] == [None]
    began = trio.current_time()
    for number in range(2):
        put_all(mailbox, Put(number))
        await trio.sleep(1.0)
    assert mailbox.queued_since == began
    mailbox.attach(taker)
    assert (taker.items, mailbox.queued_since) == ([0], began + 1.0)


async def test_the_actor_is_asked_whether_it_handles_a_message() -> None:
    asked: list[tuple[str, type]] = []
    mailbox = Mailbox("box")
    mailbox.check_class(Put)  # nothing is known before the first incarnation
    mailbox.accepts = lambda name, kind: asked.append((name, kind))
    mailbox.check(Put(1))
    mailbox.check_class(PutNow)
    assert asked == [("box", Put), ("box", PutNow)]


async def test_an_adopted_envelope_is_the_last_in_order_and_waits_if_the_queue_is_full() -> None:
    mailbox, answers = Mailbox("box", size=2), list[outcome.Outcome[None]]()
    put_all(mailbox, Put(0))
    told, called, outside = (Envelope(Put(number), is_call=number == 2) for number in (1, 2, 3))
    for envelope in (told, called, outside):
        envelope.on_answer(answers.append)
    mailbox.adopt(told)
    assert answers == [outcome.Value(None)]
    mailbox.forget(told)
    mailbox.adopt(called)
    mailbox.adopt(outside)
    assert [told.number, called.number, outside.number] == [2, 3, 4]
    assert called.home is outside.home is mailbox
    assert (called.open, outside.open, len(answers)) == (True, True, 1)
    taker = Taker(3)
    mailbox.attach(taker)
    assert taker.items == [0, 2, 3]
    assert (called.open, outside.open, len(answers)) == (True, False, 2)


async def test_control_messages_overtake_a_busy_and_full_actor() -> None:
    gate, host = Gate(), Host()

    async def peek() -> tuple[list[Any], int]:
        return list(host.seen), host.ref.statistics().in_flight

    async with open_actor(host, name="host", mailbox_size=1, overflow="fail") as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        await ref.tell(Put("queued"))
        assert await ref.call(DoNow(peek)) == ([], 2)
        ref.tell_nowait(PutNow("control"))
        await settle()
        gate.open()
    assert host.seen == ["control", "queued"]


async def test_with_wait_a_tell_waits_for_room_and_a_call_for_its_answer() -> None:
    """Back-pressure: `tell` returns as soon as the queue has room for it; order of arrival is kept throughout."""
    gate, host, told = Gate(), Host(), list[int]()

    async def tell(number: int) -> None:
        await ref.tell(Put(number))
        told.append(number)

    async with open_actor(host, name="host", mailbox_size=2) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        for number in range(6):
            nursery.start_soon(tell, number) if number != 3 else nursery.start_soon(ref.call, Get(3))
            await settle()
        assert told == [0, 1]
        assert ref.statistics().queued == 6
        gate.open()
    assert host.seen == list(range(6))
    assert sorted(told) == [0, 1, 2, 4, 5]


async def test_a_tell_that_is_cancelled_while_it_waits_for_room_is_never_served() -> None:
    gate, host = Gate(), Host()
    async with open_actor(host, name="host", mailbox_size=1) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        await ref.tell(Put(1))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as tellers:
                tellers.start_soon(ref.tell, Put(2))
                await settle()
                scope.cancel("it gives up")
        gate.open()
    assert host.seen == [1]


async def test_a_tell_that_is_accepted_as_it_is_cancelled_counts_as_accepted() -> None:
    """**Cancellation**: raised only if the message was not accepted."""
    gate, host = Gate(), Host()
    scope, caller = trio.CancelScope(), trio.CancelScope()
    accepted: list[bool] = []

    async def tell() -> None:
        with scope:
            await ref.tell(Put(2))
            accepted.append(True)

    async with open_actor(host, name="host", mailbox_size=1) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        nursery.start_soon(call_inside, caller, ref, Get(1))
        await settle()
        nursery.start_soon(tell)
        await settle()
        caller.cancel("it gives up, so there is room")
        scope.cancel("in the same step")
        gate.open()
        await settle()
    assert accepted == [True]
    assert host.seen == [2]


async def call_inside(scope: trio.CancelScope, ref: ActorRef, message: Call[Any]) -> None:
    with scope:
        await ref.call(message)


async def test_with_fail_a_full_mailbox_refuses_calls_and_tells(said: Said) -> None:
    gate, host = Gate(), Host()
    async with open_actor(host, name="host", mailbox_size=2, overflow="fail") as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        ref.tell_nowait(Put(1))
        await ref.tell(Put(2))
        with pytest.raises(MailboxFull) as caught:
            await ref.call(Get(3))
        said("mailbox full", str(caught.value))
        assert caught.value.actor == "host"
        with pytest.raises(MailboxFull):
            await ref.tell(Put(4))
        gate.open()
        await settle()
        assert await ref.call(Get(5)) == 5
    assert host.seen == [1, 2, 5]


async def test_tell_nowait_never_waits_whatever_the_policy() -> None:
    gate, host = Gate(), Host()
    async with open_actor(host, name="host", mailbox_size=1) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(ref.call, Do(gate))
        await settle()
        ref.tell_nowait(Put(1))
        with pytest.raises(trio.WouldBlock) as caught:
            ref.tell_nowait(Put(2))
        assert isinstance(caught.value, MailboxFull)
        gate.open()
    assert host.seen == [1]


async def test_closing_answers_all_senders_and_reports_dropped_tells() -> None:
    """K1: waiting callers and tellers are refused; a tell without a waiting task is a `DeadLetter`."""
    gate, host, refused = Gate(), Host(), []
    events: list[Event] = []

    async def expect_refusal(wait: Any, message: Any) -> None:
        with pytest.raises(ActorStopped, match="will not restart by itself") as caught:
            await wait(message)
        refused.append(caught.value)

    async with open_actor(host, name="host", mailbox_size=2, observers=[events.append]) as ref:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_refusal, ref.call, Do(gate))
            await settle()
            await ref.tell(Put(1))
            for wait, message in ((ref.call, Get(2)), (ref.tell, Put(3)), (ref.call, Get(4)), (ref.tell, Put(5))):
                nursery.start_soon(expect_refusal, wait, message)
                await settle()
            # Put(1) and Get(2) are in the queue, the others in the entrance.
            host.stop()
        assert len(set(map(id, refused))) == 5
        with pytest.raises(ActorStopped):
            await ref.tell(Put(6))
        with pytest.raises(ActorStopped):
            ref.tell_nowait(Put(7))
    assert host.seen == []
    assert [event.message for event in events if isinstance(event, DeadLetter)] == ["Put"]


async def test_an_accepted_tell_that_is_dropped_is_a_dead_letter() -> None:
    gate, host, caller = Gate(), Host(), trio.CancelScope()
    events: list[Event] = []
    async with open_actor(host, name="host", mailbox_size=1, observers=[events.append]) as ref:
        async with trio.open_nursery() as nursery:
            await ref.tell(Do(gate))
            nursery.start_soon(call_inside, caller, ref, Get(1))
            await settle()
            nursery.start_soon(ref.tell, Put(2))
            await settle()
            caller.cancel("it gives up, so there is room")
        host.stop()
    assert host.seen == []
    assert [event.message for event in events if isinstance(event, DeadLetter)] == ["Put"]


@pytest.mark.parametrize(
    ("message", "row"),
    [
        (42, "not a message"),
        (Get, "class instead of a message"),
        (abs, "function instead of a message"),
    ],
)
async def test_an_object_that_is_not_a_message_is_refused(message: Any, row: str, said: Said) -> None:
    async with open_actor(Host(), name="host") as ref:
        for send in (ref.call, ref.tell):
            with pytest.raises(TypeError) as caught:
                await send(message)
            said(row, str(caught.value))
        with pytest.raises(TypeError):
            ref.tell_nowait(message)
