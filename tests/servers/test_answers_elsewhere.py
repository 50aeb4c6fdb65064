"""Answers over streamable HTTP that come in another stream than that of their request."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
from mcp import MCPError

from mcp_actors import ConnectionLost, Http, LimitExceeded, ServerConfig, ServerRef, open_servers

from .faults.http_faults import End, FaultyServer, Raw, Request, answer, response, stream
from .fleet import PROMPT, calls
from .groups import NEVER
from .links import text_of
from .processes import eventually

pytestmark = pytest.mark.own_way

ENDS = "id: 1\nretry: {}\ndata:\n\n"
"""An event without a message; the stream may be resumed after it."""

SOON = 0
NEVER_IN_THIS_TEST = 60_000


class TwoStreams(FaultyServer):
    """A legacy server that keeps a stream of notifications open.

    Attributes:
        resumed: what it sends to a request that resumes the stream of a call; None refuses it.
        answers_elsewhere: whether it answers the call in the stream of notifications after it has refused that.
    """

    def __init__(self) -> None:
        super().__init__("legacy")
        self.resumed: Raw | None = None
        self.answers_elsewhere = False
        self.listening = threading.Event()

    def _answer(self, connection: socket.socket, request: Request) -> End:
        if request.method != "GET":
            return super()._answer(connection, request)
        if "last-event-id" in request.headers:
            self.scripts["GET"] = self.resumed or Raw(response(405), "keep")
            end = super()._answer(connection, request)
            if self.answers_elsewhere:
                self.send_answer()
            return end
        self._events = connection
        self.listening.set()
        return self._send(connection, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")

    def resumptions(self) -> int:
        """How often a stream of a call was requested again."""
        return sum("last-event-id" in request.headers for request in self.requests)

    def call_id(self) -> object:
        """The id of the last call."""
        calls = [each.message["id"] for each in self.requests if each.message.get("method") == "tools/call"]
        return calls[-1]

    def send_answer(self, text: str = "elsewhere", **error: Any) -> None:
        """Answer the last call in the stream of notifications."""
        number = self.call_id()
        if error:
            self.emit(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))
        else:
            self.emit(answer(text).replace("{id______}", json.dumps(number)))


@contextmanager
def two_streams() -> Iterator[TwoStreams]:
    """Run such a server."""
    server = TwoStreams()
    try:
        yield server
    finally:
        server.close()


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[TwoStreams, ServerRef]]:
    """Connect to such a server, which must stay connected; its stream of notifications is open.

    The options are those of `Http`.
    """
    with two_streams() as server:
        config = ServerConfig(
            "web", Http(server.url(), **options), protocol="legacy", restarts=NEVER, request_timeout=None
        )
        async with open_servers(config) as servers:
            await eventually(server.listening.is_set)
            yield server, servers["web"]
            assert (servers["web"].state, servers["web"].statistics().incarnation) == ("ready", 1)
            assert text_of(await servers["web"].call_tool("sleep")) == "slept None"


BEGUN = {
    "nothing": Raw("", "keep"),
    "a part of a body": Raw(response(200, answer())[:-9], "keep"),
    "an open stream": Raw(stream(": nothing\n\n"), "keep"),
    "an open stream with an id": Raw(stream(ENDS.format(SOON)), "keep"),
    "a stream that has ended": Raw(stream(ENDS.format(NEVER_IN_THIS_TEST))),
}
"""The beginnings of the response to the call when its answer comes elsewhere."""


@pytest.mark.parametrize("begun", BEGUN)
async def test_an_answer_in_the_stream_of_notifications_ends_the_wait_for_the_response(begun: str) -> None:
    async with connected() as (server, ref):
        with trio.fail_after(PROMPT):
            async with calls(1, ref.call_tool, "raw", BEGUN[begun]._asdict()) as [asking]:
                await eventually(lambda: "tools/call" in server.methods())
                await trio.testing.wait_all_tasks_blocked(0.05)
                server.send_answer()
        assert text_of(await asking.result()) == "elsewhere"
        assert server.resumptions() == 0
        assert "notifications/cancelled" not in server.methods()


async def test_an_error_in_the_stream_of_notifications_is_that_of_the_call() -> None:
    async with connected() as (server, ref):
        with trio.fail_after(PROMPT):
            async with calls(1, ref.call_tool, "raw", BEGUN["nothing"]._asdict()) as [asking]:
                await eventually(lambda: "tools/call" in server.methods())
                server.send_answer(code=-32602, message="no such path")
        with pytest.raises(MCPError, match="no such path"):
            await asking.result()


async def test_an_unreadable_answer_in_the_stream_of_notifications_fails_its_call() -> None:
    """B-12: it is nested too deeply to be parsed, and its caller does not wait for ever."""
    async with connected() as (server, ref):
        with trio.fail_after(PROMPT):
            async with calls(1, ref.call_tool, "raw", BEGUN["nothing"]._asdict()) as [asking]:
                await eventually(lambda: "tools/call" in server.methods())
                number = server.call_id()
                deep = "[" * 100_000 + "]" * 100_000
                server.emit(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": {deep}}}}}')
        with pytest.raises(ConnectionLost, match="nested too deeply"):
            await asking.result()


@pytest.mark.parametrize("first", ["id", "result"])
async def test_an_answer_over_the_limit_in_the_stream_of_notifications_fails_its_call(first: str) -> None:
    """B-12: wherever it has its id."""
    async with connected(max_body_bytes=100_000) as (server, ref):
        with trio.fail_after(PROMPT):
            async with calls(1, ref.call_tool, "raw", BEGUN["nothing"]._asdict()) as [asking]:
                await eventually(lambda: "tools/call" in server.methods())
                members = {"id": server.call_id(), "result": {"content": [{"type": "text", "text": "x" * 200_000}]}}
                order = ("jsonrpc", first, *(members.keys() - {first}))
                server.emit(json.dumps({name: {"jsonrpc": "2.0", **members}[name] for name in order}))
        with pytest.raises(LimitExceeded, match="max_body_bytes"):
            await asking.result()


@pytest.mark.parametrize("retry", [SOON, 1])
async def test_an_answer_in_a_resumed_stream_needs_no_stream_of_notifications(retry: int) -> None:
    """The id of the last event is sent back, and ``retry: 0`` does not mean without a pause."""
    async with connected() as (server, ref):
        server.resumed = Raw(stream(f"data: {answer('resumed')}\n\n"))
        with trio.fail_after(PROMPT):
            assert text_of(await ref.call_tool("raw", Raw(stream(ENDS.format(retry)))._asdict())) == "resumed"
        assert server.resumptions() == 1


async def test_a_resumption_that_is_refused_twice_fails_the_call() -> None:
    async with connected() as (server, ref):
        ended = "the event stream ended before the response"
        with pytest.raises(ConnectionLost, match=ended) as caught, trio.fail_after(PROMPT):
            await ref.call_tool("raw", Raw(stream(ENDS.format(SOON)))._asdict())
        assert caught.value.outcome == "unknown"
        assert server.resumptions() == 2


async def test_the_answer_may_come_right_after_the_resumption_was_refused() -> None:
    """The two streams have no order."""
    async with connected() as (server, ref):
        server.answers_elsewhere = True
        with trio.fail_after(PROMPT):
            for _ in range(10):
                assert text_of(await ref.call_tool("raw", Raw(stream(ENDS.format(SOON)))._asdict())) == "elsewhere"


async def test_a_second_answer_is_dropped_wherever_it_comes() -> None:
    """C-02: it reaches neither its caller nor another one."""
    async with connected() as (server, ref):
        for _ in range(3):
            assert text_of(await ref.call_tool("sleep")) == "slept None"
            server.send_answer()
        assert text_of(await ref.call_tool("raw", Raw(response(200, answer()), "keep")._asdict())) == "fine"


async def test_a_stream_that_goes_on_after_an_answer_elsewhere_is_closed() -> None:
    async with connected() as (server, ref):
        before = server.connections
        with trio.fail_after(PROMPT):
            async with calls(1, ref.call_tool, "raw", BEGUN["an open stream"]._asdict()) as [asking]:
                await eventually(lambda: "tools/call" in server.methods())
                server.send_answer()
        assert text_of(await asking.result()) == "elsewhere"
        await eventually(lambda: server.connections <= before)
