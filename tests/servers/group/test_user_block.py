"""Exceptions of the user's block leave unchanged, and calls end when the block is left."""

from __future__ import annotations

import gc
import weakref
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerUnavailable, open_servers
from tests.forkserver import run_python
from tests.idle_clock import IdleClock
from tests.source import ROOT

from ..fleet import PROMPT, Outcome, kill, wait_calls
from ..groups import BOUND, NEVER, pids_in, server
from ..links import text_of
from ..processes import state_of


class Boom(BaseException):
    """Neither an exception nor an exit."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        ExceptionGroup("mine", [ValueError("a"), KeyError("b")]),
        ExceptionGroup("mine", [ExceptionGroup("inner", [ValueError("alone")])]),
        BaseExceptionGroup("mine", [ValueError("a"), KeyboardInterrupt()]),
        KeyboardInterrupt(),
        SystemExit(3),
        Boom("mine"),
        trio.TooSlowError(),
        StopAsyncIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_exception_of_the_block_comes_out_as_itself(error: BaseException, tmp_path: Path) -> None:
    """A-16: the same object, in no group, and after the servers were closed."""
    pids = tmp_path / "pids"

    async def fail() -> NoReturn:
        async with open_servers(server("a", "--pid-file", str(pids))):
            raise error

    with pytest.raises(type(error)) as caught:
        await fail()
    assert caught.value is error
    assert error.__context__ is None
    assert {state_of(pid) for pid in pids_in(pids)} == {"gone"}


async def test_an_exception_of_the_block_comes_out_as_itself_though_servers_are_dying() -> None:
    """A-16: what happens to servers at that moment is not the block's."""
    error = ValueError("mine")

    async def fail() -> NoReturn:
        async with open_servers(server("a"), server("b", restarts=NEVER)) as servers:
            kill(servers["a"])
            kill(servers["b"])
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await fail()
    assert caught.value is error


async def test_a_nursery_of_the_block_may_fail_while_calls_are_in_flight(tmp_path: Path) -> None:
    """The siblings of a task that fails are cancelled, and the group is that of the block's own nursery."""
    log = tmp_path / "log"

    async def fail_later() -> NoReturn:
        await wait_calls(log, 3)
        raise ValueError("mine")

    async def call_and_fail() -> None:
        async with open_servers(server("a", "--log-file", str(log))) as servers, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(servers["a"].call_tool, "sleep", {"seconds": 600})
            nursery.start_soon(fail_later)

    with pytest.raises(ExceptionGroup) as caught:
        await call_and_fail()
    assert [str(error) for error in caught.value.exceptions] == ["mine"]


async def test_a_block_whose_context_manager_was_dropped_stays_open_until_it_exits(tmp_path: Path) -> None:
    """D-80: a ref keeps it open. Afterwards nothing refers to it."""
    pids = tmp_path / "pids"
    block = open_servers(server("a", "--pid-file", str(pids)))
    dropped = weakref.ref(block)
    ref = (await AsyncExitStack().enter_async_context(block))["a"]
    del block
    gc.collect()
    assert await ref.call("echo", text="still open") == "still open"
    kept = dropped()
    assert kept is not None
    await kept.__aexit__(None, None, None)
    assert state_of(pids_in(pids)[0]) == "gone"
    await wait_all_tasks_blocked()
    del kept, ref
    gc.collect()
    assert dropped() is None


NOT_EXITED = """
import trio
from mcp_actors import open_servers

async def main():
    await open_servers().__aenter__()

trio.run(main)
"""


def test_a_main_task_that_ends_without_the_exit_of_its_block_is_explained() -> None:
    """D-80: Trio calls its nursery that was not left an internal error."""
    finished = run_python("-c", NOT_EXITED, cwd=ROOT, timeout=BOUND)
    warning, *_ = finished.stderr.splitlines()
    assert warning.startswith("open_servers(): the main task has ended and this block has not exited")
    assert "trio.TrioInternalError" in finished.stderr


async def test_a_server_that_ends_its_group_is_the_reason_in_the_errors_of_others() -> None:
    """D-81: also before the block has exited."""
    why = "server 'a' has failed and closed its group"

    async def kill_and_call() -> None:
        async with open_servers(server("a", on_failure="raise", restarts=NEVER), server("b")) as servers:
            kill(servers["a"])
            with trio.CancelScope(shield=True):
                for use in (lambda: servers["b"].call("sleep", seconds=600), servers["b"].list_tools):
                    with pytest.raises(ServerUnavailable) as caught:
                        await use()
                    assert why in str(caught.value)
                    assert why in str(caught.value.__cause__)
                for change_or_call in (partial(servers.add, server("c")), partial(servers.call, "mcp__a__pid")):
                    with pytest.raises(ServerUnavailable, match=why):
                        await change_or_call()

    with pytest.raises(ServerUnavailable) as raised:
        await kill_and_call()
    assert str(raised.value).startswith(why)


async def test_a_call_after_the_group_was_left_fails_at_once() -> None:
    """A-03: it does not wait for what will not come."""
    async with open_servers(server("a")) as servers:
        pass
    began = trio.current_time()
    for ask in (lambda: servers["a"].call_tool("pid"), servers["a"].list_tools, servers["a"].restart):
        with pytest.raises(ServerUnavailable, match=r"its open_servers\(\) block has exited") as caught:
            await ask()
        assert caught.value.state == "stopped"
    assert trio.current_time() - began < PROMPT
    assert servers["a"].state == "stopped"
    assert servers.active == servers.failed == ()


async def test_calls_of_tasks_that_outlive_the_group_end_with_it(tmp_path: Path, idle_clock: IdleClock) -> None:
    """A-03: whether they are with the server or wait for their turn, and before the server has been stopped."""
    log = tmp_path / "log"
    in_flight, queued, late = Outcome(), Outcome(), Outcome()
    flags = ("--log-file", str(log), "--ignore-eof", "--ignore-sigterm")
    async with trio.open_nursery() as outer:
        config = server("a", *flags, max_in_flight=1, stop_timeout=BOUND)
        async with open_servers(config, drain_timeout=0) as servers:
            outer.start_soon(in_flight.of, servers["a"].call_tool, "sleep", {"seconds": 600})
            await wait_calls(log, 1)
            outer.start_soon(queued.of, servers["a"].call_tool, "pid")
            await wait_all_tasks_blocked()
            left = trio.current_time()
        assert in_flight.over
        assert queued.over
        outer.start_soon(late.of, servers["a"].call_tool, "pid")
    for outcome in (in_flight, queued, late):
        assert isinstance(outcome.error, ServerUnavailable)
    assert max(in_flight.at, queued.at) - left < (trio.current_time() - left) / 2
    assert "tools/call pid" not in log.read_text().splitlines()


async def test_a_call_whose_server_was_stopped_ends_at_once_and_a_start_brings_it_back(tmp_path: Path) -> None:
    """Stopped is not for ever."""
    log = tmp_path / "log"
    in_flight = Outcome()
    async with open_servers(server("a", "--log-file", str(log))) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(in_flight.of, servers["a"].call_tool, "sleep", {"seconds": 600})
        await wait_calls(log, 1)
        asked = trio.current_time()
        await servers["a"].stop()
        assert isinstance(in_flight.error, ServerUnavailable)
        assert in_flight.error.outcome == "unknown"
        assert "was stopped during tools/call 'sleep', which may have taken effect" in str(in_flight.error)
        assert in_flight.at - asked < PROMPT
        with pytest.raises(ServerUnavailable) as refused:
            await servers["a"].call_tool("pid")
        assert refused.value.outcome == "not_sent"
        await servers["a"].start()
        assert text_of(await servers["a"].call_tool("echo", {"text": "back"})) == "back"


async def test_a_restart_keeps_what_waits_and_loses_what_was_sent(tmp_path: Path) -> None:
    """A-09: the one that was sent is not sent again, and the one that waits is answered by the new process."""
    log = tmp_path / "log"
    sent, waiting = Outcome(), Outcome()
    config = server("a", "--log-file", str(log), max_in_flight=1)
    async with open_servers(config, drain_timeout=0) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(sent.of, servers["a"].call_tool, "sleep", {"seconds": 600})
        await wait_calls(log, 1)
        nursery.start_soon(waiting.of, servers["a"].call_tool, "echo", {"text": "at last"})
        await wait_all_tasks_blocked()
        await servers["a"].restart()
    assert type(sent.error).__name__ == "ConnectionLost"
    assert text_of(waiting.value) == "at last"
    assert log.read_text().count("tools/call sleep") == log.read_text().count("tools/call echo") == 1
