"""The control socket of a daemon: what it answers, and what a peer that misbehaves can do to it (nothing)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ServerConfig, ServerGroup, Stdio, open_servers
from mcp_actors.gateway import _control
from mcp_actors.gateway._control import (
    MAX_CONTROL_CONNECTIONS,
    MAX_REQUEST,
    PEER_SECONDS,
    SEPARATOR,
    read_request,
    serve_control,
)
from mcp_actors.gateway._front import Front
from mcp_actors.gateway._listen import KeptSocket

from ..forkserver import run_python
from ..servers.houses import House, absent
from ..servers.scripted_server import command

FILE = "/home/me/mcp.json"
DONE = {"done": True}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users may enter, and whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


class Daemon:
    """The control socket of a group in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked_to_stop = trio.Event()

    async def connect(self) -> trio.SocketStream:
        return await trio.open_unix_socket(str(self.path))

    async def ask(self, do: str, *servers: str, file: str = FILE) -> list[dict[str, Any]]:
        """Send a request, and return all lines but those that only say what is waited for."""
        lines = await self.say(json.dumps({"do": do, "file": file, "servers": servers}).encode() + b"\n")
        return [line for line in lines if "waiting" not in line]

    async def say(self, data: bytes) -> list[dict[str, Any]]:
        async with await self.connect() as stream:
            await stream.send_all(data)
            return await received(stream)


async def received(stream: trio.SocketStream) -> list[dict[str, Any]]:
    """Return the lines of an answer until the connection ends."""
    data = b""
    try:
        while piece := await stream.receive_some():
            data += piece
    except trio.BrokenResourceError:
        pass  # it was closed before all of the request was read
    return [json.loads(line) for line in data.splitlines()]


@asynccontextmanager
async def serving(place: Path, *configs: Any, reload: Any = None) -> AsyncIterator[tuple[ServerGroup, Daemon]]:
    daemon = Daemon(place / "n.ctl")
    with closing(KeptSocket(str(daemon.path))) as acceptor:
        async with trio.open_nursery() as nursery:
            async with open_servers(*configs) as group:
                serve = partial(serve_control, file=FILE, stop=daemon.asked_to_stop.set, reload=reload)
                nursery.start_soon(serve, Front(group, "{tool}"), acceptor)
                yield group, daemon
            nursery.cancel_scope.cancel("the test is done")


class TestRequests:
    async def test_status_has_the_fields_that_health_has(self, place: Path) -> None:
        async with serving(place, House("a").config(), House("b").config()) as (group, daemon):
            [answer, done] = await daemon.ask("status")
            [one, _] = await daemon.ask("status", "b")
        status = answer["status"]
        assert (status["file"], status["pid"], status["ready"], done) == (FILE, os.getpid(), True, DONE)
        assert status["servers"]["a"]["state"] == "ready"
        assert status["servers"].keys() == group.keys()
        assert [*one["status"]["servers"]] == ["b"]

    async def test_a_restart_is_answered_server_by_server(self, place: Path) -> None:
        a, b = House("a"), House("b")
        async with serving(place, a.config(), b.config()) as (_, daemon):
            *lines, done = await daemon.ask("restart")
            assert sorted(line["server"] for line in lines) == ["a", "b"]
            assert {(line["state"], line["error"]) for line in lines} == {("ready", None)}
            assert done == DONE
            assert (a.starts, b.starts) == (2, 2)
            assert await daemon.ask("restart", "b") == [{"server": "b", "state": "ready", "error": None}, DONE]
            assert (a.starts, b.starts) == (2, 3)

    async def test_servers_are_stopped_and_started(self, place: Path) -> None:
        async with serving(place, House("a").config(), absent("gone")) as (group, daemon):
            assert await daemon.ask("stop", "a") == [{"server": "a", "state": "stopped", "error": None}, DONE]
            assert group["a"].state == "stopped"
            assert await daemon.ask("start", "a") == [{"server": "a", "state": "ready", "error": None}, DONE]
            [line, _] = await daemon.ask("restart", "gone")
            assert line["state"] == "failed"
            assert "not found" in line["error"]

    async def test_a_required_server_that_fails_is_an_error_of_its_line_only(self, place: Path) -> None:
        program, args = command()
        script = place / "server"
        script.write_text(f"#!/bin/sh\nexec {join([program, *args])}\n")
        script.chmod(0o700)
        a = ServerConfig("a", Stdio(str(script)), protocol="legacy", required=True)
        async with serving(place, a, House("b").config()) as (_, daemon):
            script.unlink()
            *lines, done = await daemon.ask("restart")
        assert {line["server"]: line["error"] is None for line in lines} == {"a": False, "b": True}
        assert done == DONE

    async def test_reload_says_what_has_changed(self, place: Path) -> None:
        file = place / "servers.json"
        program, args = command()
        entry = {"command": program, "args": args, "mcp_actors": {"connect": "lazy"}}
        file.write_text(json.dumps({"mcpServers": {"a": entry, "b": entry}}))
        async with serving(place, str(file)) as (group, daemon):
            file.write_text(json.dumps({"mcpServers": {"a": entry, "c": entry, "bad": {}}}))
            [answer, done] = await daemon.ask("reload")
            assert [*group] == ["a", "c"]
            file.write_text("{")
            [refused, _] = await daemon.ask("reload")
        reloaded = answer["reload"]
        assert (reloaded["added"], reloaded["removed"], reloaded["unchanged"], done) == (["c"], ["b"], ["a"], DONE)
        assert "neither 'command' nor 'url'" in reloaded["failed"]["bad"]
        assert "not valid JSON" in refused["error"]

    async def test_a_daemon_may_read_its_file_in_its_own_way(self, place: Path) -> None:
        async def read_again() -> Any:
            raise OSError("the file is gone")

        async with serving(place, House("a").config(), reload=read_again) as (group, daemon):
            assert await daemon.ask("reload") == [{"error": "the file is gone"}, DONE]
            assert group["a"].state == "ready"

    async def test_logs_are_the_stderr_of_the_servers(self, place: Path) -> None:
        loud = ServerConfig("loud", Stdio(*command("--stderr", "warming up")), protocol="legacy")
        async with serving(place, loud) as (_, daemon):
            assert await daemon.ask("logs") == [{"server": "loud", "stderr": "warming up"}, DONE]

    async def test_logs_have_the_last_lines_of_the_processes_before(self, place: Path) -> None:
        """D-34: those of three at most, and of each in 4 KiB."""
        loud = ServerConfig("loud", Stdio(*command("--stderr", "x" * 5000)), protocol="legacy")
        async with serving(place, loud) as (group, daemon):
            for _ in range(5):
                await group["loud"].restart()
            [logs, _] = await daemon.ask("logs", "loud")
            assert logs["stderr"].split(f"\n{SEPARATOR}\n") == [*["x" * 4096] * 3, "x" * 5000]
            assert group["loud"].stderr_tail == "x" * 5000

    async def test_stop_without_a_server_ends_the_daemon_and_the_connection_with_it(self, place: Path) -> None:
        lines = list[Any]()
        async with trio.open_nursery() as nursery, serving(place, House("a").config()) as (_, daemon):

            async def ask() -> None:
                lines.append(await daemon.ask("stop"))

            nursery.start_soon(ask)
            await daemon.asked_to_stop.wait()
            await wait_all_tasks_blocked()
            assert lines == []
        assert lines == [[]]

    async def test_a_slow_change_says_each_second_what_it_waits_for(
        self, place: Path, autojump_clock: MockClock
    ) -> None:
        a = House("a")
        async with serving(place, a.config()) as (_, daemon), trio.open_nursery() as nursery:
            a.entered = trio.Event()

            async def open_later() -> None:
                await trio.sleep(3.5)
                a.entered.set()

            nursery.start_soon(open_later)
            request = {"do": "restart", "file": FILE, "servers": ["a"]}
            lines = await daemon.say(json.dumps(request).encode() + b"\n")
        assert lines[:3] == [{"waiting": ["a"]}] * 3
        assert lines[-2:] == [{"server": "a", "state": "ready", "error": None}, DONE]

    async def test_the_restart_goes_on_when_its_caller_has_left(self, place: Path, autojump_clock: MockClock) -> None:
        a = House("a")
        async with serving(place, a.config()) as (group, daemon):
            a.entered = trio.Event()
            async with await daemon.connect() as stream:
                await stream.send_all(json.dumps({"do": "restart", "file": FILE, "servers": ["a"]}).encode() + b"\n")
                await group["a"].wait_state("connecting")
            await trio.sleep(2.5)  # until a write to it fails
            a.entered.set()
            await group.wait_ready("a")
        assert a.starts == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            (b"", "not a request of at most 64 KiB"),
            (b"status", "not a request"),
            (b"\xff\xfe", "not a request"),
            (b"[" * 60_000, "not a request"),
            (b"[]", "not a request"),
            (b'{"do": "explode", "file": "/x", "servers": []}', "one of status, logs, restart, stop, start, reload"),
            (b'{"do": ["status"], "file": "/x", "servers": []}', "not a request"),
            (b'{"do": "status"}', "not a request"),
            (b'{"do": "stop", "file": "/x", "servers": "a"}', "not a request"),
            (b'{"do": "stop", "file": "/x", "servers": [1]}', "not a request"),
            (b" " * (MAX_REQUEST + 1), "at most 64 KiB"),
        ],
    )
    def test_a_line_that_is_not_a_request_is_refused_with_a_sentence(self, line: bytes, problem: str) -> None:
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is checked below
            read_request(line)
        assert problem in str(caught.value)

    async def test_a_refusal_is_the_answer(self, place: Path) -> None:
        async with serving(place, House("a").config()) as (_, daemon):
            for line in (b"nonsense\n", b"x" * MAX_REQUEST + b"\n"):
                [refused, done] = await daemon.say(line)
                assert refused["error"].startswith("not a request of at most 64 KiB")
                assert done == DONE
            [refused, done] = await daemon.ask("stop", "b")
            assert refused["error"] == "server 'b' not found in this group; its servers are: a"

    async def test_the_daemon_of_another_file_says_so_before_it_looks_at_the_names(self, place: Path) -> None:
        async with serving(place, House("a").config()) as (_, daemon):
            assert await daemon.ask("stop", "b", file="/other.json") == [{"other": True}]
            assert not daemon.asked_to_stop.is_set()


class TestPeersThatMisbehave:
    async def test_a_request_has_to_come_within_seconds(self, place: Path, autojump_clock: MockClock) -> None:
        async with serving(place, House("a").config()) as (_, daemon), await daemon.connect() as stream:
            began = trio.current_time()
            await stream.send_all(b'{"do":')
            assert await received(stream) == []
            assert PEER_SECONDS <= trio.current_time() - began < PEER_SECONDS + 1
            assert (await daemon.ask("status"))[-1] == DONE

    async def test_a_request_that_never_ends_is_cut_off(self, place: Path) -> None:
        async with serving(place, House("a").config()) as (_, daemon):
            async with await daemon.connect() as stream, trio.open_nursery() as nursery:

                async def flood() -> None:
                    with suppress(trio.BrokenResourceError):
                        while True:
                            await stream.send_all(b"x" * 65536)

                nursery.start_soon(flood)
                lines = await received(stream)
            assert "at most 64 KiB" in lines[0]["error"]
            assert (await daemon.ask("status"))[-1] == DONE

    async def test_a_peer_that_does_not_read_is_disconnected(
        self, place: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_control, "status", lambda group: {"servers": {"a": {}}, "padding": "x" * 4_000_000})
        async with serving(place, House("a").config()) as (_, daemon), await daemon.connect() as stream:
            await stream.send_all(json.dumps({"do": "status", "file": FILE, "servers": []}).encode() + b"\n")
            await trio.sleep(PEER_SECONDS + 1)
            data = b""
            while piece := await stream.receive_some():
                data += piece
            assert 0 < len(data) < 4_000_000

    async def test_connections_beyond_the_limit_are_refused_and_the_others_are_served(
        self, place: Path, autojump_clock: MockClock
    ) -> None:
        async with serving(place, House("a").config()) as (_, daemon):
            silent = [await daemon.connect() for _ in range(MAX_CONTROL_CONNECTIONS - 1)]
            assert (await daemon.ask("status"))[-1] == DONE
            silent.append(await daemon.connect())
            await wait_all_tasks_blocked()  # else the next connection may be served before this one
            [refused, _] = await daemon.ask("status")
            assert refused["error"].startswith("16 commands are waiting for the daemon already")
            for stream in silent:
                assert await received(stream) == []
                await stream.aclose()
            assert (await daemon.ask("status"))[-1] == DONE

    async def test_a_peer_that_hangs_up_leaves_nothing(self, place: Path) -> None:
        async with serving(place, House("a").config()) as (_, daemon):
            for data in (b"", b'{"do"', json.dumps({"do": "restart", "file": FILE, "servers": []}).encode() + b"\n"):
                for _ in range(2 * MAX_CONTROL_CONNECTIONS):
                    async with await daemon.connect() as stream:
                        await stream.send_all(data)
            await wait_all_tasks_blocked()
            assert (await daemon.ask("status"))[-1] == DONE

    async def test_an_error_in_a_request_is_logged_and_ends_only_its_connection(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(group: object) -> None:
            raise ZeroDivisionError

        async with serving(place, House("a").config()) as (_, daemon):
            with monkeypatch.context() as patch:
                patch.setattr(_control, "status", fail)
                assert await daemon.ask("status") == []
            assert (await daemon.ask("status"))[-1] == DONE
        [record] = [each for each in caplog.records if each.name == "mcp_actors.gateway"]
        assert record.getMessage() == "control socket: a request failed"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
    async def test_a_process_of_another_user_is_disconnected(
        self, place: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving(place, House("a").config()) as (_, daemon):
            daemon.path.chmod(0o666)
            code = (
                "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                "print(s.recv(9))"
            )
            done = await trio.to_thread.run_sync(
                partial(run_python, "-c", code, str(daemon.path), cwd=place, timeout=60)
            )
            assert (done.stdout, done.stderr) == ("b''\n", "")
            assert (await daemon.ask("status"))[-1] == DONE
        assert "a process of another user was disconnected" in caplog.text
