"""Since 2026-07-28 changes are announced over a stream that the client opens, and that may end at any time."""

from __future__ import annotations

import logging
import signal
import socket
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, METHOD_NOT_FOUND, SubscriptionsListenRequestParams
from trio.testing import MockClock

from mcp_actors import (
    ConnectionLost,
    HealthPolicy,
    Http,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    ToolsChanged,
    open_servers,
)
from mcp_actors.servers import ResourceUpdated
from mcp_actors.servers.connection._streams import AFTER_END, HEAD_START
from mcp_actors.transports.http._bodies import QUIET_STREAM

from ..simulate.http import Connection, HttpMachine, HttpProcess
from ..simulate.plan import SimulatedServer
from ..simulate.servers import House
from ..simulate.trace import Trace
from ..simulate.worker import RESOURCE
from .changing import Changing, shown, wait_shown
from .faults.http_faults import Raw, faulty_server, stream
from .fleet import PROMPT, Outcome, http_server
from .groups import LATER, NEVER, Events, lines_of, reach
from .links import MARGIN
from .processes import eventually
from .scripted_server import TOOLS, command

MODERN: Final = "2026-07-28"

PATIENCE: Final = 30.0
"""Seconds for a change to appear, which takes a tenth of one: a test of a process fails then, and does not hang."""


async def test_a_stream_that_ended_is_opened_anew_and_what_was_missed_is_found(autojump_clock: MockClock) -> None:
    """A-20: the server repeats no notification that it sent while there was no stream."""
    here = Changing(MODERN)
    async with open_servers(here.config()) as group:
        here.version = 2
        await trio.sleep(100)
        assert shown(group) == ["v1", "same"]
        here.listening.close()
        await wait_shown(group, "v2", "same")
        await here.change()
        await wait_shown(group, "v3", "same")
        assert group["here"].statistics().restarts == 0


async def test_streams_that_end_at_once_are_opened_again_with_pauses(autojump_clock: MockClock) -> None:
    here = Changing(MODERN)
    listens: list[float] = []

    async def listen(context: Any, params: Any) -> Any:
        listens.append(trio.current_time())
        raise MCPError(INTERNAL_ERROR, "Subscription limit reached")

    here.server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    async with open_servers(here.config()) as group:
        await trio.sleep(600)
        assert 8 <= len(listens) <= 18
        assert shown(group) == ["v1", "same"]


async def test_a_stream_that_was_stable_is_opened_again_at_once(autojump_clock: MockClock) -> None:
    """Proxies end idle streams after minutes; that is not a failure."""
    here = Changing(MODERN)
    listens: list[float] = []

    async def listen(context: Any, params: Any) -> Any:
        listens.append(trio.current_time())
        return await here.listening(context, params)

    here.server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    async with open_servers(here.config()):
        for end in range(1, 7):
            await trio.sleep_until(60 * end)
            here.listening.close()
        await trio.sleep(60)
    assert listens == pytest.approx([0, 60, 120, 180, 240, 300, 360], abs=2 * AFTER_END)


async def test_a_server_that_does_not_support_the_stream_is_used_without_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    here = Changing(MODERN)
    listens: list[float] = []

    async def listen(context: Any, params: Any) -> Any:
        listens.append(trio.current_time())
        raise MCPError(METHOD_NOT_FOUND, "Method not found")

    here.server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    began = trio.current_time()
    async with open_servers(here.config()):
        assert trio.current_time() == began  # the connect has not waited for a stream
        await trio.sleep(10_000)
    assert len(listens) == 1
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_a_server_that_is_slow_to_listen_is_connected_without_waiting_for_it(autojump_clock: MockClock) -> None:
    """A-20: what changed before the stream stood is found when it does."""
    here = Changing(MODERN)

    async def listen(context: Any, params: Any) -> Any:
        await trio.sleep(10)
        return await here.listening(context, params)

    here.server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    began = trio.current_time()
    async with open_servers(here.config()) as group:
        assert trio.current_time() - began == pytest.approx(HEAD_START)
        await here.change()  # without a listener
        await trio.sleep(5)
        assert (shown(group), here.asked) == (["v1", "same"], 1)
        await wait_shown(group, "v2", "same")
        assert here.asked == 2


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_stream_that_was_dropped_without_a_word_is_replaced(era: str, autojump_clock: MockClock) -> None:
    """A-20: a router may forget a connection over which nothing is sent; a new stream finds what was missed."""
    house = House(SimulatedServer("here", "http", era, {}), Trace())
    assert isinstance(house.machine, HttpMachine)
    async with open_servers(house.config()) as group:
        await trio.sleep(5)  # the stream of the legacy era is open by now, and what was missed before it is known
        house.machine.lose()
        house.do("add tool")
        await wait_shown(group, "work", "t1", within=QUIET_STREAM + 5)
        assert group["here"].statistics().restarts == 0


@pytest.mark.parametrize("verb", ["lose", "cut"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_resource_may_have_changed_while_there_was_no_stream(
    era: str, verb: str, autojump_clock: MockClock
) -> None:
    """The server does not repeat what it sent after the stream broke, or was dropped without a word."""
    house = House(SimulatedServer("here", "http", era, {}, followed=True), Trace())
    async with open_servers(house.config()) as group:
        await trio.sleep(5)
        async with group["here"].subscribe(RESOURCE) as changes:
            house.do("update")
            assert await anext(changes) == ResourceUpdated(RESOURCE)
            house.do(verb)
            house.do("update")
            with trio.fail_after(QUIET_STREAM + 5):
                assert await anext(changes) == ResourceUpdated(RESOURCE, missed=True)
            house.do("update")
            assert await anext(changes) == ResourceUpdated(RESOURCE)
        assert group["here"].statistics().restarts == 0


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_stream_is_kept_as_long_as_a_byte_comes_now_and_then(era: str, autojump_clock: MockClock) -> None:
    house = House(SimulatedServer("here", "http", era, {}), Trace())
    assert isinstance(house.machine, HttpMachine)
    async with open_servers(house.config()):
        await trio.sleep(5)
        [worker] = house.machine.process.workers.values()
        [stream] = worker.responses
        for _ in range(3):
            stream.put(None)
            await trio.sleep(QUIET_STREAM - 1)
        assert worker.responses == [stream]
        await trio.sleep(QUIET_STREAM + 5)
        assert worker.responses != [stream]


async def test_the_end_of_a_sign_in_is_noticed_when_the_stream_is_opened_again(autojump_clock: MockClock) -> None:
    """Without a request. The SDK gives up a stream after two refusals: the server would be ready, and never heard."""
    options = {"health": HealthPolicy(interval=None)}
    house = House(SimulatedServer("here", "http", "legacy", options, signs_in=True), Trace())
    async with open_servers(house.config()) as group:
        await trio.sleep(5)
        house.do("sign out")
        house.do("cut")
        with trio.fail_after(QUIET_STREAM):
            await group["here"].wait_state("needs_auth")
        house.do("sign in")
        house.do("add tool")
        await wait_shown(group, "work", "t1", within=QUIET_STREAM)


@pytest.mark.parametrize("call", [1, 2], ids=["json", "events"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_is_with_the_server_at_the_end_of_its_sign_in_may_have_taken_effect(
    era: str, call: int, autojump_clock: MockClock
) -> None:
    """S1-18: the end of the sign-in is the reason why the connection is lost, and not that the call was never sent."""
    house = House(SimulatedServer("here", "http", era, {}, signs_in=True), Trace())
    lost = Outcome()
    async with open_servers(house.config()) as group:
        await trio.sleep(5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost.of, group["here"].call_tool, "work", {"call": call, "seconds": 0, "fate": "hang"})
            await trio.sleep(5)
            house.do("sign out")
            house.do("add tool")  # the next list of tools notices the end, and the call goes on
            await trio.sleep(5)
            house.do("crash")
            with trio.fail_after(QUIET_STREAM):
                await group["here"].wait_state("needs_auth")
        assert house.began == [call]
        assert isinstance(lost.error, ConnectionLost)
        assert lost.error.outcome == "unknown"


async def test_a_server_that_refuses_its_first_stream_is_used_without_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has none, and says so with a status of its own; its sign-in has not ended."""
    check = Connection._refused

    def refuse_streams(self: Connection, request: httpx2.Request, process: HttpProcess) -> httpx2.Response | None:
        return httpx2.Response(401) if request.method == "GET" else check(self, request, process)

    monkeypatch.setattr(Connection, "_refused", refuse_streams)
    house = House(SimulatedServer("here", "http", "legacy", {}, signs_in=True), Trace())
    async with open_servers(house.config()) as group:
        await trio.sleep(QUIET_STREAM)
        assert (group["here"].state, group["here"].statistics().restarts) == ("ready", 0)


# --- in a process of its own ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_process_that_changes_is_followed(era: str, tmp_path: Path) -> None:
    """A-20, S4-09: over stdio in both eras; a burst of notices refreshes once."""
    log, protocol = tmp_path / "log", "legacy" if era == "legacy" else MODERN
    program, args = command("--era", era, "--notices", "5", "--log-file", str(log))
    config = ServerConfig("a", Stdio(program, args), protocol=protocol)  # type: ignore[arg-type]  # it is
    async with open_servers(config) as group:
        assert len(group.tools) == len(TOOLS)
        await group["a"].call_tool("grow")
        await wait_shown(group, *TOOLS, "tool_0", within=PATIENCE)
        await group["a"].call_tool("tool_0")
        assert len(lines_of(log, "tools/list")) == 2
        assert len(lines_of(log, "subscriptions/listen")) == (era == "modern")


async def test_no_stream_is_opened_to_a_process_whose_tools_cannot_change(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program, args = command("--era", "modern", "--log-file", str(log))
    async with open_servers(ServerConfig("a", Stdio(program, args), protocol=MODERN)):
        pass
    assert lines_of(log, "subscriptions/listen", "tools/list") == ["tools/list"]


async def test_an_open_stream_does_not_delay_the_end(tmp_path: Path) -> None:
    """The server reads nothing any more, and the pipe to it is full."""
    program, args = command("--era", "modern", "--notices", "1", "--ignore-eof")
    config = ServerConfig("a", Stdio(program, args), protocol=MODERN, stop_timeout=0.5)
    async with open_servers(config) as group:
        await group["a"].call_tool("deaf")
        with trio.move_on_after(0.1):
            await group["a"].call_tool("echo", {"text": "x" * 10_000_000})
        began = trio.current_time()
    assert trio.current_time() - began < 0.5 + MARGIN


# --- over HTTP ------------------------------------------------------------------------------------------------------


def web(port: int, protocol: Any, **options: Any) -> ServerConfig:
    return ServerConfig("web", Http(f"http://127.0.0.1:{port}/mcp"), protocol=protocol, **options)


@pytest.mark.parametrize("protocol", ["legacy", MODERN])
async def test_an_http_server_that_changes_is_followed(protocol: str) -> None:
    """A-20: over HTTP in both eras."""
    with http_server() as (port, _):
        async with open_servers(web(port, protocol)) as group:
            before = shown(group)
            for name in ("one", "two"):
                await group["web"].call_tool("grow", {"name": name})
                before.append(name)
                await wait_shown(group, *before, within=PATIENCE)
            await group.call_tool("mcp__web__two")


async def test_the_death_of_an_idle_http_server_is_noticed_by_the_end_of_its_notices() -> None:
    """S3-17: nothing is sent to it."""
    with http_server() as (port, process):
        async with open_servers(web(port, MODERN, restarts=LATER)) as group:
            process.kill()
            assert await reach(group, "web", "backoff") == "backoff"


async def test_a_server_that_shuts_down_and_waits_for_its_listeners_is_not_waited_for() -> None:
    """The stream does not count as a request in flight: refused requests do not wait for its end."""
    with http_server() as (port, process):
        async with open_servers(web(port, MODERN, restarts=NEVER)) as group:
            process.send_signal(signal.SIGTERM)
            await eventually(lambda: refused(port))
            assert group["web"].state == "ready"
            with trio.fail_after(PROMPT + 5), pytest.raises(ServerUnavailable):
                await group["web"].call_tool("pid")


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # the listener was closed while it had the connection
        return False
    return False


async def test_a_list_of_an_http_server_that_came_back_is_the_new_one() -> None:
    """A-20, S1-23: what the server offers after it was replaced takes the place of what it offered before."""
    events = Events()
    with http_server() as (port, process):
        async with open_servers(web(port, MODERN, restarts=LATER), observers=[events]) as group:
            plain = shown(group)
            await group["web"].call_tool("grow", {"name": "extra"})
            await wait_shown(group, *plain, "extra", within=PATIENCE)
            process.kill()
            await reach(group, "web", "backoff")
            assert [tool.available for tool in group.tools] == [False] * (len(plain) + 1)
            with http_server(port):
                await group.reconnect()
                assert shown(group) == plain
    removed = [event.removed for event in events.of(ToolsChanged)]
    assert removed == [(), (), ("extra",)]


# --- over HTTP, in the legacy era -----------------------------------------------------------------------------------


async def test_a_stream_of_notices_that_breaks_is_opened_anew_and_what_was_missed_is_asked_for() -> None:
    """A-20: however often it breaks, and not without pause."""
    with faulty_server("legacy") as web:
        event = 'retry: 20\ndata: {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}\n\n'
        web.scripts["GET"] = Raw(stream(event), "reset")
        async with open_servers(ServerConfig("web", Http(web.url()), protocol="legacy")) as group:
            await eventually(lambda: web.methods().count("GET") > 20)
            await eventually(lambda: web.methods().count("tools/list") > 1)
            assert web.methods().count("tools/list") <= 3
            assert group["web"].statistics().restarts == 0


async def test_the_lists_are_asked_for_again_once_the_first_stream_of_notices_is_open() -> None:
    """A-20: a server that keeps no events loses the notice of a change before it."""
    with faulty_server("legacy") as web:
        web.scripts["GET"] = Raw(stream(""), "keep")
        async with open_servers(ServerConfig("web", Http(web.url()), protocol="legacy")):
            await eventually(lambda: web.methods().count("tools/list") == 2)
            assert web.methods().count("GET") == 1
