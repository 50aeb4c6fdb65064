"""Protections of the doors of a gateway, each of which a test must miss when it is taken away."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.gateway._daemon import DIRECTORY
from mcp_actors.gateway._network import MAX_UNPROVEN
from mcp_actors.gateway.http._door import PROBE_SECONDS
from mcp_actors.gateway.http._page import Page, Problem, add_page

from ...forkserver import run_python
from ...servers.groups import server
from ..hosts import BOUND, gateway, in_process, notes
from ..test_network import door
from .doors import TOKEN, open_house

TOKENS: Final = {"ann": TOKEN, "bob": "token-of-bob-12345"}


async def reload() -> None: ...


@pytest.mark.parametrize("tokens", [TOKENS, {"ann": TOKEN}])
async def test_the_page_does_not_change_a_server_that_several_identities_share(tokens: dict[str, str]) -> None:
    """D-55: an identity may call it. A person alone may do all."""
    shared = in_process("notes", notes())
    async with open_house(shared, tokens=tokens) as house:
        add_page(house.door, "mcp.json", reload)
        pages: Any = house.door.on_tokens
        page: Page = pages.__self__._pages["ann"]
        with trio.fail_after(BOUND):
            await house.group["notes"].wait_state("ready")
        incarnation = house.group["notes"].statistics().incarnation
        called = await page.act({"do": "call", "server": "notes", "tool": "echo", "arguments": {"text": "x"}})
        assert called["text"] == "x"
        for action in ("stop", "start", "restart", "approve"):
            wish = {"do": action, "server": "notes", "number": 1}
            if len(tokens) > 1:
                with pytest.raises(Problem, match="shared by several identities"):
                    await page.act(wish)
            elif action != "approve":
                await page.act(wish)
        if len(tokens) > 1:
            with pytest.raises(Problem):
                await page.act({"do": "reload"})
        status = house.group["notes"].statistics()
        assert (status.state, status.incarnation == incarnation) == ("ready", len(tokens) > 1)


async def test_connections_that_have_not_proven_the_secret_are_bounded(tmp_path: Path, mock_clock: MockClock) -> None:
    """D-55: at any time, before their time for it is over. No time passes on this clock."""
    more, closed = 10, 0

    async def read(stream: trio.SocketStream) -> None:
        nonlocal closed
        async with stream:
            with suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
        closed += 1

    async with door(tmp_path, in_process("notes", notes())) as served, trio.open_nursery() as nursery:
        host, _, port = served.address.partition(":")
        streams = [await trio.open_tcp_stream(host, int(port)) for _ in range(MAX_UNPROVEN + more)]
        for stream in streams:
            nursery.start_soon(read, stream)
        for _ in range(1000):
            await wait_all_tasks_blocked()
            if closed == more:
                break
        assert closed == more
        nursery.cancel_scope.cancel()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
async def test_the_door_of_a_socket_refuses_a_process_of_another_user(caplog: pytest.LogCaptureFixture) -> None:
    """D-55: also if it can reach the socket, as where a folder is given away by mistake."""
    code = (
        "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(30)\nos.setuid(65534)\n"
        's.connect(sys.argv[1])\ntry:\n    s.send(b\'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n\')\n'
        "    print(s.recv(9))\nexcept OSError as error:\n    print(b'')"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        await check_another_user(Path(folder), code, caplog)


async def check_another_user(folder: Path, code: str, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(folder, in_process("notes", notes())) as served:
        os.chmod(served.path, 0o666)
        running = partial(run_python, "-c", code, served.path, cwd=Path("/"), timeout=BOUND)
        done = await trio.to_thread.run_sync(running)
        assert (done.stdout, done.stderr) == ("b''\n", "")
        assert "is refused: it is a process of another user" in caplog.text
        assert await (await served.connect()).call("notes_echo", text="fine") == "fine"


async def test_a_working_directory_is_not_taken_over_http(tmp_path: Path) -> None:
    """D-55: the client may be on another machine, or be a page."""
    async with open_house(per_session=[server("own")]) as house:
        session = await house.begin()
        await session.notify(DIRECTORY, {"path": str(tmp_path)})
        for _ in range(2):
            called = await session.ask("tools/call", {"name": "own_pid", "arguments": {}})
            pid = called.json["result"]["content"][0]["text"]
            assert os.readlink(f"/proc/{pid}/cwd") == os.getcwd()
            await session.notify(DIRECTORY, {"path": str(tmp_path)})


@pytest.mark.parametrize(("asked", "longest"), [([], 0), ([0], 0), ([0, 11], 0), ([11, 0], 0), ([6, 6], PROBE_SECONDS)])
async def test_the_end_waits_for_a_balancer_and_for_no_other_who_asks(
    asked: Sequence[float], longest: float, autojump_clock: MockClock
) -> None:
    """D-55: a balancer asks again and again. One that does not do so at the end lengthens it by its time only."""
    async with open_house(in_process("notes", notes())) as house:
        peer = await house.connect()
        await peer.ask("tools/list")  # then it is ready
        for before in asked:
            assert (await peer.fetch("GET", "/readyz", token=None)).status == 200
            await trio.sleep(before)
        began = trio.current_time()
        with trio.move_on_after(10 * PROBE_SECONDS) as late:
            await house.door.drain()
        assert not late.cancelled_caught
        assert longest <= trio.current_time() - began < longest + PROBE_SECONDS
