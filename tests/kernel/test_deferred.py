"""Handlers that return a `Later`: their messages stay in flight until it is settled."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorError,
    Call,
    Event,
    Later,
    NotSent,
    RequestFinished,
    RequestStarted,
    Unhandled,
    handles,
    open_actor,
)

from ..messages import Said
from .actors import Boom, Do, Fatal, Get, Host, of, open_child
from .takers import Calls, counts, taking


@frozen(eq=False)
class Defer(Call[int]):
    """Answered later.

    Attributes:
        number: any.
        then: awaited by the handler, with the actor and the `Later`, before it returns that.
        keep_slot: as in `Actor.defer`.
    """

    number: int = 0
    then: Callable[[Deferring, Later[int]], Awaitable[object]] | None = None
    keep_slot: bool = True


@frozen(eq=False)
class DeferNow(Defer):
    """The same on the control lane."""

    control: ClassVar[bool] = True


class Deferring(Actor):
    """Defers what it is asked to."""

    def __init__(self, max_in_flight: int = 1, on_cancel: Callable[[Later[Any]], object] | None = None) -> None:
        self.max_in_flight = max_in_flight
        self.on_cancel = on_cancel
        self.laters: list[Later[int]] = []

    async def handle(self, message: Defer | Do[Any] | Get) -> Any:
        match message:
            case Defer():
                later = self.defer(message, keep_slot=message.keep_slot)
                later.on_cancel = self.on_cancel
                self.laters.append(later)
                if message.then is not None:
                    result = await message.then(self, later)
                    if result is not None:
                        return result
                return later
            case Do(fn):
                return await fn()
            case Get(number):
                return number

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)


async def test_a_deferred_message_is_answered_after_its_handler() -> None:
    actor = Deferring()
    async with taking(actor) as calls:
        await calls.send(Defer(1), Defer(2), Get(3))
        assert (len(actor.laters), counts(calls.ref)) == (1, (1, 2))
        assert actor.laters[0].open
        assert actor.laters[0].reply(10)
        await settle()
        assert actor.laters[1].fail(Boom())
        await settle()
        assert not actor.laters[1].reply(20)
        assert counts(calls.ref) == (0, 0)
    assert calls.outcomes[1] == 10
    assert type(calls.outcomes[2]) is Boom
    assert calls.outcomes[3] == 3


async def test_without_its_slot_a_deferred_message_holds_up_nothing() -> None:
    """It stays in flight nevertheless, but it is not a handler that could make room."""
    actor = Deferring()
    async with taking(actor) as calls:
        await calls.send(Defer(1, keep_slot=False), Defer(2, keep_slot=False), Get(3))
        assert (calls.outcomes, counts(calls.ref)) == ({3: 3}, (2, 0))
        actor.laters[1].reply(2)
        actor.laters[0].reply(1)
        await calls.send(Defer(4), Defer(5))
        assert counts(calls.ref) == (1, 1)
        actor.laters[2].reply(4)
        await settle()
        actor.laters[3].reply(5)
    assert calls.outcomes == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}


@pytest.mark.parametrize("keep_slot", [True, False])
async def test_a_deferred_control_message_has_no_slot(keep_slot: bool) -> None:
    actor = Deferring()
    async with taking(actor) as calls:
        await calls.send(DeferNow(1, keep_slot=keep_slot), Defer(2), Get(3))
        assert counts(calls.ref) == (2, 1)
        actor.laters[0].reply(1)
        await settle()
        assert counts(calls.ref) == (1, 1)
        actor.laters[1].reply(2)
    assert calls.outcomes == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("answer", [lambda later: later.reply(7), lambda later: later.fail(Boom())])
async def test_an_answer_before_the_handler_returns_leaves_the_slot_to_the_handler(
    answer: Callable[[Later[int]], bool],
) -> None:
    go_on = trio.Event()

    async def wait(_: Deferring, later: Later[int]) -> None:
        await go_on.wait()

    actor = Deferring()
    async with taking(actor) as calls:
        await calls.send(Defer(1, wait), Get(2))
        assert answer(actor.laters[0])
        assert not actor.laters[0].open
        await settle()
        assert calls.outcomes[1] == 7 or type(calls.outcomes[1]) is Boom
        assert counts(calls.ref) == (1, 1)
        go_on.set()
        await settle()
        assert counts(calls.ref) == (0, 0)
    assert calls.outcomes[2] == 2


async def test_a_handler_may_defer_and_answer_nevertheless() -> None:
    async def answer(_: Deferring, later: Later[int]) -> int:
        return 5

    async def fail(_: Deferring, later: Later[int]) -> None:
        raise Boom

    actor = Deferring()
    async with taking(actor) as calls:
        await calls.send(Defer(1, answer), Defer(2, fail))
        assert calls.outcomes[1] == 5
        assert calls.kinds[2] is Boom
        assert not any(later.open or later.reply(9) for later in actor.laters)
        assert counts(calls.ref) == (0, 0)


async def test_a_handler_that_does_not_return_its_later_is_refused(said: Said) -> None:
    """C-31: its caller would get None, although the answer comes later."""

    class Forgets(Deferring):
        async def handle(self, message: Any) -> Any:
            self.laters.append(self.defer(message))

    actor = Forgets()
    async with taking(actor) as calls:
        with pytest.raises(TypeError) as caught:
            await calls.ref.call(Defer(1))
        said("defer() without its Later", str(caught.value))
        assert not actor.laters[0].reply(1)
        assert counts(calls.ref) == (0, 0)


async def test_a_caller_that_leaves_cancels_the_handler_and_later_the_later() -> None:
    cancelled: list[Later[int]] = []
    left: list[int] = []

    async def wait(_: Deferring, later: Later[int]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            left.append(1)

    actor = Deferring(on_cancel=cancelled.append)
    async with taking(actor) as calls:
        await calls.send(Defer(1, wait))
        calls.cancel(1)
        await settle()
        assert (left, cancelled, counts(calls.ref)) == ([1], [], (0, 0))
        await calls.send(Defer(2), Get(3))
        calls.cancel(2)
        await settle()
        assert (cancelled, counts(calls.ref)) == ([actor.laters[1]], (1, 1))
        actor.laters[1].reply(0)
        await settle()
        assert calls.outcomes[3] == 3


async def test_a_caller_that_leaves_as_the_handler_returns_is_noticed() -> None:
    """A trap: the owner finds no handler to cancel, and the actor would keep the `Later` in its table forever."""
    cancelled: list[Later[int]] = []

    async def leave(_: Deferring, later: Later[int]) -> None:
        calls.cancel(1)

    actor = Deferring(on_cancel=cancelled.append)
    async with taking(actor) as calls:
        await calls.send(Defer(1, leave))
        assert (cancelled, counts(calls.ref)) == (actor.laters, (1, 0))
        assert not actor.laters[0].reply(1)
        assert counts(calls.ref) == (0, 0)


async def test_a_handler_that_returns_a_later_though_it_was_cancelled_frees_its_slot() -> None:
    cancelled: list[Later[int]] = []
    events: list[Event] = []

    async def stay(_: Deferring, later: Later[int]) -> None:
        with trio.CancelScope(shield=True):
            await go_on.wait()

    go_on = trio.Event()
    actor = Deferring(on_cancel=cancelled.append)
    async with taking(actor, observers=[events.append]) as calls:
        await calls.send(Defer(1, stay), Get(2))
        calls.cancel(1)
        await settle()
        go_on.set()
        await settle()
        assert (calls.outcomes, cancelled) == ({1: "cancelled", 2: 2}, [])
        assert counts(calls.ref) == (0, 0)
    assert of(events, RequestStarted, RequestFinished) == ["RequestStarted", "RequestFinished"] * 2


async def test_the_end_of_the_incarnation_answers_for_a_deferred_message() -> None:
    """K1: also one that is decided by its own handler."""
    actors: list[Deferring] = []

    def make() -> Deferring:
        actors.append(Deferring(max_in_flight=2))
        return actors[-1]

    async def end(actor: Deferring, later: Later[int]) -> None:
        actor.fail(Boom())

    async with open_child(make) as supervisor, trio.open_nursery() as nursery:
        calls = Calls(supervisor.child("child"), nursery)
        await calls.send(Defer(1), Defer(2, end))
        await settle()
        assert calls.kinds == {1: ActorCrashed, 2: ActorCrashed}
        assert not any(later.open for later in actors[0].laters)
        assert counts(calls.ref) == (0, 0)
        assert await calls.ref.call(Get(3)) == 3


async def test_not_sent_returns_a_deferred_message_too() -> None:
    actor = Deferring(max_in_flight=2)
    async with taking(actor) as calls:
        await calls.send(Defer(1), Get(2))
        assert not actor.laters[0].fail(NotSent())
        await calls.send(Get(3))
        assert counts(calls.ref) == (0, 2)
        actor.take_again()
        await settle()
        assert len(actor.laters) == 2
        actor.laters[1].reply(1)
    assert calls.outcomes == {1: 1, 2: 2, 3: 3}


async def test_not_sent_while_the_handler_runs_is_an_error(said: Said) -> None:
    """B-36: its message cannot return to the queue while it is being handled."""
    go_on = trio.Event()

    async def wait(_: Deferring, later: Later[int]) -> None:
        await go_on.wait()

    actor = Deferring()
    async with taking(actor) as calls:
        await calls.send(Defer(1, wait))
        assert actor.laters[0].fail(NotSent())
        await settle()
        assert type(calls.outcomes[1]) is ActorError
        said("NotSent without end", str(calls.outcomes[1]), name="taker", message="Defer")
        go_on.set()
        await settle()
        assert counts(calls.ref) == (0, 0)


async def test_not_sent_for_a_control_message_is_an_error() -> None:
    """B-36: it needs no slot, so it would be handled again at once."""
    actor = Deferring()
    async with taking(actor) as calls:
        await calls.send(DeferNow(1))
        assert actor.laters[0].fail(NotSent())
        await settle()
        assert calls.kinds == {1: ActorError}
        assert counts(calls.ref) == (0, 0)
        assert await calls.ref.call(Get(2)) == 2


async def test_only_the_handler_of_a_message_can_defer_it_and_once(said: Said) -> None:
    actor = Deferring(max_in_flight=5)
    with pytest.raises(RuntimeError) as idle:
        actor.defer(Defer())
    said("defer() by an actor that does not run", str(idle.value))
    errors: list[str] = []
    actor.take_again()

    async def misuse(actor: Deferring, later: Later[int]) -> object:
        for message in (later.message, Defer(1), actor.laters[0].message):
            try:
                actor.defer(message)  # type: ignore[arg-type]  # all are calls
            except RuntimeError as exc:
                errors.append(str(exc))
        return actor.laters[0]

    async with taking(actor) as calls:
        with pytest.raises(RuntimeError):
            actor.defer(Defer())
        await calls.send(Defer(1), Defer(2, misuse))
        twice, other, others = errors
        assert other == others
        said("defer() twice", twice)
        said("defer() of another message", other)
        assert type(calls.outcomes[2]) is TypeError
        said("a Later of another message", str(calls.outcomes[2]))
        actor.laters[0].reply(0)
        assert counts(calls.ref) == (0, 0)


async def test_a_deferred_tell_reports_its_failure() -> None:
    events: list[Event] = []
    actor = Deferring()
    async with taking(actor, observers=[events.append]) as calls:
        for number in range(3):
            await calls.ref.tell(Defer(number))
        await settle()
        (first,) = actor.laters
        assert (first.open, first.reply(1), first.open) == (True, False, False)
        await settle()
        assert not actor.laters[1].fail(Boom())
        await settle()
        actor.stop()
        assert not actor.laters[2].open
    assert [event.message for event in events if isinstance(event, Unhandled)] == ["Defer"]


async def test_observers_see_the_end_of_a_deferred_message_when_it_is_settled(autojump_clock: trio.abc.Clock) -> None:
    events: list[Event] = []
    actor = Deferring(max_in_flight=2)
    async with taking(actor, observers=[events.append]) as calls:
        await calls.send(Defer(1), Defer(2))
        await trio.sleep(3)
        actor.laters[0].reply(1)
        actor.laters[1].fail(Boom())
    finished = [(event.seconds, type(event.error)) for event in events if isinstance(event, RequestFinished)]
    assert finished == [(3, type(None)), (3, Boom)]
    assert of(events, RequestStarted) == ["RequestStarted"] * 2


async def test_a_handler_may_forward_a_message_and_a_circle_is_found() -> None:
    """B-35: what its handler has sent, a deferred message still waits for."""
    actor = Deferring()
    async with open_actor(Host(), name="p") as p, taking(actor) as calls:

        async def forward(_: Deferring, later: Later[int]) -> None:
            p.send_request(Get(5)).on_answer(lambda answer: later.reply(answer.unwrap()))

        await calls.send(Defer(1, forward))
        assert calls.outcomes == {1: 5}
        with pytest.raises(ActorError, match="would deadlock"):
            await p.call(Do(lambda: calls.ref.call(Defer(2, forward))))


async def test_a_call_is_not_refused_because_of_a_deferred_message_without_a_slot() -> None:
    actor = Deferring()
    gate = trio.Event()
    async with open_actor(Host(), name="p") as p, taking(actor) as calls:

        async def forward(_: Deferring, later: Later[int]) -> None:
            p.send_request(Get(5)).on_answer(lambda answer: later.reply(5))

        async def call() -> int:
            await gate.wait()
            return await calls.ref.call(Get(3))

        waiting = Calls(p, calls.nursery)
        await waiting.send(Do(call))
        await calls.send(Defer(1, forward, keep_slot=False))
        hold = trio.Event()
        await calls.send(Do(hold.wait))
        gate.set()
        await settle()
        assert waiting.outcomes == {}
        hold.set()
        await settle()
        assert list(waiting.outcomes.values()) == [3]
        assert calls.outcomes[1] == 5


async def test_a_deferred_message_without_a_slot_hides_no_circle() -> None:
    """B-35: it has no slot that it could free for the call."""
    actor = Deferring()
    async with open_actor(Host(), name="q") as q, taking(actor) as calls:
        await calls.send(Defer(1, keep_slot=False))

        async def call_back() -> int:
            return await calls.ref.call(Get(3))

        with pytest.raises(ActorError, match="would deadlock"):
            await calls.ref.call(Do(lambda: q.call(Do(call_back))))
        actor.laters[0].reply(1)


async def test_a_deferred_message_leaves_nothing_for_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        actor = Deferring()
        async with open_actor(actor, name="actor") as ref:
            message = Defer(1)
            gone = weakref.ref(message)
            pending = ref.send_request(message)
            pending.on_answer(lambda _: None)
            del message, pending
            await settle()
            actor.laters.pop().reply(1)
            await settle()
            assert gone() is None
    finally:
        gc.enable()


class Dropping(Actor):
    """Drops each `Later`: in its handler, or `drop` does."""

    slow_after = 5.0

    def __init__(self, *, in_handler: bool) -> None:
        self.in_handler = in_handler
        self.later: Later[int] | None = None

    @handles(Defer)
    async def defer_it(self, message: Defer) -> Later[int]:
        return self.made(message)

    @handles(DeferNow)
    def defer_now(self, message: DeferNow) -> Later[int]:
        return self.made(message)

    @handles(Get)
    def get(self, message: Get) -> int:
        self.later = None
        return message.number

    def made(self, message: Defer) -> Later[int]:
        later = self.defer(message, keep_slot=message.keep_slot)
        self.later = None if self.in_handler else later
        return later


@pytest.mark.parametrize("in_handler", [True, False])
@pytest.mark.parametrize("kind", [Defer, DeferNow])
async def test_the_caller_of_a_later_that_is_dropped_gets_an_error(
    kind: type[Defer], in_handler: bool, autojump_clock: MockClock, said: Said
) -> None:
    """At once if its handler drops it, else when it has been slow."""
    events: list[Event] = []
    actor = Dropping(in_handler=in_handler)
    async with open_actor(actor, name="host", observers=[events.append]) as ref, trio.open_nursery() as nursery:
        for keep_slot in (False, True):
            began = trio.current_time()
            if not in_handler:
                nursery.start_soon(drop, actor)
            with pytest.raises(TypeError) as caught, trio.fail_after(60):
                await ref.call(kind(keep_slot=keep_slot))
            said("a dropped Later", str(caught.value), kind=kind.__name__)
            assert trio.current_time() - began == (0 if in_handler else 5)
            assert await ref.call(Get(3)) == 3
            assert ref.statistics().in_flight == 0
    finished = [type(event.error) for event in events if isinstance(event, RequestFinished)]
    assert finished == [TypeError, type(None)] * 2


async def drop(actor: Dropping) -> None:
    await settle()
    actor.later = None


async def test_a_later_with_an_on_cancel_is_not_dropped(autojump_clock: MockClock) -> None:
    """The function gets it back."""
    left: list[object] = []

    class Leaving(Dropping):
        def made(self, message: Defer) -> Later[int]:
            later = super().made(message)
            later.on_cancel = lambda later: left.append(later.reply(1))
            return later

    async with open_actor(Leaving(in_handler=True), name="host") as ref:
        with trio.move_on_after(10) as gone:
            await ref.call(Defer())
        assert gone.cancelled_caught
        assert await ref.call(Get(3)) == 3
    assert left == [False]
