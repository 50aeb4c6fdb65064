"""Programs without an event loop call servers from any number of threads."""

from __future__ import annotations

import contextvars
import inspect
import re
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, PromptReference

from mcp_actors import (
    Callbacks,
    ConnectFailed,
    ConnectionLost,
    InProcess,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    ToolFailed,
    ToolNotFound,
    ToolRequest,
    bridge,
)
from mcp_actors.bridge import AsyncioServerGroup, AsyncioServerRef
from mcp_actors.sync import SyncServerGroup, SyncServerRef, fail_after, open_servers
from tests.bridge.test_views import parameters, shown
from tests.servers import scripted_server, wire_server
from tests.servers.asking import asking
from tests.servers.groups import BOUND, LATER, server
from tests.servers.plain_functions import ALL, LOG, QUESTIONS, Heard

THREADS = 16
NOT_OFFERED = {"subscribe", "watch_events"}
"""Streams: see decision 55."""

PAIRS = [(AsyncioServerRef, SyncServerRef), (AsyncioServerGroup, SyncServerGroup)]
METHODS = [
    pytest.param(original, view, name, id=f"{view.__name__}.{name}")
    for original, view in PAIRS
    for name in dir(original)
    if (not name.startswith("_") or name in ("__getitem__", "__iter__", "__len__")) and name not in NOT_OFFERED
]


@pytest.mark.parametrize(("original", "view", "name"), METHODS)
def test_a_view_has_every_method_of_that_for_asyncio(original: type, view: type, name: str) -> None:
    """If this fails, a method is new: add ``name: Final = blocking(AsyncioServerRef.name)`` to the view."""
    ours, theirs = (inspect.getattr_static(kind, name) for kind in (view, original))
    assert isinstance(ours, property) == isinstance(theirs, property)
    if not isinstance(theirs, property):
        assert [each.replace("Sync", "") for each in shown(parameters(ours))] == shown(parameters(theirs))
        assert not inspect.iscoroutinefunction(ours)
        assert bool(ours.__doc__) == bool(theirs.__doc__)


def test_the_function_takes_the_arguments_of_that_for_asyncio_except_host_and_signals() -> None:
    theirs = parameters(bridge.open_servers)
    assert parameters(open_servers) == {
        name: each for name, each in theirs.items() if name not in ("host", "stop_on", "reload_on")
    }


def test_a_script_uses_servers_with_the_names_of_the_group_on_trio() -> None:
    with open_servers(server("a"), server("b")) as servers:
        assert list(servers) == ["a", "b"]
        assert servers["a"].call("echo", text="hi") == "hi"
        assert servers.call("mcp__b__echo", text="hi") == "hi"
        assert not servers["a"].call_tool("echo", {"text": "hi"}, idempotent=True).is_error
        assert {tool.public_name for tool in servers.list_tools()} == {tool.public_name for tool in servers.tools}
        assert servers["a"].check_health().status == "healthy"
        added = servers.add(server("c"))
        assert (added, added.call("echo", text="c")) == (servers["c"], "c")
        assert servers.replace(server("c", request_timeout=7)).config.request_timeout == 7
        summary = servers.reload(server("a"), server("b"))
        assert summary.removed == ("c",)
        servers["a"].restart()
        servers["a"].stop()
        assert servers["a"].state == "stopped"
        servers["a"].start()
        servers["a"].wait_ready()
        servers.remove("a")
        assert [ref.name for ref in servers.configured] == ["b"]
        assert servers.status()["b"].state == "ready"
        assert next(iter(servers.tree().walk())).id == "servers"
        with pytest.raises(TypeError, match=r"the arguments of a tool have names"):
            servers["b"].call("echo", "hi")  # type: ignore[arg-type]  # that is what is tested
        with pytest.raises(TypeError, match=r"with mcp_actors.sync.fail_after\(seconds\)"):
            servers["b"].list_tools(timeout=5)  # type: ignore[call-arg]  # likewise


def test_errors_are_raised_as_themselves_with_the_line_of_the_caller() -> None:
    def caller() -> None:
        servers["a"].call("fail")

    with open_servers(server("a")) as servers:
        with pytest.raises(ToolNotFound):
            servers.call_tool("mcp__a__nothing")
        with pytest.raises(ToolFailed) as caught:
            caller()
        assert "caller" in [frame.name for frame in traceback.extract_tb(caught.tb)]
    with pytest.raises(ServerUnavailable, match=r"block has exited; open it again"):
        servers["a"].call("echo", text="late")
    with pytest.raises(ServerUnavailable, match=r"block has exited; open it again"):
        servers.list_tools()


def test_a_required_server_that_fails_is_raised_by_the_with() -> None:
    with pytest.raises(ConnectFailed, match="exit"), open_servers(server("a", "--exit-at-start", "3"), strict=True):
        pytest.fail("the block began")


def test_an_exception_of_the_block_leaves_it_as_itself() -> None:
    mine = ValueError("mine")

    def block() -> None:
        with open_servers(server("a")):
            raise mine

    with pytest.raises(ValueError, match="mine") as caught:
        block()
    assert caught.value is mine
    assert [frame.name for frame in traceback.extract_tb(caught.tb)][-1] == "block"


def test_sixteen_threads_get_their_own_answers() -> None:
    def ask(thread: int) -> bool:
        texts = [f"{thread}:{number}" for number in range(50)]
        return [servers["a"].call("echo", text=text) for text in texts] == texts

    with open_servers(server("a")) as servers, ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(ask, range(THREADS)))
        assert (servers["a"].statistics().in_flight, servers["a"].statistics().queued) == (0, 0)


def test_each_thread_gets_an_error_of_its_own(tmp_path: Path) -> None:
    """The death of a server ends all calls that it has."""
    log = tmp_path / "log"

    def ask(number: int) -> BaseException:
        with pytest.raises(ConnectionLost) as caught:
            servers["a"].call_tool("sleep", {"seconds": 600 + number})
        return caught.value

    config = server("a", "--log-file", str(log), restarts=LATER)
    with open_servers(config) as servers, ThreadPoolExecutor(THREADS) as threads:
        asked = [threads.submit(ask, number) for number in range(THREADS)]
        wait_until(lambda: log.read_text().count("tools/call sleep") == THREADS)
        with pytest.raises(ConnectionLost):
            servers["a"].call_tool("crash", {"code": 3})
        errors = [each.result() for each in asked]
    assert len({id(error) for error in errors}) == THREADS
    assert all("ask" in [frame.name for frame in traceback.extract_tb(error.__traceback__)] for error in errors)


def test_threads_that_wait_get_an_error_when_another_one_leaves_the_block(tmp_path: Path) -> None:
    log = tmp_path / "log"
    block = open_servers(server("a", "--log-file", str(log)), drain_timeout=0)
    servers = block.__enter__()
    with ThreadPoolExecutor(2) as threads:
        asked = threads.submit(servers["a"].call_tool, "sleep", {"seconds": 600})
        wait_until(lambda: "tools/call sleep" in log.read_text())
        threads.submit(block.__exit__, None, None, None).result()
        with pytest.raises(ServerUnavailable) as caught:
            asked.result()
    assert caught.value.outcome == "unknown"


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait in this thread for what a server does."""
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.005)


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_a_limit_withdraws_the_call_and_the_server_is_asked_to_cancel_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_servers(server("a", "--log-file", str(log))) as servers:
        with (
            fail_after(0.05),
            pytest.raises(TimeoutError, match=r"fail_after\(0.05\): timed out.*may have taken effect"),
        ):
            servers["a"].call_tool("sleep", {"seconds": 600})
        assert servers["a"].call("echo", text="on") == "on"  # without the limit
        wait_until(lambda: servers["a"].statistics().in_flight == 0)  # another thread counts
        wait_until(lambda: "notifications/cancelled" in log.read_text())


def test_a_limit_is_for_all_calls_of_its_block_and_the_earliest_counts() -> None:
    with open_servers(server("a")) as servers:
        with fail_after(0.05), fail_after(BOUND):
            with pytest.raises(TimeoutError, match=r"fail_after\(0.05\)"):
                servers["a"].call_tool("sleep", {"seconds": 600})
            with pytest.raises(TimeoutError, match=r"fail_after\(0.05\)"):
                servers["a"].call("echo", text="late")
            with ThreadPoolExecutor() as threads:  # which has no limit
                assert threads.submit(servers["a"].call, "echo", text="free").result() == "free"
        with fail_after(BOUND):
            assert servers["a"].call("echo", text="in time") == "in time"


def test_a_limit_ends_the_opening_and_nothing_is_left() -> None:
    with (
        pytest.raises(TimeoutError, match=r"fail_after\(0.2\)"),
        fail_after(0.2),
        open_servers(server("a", "--never-answer", stop_timeout=0.1)),
    ):
        pytest.fail("the block began")


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), True, "5"])
def test_a_limit_that_is_not_valid_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"fail_after\(\): seconds must be a positive number of seconds"):
        fail_after(seconds).__enter__()


# --- Functions of the program -----------------------------------------------------------------------------------------


def test_progress_is_reported_in_the_thread_of_the_call_and_never_after_it() -> None:
    reports: list[tuple[float, int]] = []
    with open_servers(server("a", "--progress", "3")) as servers:

        def progress(done: float, total: float | None, message: str | None) -> None:
            reports.append((done, threading.get_ident()))
            assert servers["a"].call("echo", text="inside") == "inside"  # while the thread waits

        def ask(_: int) -> list[int]:
            servers["a"].call_tool("echo", {"text": "x"}, progress=progress)
            mine = [done for done, thread in reports if thread == threading.get_ident()]
            servers["a"].call("echo", text="later")
            assert [done for done, thread in reports if thread == threading.get_ident()] == mine
            return [int(done) for done in mine]

        assert ask(0) == [1, 2, 3]
        with ThreadPoolExecutor(4) as threads:
            assert sum(map(len, threads.map(ask, range(4)))) >= 12


def test_a_progress_callback_that_raises_is_logged_and_the_call_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def progress(done: float, total: float | None, message: str | None) -> None:
        raise ValueError(f"no {done}")

    with open_servers(server("a", "--progress", "1")) as servers:
        assert not servers["a"].call_tool("echo", {"text": "x"}, progress=progress).is_error
    assert "a progress callback raised" in caplog.text


def test_an_exit_from_a_progress_callback_leaves_the_call() -> None:
    def progress(done: float, total: float | None, message: str | None) -> None:
        raise SystemExit(3)

    with open_servers(server("a", "--progress", "3")) as servers:
        with pytest.raises(SystemExit):
            servers["a"].call_tool("sleep", {"seconds": 600}, progress=progress)
        assert not servers["a"].call_tool("echo", {"text": "on"}, progress=lambda *_: None).is_error
        assert servers["a"].statistics().in_flight == 0


def test_plain_functions_run_in_threads_so_they_may_block() -> None:
    """All kinds of functions that a program may give. Those of an extension run in Trio's thread."""
    complete = threading.Event()
    heard = Heard(complete.set)
    with open_servers(heard.asking(), heard.reporting(), heard.extended()) as servers:
        servers["a"].call("ask", questions=QUESTIONS)
        servers["a"].call("tell", notifications=[LOG])
        servers["reporting"].call_tool("add", {"a": 1, "b": 2}, progress=heard.progress)
        assert servers["library"].call("search") == "job endless"
        assert complete.wait(BOUND)
        assert heard.of == ALL
        assert threading.main_thread() in heard.threads  # progress
        assert len(heard.threads) > 2


SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN", default="nothing")


def test_context_variables_of_the_caller_are_seen_by_middleware_in_a_thread_and_on_trio() -> None:
    """K7; spans are context variables too."""
    seen: list[tuple[str, str]] = []

    def plain(request: ToolRequest, call_next: Any) -> CallToolResult:
        seen.append((SEEN.get(), "plain"))
        result: CallToolResult = call_next(request)
        assert result.content  # it has waited
        assert servers["other"].call("echo", text="within") == "within"
        return result

    async def on_trio(request: ToolRequest, call_next: Any) -> CallToolResult:
        seen.append((SEEN.get(), "async"))
        result: CallToolResult = await call_next(request)
        return result

    config = server("a", middleware=(plain, on_trio))

    def ask(name: str) -> None:
        SEEN.set(name)
        servers["a"].call("echo", text="x")

    with open_servers(config, server("other")) as servers, ThreadPoolExecutor(3) as threads:
        list(threads.map(ask, ["x", "y", "z"]))
        assert sorted(seen) == sorted((name, kind) for name in "xyz" for kind in ("async", "plain"))
        assert servers.reload(config, server("other")).unchanged == ("a", "other")


def test_a_value_of_the_environment_is_fetched_in_a_thread_and_may_block() -> None:
    fetched = []

    def secret() -> str:
        fetched.append(threading.current_thread())
        time.sleep(0.01)
        return "hidden"

    command, args = scripted_server.command()
    with open_servers(ServerConfig("a", Stdio(command, args, env={"S": secret}))) as servers:
        assert servers["a"].call("env", name="S") == "hidden"
    assert fetched[0] is not threading.main_thread()


def test_a_callback_of_the_group_may_call_servers() -> None:
    said: list[str] = []

    def logging(context: Any, params: Any) -> None:
        said.append(servers["b"].call("echo", text=str(params.data)))

    callbacks = Callbacks(logging=logging, log_level="debug")
    with open_servers(asking(name="a"), server("b"), callbacks=callbacks) as servers:
        servers["a"].call("tell", notifications=[LOG])
        wait_until(lambda: said == ["hello"])


def test_a_server_of_this_process_runs_on_trio() -> None:
    here = MCPServer("here")

    @here.tool()
    async def where() -> bool:
        await trio.lowlevel.checkpoint()
        return threading.current_thread() is not threading.main_thread()

    with open_servers(ServerConfig("here", InProcess(here))) as servers:
        assert servers["here"].call("where") is True


def test_an_observer_that_calls_a_server_is_refused_and_does_not_hang() -> None:
    refusals: list[str] = []

    def observe(event: object) -> None:
        if opened and not refusals:
            with pytest.raises(RuntimeError) as caught:
                opened[0]["a"].call("echo", text="x")
            refusals.append(str(caught.value))

    opened: list[SyncServerGroup] = []
    with open_servers(server("a"), observers=[observe]) as servers:
        opened.append(servers)
        servers["a"].restart()
    assert re.match(r"server 'a': would block Trio", refusals[0])


def test_requests_report_progress_in_the_thread(tmp_path: Path) -> None:
    program, arguments = wire_server.command("modern", str(tmp_path / "log"))
    reports: list[float] = []

    def progress(done: float, total: float | None, message: str | None) -> None:
        reports.append(done)

    with open_servers(ServerConfig("a", Stdio(program, arguments))) as servers:
        a = servers["a"]
        a.get_prompt("p", progress=progress)
        a.read_resource("r", progress=progress)
        a.complete(PromptReference(name="p"), {"name": "a", "value": "v"}, progress=progress)
        assert reports == [1, 1, 1]
