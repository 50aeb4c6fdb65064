"""A stream of events that ended is resumed by a GET, over real sockets: when, where, and how often."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio
from mcp import MCPError
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ConnectionLost, Http, ServerConfig, ServerRef, open_servers
from mcp_actors.transports.http import _session
from mcp_actors.transports.http._session import MAX_REFUSED, REOPENING, STREAM_RETRY

from ..idle_clock import IdleClock
from .faults.http_faults import FORGOTTEN, End, FaultyServer, Raw, Request, answer, response, stream
from .fleet import PROMPT, calls
from .groups import AT_ONCE, NEVER
from .links import text_of
from .processes import BOUND, eventually

pytestmark = pytest.mark.own_way

BEGIN: Final = "id: {}\nretry: {}\ndata:\n\n"
"""An event without a message, which is where a stream goes on."""

NOTICE: Final = '{"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}'
ANSWER: Final = f"data: {answer()}\n\n"

REFUSED: Final = Raw(response(405), "keep")
SLACK: Final = 1.0
"""Seconds that a GET may be late. The clock of these tests passes slowly while anybody works."""


class ResumingServer(FaultyServer):
    """A legacy server whose streams are scripted one by one.

    Attributes:
        resumed: the responses to the GETs that resume a stream, in order; the last one is repeated.
        notifying: those to the GETs before the first call, which are for notifications, likewise.
        calling: set once it was sent a call.
    """

    def __init__(self) -> None:
        super().__init__("legacy")
        self.resumed = [REFUSED]
        self.notifying = [REFUSED]
        self.calling = threading.Event()

    def _answer(self, connection: socket.socket, request: Request) -> End:
        if request.message.get("method") == "tools/call":
            self.calling.set()
        if request.method == "GET":
            self._events = connection
            scripts = self.resumed if self.calling.is_set() else self.notifying
            self.scripts["GET"] = scripts[0] if len(scripts) == 1 else scripts.pop(0)
        return super()._answer(connection, request)

    def end_stream(self) -> None:
        """End the stream that was opened last."""
        assert self._events is not None
        self._events.shutdown(socket.SHUT_RDWR)

    def places(self) -> list[str | None]:
        """Return the ``Last-Event-ID`` of each GET."""
        return [each.headers.get("last-event-id") for each in self.requests if each.method == "GET"]


@asynccontextmanager
async def connected(server: ResumingServer, gets: int = MAX_REFUSED) -> AsyncIterator[ServerRef]:
    """Connect to a server, which must stay connected; it was sent so many GETs for notifications."""
    config = ServerConfig("web", Http(server.url()), protocol="legacy", restarts=NEVER, request_timeout=None)
    try:
        async with open_servers(config) as servers:
            await eventually(lambda: len(server.places()) >= gets)
            yield servers["web"]
            assert (servers["web"].state, servers["web"].statistics().incarnation) == ("ready", 1)
    finally:
        server.close()


async def call(ref: ServerRef, events: str) -> str:
    """Make a call whose stream begins with these events, and ends."""
    return text_of(await ref.call_tool("raw", Raw(stream(events))._asdict()))


# --- when -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [("", STREAM_RETRY), ("0", REOPENING.first), ("20", REOPENING.first), ("7000", 7.0), ("x", STREAM_RETRY)],
    ids=["none", "zero", "short", "long", "not a number"],
)
async def test_a_stream_is_resumed_after_the_time_that_the_server_asks_for(
    retry: str, seconds: float, idle_clock: IdleClock
) -> None:
    """SEP-1699: and never without a pause."""
    server = ResumingServer()
    server.resumed = [Raw(stream(ANSWER))]
    async with connected(server) as ref:
        began = trio.current_time()
        assert await call(ref, BEGIN.format("a", retry).replace("retry: \n", "")) == "fine"
        assert seconds <= trio.current_time() - began < seconds + SLACK
        assert server.places()[MAX_REFUSED:] == ["a"]


async def test_a_later_retry_field_and_a_later_id_replace_the_earlier_ones(idle_clock: IdleClock) -> None:
    """An event that has neither changes nothing."""
    server = ResumingServer()
    third = f"data: {NOTICE}\n\nid:\ndata: {NOTICE}\n\n"
    server.resumed = [Raw(stream(BEGIN.format("b", 7000) + third)), Raw(stream(ANSWER))]
    async with connected(server) as ref:
        began = trio.current_time()
        assert await call(ref, BEGIN.format("a", 3000)) == "fine"
        assert 10.0 <= trio.current_time() - began < 10.0 + SLACK
        assert server.places()[MAX_REFUSED:] == ["a", "b"]


@pytest.mark.parametrize("end", ["keep", "close", "reset"])
async def test_a_stream_that_ends_after_its_answer_is_not_resumed(end: End, idle_clock: IdleClock) -> None:
    server = ResumingServer()
    async with connected(server) as ref:
        events = BEGIN.format("a", 0) + ANSWER + BEGIN.format("b", 0)
        assert text_of(await ref.call_tool("raw", Raw(stream(events), end)._asdict())) == "fine"
        await trio.sleep(60)
        assert server.places()[MAX_REFUSED:] == []


@pytest.mark.parametrize("end", ["keep", "close", "reset"])
async def test_a_resumed_stream_may_end_in_any_way_after_its_answer(end: End, idle_clock: IdleClock) -> None:
    server = ResumingServer()
    server.resumed = [Raw(stream(ANSWER), end)]
    async with connected(server) as ref:
        assert await call(ref, BEGIN.format("a", 0)) == "fine"
        await trio.sleep(60)
        assert server.places()[MAX_REFUSED:] == ["a"]


# --- how often ------------------------------------------------------------------------------------------------------


async def test_a_refusal_between_two_resumed_streams_is_not_final(idle_clock: IdleClock) -> None:
    """Refusals count in a row only."""
    server = ResumingServer()
    progress = Raw(stream(BEGIN.format("b", 0)))
    server.resumed = [REFUSED, progress, REFUSED, progress, REFUSED, Raw(stream(ANSWER))]
    async with connected(server) as ref:
        assert await call(ref, BEGIN.format("a", 0)) == "fine"
        assert server.places()[MAX_REFUSED:] == ["a", "a", "b", "b", "b", "b"]


@pytest.mark.parametrize("refusal", [405, 404, 400, 500, 503])
async def test_a_stream_that_is_refused_twice_is_given_up(refusal: int) -> None:
    """Its call fails alone: the server is still asked what it was not asked before."""
    server = ResumingServer()
    server.resumed = [Raw(response(refusal), "keep")]
    async with connected(server) as ref:
        with pytest.raises(ConnectionLost, match="ended before the response") as caught, trio.fail_after(PROMPT):
            await call(ref, BEGIN.format("a", 0))
        assert caught.value.outcome == "unknown"
        assert server.places()[MAX_REFUSED:] == ["a"] * MAX_REFUSED
        assert await call(ref, ANSWER) == "fine"


async def test_streams_with_messages_are_resumed_up_to_a_limit(
    idle_clock: IdleClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sends a message in each stream could otherwise keep a call for ever."""
    monkeypatch.setattr(_session, "MAX_RESUMED", 5)
    server = ResumingServer()
    server.resumed = [Raw(stream(BEGIN.format("a", 0) + f"data: {NOTICE}\n\n"))]
    async with connected(server) as ref:
        with pytest.raises(ConnectionLost, match="although it was resumed 5 times"), trio.fail_after(10):
            await call(ref, BEGIN.format("a", 0))
        assert server.places()[MAX_REFUSED:] == ["a"] * 5


async def test_a_stream_with_a_message_begins_the_count_of_those_without_anew(
    idle_clock: IdleClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "MAX_FRUITLESS", 2)
    server = ResumingServer()
    event = BEGIN.format("a", 0)
    empty, useful = Raw(stream(event)), Raw(stream(f"{event}data: {NOTICE}\n\n"))
    server.resumed = [useful, empty, useful, useful, empty, useful, Raw(stream(ANSWER))]
    async with connected(server) as ref:
        assert await call(ref, event) == "fine"
        assert server.places()[MAX_REFUSED:] == ["a"] * 7


# --- the stream of notifications ------------------------------------------------------------------------------------


async def test_a_stream_of_notifications_goes_on_after_its_last_event_with_an_id() -> None:
    server = ResumingServer()
    server.notifying = [
        Raw(stream(BEGIN.format("a", 1) + f"data: {NOTICE}\n\n")),
        Raw(stream(f"id: b\ndata: {NOTICE}\n\n")),
        Raw(stream(f"data: {NOTICE}\n\n")),
    ]
    async with connected(server, gets=4):
        assert server.places()[:4] == [None, "a", "b", "b"]


async def test_a_stream_of_notifications_is_opened_after_the_time_that_the_server_asks_for(
    idle_clock: IdleClock,
) -> None:
    server = ResumingServer()
    server.notifying = [Raw(stream(BEGIN.format("a", 7000))), Raw(stream(""), "keep")]
    async with connected(server, gets=1):
        await trio.sleep(6)
        assert server.places() == [None]
        await trio.sleep(1 + SLACK)
        assert server.places() == [None, "a"]


async def test_a_refusal_between_two_streams_of_notifications_is_not_final() -> None:
    """Only two in a row mean that the server has no such streams."""
    server = ResumingServer()
    refused, short = Raw(response(503), "keep"), Raw(stream(f"retry: 1\ndata: {NOTICE}\n\n"))
    server.notifying = [refused, short, refused, short, refused, Raw(stream(""), "keep")]
    with trio.fail_after(2 * PROMPT):
        async with connected(server, gets=6):
            assert server.methods().count("GET") == 6


async def test_a_server_that_refuses_two_streams_of_notifications_is_not_asked_again(idle_clock: IdleClock) -> None:
    server = ResumingServer()
    async with connected(server):
        await trio.sleep(600)
        assert server.places() == [None] * MAX_REFUSED


async def test_streams_of_notifications_that_bring_a_message_are_opened_again_soon(idle_clock: IdleClock) -> None:
    """Those without one are opened ever later."""
    server, number = ResumingServer(), 8
    server.notifying = [*[Raw(stream(f"retry: 0\ndata: {NOTICE}\n\n"))] * number, Raw(stream(""), "keep")]
    began = trio.current_time()
    async with connected(server, gets=number + 1):
        assert trio.current_time() - began < 2 * number * REOPENING.first + SLACK


async def test_a_stream_that_is_refused_because_its_session_is_forgotten_ends_the_connection() -> None:
    """Without any call."""
    server = ResumingServer()
    server.notifying = [Raw(stream("retry: 500\n\n"), "keep")]
    config = ServerConfig("web", Http(server.url()), protocol="legacy", restarts=AT_ONCE)
    try:
        async with open_servers(config) as servers:
            await eventually(lambda: server.methods().count("tools/list") == 2)  # the last request by itself
            await wait_all_tasks_blocked(0.05)
            server.notifying = [Raw(response(404, FORGOTTEN), "keep")]
            server.forget()
            server.end_stream()
            await eventually(lambda: server.methods().count("initialize") == 2, within=PROMPT)
            await servers["web"].wait_state("ready")
            assert servers["web"].statistics().incarnation == 2
    finally:
        server.close()


async def test_an_error_in_the_stream_of_notifications_shows_no_credential() -> None:
    """C-01: as in any other response."""
    server = ResumingServer()
    server.notifying = [Raw(stream(""), "keep")]
    config = ServerConfig("web", Http(server.url(), headers={"X-Key": "s3cret-k3y"}), protocol="legacy")
    try:
        async with open_servers(config) as servers:
            await eventually(lambda: len(server.places()) == 1)
            with trio.fail_after(BOUND):
                async with calls(1, servers["web"].call_tool, "raw", Raw("", "keep")._asdict()) as [asking]:
                    await eventually(server.calling.is_set)
                    call_id = server.requests[-1].message["id"]
                    error = {"code": -32000, "message": "wrong key s3cret-k3y"}
                    server.emit(json.dumps({"jsonrpc": "2.0", "id": call_id, "error": error}))
            with pytest.raises(MCPError, match="wrong key") as caught:
                await asking.result()
            assert "s3cret" not in str(caught.value)
    finally:
        server.close()
