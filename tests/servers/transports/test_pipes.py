"""Messages over the pipes of a real process."""

from __future__ import annotations

import errno
import json
import logging
import os
import select
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import anyio
import pytest
import trio
from hypothesis import given, strategies as st
from mcp import MCPError
from mcp.types import JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from trio.testing import MockClock

from mcp_actors._errors import LimitExceeded
from mcp_actors.transports import open_link
from mcp_actors.transports._exchange import CancelLine
from mcp_actors.transports._messages import parse_message
from mcp_actors.transports._request_table import RequestUnderWay
from mcp_actors.transports.stdio import _pipes
from mcp_actors.transports.stdio._pipes import (
    BACKLOG_BYTES,
    READ_BURST,
    STDIN_POLL,
    has_no_reader,
    unread_bytes,
    wait_no_reader,
)

from ...messages import Said
from ..groups import BOUND, until
from ..links import Rounds, never_lost, never_received, notification, open_session, scripted, shell, streams_of, text_of

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(), values, max_size=2),
    max_leaves=5,
)
ALMOST_A_MESSAGE = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2.0])},
    optional={
        "id": st.integers(0, 3) | st.sampled_from(["1", 1.5, True, None]),
        "method": st.just("ping") | ANYTHING,
        "params": st.dictionaries(st.text(), ANYTHING, max_size=2) | ANYTHING,
        "result": st.dictionaries(st.text(), ANYTHING, max_size=2) | ANYTHING,
        "error": st.just({"code": -1, "message": "no", "data": [1]}) | ANYTHING,
    },
)


def by_the_sdk(line: bytes) -> JSONRPCMessage | None:
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


def by_us(line: bytes) -> JSONRPCMessage | None:
    try:
        return parse_message(line)
    except ValueError:
        return None


@given((ALMOST_A_MESSAGE | ANYTHING).map(json.dumps).map(str.encode) | st.binary())
def test_a_line_is_parsed_as_by_the_sdk(line: bytes) -> None:
    """Except an error without an id, a code or a message."""
    ours, theirs = by_us(line), by_the_sdk(line)
    assert ours == theirs or (theirs is None and isinstance(ours, JSONRPCError))


def test_the_id_of_an_answer_may_be_an_integral_float() -> None:
    """C-02: no other text is read as a message that the SDK refuses."""
    for rest in (b'"result": {}', b'"error": {"code": -1, "message": "no"}'):
        line = b'{"jsonrpc": "2.0", "id": %s, ' + rest + b"}"
        assert by_us(line % b"1.0") == by_the_sdk(line % b"1") != by_the_sdk(line % b"1.0")
    request = b'{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}'
    assert by_us(request) == by_the_sdk(request)


async def test_malformed_lines_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """S2-11, A-23."""
    async with open_link(scripted("--garbage"), on_lost=never_lost) as link, open_session(link) as client:
        assert text_of(await client.call_tool("echo", {"text": "fine"})) == "fine"
        assert link.malformed_lines == 5
    [skipped] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "'scripted'" in skipped
    assert "Welcome to the scripted server!" in skipped


async def test_an_invalid_byte_skips_only_its_line() -> None:
    async with open_link(scripted(), on_lost=never_lost) as link, open_session(link) as client:
        await client.call_tool("print_raw", {"text": '{"jsonrpc": "2.0", "method": "x\xff"}'})
        assert link.malformed_lines == 1
        assert text_of(await client.call_tool("echo", {"text": "fine"})) == "fine"


async def test_a_server_that_logs_to_stdout_does_not_fill_our_log(caplog: pytest.LogCaptureFixture, said: Said) -> None:
    """D-10: one warning, and the number of the others when the connection ends."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    async with open_link(scripted(), on_lost=never_lost) as link, open_session(link) as client:
        await client.call_tool("print_raw", {"text": "noise\n" * 1000})
        assert link.malformed_lines == 1000
    [first] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    [rest] = [record.getMessage() for record in caplog.records if "more messages" in record.getMessage()]
    said("line on stdout skipped", first)
    said("messages skipped in total", rest)


async def test_a_notification_over_the_limit_ends_the_connection_and_says_so() -> None:
    lost = trio.Event()
    async with open_link(scripted(max_line_bytes=100_000), on_lost=lost.set) as link, open_session(link) as client:
        assert len(text_of(await client.call_tool("echo", {"text": "x" * 90_000}))) == 90_000
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("print_raw", {"text": '{"jsonrpc":"2.0","method":"' + "x" * 110_000 + '"}'})
        assert lost.is_set()
        assert isinstance(link.lifeline.failure, LimitExceeded)
        assert "server 'scripted'" in str(link.lifeline.failure)
        assert "more than 100000 bytes" in str(link.lifeline.failure)
        assert "raise max_line_bytes" in str(link.lifeline.failure)


@pytest.mark.parametrize("begin", ["x", '{"jsonrpc":"2.0","id":7,"result":"', '{"result":'])
async def test_a_line_that_never_ends_ends_the_connection(begin: str) -> None:
    """B-14: also a line that begins like a response, though later."""
    lost = trio.Event()
    config = shell(f"printf '{begin}'; while :; do printf %1000s; done", max_line_bytes=10_000)
    async with open_link(config, on_lost=lost.set) as link:
        reader, _ = streams_of(link)
        with pytest.raises(anyio.EndOfStream), trio.fail_after(BOUND):
            await reader.receive()
        assert isinstance(link.lifeline.failure, LimitExceeded)
        with pytest.raises(anyio.EndOfStream):
            await reader.receive()


@pytest.mark.parametrize("end", ["", "\n"])
async def test_a_last_message_without_a_newline_is_received(end: str) -> None:
    """B-17."""
    message, lost = '{"jsonrpc":"2.0","id":7,"result":{}}', trio.Event()
    async with open_link(shell(f"read line; printf '{message}{end}'"), on_lost=lost.set) as link:
        reader, _ = streams_of(link)
        with trio.fail_after(BOUND):
            asked = RequestUnderWay("ping", {})
            asked.id = link.table.add(asked, 7)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.exchange, asked, never_received)
                with pytest.raises(anyio.EndOfStream):
                    await reader.receive()
            assert asked.outcome == {}
            await lost.wait()
        assert link.malformed_lines == 0


async def test_half_a_message_at_the_end_is_dropped() -> None:
    async with open_link(shell("""printf '{"jsonrpc":"2.0","id":7,"result":{'"""), on_lost=lambda: None) as link:
        reader, _ = streams_of(link)
        with pytest.raises(anyio.EndOfStream), trio.fail_after(BOUND):
            await reader.receive()
        assert link.malformed_lines == 0


async def test_cancelled_senders_leave_whole_lines_in_a_full_pipe(tmp_path: Path) -> None:
    """A server that goes on reading later can parse every line."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    config = scripted("--never-read", str(gate), "--log-file", str(log))
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        # More than the pipe holds: some are written, the rest of one follows, and the others wait for room.
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(client.call_tool, "echo", {"text": f"{number}:" + "x" * 50_000})
            await trio.testing.wait_all_tasks_blocked()
            # The notices of the cancellations wait for room, so the gate opens before.
            nursery.cancel_scope.cancel("the pipe is full")
            gate.touch()
        with trio.fail_after(BOUND):
            assert text_of(await client.call_tool("echo", {"text": "after"})) == "after"
    lines = log.read_text().splitlines()
    # The server exits at a line that it cannot parse.
    taken = lines.count("tools/call echo") - 1
    assert 1 <= taken < 60
    assert lines[-1] == "eof"


async def test_a_sender_that_waits_for_room_returns_at_once_on_cancellation_and_on_close() -> None:
    async with open_link(shell("exec sleep 60"), on_lost=never_lost) as link:
        _, writer = streams_of(link)
        await writer.send(notification("x" * (BACKLOG_BYTES + 200_000)))
        with trio.move_on_after(0) as scope:
            await writer.send(notification("cancelled"))
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                with pytest.raises(MCPError):
                    await writer.send(notification("no room"))

            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            writer.close()


async def test_a_send_checks_for_cancellation_before_it_writes_and_does_not_yield_after() -> None:
    others_ran = trio.Event()

    async def other() -> None:
        others_ran.set()

    async with open_link(scripted(), on_lost=never_lost) as link:
        _, writer = streams_of(link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await writer.send(notification("small"))
            assert not others_ran.is_set()
        with trio.CancelScope() as scope:
            scope.cancel("before it is sent")
            await writer.send(notification("never"))
        assert scope.cancelled_caught


TWO_LINES = """printf '%s\\n%s\\n' '{"jsonrpc":"2.0","method":"a"}' '{"jsonrpc":"2.0","method":"b"}'"""


async def test_messages_of_one_tick_are_written_together_while_responses_arrive_in_batches() -> None:
    async with open_link(shell(f"{TWO_LINES}; exec sleep 60"), on_lost=never_lost) as link:
        reader, writer = streams_of(link)
        await writer.send(notification("alone"))
        alone = unread_bytes(writer._stream)
        assert alone
        await reader.receive()
        for text in ("first", "other", "third"):
            await writer.send(notification(text))
        assert unread_bytes(writer._stream) == alone
        await trio.testing.wait_all_tasks_blocked()
        assert unread_bytes(writer._stream) == 4 * alone


async def test_collected_messages_are_written_before_stdin_is_closed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_link(shell(f"{TWO_LINES}; exec cat > '{log}'", stop_timeout=BOUND), on_lost=never_lost) as link:
        reader, writer = streams_of(link)
        await reader.receive()
        await writer.send(notification("goodbye"))
    assert "goodbye" in log.read_text()


async def test_a_message_does_not_overtake_the_notice_of_a_cancelled_request_in_a_full_pipe(tmp_path: Path) -> None:
    """A gateway's fence is such a message: what comes after it is begun."""
    log, go = tmp_path / "log", tmp_path / "go"
    script = f"{until(go)}; exec cat > '{log}'"
    async with open_link(shell(script, stop_timeout=BOUND), on_lost=never_lost) as link:
        pipe = link.direct
        assert pipe is not None
        await link.send(notification("x" * 200_000))  # more than the pipe takes
        written = trio.Event()
        pipe.collect(CancelLine(7, written.set))
        await link.send(notification("behind it"))
        assert not written.is_set()
        go.write_text("go")
        with trio.fail_after(BOUND):
            await written.wait()
            while "behind it" not in log.read_text():  # noqa: ASYNC110 - it is another process
                await trio.sleep(0.01)
    lines = log.read_text().splitlines()
    assert ["cancelled" in line for line in lines[1:]] == [True, False]


def test_a_message_is_written_exactly_once_if_ctrl_c_interrupts_the_write(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def write(fd: int, data: bytes) -> int:
        taken = os.write(fd, data)
        if b"once" in data:
            signal.raise_signal(signal.SIGINT)
        return taken

    async def main() -> None:
        async with open_link(shell(f"{TWO_LINES}; exec cat > '{log}'", stop_timeout=BOUND), on_lost=never_lost) as link:
            reader, writer = streams_of(link)
            await reader.receive()
            await writer.send(notification("once"))
            with patch("mcp_actors.transports.stdio._pipes.os", wraps=os, write=write):
                await trio.sleep(BOUND)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert log.read_text().count("once") == 1


async def test_other_tasks_run_while_a_server_writes_without_pause() -> None:
    line = '{"jsonrpc":"2.0","method":"test"}'
    rounds = Rounds()
    async with open_link(shell(f"while :; do echo '{line}'; done"), on_lost=never_lost) as link:
        reader, _ = streams_of(link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rounds.count)
            for _ in range(1000):
                await reader.receive()
            nursery.cancel_scope.cancel("enough")
    # A new chunk of data starts a new burst, so they do not all have the same length.
    assert rounds.number >= 1000 / READ_BURST / 2


async def test_other_tasks_run_while_the_answers_of_one_read_are_settled(tmp_path: Path) -> None:
    rounds, settled = Rounds(), Counter[int]()

    def note(request: RequestUnderWay) -> None:
        assert request.outcome == {}
        settled[rounds.number] += 1

    path = tmp_path / "lines"
    async with open_link(shell(f"{until(path)}; cat '{path}' -"), on_lost=never_lost) as link:
        reader, writer = streams_of(link)
        lines = []
        for _ in range(10 * READ_BURST):
            writer._requests.count_sent()
            waiting = RequestUnderWay("ping", {})
            waiting.sent, waiting.on_outcome = True, note
            lines.append(f'{{"jsonrpc":"2.0","id":{writer.table.add(waiting)},"result":{{}}}}\n')
        (tmp_path / "new").write_text("".join(lines) + '{"jsonrpc":"2.0","method":"test"}\n')
        (tmp_path / "new").rename(tmp_path / "lines")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rounds.count)
            await reader.receive()
            nursery.cancel_scope.cancel("enough")
    assert settled.total() == 10 * READ_BURST
    assert max(settled.values()) <= 2 * READ_BURST  # the tasks of a tick run in any order


@pytest.fixture(params=["epoll", "no epoll", "no descriptor"])
def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with the event of the system, and without it."""

    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    system = SimpleNamespace(**vars(select))
    if request.param == "no epoll":
        vars(system).pop("epoll", None)
    if request.param == "no descriptor":
        system.epoll = refuse
    monkeypatch.setattr(_pipes, "select", system)


@pytest.mark.usefixtures("watched")
async def test_a_pipe_has_no_reader_once_every_process_has_closed_its_end(autojump_clock: MockClock) -> None:
    """C-05: a child may have inherited it."""
    gone = trio.Event()

    async def watch() -> None:
        await wait_no_reader(stream)
        gone.set()

    ours, theirs = os.pipe()[::-1]
    inherited = os.dup(theirs)
    async with trio.lowlevel.FdStream(ours) as stream, trio.open_nursery() as nursery:
        os.write(ours, b"unread")
        nursery.start_soon(watch)
        os.close(theirs)
        await trio.sleep(10 * STDIN_POLL)
        assert (gone.is_set(), has_no_reader(stream), unread_bytes(stream)) == (False, False, 6)
        os.close(inherited)
        with trio.fail_after(BOUND):
            await gone.wait()
        assert (has_no_reader(stream), unread_bytes(stream)) == (True, 6)


async def test_room_in_the_backlog_wakes_one_waiting_sender(tmp_path: Path) -> None:
    """B-11: so the total cost is proportional to the number of senders."""
    gate, steps = tmp_path / "gate", 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += task.name == "waits"

    script = f"while [ ! -e '{gate}' ]; do sleep 0.01; done; exec cat > /dev/null"
    async with open_link(shell(script), on_lost=never_lost) as link:
        _, writer = streams_of(link)
        await writer.send(notification("x" * 2 * BACKLOG_BYTES))
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(writer.send, notification("x" * BACKLOG_BYTES), name="waits")
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(counted := Steps())
            gate.touch()
        trio.lowlevel.remove_instrument(counted)
    assert steps <= 2 * 200  # each is woken once; if all were, it would be 200 * 200 / 2
