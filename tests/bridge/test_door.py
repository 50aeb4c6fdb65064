"""The block: its exceptions, its cancellation, and the tasks that enter and leave it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_actors import ConnectFailed, ServerConfig, ServerUnavailable, Stdio
from mcp_actors.bridge import AsyncioActorRef, Host, open_servers, open_supervisor
from mcp_actors.bridge._bridge import Bridge
from mcp_actors.kernel import Actor, ActorStartError, ActorStopped, ChildSpec, RestartLimitReached
from tests.kernel.actors import leaving
from tests.servers.groups import BOUND, NEVER, server

from .actors import Boom, Count, Echo, Fail, Fatal, Nap, WhoCalls, Worker, caller

HOSTS: list[Host] = ["thread", "guest"]
pytestmark = pytest.mark.parametrize("host", HOSTS)


def worker() -> ChildSpec:
    return ChildSpec("worker", Worker)


async def fail(ref: AsyncioActorRef) -> None:
    """Have an actor crash."""
    with leaving(Fatal):
        await ref.call(Fail(Fatal()))


class ShortLived(Worker):
    """Crashes as soon as it has started."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._crash)
            yield

    async def _crash(self) -> None:
        self.fail(Boom())


class Made(Actor):
    """Returns the value of `caller` at its construction."""

    def __init__(self) -> None:
        self.maker = caller.get()

    async def handle(self, message: object) -> str:
        return self.maker


class SlowToStart(Actor):
    """Takes for ever to start, and sets events when the start begins and when it is cancelled."""

    def __init__(self, starting: threading.Event, cancelled: threading.Event) -> None:
        self.starting = starting
        self.cancelled = cancelled

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            await self._start()
        finally:
            self.cancelled.set()
        yield

    async def _start(self) -> None:
        self.starting.set()
        await trio.sleep_forever()

    async def handle(self, message: object) -> None: ...


class SlowToStop(Worker):
    """Stops when another thread allows it."""

    def __init__(self, may_stop: threading.Event, stopping: threading.Event) -> None:
        super().__init__()
        self.may_stop = may_stop
        self.stopping = stopping

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield
        self.stopping.set()
        while not self.may_stop.is_set():
            await trio.lowlevel.checkpoint()


def test_a_relative_catalog_store_is_below_the_directory_in_which_it_was_given(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the paths of configurations and of ``env_file`` are."""
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (here / "servers.json").write_text('{"mcpServers": {"b": {"command": "${PROGRAM}", "disabled": true}}}')
    (here / "variables").write_text("PROGRAM=b")

    async def main() -> None:
        monkeypatch.chdir(here)
        door = open_servers(server("a"), "servers.json", env_file="variables", catalog_store="catalogs", host=host)
        monkeypatch.chdir(other)
        async with door as servers:
            await servers["a"].wait_ready()

    asyncio.run(main())
    assert (here / "catalogs").is_dir()


def test_a_start_that_fails_is_one_exception(host: Host) -> None:
    missing = ServerConfig("gone", Stdio("mcp-server-that-there-is-not"))

    async def main() -> None:
        with leaving(ConnectFailed, match="'mcp-server-that-there-is-not'"):
            async with open_servers(missing, strict=True, host=host):
                raise AssertionError("it cannot be opened")

    asyncio.run(main())


def test_a_cancellation_while_it_opens_ends_that_at_once(host: Host) -> None:
    """A-27."""
    starting, cancelled = threading.Event(), threading.Event()

    async def expire(patience: asyncio.Timeout) -> None:
        await asyncio.to_thread(starting.wait, BOUND)
        patience.reschedule(0)

    async def main() -> None:
        with leaving(TimeoutError):
            async with asyncio.timeout(None) as patience:
                expiring = asyncio.create_task(expire(patience))
                async with open_supervisor(ChildSpec("slow", lambda: SlowToStart(starting, cancelled)), host=host):
                    raise AssertionError("it cannot be opened")
        assert cancelled.is_set()
        await expiring

    asyncio.run(main())


def test_a_task_that_is_cancelled_before_it_opens_anything_opens_nothing(host: Host) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with leaving(asyncio.CancelledError):
            async with open_supervisor(worker(), host=host):
                raise AssertionError("it was cancelled before")
        task.uncancel()

    asyncio.run(main())


def test_a_failure_while_the_block_runs_cancels_it_and_leaves_alone(host: Host) -> None:
    async def main() -> None:
        with leaving(RestartLimitReached) as caught:
            async with open_supervisor(worker(), max_restarts=0, host=host) as supervisor:
                ref = supervisor.child("worker")
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(fail(ref))
                    await asyncio.Event().wait()
        assert isinstance(caught.value.__cause__, Fatal)
        assert caught.value.__suppress_context__
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # the task is not cancelled any more

    asyncio.run(main())


def test_a_failure_right_after_the_start_leaves_alone_too(host: Host) -> None:
    """It does not matter if the block has begun by then."""

    async def main() -> None:
        for _ in range(20):
            with leaving((RestartLimitReached, ActorStartError)):
                async with open_supervisor(ChildSpec("short", ShortLived), max_restarts=0, host=host):
                    await asyncio.Event().wait()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    asyncio.run(main())


def test_a_server_that_ends_its_group(host: Host) -> None:
    config = server("a", on_failure="raise", restarts=NEVER)

    async def main() -> None:
        with leaving(ServerUnavailable, match="server 'a' has failed and closed"):
            async with open_servers(config, host=host) as servers:
                pid = servers["a"].statistics().pid
                assert pid is not None
                os.kill(pid, 9)
                await asyncio.Event().wait()

    asyncio.run(main())


def test_a_failure_and_one_of_the_blocks_own_come_together(host: Host) -> None:
    boom = Boom("mine")

    async def main() -> None:
        with leaving(BaseExceptionGroup) as caught:
            async with open_supervisor(worker(), max_restarts=0, host=host) as supervisor:
                failing = asyncio.create_task(fail(supervisor.child("worker")))
                try:
                    await asyncio.Event().wait()
                finally:
                    await failing
                    raise boom
        assert {type(exc) for exc in caught.value.exceptions} == {RestartLimitReached, Boom}

    asyncio.run(main())


def test_a_cancellation_from_outside_is_not_taken_for_our_own(host: Host) -> None:
    async def main() -> None:
        with leaving(TimeoutError):
            async with asyncio.timeout(0.05):
                async with open_supervisor(worker(), host=host) as supervisor:
                    await supervisor.child("worker").call(Nap())

    asyncio.run(main())


def test_a_later_cancellation_does_not_shorten_a_stop(host: Host) -> None:
    may_stop, stopping = threading.Event(), threading.Event()

    async def block() -> None:
        async with open_supervisor(ChildSpec("slow", lambda: SlowToStop(may_stop, stopping)), host=host):
            pass

    async def main() -> None:
        task = asyncio.create_task(block())
        await asyncio.to_thread(stopping.wait)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        may_stop.set()
        with leaving(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("fails", ["block", "child"])
def test_a_cancellation_during_a_stop_is_not_lost_behind_a_failure(host: Host, fails: str) -> None:
    """The program may handle the failure and go on."""
    may_stop, left = threading.Event(), asyncio.Event()
    slow = ChildSpec("slow", lambda: SlowToStop(may_stop, threading.Event()))

    async def block() -> None:
        try:
            async with open_supervisor(slow, worker(), max_restarts=0, host=host) as supervisor:
                try:
                    if fails == "block":
                        raise Boom
                    await fail(supervisor.child("worker"))
                    await asyncio.Event().wait()
                finally:
                    left.set()
        except Exception:
            raise AssertionError("the cancellation was lost") from None

    async def main() -> None:
        task = asyncio.create_task(block())
        await left.wait()
        task.cancel()
        await asyncio.sleep(0)
        may_stop.set()
        with leaving(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value.__cause__, Boom if fails == "block" else RestartLimitReached)

    asyncio.run(main())


def test_clean_up_in_the_block_is_still_answered(host: Host) -> None:
    async def expire(patience: asyncio.Timeout, ref: AsyncioActorRef) -> None:
        while await ref.call(Count()) != (1, 0):
            pass
        patience.reschedule(0)

    async def main() -> None:
        answers = []
        with leaving(TimeoutError):
            async with asyncio.timeout(None) as patience:
                async with open_supervisor(worker(), host=host) as supervisor:
                    ref = supervisor.child("worker")
                    expiring = asyncio.create_task(expire(patience, ref))
                    try:
                        await ref.call(Nap())
                    finally:
                        answers.append(await ref.call(Echo(1)))
                        await expiring
        assert answers == [1]

    asyncio.run(main())


def test_it_may_be_entered_and_left_by_different_tasks(host: Host) -> None:
    """A-01: "exit cancel scope in a different task" does not exist here."""

    async def main() -> None:
        door = open_supervisor(worker(), host=host)

        async def enter() -> AsyncioActorRef:
            return (await door.__aenter__()).child("worker")

        async def leave() -> None:
            await door.__aexit__(None, None, None)

        worker_ref = await asyncio.create_task(enter())
        assert await asyncio.create_task(worker_ref.call(Echo(1))) == 1
        await asyncio.create_task(leave())

    asyncio.run(main())


async def freed(thing: Callable[[], object]) -> None:
    """Wait until nothing refers to a thing.

    The thread in which a guest run has waited for input and output refers to the run until it is its turn to go on.
    """
    async with asyncio.timeout(5):
        while thing() is not None:
            gc.collect()
            await asyncio.sleep(0)


def test_a_block_that_was_dropped_stays_open_until_it_exits(host: Host) -> None:
    """D-80: a ref keeps it open. Afterwards nothing refers to it."""

    async def main() -> None:
        block = open_supervisor(worker(), host=host)
        dropped = weakref.ref(block)
        ref = (await AsyncExitStack().enter_async_context(block)).child("worker")
        del block
        gc.collect()
        assert await ref.call(Echo(1)) == 1
        kept = dropped()
        assert kept is not None
        await kept.__aexit__(None, None, None)
        del kept, ref
        await freed(dropped)

    asyncio.run(main())


def test_a_failure_after_the_task_that_entered_the_block_has_ended_is_the_reason_in_each_later_error(
    host: Host, caplog: pytest.LogCaptureFixture, ended: asyncio.Event
) -> None:
    """D-81: no task can be cancelled, so calls raise it at once, one warning has it, and so does the exit."""
    why = "server 'a' has failed and closed its group"
    configs = server("a", on_failure="raise", restarts=NEVER), server("b")

    async def main() -> None:
        async with AsyncExitStack() as stack:
            servers = await asyncio.create_task(stack.enter_async_context(open_servers(*configs, host=host)))
            waiting = asyncio.create_task(servers["b"].call("sleep", seconds=600))
            await servers["b"].call("echo", text="the first call has been sent")
            pid = servers["a"].statistics().pid
            assert pid is not None
            os.kill(pid, 9)
            with leaving(ServerUnavailable, match=rf"'b' was stopped \({why}.*\) during tools/call 'sleep'"):
                await waiting
            await ended.wait()
            for use in (servers["a"].list_tools, lambda: servers["b"].call("echo", text="late"), servers.reconnect):
                with leaving(ServerUnavailable) as caught:
                    await use()
                assert why in str(caught.value)
                assert why in str(caught.value.__cause__)

    with leaving(ServerUnavailable) as raised:
        asyncio.run(main())
    assert str(raised.value).startswith(why)
    assert [each.getMessage() for each in caplog.records if each.name == "mcp_actors.bridge"] == [
        f"the block was stopped although it has not exited: {raised.value}"
    ]


def test_a_task_that_goes_on_after_a_failure_keeps_nothing_of_the_block(host: Host) -> None:
    async def main() -> None:
        block = open_supervisor(worker(), max_restarts=0, host=host)
        exited = weakref.ref(block)
        with leaving(RestartLimitReached):
            async with block as supervisor, asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(supervisor.child("worker")))
                await asyncio.Event().wait()
        del block, supervisor
        await freed(exited)

    asyncio.run(main())


def test_an_actor_says_why_its_supervisor_has_ended_without_its_block(host: Host, ended: asyncio.Event) -> None:
    """D-81."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            block = open_supervisor(worker(), max_restarts=0, host=host)
            supervisor = await asyncio.create_task(stack.enter_async_context(block))
            await fail(ref := supervisor.child("worker"))
            await ended.wait()
            with leaving(ActorStopped, match="'worker' has stopped because") as caught:
                await ref.call(Echo(1))
            assert isinstance(caught.value.__cause__, RestartLimitReached)
            assert str(caught.value.__cause__) in str(caught.value)

    with leaving(RestartLimitReached):
        asyncio.run(main())


def test_calls_that_wait_when_the_block_ends_get_one_outcome_each(host: Host) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor:
            ref = supervisor.child("worker")
            naps = [asyncio.create_task(ref.call(Nap())) for _ in range(50)]
            while await ref.call(Count()) != (50, 0):
                pass
            waiting = [asyncio.create_task(ref.wait_state("failed")), asyncio.create_task(ref.wait_stopped())]
        ends = await asyncio.gather(*naps, *waiting, return_exceptions=True)
        assert [type(end).__name__ for end in ends] == ["ActorStopped"] * 51 + ["NoneType"]

    asyncio.run(main())


def test_a_child_that_fails_to_start_raises_in_start_child(host: Host) -> None:
    def broken() -> Actor:
        raise Boom("no")

    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor:
            with leaving(ActorStartError) as caught:
                await supervisor.start_child(ChildSpec("broken", broken))
            assert isinstance(caught.value.__cause__, Boom)

    asyncio.run(main())


def test_exits_leave_as_themselves(host: Host) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host=host):
            raise SystemExit(3)

    with leaving(SystemExit, match="3"):
        asyncio.run(main())


def test_an_interrupt_that_hits_a_request_leaves_as_itself(host: Host) -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor:
            with leaving(ActorStopped):
                await supervisor._bridge.call(supervisor, interrupted)
            await asyncio.Event().wait()

    with leaving(KeyboardInterrupt):
        asyncio.run(main())


def test_an_actor_has_the_context_of_the_task_that_opens_its_supervisor(host: Host) -> None:
    async def main() -> None:
        caller.set("ann")
        async with open_supervisor(ChildSpec("made", Made), host=host) as supervisor:
            caller.set("ben")
            assert await supervisor.child("made").call(WhoCalls()) == "ann"

    asyncio.run(main())


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set on the event loop when a Trio run has ended."""
    ended, end = asyncio.Event(), Bridge.end

    def end_and_report(self: Bridge, error: BaseException | None) -> None:
        end(self, error)
        ended.set()

    monkeypatch.setattr(Bridge, "end", end_and_report)
    return ended


@pytest.mark.parametrize("closed", [True, False])
def test_a_block_in_a_generator_that_is_closed_or_dropped_cancels_no_task(
    host: Host, closed: bool, ended: asyncio.Event
) -> None:
    """The task that has entered the block runs other code by the time the Trio run ends."""

    async def count() -> AsyncGenerator[int, None]:
        async with open_supervisor(worker(), host=host) as supervisor:
            yield await supervisor.child("worker").call(Echo(1))

    async def main() -> None:
        numbers = count()
        assert await anext(numbers) == 1
        if closed:
            await numbers.aclose()
        del numbers
        await ended.wait()

    asyncio.run(main())


def test_a_block_that_is_dropped_while_it_opens_cancels_no_task(host: Host, ended: asyncio.Event) -> None:
    async def main() -> None:
        block: Any = open_supervisor(worker(), host=host)
        entering = block.__aenter__()
        entering.send(None)
        await block._opened
        entering.close()
        await ended.wait()

    asyncio.run(main())
