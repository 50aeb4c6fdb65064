"""Requests over streamable HTTP: each is a POST in the task of its caller, whatever its response is."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

import httpx2
import pytest
import trio
from attrs import define, field
from mcp.types import JSONRPCMessage, JSONRPCNotification
from opentelemetry import trace
from pydantic_core import PydanticSerializationError
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import Callbacks, ConnectionLost, ServerRef, ServerUnavailable, _tasks, open_servers
from mcp_actors.kernel._circles import serving
from mcp_actors.kernel._envelope import Envelope
from mcp_actors.kernel._serving import Slot
from mcp_actors.transports import open_link
from mcp_actors.transports._messages import parse_message
from mcp_actors.transports.http import _streamable
from mcp_actors.transports.http._session import HttpSession
from mcp_actors.transports.http._streamable import END_WAIT

from .links import never_lost, open_session, text_of
from .test_dispatch import ANSWER, ERAS, WebServer
from .test_tracing import CALLER

pytestmark = pytest.mark.own_way

CHANGED: Final = {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}

Json = dict[str, Any]


def event(data: str, **fields: str) -> bytes:
    """Return an event."""
    lines = [f"{name}: {value}\n" for name, value in {**fields, "data": data}.items()]
    return "".join([*lines, "\n"]).encode()


@define(slots=False)
class Stream(httpx2.AsyncByteStream):
    """The body of a response. It has an end unless it `hangs`."""

    pieces: list[bytes]
    hangs: bool = False
    closes_slowly: bool = False
    read: trio.Event = field(factory=trio.Event)
    ended: bool = False
    closed: bool = False
    reading: AsyncGenerator[bytes, None] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self.reading = self.iterate()
        return self.reading

    async def iterate(self) -> AsyncGenerator[bytes, None]:
        """Return its pieces, one by one."""
        for piece in self.pieces:
            await trio.lowlevel.checkpoint()
            yield piece
        self.read.set()
        if self.hangs:
            await trio.sleep_forever()
        self.ended = True

    async def aclose(self) -> None:
        if self.closes_slowly:
            with trio.CancelScope(shield=True):
                await trio.sleep(60)
        if self.reading is not None:
            await self.reading.aclose()
        self.closed = True


@define(slots=False)
class ScriptedWebServer(WebServer):
    """Answers calls as its script says; it gets the id of the call, as JSON, and the HTTP request.

    In the pieces of a `Stream`, ``$id`` is the id of the call that it answers, also if that is resumed.
    """

    script: Callable[[str, httpx2.Request], httpx2.Response | None] = lambda number, request: None
    cancelled: list[object] = field(factory=list)
    asked: trio.Event = field(factory=trio.Event)
    connects: bool = True
    refuses: bool = False
    asking: object = None

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.handle_call))

    async def handle_call(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one HTTP request, which it reads as a connection does."""
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        if not self.connects and b"tools/call" in request.content:
            self.asked.set()
            await trio.sleep_forever()
        if self.refuses and b"tools/call" in request.content:
            raise httpx2.ConnectError("connection refused", request=request)
        message = json.loads(b"".join([piece async for piece in request.stream]) or b"{}")
        if message.get("method") == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        if message.get("method") == "tools/call" or "last-event-id" in request.headers:
            self.calls.append((request.headers, message))
            self.asked.set()
            self.asking = message.get("id", self.asking)
            response = self.script(number := json.dumps(self.asking), request)
            if response is None:
                await trio.sleep_forever()
            if isinstance(response.stream, Stream):
                response.stream.pieces = [piece.replace(b"$id", number.encode()) for piece in response.stream.pieces]
            return response
        return self.handle(request)


def events(stream: Stream) -> httpx2.Response:
    """Return a response that is a stream of events."""
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)


@pytest.mark.parametrize("era", ERAS)
async def test_messages_before_the_answer_are_handled(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is sent once, and each message is parsed once and arrives."""
    stream = Stream([])

    def answer(number: str, request: httpx2.Request) -> httpx2.Response:
        stream.pieces = [event(json.dumps(CHANGED)), event(ANSWER)]
        return events(stream)

    parsed, arrived = list[bytes](), list[str]()

    def parse(data: bytes) -> JSONRPCMessage:
        parsed.append(data)
        return parse_message(data)

    monkeypatch.setattr(_streamable, "parse_message", parse)

    async def hear(context: object, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        arrived.append(message.method)

    server = ScriptedWebServer(era, script=answer)
    async with open_servers(server.config, callbacks=Callbacks(message=hear)) as servers:
        assert text_of(await servers["a"].call_tool("say")) == "answered"
        await wait_all_tasks_blocked()
    assert arrived == [CHANGED["method"]]
    assert len(parsed) == 2
    assert len(server.calls) == 1
    assert stream.closed


@pytest.mark.parametrize("era", ERAS)
async def test_a_stream_that_begins_with_an_id_is_resumed(era: str, autojump_clock: MockClock) -> None:
    def answer(number: str, request: httpx2.Request) -> httpx2.Response:
        if "last-event-id" in request.headers:
            return events(Stream([event(ANSWER)]))
        return events(Stream([event("", id="7")]))

    server = ScriptedWebServer(era, script=answer)
    async with open_servers(server.config) as servers:
        with trio.fail_after(60):
            assert text_of(await servers["a"].call_tool("say")) == "answered"
    assert [headers.get("last-event-id") for headers, _ in server.calls] == [None, "7"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_redirect_within_the_origin_is_followed(era: str) -> None:
    def answer(number: str, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/"):
            return httpx2.Response(
                200, headers={"content-type": "application/json"}, content=ANSWER.replace("$id", number)
            )
        return httpx2.Response(307, headers={"location": str(request.url) + "/"})

    server = ScriptedWebServer(era, script=answer)
    async with open_servers(server.config) as servers:
        assert text_of(await servers["a"].call_tool("say")) == "answered"
    (_, first), (_, second) = server.calls
    assert first == second


@pytest.mark.parametrize(
    "pieces", [[], [b": nothing\n\n"], [b"data: 1\n\n"], [b"id: 1\n"]], ids=["empty", "comment", "no message", "cut"]
)
async def test_a_stream_without_an_answer_fails_its_call(pieces: list[bytes]) -> None:
    stream = Stream(pieces)
    server = ScriptedWebServer("modern", script=lambda *_: events(stream))
    async with open_servers(server.config) as servers:
        with pytest.raises(ConnectionLost) as caught:
            await servers["a"].call_tool("say")
        assert servers["a"].state == "ready"
    assert caught.value.outcome == "unknown"
    assert stream.closed


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_stream_is_read_to_its_end_after_the_answer_but_not_waited_for(
    hangs: bool, autojump_clock: MockClock
) -> None:
    """So that its connection can be used again."""
    stream = Stream([event(ANSWER)], hangs=hangs)
    server = ScriptedWebServer("modern", script=lambda *_: events(stream))
    async with open_servers(server.config) as servers:
        began = trio.current_time()
        assert text_of(await servers["a"].call_tool("say")) == "answered"
        assert trio.current_time() == began
        await trio.sleep(END_WAIT / 2)
        assert stream.closed != hangs
        await trio.sleep(END_WAIT)
    assert stream.ended != hangs
    assert stream.closed


async def test_the_end_of_a_stream_that_came_with_its_answer_is_read_however_busy_this_program_is(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """With 128 callers a turn of the event loop may take longer than `END_WAIT`; each call made a new connection."""
    monkeypatch.setattr(_streamable, "END_WAIT", 0.0)
    monkeypatch.setattr(_tasks, "STEP_SECONDS", -1.0)  # so each checkpoint of long work is made, and takes too long
    stream = Stream([event(ANSWER)])
    server = ScriptedWebServer("modern", script=lambda *_: events(stream))
    async with open_servers(server.config) as servers:
        assert text_of(await servers["a"].call_tool("say")) == "answered"
        await wait_all_tasks_blocked()
    assert stream.ended


class CutStream(Stream):
    """A stream whose connection breaks after the last piece."""

    async def iterate(self) -> AsyncGenerator[bytes, None]:
        async for piece in super().iterate():
            yield piece
        raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")


async def test_a_request_is_not_in_flight_once_its_stream_broke_after_the_answer(autojump_clock: MockClock) -> None:
    """Otherwise, refused requests would be tried for a minute, because of a request that may still be answered."""
    stream = CutStream([event(ANSWER)])
    server = ScriptedWebServer("modern", script=lambda *_: events(stream))
    async with open_servers(server.config) as servers:
        assert text_of(await servers["a"].call_tool("say")) == "answered"
        await wait_all_tasks_blocked()
        server.refuses = True
        with pytest.raises(ServerUnavailable):  # and not RequestTimedOut
            await servers["a"].call_tool("say")
    assert stream.closed


HANGING: Final[dict[str, list[bytes] | None]] = {
    "no response": None,
    "no event": [b": nothing\n"],
    "a message": [event(json.dumps(CHANGED))],
}
"""What arrives of the response."""


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("hanging", HANGING)
async def test_a_cancelled_call_is_cancelled_at_the_server_once(era: str, hanging: str) -> None:
    """By a notification in the legacy era; since 2026-07-28 by closing the response."""
    pieces = HANGING[hanging]
    stream = Stream(pieces or [], hangs=True)
    server = ScriptedWebServer(era, script=lambda *_: None if pieces is None else events(stream))
    async with open_servers(server.config) as servers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers["a"].call_tool, "say")
            await server.asked.wait()
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        [(_, message)] = server.calls
        assert server.cancelled == ([message["id"]] if era == "legacy" else [])
        if pieces is not None and era == "modern":
            assert stream.closed
        assert servers["a"].statistics().in_flight == 0


REFUSAL: Final = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no"}}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [200, 503])
async def test_an_error_is_not_logged_whose_caller_leaves_as_the_response_closes(
    era: str, status: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is wrong, and the request has ended, so the server is not asked to cancel it."""
    stream = Stream([json.dumps(REFUSAL).encode()], closes_slowly=True)
    headers = {"content-type": "application/json"}
    server = ScriptedWebServer(era, script=lambda *_: httpx2.Response(status, headers=headers, stream=stream))
    async with open_servers(server.config) as servers:
        with trio.move_on_after(1) as leaving:
            await servers["a"].call_tool("say")
        assert leaving.cancelled_caught
        await trio.sleep(60)
        assert stream.closed
    assert server.cancelled == []
    assert caplog.text == ""


async def test_a_call_that_was_not_sent_is_not_cancelled_at_the_server() -> None:
    server = ScriptedWebServer("legacy", connects=False)
    async with open_servers(server.config) as servers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers["a"].call_tool, "say")
            await server.asked.wait()
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
    assert server.cancelled == []


async def test_a_group_is_left_while_a_response_closes_slowly(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is cancelled with the connection, and there is no connection left to say so."""
    notices = list[object]()
    monkeypatch.setattr(HttpSession, "notify_soon", lambda *args: notices.append(args))
    stream = Stream([b": nothing\n"], hangs=True, closes_slowly=True)
    server = ScriptedWebServer("legacy", script=lambda *_: events(stream))
    async with trio.open_nursery() as nursery, open_servers(server.config) as servers:
        nursery.start_soon(refused, servers["a"])
        await stream.read.wait()
    assert stream.closed
    assert notices == []


async def refused(ref: ServerRef) -> None:
    """Call a tool as its group is left."""
    with pytest.raises(ServerUnavailable):
        await ref.call_tool("say")


async def test_a_request_names_the_span_of_its_caller() -> None:
    server = WebServer("modern")
    async with open_servers(server.config) as servers:
        with trace.use_span(CALLER):
            assert text_of(await servers["a"].call_tool("say")) == "answered"
    [(_, message)] = server.calls
    assert "traceparent" in message["params"]["_meta"]


async def test_a_caller_that_leaves_as_a_message_arrives_cancels_its_call_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream([event(json.dumps(CHANGED))], hangs=True)
    server = ScriptedWebServer("legacy", script=lambda *_: events(stream))
    leaving = trio.CancelScope()

    def leave(data: bytes) -> JSONRPCMessage:
        envelope = serving.get()
        assert isinstance(envelope, Envelope)
        assert isinstance(envelope.scope, Slot)
        envelope.scope.cancel("its caller leaves in this step")
        leaving.cancel()
        return parse_message(data)

    async with open_servers(server.config) as servers:
        monkeypatch.setattr(_streamable, "parse_message", leave)
        with leaving:
            await servers["a"].call_tool("say")
        await wait_all_tasks_blocked()
        assert stream.closed
        assert server.cancelled == [server.calls[0][1]["id"]]


@define(slots=False)
class SlowHandshake(WebServer):
    """A server without tools that takes ``notifications/initialized`` only when it may; it notes what it has taken."""

    go: trio.Event = field(factory=trio.Event)
    taken: list[str] = field(factory=list)

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.take))

    async def take(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one HTTP request."""
        method = json.loads(request.content or b"{}").get("method", request.method)
        if method == "notifications/initialized":
            await self.go.wait()
        self.taken.append(method)
        return self.handle(request)

    def answer(self, message: Json) -> Json:
        if message["method"] == "resources/read":
            return {"result": {"contents": [{"uri": "test:it", "text": "read"}]}}
        answer = super().answer(message)
        if message["method"] == "initialize":
            answer["result"]["capabilities"] = {"resources": {}}
        return answer


async def test_no_request_overtakes_the_end_of_a_legacy_handshake() -> None:
    """The first request of such a connection is one of a caller, as there are no tools to list."""
    server = SlowHandshake("legacy")

    async def use() -> None:
        async with open_servers(server.config) as servers, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(servers["a"].read_resource, "test:it")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        await wait_all_tasks_blocked()
        assert "resources/read" not in server.taken
        server.go.set()
    assert [method for method in server.taken if "/" in method and "discover" not in method] == [
        "notifications/initialized",
        *["resources/read"] * 3,
    ]


async def test_a_message_that_cannot_be_written_as_json_fails_alone() -> None:
    """Only what an extension sends itself is not checked before."""
    params = {"half of a character": "\ud800"}
    async with open_link(WebServer("legacy").config, on_lost=never_lost) as link, open_session(link) as session:
        with pytest.raises(PydanticSerializationError):
            await link.send(JSONRPCNotification(jsonrpc="2.0", method="notifications/odd", params=params))
        with pytest.raises(PydanticSerializationError):
            await session.ask("odd", params)
        await wait_all_tasks_blocked()
        assert text_of(await session.call_tool("say")) == "answered"
