"""HTTP servers that are not there, die during a call, and come back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack

import httpx2
import pytest
import trio
from mcp.types import ListRootsResult
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    Callbacks,
    ConnectFailed,
    ConnectionLost,
    Http,
    RestartPolicy,
    ServerConfig,
    Sse,
    open_servers,
)

from ..faults.http_faults import Raw, faulty_server
from ..fleet import PROMPT, calls, http_config, http_server
from ..groups import NEVER
from ..http_server import reserved_port
from ..links import text_of
from ..processes import eventually

SOON = RestartPolicy(max_restarts=100, backoff=Backoff(first=0.1, initial=0.1, maximum=0.1))


ROOTS = Callbacks(roots=lambda context: ListRootsResult(roots=[]))


async def test_a_refused_connection_is_reported_without_credentials() -> None:
    """S2-17: the error shows the URL without its password and token."""
    with reserved_port() as port:
        url = f"http://user:hunter2@127.0.0.1:{port}/mcp?api_key=s3cret"
        config = ServerConfig("web", Http(url, headers={"X-Key": "t0ken"}), restarts=NEVER)
        began = trio.current_time()
        async with open_servers(config) as servers:
            assert trio.current_time() - began < PROMPT + 2
            error = servers.errors["web"]
            assert isinstance(error, ConnectFailed)
            assert f"127.0.0.1:{port}/mcp" in str(error)
            seen = f"{error} {error!r} {error.__cause__!r} {servers['web']!r} {servers.status()} {config!r}"
            assert not [word for word in ("hunter2", "s3cret", "t0ken") if word in seen]


async def test_calls_in_flight_are_lost_with_an_http_server_and_later_calls_succeed_once_it_is_back() -> None:
    """A-03: each call fails or succeeds at once.

    A server that is back on its port is found by the backoff, or by `restart()`.
    """
    with ExitStack() as stack:
        port, process = stack.enter_context(http_server())
        configs = [http_config(port, "alone", restarts=SOON), http_config(port, "by_hand", restarts=NEVER)]
        async with open_servers(*configs) as servers:
            async with AsyncExitStack() as asking:
                outcomes = []
                for ref in servers.configured:
                    outcomes += await asking.enter_async_context(calls(5, ref.call_tool, "sleep", {"seconds": 600}))
                for ref in servers.configured:
                    await ref.call_tool("echo", {"text": "so that the others are under way"})
                    assert ref.statistics().in_flight == 5
                killed = trio.current_time()
                process.kill()
            assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 10
            assert max(outcome.at for outcome in outcomes) - killed < PROMPT
            # While the system ends the process, a connection to it may still be accepted.
            await eventually(lambda: servers.active == ())
            await servers["by_hand"].wait_state("failed")
            process.wait()
            _, again = stack.enter_context(http_server(port))
            await servers["alone"].wait_state("ready")
            assert servers["by_hand"].state == "failed"
            await servers.reconnect()
            pids = [int(text_of(await ref.call_tool("pid"))) for ref in servers.configured]
            assert pids == [again.pid, again.pid]


async def test_a_legacy_server_that_dies_while_idle_is_noticed_by_the_end_of_its_stream() -> None:
    """S3-17: without a call. The SDK waits for a second before it opens the stream again and is refused."""
    with http_server() as (port, process):
        async with open_servers(http_config(port, protocol="legacy", restarts=NEVER)) as servers:
            process.kill()
            with trio.fail_after(1 + PROMPT):
                await servers["web"].wait_state("failed")
            assert "could not connect" in str(servers.errors["web"])


@pytest.mark.parametrize("transport", [Http, Sse])
async def test_a_notification_that_cannot_reach_the_server_ends_an_idle_connection(
    transport: type[Http | Sse],
) -> None:
    """S3-17: also while a stream of events stays open; otherwise the server would keep its old roots."""
    with faulty_server("legacy") as server:
        url = server.url("/sse" if transport is Sse else "/mcp")
        config = ServerConfig("web", transport(url), protocol="legacy", restarts=NEVER)
        async with open_servers(config, callbacks=ROOTS) as servers:
            server.refuse()
            server.end_idle()
            await servers["web"].send_roots_list_changed()
            with trio.fail_after(PROMPT):
                await servers["web"].wait_state("failed")
            assert "could not connect" in str(servers.errors["web"])


@pytest.mark.parametrize("transport", [Http, Sse])
async def test_a_notification_whose_connection_breaks_is_sent_again(transport: type[Http | Sse]) -> None:
    """S3-17: by a server that goes on; otherwise it would keep its old roots."""
    changed = "notifications/roots/list_changed"
    with faulty_server("legacy") as server:
        config = ServerConfig("web", transport(server.url("/sse" if transport is Sse else "/mcp")), protocol="legacy")
        async with open_servers(config, callbacks=ROOTS) as servers:
            server.scripts[changed] = Raw("", "reset")
            await servers["web"].send_roots_list_changed()
            await eventually(lambda: server.methods().count(changed) == 2)
            assert text_of(await servers["web"].call_tool("sleep")) == "slept None"
            assert server.methods().count(changed) == 2
            assert servers["web"].statistics().incarnation == 1


class Flow(httpx2.Auth):
    """Asks another server for a token first, which may be down."""

    def __init__(self) -> None:
        self.asks = False
        self.refused = trio.Event()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if self.asks:
            try:
                yield httpx2.Request("POST", "http://127.0.0.1:1/token")
            finally:
                self.refused.set()
        yield request


@pytest.mark.parametrize("transport", [Http, Sse])
async def test_a_notification_that_gets_no_token_does_not_end_the_connection(transport: type[Http | Sse]) -> None:
    with faulty_server("legacy") as server:
        url, flow = server.url("/sse" if transport is Sse else "/mcp"), Flow()
        config = ServerConfig("web", transport(url, auth=flow), protocol="legacy", restarts=NEVER)
        async with open_servers(config, callbacks=ROOTS) as servers:
            flow.asks = True
            await servers["web"].send_roots_list_changed()
            await flow.refused.wait()
            await wait_all_tasks_blocked()
            flow.asks = False
            assert servers["web"].state == "ready"


async def test_calls_to_a_restarted_legacy_server_succeed() -> None:
    """A-06: with the SDK's own server in a real process."""
    with ExitStack() as stack:
        port, process = stack.enter_context(http_server())
        async with open_servers(http_config(port, protocol="legacy", restarts=SOON)) as servers:
            process.kill()
            process.wait()
            _, again = stack.enter_context(http_server(port))
            async with calls(10, servers["web"].call_tool, "pid") as asking:
                pass
            assert {int(text_of(await call.result())) for call in asking} == {again.pid}
            assert servers["web"].statistics().incarnation == 2
