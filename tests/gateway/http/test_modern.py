"""Requests of 2026-07-28: each is alone."""

from __future__ import annotations

import json
import socket
import warnings
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import INVALID_PARAMS

from mcp_actors import ServerConfig, open_servers
from mcp_actors.gateway.http import _wire

from ...servers.processes import eventually
from ..hosts import BOUND, MODERN, in_process, notes
from .doors import META, TOKEN, open_house, text_of

ECHO = {"name": "notes_echo", "arguments": {"text": "x"}}


async def test_everything_of_a_server_is_there_without_a_session() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        discovered = (await peer.ask("server/discover")).json["result"]
        assert discovered["supportedVersions"] == [MODERN]
        [tool] = (await peer.ask("tools/list")).json["result"]["tools"]
        assert tool["name"] == "notes_echo"
        assert (await peer.ask("resources/read", {"uri": "note:///shopping"})).json["result"]["contents"][0][
            "text"
        ] == "milk"
        got = await peer.ask("prompts/get", {"name": "notes_plan", "arguments": {"meal": "tea"}})
        assert got.json["result"]["messages"][0]["content"]["text"] == "Plan tea."
        assert "mcp-session-id" not in got.headers
        assert not house.door.mcp.sessions


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-protocol-version": "2025-11-26"}, -32020),
        ({"mcp-method": "tools/list"}, -32020),
        ({"mcp-name": "notes_other"}, -32020),
        ({"mcp-name": "=?base64?bm90ZXNfZWNobw=="}, -32020),
        ({"mcp-name": "=?base64?bm90ZXNfZWNobw==?="}, 0),
        ({"Mcp-Name": "notes_echo"}, -32020),  # twice
    ],
)
async def test_headers_that_contradict_the_body_are_refused(headers: dict[str, str], code: int) -> None:
    async with open_house(in_process("notes", notes())) as house:
        reply = await (await house.connect()).ask("tools/call", ECHO, headers)
        if code:
            assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (400, code, 1)
        else:
            assert reply.json["result"]["content"][0]["text"] == "x"


@pytest.mark.parametrize("missing", ["mcp-protocol-version", "mcp-method", "mcp-name"])
async def test_a_header_that_is_missing_is_refused(missing: str) -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        given = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "notes_echo"}
        del given[missing]
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {**ECHO, "_meta": META}}
        await peer.post(message, given)
        reply = await peer.read()
        assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (400, -32020, 7)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b"3", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32602),
    ],
)
async def test_a_body_that_is_not_a_request_is_refused(body: bytes, code: int) -> None:
    async with open_house(in_process("notes", notes())) as house:
        headers = {"mcp-protocol-version": MODERN, "content-type": "application/json"}
        reply = await (await house.connect()).fetch("POST", "/mcp", headers, body)
        assert (reply.status, reply.json["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("tools/unknown", {}, 404, -32601),
        ("tools/call", {"name": "notes_nothing"}, 400, -32602),
        ("tools/list", {"cursor": "x"}, 400, -32602),
        ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}, 404, -32601),
        ("ping", {}, 404, -32601),
    ],
)
async def test_an_error_has_the_status_that_the_specification_wants(
    method: str, params: Mapping[str, Any], status: int, code: int
) -> None:
    async with open_house(in_process("notes", notes())) as house:
        reply = await (await house.connect()).ask(method, params)
        assert (reply.status, reply.json["error"]["code"]) == (status, code)


async def test_notifications_are_accepted_and_there_is_no_stream_and_no_session() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.post({"jsonrpc": "2.0", "method": "notifications/x"}, {"mcp-protocol-version": MODERN})
        assert ((reply := await peer.read()).status, reply.body) == (202, b"")
        for method in ("GET", "DELETE"):
            reply = await peer.fetch(method, "/mcp", {"mcp-protocol-version": MODERN})
            assert (reply.status, reply.headers["allow"]) == (405, "POST")


class Work:
    """A server with slow tools in this process, and what becomes of them."""

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.started = anyio.Event()
        self.cancelled = anyio.Event()
        self.config = in_process("work", worker(self))


def worker(work: Work) -> MCPServer:
    server = MCPServer("work")

    @server.tool()
    async def wait() -> str:
        work.started.set()
        try:
            await work.gate.wait()
        except anyio.get_cancelled_exc_class():
            work.cancelled.set()
            raise
        return "waited"

    @server.tool()
    async def report(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await work.gate.wait()
        return "done"

    @server.tool()
    async def tell(ctx: Context) -> str:
        with warnings.catch_warnings(action="ignore"):  # of what is deprecated
            await ctx.info("told")
        return "done"

    return server


async def test_a_call_is_a_stream_if_there_is_something_to_say_before_the_result() -> None:
    work = Work()
    async with open_house(work.config) as house:
        peer = await house.connect()
        await peer.post_modern(
            "tools/call", {"name": "work_report", "arguments": {}}, id="p", meta={"progressToken": "t"}
        )
        head = await peer.read_head()
        assert (head.headers["content-type"], head.headers["x-accel-buffering"]) == ("text/event-stream", "no")
        progress = await peer.read_event()
        assert progress["params"] == {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}
        work.gate.set()
        result = await peer.read_event()
        assert (result["id"], result["result"]["content"][0]["text"]) == ("p", "done")
        assert await peer.read_event() is None
        assert (await peer.ask("server/discover")).status == 200  # on the same connection


async def test_closing_the_connection_cancels_the_call() -> None:
    work = Work()
    async with open_house(work.config) as house:
        peer = await house.connect()
        await peer.post_modern("tools/call", {"name": "work_wait", "arguments": {}})
        with trio.fail_after(BOUND):
            await work.started.wait()
            await trio.aclose_forcefully(peer.stream)
            await work.cancelled.wait()
        assert not house.door.connections


async def test_a_request_whose_client_has_left_is_not_begun() -> None:
    """The end of the connection is there before the request is read, and behind bytes that are not read."""
    calls: list[str] = []
    server = MCPServer("ledger")

    @server.tool()
    def note(text: str) -> str:
        calls.append(text)
        return text

    async with open_house(in_process("ledger", server)) as house:
        peer = await house.connect()
        await peer.call("ledger_note", text="first")
        # Nothing runs between these writes and the end, so the gateway sees all of it at once.
        with socket.create_connection(house.address) as gone:
            for text in ("one", "two"):
                params = {"name": "ledger_note", "arguments": {"text": text}, "_meta": META}
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
                head = (
                    f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
                    f"content-type: application/json\r\nmcp-protocol-version: {MODERN}\r\nmcp-method: tools/call\r\n"
                    f"mcp-name: ledger_note\r\ncontent-length: {len(body)}\r\n\r\n"
                )
                gone.send(head.encode() + body)
        for _ in range(10):  # so that it is accepted and read meanwhile
            await peer.call("ledger_note", text="last")
        await eventually(lambda: len(house.door.connections) == 1)
        assert {*calls} == {"first", "last"}


async def test_a_quiet_call_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "REPLY_HEARTBEAT", 0.01)
    work = Work()
    async with open_house(work.config) as house:
        peer = await house.connect()
        await peer.post_modern("tools/call", {"name": "work_wait", "arguments": {}})
        assert (await peer.read_head()).headers["content-type"] == "text/event-stream"
        assert await peer.read_chunk() == b": in progress\n\n"
        work.gate.set()
        assert (await peer.read_event())["result"]["content"][0]["text"] == "waited"


@pytest.mark.parametrize(("level", "heard"), [(None, False), ("info", True), ("error", False)])
async def test_a_request_says_which_log_messages_it_wants(level: str | None, heard: bool) -> None:
    async with open_house(Work().config) as house:
        peer = await house.connect()
        meta = {} if level is None else {"io.modelcontextprotocol/logLevel": level}
        reply = await peer.ask("tools/call", {"name": "work_tell", "arguments": {}}, meta=meta)
        assert (reply.headers["content-type"] == "text/event-stream", b"told" in reply.body) == (heard, heard)


async def test_a_stream_of_notifications_lasts_until_it_is_closed() -> None:
    async with open_house(in_process("notes", notes()), Work().config) as house:
        peer, other = await house.connect(), await house.connect()
        assert len((await other.ask("tools/list")).json["result"]["tools"]) == 4
        await peer.post_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="s")
        await peer.read_head()
        acknowledged = await peer.read_event()
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        await house.group.remove("work")
        changed = await peer.read_event()
        assert changed["method"] == "notifications/tools/list_changed"
        assert changed["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "s"}
        assert await other.call("notes_echo", text="x") == "x"
        await trio.aclose_forcefully(peer.stream)
        await eventually(lambda: len(house.door.connections) == 1)
        assert not house.door.mcp.gateways["me"].sessions


@pytest.mark.parametrize("uris", [5, True, "note:///shopping", {"a": 1}])
async def test_a_wish_for_resources_that_is_not_an_array_is_refused(uris: Any) -> None:
    async with open_house(in_process("notes", notes())) as house:
        reply = await (await house.connect()).ask(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
        )
        assert reply.json["error"]["code"] == INVALID_PARAMS


async def test_arguments_that_are_in_headers_are_compared() -> None:
    schema = {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "size": {"type": "integer"}},
    }
    server = MCPServer("sql")

    @server.tool()
    def run(region: str = "", size: int = 0) -> str:
        return region

    server._tool_manager._tools["run"].parameters = schema
    async with open_house(in_process("sql", server)) as house:
        peer = await house.connect()
        [tool] = (await peer.ask("tools/list")).json["result"]["tools"]
        assert tool["inputSchema"]["properties"]["region"]["x-mcp-header"] == "Region"
        params = {"name": "sql_run", "arguments": {"region": "west"}}
        assert (await peer.ask("tools/call", params, {"mcp-param-region": "west"})).status == 200
        for headers in ({}, {"mcp-param-region": "east"}, {"mcp-param-region": "west", "Mcp-Param-Region": "west"}):
            reply = await peer.ask("tools/call", params, headers)
            assert (reply.status, reply.json["error"]["code"]) == (400, -32020)
        reply = await peer.ask("tools/call", {"name": "sql_run", "arguments": {}}, {"mcp-param-region": "west"})
        assert (reply.status, reply.json["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("protocol", ["auto", "legacy", "2026-07-28"])
async def test_our_own_client_uses_it_like_any_server(protocol: Any) -> None:
    async with open_house(in_process("notes", notes())) as house:
        async with open_servers(ServerConfig("all", house.transport(), protocol=protocol)) as servers:
            assert [tool.name for tool in servers.tools] == ["notes_echo"]
            assert text_of(await servers["all"].call_tool("notes_echo", {"text": "hi"})) == "hi"
        assert not house.door.mcp.sessions
