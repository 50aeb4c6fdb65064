"""HTTP servers that misbehave."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest
import trio
from mcp import MCPError

from mcp_actors import (
    ConnectFailed,
    ConnectionLost,
    Http,
    HttpStatusError,
    LimitExceeded,
    ServerConfig,
    ServerRef,
    Sse,
)
from tests.idle_clock import IdleClock

from ...allocations import measured
from ..fleet import PROMPT, STARTED, calls
from ..groups import AT_ONCE, NEVER
from ..links import MARGIN, text_of
from ..processes import eventually
from .cells import Cell, fault, raise_failure_of
from .http_faults import FaultyServer, Raw, answer, faulty_server, response, stream

STOP: Final = 0.3
MEBIBYTE: Final = 1 << 20


@pytest.fixture
def server(cell: Cell) -> Iterator[FaultyServer]:
    """A server of the modern era where there is a choice."""
    with faulty_server("modern" if cell.transport == "http" else "legacy") as running:
        yield running


def config(cell: Cell, server: FaultyServer, path: str | None = None, **options: Any) -> ServerConfig:
    """Configure a faulty server; its failures are final."""
    headers = {"X-Key": "k3y"}
    transport = (
        Http(server.url(path or "/mcp"), headers=headers, max_body_bytes=MEBIBYTE)
        if cell.transport == "http"
        else Sse(server.url(path or "/sse"), headers=headers)
    )
    return ServerConfig("faulty", transport, **{"restarts": NEVER, **options})


def bomb(mebibytes: int) -> str:
    """Compress very many zeros."""
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(mebibytes)), packer.flush()]).decode("latin-1")


async def call_raw(ref: ServerRef, raw: Raw) -> str:
    """Make a call that is answered with these bytes."""
    return text_of(await ref.call_tool("raw", raw._asdict()))


# --- servers that go away ---------------------------------------------------------------------------------------------


@fault("refused at start", "http", "sse")
async def test_refused_at_start(cell: Cell, server: FaultyServer) -> None:
    """S2-17."""
    server.refuse()
    async with cell.open(config(cell, server)) as ref:
        with cell.fails(ConnectFailed, phase="connect", within=STARTED, cause=httpx2.ConnectError) as caught:
            await raise_failure_of(ref)
    assert (caught.value.phase, caught.value.http_status) == ("open", None)
    assert server.url("") in str(caught.value)
    assert "check that the server is running" in str(caught.value)


@fault("hangs at start", "http", "sse")
async def test_hangs_at_start(cell: Cell, server: FaultyServer, idle_clock: IdleClock) -> None:
    """S1-05: the timeout of the connect is the only one."""
    server.frozen = True
    async with cell.open(config(cell, server, connect_timeout=STARTED)) as ref:
        idle_clock.skips = False  # the sibling sleeps
        with cell.fails(ConnectFailed, phase="connect", within=STARTED + MARGIN) as caught:
            await raise_failure_of(ref)
    assert caught.value.phase == ("negotiate" if cell.transport == "http" else "open")
    assert f"timed out after {STARTED:g} s" in str(caught.value)


@fault("refused in a call", "http", "sse")
async def test_refused_in_a_call(cell: Cell, server: FaultyServer, caplog: pytest.LogCaptureFixture) -> None:
    """A-15: an unsent request waits; those at the server are answered, and no reconnect is needed."""
    caplog.set_level(logging.DEBUG, "mcp_actors.servers.http")
    async with cell.open(config(cell, server)) as ref, calls(2, ref.call_tool, "hold") as held:
        await server.held()
        await server.held()
        server.refuse()
        with cell.works(phase="call", within=PROMPT):
            async with calls(3, ref.call_tool, "sleep", {"seconds": 0.01}) as waiting:
                await eventually(lambda: "connection refused; trying again" in caplog.text)
                server.listen()
        assert [text_of(await call.result()) for call in waiting] == ["slept 0.01"] * 3
        server.release(2)
        assert [text_of(await call.result()) for call in held] == ["released"] * 2
        assert ref.statistics().incarnation == 1
        server.refuse()


@fault("killed in a call", "http", "sse")
async def test_killed_in_a_call(cell: Cell, server: FaultyServer) -> None:
    """A-03, A-15: requests at the server are lost at once; the others wait until it is back."""
    async with cell.open(config(cell, server, restarts=AT_ONCE)) as ref, calls(2, ref.call_tool, "hold") as held:
        await server.held()
        await server.held()
        with cell.fails(ConnectionLost, phase="call", within=PROMPT) as caught:
            server.die()
            await held[0].result()
        server.release(2)
        assert caught.value.outcome == "unknown"
        with pytest.raises(ConnectionLost):
            await held[1].result()
        await ref.wait_state("backoff", "connecting")  # without any call
        async with calls(5, ref.call_tool, "sleep", {"seconds": 0}) as waiting:
            server.listen()
        assert [text_of(await call.result()) for call in waiting] == ["slept 0"] * 5
        server.refuse()


@fault("killed while idle", "http")
async def test_killed_while_idle(cell: Cell, server: FaultyServer) -> None:
    """A modern server has no stream that could end. The next call finds out, and loses nothing by it."""
    async with cell.open(config(cell, server, restarts=AT_ONCE)) as ref:
        server.die()
        with cell.works(phase="call", within=PROMPT + MARGIN):
            async with calls(5, ref.call_tool, "sleep", {"seconds": 0}) as waiting:
                await ref.wait_state("backoff", "connecting")
                server.listen()
        assert [text_of(await call.result()) for call in waiting] == ["slept 0"] * 5
        server.refuse()


@fault("restarted, modern", "http")
async def test_restarted_modern(cell: Cell, server: FaultyServer) -> None:
    """A-06: there is no session, so nothing has to be done."""
    async with cell.open(config(cell, server)) as ref:
        server.die()
        server.listen()
        with cell.works(phase="call", within=PROMPT):
            assert text_of(await ref.call_tool("sleep", {"seconds": 0})) == "slept 0"
        assert ref.statistics().incarnation == 1
        server.refuse()


@fault("restarted, legacy", "http")
async def test_restarted_legacy(cell: Cell) -> None:
    """A-06: all calls are answered as if nothing had happened, after one re-initialise for all of them."""
    with faulty_server("legacy") as server:
        async with cell.open(config(cell, server, restarts=AT_ONCE)) as ref:
            server.die()
            server.listen()
            with cell.works(phase="call", within=PROMPT + MARGIN):
                async with calls(20, ref.call_tool, "sleep", {"seconds": 0}) as asking:
                    pass
            assert [text_of(await call.result()) for call in asking] == ["slept 0"] * 20
            assert ref.statistics().incarnation == 2
            assert server.methods().count("initialize") == 2
            server.refuse()


@fault("session forgotten", "http", "sse")
async def test_session_forgotten(cell: Cell) -> None:
    """A-06, A-15: requests in flight end first; none is lost, and none is sent twice."""
    with faulty_server("legacy") as server:
        async with cell.open(config(cell, server, restarts=AT_ONCE)) as ref, calls(1, ref.call_tool, "hold") as [held]:
            await server.held()
            server.forget()
            with cell.works(phase="call", within=PROMPT + MARGIN):
                async with calls(20, ref.call_tool, "sleep", {"seconds": 0}) as asking:
                    await eventually(lambda: server.methods().count("tools/call") == 21)
                    assert ref.statistics().incarnation == 1
                    server.release()
            assert text_of(await held.result()) == "released"
            assert [text_of(await call.result()) for call in asking] == ["slept 0"] * 20
            assert ref.statistics().incarnation == 2
            assert server.methods().count("initialize") == 2


@fault("frozen at close", "http", "sse")
async def test_frozen_at_close(cell: Cell) -> None:
    """S4-21: ending a session takes a bounded time if the server does not accept that."""
    with faulty_server("legacy") as server:
        async with cell.open(config(cell, server, stop_timeout=STOP)) as ref:
            server.frozen = True
            with cell.works(phase="stop", within=STOP + MARGIN):
                await ref.stop()
        assert cell.transport == "sse" or "DELETE" in server.methods()


@fault("hanging notice", "http", "sse")
async def test_hanging_notice(cell: Cell) -> None:
    """A message without an answer delays no request, however long the server takes to accept it."""
    with faulty_server("legacy") as server:
        server.mute.add("notifications/cancelled")
        async with cell.open(config(cell, server)) as ref:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ref.call_tool, "hold")
                    await server.held()
                    scope.cancel("the caller leaves, which the server is told")
            with cell.works(phase="call", within=PROMPT):
                assert text_of(await ref.call_tool("sleep", {"seconds": 0})) == "slept 0"
            await eventually(lambda: "notifications/cancelled" in server.methods())
            server.release()


# --- requests that are lost on their way ----------------------------------------------------------------------------


async def lose(cell: Cell, server: FaultyServer, raw: Raw, cause: type[BaseException] | None = None) -> str:
    """Prove that a request is lost alone; return its error."""
    async with cell.open(config(cell, server)) as ref, cell.calls_beside(ref):
        with cell.fails(ConnectionLost, phase="call", within=PROMPT, cause=cause) as caught:
            await call_raw(ref, raw)
    assert caught.value.outcome == "unknown"
    assert caught.value.server == "faulty"
    return str(caught.value)


@fault("reset", "http", "sse")
async def test_reset(cell: Cell, server: FaultyServer) -> None:
    """A-15."""
    assert "the connection broke during the request (ReadError" in await lose(
        cell, server, Raw("", "reset"), httpx2.ReadError
    )


@fault("cut in the headers", "http", "sse")
async def test_cut_in_the_headers(cell: Cell, server: FaultyServer) -> None:
    """A-15."""
    await lose(cell, server, Raw("HTTP/1.1 200 OK\r\nContent-Le"), httpx2.RemoteProtocolError)


@fault("cut in the body", "http")
async def test_cut_in_the_body(cell: Cell, server: FaultyServer) -> None:
    """A-15."""
    await lose(cell, server, Raw(response(200, answer())[:-10]), httpx2.RemoteProtocolError)


@fault("cut in a stream of events", "http")
async def test_cut_in_a_stream_of_events(cell: Cell, server: FaultyServer) -> None:
    """A-15."""
    assert "the event stream ended before the response" in await lose(
        cell, server, Raw(stream(f"data: {answer()}"[:-10]))
    )


@fault("reset in a stream of events", "http")
async def test_reset_in_a_stream_of_events(cell: Cell, server: FaultyServer) -> None:
    """A-15."""
    await lose(cell, server, Raw(stream("data: {"), "reset"), httpx2.ReadError)


@fault("resumed after a cut", "http")
async def test_resumed_after_a_cut(cell: Cell, server: FaultyServer) -> None:
    """A server that can take up its stream where it was cut loses nothing; an error in there is its answer."""
    begun = Raw(stream("id: 1\nretry: 10\ndata:\n\n"))
    async with cell.open(config(cell, server)) as ref, cell.calls_beside(ref):
        with cell.works(phase="call", within=PROMPT):
            server.scripts["GET"] = Raw(stream(f"id: 2\ndata: {answer()}\n\n"))
            assert await call_raw(ref, begun) == "fine"
        error = '{"jsonrpc": "2.0", "id": {id______}, "error": {"code": -32602, "message": "no such path"}}'
        server.scripts["GET"] = Raw(stream(f"id: 2\ndata: {error}\n\n"))
        with pytest.raises(MCPError, match="no such path"):
            await call_raw(ref, begun)
    assert "1" in [request.headers.get("last-event-id") for request in server.requests]


@fault("wrong content type", "http")
async def test_wrong_content_type(cell: Cell, server: FaultyServer) -> None:
    assert "'text/html'" in await lose(cell, server, Raw(response(200, "<html>", kind="text/html; charset=x"), "keep"))


@fault("bad JSON", "http")
async def test_bad_json(cell: Cell, server: FaultyServer) -> None:
    assert "not an MCP message" in await lose(cell, server, Raw(response(200, '{"jsonrpc": "2.0"'), "keep"))


@fault("bad JSON in an event", "http")
async def test_bad_json_in_an_event(cell: Cell, server: FaultyServer, caplog: pytest.LogCaptureFixture) -> None:
    """It costs itself: the stream goes on."""
    async with cell.open(config(cell, server)) as ref, cell.calls_beside(ref):
        with cell.works(phase="call", within=PROMPT):
            bad = 'data: {"jsonrpc"\n\n'
            assert await call_raw(ref, Raw(stream(f"{bad}data: {answer()}\n\n"))) == "fine"
    assert "server 'faulty': skipped an event that is not an MCP message; fix the server" in caplog.text


@fault("answer to another request", "http")
async def test_answer_to_another_request(cell: Cell, server: FaultyServer) -> None:
    """The caller does not wait for an answer that cannot come any more."""
    other = answer().replace("{id______}", '"other"')
    assert "response is to request 'other'" in await lose(cell, server, Raw(response(200, other), "keep"))


@fault("error without an id", "http")
async def test_error_without_an_id(cell: Cell, server: FaultyServer) -> None:
    """S4-01: it can only be about the request that it answers."""
    body = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "no such path"}}'
    async with cell.open(config(cell, server)) as ref, cell.calls_beside(ref):
        with cell.fails(MCPError, phase="call", within=PROMPT) as caught:
            await call_raw(ref, Raw(response(200, body), "keep"))
    assert (caught.value.code, caught.value.message) == (-32602, "no such path")


@fault("accepted and not answered", "http")
async def test_accepted_and_not_answered(cell: Cell, server: FaultyServer) -> None:
    assert "202 Accepted" in await lose(cell, server, Raw(response(202), "keep"))


# --- statuses -------------------------------------------------------------------------------------------------------


async def refuse(cell: Cell, server: FaultyServer, status: int, *headers: str, body: str = "") -> HttpStatusError:
    """Prove that a status is raised for the one request that was answered with it."""
    async with cell.open(config(cell, server)) as ref, cell.calls_beside(ref):
        with cell.fails(HttpStatusError, phase="call", within=PROMPT) as caught:
            await call_raw(ref, Raw(response(status, body, *headers), "keep"))
    assert caught.value.status == status
    assert server.url("") in str(caught.value)
    assert f"answered with {status}" in str(caught.value)
    return caught.value


@fault("400", "http", "sse")
async def test_400(cell: Cell, server: FaultyServer) -> None:
    """A-05: an MCP error in the body is raised as such, and a bare status as a status."""
    refused = await refuse(cell, server, 400)
    assert "check the arguments of this one" in str(refused)


@fault("400 with an error of MCP", "http")
async def test_400_with_an_error_of_mcp(cell: Cell, server: FaultyServer) -> None:
    body = '{"jsonrpc": "2.0", "id": {id______}, "error": {"code": -32602, "message": "no such path", "data": 7}}'
    async with cell.open(config(cell, server)) as ref, cell.calls_beside(ref):
        with cell.fails(MCPError, phase="call", within=PROMPT) as caught:
            await call_raw(ref, Raw(response(400, body), "keep"))
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "no such path", 7)


@fault("401", "http", "sse")
async def test_401(cell: Cell, server: FaultyServer) -> None:
    """A-05."""
    assert "check the credentials" in str(await refuse(cell, server, 401))


@fault("403", "http", "sse")
async def test_403(cell: Cell, server: FaultyServer) -> None:
    """A-05."""
    assert "what the credentials allow" in str(await refuse(cell, server, 403))


@fault("404", "http")
async def test_404(cell: Cell, server: FaultyServer) -> None:
    """A-05: in the modern era, where there is no session that could be forgotten."""
    assert "check the arguments of this one" in str(await refuse(cell, server, 404))


@fault("405", "http", "sse")
async def test_405(cell: Cell, server: FaultyServer) -> None:
    """A-05."""
    assert "check the path of the URL" in str(await refuse(cell, server, 405))


@fault("429 with Retry-After", "http", "sse")
async def test_429_with_retry_after(cell: Cell, server: FaultyServer) -> None:
    """A-05: the words that came with it are not lost either."""
    body = '{"jsonrpc": "2.0", "id": {id______}, "error": {"code": -32000, "message": "too eager"}}'
    refused = await refuse(cell, server, 429, "Retry-After: 7", body=body)
    assert refused.retry_after == 7
    assert "(too eager); send fewer requests at a time, and try again in 7 s" in str(refused)
    assert isinstance(refused.__cause__, MCPError)


@fault("500", "http", "sse")
async def test_500(cell: Cell, server: FaultyServer) -> None:
    """A-05."""
    assert "the logs of the server" in str(await refuse(cell, server, 500))


@fault("502", "http", "sse")
async def test_502(cell: Cell, server: FaultyServer) -> None:
    """A-05."""
    assert "any proxy before it" in str(await refuse(cell, server, 502))


@fault("503", "http", "sse")
async def test_503(cell: Cell, server: FaultyServer) -> None:
    """A-05."""
    refused = await refuse(cell, server, 503, "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT")
    assert refused.retry_after == 3600


async def refuse_start(cell: Cell, server: FaultyServer, status: int) -> ConnectFailed:
    """Prove that a connect that is answered with a status fails at once and says so."""
    server.scripts.update(dict.fromkeys(("GET", "server/discover", "initialize"), Raw(response(status), "keep")))
    async with cell.open(config(cell, server)) as ref:
        with cell.fails(ConnectFailed, phase="connect", within=STARTED, cause=HttpStatusError) as caught:
            await raise_failure_of(ref)
    assert caught.value.phase == ("negotiate" if cell.transport == "http" else "open")
    assert caught.value.http_status == status
    assert server.url("") in str(caught.value)
    assert f"answered with {status}" in str(caught.value)
    return caught.value


@fault("401 at start", "http", "sse")
async def test_401_at_start(cell: Cell, server: FaultyServer) -> None:
    """A-05, S2-17, S2-18: it takes no time, and says what was refused where."""
    assert "401 Unauthorized; check the credentials" in str(await refuse_start(cell, server, 401))
    assert len(server.requests) == 1


@fault("404 at start", "http", "sse")
async def test_404_at_start(cell: Cell, server: FaultyServer) -> None:
    """A-05, S2-18."""
    said = str(await refuse_start(cell, server, 404))
    assert "check the path of the URL" in said
    assert ("speaks streamable HTTP (type 'http') instead of SSE" in said) == (cell.transport == "sse")


@fault("503 at start", "http", "sse")
async def test_503_at_start(cell: Cell, server: FaultyServer) -> None:
    """A-05, S2-18: an outage says nothing about the protocol, so no other one is tried."""
    await refuse_start(cell, server, 503)
    assert len(server.requests) == 1


# --- redirects ------------------------------------------------------------------------------------------------------


@fault("redirect within the origin", "http", "sse")
async def test_redirect_within_the_origin(cell: Cell, server: FaultyServer) -> None:
    async with cell.open(config(cell, server, "/moved")) as ref:
        with cell.works(phase="connect", within=STARTED):
            await ref.wait_state("ready")
    targets = [request.target for request in server.requests]
    assert targets[:2] == ["/moved", "/mcp" if cell.transport == "http" else "/sse"]
    assert {request.headers["x-key"] for request in server.requests} == {"k3y"}


@fault("redirect to elsewhere", "http", "sse")
async def test_redirect_to_elsewhere(cell: Cell, server: FaultyServer) -> None:
    """Nothing is sent there: not the credentials, and not the request."""
    with faulty_server() as other:
        refused = await refuse(cell, server, 307, f"Location: {other.url()}?token=t0ken")
        assert f"to {other.url()}, which was not followed" in str(refused)
        assert "t0ken" not in str(refused)
        assert other.requests == []


# --- length and pace ------------------------------------------------------------------------------------------------


@fault("gzip bomb", "http")
async def test_gzip_bomb(cell: Cell, server: FaultyServer) -> None:
    """Decoded bytes are counted, and decoding stops as soon as there are too many."""
    packed = bomb(128)
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}"
    )
    server.scripts["hold"] = Raw(f"{head}\r\n\r\n{packed}")
    async with cell.open(config(cell, server)) as ref, cell.calls_beside(ref):
        with measured() as peak, cell.fails(LimitExceeded, phase="call", within=PROMPT) as caught:
            await ref.call_tool("hold")
    assert "max_body_bytes" in str(caught.value)
    assert peak() < 8 * MEBIBYTE


@fault("one byte at a time", "http")
async def test_one_byte_at_a_time(cell: Cell, server: FaultyServer) -> None:
    """A slow response is limited by its caller's deadline only."""
    async with (
        cell.open(config(cell, server)) as ref,
        calls(1, ref.call_tool, "slowly") as [call],
        cell.calls_beside(ref),
    ):
        with cell.works(phase="call", within=PROMPT + MARGIN):
            for _ in range(50):
                server.release()
                await trio.testing.wait_all_tasks_blocked()
            assert not call.over
            server.release(1000)
            assert text_of(await call.result()) == "slept None"
