"""Servers over HTTP with SSE that misbehave in ways of their own; the others are in `test_http.py`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest
import trio

from mcp_actors import ConnectFailed, ConnectionLost, ServerConfig, ServerError, Sse, open_servers
from mcp_actors.transports.http._link import NOTIFICATION_TIMEOUT
from mcp_actors.transports.http._sse import ACCEPT_WAIT

from ...idle_clock import IdleClock
from ..fleet import PROMPT, STARTED, calls
from ..groups import AT_ONCE, NEVER
from ..links import MARGIN, text_of
from ..processes import eventually
from .cells import Cell, fault, raise_failure_of
from .http_faults import FaultyServer, Raw, answer, faulty_server, response, stream

CONNECT: Final = 0.3


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server("legacy") as running:
        yield running


def config(server: FaultyServer, **options: Any) -> ServerConfig:
    """Configure a faulty server; its failures are final."""
    return ServerConfig("faulty", Sse(server.url("/sse")), **{"restarts": NEVER, **options})


@fault("killed while idle", "sse")
async def test_killed_while_idle(cell: Cell, server: FaultyServer) -> None:
    """A-07: the end of the event stream is noticed without any call."""
    async with cell.open(config(server)) as ref:
        with cell.fails(ConnectionLost, phase="idle", within=PROMPT) as caught:
            server.die()
            await raise_failure_of(ref)
    assert "the event stream of" in str(caught.value)


@fault("restarted, legacy", "sse")
async def test_restarted(cell: Cell, server: FaultyServer) -> None:
    """A-06: it is connected again by itself."""
    async with cell.open(config(server, restarts=AT_ONCE)) as ref:
        with cell.works(phase="call", within=PROMPT):
            server.die()
            server.listen()
            await ref.wait_state("backoff", "connecting")
            async with calls(20, ref.call_tool, "sleep", {"seconds": 0}) as asking:
                pass
        assert [text_of(await call.result()) for call in asking] == ["slept 0"] * 20
        assert server.methods().count("initialize") == 2
        server.refuse()


@fault("cut in a stream of events", "sse")
async def test_cut_in_the_stream_of_events(cell: Cell, server: FaultyServer) -> None:
    """The stream is the connection: requests that wait for an answer over it are lost at once."""
    async with cell.open(config(server)) as ref, calls(3, ref.call_tool, "hold") as held:
        with cell.fails(ConnectionLost, phase="call", within=PROMPT) as caught:
            for _ in held:
                await server.held()
            server.emit('{"jsonrpc": "2.0", "id"', end="close")
            await held[0].result()
        server.release(3)
    assert [type(call.error) for call in held] == [ConnectionLost] * 3
    assert caught.value.outcome == "unknown"


@fault("bad JSON in an event", "sse")
async def test_bad_json_in_an_event(cell: Cell, server: FaultyServer, caplog: pytest.LogCaptureFixture) -> None:
    """S2-18: it is skipped, as a comment is."""
    caplog.set_level(logging.WARNING, "mcp_actors.servers.http")
    async with cell.open(config(server)) as ref, cell.calls_beside(ref):
        with cell.works(phase="call", within=PROMPT):
            server.emit('{"jsonrpc"')
            assert text_of(await ref.call_tool("sleep", {"seconds": 0.01})) == "slept 0.01"
    assert "server 'faulty': skipped an event that is not an MCP message" in caplog.text


@fault("wrong content type", "sse")
async def test_wrong_content_type(cell: Cell, server: FaultyServer) -> None:
    """S2-18."""
    server.scripts["GET"] = Raw(response(200, "<html>", kind="text/html"), "keep")
    async with cell.open(config(server)) as ref:
        with cell.fails(ConnectFailed, phase="connect", within=STARTED, cause=ServerError) as caught:
            await raise_failure_of(ref)
    assert caught.value.phase == "open"
    assert "answered with 'text/html', which is not an event stream; check the path" in str(caught.value)


@fault("no endpoint", "sse")
async def test_no_endpoint(cell: Cell, server: FaultyServer, caplog: pytest.LogCaptureFixture) -> None:
    """S2-18: comments do not extend a connect."""
    server.scripts["GET"] = Raw(stream(": wait for it\n\n"), "keep")
    async with cell.open(config(server, connect_timeout=CONNECT)) as ref:
        with cell.fails(ConnectFailed, phase="connect", within=CONNECT + MARGIN) as caught:
            await raise_failure_of(ref)
    assert caught.value.phase == "open"
    assert "opened an event stream that named no endpoint; check the path of the URL" in caplog.text


@fault("endpoint elsewhere", "sse")
async def test_endpoint_elsewhere(cell: Cell, server: FaultyServer) -> None:
    """Nothing is sent there: not the credentials, and not a message."""
    with faulty_server("legacy") as other:
        server.scripts["GET"] = Raw(stream(f"event: endpoint\ndata: {other.url('/messages')}?key=t0ken\n\n"), "keep")
        async with cell.open(config(server)) as ref:
            with cell.fails(ConnectFailed, phase="connect", within=STARTED, cause=ServerError) as caught:
                await raise_failure_of(ref)
        assert other.requests == []
    assert f"wants messages sent to another origin ({other.url('/messages')})" in str(caught.value)
    assert "t0ken" not in str(caught.value)


async def test_a_post_without_a_response_ends_soon_after_its_request(
    server: FaultyServer, idle_clock: IdleClock
) -> None:
    """Otherwise each of them holds a task and a connection, until there are no more."""
    async with open_servers(config(server)) as servers:
        ref = servers["faulty"]
        assert text_of(await ref.call_tool("sleep", {"seconds": 0})) == "slept 0"
        server.mute |= {"tools/call", "notifications/cancelled"}
        before = len(server.requests)
        async with calls(3, ref.call_tool, "sleep"):
            await eventually(lambda: len(server.requests) == before + 3)
            assert server.connections >= 4
            for request in server.requests[before:]:
                server.emit(answer().replace("{id______}", str(request.message["id"])))
        await trio.sleep(2 * ACCEPT_WAIT)
        await eventually(lambda: server.connections == 1, within=PROMPT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call_tool, "sleep")
            await eventually(lambda: len(server.requests) == before + 4)
            nursery.cancel_scope.cancel()
        await trio.sleep(2 * NOTIFICATION_TIMEOUT)
        await eventually(lambda: server.connections == 1, within=PROMPT)
        server.mute.clear()
        assert text_of(await ref.call_tool("sleep", {"seconds": 0})) == "slept 0"
