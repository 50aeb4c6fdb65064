"""Links to real processes, from opening to the end of the connection."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import trio
from mcp import MCPError

from mcp_actors.config import ServerConfig, Stdio
from mcp_actors.transports import Link, Obituary, open_link
from mcp_actors.transports.stdio._pipes import PipeWriter
from tests.idle_clock import IdleClock

from ..fleet import PROMPT
from ..groups import BOUND
from ..links import (
    Client,
    Messages,
    never_lost,
    notification,
    open_session,
    scripted,
    shell,
    streams_of,
    text_of,
    wait_for_line,
)
from ..processes import eventually, state_of, wait_ended
from ..scripted_server import command


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_session_on_a_link_lists_and_calls_tools(mode: str) -> None:
    async with open_link(scripted("--tools", "2"), on_lost=never_lost) as link, open_session(link, mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[-2:] == ["tool_0", "tool_1"]
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert text_of(await client.call_tool("pid")) == str(link.pid)


async def test_a_sleeping_call_does_not_delay_others() -> None:
    async with (
        open_link(scripted(), on_lost=never_lost) as link,
        open_session(link) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "sleep", {"seconds": 60})
        await trio.testing.wait_all_tasks_blocked()
        assert text_of(await client.call_tool("echo", {"text": "first"})) == "first"
        nursery.cancel_scope.cancel("the other call was answered")


async def test_the_server_is_notified_of_a_cancelled_call(tmp_path: Path) -> None:
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


async def test_an_exception_of_the_block_is_raised_unchanged() -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_link(scripted(), on_lost=never_lost):
            raise error
    assert caught.value is error
    assert error.__context__ is None


async def test_a_group_that_the_block_raises_is_raised_unchanged() -> None:
    group = ExceptionGroup("mine", [ValueError("one of one")])
    with pytest.raises(ExceptionGroup) as caught:
        async with open_link(scripted(), on_lost=never_lost):
            raise group
    assert caught.value is group


async def test_the_death_of_an_idle_server_is_noticed_without_traffic() -> None:
    """A-07, S3-17."""
    lost = trio.Event()
    async with open_link(scripted(), on_lost=lost.set) as link, open_session(link):
        assert link.pid is not None
        os.kill(link.pid, signal.SIGKILL)
        with trio.fail_after(PROMPT):
            await lost.wait()
        assert link.lifeline.lost
        assert (await link.wait_obituary()).exit_code == -signal.SIGKILL


async def test_pending_requests_fail_when_the_server_dies() -> None:
    """A-03."""
    lost = trio.Event()
    failed: list[int] = []

    async def call(client: Client) -> None:
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("sleep", {"seconds": 60})
        failed.append(1)

    with trio.fail_after(BOUND):
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


async def test_a_server_that_exits_at_once_has_its_exit_code_and_stderr_in_the_obituary() -> None:
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


async def test_the_obituary_is_complete_after_the_link_even_if_first_read_then() -> None:
    lost = trio.Event()
    async with open_link(scripted("--exit-at-start", "3", "--stderr", "gone"), on_lost=lost.set) as link:
        with pytest.raises(MCPError):
            async with open_session(link):
                pytest.fail("it connected")
    assert link.obituary() == Obituary(3, "gone")


async def test_the_obituary_of_a_live_server_is_returned_without_a_wait() -> None:
    async with open_link(scripted("--stderr", "ready"), on_lost=never_lost) as link, open_session(link):
        asked_at = trio.current_time()
        assert await link.wait_obituary() == Obituary(None, "ready")
        assert trio.current_time() - asked_at < BOUND
        assert repr(link) == f"<StdioLink 'scripted' pid {link.pid}, open>"
        assert link.endpoint == f"the command {sys.executable!r}"


async def test_a_server_that_closes_its_stdout_loses_the_connection_and_is_stopped(idle_clock: IdleClock) -> None:
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
    # The process was ended by our signal, which must not be reported.
    assert link.obituary().exit_code is None


async def test_a_server_that_exits_when_stdin_is_closed_has_no_exit_code(idle_clock: IdleClock) -> None:
    lost = trio.Event()
    async with open_link(scripted("--close-stdout"), on_lost=lost.set) as link, open_session(link) as client:
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("echo", {"text": "?"})
        assert link.pid is not None
        assert state_of(link.pid) == "running"
    assert state_of(link.pid) == "gone"
    assert link.obituary().exit_code is None


async def read(reader: Messages, writer: PipeWriter) -> None:
    await reader.receive()


async def write(reader: Messages, writer: PipeWriter) -> None:
    while True:
        await writer.send(notification("anyone there?"))
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(("redirect", "use"), [("exec >&-", read), ("exec <&-", write)], ids=["stdout", "stdin"])
async def test_the_first_error_after_a_loss_says_how_the_process_ended(
    redirect: str, use: Callable[[Messages, PipeWriter], Awaitable[None]]
) -> None:
    """The pipes end some milliseconds before the process exits. The end is noticed by reading or by writing."""
    told: list[int | None] = []
    config = shell(f"{redirect}; sleep 0.01; exit 7")
    async with open_link(config, on_lost=lambda: told.append(link.obituary().exit_code)) as link:
        with pytest.raises((anyio.EndOfStream, MCPError)):
            await use(*streams_of(link))
    assert told == [7]


async def test_a_process_that_exits_a_moment_after_its_stdout_ended_is_waited_for() -> None:
    """Also one that was killed."""
    told: list[int | None] = []
    config = shell("exec >&-; sleep 0.1; kill -KILL $$")
    async with open_link(config, on_lost=lambda: told.append(link.obituary().exit_code)) as link:
        reader, _ = streams_of(link)
        with pytest.raises(anyio.EndOfStream):
            await reader.receive()
    assert told == [-signal.SIGKILL]


@asynccontextmanager
async def deaf_server(on_lost: Callable[[], None]) -> AsyncIterator[tuple[Link, PipeWriter]]:
    """Open a link to a server that has closed its stdin and lives."""
    async with open_link(shell("exec <&-; echo '{}'; exec sleep 60"), on_lost=on_lost) as link:
        reader, writer = streams_of(link)
        # The line arrives after it has closed its stdin. It is not a message, so the reader goes on waiting.
        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader.receive)
                await eventually(lambda: link.malformed_lines == 1)
                nursery.cancel_scope.cancel("its line has come")
        yield link, writer


async def test_a_write_to_a_server_that_closed_its_stdin_loses_the_connection(idle_clock: IdleClock) -> None:
    lost = trio.Event()
    async with deaf_server(lost.set) as (link, writer):
        with pytest.raises(MCPError):
            await writer.send(notification("is anyone there?"))
        assert lost.is_set()
        assert link.lifeline.lost
        assert "closed its stdin" in str(link.lifeline.failure)
        with pytest.raises(MCPError):
            await writer.send(notification("and now?"))


async def test_a_sender_that_is_cancelled_after_it_found_the_end_still_reports_it() -> None:
    lost = trio.Event()
    async with deaf_server(lost.set) as (_, writer), trio.open_nursery() as nursery:
        nursery.start_soon(writer.send, notification("is anyone there?"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel("while it waits for the process to exit")
    assert lost.is_set()


async def test_a_backlog_write_notices_the_end_of_the_server() -> None:
    lost = trio.Event()
    async with open_link(shell("exec sleep 60"), on_lost=lost.set) as link:
        _, writer = streams_of(link)
        await writer.send(notification("x" * 200_000))
        assert not lost.is_set()
        assert link.pid is not None
        os.kill(link.pid, signal.SIGKILL)
        with trio.fail_after(PROMPT):
            await lost.wait()


async def test_closing_does_not_count_as_a_loss(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_link(scripted("--log-file", str(log)), on_lost=never_lost) as link:
        async with open_session(link):
            pass
        with pytest.raises(MCPError):
            await link.send(notification("late"))
    assert not link.lifeline.lost
    assert log.read_text().splitlines()[-1] == "eof"
    assert link.obituary().exit_code is None
    assert "closed" in repr(link)


async def test_a_wrapper_that_dies_while_its_server_serves_does_not_lose_the_connection() -> None:
    program, args = command()
    # The leader exits once its child runs. A shell gives a background job no stdin unless it is passed explicitly.
    wrapper = ("-c", 'exec 3<&0; "$@" <&3 3<&- & exit 0', "sh", program, *args)
    config = ServerConfig("wrapped", Stdio("/bin/sh", wrapper))
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        assert link.pid is not None
        server = int(text_of(await client.call_tool("pid")))
        assert server != link.pid
        await wait_ended([link.pid])
        assert text_of(await client.call_tool("echo", {"text": "serving"})) == "serving"
    assert state_of(link.pid) == "gone"
    await wait_ended([server])
