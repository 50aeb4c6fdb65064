"""Opening a group: who starts, who may fail, what leaves the door. Against real processes."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from mcp.server.mcpserver import MCPServer
from trio.testing import MockClock

from mcp_actors import ConnectFailed, InProcess, ServerConfig, StateChanged, Stdio, open_servers
from mcp_actors.kernel import Starting
from tests.idle_clock import IdleClock
from tests.messages import Said

from ..groups import (
    LATER,
    NEVER,
    Events,
    after,
    lines_of,
    on_failed_start,
    on_state,
    pids_in,
    server,
    shell,
    state,
    until,
)
from ..links import text_of
from ..processes import child_pids, state_of


async def test_a_broken_server_is_recorded_and_the_others_serve(tmp_path: Path) -> None:
    """S1-11: without ``strict`` a failure is recorded and the start goes on.

    S3-03, A-10: it is a matter of that server alone.
    """
    async with open_servers(
        server("a"), server("b", "--exit-at-start", "3", "--stderr", "no luck", restarts=LATER), server("c")
    ) as group:
        assert group.active == (group["a"], group["c"])
        assert group.failed == (group["b"],)
        assert [*group.errors] == ["b"]
        assert str(group.errors["b"]) == (
            "server 'b': its process exited with code 3 while negotiating the protocol; its stderr ends with: no luck"
        )
        for name in ("a", "c"):
            assert text_of(await group[name].call_tool("echo", {"text": name})) == name
        assert {tool.server for tool in group.tools} == {"a", "c"}


@pytest.mark.parametrize(
    ("transport", "row"),
    [
        (Stdio(sys.executable, ["kitchn.py"]), "script that does not exist"),
        (Stdio("cat", ["-u", "notes/today.md"]), "file in args that does not exist"),
        (Stdio("sh", ["-c", "cat /absent/today.md"]), "file that the server does not find itself"),
    ],
)
async def test_a_file_in_the_arguments_that_does_not_exist_is_named_with_a_remedy(
    tmp_path: Path, transport: Stdio, row: str, said: Said
) -> None:
    broken = ServerConfig("b", attrs.evolve(transport, cwd=str(tmp_path)), restarts=LATER)
    async with open_servers(broken) as group:
        said(row, str(group.errors["b"]), folder=tmp_path, python=sys.executable)


async def test_a_strict_start_that_fails_is_one_exception_and_leaves_no_process(tmp_path: Path) -> None:
    """S1-02: what had been started is closed again."""
    a, c = tmp_path / "a", tmp_path / "c"
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(
            server("a", "--pid-file", str(a)),
            shell("b", f"{until(a, c)}; echo no luck >&2; exit 3"),
            server("c", "--pid-file", str(c)),
            strict=True,
        ):
            pytest.fail("the block must not run")
    assert caught.value.server == "b"
    assert caught.value.exit_code == 3
    assert caught.value.stderr_tail == "no luck"
    assert "'b': its process exited with code 3" in str(caught.value)
    assert [state_of(pid) for path in (a, c) for pid in pids_in(path)] == ["gone", "gone"]


def failing(name: str, seconds: float) -> ServerConfig:
    """Return a server in this process that fails so long after its start."""

    @asynccontextmanager
    async def lifespan(made: object) -> AsyncIterator[None]:
        await trio.sleep(seconds)
        if seconds:
            raise OSError("no luck")
        yield

    return ServerConfig(name, InProcess(MCPServer(name, lifespan=lifespan)), connect_timeout=100)


async def test_the_error_of_a_strict_start_is_of_the_first_in_order_and_names_all_that_had_failed(
    autojump_clock: MockClock,
) -> None:
    """D-34: servers before one that failed are awaited, and those after it are stopped; these had not failed."""
    configs = [failing("first", 9), failing("second", 5), failing("stopped", 8), failing("last", 3)]
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(*configs, strict=True):
            pytest.fail("the block must not run")
    assert caught.value.server == "first"
    assert str(caught.value).endswith("no luck (also failed: 'second', 'last')")
    assert [note.partition(":")[0] for note in caught.value.__notes__] == ["also", "also"]
    assert ["'second'" in caught.value.__notes__[0], "'last'" in caught.value.__notes__[1]] == [True, True]


async def test_errors_of_a_start_do_not_mention_the_kernel() -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(server("b", "--exit-at-start", "3"), strict=True):
            pass
    assert caught.value.__suppress_context__


async def test_the_exit_code_and_the_last_words_of_a_server_that_ends_at_once_are_in_the_error() -> None:
    """S2-10: exit code and text on stderr, both in the error."""
    async with open_servers(server("b", "--exit-at-start", "41", "--stderr", "cannot bind", restarts=NEVER)) as group:
        error = group.errors["b"]
    assert isinstance(error, ConnectFailed)
    assert (error.exit_code, error.stderr_tail, error.phase) == (41, "cannot bind", "negotiate")
    assert "code 41" in str(error)
    assert "cannot bind" in str(error)


async def test_stderr_in_messages_and_logs_cannot_control_a_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The program gets it as it was written."""
    caplog.set_level(logging.INFO)
    words = "\x1b[31mno\x1b[0m lu\u200bck\r\n\u202eand\x07 more"
    async with open_servers(server("b", "--exit-at-start", "41", "--stderr", words, restarts=NEVER)) as group:
        error = group.errors["b"]
        assert isinstance(error, ConnectFailed)
        assert "\x1b[31mno\x1b[0m lu\u200bck\r\n\u202eand\x07 more" in error.stderr_tail
        assert str(error).endswith("its stderr ends with: and more; the other lines:\n    no luck")
    logged = [record.getMessage() for record in caplog.records if record.name == "mcp_actors.servers.stderr"]
    assert logged == ["b: no luck", "b: and more"]


PYTHON = """Traceback (most recent call last):
  File "shop.py", line 1, in <module>
    open_shop()
    ^^^^^^^^^~~
RuntimeError: no key"""

NODE = """node:internal/modules/cjs/loader:1228
  throw err;
  ^

Error: listen EADDRINUSE: address already in use :::3000
    at node:internal/main/run_main_module:36:49 {
  requireStack: []
}

Node.js v22.12.0"""


async def test_the_line_of_a_traceback_that_says_what_is_wrong_comes_first() -> None:
    """A terminal or a log may show no more than the beginning, and the marks below a line of code say nothing."""
    written = {"python": PYTHON, "node": NODE, "indented": "  a\n  b", "long": f"{'x' * 500}\nlast"}
    flags = ("--exit-at-start", "1", "--stderr")
    dying = [server(name, *flags, words, restarts=NEVER) for name, words in written.items()]
    async with open_servers(*dying) as group:
        said = {name: str(error).partition("its stderr ends with: ")[2] for name, error in group.errors.items()}
    assert said == {
        "python": "RuntimeError: no key; the other lines:\n    Traceback (most recent call last):\n"
        '  File "shop.py", line 1, in <module>\n    open_shop()',
        "node": "Error: listen EADDRINUSE: address already in use :::3000; the other lines:\n"
        "    node:internal/modules/cjs/loader:1228\n"
        "  throw err;\n    at node:internal/main/run_main_module:36:49 {\n  requireStack: []",
        "indented": "b; the other lines:\n  a",
        "long": "last",
    }


async def test_a_command_that_does_not_exist_is_named_and_not_tried_again() -> None:
    """S2-09: the command is in the error."""
    events = Events()
    async with open_servers(ServerConfig("b", Stdio("no-such-mcp-server")), observers=[events]) as group:
        assert state(group, "b") == "failed"
        assert str(group.errors["b"]).startswith("server 'b': command 'no-such-mcp-server' not found; install it")
    assert len(events.of(Starting, "b")) == 1


async def test_a_program_that_is_not_an_mcp_server_is_doubted() -> None:
    """``cat`` returns our requests, which we refuse, and then our refusals."""
    async with open_servers(ServerConfig("b", Stdio("cat"), restarts=LATER)) as group:
        refused = (
            'the server answered with error -32601: Method not found ("initialize"); check that it is an MCP server'
        )
        assert str(group.errors["b"]) == f"server 'b': negotiating the protocol failed: {refused}"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--error-on-list", "listing its tools failed: the server answered with error -32603: the list of tools is lo"),
        ("--die-on-list", "its process exited with code 7 while listing its tools"),
        ("--hang-on-list", "while listing its tools"),
    ],
)
async def test_a_server_that_fails_to_list_its_tools_has_failed(
    tmp_path: Path, flag: str, words: str, idle_clock: IdleClock
) -> None:
    """A-10: a server that fails at list time counts as bad, and only that one.

    S2-14: ready means that the tools were listed.
    S4-31: a failure after the handshake tears everything down.
    """
    pids = tmp_path / "pids"
    events = Events()
    async with open_servers(
        server("b", flag, "--pid-file", str(pids), restarts=LATER),
        server("a"),
        observers=[events],
    ) as group:
        assert events.states("b") == ["connecting", "backoff"]
        assert words in str(group.errors["b"])
        error = group.errors["b"]
        assert isinstance(error, ConnectFailed)
        assert error.phase == "list_tools"
        assert group.active == (group["a"],)
        assert [state_of(pid) for pid in pids_in(pids)] == ["gone"]


async def test_a_server_is_ready_when_its_tools_are_known(tmp_path: Path) -> None:
    """S2-14: in the very moment in which a server becomes ready its list has been answered."""
    log = tmp_path / "log"
    asked: list[list[str]] = []
    when_ready = on_state("a", "ready", lambda: asked.append(lines_of(log)))
    async with open_servers(server("a", "--log-file", str(log)), observers=[when_ready]) as group:
        assert asked[0][-1] == "tools/list"
        assert len(group.tools) == group["a"].statistics().tools > 0


async def test_a_server_without_the_tools_capability_is_ready_and_has_none() -> None:
    async with open_servers(server("a", "--no-tools-capability")) as group:
        assert state(group, "a") == "ready"
        assert len(group.tools) == 0
        assert await group["a"].list_tools() == ()


async def test_a_failed_start_leaves_nothing_and_the_next_try_is_fresh(tmp_path: Path) -> None:
    """S4-20: the same configuration is opened again, and nothing of the first try is left."""
    pids = tmp_path / "pids"
    config = server("a", "--fail-first", "1", str(tmp_path / "count"), "--pid-file", str(pids))
    for attempt in range(2):
        before = child_pids()
        try:
            async with open_servers(config, strict=True) as group:
                assert attempt == 1
                assert group["a"].statistics().incarnation == 1
                assert dict(group.errors) == {}
                assert group["a"].statistics().last_error is None
        except ConnectFailed:
            assert attempt == 0
        assert child_pids() == before
    assert len(pids_in(pids)) == 2


async def test_servers_start_side_by_side(tmp_path: Path) -> None:
    """A-21: each of these answers only once the other has been started, which a sequential start never does.

    S1-04: a parallel start keeps every connection in its own task; the calls work.
    """
    a, b = tmp_path / "a", tmp_path / "b"
    async with open_servers(
        after("a", f"echo x > '{a}'; {until(b)}"),
        after("b", f"echo x > '{b}'; {until(a)}"),
        strict=True,
    ) as group:
        for ref in group.configured:
            assert text_of(await ref.call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_views_do_not_depend_on_the_order_in_which_servers_become_ready(tmp_path: Path) -> None:
    """S1-15: views, errors and tools are in configured order, though the servers came in the opposite one.

    S1-10: so is ``active``.
    """
    b, c = tmp_path / "b", tmp_path / "c"
    events = Events()
    async with open_servers(
        after("a", until(b)),
        after("b", until(c)),
        server("c"),
        observers=[
            events,
            on_state("b", "ready", lambda: b.write_text("x")),
            on_state("c", "ready", lambda: c.write_text("x")),
        ],
    ) as group:
        assert [event.server for event in events.of(StateChanged) if event.new == "ready"] == ["c", "b", "a"]
        assert [*group] == [ref.name for ref in group.configured] == ["a", "b", "c"]
        assert [ref.name for ref in group.active] == [ref.name for ref in group.connected] == ["a", "b", "c"]
        assert [*dict.fromkeys(tool.server for tool in group.tools)] == ["a", "b", "c"]
        assert [*group.status()] == ["a", "b", "c"]


async def test_of_several_required_servers_that_fail_the_first_configured_one_is_raised(tmp_path: Path) -> None:
    """S1-15: the last one fails first, and becomes a note of the first one."""
    gone = tmp_path / "gone"
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(
            server("a"),
            shell("b", f"{until(gone)}; exit 3"),
            shell("c", "exit 4"),
            strict=True,
            observers=[on_failed_start("c", lambda: gone.write_text("x"))],
        ):
            pass
    assert caught.value.server == "b"
    assert caught.value.exit_code == 3
    [note] = caught.value.__notes__
    assert note.startswith("also: server 'c': its process exited with code 4")


async def test_the_errors_of_servers_that_failed_in_the_opposite_order_are_in_configured_order(tmp_path: Path) -> None:
    """S1-15: ``errors`` and ``failed`` follow the configuration."""
    gone = tmp_path / "gone"
    async with open_servers(
        shell("b", f"{until(gone)}; exit 3", restarts=LATER),
        shell("c", "exit 4", restarts=LATER),
        observers=[on_state("c", "backoff", lambda: gone.write_text("x"))],
    ) as group:
        assert [*group.errors] == [ref.name for ref in group.failed] == ["b", "c"]


async def test_only_a_required_server_keeps_the_group_from_opening(tmp_path: Path) -> None:
    def broken(name: str, *, required: bool) -> ServerConfig:
        return server(name, "--exit-at-start", "3", required=required, restarts=LATER)

    async with open_servers(broken("x", required=False), server("y", required=True)) as group:
        assert group.active == (group["y"],)
    with pytest.raises(ConnectFailed, match="server 'y'"):
        async with open_servers(broken("x", required=False), broken("y", required=True), server("z")):
            pass


async def test_a_disabled_server_is_not_started_and_not_part_of_the_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    off = server("off", "--pid-file", str(pids), enabled=False, required=True)
    async with open_servers(off, server("on"), strict=True) as group:
        assert [*group] == ["on"]
        assert "off" not in group
    assert not pids.exists()


async def test_a_block_s_own_exception_leaves_as_itself() -> None:
    """S1-16: whatever ends the block, the processes are gone when the exception is out."""
    mine = ValueError("mine")
    before = child_pids()
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_servers(server("a"), server("b", "--exit-at-start", "3", restarts=LATER)):
            raise mine
    assert caught.value is mine
    assert child_pids() == before


async def test_a_cancellation_of_the_block_leaves_no_process_and_no_exception() -> None:
    """S1-16: the clean-up after a cancellation is complete, of one server in back-off and one that serves."""
    before = child_pids()
    with trio.CancelScope() as scope:
        async with open_servers(server("a"), server("b", "--exit-at-start", "3", restarts=LATER)):
            scope.cancel("enough")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert child_pids() == before


async def test_the_error_of_a_command_that_cannot_be_started_hides_its_arguments() -> None:
    async with open_servers(ServerConfig("b", Stdio("no-such-server", ("--token", "s3cret")))) as group:
        assert not re.search("s3cret", f"{group!r} {group['b']!r} {group.errors['b']} {group.status()}")
