"""A `BaseException` ends the program, unless it only says that the code which raised it was ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import outcome
import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorStartError,
    ChildSpec,
    Crashed,
    Event,
    Later,
    Pool,
    StartFailed,
    StopFailed,
    Supervisor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from .actors import Boom, Do, Get, Hook, Host, hook, leaving, of, open_child, raising
from .test_plain_handlers import Act, Plain
from .workers import Yard, crash


class Strange(BaseException):
    """Derived from `BaseException` in order to pass every ``except Exception``."""


FOREIGN = [asyncio.CancelledError, GeneratorExit]
"""Statements about the task or the generator that raises them."""

LEAVING = [Strange, pytest.fail.Exception, pytest.skip.Exception, SystemExit, KeyboardInterrupt]
"""Statements about the program, or the test."""


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("answered", [True, False])
async def test_a_foreign_exception_in_a_handler_crashes_only_that_incarnation(
    kind: type[BaseException], answered: bool
) -> None:
    """B-34: its caller gets the error, its siblings continue."""
    events: list[Event] = []
    error = kind()
    async with open_supervisor(ChildSpec("a", Host), ChildSpec("b", Host), observers=[events.append]) as supervisor:
        a, b = supervisor.child("a"), supervisor.child("b")
        if answered:
            with pytest.raises(ActorCrashed) as caught:
                await a.call(Do(raising(error)))
            assert caught.value.__cause__ is error
        else:
            await a.tell(Do(raising(error)))
        await settle()
        assert await a.call(Get(1)) == 1
        assert await b.call(Get(2)) == 2
        assert (a.statistics().incarnation, b.statistics().incarnation) == (2, 1)
    assert [event.error for event in events if isinstance(event, Crashed)] == [error]


@pytest.mark.parametrize("kind", FOREIGN)
async def test_a_foreign_exception_in_running_crashes_only_that_incarnation(kind: type[BaseException]) -> None:
    """B-34: from a task of its own, from its start at a restart, and from its end."""
    die = trio.Event()
    errors: list[BaseException] = []

    async def fail(_: Host) -> None:
        errors.append(kind())
        raise errors[-1]

    async def background(host: Host) -> None:
        await die.wait()
        await fail(host)

    lives: list[dict[str, Hook]] = [{"background": background, "stop": fail}, {"start": fail}, {"stop": fail}]

    def make() -> Host:
        hooks = lives.pop(0)
        return Host(start=hooks.get("start"), stop=hooks.get("stop"), background=hooks.get("background"))

    events: list[Event] = []
    with trio.fail_after(60):
        async with open_child(make, observers=[events.append]) as supervisor:
            die.set()
            await settle()
            assert await supervisor.child("child").call(Get(1)) == 1
            assert supervisor.child("child").statistics().incarnation == 3
    assert of(events, Crashed, StartFailed, StopFailed) == ["Crashed", "StartFailed", "StopFailed"]
    assert [event.error for event in events if isinstance(event, StartFailed | StopFailed)] == errors[1:]


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("where", ["factory", "running"])
async def test_a_foreign_exception_in_a_first_start_is_a_failed_start(kind: type[BaseException], where: str) -> None:
    """B-34: what leaves the door is an error of this package, with that as its cause."""
    error = kind()

    def make() -> Host:
        if where == "factory":
            raise error
        return Host(start=hook(raising(error)))

    yard = Yard()
    with pytest.raises(ActorStartError, match="child") as caught:
        async with open_supervisor(yard.spec("a"), ChildSpec("child", make)):
            pytest.fail("it started")
    assert caught.value.__cause__ is error
    assert yard.log == ["a up", "a down"]
    if where == "running":
        with pytest.raises(ActorStartError, match="alone") as caught:
            async with open_actor(make(), name="alone"):
                pytest.fail("it started")
        assert caught.value.__cause__ is error


async def test_a_foreign_exception_in_an_unsupervised_actor_is_raised_as_a_crash() -> None:
    """B-34: with it as the cause."""
    error = asyncio.CancelledError()
    with leaving(ActorCrashed) as caught:
        async with open_actor(Host(), name="host") as ref:
            await ref.tell(Do(raising(error)))
            await trio.sleep_forever()
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("asks", ["is_fatal", "is_hopeless"])
async def test_a_foreign_exception_in_is_fatal_or_is_hopeless_does_not_affect_a_sibling(
    kind: type[BaseException], asks: str
) -> None:
    """B-34: a question that cannot be answered is a crash; about hope, it has no answer."""

    class Asked(Host):
        def is_fatal(self, exc: Exception) -> bool:
            if asks == "is_fatal":
                raise kind
            return True

        def is_hopeless(self, exc: BaseException) -> bool:
            raise kind

    async with open_supervisor(ChildSpec("a", Asked), ChildSpec("b", Host)) as supervisor:
        with pytest.raises(Boom):
            await supervisor.child("a").call(Do(raising(Boom())))
        await settle()
        assert await supervisor.child("a").call(Get(1)) == 1
        assert [child.incarnation for child in await supervisor.which_children()] == [2, 1]


@pytest.mark.parametrize("kind", FOREIGN)
async def test_a_foreign_exception_in_an_observer_is_logged(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """B-34: as any failure of an observer is."""

    def observe(event: Event) -> None:
        raise kind

    with caplog.at_level(logging.ERROR, "mcp_actors.kernel"):
        async with open_actor(Host(), name="host", observers=[observe]) as ref:
            assert await ref.call(Get(1)) == 1
    assert "the actor is not affected" in caplog.text


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_foreign_exception_in_the_users_block_is_raised_unchanged(crashes: bool) -> None:
    """K8: also while the actor fails, so that a task of asyncio's that is cancelled sees that it is."""
    host, error = Host(), asyncio.CancelledError()
    with leaving(asyncio.CancelledError) as caught:
        async with open_actor(host, name="host"):
            if crashes:
                host.fail(Boom())
            raise error
    assert caught.value is error


# --- those that leave -------------------------------------------------------------------------------------------------


class Raises(Host):
    """Raises an exception at a place, in its second life if it is restarted."""

    where: str
    error: BaseException

    def at(self, where: str) -> None:
        if where == self.where:
            raise self.error

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.at("start")
        async with super().running():
            yield
        self.at("stop")

    async def handle(self, message: Any) -> Any:
        if isinstance(message, Get):
            self.at("handle")
        return await super().handle(message)

    def take(self, later: Later[Any]) -> bool:
        if isinstance(later.message, Get):
            self.at("take")
        return False

    def ending(self) -> None:
        self.at("ending")

    def is_fatal(self, exc: Exception) -> bool:
        self.at("is_fatal")
        return True

    def is_hopeless(self, exc: BaseException) -> bool:
        self.at("is_hopeless")
        return False


def raising_at(where: str, error: BaseException) -> Raises:
    if where == "factory":
        raise error
    made = Raises()
    made.where, made.error = where, error
    return made


PLACES = ["factory", "start", "handle", "take", "is_fatal", "is_hopeless", "ending", "stop"]


@pytest.mark.parametrize("kind", LEAVING)
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("depth", [0, 2])
async def test_an_exception_that_ends_the_program_leaves_as_itself(
    where: str, kind: type[BaseException], depth: int
) -> None:
    """C-41, K5: from wherever it is raised and however deep, bare, after the clean-up of everything."""
    error, yard = kind("why"), Yard()

    def spec(depth: int) -> ChildSpec:
        if not depth:
            return ChildSpec("child", lambda: raising_at(where, error))
        return ChildSpec(f"level {depth}", lambda: Supervisor(yard.spec("sibling"), spec(depth - 1)))

    with leaving(kind) as caught, trio.fail_after(60):
        async with open_supervisor(yard.spec("a"), max_restarts=5) as ref:
            await ref.start_child(spec(depth))
            for level in range(depth, 0, -1):
                ref = ref.child(f"level {level}", SupervisorRef)
            if where in ("stop", "ending"):
                await ref.stop_child("child")
            elif where in ("is_fatal", "is_hopeless"):
                await ref.child("child").tell(Do(raising(Boom())))
            else:
                await ref.child("child").call(Get(1))
            await trio.sleep_forever()
    assert caught.value is error
    assert yard.running == []
    assert yard.log[-1] == "a down"


@pytest.mark.parametrize("kind", [Strange, pytest.fail.Exception])
@pytest.mark.parametrize("where", ["start", "handle", "take", "is_fatal", "is_hopeless", "ending", "stop"])
async def test_it_leaves_an_unsupervised_actor_too(where: str, kind: type[BaseException]) -> None:
    """C-41: and never as the cause of another exception."""
    error = kind("why")
    with leaving(kind) as caught, trio.fail_after(60):
        async with open_actor(raising_at(where, error), name="a") as ref:
            if where in ("is_fatal", "is_hopeless"):
                await ref.tell(Do(raising(Boom())))
            elif where in ("handle", "take"):
                await ref.call(Get(1))
            if where not in ("ending", "stop"):
                await trio.sleep_forever()
    assert caught.value is error


async def test_a_group_with_an_exception_that_ends_the_program_leaves_as_that() -> None:
    """C-41: a background task of ``running()`` fails the test, and a nursery wraps it; a Ctrl-C outranks it."""
    failed, interrupt = Strange("why"), KeyboardInterrupt()
    for error in [BaseExceptionGroup("g", [Boom(), failed]), BaseExceptionGroup("g", [failed, interrupt])]:
        host = Host()
        expected = failed if interrupt not in error.exceptions else interrupt
        with leaving(type(expected)) as caught:
            async with open_actor(host, name="host"):
                host.fail(error)
                await trio.sleep_forever()
        assert caught.value is expected


@pytest.mark.parametrize("kind", [Strange, pytest.fail.Exception])
async def test_an_observer_that_fails_the_test_fails_it(kind: type[BaseException]) -> None:
    """C-41: as one that exits ends the program."""
    error, yard = kind("why"), Yard()

    def observe(event: Event) -> None:
        if isinstance(event, Crashed):
            raise error

    with leaving(kind) as caught:
        async with open_supervisor(yard.spec("a"), yard.spec("b"), observers=[observe]) as top:
            await crash(top.child("b"))
            await trio.sleep_forever()
    assert caught.value is error
    assert yard.running == []


async def test_a_key_function_that_fails_the_test_fails_its_sender() -> None:
    """C-41: in whose step it runs."""

    def key(_: object) -> int:
        pytest.fail("no key")

    with leaving(pytest.fail.Exception, match="no key"):
        async with open_actor(Pool(Host, 2, key=key), name="pool") as ref:
            await ref.call(Get(1))


class Hidden(Exception):
    """Raises if it is asked for its class."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("broken __class__")

    @__class__.setter
    def __class__(self, _: object) -> None: ...


@pytest.mark.parametrize("where", ["start", "stop", "async", "plain"])
async def test_an_exception_whose_class_cannot_be_asked_for_is_an_ordinary_failure(where: str) -> None:
    """C-30: the tree does not hang, and its other actors serve."""
    hidden = iter([Hidden()])

    async def fail(_: Any = None) -> None:
        for exc in hidden:
            raise exc

    def plain(_: Plain) -> None:
        for exc in hidden:
            raise exc

    def make() -> Actor:
        if where == "plain":
            return Plain()
        return Host(start=fail if where == "start" else None, stop=fail if where == "stop" else None)

    specs = ChildSpec("a", make), ChildSpec("b", Host)
    with trio.fail_after(10):
        async with open_supervisor(*specs, strict=False, max_restarts=3) as top:
            a, b = top.child("a"), top.child("b")
            if where in ("async", "plain"):
                message: Any = Act(plain) if where == "plain" else Do(fail)
                answer = await outcome.acapture(a.call, message)
                assert type(cast("outcome.Error", answer).error) is Hidden
            await top.stop_child("a")
            await top.restart_child("a")
            assert await b.call(Get(1)) == 1
            assert a.state == "running"
            assert next(hidden, None) is None
