"""Small things that a client, a balancer or a person may do over HTTP, which once ended a request or a stream."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from mcp_actors.cli._gateway import Daemon, load, opened
from mcp_actors.gateway._session import Gateway
from mcp_actors.gateway.http import _door, _streamable, add_page
from mcp_actors.gateway.http._access import Access
from mcp_actors.gateway.http._wire import Head, HttpRefused

from ...servers.processes import BOUND, eventually
from ..daemons import counting
from ..hosts import LEGACY, in_process, notes
from .doors import TOKEN, House, open_house
from .test_modern import Work
from .test_wire import call_of

WAIT = {"name": "work_wait", "arguments": {}}
OTHER = "another-token-for-tests"


async def reload() -> None:
    """Change nothing."""


async def use_other(house: House) -> None:
    """Change the token."""
    await house.door.use({"me": OTHER}, (), ())


async def drain(house: House) -> None:
    """Begin the end."""
    house.nursery.start_soon(house.door.drain)


async def stream(house: House) -> None:
    """Let the reply to a request with ``Connection: close`` become a stream, as at its first progress."""
    [connection] = house.door.connections
    assert connection._reply is not None
    connection._reply.stream()


# --- Replies in progress ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"", b"\r\n", call_of("pipelined")])
@pytest.mark.parametrize("change", [drain, use_other, stream])
async def test_a_reply_in_progress_is_completed_whatever_arrives_behind_its_request(
    change: Callable[[House], Awaitable[None]], more: bytes
) -> None:
    work = Work()
    async with open_house(work.config) as house:
        peer = await house.connect()
        await peer.post_modern("tools/call", WAIT, {"connection": "close"} if change is stream else {})
        await work.started.wait()
        await change(house)
        await wait_all_tasks_blocked(0.01)
        await peer.write(more)
        await wait_all_tasks_blocked(0.01)
        work.gate.set()
        with trio.fail_after(BOUND):
            assert b"waited" in await peer.wait_closed()


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize(("version", "more"), [("1.1", ""), ("1.1", "connection: close\r\n"), ("1.0", "")])
async def test_a_stream_stays_open_however_its_request_comes(version: str, more: str, pieces: int) -> None:
    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        peer = await house.connect()
        head = (
            f"GET /mcp HTTP/{version}\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
            f"accept: text/event-stream\r\n{more}mcp-session-id: {session.id}\r\nmcp-protocol-version: {LEGACY}\r\n\r\n"
        ).encode()
        for piece in (head,) if pieces == 1 else (head[:50], head[50:]):
            await peer.write(piece)
            await wait_all_tasks_blocked(0.01)
        assert (await peer.read_head()).status == 200
        [found] = house.door.mcp.sessions.values()
        found.session.notify("notifications/tools/list_changed")
        with trio.fail_after(BOUND):
            while b"list_changed" not in await peer.stream.receive_some():
                pass


@pytest.mark.parametrize("path", ["/mcp", "/ui/do"])
async def test_a_client_that_leaves_after_it_has_sent_more_is_noticed(path: str) -> None:
    """Nothing is read while a request waits for the one before, so the end is behind bytes."""
    work = Work()
    async with open_house(work.config) as house:
        add_page(house.door, "x", reload)
        peer = await house.connect()
        if path == "/mcp":
            await peer.post_modern("tools/call", WAIT)
        else:
            browser = await house.connect()
            signed = await browser.sign_in()
            await browser.stream.aclose()
            wish = b'{"do": "call", "server": "work", "tool": "wait", "arguments": {}}'
            await peer.send("POST", f"{signed.path}do", signed.cookie, wish, token=None)
        await work.started.wait()
        await peer.write(b"\r\n" + call_of("pipelined"))
        await wait_all_tasks_blocked(0.01)
        await trio.aclose_forcefully(peer.stream)
        await eventually(lambda: not any(each.busy for each in house.door.connections), within=10)


async def test_empty_lines_around_requests_are_skipped() -> None:
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.write(b"\r\n" + call_of("first") + b"\r\n" + call_of("second") + b"\r\n")
        replies = [(await peer.read()).json["result"]["content"][0]["text"] for _ in range(2)]
        assert replies == ["first", "second"]
        await wait_all_tasks_blocked(0.01)
        [connection] = house.door.connections
        connection.check(connection._due - 1)
        assert connection._due - trio.current_time() > 60  # it is idle, and does not owe the rest of a head


# --- Strangers --------------------------------------------------------------------------------------------------------


async def test_strangers_that_owe_a_body_take_no_place_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_door, "MAX_HTTP_CONNECTIONS", 4)
    async with open_house(in_process("notes", notes())) as house:
        client = await house.connect()
        assert (await client.fetch("GET", "/status")).status == 200
        for _ in range(6):
            stranger = await house.connect()
            await stranger.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n")
            await wait_all_tasks_blocked(0.01)
        assert (await client.fetch("GET", "/status")).status == 200
        assert (await (await house.connect()).fetch("GET", "/status")).status == 200


def test_connections_leave_files_for_other_things() -> None:
    assert [_door.most_connections(files) for files in (64, 1024, 10_000, -1)] == [32, 768, 4000, 4000]


# --- Tokens -----------------------------------------------------------------------------------------------------------


async def test_a_session_whose_stream_was_ended_keeps_its_messages_and_expires() -> None:
    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        before = await session.listen()
        await use_other(house)
        await before.wait_closed()
        session.token = OTHER
        [found] = house.door.mcp.sessions.values()
        assert not found.busy
        found.session.notify("notifications/message", {"level": "info", "data": "meanwhile"})
        event = await (await session.listen()).read_event()
        assert event["params"]["data"] == "meanwhile"
        await use_other(house)
        house.door.mcp.expire(trio.current_time() + 2 * _streamable.SESSION_SECONDS)
        assert [*house.door.mcp.sessions] == [session.id]  # it listens
        await house.door.use({"me": TOKEN}, (), ())
        house.door.mcp.expire(trio.current_time() + 2 * _streamable.SESSION_SECONDS)
        assert not house.door.mcp.sessions


async def test_a_stream_that_has_just_begun_ends_with_its_token() -> None:
    """Its task has not run yet."""
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.ask("tools/list")
        [connection] = house.door.connections
        take = connection.take_ready

        def take_ready() -> None:
            take()
            assert connection.busy
            house.door.access.tokens = {"me": OTHER}
            connection.forget({"me"})

        connection.take_ready = take_ready  # type: ignore[method-assign]  # the token changes in this step
        await peer.post_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        with trio.fail_after(BOUND):
            assert b"resultType" in await peer.wait_closed()


# --- Names ------------------------------------------------------------------------------------------------------------


def test_a_client_over_ipv4_may_use_a_socket_for_both() -> None:
    access, head = Access({}, frozenset(), frozenset()), Head(headers={"host": "192.0.2.2:80"})
    access.check_host_and_origin(head, ("::ffff:192.0.2.2", 80, 0, 0))
    with pytest.raises(HttpRefused):
        access.check_host_and_origin(head, ("::ffff:192.0.2.3", 80, 0, 0))


class Listener:
    """A socket with an address."""

    def __init__(self, place: Any) -> None:
        self._place = place

    def getsockname(self) -> Any:
        return self._place


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (("0.0.0.0", 8000), "http://127.0.0.1:8000/"),
        (("::", 8000, 0, 0), "http://[::1]:8000/"),
        (("2001:db8::1", 8000, 0, 0), "http://[2001:db8::1]:8000/"),
        ("/run/g.sock", "unix:/run/g.sock"),
        (b"\0abstract", "unix:\0abstract"),
    ],
)
def test_the_printed_address_is_one_that_works(place: Any, url: str) -> None:
    listener: Any = Listener(place)
    assert _door.url_of(listener) == url


async def test_a_path_in_any_encoding_is_shown(tmp_path: Path) -> None:
    async with open_house(in_process("notes", notes()), tokens={}) as house:
        add_page(house.door, "caf\udce9.json", reload)
        reply = await (await house.connect()).fetch("GET", "/ui/", token=None)
        assert (reply.status, "caf?.json" in reply.text) == (200, True)


async def test_probes_are_answered_while_the_gateway_stops() -> None:
    work = Work()
    async with open_house(work.config) as house:
        calling, probes = await house.connect(), [await house.connect() for _ in range(2)]
        await calling.post_modern("tools/call", WAIT)
        await work.started.wait()
        for peer in probes:
            await peer.write(b"GET ")  # the end waits for the rest
            await wait_all_tasks_blocked(0.01)
        await drain(house)
        await wait_all_tasks_blocked(0.01)
        found = []
        for peer, path in zip(probes, ("/healthz", "/readyz"), strict=True):
            await peer.write(f"{path} HTTP/1.1\r\nhost: x\r\n\r\n")
            found.append((await peer.read()).status)
        assert found == [200, 503]
        work.gate.set()


async def test_a_session_that_has_failed_is_not_found_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: Any) -> None:
        raise RuntimeError

    async with open_house(in_process("notes", notes())) as house:
        session = await house.begin()
        [found] = house.door.mcp.sessions.values()
        found._start(fail)
        await eventually(lambda: not house.door.mcp.sessions)
        reply = await session.ask("tools/list")
        assert reply.status == 404


async def test_a_reload_is_completed_when_the_person_who_asked_for_it_leaves(tmp_path: Path) -> None:
    file, entries = tmp_path / "mcp.json", {"old": counting(tmp_path / "old")}
    file.write_text(json.dumps({"mcpServers": entries}))
    gateway = Gateway()
    async with opened(Daemon(gateway), str(file), *load(str(file)), None) as found:
        assert gateway.front is not None
        group = gateway.front.group
        await group["old"].wait_ready()
        entries = {"new": counting(tmp_path / "new"), "own": counting(tmp_path / "own", isolation="per-session")}
        file.write_text(json.dumps({"mcpServers": entries}))
        with trio.CancelScope() as scope:
            scope.cancel("the person leaves")
            await found.reload()
        assert scope.cancelled_caught
        await eventually(lambda: [*group] == ["new"] and group["new"].state == "ready")
        await eventually(lambda: [config.name for config in gateway.per_session] == ["own"])


async def test_a_task_may_be_started_at_any_step_in_which_a_client_leaves() -> None:
    """A server's answer may need one, and comes whenever the server likes."""
    async with open_house() as house:
        for steps in range(30):
            peer = await house.connect()
            await peer.stream.send_all(b"POST /mcp")  # so that the connection has a task
            await wait_all_tasks_blocked(0.01)
            [connection] = house.door.connections
            await peer.stream.aclose()
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            connection.start(trio.lowlevel.checkpoint)
            await connection.ended.wait()
