"""Waits that can never end are refused, or end with an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorRef,
    ActorStopped,
    ChildSpec,
    DormantSupervisor,
    RestartType,
    Supervisor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Do, Gate, Host


@pytest.mark.parametrize("how", ["waits", "waited", "arrived", "on_answer"])
async def test_an_answer_is_awaited_once(how: str, said: Said) -> None:
    """C-33: the first of two waiting tasks would wait forever; the second gets an error."""
    gate, got = Gate(), list[object]()
    with trio.fail_after(60):
        async with open_actor(Host(), name="host") as ref, trio.open_nursery() as nursery:

            async def wait() -> None:
                got.append(await call.wait())

            call = ref.send_request(Do(gate))
            if how == "on_answer":
                call.on_answer(lambda answer: got.append(answer.unwrap()))
            else:
                if how == "arrived":
                    gate.open()
                    await settle()
                nursery.start_soon(wait)
            await settle()
            if how == "waited":
                gate.open()
                await settle()
            with pytest.raises(RuntimeError) as twice:
                await call.wait()
            with pytest.raises(RuntimeError):
                call.on_answer(got.append)
            said("answer awaited twice", str(twice.value))
            gate.open()
        assert got == ["through"]


async def test_the_answer_to_a_withdrawn_request_is_not_awaited(said: Said) -> None:
    """C-33: there will be none."""
    async with open_actor(Host(), name="host") as ref:
        call = ref.send_request(Do(trio.sleep_forever))
        call.withdraw()
        with pytest.raises(RuntimeError) as refused:
            await call.wait()
        said("answer to a withdrawn request", str(refused.value))


async def test_a_wait_for_a_state_of_a_deleted_child_ends(said: Said) -> None:
    """C-33: it began before the child was deleted, or begins afterwards."""
    with trio.fail_after(60):
        async with open_supervisor(ChildSpec("child", Host)) as top, trio.open_nursery() as nursery:
            child = top.child("child")
            await top.stop_child("child")
            errors: list[ActorStopped] = []

            async def wait() -> None:
                with pytest.raises(ActorStopped) as caught:
                    await child.wait_state("running", "starting")
                errors.append(caught.value)

            nursery.start_soon(wait)
            await settle()
            assert not errors
            await top.delete_child("child")
            await settle()
            await wait()
            said("state that never comes", str(errors[0]))
            assert len(errors) == 2
            assert await child.wait_state("stopped") == "stopped"
            await child.wait_stopped()
            await top.start_child(ChildSpec("child", Host))
            await wait()


@pytest.mark.parametrize("how", ["block", "left out", "another kind", "dormant", "removed while it ends", "temporary"])
async def test_a_wait_for_a_state_of_an_actor_that_is_gone_ends(how: str) -> None:
    """C-33: with its tree; with its row; or because its supervisor was started again without it."""
    inner = ChildSpec("x", lambda: Supervisor(ChildSpec("y", Host)))
    kinds: dict[str, Callable[[], Actor]] = {
        "left out": lambda: Supervisor(ChildSpec("other", Host)),
        "another kind": Host,
        "dormant": lambda: DormantSupervisor(ChildSpec("other", Host)),
    }
    made = 0

    def make() -> Actor:
        nonlocal made
        made += 1
        return Supervisor(inner, max_restarts=0) if made == 1 else kinds[how]()

    errors: list[ActorStopped] = []

    async def wait(ref: ActorRef) -> None:
        with pytest.raises(ActorStopped) as caught:
            await ref.wait_state("backoff" if how in ("block", "temporary") else "running")
        errors.append(caught.value)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            restart: RestartType = "temporary" if how == "temporary" else "permanent"
            async with open_supervisor(ChildSpec("below", make, restart=restart), max_restarts=3) as top:
                below = top.child("below", SupervisorRef)
                gone = below.find("x/y")
                if how in ("block", "temporary"):
                    nursery.start_soon(wait, gone)
                    nursery.start_soon(wait, below.child("x"))
                    await settle()
                    assert not errors
                if how == "temporary":
                    await top.stop_child("below")
                elif how == "removed while it ends":
                    await top.stop_child("below")
                    nursery.start_soon(wait, gone)
                    await settle()
                    await top.delete_child("below")
                elif how != "block":
                    await below.stop_child("x", keep_mailbox=True)
                    nursery.start_soon(wait, gone)
                    await settle()
                    assert not errors
                    if how == "dormant":
                        await top.stop_child("below", keep_mailbox=True)
                        await top.restart_child("below")
                    else:
                        await top.stop_child("below")
                        await top.restart_child("below")
                await settle()
                assert len(errors) == {"block": 0, "temporary": 2}.get(how, 1)
        assert errors


class Watching(Host):
    """Waits for its own end, or that of its supervisor, in its `running`."""

    def __init__(self, wait: Callable[[Actor], Awaitable[object]]) -> None:
        super().__init__()
        self.wait = wait
        self.error: BaseException | None = None

    async def watch_it(self) -> None:
        try:
            await self.wait(self)
        except ActorError as exc:
            self.error = exc

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch_it)
            yield


async def own(actor: Actor) -> None:
    await actor.ref.wait_stopped()


async def own_report(actor: Actor) -> None:
    async with actor.ref.watch() as monitor:
        await monitor.wait()


async def above(actor: Actor) -> None:
    assert actor.supervisor is not None
    await actor.supervisor.wait_state("stopped", "failed")


@pytest.mark.parametrize("wait", [own, own_report, above])
@pytest.mark.parametrize("where", ["running", "handler"])
async def test_an_actor_does_not_wait_for_its_own_end(
    wait: Callable[[Actor], Awaitable[object]], where: str, said: Said
) -> None:
    """C-33: a task of ``running()`` would keep it from ending; a handler would only be cancelled."""
    actor = Watching(wait if where == "running" else own_nothing)
    with trio.fail_after(60):
        async with open_supervisor(ChildSpec("child", lambda: actor, shutdown="infinity")) as top:
            await settle()
            if where == "handler":
                with pytest.raises(ActorError) as caught:
                    await top.child("child").call(Do(lambda: wait(actor)))
                actor.error = caught.value
    name = "supervisor" if wait is above else "child"
    said("actor waits for its own end", str(actor.error), target=f"actor {name!r}")


async def own_nothing(_: Actor) -> None:
    """Wait for nothing."""


async def test_an_actor_may_wait_for_its_own_end_with_a_deadline_and_for_that_of_others() -> None:
    """C-33: these waits end."""

    async def bounded(actor: Actor) -> None:
        with trio.move_on_after(0.01):
            await actor.ref.wait_stopped()

    async def of_another(actor: Actor) -> None:
        assert actor.supervisor is not None
        await actor.supervisor.child("other").wait_stopped()

    actor = Watching(own_nothing)
    with trio.fail_after(60):
        async with open_supervisor(ChildSpec("child", lambda: actor), ChildSpec("other", Host)) as top:
            await top.child("child").call(Do(lambda: bounded(actor)))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(top.child("child").call, Do(lambda: of_another(actor)))
                await settle()
                await top.stop_child("other")
