"""Requests of clients that know HTTP, that do not, and that want to harm."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest
import trio

from mcp_actors.gateway._budget import budget
from mcp_actors.gateway._calls import LARGE_TEXT, is_large
from mcp_actors.gateway._output import OUTPUT_BACKLOG
from mcp_actors.gateway._session import GatewaySession
from mcp_actors.gateway.http import _wire
from mcp_actors.gateway.http._door import Route
from mcp_actors.gateway.http._wire import MAX_HEAD, HttpConnection

from ...servers.hostile import MostInAStep
from ...servers.processes import eventually
from ..hosts import MODERN, in_process, notes
from .doors import JSON, META, TOKEN, open_house

AUTH = f"authorization: Bearer {TOKEN}\r\n"
KIND = "content-type: application/json\r\n"


def call_of(text: str, id: Any = 1, host: str = "localhost", more: str = "", version: str = "1.1") -> bytes:
    """Return the bytes of a call of 2026-07-28."""
    params = {"name": "notes_echo", "arguments": {"text": text}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/{version}\r\nhost: {host}\r\n{AUTH}content-type: application/json\r\n"
        f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {MODERN}\r\n"
        f"mcp-method: tools/call\r\nmcp-name: notes_echo\r\n{more}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body


def text_of(reply: Any) -> str:
    return str(reply.json["result"]["content"][0]["text"])


async def test_requests_on_one_connection_are_answered_one_after_the_other() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        assert [await peer.call("notes_echo", text=f"{each}") for each in range(5)] == ["0", "1", "2", "3", "4"]
        assert len(house.door.connections) == 1


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.write(b"".join(call_of(f"{each}", each) for each in range(20)))
        assert [text_of(await peer.read()) for _ in range(20)] == [str(each) for each in range(20)]


async def test_empty_lines_before_a_request_are_left_out() -> None:
    probe = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.write(b"\r\n" + probe + b"\r\n" * 50_000 + probe)
        assert [(await peer.read()).status for _ in range(2)] == [200, 200]


async def test_other_tasks_run_between_pipelined_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        with MostInAStep(monkeypatch, (HttpConnection, "_take_request")) as steps:
            await peer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 50)
            assert [(await peer.read()).status for _ in range(50)] == [200] * 50
        assert steps.most == {"_take_request": 1}


async def test_other_tasks_run_between_the_chunks_of_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    head = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{AUTH}{KIND}transfer-encoding: chunked\r\n\r\n"
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        with MostInAStep(monkeypatch, (HttpConnection, "_append")) as steps:
            await peer.write(head.encode() + b"1\r\n \r\n" * 100 + b"0\r\n\r\n")
            assert (await peer.read()).status == 400
        assert steps.most == {"_append": 1}


async def test_other_tasks_run_between_connections_on_which_requests_have_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_house(in_process("notes", notes())) as house:
        peers = [await house.connect() for _ in range(10)]
        for peer in peers:
            assert (await peer.fetch("GET", "/healthz")).status == 200
        with MostInAStep(monkeypatch, (HttpConnection, "take_ready")) as steps:
            for peer in peers:  # in one step
                os.write(peer.stream.socket.fileno(), b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert [(await peer.read()).status for peer in peers] == [200] * 10
        assert steps.most == {"take_ready": 1}


async def test_a_request_may_arrive_byte_by_byte() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        for each in call_of("slow"):
            await peer.write(bytes([each]))
        assert text_of(await peer.read()) == "slow"


async def test_a_body_may_come_in_chunks_and_after_leave() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        head, _, body = call_of("chunks").partition(b"\r\n\r\n")
        head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"content-length"))
        await peer.write(head + b"\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n")
        assert (await peer.read_head()).status == 100
        half = len(body) // 2
        await peer.write(b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (half, body[:half], len(body) - half, body[half:]))
        assert text_of(await peer.read()) == "chunks"
        assert await peer.call("notes_echo", text="next") == "next"


async def test_a_client_that_asks_for_leave_and_has_no_token_gets_none() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.send("POST", "/mcp", {**JSON, "expect": "100-continue", "content-length": "1000"}, token=None)
        assert (await peer.read()).status == 401
        assert await peer.wait_closed() == b""


async def test_an_old_client_gets_its_reply_and_then_the_end() -> None:
    """HTTP 1.0 keeps no connection open, and ``Connection: close`` asks for the same."""
    async with open_house(in_process("notes", notes())) as house:
        for request in (call_of("bye", version="1.0"), call_of("bye", more="connection: close\r\n")):
            peer = await house.connect()
            await peer.write(request)
            reply = await peer.read()
            assert (text_of(reply), reply.headers["connection"]) == ("bye", "close")
            assert await peer.wait_closed() == b""


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (b"nonsense\r\n\r\n", 400, "not valid HTTP"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n", 400, "Content-Length"),
        (
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            400,
            "Content-Length",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "send one of them",
        ),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n", 501, "chunked"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n", 411, "Content-Length"),
        (b"GET / HTTP/1.1\nhost: localhost\n\nGET /status HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "CR LF"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: a\n\r\n\r\n", 400, "CR LF"),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n\r\n", 413, "4096 bytes"),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", 411, "Content-Length"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nexpect: magic\r\ncontent-length: 1\r\n\r\nx", 417, "100-continue"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * MAX_HEAD + b"\r\n\r\n", 431, f"{MAX_HEAD} bytes"),
        (b"x" * (MAX_HEAD + 1), 431, f"{MAX_HEAD} bytes"),
        (
            f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{AUTH}{KIND}content-length: 99999999\r\n\r\n".encode(),
            413,
            "send less",
        ),
        (
            f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{AUTH}{KIND}transfer-encoding: chunked\r\n\r\nzz\r\n".encode(),
            400,
            "body is not valid",
        ),
    ],
)
async def test_a_request_that_cannot_be_read_gets_a_sentence_and_the_end(
    request_: bytes, status: int, words: str
) -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.write(request_)
        reply = await peer.read()
        assert (reply.status, reply.headers["connection"]) == (status, "close")
        assert words in reply.text
        assert await peer.wait_closed() == b""


async def test_a_body_of_just_the_size_that_a_path_allows_is_read() -> None:
    async with open_house(in_process("notes", notes())) as house:
        most = house.door.routes["/healthz"].most
        for size, status in ((most, 200), (most + 1, 413)):
            peer = await house.connect()
            await peer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (size, b"x" * size))
            assert (await peer.read()).status == status


async def test_a_header_that_the_sdk_cannot_decode_ends_nothing() -> None:
    """`classify_inbound_request` raises `ValueError` for base64 that is not ASCII."""
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.write(call_of("x").replace(b"mcp-name: notes_echo", b"mcp-name: =?base64?\xe9?="))
        reply = await peer.read()
        assert (reply.status, "base64" in reply.json["error"]["message"]) == (400, True)
        assert await (await house.connect()).call("notes_echo", text="on") == "on"


async def test_a_defect_ends_the_connection_that_meets_it_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_house(in_process("notes", notes())) as house:
        other = await house.connect()
        assert await other.call("notes_echo", text="before") == "before"

        def fail(*_: object) -> None:
            raise RuntimeError("defect")

        house.door.routes["/fails"] = Route(("GET",), fail)
        peer = await house.connect()
        await peer.send("GET", "/fails")
        assert await peer.wait_closed() == b""
        assert await other.call("notes_echo", text="after") == "after"
    assert caplog.text.count("is disconnected: a defect of the gateway") == 1
    caplog.clear()


async def test_what_is_pipelined_behind_the_last_request_of_a_connection_is_not_begun() -> None:
    begun: list[str] = []
    server, answered = notes(), trio.Event()

    @server.tool()
    async def wait(text: str) -> str:
        begun.append(text)
        await answered.wait()
        return text

    async with open_house(in_process("notes", server)) as house:
        peer = await house.connect()
        first = call_of("last", more="connection: close\r\n").replace(b"notes_echo", b"notes_wait")
        second = call_of("behind").replace(b"notes_echo", b"notes_wait")
        await peer.write(first)
        await eventually(lambda: begun == ["last"])
        await peer.write(second)
        [connection] = house.door.connections
        await eventually(lambda: connection._buffer == second)
        answered.set()
        assert text_of(await peer.read()) == "last"
        assert await peer.wait_closed() == b""
        await eventually(lambda: not house.door.connections)
    assert begun == ["last"]


async def test_a_body_with_too_many_values_is_refused_while_it_arrives() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        body = b"[" + b"1," * 300_000 + b"1]"
        await peer.send("POST", "/mcp", JSON, body)
        reply = await peer.read()
        assert (reply.status, "250000 values" in reply.text) == (413, True)


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/elsewhere", 404, "/mcp"),
        ("PUT", "/mcp", 405, "use POST, GET, DELETE"),
        ("POST", "/status", 405, "use GET, HEAD"),
        ("GET", "http://localhost/status?x=1", 200, '"ready"'),
    ],
)
async def test_a_path_and_a_method_that_are_not_there_are_refused(
    method: str, path: str, status: int, words: str
) -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        reply = await peer.fetch(method, path, body=b"" if method == "POST" else None)
        assert (reply.status, words in reply.text) == (status, True)
        assert await peer.call("notes_echo", text="go on") == "go on"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"accept": "application/json"}, 406),
        ({"accept": "text/event-stream"}, 406),
        ({"accept": "application/*, text/*;q=0.5"}, 200),
        ({"accept": "*/*"}, 200),
        ({"content-type": "application/json; charset=utf-8"}, 200),
    ],
)
async def test_the_kinds_of_bodies_must_fit(headers: dict[str, str], status: int) -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        reply = await peer.ask("tools/call", {"name": "notes_echo", "arguments": {"text": "x"}}, headers)
        assert reply.status == status


async def test_what_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head, a body and an idle connection; the others go on."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(_wire, name, 0.1)
    async with open_house(in_process("notes", notes())) as house:
        head, body, idle = [await house.connect() for _ in range(3)]
        await head.write(b"POST /mcp HTTP/1.1\r\n")
        await body.write(call_of("half")[:-5])
        for peer in (head, body):
            reply = await peer.read()
            assert (reply.status, reply.headers["connection"]) == (408, "close")
            assert await peer.wait_closed() == b""
        assert await idle.wait_closed() == b""
        assert await (await house.connect()).call("notes_echo", text="fine") == "fine"


async def test_a_large_result_is_sent_as_a_whole() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.write(call_of("x" * 15_000_000))  # and the result has it twice
        assert len(text_of(await peer.read())) == 15_000_000
        assert await peer.call("notes_echo", text="next") == "next"


async def test_a_large_result_is_written_in_another_step_than_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either takes milliseconds for each megabyte."""
    writers: list[str] = []
    answer = GatewaySession.answer

    def note(session: GatewaySession, *args: Any) -> None:
        writers.append(trio.lowlevel.current_task().name.rpartition(".")[2])
        answer(session, *args)

    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        monkeypatch.setattr(GatewaySession, "answer", note)
        for size in (LARGE_TEXT, LARGE_TEXT + 1):
            await peer.write(call_of('"' * size))
            assert text_of(await peer.read()) == '"' * size
        monkeypatch.undo()
    reader, writer = writers
    assert reader != "_finish"
    assert writer == "_finish"


@pytest.mark.parametrize(
    ("result", "large"),
    [
        ({"content": [{"type": "text", "text": "x" * LARGE_TEXT}]}, False),
        ({"content": [{"type": "image"}, {"type": "text", "text": "x" * (LARGE_TEXT + 1)}]}, True),
        ({"contents": [{"uri": "note:///x", "text": "x" * (LARGE_TEXT + 1)}]}, True),
        ({"contents": [{"uri": "note:///x", "blob": "x" * (LARGE_TEXT + 1)}]}, True),
        ({"content": [{"type": "image", "data": "x" * (LARGE_TEXT + 1)}]}, True),
        ({"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "x" * (LARGE_TEXT + 1)}}]}, True),
        *(
            ({"content": odd}, False)
            for odd in (None, 5, "text", {"text": "x"}, [5, None, {"text": 5}, {"text": None}])
        ),
    ],
)
def test_whether_a_result_is_large_can_be_said_of_any_json(result: Any, large: bool) -> None:
    assert is_large(result) == large


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async with open_house(in_process("notes", notes())) as house, trio.open_nursery() as nursery:
        peer, other, number = await house.connect(), await house.connect(), 80
        peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        nursery.start_soon(peer.write, b"".join(call_of("x" * 100_000, each) for each in range(number)))
        await eventually(lambda: budget().waiting > OUTPUT_BACKLOG)
        for _ in range(20):
            assert await other.call("notes_echo", text="fine") == "fine"
        assert budget().waiting < 2 * OUTPUT_BACKLOG
        assert [len(text_of(await peer.read())) for _ in range(number)] == [100_000] * number


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "READ_SECONDS", 0.1)
    async with open_house(in_process("notes", notes())) as house:
        slow, other = await house.connect(), await house.connect()
        slow.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await slow.write(call_of("x" * 8_000_000))
        assert await other.call("notes_echo", text="meanwhile") == "meanwhile"
        await eventually(lambda: len(house.door.connections) == 1)
        assert await other.call("notes_echo", text="after") == "after"
