"""The view of an actor's author: lifetime, calls to itself, exceptions without a caller, wrong arguments."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorError,
    ActorRef,
    Event,
    MailboxFull,
    StopActor,
    Supervisor,
    SupervisorRef,
    Unhandled,
    open_actor,
)

from ..messages import Said
from .actors import Boom, Do, DoNow, Fatal, Gate, Get, Host, Put, hook, leaving, make_cancelled, of, open_child, raising


@pytest.mark.parametrize("max_in_flight", [1, 3])
async def test_no_more_than_max_in_flight_messages_are_handled_at_the_same_time(max_in_flight: int) -> None:
    now = most = 0

    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        now -= 1

    async with open_actor(Host(max_in_flight=max_in_flight), name="host") as ref, trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ref.call, Do(work))
    assert most == max_in_flight


# --- calling oneself --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("through", ["handler", "its nursery"])
async def test_an_actor_that_calls_itself_gets_an_error(queued: bool, through: str, said: Said) -> None:
    """It would wait for itself for ever."""
    host, gate = Host(), Gate()

    async def call_self() -> None:
        if through == "handler":
            await host.ref.call(Get(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.ref.call, Get(1))

    async def expect_refusal(ref: ActorRef) -> None:
        with pytest.raises((ActorError, ExceptionGroup)) as caught:
            await ref.call(Do(call_self))
        exc = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
        said("actor calls itself", str(exc))

    async with open_actor(host, name="host") as ref, trio.open_nursery() as nursery:
        if queued:
            nursery.start_soon(ref.call, Do(gate))
            await settle()
        nursery.start_soon(expect_refusal, ref)
        await settle()
        gate.open()
    assert host.seen == []


async def test_a_reentrant_actor_may_call_itself() -> None:
    """While a slot is free; its handlers run code that does not know whose handler it is in."""
    host = Host(max_in_flight=2)
    host.reentrant = True

    async def call_self() -> int:
        return await host.ref.call(Get(1))

    async with open_actor(host, name="host") as ref:
        assert await ref.call(Do(call_self)) == 1
    assert host.seen == [1]


async def test_reentrant_calls_that_would_deadlock_are_refused() -> None:
    """Two handlers have both slots. The first call from within may wait for the other handler; the second may not."""
    host, gates, answers = Host(max_in_flight=2), [Gate(), Gate()], list[int | str]()
    host.reentrant = True

    async def call_self(gate: Gate) -> None:
        await gate()
        try:
            answers.append(await host.ref.call(Get(1)))
        except ActorError as exc:
            answers.append(str(exc))

    async with open_actor(host, name="host") as ref, trio.open_nursery() as nursery:
        for gate in gates:
            nursery.start_soon(ref.call, Do(partial(call_self, gate)))
            await settle()
        nursery.start_soon(ref.call, Get(2))  # waits for a slot too, which changes nothing
        await settle()
        for gate in gates:
            gate.open()
            await settle()
    assert isinstance(answers[0], str)
    assert "deadlock" in answers[0]
    assert "max_in_flight" in answers[0]
    assert answers[1] == 1
    assert host.seen == [2, 1]


@pytest.mark.parametrize("handlers", [0, 1, 2])
async def test_foreign_code_joins_the_handler_only_if_a_single_one_runs(handlers: int, said: Said) -> None:
    """It runs because of a handler, in a task that the handler did not start; of two, it is unknown which one."""
    host, gate, refused = Host(max_in_flight=2), Gate(), list[str]()

    async def foreign(ref: ActorRef) -> None:
        host.join_handler()
        try:
            await ref.call(Get(1))
        except ActorError as exc:
            refused.append(str(exc))

    async with open_actor(host, name="host") as ref, trio.open_nursery() as nursery:
        for _ in range(handlers):
            nursery.start_soon(ref.call, Do(gate))
        await settle()
        nursery.start_soon(foreign, ref)
        await settle()
        gate.open()
    assert len(refused) == (1 if handlers == 1 else 0)
    for refusal in refused:
        said("actor calls itself", refusal)


async def test_a_control_message_does_not_count_as_holding_a_slot() -> None:
    """A control message needs none, so it may call its actor if that has one to spare."""
    host = Host()
    host.reentrant = True

    async def call_self() -> int:
        return await host.ref.call(Get(1))

    async with open_actor(host, name="host") as ref:
        assert await ref.call(DoNow(call_self)) == 1


async def test_a_task_that_outlives_its_handler_may_call_the_actor() -> None:
    """It is no longer part of a request."""
    results: list[int] = []
    go = trio.Event()

    async def call_later(ref: ActorRef) -> None:
        await go.wait()
        results.append(await ref.call(Get(1)))

    async with trio.open_nursery() as nursery, open_actor(Host(), name="host") as ref:

        async def start_task() -> None:
            nursery.start_soon(call_later, ref)

        await ref.call(Do(start_task))
        go.set()
        await settle()
    assert results == [1]


async def test_an_actor_may_tell_itself_and_call_others_that_call_back_later() -> None:
    host, other = Host(), Host()

    async def tell_self() -> int:
        await host.ref.tell(Put("to myself"))
        host.ref.tell_nowait(Put("and again"))
        return await other.ref.call(Get(5))

    async with open_actor(host, name="host") as ref, open_actor(other, name="other"):
        assert await ref.call(Do(tell_self)) == 5
        await settle()
    assert host.seen == ["to myself", "and again"]


async def test_an_actor_that_tells_itself_never_waits_for_room() -> None:
    """It is the one that would have to make it."""
    host = Host()

    async def tell_self() -> None:
        await host.ref.tell(Put(1))
        with pytest.raises(MailboxFull):
            await host.ref.tell(Put(2))

    async with open_actor(host, name="host", mailbox_size=1) as ref:
        await ref.call(Do(tell_self))
        await settle()
    assert host.seen == [1]


# --- exceptions without a caller --------------------------------------------------------------------------------------


async def test_an_exception_of_a_tell_is_logged_with_its_traceback_and_is_an_event(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    events: list[Event] = []
    boom = Boom("unheard")
    async with open_actor(Host(), name="host", observers=[events.append]) as ref:
        await ref.tell(Do(raising(boom)))
        await settle()
        assert await ref.call(Get(1)) == 1
    assert [(event.message, event.error) for event in events if isinstance(event, Unhandled)] == [("Do", boom)]
    (entry,) = caplog.records
    assert entry.levelno == logging.ERROR
    said("handler fails without a caller", entry.getMessage())
    assert entry.exc_info is not None
    assert entry.exc_info[1] is boom


async def fail_late() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise Boom


async def test_an_exception_of_a_call_whose_caller_has_left_is_logged_and_is_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Event] = []
    async with open_actor(Host(), name="host", observers=[events.append]) as ref:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.call, Do(fail_late))
                await settle()
                scope.cancel("it gives up")
        await settle()
    assert of(events, Unhandled) == ["Unhandled"]
    assert len(caplog.records) == 1


async def test_exceptions_without_a_caller_are_not_logged_while_the_actor_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are the consequence of the end, not news."""
    events: list[Event] = []
    async with open_actor(Host(), name="host", observers=[events.append]) as ref:
        await ref.tell(Do(fail_late))
        await settle()
    assert of(events, Unhandled) == ["Unhandled"]
    assert caplog.records == []


async def test_a_fatal_exception_of_a_tell_crashes_the_actor() -> None:
    fatal = Fatal()
    with leaving(ActorCrashed) as left:
        async with open_actor(Host(), name="host") as ref:
            await ref.tell(Do(raising(fatal)))
            await trio.sleep_forever()
    assert left.value.__cause__ is fatal


# --- the actor's own judgement ----------------------------------------------------------------------------------------


async def test_an_exception_in_is_fatal_crashes_the_actor() -> None:
    """The caller has his answer; an actor whose judgement fails cannot go on."""

    class Broken(Host):
        def is_fatal(self, exc: Exception) -> bool:
            raise LookupError("in is_fatal")

    with leaving(ActorCrashed) as left:
        async with open_actor(Broken(), name="host") as ref:
            with pytest.raises(Boom):
                await ref.call(Do(raising(Boom())))
            await trio.sleep_forever()
    assert isinstance(left.value.__cause__, LookupError)


async def test_an_exception_in_is_hopeless_counts_as_false(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Host):
        def is_hopeless(self, exc: BaseException) -> bool:
            raise LookupError("in is_hopeless")

    async with open_child(Broken) as supervisor:
        ref = supervisor.child("child")
        with pytest.raises(Fatal):
            await ref.call(Do(raising(Fatal())))
        assert await ref.call(Get(1)) == 1
        assert ref.statistics().incarnation == 2
    assert "is_hopeless() raised, which counts as False" in caplog.text


async def test_by_default_no_exception_ends_an_actor() -> None:
    class Plain(Host):
        is_fatal = Host.__mro__[1].is_fatal  # type: ignore[attr-defined]  # Actor's own

    async with open_actor(Plain(), name="host") as ref:
        with pytest.raises(Fatal):
            await ref.call(Do(raising(Fatal())))
        assert await ref.call(Get(1)) == 1


async def test_stop_actor_may_come_out_of_a_nursery_of_the_handler() -> None:
    async def stop() -> None:
        async with trio.open_nursery():
            raise StopActor("shutdown")

    async with open_actor(Host(), name="host") as ref:
        await ref.tell(Do(stop))
        await ref.wait_stopped()


@pytest.mark.parametrize("reason", ["normal", "shutdown"])
async def test_an_actor_ends_itself_from_any_of_its_tasks(reason: Any) -> None:
    go = trio.Event()

    async def background(host: Host) -> None:
        await go.wait()
        host.stop(reason)
        host.stop("normal")  # the first decision counts
        host.fail(Boom())

    events: list[Event] = []
    async with open_actor(Host(background=background), name="host", observers=[events.append]) as ref:
        go.set()
        await ref.wait_stopped()
    assert [getattr(event, "reason", None) for event in events] == [None, None, reason, None]


@pytest.mark.parametrize("then", ["return", "raise", "wait"])
async def test_a_handler_that_fails_its_actor_still_decides_what_its_caller_gets(then: str) -> None:
    hosts: list[Host] = []

    def make() -> Host:
        hosts.append(Host())
        return hosts[-1]

    async def work() -> str:
        error = Boom()
        hosts[-1].fail(error)
        if then == "raise":
            raise error
        if then == "wait":
            await trio.sleep_forever()
        return "answered"

    async with open_child(make) as supervisor:
        child = supervisor.child("child")
        if then == "return":
            assert await child.call(Do(work)) == "answered"
        else:
            with pytest.raises(Boom if then == "raise" else ActorCrashed):
                await child.call(Do(work))
        assert await child.call(Get(1)) == 1
        assert len(hosts) == 2


async def test_failing_with_a_cancellation_does_not_count_as_a_failure() -> None:
    """A task that passes on whatever ends it changes nothing by being cancelled."""

    async def background(host: Host) -> None:
        try:
            await trio.sleep_forever()
        except BaseException as exc:
            host.fail(exc)
            raise

    scopes: list[trio.CancelScope] = []

    async def watched(host: Host) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await background(host)

    async with open_actor(Host(background=watched), name="host") as ref:
        await settle()
        scopes[0].cancel("only this task")
        await settle()
        assert await ref.call(Get(1)) == 1


async def test_fail_with_a_group_drops_the_cancellations_in_it() -> None:
    host, boom = Host(), Boom()
    with leaving(ActorCrashed) as left:
        async with open_actor(host, name="host"):
            host.fail(BaseExceptionGroup("both", [await make_cancelled(), boom]))
            await trio.sleep_forever()
    assert isinstance(left.value.__cause__, ExceptionGroup)
    assert left.value.__cause__.exceptions == (boom,)


def test_an_actor_that_is_not_running_cannot_be_ended(said: Said) -> None:
    host = Host()
    for use in (host.stop, lambda: host.fail(Boom()), lambda: host.ref):
        with pytest.raises(RuntimeError) as caught:
            use()
        said("actor is not running", str(caught.value))


async def test_after_its_end_an_actor_may_be_stopped_again() -> None:
    host = Host()
    async with open_actor(host, name="host"):
        pass
    host.stop()
    host.fail(Boom())
    assert host.ref.state == "stopped"


async def test_wrong_arguments_are_explained() -> None:
    host = Host()
    wrong: Any = "crash"
    async with open_actor(host, name="host"):
        with pytest.raises(ValueError, match=r"^StopActor's reason is 'normal' or 'shutdown', not 'crash'; to crash, "):
            StopActor(wrong)
        with pytest.raises(
            ValueError, match=r"^stop\(\) takes 'normal' or 'shutdown', not 'crash'; to crash, use fail"
        ):
            host.stop(wrong)
        with pytest.raises(TypeError, match=r"^fail\(\) takes the exception object that is the cause, not 'crash'$"):
            host.fail(wrong)
    assert StopActor().reason == "normal"


async def test_an_actors_own_reference_is_the_one_others_hold() -> None:
    host = Host()
    async with open_actor(host, name="host") as ref:
        assert host.ref == ref

        async def who_am_i() -> ActorRef:
            return host.ref

        assert await ref.call(DoNow(who_am_i)) == ref


async def test_a_supervisor_may_be_opened_as_an_actor() -> None:
    async with open_actor(Supervisor(), name="supervisor") as ref:
        assert isinstance(ref, SupervisorRef)
        assert await ref.which_children() == ()


async def test_tasks_are_named_after_their_actor_and_message() -> None:
    names: list[str] = []

    async def look() -> None:
        names.append(trio.lowlevel.current_task().name)

    async with open_actor(Host(start=hook(look), stop=hook(trio.lowlevel.checkpoint)), name="host") as ref:
        await ref.call(Do(look))
        await ref.call(DoNow(look))
    assert names == ["host", "host:Do", "host:DoNow"]
