"""A `BaseException` that is neither an exit nor a cancellation is a crash like any other, wherever it is raised."""

from __future__ import annotations

import asyncio
import logging

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorStartError,
    ChildSpec,
    Crashed,
    Event,
    StartFailed,
    StopFailed,
    open_actor,
    open_supervisor,
)

from .actors import Boom, Do, Get, Hook, Host, hook, leaving, of, open_child, raising
from .workers import Yard


class Strange(BaseException):
    """Derived from `BaseException` in order to pass every ``except Exception``."""


FOREIGN = [asyncio.CancelledError, GeneratorExit, Strange]


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
