"""Sessions of the era before 2026-07-28."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio
from mcp.client import Client
from mcp.server.mcpserver import Context, MCPServer

from mcp_actors import ServerConfig, open_servers
from mcp_actors.gateway.http import _streamable

from ...servers.processes import eventually
from ...servers.test_asked_back import QUESTION, ServerRequests, modern
from ..hosts import BOUND, LEGACY, in_process, notes
from .doors import TOKEN, open_house, text_of
from .test_modern import Work

ECHO = {"name": "notes_echo", "arguments": {"text": "x"}}


async def test_a_session_has_everything_of_a_server_and_ends_by_delete() -> None:
    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        reply = await session.ask("tools/call", ECHO)
        assert reply.json == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {"content": [{"type": "text", "text": "x"}], **reply.json["result"]},
        }
        assert reply.headers["content-type"] == "application/json"
        assert (await session.ask("ping")).json["result"] == {}
        assert (await session.ask("nothing")).status == 200
        assert (await session.end()).status == 204
        for gone in (await session.ask("ping"), await session.end()):
            assert (gone.status, "begin a new one" in gone.text) == (404, True)
        assert not house.door.mcp.sessions


@pytest.mark.parametrize(
    ("headers", "message", "status"),
    [
        ({}, {"id": 1, "method": "tools/list"}, 400),
        ({"mcp-session-id": "none"}, {"id": 1, "method": "tools/list"}, 404),
        ({"mcp-protocol-version": "1999-01-01"}, {"id": 1, "method": "tools/list"}, 400),
        ({"mcp-protocol-version": LEGACY}, {"method": "notifications/initialized"}, 400),
        ({}, {"id": 1, "method": "initialize"}, 200),
    ],
)
async def test_a_request_without_a_session_is_refused(headers: dict[str, str], message: Any, status: int) -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.post({"jsonrpc": "2.0", **message}, headers)
        assert (await peer.read()).status == status
        assert not house.door.mcp.sessions


async def test_a_session_belongs_to_its_identity() -> None:
    """D-55: its id is unknown to another one."""
    async with open_house(in_process("notes", notes()), tokens={"ann": TOKEN, "bob": "token-of-bob-12345"}) as house:
        session = await house.begin(TOKEN)
        session.token = "token-of-bob-12345"
        assert (await session.ask("ping")).status == 404
        session.token = TOKEN
        assert (await session.ask("ping")).status == 200


async def test_sessions_expire_that_have_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(in_process("notes", notes())) as house:
        listening = await house.begin()
        stream = await listening.listen()
        idle = await house.begin()
        monkeypatch.setattr(_streamable, "SESSION_SECONDS", 0.0)
        await eventually(lambda: len(house.door.mcp.sessions) == 1)
        assert (await idle.ask("ping")).status == 404
        assert (await listening.ask("ping")).status == 200
        await trio.aclose_forcefully(stream.stream)


async def test_a_session_whose_client_has_left_a_question_unanswered_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(modern(ServerRequests(1, which=QUESTION))) as house:
        session = await house.begin(elicitation={})
        [name] = list(house.group)
        peer = await session.post({"id": 8, "method": "tools/call", "params": {"name": f"{name}_search"}})
        await peer.read_head()
        assert (await peer.read_event())["method"] == "elicitation/create"
        monkeypatch.setattr(_streamable, "SESSION_SECONDS", 0.0)
        house.door.mcp.expire(trio.current_time() + 1)
        assert len(house.door.mcp.sessions) == 1  # the client waits
        await trio.aclose_forcefully(peer.stream)
        await eventually(lambda: not house.door.mcp.sessions)


@pytest.mark.parametrize("method", [7, None, ["ping"]])
async def test_a_method_that_is_not_a_string_is_refused(method: Any) -> None:
    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        reply = await (await session.post({"id": 5, "method": method})).read()
        assert (reply.status, reply.json["id"], reply.json["error"]["code"]) == (200, 5, -32600)


async def test_what_belongs_to_no_request_comes_on_the_stream_of_a_get() -> None:
    async with open_house(in_process("notes", notes()), Work().config) as house:
        session = await house.begin()
        await session.ask("tools/list")
        await house.group.remove("work")
        stream = await session.listen()  # the change is kept until it is open
        kinds = {(await stream.read_event())["method"] for _ in range(3)}
        assert kinds == {f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
        newer = await session.listen()
        assert await stream.read_event() is None  # the newer one takes its place
        await house.group.add(Work().config)
        assert (await newer.read_event())["method"] == "notifications/tools/list_changed"
        await session.end()
        assert await newer.read_event() is None


async def test_progress_comes_on_the_reply_to_its_request() -> None:
    work = Work()
    async with open_house(work.config) as house:
        session = await house.begin()
        params = {"name": "work_report", "arguments": {}, "_meta": {"progressToken": 5}}
        peer = await session.post({"id": 9, "method": "tools/call", "params": params})
        assert (await peer.read_head()).headers["content-type"] == "text/event-stream"
        assert (await peer.read_event())["params"]["progressToken"] == 5
        work.gate.set()
        assert (await peer.read_event())["result"]["content"][0]["text"] == "done"
        assert await peer.read_event() is None


async def test_a_cancelled_request_is_answered_and_a_broken_one_goes_on() -> None:
    work = Work()
    async with open_house(work.config) as house:
        session = await house.begin()
        wait: dict[str, Any] = {"id": 3, "method": "tools/call", "params": {"name": "work_wait", "arguments": {}}}
        peer = await session.post(wait)
        with trio.fail_after(BOUND):
            await work.started.wait()
            await trio.aclose_forcefully(peer.stream)
            await eventually(lambda: len(house.door.connections) == 2)
            reply = await session.ask("tools/call", wait["params"], id=3)
            assert (reply.status, reply.json["error"]["code"]) == (400, -32600)
            assert not work.cancelled.is_set()
            peer = await session.post({**wait, "id": 4})
            await session.notify("notifications/cancelled", {"requestId": 3})
            await work.cancelled.wait()
            await session.notify("notifications/cancelled", {"requestId": 4})
            assert (await peer.read()).json["error"]["code"] == -32800


async def test_a_question_of_a_modern_server_is_asked_on_the_reply() -> None:
    requests = ServerRequests(1, which=QUESTION)
    async with open_house(modern(requests)) as house:
        session = await house.begin(elicitation={})
        [name] = list(house.group)
        peer = await session.post({"id": 8, "method": "tools/call", "params": {"name": f"{name}_search"}})
        await peer.read_head()
        question = await peer.read_event()
        assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Which one?")
        answer = {"id": question["id"], "result": {"action": "accept", "content": {}}}
        assert (await (await session.post(answer)).read()).status == 202
        assert (await peer.read_event())["result"]["content"][0]["text"] == "done"
        assert [each["which"].action for each in requests.answers] == ["accept"]


async def test_a_modern_client_gets_the_question_as_the_result() -> None:
    async with open_house(modern(ServerRequests(1, which=QUESTION))) as house:
        [name] = list(house.group)
        peer = await house.connect()
        params: dict[str, Any] = {"name": f"{name}_search"}
        meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        result = (await peer.ask("tools/call", params, meta=meta)).json["result"]
        assert result["resultType"] == "input_required"
        params |= {"requestState": result["requestState"], "inputResponses": {"which": {"action": "decline"}}}
        result = (await peer.ask("tools/call", params, meta=meta)).json["result"]
        assert result["content"][0]["text"] == "done"


def asking(gate: anyio.Event | None = None) -> MCPServer:
    server = MCPServer("asks")

    @server.tool()
    async def roots(ctx: Context) -> str:
        if gate is not None:
            await gate.wait()
        found = await ctx.session.list_roots()
        return ", ".join(str(each.uri) for each in found.roots)

    return server


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_server_of_the_session_may_ask_on_the_reply_of_the_call() -> None:
    config = in_process("asks", asking(), protocol="legacy", isolation="per-session")
    async with open_house(per_session=[config]) as house:
        session = await house.begin(roots={})
        peer = await session.post({"id": 8, "method": "tools/call", "params": {"name": "asks_roots", "arguments": {}}})
        await peer.read_head()
        question = await peer.read_event()
        assert question["method"] == "roots/list"
        roots = {"roots": [{"uri": "file:///home/ann"}]}
        await (await session.post({"id": question["id"], "result": roots})).read()
        assert (await peer.read_event())["result"]["content"][0]["text"] == "file:///home/ann"
        other = await house.connect()
        assert (await other.ask("tools/list")).json["result"]["tools"] == []  # alone, a request has no such server


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_question_is_asked_on_the_reply_to_a_call_of_the_server_that_asks() -> None:
    gate = anyio.Event()
    config = in_process("asks", asking(gate), protocol="legacy", isolation="per-session")
    work = Work()
    async with open_house(work.config, per_session=[config]) as house:
        session = await house.begin(roots={})
        await session.ask("tools/list")
        peer = await session.post({"id": 1, "method": "tools/call", "params": {"name": "asks_roots", "arguments": {}}})
        await session.post({"id": 2, "method": "tools/call", "params": {"name": "work_wait", "arguments": {}}})
        with trio.fail_after(BOUND):
            await work.started.wait()
        gate.set()
        await peer.read_head()
        question = await peer.read_event()
        assert question["method"] == "roots/list"
        await (await session.post({"id": question["id"], "result": {"roots": []}})).read()
        assert "result" in await peer.read_event()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_client_of_the_sdk_uses_it_like_any_server(mode: Any) -> None:
    async with open_house(in_process("notes", notes()), tokens={}) as house, Client(house.url, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["notes_echo"]
        result = await client.call_tool("notes_echo", {"text": "hi"})
        assert text_of(result) == "hi"


async def test_a_restarted_gateway_is_found_again_by_our_own_client() -> None:
    async with open_house(in_process("notes", notes())) as house:
        config = ServerConfig("all", house.transport(), protocol="legacy")
        async with open_servers(config) as servers:
            assert text_of(await servers["all"].call_tool("notes_echo", {"text": "1"})) == "1"
            for session in tuple(house.door.mcp.sessions.values()):
                del house.door.mcp.sessions[session.id]
                session.end()
            with trio.fail_after(BOUND):
                result = await servers["all"].call_tool("notes_echo", {"text": "2"}, idempotent=True)
            assert text_of(result) == "2"
