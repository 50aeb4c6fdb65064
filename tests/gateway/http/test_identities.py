"""Two users of one gateway: what belongs to one never reaches the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import ServerConfig, Stdio

from ...forkserver import interpreter
from ..hosts import BOUND, LEGACY, in_process, notes
from .doors import House, Peer, open_house
from .test_modern import Work

TOKENS = {"ann": "a-token-of-ann-0001", "bob": "a-token-of-bob-0001"}

LOUD = {"io.modelcontextprotocol/logLevel": "debug"}


PROGRAM: Final = """
from mcp.server.mcpserver import Context, MCPServer

server, kept = MCPServer("own"), []

@server.tool()
async def keep(text: str, ctx: Context) -> str:
    await ctx.info(text)
    kept.append(text)
    return ", ".join(kept)

@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(lambda: "more", name="more")
    await ctx.session.send_tool_list_changed()
    return "grown"

server.run()
"""
"""A server with a state and a log of its own."""


def own(folder: Path, **options: Any) -> ServerConfig:
    program = folder / "own.py"
    program.write_text(PROGRAM)
    return ServerConfig("own", Stdio(interpreter(), (str(program),)), protocol="legacy", **options)


async def ask(house: House, user: str, tool: str, **arguments: str) -> str:
    """Call a tool as a user who wants all log messages; return the whole reply."""
    peer = await house.connect()
    reply = await peer.ask("tools/call", {"name": tool, "arguments": arguments}, meta=LOUD, token=TOKENS[user])
    return reply.text


@pytest.mark.usefixtures("programs_in_forks")
async def test_a_server_per_identity_is_another_one_for_each(tmp_path: Path) -> None:
    config = own(tmp_path, isolation="per-identity")
    async with open_house(in_process("notes", notes()), tokens=TOKENS, per_identity=[config]) as house:
        assert "a secret of ann" in await ask(house, "ann", "own_keep", text="a secret of ann")
        for _ in range(2):
            assert "ann" not in await ask(house, "bob", "own_keep", text="of bob")
        assert "a secret of ann, more" in await ask(house, "ann", "own_keep", text="more")
        for user, token in TOKENS.items():
            peer = await house.connect()
            servers = (await peer.fetch("GET", "/status", token=token)).json["servers"]
            assert servers.keys() == {"notes", "own"}, user


@pytest.mark.usefixtures("programs_in_forks")
async def test_log_messages_of_a_shared_server_reach_no_user_of_several(tmp_path: Path) -> None:
    for tokens, heard in ((TOKENS, False), ({"ann": TOKENS["ann"]}, True)):
        async with open_house(own(tmp_path), tokens=tokens) as house:
            reply = await ask(house, "ann", "own_keep", text="hush")
            assert ("notifications/message" in reply) is heard


@pytest.mark.usefixtures("programs_in_forks")
async def test_a_change_of_an_own_server_reaches_its_user_only(tmp_path: Path) -> None:
    async with open_house(tokens=TOKENS, per_identity=[own(tmp_path, isolation="per-identity")]) as house:
        streams: dict[str, Peer] = {}
        for user, token in TOKENS.items():
            peer = streams[user] = await house.connect()
            await (await house.connect()).ask("tools/list", token=token)
            await peer.post_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, token=token)
            await peer.read_head()
            assert (await peer.read_event())["method"] == "notifications/subscriptions/acknowledged"
        await ask(house, "ann", "own_grow")
        assert (await streams["ann"].read_event())["method"] == "notifications/tools/list_changed"
        with trio.move_on_after(0.2) as waited:
            await streams["bob"].stream.receive_some()
        assert waited.cancelled_caught


class Noted:
    """A server that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.server = MCPServer("own")

        @self.server.tool()
        def note(text: str) -> str:
            self.calls.append(text)
            return text


async def test_after_a_long_gap_a_call_that_may_be_given_up_is_not_sent() -> None:
    """The clock of the gateway jumps as if the process had been stopped, between a request and its reading."""
    noted = Noted()
    async with open_house(in_process("own", noted.server, request_timeout=30.0)) as house:
        peer = await house.connect()
        await peer.call("own_note", text="before")
        for seconds, sent in ((29.0, True), (31.0, False)):
            house.door.heart.now -= seconds
            reply = await peer.ask("tools/call", {"name": "own_note", "arguments": {"text": f"{seconds}"}})
            assert ("result" in reply.json) is sent
            if not sent:
                assert reply.json["error"]["data"]["mcp_actors"]["outcome"] == "not_sent"
        await peer.call("own_note", text="after")
        assert noted.calls == ["before", "29.0", "after"]


@pytest.mark.parametrize("isolation", ["shared", "per-session"])
async def test_after_a_long_gap_a_call_of_a_session_is_not_sent_either(isolation: Any) -> None:
    noted = Noted()
    config = in_process("own", noted.server, request_timeout=30.0, isolation=isolation)
    shared, own = ([config], []) if isolation == "shared" else ([], [config])
    async with open_house(*shared, per_session=own) as house:
        session, peer = await house.begin(), await house.connect()

        async def ask(method: str, params: Any, headers: Any = session.headers, **members: Any) -> Any:
            await peer.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **members}, headers)
            return (await peer.read()).json

        def call(text: str) -> Any:
            return ask("tools/call", {"name": "own_note", "arguments": {"text": text}})

        assert "result" in await call("before")
        for seconds, sent in ((29.0, True), (31.0, False)):
            house.door.heart.now -= seconds
            assert ("result" in await call(f"{seconds}")) is sent
        house.door.heart.now -= 59.0
        assert (await ask("tools/list", {}))["result"]["tools"]
        begin = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        for method, params, headers in (
            ("tools/list", {}, session.headers),
            ("tools/call", ["not an object"], session.headers),
            ("initialize", begin, {}),
        ):
            house.door.heart.now -= 61.0
            found = await ask(method, params, headers)
            assert found["error"]["data"]["mcp_actors"]["outcome"] == "not_sent"
        assert len(house.door.mcp.sessions) == 1
        assert "result" in await call("after")
        assert noted.calls == ["before", "29.0", "after"]


async def test_after_a_long_gap_a_second_request_with_an_id_does_not_take_the_answer_of_the_first() -> None:
    work = Work()
    async with open_house(work.config) as house:
        session, peer = await house.begin(), await house.connect()
        call: dict[str, Any] = {"id": 1, "method": "tools/call", "params": {"name": "work_wait", "arguments": {}}}
        first = await session.post(call)
        with trio.fail_after(BOUND):
            await work.started.wait()
        assert (await peer.fetch("GET", "/healthz")).status == 200
        house.door.heart.now -= 61.0
        await peer.post({"jsonrpc": "2.0", **call}, session.headers)
        assert "in flight already" in (await peer.read()).json["error"]["message"]
        work.gate.set()
        assert (await first.read()).json["result"]["content"][0]["text"] == "waited"
