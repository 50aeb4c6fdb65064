"""Clients that send or keep more than they should: the cost for others is short steps and bounded memory."""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import trio
from mcp import MCPError
from mcp.types import EmptyResult, SetLevelRequestParams, SubscribeRequestParams
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ServerConfig, Stdio
from mcp_actors.gateway import _news, _output, _serve
from mcp_actors.gateway._budget import budget
from mcp_actors.gateway._session import GatewaySession

from ..servers.hostile import LongestStep, MostInAStep
from ..servers.library import Library
from ..servers.processes import eventually
from ..soak.census import memory
from ..source import ROOT
from .hosts import BOUND, LEGACY, MODERN, Host, gateway, in_process, notes, outcome_of
from .test_serve import across_a_gap, until, write_file

STEP: Final = 0.1
"""Seconds of processor time that one step may take: several times of the 20 ms that are aimed at, for slow machines."""

MEMORY: Final = 200 * 2**20
"""Bytes by which the process may grow."""


def line(method: str, params: Any = None, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **more}).encode() + b"\n"


def call(id: Any, arguments: Any) -> bytes:
    return line("tools/call", {"name": "n_echo", "arguments": arguments}, id=id)


BEGIN: Final = line("initialize", {"protocolVersion": LEGACY, "capabilities": {}}, id="begin")

FLOODS: Final[dict[str, Callable[[], bytes]]] = {
    "numbers": lambda: b"0\n" * 5_000,
    "notifications": lambda: line("notifications/unknown") * 2_000,
    "cancellations": lambda: b"".join(line("notifications/cancelled", {"requestId": id}) for id in range(2_000)),
    "pings": lambda: b"".join(line("ping", id=id) for id in range(2_000)),
    "huge ids": lambda: b"".join(line("ping", id=10**4000 + id) for id in range(250)) + line("ping", id="x" * 10**6),
    "deep arrays": lambda: (b"[" * 50_000 + b"]" * 50_000 + b"\n") * 10,
    "deep arguments": lambda: (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n_echo","arguments":'
        + b'{"text":' * 180
        + b"0"
        + b"}" * 180
        + b"}}\n"
    ),
    "many values": lambda: call(1, {str(number): 0 for number in range(25_000)}) * 3,
    "lists": lambda: b"".join(line("tools/list", id=id) for id in range(500)),
    "calls": lambda: b"".join(call(id, {"text": "x"}) for id in range(400)),
    "the same id": lambda: call(1, {"text": "x"}) * 400,
    "subscriptions": lambda: b"".join(
        line("resources/subscribe", {"uri": f"note:///{id}/lines"}, id=id) for id in range(300)
    ),
    "no end of a line": lambda: b"x" * (_serve.MAX_MESSAGE + 2**20),
}


def flood(path: str, data: bytes) -> None:
    """Send everything, read everything, and wait until the gateway has had enough, or has answered all."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)

        def read() -> None:
            with suppress(OSError):
                while client.recv(2**20):
                    pass

        reader = threading.Thread(target=read)
        reader.start()
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(BEGIN + data)
            client.shutdown(socket.SHUT_WR)
        reader.join()


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_from_a_client_delays_no_other(
    kind: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No step is long, or takes more than a few messages, even if each of them takes longer than a step may."""
    monkeypatch.setattr(_output, "GAP", math.inf)  # a busy machine may stop this process for as long as a gap lasts
    async with gateway(tmp_path, in_process("n", notes())) as door:
        host = await door.connect()
        data = FLOODS[kind]()
        assert await host.call("n_echo", text="before") == "before"
        before, served = memory(), 0
        taken = MostInAStep(monkeypatch, (_serve.ClientConnection, "_take_line"), (GatewaySession, "take"))
        with LongestStep() as longest, taken, trio.fail_after(3 * BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, flood, door.path, data)
                for _ in range(20):
                    assert await host.call("n_echo", text="during") == "during"
                    served += 1
        record_property("note", f"{kind}: a step took {longest.seconds * 1000:.0f} ms ({longest.task})")
        assert longest.seconds < STEP, longest.task
        assert max(taken.most.values()) <= _serve.BURST
        assert "a defect" not in caplog.text
        assert memory() - before < MEMORY
        assert await host.call("n_echo", text="after") == "after"
        assert host.asked == []


async def test_what_a_slow_reader_does_not_take_is_bounded(tmp_path: Path) -> None:
    """It is not read from, so its further requests wait where they are; it is served when it reads again."""
    text = "x" * 100_000
    async with gateway(tmp_path, in_process("n", notes())) as door:
        other = await door.connect()
        slow = Host(await trio.open_unix_socket(door.path))
        async with slow.stream, trio.open_nursery() as nursery:
            requests = [slow.request("tools/call", {"name": "n_echo", "arguments": {"text": text}}) for _ in range(60)]
            begin = slow.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}})
            nursery.start_soon(slow.send, begin, *requests)
            await eventually(lambda: budget().waiting > _output.OUTPUT_BACKLOG)
            for _ in range(20):
                assert await other.call("n_echo", text="fine") == "fine"
            assert budget().waiting < 4 * _output.OUTPUT_BACKLOG
            nursery.start_soon(slow.read)
            for each in requests:
                assert "result" in await slow.answer_to(each)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_more_subscriptions_than_a_session_may_have_are_refused(version: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("n", notes())) as door:
        host = await door.connect(version)
        await host.result("tools/list")
        uris = [f"note:///{number}/lines" for number in range(_news.MAX_WATCHED + 1)]
        if version == LEGACY:
            for uri in uris[:-1]:
                await host.result("resources/subscribe", {"uri": uri})
            error = await host.error("resources/subscribe", {"uri": uris[-1]})
        else:
            await host.send(
                host.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris[:100]}})
            )
            await host.notice("notifications/subscriptions/acknowledged")
            wishes = {"notifications": {"resourceSubscriptions": uris[100:]}}
            error = await host.error("subscriptions/listen", wishes)
        assert outcome_of(error) == ("not_sent", "LimitExceeded")
        assert "too many subscriptions (200)" in error["message"]


async def test_of_subscriptions_that_come_at_once_no_more_are_made_than_a_session_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_news, "MAX_WATCHED", 3)
    async with gateway(tmp_path, in_process("n", notes())) as door:
        host = await door.connect()
        await host.result("tools/list")
        asked = [host.request("resources/subscribe", {"uri": f"note:///{number}/lines"}) for number in range(10)]
        await host.send(*asked)
        answers = [await host.answer_to(each) for each in asked]
        assert len([each for each in answers if "result" in each]) == 3


async def test_a_second_subscription_to_a_resource_does_not_succeed_while_the_first_one_fails(tmp_path: Path) -> None:
    gate = anyio.Event()

    async def subscribe(ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
        await gate.wait()
        raise MCPError(-32000, "not today")

    library = Library(on_subscribe_resource=subscribe)
    async with gateway(tmp_path, library.config(protocol="legacy")) as door:
        host = await door.connect()
        uri = (await host.result("resources/list"))["resources"][0]["uri"]
        asked = [host.request("resources/subscribe", {"uri": uri}) for _ in range(2)]
        await host.send(*asked)
        await wait_all_tasks_blocked()
        gate.set()
        answers = [await host.answer_to(each) for each in asked]
        assert [each["error"]["message"] for each in answers] == ["not today", "not today"]


async def test_log_levels_without_end_are_passed_on_one_after_the_other(tmp_path: Path) -> None:
    """The server gets the first one and, when it has answered, the one that counts then."""
    given: list[str] = []
    gate = anyio.Event()

    async def set_level(_: Any, params: SetLevelRequestParams) -> EmptyResult:
        given.append(params.level)
        await gate.wait()
        return EmptyResult()

    library = Library(on_set_logging_level=set_level)
    async with gateway(tmp_path, library.config(protocol="legacy")) as door:
        host = await door.connect()
        await host.result("tools/list")
        levels = [("debug", "error")[number % 2] for number in range(2000)]
        requests = [host.request("logging/setLevel", {"level": level}) for level in levels]
        await host.send(*requests)
        for each in requests:
            await host.answer_to(each)
        await wait_all_tasks_blocked()
        assert given == ["debug"] or given == ["error"]
        gate.set()
        await eventually(lambda: given[-1] == "error")
        assert len(given) <= 2


async def test_nothing_is_written_for_a_client_that_has_left(mock_clock: MockClock) -> None:
    """Its descriptors may be those of another client by then."""
    async with across_a_gap([]) as (host, _):
        connection = host.connection
        await host.stream.aclose()
        await until(lambda: not connection._gateway.sessions)
        one, other = socket.socketpair()
        with one, other:
            connection._writes = one.fileno()
            connection.session.notify("notifications/progress", {})
            await wait_all_tasks_blocked()
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(1)


@pytest.mark.usefixtures("programs_in_forks")
async def test_a_forged_not_sent_behind_two_gateways_repeats_nothing(tmp_path: Path) -> None:
    """The error of a server passes both gateways without the mark, and each call is in the ledger once."""
    ledger = tmp_path / "ledger"
    inner = write_file(tmp_path, a=("--log-file", str(ledger), "--forge-not-sent"))
    words = ("-m", "mcp_actors", "serve", "--config", str(inner), "--stdio")
    config = ServerConfig("b", Stdio(sys.executable, words, env={"PYTHONPATH": str(ROOT)}), connect_timeout=BOUND)
    async with gateway(tmp_path, config) as door:
        host = await door.connect()
        while not (await host.result("tools/list"))["tools"]:  # noqa: ASYNC110 - the inner one may take its time
            await trio.sleep(0.05)
        for _ in range(3):
            error = await host.error("tools/call", {"name": "b_a_add", "arguments": {"a": 1, "b": 2}})
            assert error == {"code": -32000, "message": "not sent", "data": {}}
    assert ledger.read_text().splitlines().count("tools/call add") == 3


async def test_a_subscription_to_a_long_uri_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("n", notes())) as door:
        host, uri = await door.connect(MODERN), f"note:///{'x' * _news.MAX_URI}/lines"
        error = await host.error("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
        assert outcome_of(error) == ("not_sent", "LimitExceeded")
        assert f"at most {_news.MAX_URI} characters" in error["message"]
        assert await host.call("n_echo", text="x") == "x"
