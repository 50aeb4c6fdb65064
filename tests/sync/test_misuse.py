"""Where the servers cannot be used without an event loop, an error says what to do; nothing hangs, nothing is left."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_actors import ServerUnavailable
from mcp_actors.bridge._views import View
from mcp_actors.sync import SyncServerGroup, open_servers
from mcp_actors.sync._wait import ThreadBridge, in_caller
from tests.forkserver import run_python
from tests.messages import Said
from tests.servers.groups import BOUND, NEVER, pids_in, server
from tests.servers.processes import state_of
from tests.source import ROOT

from .test_calls import wait_until


def test_a_block_under_an_event_loop_is_refused(said: Said) -> None:
    async def enter() -> None:
        with pytest.raises(RuntimeError) as caught:
            open_servers(server("a")).__enter__()
        said(row, str(caught.value))

    row = "block under asyncio"
    asyncio.run(enter())
    row = "block under Trio"
    trio.run(enter)


def test_a_call_under_an_event_loop_is_refused_and_one_from_a_thread_works(said: Said) -> None:
    async def on_asyncio() -> None:
        with pytest.raises(RuntimeError) as caught:
            servers["a"].call("echo", text="x")
        said("call under asyncio", str(caught.value))
        asyncio.get_running_loop().call_soon(in_callback)
        assert await asyncio.to_thread(servers["a"].call, "echo", text="from a thread") == "from a thread"

    def in_callback() -> None:
        with pytest.raises(RuntimeError, match="would block asyncio"):
            servers.call_tool("mcp__a__echo", {"text": "x"})

    async def on_trio() -> None:
        with pytest.raises(RuntimeError) as caught:
            servers["a"].call("echo", text="x")
        said("call under Trio", str(caught.value))
        assert await trio.to_thread.run_sync(lambda: servers["a"].call("echo", text="from a thread")) == "from a thread"

    with open_servers(server("a")) as servers:
        asyncio.run(on_asyncio())
        trio.run(on_trio)
        assert servers["a"].call("echo", text="without") == "without"


async def _enter_async(block: Any) -> None:
    async with block:
        pass


@pytest.mark.parametrize(
    ("row", "use"),
    [
        ("async with", lambda block: asyncio.run(_enter_async(block))),
        ("a name before the block", lambda block: block["a"]),
        ("awaited", lambda block: block.__await__()),
    ],
)
def test_another_use_of_the_block_is_explained(row: str, use: Any, said: Said) -> None:
    with pytest.raises(TypeError) as caught:
        use(open_servers(server("a")))
    said(row, str(caught.value))


def test_a_method_before_the_block_and_a_second_block_are_explained(said: Said) -> None:
    block = open_servers(server("a"))
    with pytest.raises(AttributeError) as missing:
        _ = block.call_tool  # type: ignore[attr-defined]  # that is what is tested
    said("a method before the block", str(missing.value))
    with block:
        pass
    with pytest.raises(RuntimeError) as twice, block:
        pass
    said("entered twice", str(twice.value))


@pytest.mark.parametrize("enter", [lambda block: block.__enter__(), lambda block: ExitStack().enter_context(block)])
def test_a_block_that_was_dropped_stays_open_until_the_group_and_all_refs_have_been_dropped_too(
    enter: Callable[[AbstractContextManager[SyncServerGroup]], SyncServerGroup],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D-80: then it ends, nothing is left, and one warning says why."""
    pids = tmp_path / "pids"
    threads = set(threading.enumerate())
    servers = enter(open_servers(server("a", "--pid-file", str(pids))))
    (ours,) = (each for each in set(threading.enumerate()) - threads if each.name == "mcp_actors: Trio")
    gc.collect()
    assert servers.call("mcp__a__echo", text="by the group") == "by the group"
    ref, group = servers["a"], weakref.ref(servers._target)
    del servers
    gc.collect()
    assert ref.call("echo", text="by the ref") == "by the ref"
    assert warnings_in(caplog) == []
    del ref
    ours.join(BOUND)
    assert not ours.is_alive()
    assert state_of(pids_in(pids)[0]) == "gone"
    gc.collect()
    assert group() is None
    (warning,) = warnings_in(caplog)
    assert warning.startswith("a block was dropped without being exited")


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def test_a_block_that_has_exited_is_kept_by_nothing_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with open_servers(server("a")) as servers:
        held = weakref.ref(servers._bridge)
    del servers
    gc.collect()
    assert held() is None
    assert warnings_in(caplog) == []


def test_a_server_that_ends_its_group_is_the_reason_in_each_later_error(caplog: pytest.LogCaptureFixture) -> None:
    """D-81: the thread in the block cannot be cancelled, and learns it from its calls."""
    why = "server 'a' has failed and closed its group"

    def kill_and_call() -> None:
        with open_servers(server("a", on_failure="raise", restarts=NEVER), server("b")) as servers:
            pid = servers["a"].statistics().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            for use in (lambda: servers["b"].call("sleep", seconds=600), servers["b"].list_tools, servers.reconnect):
                with pytest.raises(ServerUnavailable) as caught:
                    use()
                assert why in str(caught.value)
                assert why in str(caught.value.__cause__)

    with pytest.raises(ServerUnavailable) as raised:
        kill_and_call()
    assert str(raised.value).startswith(why)
    assert [line for line in warnings_in(caplog) if "the block was stopped" in line] == [
        f"the block was stopped although it has not exited: {raised.value}"
    ]


def test_answers_that_are_faster_than_their_threads_leave_no_steps_behind() -> None:
    threads = ThreadBridge().threads
    for number in range(100):
        answer = threads.create_future()
        answer.set_result(number)
        assert answer.wait() == number
    assert threads.steps.empty()


def test_a_callback_of_a_request_that_has_ended_is_not_called_in_the_next_one() -> None:
    bridge = ThreadBridge()
    called: list[str] = []
    callback = in_caller(bridge, called.append)

    async def cancelled() -> None:
        with trio.CancelScope() as scope:
            scope.cancel("its request has ended")
            await callback("late")

    trio.run(cancelled)
    bridge.threads.steps.get_nowait()()
    assert called == []


def test_no_request_is_kept_after_many_calls() -> None:
    with open_servers(server("a")) as servers:
        view: View[Any] = servers["a"]
        bridge = view._bridge
        assert isinstance(bridge, ThreadBridge)
        for _ in range(200):
            servers["a"].call("echo", text="x")
        assert not bridge._waiting


# --- Processes --------------------------------------------------------------------------------------------------------


def run(folder: Path, *what: str) -> Any:
    pids = folder / "pids"
    finished = run_python("-m", "tests.sync.program", *what, "--pid-file", str(pids), cwd=ROOT, timeout=BOUND)
    wait_until(lambda: all(state_of(pid) == "gone" for pid in pids_in(pids)))
    return finished


def test_a_fork_is_refused_and_its_end_leaves_the_servers_alone(tmp_path: Path, said: Said) -> None:
    finished = run(tmp_path, "fork")
    refused, *rest = finished.stdout.splitlines()
    said("use in a forked process", refused.removeprefix("the fork is refused: "))
    assert rest == ["the fork has left the block", "the fork has ended with 3", "the server serves"], finished.stderr
    assert finished.returncode == 0


def test_a_process_of_multiprocessing_is_refused(tmp_path: Path) -> None:
    finished = run(tmp_path, "multiprocessing")
    assert finished.stdout.splitlines() == ["refused: RuntimeError", "the server serves"], finished.stderr


def test_a_web_application_that_keeps_only_the_group_serves_and_stops_its_servers_at_its_exit(tmp_path: Path) -> None:
    """D-80: as applications of Flask open them, at the import of a module."""
    finished = run(tmp_path, "web")
    assert finished.stdout.splitlines() == ["answers: 0 1 2 3 4 5 6 7 8 9", "leaving"], finished.stderr
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize("what", ["open", "daemon", "worker", "dropped"])
def test_a_program_that_ends_with_an_open_block_stops_the_servers(what: str, tmp_path: Path) -> None:
    """Also with a daemon thread in a call, a thread of a pool in one that ends, or the block in a garbage cycle."""
    finished = run(tmp_path, what)
    assert (finished.stdout, finished.returncode) == ("leaving\n", 0), finished.stderr
    assert finished.stderr == ""


def test_an_exit_in_the_block_leaves_it(tmp_path: Path) -> None:
    finished = run(tmp_path, "exit")
    assert (finished.stdout, finished.returncode) == ("", 5), finished.stderr


def test_a_handler_of_a_signal_ends_the_block_or_reloads(tmp_path: Path) -> None:
    """Instead of ``stop_on`` and ``reload_on``."""
    finished = run(tmp_path, "handlers")
    assert finished.stdout.splitlines() == ["reloaded in the call", "answered"], finished.stderr
    assert finished.returncode == 128 + signal.SIGTERM
