"""The timeouts of requests: what counts, and what the caller and the server see."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import HealthPolicy, InProcess, RequestTimedOut, ServerConfig, open_servers
from mcp_actors.servers import ServerRef
from tests.idle_clock import IdleClock

from ..messages import Said
from .fleet import kept_of, pid_of
from .groups import BOUND, LATER, crash, server
from .houses import House
from .links import MARGIN, text_of
from .processes import eventually


class Patient:
    """A server in this process whose tools take a requested time, and that notes its requests."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.mcp = MCPServer("patient")
        self.mcp.add_tool(self.sleep, name="sleep")
        self.mcp.add_tool(self.work, name="work")

    async def sleep(self, name: str, seconds: float) -> str:
        self.begun.append(name)
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            self.cancelled.append(name)
            raise
        return name

    async def work(self, ctx: Context[Any], steps: int, seconds: float, pause: float) -> str:
        """Report progress before each of some steps, then work silently for a while."""
        for step in range(steps):
            await ctx.report_progress(step, steps)
            await trio.sleep(seconds)
        await trio.sleep(pause)
        return "done"


@asynccontextmanager
async def patient(**options: Any) -> AsyncIterator[tuple[ServerRef, Patient]]:
    here = Patient()
    async with open_servers(ServerConfig("here", InProcess(here.mcp), **options)) as servers:
        yield servers["here"], here


async def expire(ref: ServerRef, tool: str, arguments: dict[str, Any], into: list[RequestTimedOut]) -> None:
    with pytest.raises(RequestTimedOut) as caught:
        await ref.call_tool(tool, arguments)
    into.append(caught.value)


# --- request_timeout --------------------------------------------------------------------------------------------------


async def test_a_request_has_sixty_seconds_by_default(autojump_clock: MockClock) -> None:
    """S2-12: there is a default."""
    async with patient() as (ref, _):
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match="after 60 s"):
            await ref.call_tool("sleep", {"name": "a", "seconds": 100})
        assert trio.current_time() - began == 60


async def test_the_error_names_server_operation_seconds_and_limit(autojump_clock: MockClock, said: Said) -> None:
    """S2-12, A-17: and it is a `TimeoutError`."""
    async with patient(request_timeout=3, connect_timeout=7, stop_timeout=2) as (ref, _):
        began = trio.current_time()
        with pytest.raises(TimeoutError) as caught:
            await ref.call_tool("sleep", {"name": "a", "seconds": 100})
        assert trio.current_time() - began == 3
    error = caught.value
    assert isinstance(error, RequestTimedOut)
    assert (error.server, error.operation, error.seconds) == ("here", "tools/call 'sleep'", 3)
    assert error.limit == "request_timeout"
    said("request timed out", str(error))


async def test_a_request_that_expires_is_cancelled_at_the_server_and_affects_no_other(
    autojump_clock: MockClock,
) -> None:
    """A-14: the server hears of it."""
    async with patient(request_timeout=10) as (ref, here), trio.open_nursery() as nursery:
        expired: list[RequestTimedOut] = []
        nursery.start_soon(expire, ref, "sleep", {"name": "slow", "seconds": 100}, expired)
        await trio.sleep(5)
        assert text_of(await ref.call_tool("sleep", {"name": "fine", "seconds": 7})) == "fine"
        await wait_all_tasks_blocked()
        assert len(expired) == 1
        assert here.cancelled == ["slow"]
        assert (ref.state, ref.statistics().in_flight) == ("ready", 0)


async def test_a_request_that_expires_is_cancelled_at_a_server_process(tmp_path: Path, idle_clock: IdleClock) -> None:
    """A-14, S2-12: over a pipe."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), request_timeout=BOUND)) as servers:
        with pytest.raises(RequestTimedOut):
            await servers["a"].call_tool("sleep", {"seconds": 600})
        await eventually(lambda: "notifications/cancelled" in log.read_text())
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_the_time_in_the_queue_counts_and_what_waited_is_not_sent(autojump_clock: MockClock) -> None:
    async with patient(request_timeout=10, max_in_flight=1) as (ref, here), trio.open_nursery() as nursery:
        expired: list[RequestTimedOut] = []
        began = trio.current_time()
        nursery.start_soon(partial(ref.call_tool, "sleep", {"name": "first", "seconds": 9}))
        await wait_all_tasks_blocked()
        nursery.start_soon(expire, ref, "sleep", {"name": "second", "seconds": 9}, expired)
        await wait_all_tasks_blocked()
        nursery.start_soon(expire, ref, "sleep", {"name": "third", "seconds": 9}, expired)
        await trio.sleep(20)
        assert sorted("was not sent" in str(error) for error in expired) == [False, True]
        assert trio.current_time() == began + 20
    assert here.begun == ["first", "second"]


async def test_a_request_expires_while_the_server_is_down(said: Said) -> None:
    """C-42: the wait in the queue is bounded too: the server is in back-off for an hour, and the error says so."""
    async with open_servers(server("a", request_timeout=0.2, restarts=LATER)) as servers:
        await crash(servers, "a")
        began = trio.current_time()
        with pytest.raises(RequestTimedOut) as caught:
            await servers["a"].list_tools()
        assert trio.current_time() - began < 0.2 + MARGIN
        said("request timed out while the server is down", str(caught.value))
        assert caught.value.__cause__ is servers.errors["a"]


async def test_a_request_expires_while_the_server_connects(autojump_clock: MockClock, said: Said) -> None:
    """C-42: there is no error yet, and so no cause."""
    house = House("a")
    house.entered = trio.Event()
    async with open_servers(house.config(connect="lazy", connect_timeout=None, request_timeout=5)) as servers:
        with pytest.raises(RequestTimedOut) as caught:
            await servers["a"].call_tool("who")
        said("request timed out while the server connects", str(caught.value))
        assert caught.value.__cause__ is None
        house.entered.set()


async def test_a_request_expires_although_the_pipe_is_full(idle_clock: IdleClock) -> None:
    """A full pipe delays no deadline, neither of the request that filled it nor of later ones."""
    async with open_servers(server("a", request_timeout=BOUND, stop_timeout=0.5)) as servers:
        await servers["a"].call_tool("deaf")
        began = trio.current_time()
        expired: list[RequestTimedOut] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expire, servers["a"], "echo", {"text": "x" * 10_000_000}, expired)
            for _ in range(20):
                nursery.start_soon(expire, servers["a"], "add", {"a": 1, "b": 2}, expired)
        assert len(expired) == 21
        assert trio.current_time() - began < BOUND + MARGIN


async def test_without_a_limit_a_request_takes_as_long_as_it_takes(autojump_clock: MockClock) -> None:
    async with patient(request_timeout=None) as (ref, _):
        assert text_of(await ref.call_tool("sleep", {"name": "a", "seconds": 1e4})) == "a"


async def test_nothing_is_kept_of_a_request_that_was_answered(autojump_clock: MockClock) -> None:
    async with patient(progress_timeout=5) as (ref, _):
        for _ in range(100):
            await ref.call_tool("sleep", {"name": "a", "seconds": 0.1})
        assert kept_of(ref) == 0


async def test_an_answer_in_the_last_moment_counts(autojump_clock: MockClock) -> None:
    async with patient(request_timeout=3) as (ref, _):
        assert text_of(await ref.call_tool("sleep", {"name": "a", "seconds": 2.999})) == "a"


async def test_an_answer_that_came_while_the_program_was_held_up_counts(mock_clock: MockClock) -> None:
    """D-85: the loop is blocked until the answer has come and its deadline is over, as by SIGSTOP or a breakpoint."""
    sums: list[object] = []

    async def add(ref: ServerRef, number: int) -> None:
        with suppress(RequestTimedOut):
            sums.append(await ref.call("add", a=number, b=0))

    quiet = HealthPolicy(interval=None)  # a jump would make a check due
    async with (
        open_servers(server("a", request_timeout=60, progress_timeout=30, health=quiet)) as servers,
        trio.open_nursery() as nursery,
    ):
        pid, stdout = pid_of(servers["a"]), end_of(pid_of(servers["a"]))
        for number in range(8):  # Trio chooses at random whether the timer or the reader runs first
            suspend(pid)
            nursery.start_soon(add, servers["a"], number)
            await wait_all_tasks_blocked()
            os.kill(pid, signal.SIGCONT)
            assert select.select([stdout], [], [], BOUND)[0]
            mock_clock.jump(61)
            await wait_all_tasks_blocked()
    assert sums == [str(number) for number in range(8)]


def suspend(pid: int) -> None:
    """Suspend a child, and wait until it is. Not in the event loop, whose clock does not move."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def end_of(pid: int) -> int:
    """Return our descriptor of the pipe that is the stdout of a process."""
    found = {
        os.stat(int(name)).st_ino: int(name) for name in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{name}")
    }
    return found[os.stat(f"/proc/{pid}/fd/1").st_ino]


# --- progress_timeout -------------------------------------------------------------------------------------------------


async def test_a_long_request_that_reports_progress_lives_on(autojump_clock: MockClock) -> None:
    """A-18: also if its caller has no progress callback."""
    async with patient(progress_timeout=5, request_timeout=1000) as (ref, _):
        began = trio.current_time()
        assert text_of(await ref.call_tool("work", {"steps": 30, "seconds": 4, "pause": 0})) == "done"
        assert trio.current_time() - began == 120


async def test_a_request_without_progress_ends_early(autojump_clock: MockClock) -> None:
    """A-18: so many seconds after its last notice."""
    async with patient(progress_timeout=5, request_timeout=1000) as (ref, _):
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match=r"after 5 s without progress .progress_timeout") as caught:
            await ref.call_tool("work", {"steps": 3, "seconds": 4, "pause": 100})
        assert trio.current_time() - began == 8 + 5
    assert (caught.value.limit, caught.value.seconds) == ("progress_timeout", 5)


async def test_progress_of_one_request_does_not_lengthen_the_time_of_another(autojump_clock: MockClock) -> None:
    """A-18: of two requests, the first with progress is no longer the first to expire."""
    async with patient(progress_timeout=5, request_timeout=1000) as (ref, _), trio.open_nursery() as nursery:
        nursery.start_soon(partial(ref.call_tool, "work", {"steps": 4, "seconds": 4, "pause": 0}))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match="after 5 s without progress"):
            await ref.call_tool("sleep", {"name": "a", "seconds": 100})
        assert trio.current_time() - began == 5


async def test_progress_does_not_lift_the_absolute_limit(autojump_clock: MockClock) -> None:
    """A-18: the cap holds."""
    async with patient(progress_timeout=5, request_timeout=20) as (ref, _):
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match=r"after 20 s .request_timeout") as caught:
            await ref.call_tool("work", {"steps": 100, "seconds": 4, "pause": 0})
        assert trio.current_time() - began == 20
    assert caught.value.limit == "request_timeout"


async def test_a_queued_request_is_not_expected_to_report_progress(autojump_clock: MockClock) -> None:
    async with (
        patient(progress_timeout=5, request_timeout=1000, max_in_flight=1) as (ref, _),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(ref.call_tool, "work", {"steps": 10, "seconds": 4, "pause": 0}))
        await wait_all_tasks_blocked()
        assert text_of(await ref.call_tool("sleep", {"name": "a", "seconds": 1})) == "a"
