"""Tokens that change while a gateway serves: who may go on, and what ends."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mcp_actors.gateway.http import add_page

from ...forkserver import run_python
from ...servers.processes import BOUND, eventually
from ...source import ROOT
from ..daemons import counting
from ..hosts import in_process, notes
from .doors import JSON, House, Peer, SignedIn, open_house
from .test_identities import own
from .test_modern import Work
from .test_program import peers, serving

ANN, BOB, EVE, NEW = (f"a-token-of-{name}-0001" for name in ("ann", "bob", "eve", "new"))
TOKENS: Final = {"ann": ANN, "bob": BOB}

LIST: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


async def wait_listed(peer: Peer, tool: str, token: str) -> None:
    """Wait until a server that was added is connected, and its tool is listed."""
    with trio.fail_after(BOUND):
        while tool not in (await peer.ask("tools/list", token=token)).text:  # noqa: ASYNC110 - see above
            await trio.sleep(0.02)


async def status(house: House, token: str) -> int:
    return (await (await house.connect()).fetch("GET", "/status", token=token)).status


async def test_a_changed_token_is_valid_at_once_and_the_old_one_is_not() -> None:
    async with open_house(in_process("notes", notes()), tokens=TOKENS) as house:
        ann, bob = await house.connect(), await house.connect()
        for _ in range(2):  # the second one has the head of the first, which is not checked again
            assert (await ann.fetch("GET", "/status", token=ANN)).status == 200
            assert (await bob.fetch("GET", "/status", token=BOB)).status == 200
        await house.door.use({"ann": NEW, "bob": BOB}, (), ())
        assert await ann.wait_closed() == b""
        assert [await status(house, token) for token in (ANN, NEW, BOB)] == [401, 200, 200]
        assert (await bob.fetch("GET", "/status", token=BOB)).status == 200  # on its old connection


async def test_swapped_tokens_are_swapped_on_open_connections_too() -> None:
    async with open_house(in_process("notes", notes()), tokens=TOKENS) as house:
        session = await house.begin(ANN)
        await house.door.use({"ann": BOB, "bob": ANN}, (), ())
        assert (await session.ask("ping")).status == 404  # ANN is the token of bob now
        session.token = BOB
        assert (await session.ask("ping")).status == 200


async def test_a_request_that_was_half_sent_when_its_token_ended_is_not_begun() -> None:
    async with open_house(in_process("notes", notes()), tokens=TOKENS) as house:
        peer = await house.connect()
        body = json.dumps(LIST).encode()
        headers = {"authorization": f"Bearer {ANN}", "content-length": str(len(body)), **JSON}
        lines = ["POST /mcp HTTP/1.1", f"host: {peer.host}", *(f"{name}: {each}" for name, each in headers.items())]
        await peer.write("\r\n".join([*lines, "", ""]).encode() + body[:9])
        await eventually(lambda: any(each.busy for each in house.door.connections))
        await house.door.use({"bob": BOB}, (), ())
        await peer.write(body[9:])
        assert (await peer.read()).status == 401
        assert await peer.wait_closed() == b""


async def test_what_an_identity_without_a_token_has_ends_and_that_of_others_does_not(tmp_path: Path) -> None:
    work, config = Work(), own(tmp_path, isolation="per-identity")
    async with open_house(work.config, tokens=TOKENS, per_identity=[config]) as house:
        sessions = {token: await house.begin(token) for token in TOKENS.values()}
        streams: dict[str, list[Peer]] = {}
        for token, session in sessions.items():
            listening = await house.connect()
            wish = {"notifications": {"toolsListChanged": True}}
            await listening.post_modern("subscriptions/listen", wish, token=token)
            await listening.read_head()
            await listening.read_event()
            streams[token] = [await session.listen(), listening]
        busy = await house.connect()
        await busy.post_modern("tools/call", {"name": "work_wait", "arguments": {}}, token=ANN)
        with trio.fail_after(BOUND):
            await work.started.wait()
        group = house.door.front_of("ann").group
        await house.door.use({"bob": BOB}, (), [config])
        for stream in streams[ANN]:
            while await stream.read_event() is not None:
                pass
        await eventually(lambda: group["own"].state == "stopped")
        assert (await sessions[ANN].ask("ping")).status == 401
        assert len(house.door.mcp.sessions) == 1
        work.gate.set()  # what was begun is finished
        assert (await busy.read()).json["result"]["content"][0]["text"] == "waited"
        assert await busy.wait_closed() == b""
        assert (await sessions[BOB].ask("tools/list")).status == 200  # from then on changes are notified
        await house.group.remove("work")
        for stream in streams[BOB]:
            assert (await stream.read_event())["method"].endswith("/list_changed")


async def test_a_new_identity_has_servers_a_page_and_a_share_of_its_own(tmp_path: Path) -> None:
    async def reload() -> None: ...

    config = own(tmp_path, isolation="per-identity")
    async with open_house(in_process("notes", notes()), tokens=TOKENS, per_identity=[config]) as house:
        add_page(house.door, "mcp.json", reload)
        assert await status(house, EVE) == 401
        await house.door.use({**TOKENS, "eve": EVE}, (), [config])
        for token in (ANN, EVE):
            peer = await house.connect()
            params = {"name": "own_keep", "arguments": {"text": "mine"}}
            for count in (1, 2):
                reply = await peer.ask("tools/call", params, token=token)
                assert reply.json["result"]["content"][0]["text"] == ", ".join(["mine"] * count)
        assert b"own" in (await page(house, await sign_in(house, EVE))).body
        await house.door.use(TOKENS, (), [config])
        assert await status(house, EVE) == 401


async def test_the_first_servers_of_identities_may_come_by_a_reload(tmp_path: Path) -> None:
    config = own(tmp_path, isolation="per-identity")
    async with open_house(in_process("notes", notes()), tokens=TOKENS) as house:
        session = await house.begin(ANN)
        await session.ask("tools/list")
        await house.door.use(TOKENS, (), [config])
        for token in TOKENS.values():
            await wait_listed(await house.connect(), "own_keep", token)
        names = [tool["name"] for tool in (await session.ask("tools/list")).json["result"]["tools"]]
        assert "own_keep" in names
        assert "notes_echo" in names
        for token in TOKENS.values():
            call = {"name": "own_keep", "arguments": {"text": token}}
            reply = await (await house.connect()).ask("tools/call", call, token=token)
            assert reply.json["result"]["content"][0]["text"] == token


async def test_identities_without_servers_of_their_own_have_the_instructions_of_the_shared_ones() -> None:
    server = notes()
    server._lowlevel_server.instructions = "Write it down."
    async with open_house(in_process("notes", server), tokens=TOKENS) as house:
        await (await house.connect()).ask("tools/list", token=ANN)
        found = (await (await house.connect()).ask("server/discover", token=ANN)).json["result"]
        assert found["instructions"] == "Write it down."


async def sign_in(house: House, token: str) -> SignedIn:
    return await (await house.connect()).sign_in(token)


async def page(house: House, signed: SignedIn) -> Any:
    return await (await house.connect()).fetch("GET", signed.path, signed.cookie, token=None)


@pytest.mark.parametrize("tokens", [{"ann": NEW, "bob": BOB}, {"bob": BOB}])
async def test_a_sign_in_ends_with_the_token_that_it_was_made_with(tokens: dict[str, str]) -> None:
    """D-50."""

    async def reload() -> None: ...

    async with open_house(in_process("notes", notes()), tokens=TOKENS) as house:
        add_page(house.door, "mcp.json", reload)
        signed = {token: await sign_in(house, token) for token in (ANN, BOB)}
        live = await house.connect()
        await live.send("GET", f"{signed[ANN].path}live", signed[ANN].cookie, token=None)
        await live.read_head()
        assert b'action="sign-in" hidden' in (await page(house, signed[ANN])).body
        observers = len(house.group._hub.observers)
        await house.door.use(tokens, (), ())
        with trio.fail_after(BOUND):
            while await live.read_event() is not None:
                pass
        assert (await page(house, signed[ANN])).headers["location"] == "/ui/"
        assert b'action="sign-in" hidden' in (await page(house, signed[BOB])).body
        assert len(house.group._hub.observers) == observers - (len(tokens) == 1)
        await house.door.use(TOKENS, (), ())  # which brings no sign-in back
        for token, status in ((ANN, 401), (BOB, 200)):
            peer = await house.connect()
            await peer.send("GET", f"{signed[token].path}live", signed[token].cookie, token=None)
            assert (await peer.read_head()).status == status


# --- The command ------------------------------------------------------------------------------------------------------


class Command:
    """A gateway as a process, with a token file and a control socket."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self.folder = folder
        self.env = {**os.environ, "XDG_RUNTIME_DIR": runtime}
        control = Path(runtime, "mcp-actors", "n.ctl")
        control.parent.mkdir(0o700)
        self.flags = ("--http", "127.0.0.1:0", "--token-file", str(folder / "tokens"), "--control", str(control))

    def write(self, text: str, mode: int = 0o600) -> None:
        (self.folder / "tokens").write_text(text)
        (self.folder / "tokens").chmod(mode)

    async def reload(self) -> str:
        words = ["-m", "mcp_actors", "reload", "--config", str(self.folder / "mcp.json")]
        running = partial(run_python, *words, cwd=ROOT, timeout=BOUND, env=self.env)
        done = await trio.to_thread.run_sync(running)
        return " ".join(f"{done.stdout} {done.stderr}".split())

    @staticmethod
    async def statuses(url: str, *tokens: str) -> list[int]:
        found = []
        for token in tokens:
            async with peers(url) as [peer]:
                found.append((await peer.fetch("GET", "/status", token=token)).status)
        return found


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with tempfile.TemporaryDirectory() as runtime:  # the path of a socket is short
        yield Command(tmp_path, runtime)


async def test_reload_reads_the_token_file_again(tmp_path: Path, command: Command) -> None:
    command.write(f"ann {ANN}\n{BOB}\n")
    entries: dict[str, Any] = {"a": counting(tmp_path / "a")}
    with serving(tmp_path, *command.flags, entries=entries) as (_, url, _):
        assert await command.statuses(url, ANN, BOB, NEW) == [200, 200, 401]
        for text, mode, words in (
            (f"ann {NEW}\nbob {BOB} x\n", 0o600, "line 2 is not TOKEN or NAME TOKEN"),
            ("", 0o600, "has no token"),
            (f"ann {NEW}\n", 0o644, "can be read by other users"),
        ):
            command.write(text, mode)
            assert words in await command.reload()
            assert await command.statuses(url, ANN, BOB, NEW) == [200, 200, 401]
        command.write(f"{BOB}\nann {NEW}\n")
        entries["own"] = {**counting(tmp_path / "own"), "mcp_actors": {"isolation": "per-identity"}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        await command.reload()
        assert await command.statuses(url, ANN, BOB, NEW) == [401, 200, 200]
        for number, token in enumerate((BOB, NEW)):
            async with peers(url) as [peer]:
                await wait_listed(peer, "own_run", token)
                call = {"name": "own_run", "arguments": {"id": number}}
                reply = await peer.ask("tools/call", call, token=token)
                assert reply.json["result"]["content"][0]["text"] == f"{number}"


async def test_a_second_token_for_a_gateway_of_one_needs_a_restart(tmp_path: Path, command: Command) -> None:
    command.write(f"{ANN}\n")
    with serving(tmp_path, *command.flags) as (_, url, _):
        command.write(f"{ANN}\n{BOB}\n")
        assert "restart the gateway" in await command.reload()
        assert await command.statuses(url, ANN, BOB, NEW) == [200, 401, 401]
        command.write(f"{NEW}\n")
        await command.reload()
        assert await command.statuses(url, ANN, BOB, NEW) == [401, 401, 200]
        async with peers(url) as [peer]:
            reply = await peer.ask("tools/call", {"name": "a_run", "arguments": {"id": 1}}, token=NEW)
            assert reply.json["result"]["content"][0]["text"] == "1"
