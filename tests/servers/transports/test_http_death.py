"""HTTP servers that are not there, die during a call, and come back."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack

import trio

from mcp_actors import Backoff, ConnectFailed, ConnectionLost, Http, RestartPolicy, ServerConfig, open_servers

from ..fleet import PROMPT, calls, http_config, http_server
from ..groups import NEVER
from ..http_server import reserved_port
from ..links import text_of
from ..processes import eventually

SOON = RestartPolicy(max_restarts=100, backoff=Backoff(first=0.1, initial=0.1, maximum=0.1))


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
