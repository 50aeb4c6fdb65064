"""Servers that are processes: every test starts a real one."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from mcp import Client, MCPError
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification

from mcp_actors._errors import ConnectFailed, LimitExceeded
from mcp_actors.config import Secret, ServerConfig, Stdio
from mcp_actors.servers import _process
from mcp_actors.servers._link import Link, open_link
from mcp_actors.servers._obituary import Obituary
from mcp_actors.servers._pipes import BACKLOG_BYTES, PipeReader, PipeWriter
from mcp_actors.servers._stdio import StdioLink

from .links import MARGIN, never_lost, open_session, scripted, text_of, wait_for_line
from .processes import child_pids, group_members, state_of, wait_ended
from .scripted_server import command


def shell(script: str, **options: Any) -> ServerConfig:
    """Configure a server that is a shell script, for what a server in Python cannot do."""
    return ServerConfig("shell", Stdio("/bin/sh", ("-c", script), **options), stop_timeout=0.5)


def notification(text: str) -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="test", params={"text": text}))


async def streams_of(link: Link) -> tuple[PipeReader, PipeWriter]:
    """Return the bare streams of a link, without a session on top."""
    assert isinstance(link, StdioLink)
    reader, writer = await link.target.__aenter__()
    assert isinstance(reader, PipeReader)
    assert isinstance(writer, PipeWriter)
    return reader, writer


# --- Serving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_session_on_a_link_lists_and_calls_tools(mode: str) -> None:
    async with open_link(scripted("--tools", "2"), on_lost=never_lost) as link, open_session(link, mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[-2:] == ["tool_0", "tool_1"]
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert text_of(await client.call_tool("pid")) == str(link.pid)


async def test_a_sleeping_call_holds_up_no_other() -> None:
    async with open_link(scripted(), on_lost=never_lost) as link, open_session(link) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "sleep", {"seconds": 60})
            await trio.testing.wait_all_tasks_blocked()
            assert text_of(await client.call_tool("echo", {"text": "first"})) == "first"
            nursery.cancel_scope.cancel("the other call was answered")


async def test_the_server_hears_of_a_cancelled_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_link(scripted("--log-file", str(log)), on_lost=never_lost) as link, open_session(link) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "sleep", {"seconds": 60})
            await wait_for_line(log, "tools/call sleep")
            nursery.cancel_scope.cancel("the server has the call")
        assert text_of(await client.call_tool("echo", {"text": "still there"})) == "still there"
    assert any(line.startswith("notifications/cancelled") for line in log.read_text().splitlines())


@pytest.mark.parametrize("size", [100, 70_000, 3_000_000])
async def test_messages_of_any_size_pass_both_ways(size: int) -> None:
    text = "ä" * size
    async with open_link(scripted(), on_lost=never_lost) as link, open_session(link) as client:
        assert text_of(await client.call_tool("echo", {"text": text})) == text


async def test_an_exception_of_the_block_leaves_as_itself() -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_link(scripted(), on_lost=never_lost):
            raise error
    assert caught.value is error
    assert error.__context__ is None


async def test_a_group_that_the_block_raises_leaves_as_it_is() -> None:
    group = ExceptionGroup("mine", [ValueError("one of one")])
    with pytest.raises(ExceptionGroup) as caught:
        async with open_link(scripted(), on_lost=never_lost):
            raise group
    assert caught.value is group


# --- The environment ------------------------------------------------------------------------------------------------


async def test_the_server_sees_the_allow_list_and_what_is_configured_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "AWS_SECRET_ACCESS_KEY", "PASSED", "LANG"):
        monkeypatch.setenv(name, os.defpath)
    config = scripted(env={"TOKEN": Secret("s3cret")}, env_from=["PASSED", "NOT_SET"])
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        names = set(text_of(await client.call_tool("environment")).split())
        assert text_of(await client.call_tool("env", {"name": "TOKEN"})) == "s3cret"
    # LC_CTYPE is set by Python itself when no locale is.
    assert names - {"LC_CTYPE"} == {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "PASSED", "TOKEN"}


async def test_credentials_are_resolved_anew_at_each_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    config = scripted(env={"TOKEN": "Bearer ${ROTATING}"})
    for value in ("first", "second"):
        monkeypatch.setenv("ROTATING", value)
        async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
            assert text_of(await client.call_tool("env", {"name": "TOKEN"})) == f"Bearer {value}"


# --- What is wrong before there is a process ------------------------------------------------------------------------


async def refusal(config: ServerConfig) -> ConnectFailed:
    before = child_pids()
    with pytest.raises(ConnectFailed) as caught:
        async with open_link(config, on_lost=never_lost):
            pytest.fail("it opened")
    assert child_pids() == before
    return caught.value


def github(command: str, *args: str, **options: str) -> ServerConfig:
    return ServerConfig("github", Stdio(command, args, cwd=options.pop("cwd", None), env=options))


async def test_a_command_that_does_not_exist_is_named() -> None:
    """S2-09."""
    error = await refusal(github("no-such-command"))
    assert str(error) == "server 'github': command 'no-such-command' not found; install it or set an absolute path"
    assert (error.server, error.phase, error.hopeless) == ("github", "open", True)


async def test_a_command_is_looked_up_on_the_path_that_the_server_gets(tmp_path: Path) -> None:
    """S2-09."""
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho '{}'; exec sleep 60\n")
    program.chmod(0o755)
    config = ServerConfig(
        "s", Stdio("only-here", env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}), stop_timeout=0.5
    )
    async with open_link(config, on_lost=never_lost):
        pass
    error = await refusal(github("sh", PATH=str(tmp_path)))
    assert "command 'sh' not found" in str(error)


async def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    error = await refusal(github("bin/server", cwd=str(tmp_path)))
    expected = f"command 'bin/server' not found: {str(tmp_path / 'bin/server')!r} does not exist; correct the path"
    assert str(error) == f"server 'github': {expected}"
    assert error.hopeless


@pytest.mark.parametrize("on_path", [True, False])
async def test_a_command_that_is_not_executable_says_what_to_do(tmp_path: Path, on_path: bool) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    config = github("server", PATH=str(tmp_path)) if on_path else github(str(program))
    error = await refusal(config)
    assert "is not executable; try: chmod +x " + str(program) in str(error)
    assert (error.phase, error.hopeless) == ("open", True)


async def test_a_directory_is_no_command(tmp_path: Path) -> None:
    error = await refusal(github(str(tmp_path)))
    assert "is a directory; name the program in it" in str(error)
    assert error.hopeless


async def test_a_missing_working_directory_is_not_taken_for_a_missing_command(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    error = await refusal(github(sys.executable, cwd=missing))
    assert str(error) == f"server 'github': working directory {missing!r} does not exist; create it or correct cwd"
    assert error.hopeless


async def test_a_working_directory_that_is_a_file_is_refused() -> None:
    assert "is not a directory" in str(await refusal(github(sys.executable, cwd=__file__)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"#!/no/such/interpreter\n", "the interpreter that its first line ('#!…') names does not exist"),
        (b"\x7fELF of another world", "it is no program this system can run"),
    ],
)
async def test_a_program_that_cannot_run_here_says_why(tmp_path: Path, content: bytes, problem: str) -> None:
    program = tmp_path / "server"
    program.write_bytes(content)
    program.chmod(0o755)
    error = await refusal(github(str(program)))
    assert problem in str(error)
    assert isinstance(error.__cause__, OSError)
    assert error.hopeless


async def test_arguments_that_no_process_can_have_are_hopeless() -> None:
    error = await refusal(github("sh", "x" * 200_000))
    assert "cannot be started: Argument list too long" in str(error)
    assert error.hopeless
    error = await refusal(github("sh", "\ud800"))
    assert "correct its arguments or env" in str(error)


async def test_trouble_that_may_pass_is_not_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_process(*args: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(trio.lowlevel, "open_process", open_process)
    error = await refusal(github("sh"))
    assert "Resource temporarily unavailable" in str(error)
    assert not error.hopeless


async def test_a_variable_that_is_not_set_is_named_and_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    error = await refusal(github("sh", TOKEN="${NO_SUCH_TOKEN}"))
    assert "servers.github.env.TOKEN: environment variable 'NO_SUCH_TOKEN' is not set" in str(error)
    assert (error.phase, error.hopeless) == ("configure", True)


async def test_a_function_that_fails_to_give_a_credential_may_know_better_next_time() -> None:
    async def token() -> str:
        raise OSError("the vault does not answer: s3cret")

    error = await refusal(ServerConfig("github", Stdio("sh", env={"TOKEN": token})))
    assert (error.phase, error.hopeless) == ("configure", False)
    assert "OSError" in str(error)
    assert "s3cret" not in str(error)


# --- The end of the connection --------------------------------------------------------------------------------------


async def test_the_death_of_an_idle_server_is_noticed_without_traffic() -> None:
    """A-07, S3-17."""
    lost = trio.Event()
    async with open_link(scripted(), on_lost=lost.set) as link, open_session(link):
        assert link.pid is not None
        os.kill(link.pid, signal.SIGKILL)
        with trio.fail_after(1):
            await lost.wait()
        assert link.lost
        assert (await link.wait_obituary()).exit_code == -signal.SIGKILL


async def test_pending_requests_fail_when_the_server_dies() -> None:
    """A-03."""
    lost = trio.Event()
    failed: list[int] = []

    async def call(client: Client) -> None:
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("sleep", {"seconds": 60})
        failed.append(1)

    with trio.fail_after(5):
        async with open_link(scripted(), on_lost=lost.set) as link, open_session(link) as client:
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(call, client)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(MCPError, match="Connection closed"):
                    await client.call_tool("crash", {"code": 7})
            assert lost.is_set()
            assert (await link.wait_obituary()).exit_code == 7
    assert len(failed) == 10


async def test_a_server_that_ends_at_once_leaves_its_exit_code_and_its_last_words() -> None:
    lost = trio.Event()
    text = "no such database: ./data.db\n"
    async with open_link(scripted("--exit-at-start", "3", "--stderr", text), on_lost=lost.set) as link:
        with pytest.raises(MCPError):
            async with open_session(link):
                pytest.fail("it connected")
        assert lost.is_set()
        obituary = await link.wait_obituary()
        assert obituary == Obituary(3, "no such database: ./data.db")
        assert link.obituary() == obituary
    assert link.obituary() == obituary


async def test_the_last_words_are_there_even_if_nobody_asked_before_the_link_was_left() -> None:
    lost = trio.Event()
    async with open_link(scripted("--exit-at-start", "3", "--stderr", "gone"), on_lost=lost.set) as link:
        with pytest.raises(MCPError):
            async with open_session(link):
                pytest.fail("it connected")
    assert link.obituary() == Obituary(3, "gone")


async def test_a_server_that_only_closes_its_stdout_has_lost_the_connection_and_is_ended() -> None:
    """A-07."""
    lost = trio.Event()
    async with open_link(scripted("--close-stdout", "--ignore-eof", stop_timeout=0.5), on_lost=lost.set) as link:
        async with open_session(link) as client:
            with pytest.raises(MCPError, match="Connection closed"):
                await client.call_tool("echo", {"text": "?"})
        assert lost.is_set()
        assert link.pid is not None
        assert (await link.wait_obituary()).exit_code is None
        assert state_of(link.pid) == "running"
    assert state_of(link.pid) == "gone"
    # What ended it was our signal, and that is nothing to report.
    assert link.obituary().exit_code is None


async def test_a_write_to_a_server_that_closed_its_stdin_loses_the_connection() -> None:
    lost = trio.Event()
    async with open_link(shell("exec <&-; echo '{}'; exec sleep 60"), on_lost=lost.set) as link:
        reader, writer = await streams_of(link)
        with trio.move_on_after(5), pytest.raises(anyio.BrokenResourceError):
            while True:
                await writer.send(notification("is anyone there?"))
                await trio.lowlevel.checkpoint()
        assert lost.is_set()
        assert link.lost
        assert link.failure is None
        with pytest.raises(anyio.BrokenResourceError):
            await writer.send(notification("and now?"))


async def test_a_write_behind_a_full_pipe_notices_the_end_too() -> None:
    lost = trio.Event()
    async with open_link(shell("exec sleep 60"), on_lost=lost.set) as link:
        _, writer = await streams_of(link)
        await writer.send(notification("x" * 200_000))
        assert not lost.is_set()
        assert link.pid is not None
        os.kill(link.pid, signal.SIGKILL)
        with trio.fail_after(1):
            await lost.wait()


async def test_closing_is_no_loss(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_link(scripted("--log-file", str(log)), on_lost=never_lost) as link:
        async with open_session(link):
            pass
        reader, writer = await streams_of(link)
        for use in (reader.receive, lambda: writer.send(notification("late"))):
            with pytest.raises(anyio.ClosedResourceError):
                await use()
    assert not link.lost
    assert log.read_text().splitlines()[-1] == "eof"
    assert link.obituary().exit_code is None
    assert "closed" in repr(link)


async def test_a_wrapper_that_dies_while_its_server_serves_loses_nothing() -> None:
    program, args = command()
    # The leader ends once its child runs. A background job of a shell has no stdin unless it is handed over so.
    wrapper = ("-c", 'exec 3<&0; "$@" <&3 3<&- & exit 0', "sh", program, *args)
    config = ServerConfig("wrapped", Stdio("/bin/sh", wrapper))
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        assert link.pid is not None
        server = int(text_of(await client.call_tool("pid")))
        assert server != link.pid
        await wait_ended([link.pid], within=5)
        assert text_of(await client.call_tool("echo", {"text": "serving"})) == "serving"
    assert state_of(link.pid) == "gone"
    await wait_ended([server], within=1)


# --- What a server may write ----------------------------------------------------------------------------------------


async def test_lines_that_are_no_messages_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """S2-11, A-23."""
    async with open_link(scripted("--garbage"), on_lost=never_lost) as link, open_session(link) as client:
        assert text_of(await client.call_tool("echo", {"text": "fine"})) == "fine"
        assert link.malformed_lines == 5
    skipped = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert len(skipped) == 5
    assert "'scripted'" in skipped[0]
    assert "Welcome to the scripted server!" in skipped[0]


async def test_an_invalid_byte_costs_its_line_and_nothing_else() -> None:
    async with open_link(scripted(), on_lost=never_lost) as link, open_session(link) as client:
        await client.call_tool("print_raw", {"text": '{"jsonrpc": "2.0", "method": "x\xff"}'})
        assert link.malformed_lines == 1
        assert text_of(await client.call_tool("echo", {"text": "fine"})) == "fine"


async def test_a_server_that_logs_to_stdout_does_not_fill_our_log(caplog: pytest.LogCaptureFixture) -> None:
    async with open_link(scripted(), on_lost=never_lost) as link, open_session(link) as client:
        await client.call_tool("print_raw", {"text": "noise\n" * 1000})
        assert link.malformed_lines == 1000
    assert sum("skipped" in record.getMessage() for record in caplog.records if record.levelno >= logging.INFO) == 10


async def test_a_line_over_the_limit_ends_the_connection_and_says_so() -> None:
    lost = trio.Event()
    async with open_link(scripted(max_line_bytes=100_000), on_lost=lost.set) as link, open_session(link) as client:
        assert len(text_of(await client.call_tool("echo", {"text": "x" * 90_000}))) == 90_000
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("echo", {"text": "x" * 110_000})
        assert lost.is_set()
        assert isinstance(link.failure, LimitExceeded)
        assert "server 'scripted': sent a line of more than 100000 bytes" in str(link.failure)


async def test_a_line_that_never_ends_ends_the_connection() -> None:
    lost = trio.Event()
    config = shell("while :; do printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", max_line_bytes=10_000)
    async with open_link(config, on_lost=lost.set) as link:
        reader, _ = await streams_of(link)
        with pytest.raises(anyio.EndOfStream), trio.fail_after(5):
            await reader.receive()
        assert isinstance(link.failure, LimitExceeded)
        with pytest.raises(anyio.EndOfStream):
            await reader.receive()


async def test_stderr_is_always_read_and_its_end_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcp_actors.servers.stderr")
    flags = ("--stderr", "begin\nsecond\n", "--stderr-flood", "1000000")
    async with open_link(scripted(*flags), on_lost=never_lost) as link, open_session(link) as client:
        assert text_of(await client.call_tool("echo", {"text": "not stuck"})) == "not stuck"
    tail = link.obituary().stderr_tail
    assert len(tail) == 65536
    assert set(tail) == {"x"}
    records = [record for record in caplog.records if record.name == "mcp_actors.servers.stderr"]
    assert [record.getMessage() for record in records[:2]] == ["scripted: begin", "scripted: second"]
    assert {record.__dict__["mcp_server"] for record in records} == {"scripted"}
    # What has no line breaks comes in pieces, and all of it.
    assert sum(len(record.getMessage()) - len("scripted: ") for record in records[2:]) == 1_000_000


# --- Writing --------------------------------------------------------------------------------------------------------


async def test_cancelled_senders_leave_whole_lines_in_a_full_pipe(tmp_path: Path) -> None:
    """Nothing cancelled leaves half a line: a server that reads on later understands all it reads."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    config = scripted("--never-read", str(gate), "--log-file", str(log))
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        # More than the pipe and the backlog hold: some are taken at once, some wait in the backlog, some for room.
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(client.call_tool, "echo", {"text": f"{number}:" + "x" * 50_000})
            await trio.testing.wait_all_tasks_blocked()
            # The courtesy notices of the SDK would wait for room for seconds; the gate opens before.
            nursery.cancel_scope.cancel("the pipe is full")
            gate.touch()
        with trio.fail_after(10):
            assert text_of(await client.call_tool("echo", {"text": "after"})) == "after"
    lines = log.read_text().splitlines()
    # A line that cannot be parsed would have ended the server.
    taken = lines.count("tools/call echo") - 1
    assert BACKLOG_BYTES / 50_000 <= taken < 60
    assert lines[-1] == "eof"


async def test_a_sender_that_waits_for_room_leaves_at_once_when_cancelled_and_when_the_link_closes() -> None:
    async with open_link(shell("exec sleep 60"), on_lost=never_lost) as link:
        _, writer = await streams_of(link)
        await writer.send(notification("x" * (BACKLOG_BYTES + 200_000)))
        with trio.move_on_after(0) as scope:
            await writer.send(notification("cancelled"))
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await writer.send(notification("no room"))

            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            await writer.aclose()


async def test_a_send_that_the_pipe_takes_at_once_does_not_yield_but_sees_a_cancellation_before() -> None:
    others_ran = trio.Event()

    async def other() -> None:
        others_ran.set()

    async with open_link(scripted(), on_lost=never_lost) as link:
        _, writer = await streams_of(link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await writer.send(notification("small"))
            assert not others_ran.is_set()
        with trio.CancelScope() as scope:
            scope.cancel("before it is sent")
            await writer.send(notification("never"))
        assert scope.cancelled_caught


async def test_a_server_that_always_has_something_to_say_lets_other_tasks_run() -> None:
    line = '{"jsonrpc":"2.0","method":"test"}'
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async with open_link(shell(f"while :; do echo '{line}'; done"), on_lost=never_lost) as link:
        reader, _ = await streams_of(link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            for _ in range(1000):
                await reader.receive()
            nursery.cancel_scope.cancel("enough")
    assert rounds >= 1000 / 16 - 1


# --- Leaving --------------------------------------------------------------------------------------------------------

MISBEHAVIORS = [
    (),
    ("--never-answer",),
    ("--ignore-sigterm",),
    ("--ignore-eof",),
    ("--ignore-eof", "--ignore-sigterm"),
    ("--spawn-grandchild",),
    ("--grandchild-keeps-stdout",),
    ("--grandchild-keeps-stdout", "--ignore-eof", "--ignore-sigterm"),
    ("--flood-at-eof",),
    ("--stderr-flood", "1000000"),
    ("--garbage", "--exit-at-start", "1"),
    ("--exit-at-start", "0", "--grandchild-keeps-stdout"),
    ("--start-delay", "60"),
]


@pytest.mark.parametrize("how", ["left", "failed", "cancelled"])
@pytest.mark.parametrize("flags", MISBEHAVIORS, ids=" ".join)
async def test_nothing_is_left_of_a_server_however_it_behaves_and_however_it_is_left(
    flags: tuple[str, ...], how: str, tmp_path: Path
) -> None:
    """S2-13, A-08, S4-21."""
    pid_file = tmp_path / "pids"
    before = child_pids()
    config = scripted(*flags, "--pid-file", str(pid_file), stop_timeout=1.0)
    left_at = float("inf")
    with trio.CancelScope() as scope:
        try:
            async with open_link(config, on_lost=lambda: None) as link:
                if "--start-delay" not in flags:
                    await wait_for_file(pid_file)
                left_at = trio.current_time()
                if how == "failed":
                    raise ValueError("the block failed")
                if how == "cancelled":
                    scope.cancel("the block was cancelled")
                    await trio.lowlevel.checkpoint()
        except ValueError:
            assert how == "failed"
    assert scope.cancelled_caught == (how == "cancelled")
    assert trio.current_time() - left_at < config.stop_timeout + MARGIN
    assert link.pid is not None
    assert state_of(link.pid) == "gone"
    assert child_pids() == before
    pids = [int(pid) for pid in pid_file.read_text().split()] if pid_file.exists() else []
    assert len(pids) == (0 if "--start-delay" in flags else 2 if "grandchild" in " ".join(flags) else 1)
    await wait_ended(pids, within=1)
    assert group_members(link.pid) == []


async def wait_for_file(path: Path) -> None:
    with trio.fail_after(5):
        while not path.exists() or not path.read_text().endswith("\n"):
            await trio.sleep(0.005)


async def test_a_polite_server_is_asked_once_and_leaves_in_no_time(tmp_path: Path) -> None:
    """S2-13."""
    log = tmp_path / "log"
    async with open_link(scripted("--log-file", str(log), stop_timeout=60.0), on_lost=never_lost) as link:
        async with open_session(link):
            pass
        left_at = trio.current_time()
    assert trio.current_time() - left_at < MARGIN
    assert log.read_text().splitlines()[-1] == "eof"


async def test_what_a_server_writes_at_the_end_of_its_input_does_not_hold_it_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = scripted("--flood-at-eof", "--log-file", str(log), stop_timeout=60.0)
    async with open_link(config, on_lost=never_lost) as link:
        async with open_session(link):
            pass
        left_at = trio.current_time()
    assert trio.current_time() - left_at < MARGIN
    assert log.read_text().splitlines()[-2:] == ["eof", "flooded"]


async def test_the_steps_of_a_stop_come_in_order_and_are_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """S2-13."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    log = tmp_path / "log"
    config = scripted("--ignore-eof", "--ignore-sigterm", "--log-file", str(log), stop_timeout=0.5)
    async with open_link(config, on_lost=never_lost) as link, open_session(link):
        pass
    assert "eof" in log.read_text().splitlines()
    assert [record.getMessage() for record in caplog.records if record.name == "mcp_actors.servers"] == [
        f"server 'scripted' (pid {link.pid}) stays at the end of its input; sending SIGTERM",
        f"server 'scripted' (pid {link.pid}) ignores SIGTERM; sending SIGKILL",
    ]


async def test_a_process_that_cannot_be_killed_is_reported_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_process, "REAP_FLOOR", 0.05)
    monkeypatch.setattr(os, "killpg", lambda pid, number: None)
    async with open_link(scripted("--ignore-eof", stop_timeout=0.2), on_lost=never_lost) as link, open_session(link):
        left_at = trio.current_time()
    assert trio.current_time() - left_at < 0.2 + MARGIN
    assert isinstance(link, StdioLink)
    assert f"process {link.pid} was killed but does not end; it is left behind" in caplog.text
    os.kill(link.pid, signal.SIGKILL)
    await link._process.wait()


async def test_a_cancellation_during_the_stop_neither_shortens_nor_lengthens_it(tmp_path: Path) -> None:
    """A-08, S1-07."""
    log = tmp_path / "log"
    config = scripted("--ignore-eof", "--ignore-sigterm", "--log-file", str(log), stop_timeout=0.5)
    links = []

    async def serve(scope: trio.CancelScope) -> None:
        with scope:
            async with open_link(config, on_lost=never_lost) as link, open_session(link):
                links.append(link)

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, scope)
        await wait_for_line(log, "eof")
        scope.cancel("while it is being stopped")
        cancelled_at = trio.current_time()
    assert trio.current_time() - cancelled_at < 0.5 + MARGIN
    assert state_of(links[0].pid) == "gone"


@pytest.mark.parametrize("steps", range(12))
async def test_a_start_that_is_cancelled_leaves_no_process(steps: int) -> None:
    """S4-19, S1-02."""
    before = child_pids()
    scope = trio.CancelScope()

    async def cancel_soon() -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        scope.cancel("while it starts")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_soon)
        with scope:
            async with open_link(scripted(), on_lost=never_lost):
                await trio.sleep_forever()
    assert scope.cancelled_caught
    assert child_pids() == before


def test_ctrl_c_ends_the_server_and_leaves_bare() -> None:
    """A-08."""
    pids = []

    async def main() -> None:
        async with open_link(scripted("--spawn-grandchild"), on_lost=never_lost) as link, open_session(link):
            pids.append(link.pid)
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        trio.run(main)
    assert [state_of(pid) for pid in pids] == ["gone"]


def test_ctrl_c_in_the_moment_after_the_start_of_the_process_does_not_leak_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A-08."""
    pids = []
    make: Callable[..., None] = _process.ServerProcess.__init__

    def interrupted(self: _process.ServerProcess, process: trio.Process, server: str) -> None:
        make(self, process, server)
        pids.append(self.pid)
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with open_link(scripted(), on_lost=never_lost):
            await trio.sleep_forever()

    monkeypatch.setattr(_process.ServerProcess, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert [state_of(pid) for pid in pids] == ["gone"]
