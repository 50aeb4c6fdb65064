"""Many clients over HTTP; and some that flood, send half a request or do not read, while another one calls."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
import trio

from mcp_actors.gateway.http._wire import HttpConnection

from ...programs import FULL_SIZE
from ...servers.hostile import LongestStep, MostInAStep
from ..hosts import BOUND, MODERN, in_process, notes
from .doors import META, TOKEN, House, Peer, open_house

CROWD: Final = 1000 if FULL_SIZE else 50

STEP: Final = 0.1
"""Seconds of processor time that one step may take: several times of the 20 ms that are aimed at, for slow machines."""

HEAD: Final = (
    f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"
    f"mcp-protocol-version: {MODERN}\r\nmcp-method: tools/call\r\nmcp-name: n_echo\r\n"
)


def call(arguments: Any, more: str = "") -> bytes:
    params = {"name": "n_echo", "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return f"{HEAD}{more}content-length: {len(body)}\r\n\r\n".encode() + body


FLOODS: Final[dict[str, Callable[[], bytes]]] = {
    "pipelined calls": lambda: call({"text": "x"}) * 150,
    "pipelined probes": lambda: b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n" * 1_000,
    "other heads": lambda: b"".join(call({"text": "x"}, f"x-{each}: 1\r\n") for each in range(120)),
    "many values": lambda: call({str(number): 0 for number in range(25_000)}) * 3,
    "a large body": lambda: call({"text": "x" * 4_000_000}),
    "small chunks": lambda: f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode() + b"1\r\n \r\n" * 5_000,
}


def flood(address: tuple[str, int], data: bytes) -> None:
    """Send everything, and read everything, until the gateway has had enough or a second has passed without more."""
    with socket.create_connection(address) as client:
        client.settimeout(1.0)

        def write() -> None:
            with suppress(OSError):
                client.sendall(data)

        writer = threading.Thread(target=write)
        writer.start()
        with suppress(OSError):
            while client.recv(2**20):
                pass
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        writer.join()


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_over_http_delays_no_other(
    kind: str,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No step is long, or takes more than one request or part, even if each of them takes longer than a step may."""
    async with open_house(in_process("n", notes())) as house:
        peer = await house.connect()
        assert await peer.call("n_echo", text="before") == "before"
        data = FLOODS[kind]()
        taken = MostInAStep(
            monkeypatch, *((HttpConnection, name) for name in ("take_ready", "_take_request", "_append"))
        )
        with LongestStep() as longest, taken, trio.fail_after(3 * BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, flood, house.address, data)
                for _ in range(20):
                    assert await peer.call("n_echo", text="during") == "during"
        record_property("note", f"{kind}: a step took {longest.seconds * 1000:.0f} ms ({longest.task})")
        assert longest.seconds < STEP, longest.task
        assert set(taken.most.values()) == {1}
        assert "a defect" not in caplog.text
        assert await peer.call("n_echo", text="after") == "after"


async def test_many_connections_and_many_sessions_are_served_without_an_error() -> None:
    async with open_house(in_process("n", notes())) as house:
        wrong: list[Any] = []

        async def alone(number: int) -> None:
            peer = await house.connect()
            wrong.extend([number for _ in range(3) if await peer.call("n_echo", text=f"{number}") != f"{number}"])

        async def session(number: int) -> None:
            peer = await begin(house)
            for _ in range(3):
                message = {"name": "n_echo", "arguments": {"text": f"{number}"}}
                await peer.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": message}, peer.session)
                if (await peer.read()).json["result"]["content"][0]["text"] != f"{number}":
                    wrong.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(CROWD):
                nursery.start_soon(alone, number)
                nursery.start_soon(session, number)
        assert wrong == []
        assert (len(house.door.connections), len(house.door.mcp.sessions)) == (2 * CROWD, CROWD)


class Member(Peer):
    """A connection with a session of its own."""

    session: dict[str, str]


async def begin(house: House) -> Member:
    peer = Member(await trio.open_tcp_stream(*house.address), f"127.0.0.1:{house.address[1]}")
    house.peers.append(peer)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    await peer.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    peer.session = {"mcp-session-id": (await peer.read()).headers["mcp-session-id"]}
    return peer
