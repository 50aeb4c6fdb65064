"""C-38: handlers that are a plain ``def`` run without a task, in the step that delivers the message."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import pytest
import trio
from attrs import field, frozen
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorError,
    ActorRef,
    ActorStopped,
    Call,
    ChildSpec,
    Down,
    Event,
    Later,
    LaterQueue,
    MailboxFull,
    Message,
    NotSent,
    Pool,
    RequestFinished,
    RequestStarted,
    StopActor,
    Unhandled,
    handles,
    open_actor,
    open_supervisor,
)
from mcp_actors.kernel._requests import MESSAGES_A_STEP

from ..messages import Said
from .actors import Boom, Fatal, of, open_child

tag: ContextVar[str] = ContextVar("tag", default="none")

Deed = Callable[["Plain"], Any]


@frozen(eq=False)
class Act(Call[Any]):
    """Have the plain handler do something."""

    deed: Deed = field(default=lambda _: None)


@frozen(eq=False)
class ActNow(Act):
    """The same on the control lane."""

    control: ClassVar[bool] = True


@frozen(eq=False)
class Wait(Call[None]):
    """Have an async handler wait."""

    gate: trio.Event


class Plain(Actor):
    """Has both kinds of handlers."""

    def __init__(self, *, max_in_flight: int = 1) -> None:
        self.max_in_flight = max_in_flight
        self.seen: list[Any] = []
        self.released = trio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.owner = trio.lowlevel.current_task()
        yield
        assert trio.lowlevel.current_task() is self.owner
        self.released.set()

    @handles(Act)
    def act(self, message: Act) -> Any:
        return message.deed(self)

    @handles(Wait)
    async def wait(self, message: Wait) -> None:
        self.seen.append(trio.lowlevel.current_task())
        await message.gate.wait()

    @handles(Down)
    def down(self, message: Down) -> None:
        self.seen.append(message.reason)

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)


def see(item: object) -> Deed:
    return lambda actor: actor.seen.append(item)


def do(*deeds: Deed) -> Deed:
    """Several deeds, and the result of the last one."""
    return lambda actor: [deed(actor) for deed in deeds][-1]


def throw(exc: BaseException) -> Deed:
    def deed(_: Plain) -> None:
        raise exc

    return deed


def send(*messages: Message, ref: ActorRef | None = None) -> Deed:
    """Tell messages to an actor, by default the same one."""

    def deed(actor: Plain) -> None:
        for message in messages:
            (ref or actor.ref).tell_nowait(message)

    return deed


async def test_it_runs_in_the_step_and_the_context_of_its_sender() -> None:
    """C-38, K7: no task is started, and the sender's variables stay its own."""
    actor = Plain()

    def deed(_: Plain) -> tuple[trio.lowlevel.Task, str]:
        actor.seen.append(tag.get())
        tag.set("changed")
        return trio.lowlevel.current_task(), tag.get()

    async with open_actor(actor, name="plain") as ref:
        tag.set("sender")
        tasks = trio.lowlevel.current_statistics().tasks_living
        ref.tell_nowait(Act(deed))
        assert actor.seen == ["sender"]
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert await ref.call(Act(deed)) == (trio.lowlevel.current_task(), "changed")
        assert tag.get() == "sender"
        assert ref.statistics().in_flight == 0


async def test_an_async_handler_always_has_a_task_of_its_own() -> None:
    """C-38: it does not begin in the step of its sender, whose stack of cancel scopes it would break."""
    actor, gate = Plain(), trio.Event()
    gate.set()
    async with open_actor(actor, name="plain") as ref:
        pending = ref.send_request(Wait(gate))
        assert actor.seen == []
        await pending.wait()
        assert actor.seen != [trio.lowlevel.current_task()]


async def test_an_error_reaches_the_caller_or_the_log_and_never_the_sender_of_a_tell(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C-38."""
    events: list[Event] = []
    async with open_actor(Plain(), name="plain", observers=[events.append]) as ref:
        with pytest.raises(Boom):
            await ref.call(Act(throw(Boom())))
        assert of(events, Unhandled) == []
        ref.tell_nowait(Act(throw(Boom())))
        await ref.tell(Act(throw(Boom())))
        assert of(events, Unhandled) == ["Unhandled"] * 2
        assert [record.getMessage() for record in caplog.records] == [
            "actor 'plain': handling Act failed, and no caller gets the error"
        ] * 2
        assert ref.state == "running"


async def test_a_fatal_error_ends_the_actor_in_its_own_task_and_not_the_sender() -> None:
    """C-38: the queued message behind it is handled by the next incarnation."""
    actors: list[Plain] = []

    def make() -> Plain:
        actors.append(Plain())
        return actors[-1]

    async with open_child(make) as supervisor:
        ref = supervisor.child("child")
        ref.tell_nowait(Act(throw(Fatal())))
        assert ref.state == "backoff"
        ref.tell_nowait(Act(see("later")))
        assert actors[0].seen == []
        with pytest.raises(Fatal):
            await ref.call(Act(throw(Fatal())))
        await settle()
        assert [actor.seen for actor in actors] == [[], ["later"], []]
        assert all(actor.released.is_set() for actor in actors[:2])


@pytest.mark.parametrize("how", [lambda actor: actor.stop(), lambda actor: actor.fail(Boom())])
async def test_it_may_end_its_incarnation_and_answer(how: Deed) -> None:
    """C-38."""
    async with open_child(Plain, restart="temporary") as supervisor:
        ref = supervisor.child("child")
        pending = ref.send_request(Act(do(how, lambda _: "answered")))
        assert ref.state == "stopping"
        assert await pending.wait() == "answered"
        await ref.wait_stopped()


async def test_it_may_stop_its_actor_by_an_exception() -> None:
    """C-38."""
    async with open_child(Plain, restart="temporary") as supervisor:
        ref = supervisor.child("child")
        with pytest.raises(ActorStopped) as caught:
            await ref.call(Act(throw(StopActor())))
        assert caught.value.handed_over
        await ref.wait_stopped()


async def test_a_message_waits_while_an_async_handler_has_the_slot_and_for_those_before_it() -> None:
    """C-38, K4: a plain handler overtakes nothing, except on the control lane."""
    actor, gate = Plain(), trio.Event()
    async with open_actor(actor, name="plain") as ref:
        ref.tell_nowait(Wait(gate))
        await settle()
        ref.tell_nowait(Act(see(1)))
        ref.tell_nowait(Wait(gate))
        ref.tell_nowait(Act(see(2)))
        ref.tell_nowait(ActNow(see("now")))
        assert actor.seen[1:] == ["now"]
        gate.set()
        await settle()
        first, *others = actor.seen
        assert others == ["now", 1, others[2], 2]
        assert isinstance(first, trio.lowlevel.Task)
        assert isinstance(others[2], trio.lowlevel.Task)


async def test_what_a_handler_sends_is_handled_after_it_in_the_same_step_and_in_order() -> None:
    """C-38: not within it, to itself and to others."""
    one, two = Plain(max_in_flight=5), Plain(max_in_flight=5)
    log: list[str] = []

    def note(text: str) -> Deed:
        return lambda _: log.append(text)

    async with open_actor(one, name="one") as a, open_actor(two, name="two") as b:
        inner = do(send(Act(note("e")), ref=a), note("c"))
        a.tell_nowait(Act(do(send(Act(inner), ref=b), send(Act(note("d"))), note("b"))))
        log.append("f")
        assert "".join(log) == "bcdef"


@pytest.mark.parametrize("limit", [1, 10_000])
async def test_a_long_chain_of_plain_handlers_needs_no_deep_stack_and_lets_others_run(limit: int) -> None:
    """C-38: two actors that tell each other, without end."""
    count = 0

    def forever(other: ActorRef) -> Deed:
        def deed(actor: Plain) -> None:
            nonlocal count
            count += 1
            other.tell_nowait(Act(forever(actor.ref)))

        return deed

    async with (
        open_actor(Plain(max_in_flight=limit), name="a") as a,
        open_actor(Plain(max_in_flight=limit), name="b") as b,
    ):
        a.tell_nowait(Act(forever(b)))
        while count < 5000:
            before = count
            await trio.lowlevel.checkpoint()
            assert count - before < 1000


async def test_messages_that_are_due_go_to_the_next_incarnation() -> None:
    """C-38, K4: the handler that sends them ends its own incarnation, or that of another one."""
    actors: list[Plain] = []

    def make() -> Plain:
        actors.append(Plain(max_in_flight=5))
        return actors[-1]

    async with open_child(make) as supervisor:
        ref = supervisor.child("child")
        answers = [ref.send_request(Act(do(send(Act(see(1)), Act(see(2)), Act(see(3))), throw(Fatal()))))]
        with pytest.raises(Fatal):
            await answers[0].wait()
        await settle()
        assert [actor.seen for actor in actors] == [[], [1, 2, 3]]


async def test_control_messages_after_one_that_ends_the_incarnation_go_to_the_next() -> None:
    """C-38, K4: they have waited for the start, and would all be handled in its step."""
    actors: list[Plain] = []
    may_start = trio.Event()

    class SlowToStart(Plain):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            actors.append(self)
            await may_start.wait()
            yield

    spec = ChildSpec("child", SlowToStart)
    async with open_supervisor(spec, strict=False, await_start=False) as supervisor:
        ref = supervisor.child("child")
        answers = [ref.send_request(ActNow(deed)) for deed in (throw(Fatal()), see(1), see(2))]
        answers[1].withdraw()
        answers.append(ref.send_request(Act(see(3))))
        await settle()
        may_start.set()
        with pytest.raises(Fatal):
            await answers[0].wait()
        await answers[3].wait()
        assert [actor.seen for actor in actors] == [[], [2, 3]]
        assert ref.statistics().in_flight == 0


async def test_a_message_whose_offer_ends_the_incarnation_goes_to_the_next() -> None:
    """C-38, K4: `take` ends it and leaves the message to a plain handler."""
    actors: list[Plain] = []

    class Offered(Plain):
        def __init__(self) -> None:
            super().__init__()
            actors.append(self)

        def take(self, later: Later[Any]) -> bool:
            if len(actors) == 1:
                self.fail(Boom())
            return False

    async with open_child(Offered) as supervisor:
        await supervisor.child("child").call(Act(see(1)))
        assert [actor.seen for actor in actors] == [[], [1]]


async def test_a_message_that_is_due_and_whose_caller_leaves_is_not_handled() -> None:
    """C-38, K3."""
    actor = Plain(max_in_flight=1000)

    def deed(_: Plain) -> None:
        other = [ref.send_request(Act(see(number))) for number in range(3)]
        other[1].withdraw()

    async with open_actor(Plain(), name="sender") as sender, open_actor(actor, name="plain") as ref:
        await sender.call(Act(deed))
        assert actor.seen == [0, 2]
        assert ref.statistics().in_flight == 0


async def test_messages_that_are_due_in_a_later_step_are_answered_by_a_stop() -> None:
    """C-38: more messages than one step handles wait for the next; they have not been handed over."""
    actor = Plain(max_in_flight=1000)
    found: list[Any] = []
    async with open_child(lambda: actor) as supervisor:
        ref = supervisor.child("child")

        def deed(_: Plain) -> None:
            found.extend(ref.send_request(Act(see(number))) for number in range(500))

        async with open_actor(Plain(), name="sender") as sender:
            sender.tell_nowait(Act(deed))
            assert len(actor.seen) == MESSAGES_A_STEP
            ref.tell_nowait(Act(see("in its turn")))
            assert await sender.call(Act(lambda _: len(actor.seen))) == MESSAGES_A_STEP
            await supervisor.stop_child("child")
            assert len(actor.seen) < 500
            for pending in found[len(actor.seen) :]:
                with pytest.raises(ActorStopped) as caught:
                    await pending.wait()
                assert not caught.value.handed_over


async def test_as_many_messages_as_one_step_handles_need_no_other_step() -> None:
    """C-38."""
    actor = Plain(max_in_flight=1000)
    async with open_actor(actor, name="plain") as ref:
        ref.tell_nowait(Act(send(*[Act(see(number)) for number in range(MESSAGES_A_STEP)])))
        assert actor.seen == [*range(MESSAGES_A_STEP)]


async def test_it_may_answer_later() -> None:
    """C-38: the slot is kept, or free when the handler returns."""
    actor = Plain()
    laters: list[Later[Any]] = []

    def deed(keep_slot: bool, message: list[Act]) -> Deed:
        def defer(actor: Plain) -> Later[Any]:
            laters.append(actor.defer(message[0], keep_slot=keep_slot))
            return laters[-1]

        return defer

    async with open_actor(actor, name="plain") as ref:
        for keep_slot in (True, False):
            message: list[Act] = []
            message.append(Act(deed(keep_slot, message)))
            pending = ref.send_request(message[0])
            ref.tell_nowait(Act(see(keep_slot)))
            assert (keep_slot in actor.seen) is not keep_slot
            laters[-1].reply("late")
            assert await pending.wait() == "late"
        assert actor.seen == [True, False]


async def test_a_late_answer_of_an_ended_incarnation_is_an_error() -> None:
    """C-38: also if the handler that defers ends it."""

    def deed(actor: Plain) -> Any:
        actor.fail(Boom())
        return actor.defer(message)

    message = Act(deed)
    async with open_child(Plain) as supervisor:
        with pytest.raises(ActorCrashed):
            await supervisor.child("child").call(message)


async def test_a_handler_that_defers_and_ends_its_incarnation_may_answer_nevertheless() -> None:
    """C-38: with a result instead of the `Later`."""

    def deed(actor: Plain) -> str:
        actor.defer(message)
        actor.fail(Boom())
        return "answered"

    message = Act(deed)
    async with open_child(Plain) as supervisor:
        assert await supervisor.child("child").call(message) == "answered"


async def test_a_message_returns_to_the_mailbox_with_not_sent() -> None:
    """C-38: as for async handlers, the incarnation has to end, now or soon."""
    attempts: list[Plain] = []

    def deed(actor: Plain) -> str:
        attempts.append(actor)
        if len(attempts) > 2:
            return "sent"
        if len(attempts) == 1:
            actor.fail(Boom())
        else:
            trio.lowlevel.current_trio_token().run_sync_soon(actor.fail, Boom())
        raise NotSent

    async with open_child(Plain) as supervisor:
        assert await supervisor.child("child").call(Act(deed)) == "sent"
        assert len({id(actor) for actor in attempts}) == 3


async def test_not_sent_without_an_end_is_an_error(autojump_clock: MockClock, said: Said) -> None:
    """C-38: it keeps its slot meanwhile, unless its caller leaves."""
    actor = Plain()
    async with open_actor(actor, name="plain") as ref:
        pending = ref.send_request(Act(throw(NotSent())))
        ref.tell_nowait(Act(see("next")))
        await settle()
        assert actor.seen == []
        with pytest.raises(ActorError) as caught:
            await pending.wait()
        said("NotSent without end", str(caught.value), name="plain", message="Act")
        assert actor.seen == ["next"]
        for steps in (0, 1):
            pending = ref.send_request(Act(throw(NotSent())))
            for _ in range(steps):
                await settle()
            before = trio.current_time()
            pending.withdraw()
            await ref.call(Act())
            assert trio.current_time() == before


async def test_its_start_and_end_are_events() -> None:
    """C-38."""
    events: list[Event] = []
    message: list[Act] = []
    laters = LaterQueue[object]()
    message.append(Act(lambda actor: laters.add(actor.defer(message[0]))))
    async with open_actor(Plain(max_in_flight=2), name="plain", observers=[events.append]) as ref:
        await ref.call(Act())
        with pytest.raises(Boom):
            await ref.call(Act(throw(Boom())))
        ref.send_request(message[0]).withdraw()
        await settle()
    noted = [event for event in events if isinstance(event, (RequestStarted, RequestFinished))]
    assert of(events, RequestStarted, RequestFinished) == ["RequestStarted", "RequestFinished"] * 3
    errors = [type(event.error) for event in noted if isinstance(event, RequestFinished)]
    assert errors == [type(None), Boom, ActorError]


@pytest.mark.parametrize("how", [throw(KeyboardInterrupt()), lambda _: signal.raise_signal(signal.SIGINT)])
def test_a_ctrl_c_in_it_leaves_the_outermost_block(how: Deed) -> None:
    """C-38: after the actor has released everything; it is not raised in the sender's step."""
    actor, steps = Plain(), list[str]()

    async def main() -> None:
        async with open_actor(actor, name="plain") as ref:
            ref.tell_nowait(Act(do(how, see("after the signal"))))
            steps.append("sent")
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert steps == ["sent"]
    assert actor.seen == []
    assert actor.released.is_set()


async def test_a_full_mailbox_refuses_what_a_handler_sends_to_its_own_actor() -> None:
    """C-38: one slot, and room for one message."""
    refused: list[str] = []

    def deed(actor: Plain) -> None:
        for number in range(3):
            try:
                actor.ref.tell_nowait(Act(see(number)))
            except MailboxFull as exc:
                refused.append(str(exc))

    actor = Plain()
    async with open_actor(actor, name="plain", mailbox_size=1) as ref:
        ref.tell_nowait(Act(deed))
        assert actor.seen == [0]
        assert len(refused) == 2


async def test_a_call_of_its_own_actor_is_refused() -> None:
    """C-38, B-35."""
    async with open_actor(Plain(), name="plain") as ref:
        with pytest.raises(ActorError, match="called itself while handling Act"):
            await ref.call(Act(lambda actor: actor.ref.send_request(Act())))


@frozen
class Tick(Message):
    pass


class Clock(Actor):
    def __init__(self) -> None:
        self.ticks = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.timer = self.every(1, Tick())
        yield

    @handles(Tick)
    def tick(self, message: Tick) -> None:
        self.ticks += 1
        if self.ticks == 3:
            self.timer.cancel()
            self.after(0.5, message)


async def test_the_message_of_a_timer_may_cancel_the_timer(autojump_clock: MockClock) -> None:
    """C-38."""
    clock = Clock()
    async with open_actor(clock, name="clock"):
        await trio.sleep(100)
        assert clock.ticks == 4


async def test_a_monitor_reports_to_it() -> None:
    """C-38."""
    watcher = Plain()
    async with open_actor(watcher, name="watcher") as ref:
        async with open_actor(Plain(), name="watched") as watched:
            await ref.call(Act(lambda actor: str(actor.watch(watched))))
        assert watcher.seen == ["shutdown"]


async def test_the_members_of_a_pool_may_have_plain_handlers() -> None:
    """C-38: each message finds a member that is free."""
    members: list[Plain] = []

    def make() -> Plain:
        members.append(Plain())
        return members[-1]

    gate = trio.Event()
    async with open_actor(Pool(make, size=2), name="pool") as ref:
        ref.tell_nowait(Wait(gate))
        await settle()
        for number in range(3):
            ref.tell_nowait(Act(see(number)))
        assert sorted(len(member.seen) for member in members) == [1, 3]
        gate.set()


class Overriding(Plain):
    """Answers by itself, and leaves the rest to the handlers."""

    def handle(self, message: Any) -> Any:
        return "own" if isinstance(message, ActNow) else super().handle(message)


class OverridingInTask(Plain):
    async def handle(self, message: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return "own" if isinstance(message, ActNow) else await super().handle(message)


@pytest.mark.parametrize("kind", [Overriding, OverridingInTask])
async def test_handle_may_be_overridden_by_either_kind(kind: type[Plain], said: Said) -> None:
    """C-38."""
    actor = kind()
    async with open_actor(actor, name="plain") as ref:
        ref.tell_nowait(Act(see("now")))
        assert bool(actor.seen) is (kind is Overriding)
        assert await ref.call(ActNow()) == "own"
        assert await ref.call(Act(lambda _: 7)) == 7
        pending = ref.send_request(Strange())
        with pytest.raises(TypeError, match="no handler for Strange"):
            await pending.wait()
        if kind is Overriding:
            with pytest.raises(TypeError) as caught:
                await ref.call(Wait(trio.Event()))
            said("coroutine of a plain handler", str(caught.value))
        else:
            gate = trio.Event()
            gate.set()
            await ref.call(Wait(gate))


@frozen
class Strange(Call[None]):
    pass


async def test_an_answer_frees_its_exception_at_once() -> None:
    """C-38: nothing is left for the garbage collector, also after an error."""

    class Marked(Exception):
        pass

    errors: list[weakref.ref[Marked]] = []

    def deed(_: Plain) -> None:
        exc = Marked()
        errors.append(weakref.ref(exc))
        try:
            raise exc
        finally:
            del exc

    async with open_actor(Plain(), name="plain") as ref:
        gc.disable()
        try:
            for _ in range(2):
                with pytest.raises(Marked):
                    await ref.call(Act(deed))
            assert [error() for error in errors] == [None, None]
        finally:
            gc.enable()


class Observed(Plain):
    def is_fatal(self, exc: Exception) -> bool:
        self.seen.append(("is_fatal", tag.get()))
        return False


async def test_what_a_handler_that_has_waited_causes_sees_the_variables_of_its_sender() -> None:
    """C-38: events and `is_fatal`, although another task frees the slot."""
    actor, gate = Observed(), trio.Event()

    def observe(event: Event) -> None:
        if isinstance(event, (RequestStarted, RequestFinished, Unhandled)) and event.message == "Act":
            actor.seen.append((type(event).__name__, tag.get()))

    async with open_actor(actor, name="plain", observers=[observe]) as ref:
        tag.set("waits")
        await ref.tell(Wait(gate))
        tag.set("acts")
        await ref.tell(Act(throw(Boom("on purpose"))))
        tag.set("opens the gate")
        gate.set()
        await settle()
    seen = [each for each in actor.seen if isinstance(each, tuple)]
    assert seen == [(each, "acts") for each in ("RequestStarted", "RequestFinished", "Unhandled", "is_fatal")]
