"""Scenarios for programs on every host, written on anyio so that each runs on all of them."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
import pytest
from mcp import MCPError

from mcp_actors import ConfigError, LoadedConfig, ServerUnavailable, StateChanged, ToolFailed, ToolNotFound
from mcp_actors.config import Rank
from mcp_actors.kernel import ActorCrashed, ActorStopped, ChildError, ChildSpec
from mcp_actors.servers import ServerAdded
from tests.programs import FULL_SIZE
from tests.servers.fleet import STARTED
from tests.servers.groups import server
from tests.servers.links import text_of

from .actors import Boom, Count, Echo, Fail, Fatal, Nap, Note, Notes, SerialWorker, WhoCalls, Worker, caller

E = TypeVar("E", bound=Exception)

BOUND: Final = 60.0
"""Seconds for what takes milliseconds."""

STORM: Final = 10_000 if FULL_SIZE else 1000
"""Calls that are cancelled at random."""


class Program(Protocol):
    """A program on one host: how it opens things, and where it may put files."""

    folder: Path

    def open_servers(self, *configs: Any, **options: Any) -> AbstractAsyncContextManager[Any]: ...

    def open_supervisor(self, *specs: ChildSpec, **options: Any) -> AbstractAsyncContextManager[Any]: ...


def spec() -> ChildSpec:
    """The actor that most scenarios use, under its id."""
    return ChildSpec("worker", Worker)


async def until(ref: Any, expected: tuple[int, int]) -> None:
    """Wait until so many naps were begun, and so many of them have ended."""
    with anyio.fail_after(BOUND):
        while await ref.call(Count()) != expected:
            await anyio.lowlevel.checkpoint()


async def expect(error: type[E], fn: Callable[..., Awaitable[object]], *args: object) -> E:
    """Return the error that a call raises; the call fails if it raises none."""
    with pytest.raises(error) as caught:
        await fn(*args)
    assert type(caught.value) is error
    return caught.value


# --- calls ------------------------------------------------------------------------------------------------------------


async def concurrent_callers_get_their_own_answers(program: Program) -> None:
    """S4-18: each its own, at any number of callers."""
    async with program.open_supervisor(spec()) as supervisor:
        worker = supervisor.child("worker")
        got: dict[int, int] = {}

        async def ask(number: int) -> None:
            got[number] = await worker.call(Echo(number, number % 5))

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(ask, number)
        assert got == {number: number for number in range(200)}


async def messages_of_one_sender_arrive_in_order(program: Program) -> None:
    async with program.open_supervisor(ChildSpec("worker", SerialWorker)) as supervisor:
        worker = supervisor.child("worker")
        for number in range(20):
            await worker.tell(Note(number))
        assert await worker.call(Notes()) == tuple(range(20))


async def errors_arrive_as_themselves(program: Program) -> None:
    async with program.open_supervisor(spec(), max_restarts=5) as supervisor:
        worker = supervisor.child("worker")
        boom = await expect(Boom, worker.call, Fail(Boom("as asked")))
        assert str(boom) == "as asked"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expect, ActorCrashed, worker.call, Nap())
            await until(worker, (1, 0))
            await expect(Fatal, worker.call, Fail(Fatal("that was it")))
        assert await worker.call(Echo(1)) == 1
        await supervisor.stop_child("worker")
        await expect(ActorStopped, worker.call, Echo(1))
        await expect(ChildError, supervisor.restart_child, "nobody")
        again = await supervisor.restart_child("worker")
        assert again == worker
        assert await again.call(Echo(2)) == 2


async def a_monitor_reports_the_end_of_an_incarnation(program: Program) -> None:
    async with program.open_supervisor(spec(), name="house", max_restarts=5) as supervisor:
        worker = supervisor.find("worker")
        assert (worker, worker.path) == (supervisor.child("worker"), "house/worker")
        async with worker.watch() as monitor:
            await expect(Fatal, worker.call, Fail(Fatal("that was it")))
            down = await monitor.wait()
            assert (down.reason, str(down.error), down.incarnation) == ("crashed", "that was it", 1)
            assert monitor.ref == worker
        await supervisor.stop_child("worker")
        async with worker.watch() as monitor:
            assert (await monitor.wait()).reason == "not_running"


async def a_traceback_shows_the_caller_and_the_handler(program: Program) -> None:
    async with program.open_supervisor(spec()) as supervisor:
        boom = await expect(Boom, supervisor.child("worker").call, Fail(Boom()))
    frames = [frame.name for frame in traceback.extract_tb(boom.__traceback__)]
    assert frames[0] == "expect"
    assert frames[-1] == "handle"
    assert len(frames) < 15


async def context_variables_reach_the_handler(program: Program) -> None:
    async with program.open_supervisor(spec()) as supervisor:
        worker = supervisor.child("worker")
        heard: set[tuple[str, str]] = set()

        async def ask(name: str) -> None:
            caller.set(name)
            heard.add((name, await worker.call(WhoCalls())))

        async with anyio.create_task_group() as tasks:
            for name in ("ann", "ben"):
                tasks.start_soon(ask, name)
        assert heard == {("ann", "ann"), ("ben", "ben")}
        assert await worker.call(WhoCalls()) == "nobody"


# --- cancellation -----------------------------------------------------------------------------------------------------


async def a_cancelled_call_is_cancelled_on_the_other_side(program: Program) -> None:
    async with program.open_supervisor(spec()) as supervisor:
        worker = supervisor.child("worker")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.call, Nap())
            await until(worker, (1, 0))
            tasks.cancel_scope.cancel()
        await until(worker, (1, 1))
        while await worker.call(Count()) == (1, 1):  # the deadline may come before its handler has begun
            with pytest.raises(TimeoutError), anyio.fail_after(0.01):
                await worker.call(Nap())
        await until(worker, (2, 2))


async def a_request_to_a_server_is_cancelled_too(program: Program) -> None:
    log = program.folder / "log"

    async def expire_once_it_is_there(scope: anyio.CancelScope) -> None:
        while "tools/call sleep" not in log.read_text():  # noqa: ASYNC110 - it is another process
            await anyio.sleep(0.005)
        scope.deadline = anyio.current_time()

    async with program.open_servers(server("a", "--log-file", str(log))) as servers:
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(BOUND) as scope:
                tasks.start_soon(expire_once_it_is_there, scope)
                await servers["a"].call_tool("sleep", {"seconds": 600})
            assert scope.cancelled_caught
        assert text_of(await servers["a"].call_tool("echo", {"text": "still here"})) == "still here"
        with anyio.fail_after(BOUND):
            while servers["a"].statistics().in_flight:  # an answer may be here before its request is over there
                await anyio.lowlevel.checkpoint()
            while "notifications/cancelled" not in log.read_text():  # noqa: ASYNC110 - a gateway passes it on later
                await anyio.sleep(0.005)
    assert "notifications/cancelled" in log.read_text()


async def calls_may_be_cancelled_at_any_moment(program: Program) -> None:
    """Each call has one outcome, and nothing is left of any."""
    rng = random.Random(7)
    outcomes: Counter[str] = Counter()

    async def call(ref: Any, number: int, scope: anyio.CancelScope) -> None:
        outcome = "cancelled"
        with scope:
            message = Nap() if rng.random() < 0.1 else Echo(number, rng.randrange(4))
            answer = await ref.call(message)
            outcome = "answered" if answer == number else "wrong"
        outcomes[outcome] += 1

    async def canceller(scopes: list[anyio.CancelScope]) -> None:
        for scope in rng.sample(scopes, len(scopes) // 2):
            scope.cancel()
            for _ in range(rng.randrange(2)):
                await anyio.lowlevel.checkpoint()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        while not outcomes["answered"]:  # where Trio has a thread of its own that does not get to run at once
            await anyio.lowlevel.checkpoint()
        for scope in scopes:
            scope.cancel()

    async with program.open_supervisor(spec()) as supervisor:
        worker = supervisor.child("worker")
        for _ in range(STORM // 50):
            scopes = [anyio.CancelScope() for _ in range(50)]
            async with anyio.create_task_group() as tasks:
                for number, scope in enumerate(scopes):
                    tasks.start_soon(call, worker, number, scope)
                tasks.start_soon(canceller, scopes)
        begun, _ = await worker.call(Count())
        await until(worker, (begun, begun))
        assert supervisor.child("worker").statistics().queued == 0
    assert outcomes.total() == STORM
    assert set(outcomes) == {"answered", "cancelled"}


# --- events and callbacks ---------------------------------------------------------------------------------------------


async def events_are_an_async_iterator(program: Program) -> None:
    seen = []
    async with program.open_servers(server("a")) as servers:
        async with servers.watch_events() as events:
            await servers["a"].restart()
            async for event in events:
                if isinstance(event, StateChanged):
                    seen.append(event.new)
                    if event.new == "ready":
                        break
            assert events.missed == 0
        async with servers.watch_events(size=1) as last:
            await servers["a"].stop()
    rest = [event async for event in last]
    assert seen == ["stopping", "stopped", "connecting", "ready"]
    assert len(rest) <= 1


async def a_reader_of_events_that_gives_up_loses_none(program: Program) -> None:
    async with program.open_supervisor(spec()) as supervisor:
        worker = supervisor.child("worker")
        rng, got = random.Random(5), 0
        async with supervisor.watch_events() as events:
            for _ in range(20):
                await worker.tell(Note(1))
            with anyio.fail_after(BOUND):
                while got < 40:  # a start and an end each
                    with anyio.move_on_after(rng.random() * 0.001):
                        await anext(events)
                        got += 1
        assert len(await worker.call(Notes())) == 20


async def progress_comes_to_the_caller(program: Program) -> None:
    """In order, where the caller runs, and in the caller's context."""
    seen: list[tuple[float, str, int]] = []
    here = anyio.get_current_task().id

    async def note(progress: float, total: float | None, message: str | None) -> None:
        await anyio.lowlevel.checkpoint()
        assert anyio.get_current_task().id != here
        seen.append((progress, caller.get(), 0))

    caller.set("ann")
    async with program.open_servers(server("a", "--progress", "5")) as servers:
        result = await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=note)
    assert text_of(result) == "3"
    assert seen == [(step, "ann", 0) for step in range(1, 6)]


# --- servers ----------------------------------------------------------------------------------------------------------


async def a_tool_is_called_like_a_function(program: Program) -> None:
    """By the name that its server lists, or by its public name."""
    async with program.open_servers(server("a")) as servers:
        assert await servers["a"].call("echo", text="here") == "here"
        assert await servers.call("mcp__a__echo", text="there") == "there"
        failed = await expect(ToolFailed, servers["a"].call, "fail")
        assert str(failed) == "tool 'fail' of server 'a' failed: 'failed as asked'"
        await expect(ToolNotFound, servers.call, "mcp__a__nothing")
        for call in (servers["a"].call, servers.call):
            wrong = await expect(TypeError, call, "echo", {"text": "x"})
            assert str(wrong).startswith(
                "call(): the arguments of a tool have names, as in call('echo', city='Rome'); "
            )


async def a_lazy_server_connects_at_its_first_call(program: Program) -> None:
    """S4-11."""
    async with program.open_servers(server("a", connect="lazy")) as servers:
        assert servers["a"].state == "pending"
        assert text_of(await servers["a"].call_tool("echo", {"text": "up"})) == "up"
        assert servers["a"].state == "ready"


async def servers_of_an_open_group_change(program: Program) -> None:
    """S3-15: what has not changed notices nothing, on every host."""
    a, b = server("a"), server("b", connect="lazy")
    async with program.open_servers(a) as servers:
        added = await servers.add(b)
        assert (added, added.state) == (servers["b"], "pending")
        await expect(ConfigError, servers.add, b)
        summary = await servers.reload(server("b", connect="lazy", request_timeout=7.0), a)
        assert (summary.added, summary.changed, summary.unchanged) == ((), ("b",), ("a",))
        assert [*servers] == ["b", "a"]
        assert servers["a"].statistics().incarnation == 1
        await servers.remove("b")
        assert [*servers] == ["a"]
        await expect(ServerUnavailable, added.call_tool, "echo", {"text": "x"})
    await expect(ServerUnavailable, servers.remove, "a")


async def a_group_follows_its_configuration(program: Program) -> None:
    """S3-15, S3-16: on every host."""

    class Table:
        name, rank, interval, settles = "table", Rank.TABLE, 0.001, False
        servers = (server("a", connect="lazy"),)

        def look(self) -> object:
            return self.servers

        def read(self) -> tuple[LoadedConfig, ...]:
            return (LoadedConfig(self.servers, source="table"),)

    table = Table()
    async with program.open_servers(table, watch=True) as servers, servers.watch_events() as events:
        table.servers = (server("b", connect="lazy"),)
        with anyio.fail_after(BOUND):
            async for event in events:
                if isinstance(event, ServerAdded):
                    break
        assert [*servers] == ["b"]


async def subagents_share_the_connections_of_their_parent(program: Program) -> None:
    """S3-26: there is one process, however many use it, also one after the other."""
    pids = program.folder / "pids"
    async with program.open_servers(server("a", "--pid-file", str(pids))) as servers:

        async def agent(depth: int) -> None:
            assert text_of(await servers.call_tool("mcp__a__echo", {"text": str(depth)})) == str(depth)
            if depth:
                async with anyio.create_task_group() as tasks:
                    for _ in range(2):
                        tasks.start_soon(agent, depth - 1)

        await agent(3)
        assert servers["a"].statistics().restarts == 0
    assert len(pids.read_text().split()) == 1


async def a_group_closes_when_its_block_ends(program: Program) -> None:
    """S4-18: also while others use it, and each of them gets one outcome."""
    outcomes: list[str] = []

    async def use(ref: Any) -> None:
        try:
            await ref.call_tool("sleep", {"seconds": 600})
        except ServerUnavailable:
            outcomes.append("unavailable")

    async with anyio.create_task_group() as tasks, program.open_servers(server("a"), drain_timeout=0) as servers:
        ref = servers["a"]
        for _ in range(5):
            tasks.start_soon(use, ref)
        while ref.statistics().in_flight < 5:
            await anyio.lowlevel.checkpoint()
    assert outcomes == ["unavailable"] * 5
    assert (await expect(ServerUnavailable, ref.call_tool, "echo", {"text": "late"})).state == "stopped"


async def a_servers_own_errors_pass_unchanged(program: Program) -> None:
    async with program.open_servers(server("a", "--error-on-call", "-32050", "no luck")) as servers:
        error = await expect(MCPError, servers["a"].call_tool, "echo", {"text": "x"})
        assert error.error.code == -32050
        await expect(ToolNotFound, servers.call_tool, "mcp__a__nothing")


async def any_task_may_do_anything_in_any_order(program: Program) -> None:
    """A-01: start, stop, restart, reconnect and call, from any task, any number of times."""
    rng, done = random.Random(3), 0

    async def wander() -> None:
        nonlocal done
        for _ in range(6):
            ref = servers[rng.choice("ab")]
            step = rng.choice([ref.start, ref.stop, ref.restart, servers.reconnect, ref.list_tools, ref.wait_ready])
            with anyio.move_on_after(rng.choice([0.001, BOUND])):
                with suppress(ServerUnavailable):
                    await step()
            done += 1

    async with program.open_servers(server("a"), server("b")) as servers:
        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(wander)
            await servers.reconnect(failed_only=False)
            await servers.wait_ready()
        assert [ref.state for ref in servers.active] == ["ready", "ready"]
    assert done == 30


async def a_deadline_around_the_door_fires_while_it_opens(program: Program) -> None:
    """A-27: at once, and what was begun is cleaned up."""
    began = anyio.current_time()
    with pytest.raises(TimeoutError), anyio.fail_after(0.3):
        async with program.open_servers(server("a", "--never-answer", stop_timeout=0.5)):
            raise AssertionError("it cannot be opened")
    assert anyio.current_time() - began < STARTED


async def what_the_block_raises_leaves_it_as_itself(program: Program) -> None:
    boom = Boom("mine")
    with pytest.raises(Boom) as caught:
        async with program.open_supervisor(spec()):
            raise boom
    assert caught.value is boom


SCENARIOS: Final[dict[str, Callable[[Program], Awaitable[None]]]] = {
    name: thing
    for name, thing in list(globals().items())
    if callable(thing) and getattr(thing, "__annotations__", {}).get("program") == "Program"
}
