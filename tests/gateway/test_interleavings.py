"""Seeded interleavings of many sessions: each answer carries the secret of its session, and of its request.

Everything is in one process: the sessions are socket pairs, and the server is one whose answers a test lets go, in an
order that is drawn. What a session does next is drawn, too: calls, cancellations, ids that are in use, lines in pieces,
an end in the middle of anything. Between two steps the event loop turns a few times, also drawn.
"""

from __future__ import annotations

import json
import logging
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Backoff, RestartPolicy, open_servers
from mcp_actors.gateway import _output, _serve, _session
from mcp_actors.gateway._front import Front
from mcp_actors.gateway._session import Gateway

from ..processor_time import freeze
from ..programs import FULL_SIZE, SEED
from .hosts import in_process

CHUNK: Final = 200 if FULL_SIZE else 5
"""Interleavings of one test. They take half a minute, or two on a busy machine, and a test may take five."""

CHUNKS: Final = 50 if FULL_SIZE else 1

SESSIONS: Final = 50

STEPS: Final = 200
"""Steps of all sessions together in one interleaving."""

BEGIN: Final = {"protocolVersion": "2025-11-25", "capabilities": {}}


class Secrets:
    """A server that answers with what it was asked, when it is let go."""

    def __init__(self) -> None:
        self.waiting: list[trio.Event] = []
        self.served = 0

    def server(self) -> MCPServer:
        server = MCPServer("secrets")

        @server.tool()
        async def tell_later(secret: str, ctx: Context[Any, Any]) -> str:
            self.served += 1
            await ctx.report_progress(1, 2, secret)
            gate = trio.Event()
            self.waiting.append(gate)
            await gate.wait()
            await ctx.report_progress(2, 2, secret)
            return secret

        @server.tool()
        async def tell(secret: str) -> str:
            self.served += 1
            return secret

        return server

    def let_go(self, draw: random.Random) -> None:
        if self.waiting:
            self.waiting.pop(draw.randrange(len(self.waiting))).set()


class Guest:
    """A session with secrets of its own. It checks whatever it is sent."""

    def __init__(self, name: int, shared: Gateway, heart: _output.Heart, draw: random.Random) -> None:
        self.checked = 0
        self._name = name
        self._shared = shared
        self._heart = heart
        self._draw = draw
        self._life = 0
        self._sent: dict[int, set[str]] = {}
        self._unsent = self._rest = b""
        self._ours: socket.socket | None = None
        self._ended = False

    def open(self, nursery: trio.Nursery) -> None:
        """Connect, as a new client."""
        self.close()
        self._life += 1
        self._sent = {}
        self._unsent = self._rest = b""
        self._ended = False
        self._ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._ours.setblocking(False)
        nursery.start_soon(self._serve, theirs)
        self._write({"id": "begin", "method": "initialize", "params": BEGIN})

    async def _serve(self, theirs: socket.socket) -> None:
        with theirs:
            await _serve.ClientConnection(self._shared, self._heart, theirs.fileno(), theirs.fileno(), "guest").run()

    def step(self, nursery: trio.Nursery) -> None:
        """Do something."""
        self.read()
        if self._ours is None or self._ended:
            self.open(nursery)
            return
        draw = self._draw
        kind = draw.choices(["call", "burst", "cancel", "piece", "end", "hang up"], [10, 3, 6, 2, 1, 1])[0]
        if kind == "call":
            self._call(draw.randrange(6))
        elif kind == "burst":
            for _ in range(draw.randint(2, 5)):
                self._call(draw.randrange(6))
                if draw.random() < 0.4:
                    self._cancel()
        elif kind == "cancel":
            self._cancel()
        elif kind == "piece":
            self._call(draw.randrange(6), whole=False)
        elif kind == "end":
            self._ended = True
            with suppress(OSError):
                self._ours.shutdown(socket.SHUT_WR)
        else:
            self.close()

    def _call(self, id: int, *, whole: bool = True) -> None:
        secret = f"{self._name}.{self._life}.{id}.{self._draw.getrandbits(32)}"
        self._sent.setdefault(id, set()).add(secret)
        tool = self._draw.choice(["s_tell", "s_tell_later", "s_tell_later"])
        params: dict[str, Any] = {"name": tool, "arguments": {"secret": secret}}
        if self._draw.random() < 0.5:
            params["_meta"] = {"progressToken": f"{self._name}.{self._life}"}
        self._write({"id": id, "method": "tools/call", "params": params}, whole=whole)

    def _cancel(self) -> None:
        self._write({"method": "notifications/cancelled", "params": {"requestId": self._draw.randrange(6)}})

    def _write(self, message: dict[str, Any], *, whole: bool = True) -> None:
        if self._ours is None:
            return
        self._unsent += json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        size = len(self._unsent) if whole else self._draw.randrange(len(self._unsent))
        try:
            self._unsent = self._unsent[self._ours.send(self._unsent[:size]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def read(self) -> None:
        """Check what has come."""
        with suppress(OSError):  # nothing is there now, or the gateway has hung up
            while self._ours is not None and (data := self._ours.recv(65536)):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._check(json.loads(line))

    def _check(self, message: dict[str, Any]) -> None:
        mine = f"{self._name}.{self._life}"
        if message.get("method") == "notifications/progress":
            assert message["params"]["progressToken"] == mine, message
            assert message["params"]["message"].startswith(f"{mine}."), message
        elif "result" in message and message["id"] != "begin":
            secret = message["result"]["content"][0]["text"]
            assert secret in self._sent[message["id"]], message
        elif "method" not in message and message["id"] is not None and message["id"] != "begin":
            assert message["id"] in self._sent, message
        self.checked += 1

    def close(self) -> None:
        """Hang up."""
        self.read()
        if self._ours is not None:
            self._ours.close()
            self._ours = None


async def interleave(seed: int) -> tuple[int, int]:
    """Run one interleaving; return how many messages were checked, and how many calls were carried out."""
    draw, secrets = random.Random(seed), Secrets()
    config = in_process("s", secrets.server(), restarts=RestartPolicy(max_restarts=10**6, backoff=Backoff()))
    async with open_servers(config, naming="{server}_{tool}") as group, trio.open_nursery() as nursery:
        front = Front(group, "{server}_{tool}")
        shared, heart = _session.Gateway(front), _output.Heart()
        nursery.start_soon(front.follow, shared.changed)
        await front.wait_listed()
        guests = [Guest(number, shared, heart, draw) for number in range(SESSIONS)]
        for _ in range(STEPS):
            draw.choice(guests).step(nursery)
            if draw.random() < 0.5:
                secrets.let_go(draw)
            if draw.random() < 0.01:
                nursery.start_soon(group["s"].restart)
            for _ in range(draw.choice([0, 0, 1, 3])):
                await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        for each in guests:
            each.close()
        nursery.cancel_scope.cancel()
    return sum(each.checked for each in guests), secrets.served


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_answer_of_many_sessions_carries_the_secret_of_its_request(
    chunk: int, record_property: Callable[[str, object], None]
) -> None:
    """Calls are cancelled, sent twice, cut off; sessions end and the server is restarted."""
    freeze()  # collections look at the objects of this test only
    checked = carried_out = 0
    first = seed = SEED + chunk * CHUNK
    logging.disable(logging.CRITICAL)
    try:
        for seed in range(first, first + CHUNK):
            messages, calls = trio.run(interleave, seed)
            checked, carried_out = checked + messages, carried_out + calls
    except BaseException as exc:
        exc.add_note(f"in the interleaving with the seed {seed}")
        raise
    finally:
        logging.disable(logging.NOTSET)
    record_property("note", f"{CHUNK} interleavings from {first}: {checked} messages checked, {carried_out} calls")
    assert min(checked, carried_out) > CHUNK * SESSIONS / 2
