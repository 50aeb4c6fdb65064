"""The exceptions of a group whose server fails for good, and of one that cannot be opened."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_actors import (
    Backoff,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    Http,
    RestartPolicy,
    ServerConfig,
    ServerGroup,
    ServerUnavailable,
    Stdio,
    open_servers,
)
from mcp_actors._collapse import leaves
from mcp_actors.kernel import ActorStartError, EventHub, Restarting, RestartLimitReached
from mcp_actors.servers.group._group import translate
from mcp_actors.servers.group._tree import GROUP, GroupLimits, Roster

from ...messages import Said
from ..faults.cells import assert_plain
from ..groups import BOUND, LATER, NEVER, Events, Fault, crash, kill, server, state
from ..links import text_of
from ..processes import child_pids


async def end(group: ServerGroup, name: str) -> None:
    """Kill a server that ends its group, and wait for that."""
    kill(group[name])
    with trio.fail_after(BOUND):
        await trio.sleep_forever()


async def test_a_server_that_must_not_fail_ends_its_group(said: Said) -> None:
    """The block is cancelled, and the error names the server and how it ended. Nothing is left."""
    before = child_pids()
    with pytest.raises(ServerUnavailable) as caught:
        async with open_servers(server("a"), server("b", on_failure="raise", restarts=NEVER)) as group:
            await end(group, "b")
    assert (caught.value.server, caught.value.state) == ("b", "failed")
    said("a server ended its group", str(caught.value), error=caught.value.last_error)
    assert caught.value.__cause__ is caught.value.last_error is not None
    assert child_pids() == before


async def test_its_restart_budget_is_used_before_the_group_ends() -> None:
    policy = RestartPolicy(max_restarts=2, backoff=Backoff())
    events = Events()

    async def crash_always(group: ServerGroup) -> None:
        while True:
            await group.wait_ready()
            await crash(group, "b")

    with pytest.raises(ServerUnavailable):
        async with open_servers(server("b", on_failure="raise", restarts=policy), observers=[events]) as group:
            await crash_always(group)
    assert events.states("b").count("ready") == 3


async def test_the_server_that_ended_the_group_is_named_among_several_failed_ones() -> None:
    with pytest.raises(ServerUnavailable, match="server 'b'"):
        async with open_servers(
            server("a", "--exit-at-start", "3", restarts=NEVER), server("b", on_failure="raise", restarts=NEVER)
        ) as group:
            await end(group, "b")


async def test_an_error_of_the_block_about_the_same_failure_is_left_out() -> None:
    """A request that waits in the block fails for the same reason; that is one failure and not two."""

    async def crash_and_ask(group: ServerGroup) -> None:
        with pytest.raises(ConnectionLost):
            await group["b"].call_tool("crash", {"code": 9})
        await group["b"].call_tool("echo", {"text": "anybody there?"})

    with pytest.raises(ServerUnavailable, match="server 'b'") as caught:
        async with open_servers(server("b", on_failure="raise", restarts=NEVER)) as group:
            await crash_and_ask(group)
    assert caught.value.state == "failed"
    assert "code 9" in str(caught.value)


async def test_another_exception_of_the_block_is_not_lost() -> None:
    """Both are raised, as a group."""
    mine = ValueError("mine")

    async def fail_too(group: ServerGroup) -> None:
        try:
            await end(group, "b")
        finally:
            raise mine

    with pytest.raises(ExceptionGroup) as caught:
        async with open_servers(server("b", on_failure="raise", restarts=NEVER)) as group:
            await fail_too(group)
    failure, other = caught.value.exceptions
    assert isinstance(failure, ServerUnavailable)
    assert other is mine


def unavailable(name: str) -> ServerUnavailable:
    return ServerUnavailable(f"server {name!r}: is failed", server=name, state="failed")


@pytest.mark.parametrize(
    ("from_block", "kept"),
    [
        ([unavailable("b")], 0),
        ([ExceptionGroup("", [unavailable("b"), ExceptionGroup("", [unavailable("b")])])], 0),
        ([ExceptionGroup("", [unavailable("b"), ValueError("mine")])], 1),
        ([unavailable("a")], 1),
        ([ValueError("mine")], 1),
    ],
    ids=["echo", "echoes", "echo and own", "another server", "own"],
)
async def test_only_echoes_of_the_failure_are_left_out(from_block: list[Exception], kept: int) -> None:
    roster = Roster(EventHub(), strict=False, callbacks=None, limits=GroupLimits())
    (record,) = roster.enter(server("b", on_failure="raise"))
    record.life.state = "failed"
    record.life.last_error = OSError("gone")
    with pytest.raises((ServerUnavailable, ExceptionGroup)) as caught, translate(roster):
        raise ExceptionGroup("both", [RestartLimitReached("", actor=GROUP), *from_block])
    failures = leaves(caught.value)
    assert isinstance(failures[0], ServerUnavailable)
    assert failures[0].last_error is record.life.last_error
    assert failures[1:] == (leaves(from_block[0]) if kept else [])


@pytest.mark.parametrize(
    "foreign",
    [RestartLimitReached("", actor="mine"), ActorStartError("", actor="mine"), ExceptionGroup("", [OSError()])],
    ids=lambda exc: type(exc).__name__,
)
async def test_exceptions_of_the_users_own_actors_pass_through(foreign: Exception) -> None:
    with pytest.raises(type(foreign)) as caught:
        async with open_servers():
            raise foreign
    assert caught.value is foreign


async def test_a_server_given_up_at_its_first_start_keeps_the_group_from_opening() -> None:
    before = child_pids()
    with pytest.raises(ConnectFailed, match="server 'b': its process exited with code 3"):
        async with open_servers(
            server("a"), server("b", "--exit-at-start", "3", on_failure="raise", restarts=NEVER), server("c")
        ):
            pytest.fail("the block must not run")
    with pytest.raises(ConnectFailed, match="server 'b': command 'no-such-server' not found"):
        async with open_servers(ServerConfig("b", Stdio("no-such-server"), on_failure="raise")):
            pytest.fail("the block must not run")
    assert child_pids() == before


async def test_a_first_start_that_will_be_tried_again_is_not_what_kept_the_group_from_opening() -> None:
    patient = server("a", "--exit-at-start", "3", on_failure="raise", restarts=LATER)
    with pytest.raises(ConnectFailed, match="server 'b'") as caught:
        async with open_servers(patient, server("b", "--exit-at-start", "4", required=True)):
            pass
    assert not hasattr(caught.value, "__notes__")
    async with open_servers(patient) as group:
        assert state(group, "a") == "backoff"


async def test_a_server_that_is_parked_ends_nothing() -> None:
    async with open_servers(server("a"), server("b", restarts=NEVER)) as group:
        await crash(group, "b")
        assert state(group, "b") == "failed"
        assert text_of(await group["a"].call_tool("echo", {"text": "x"})) == "x"


async def test_a_session_that_fails_by_itself_says_why_too() -> None:
    """No process ended there, and no link was lost; the error is known nevertheless, once the session was left."""
    fault = Fault()
    async with open_servers(fault.config(restarts=LATER), server("a")) as group, group.watch_events() as events:
        fault.now.set()
        async for event in events:
            if isinstance(event, Restarting):
                break
        assert group.failed == (group["here"],)
        assert str(group.errors["here"]) == "server 'here': session failed: failed as told"
        assert group.active == (group["a"],)


async def test_every_failure_is_a_single_exception_with_a_message() -> None:
    """A-16: wherever it comes from, and however deep in groups it was; nor is what is behind it."""
    fault = Fault()
    fault.on_enter = OSError()
    configs = [
        fault.config("wordless", restarts=LATER),
        server("dies", "--exit-at-start", "3", restarts=LATER),
        server("refuses", "--error-on-list", restarts=LATER),
        server("hangs", "--hang-on-list", connect_timeout=0.5, restarts=LATER),
        ServerConfig("missing", Stdio("no-such-server")),
        ServerConfig("down", Http("http://127.0.0.1:9/mcp"), restarts=LATER),
        server("serves", restarts=LATER),
    ]
    async with open_servers(*configs) as group:
        await crash(group, "serves")
        assert len(group.errors) == len(configs)
        for error in group.errors.values():
            assert_plain(error)
        assert str(group.errors["wordless"]).endswith("opening the connection failed: OSError")


async def test_two_servers_of_one_name_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    """S2-07: the message gives the name and the file; a disabled server counts."""
    pids = tmp_path / "pids"
    configs = [server("a", "--pid-file", str(pids)), server("b"), server("a", enabled=False)]
    with pytest.raises(ConfigError, match=r"server 'a': configurations 1 and 3 have this name; rename one of them"):
        async with open_servers(*configs):
            pass
    assert not pids.exists()


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (Stdio("npx"), "write ServerConfig"),
        (None, "write ServerConfig"),
        (5, "write ServerConfig"),
        ([ServerConfig("b", Stdio("x"))], r"pass each one as an argument: open_servers\(\*configs\)"),
        ((), r"pass each one as an argument: open_servers\(\*configs\)"),
    ],
)
async def test_an_invalid_argument_of_open_servers_is_refused(wrong: Any, remedy: str) -> None:
    words = f"takes ServerConfig objects, paths, mappings and sources, not {type(wrong).__name__}; {remedy}"
    with pytest.raises(ConfigError, match=words) as caught:
        async with open_servers(server("a"), wrong):
            pass
    assert caught.value.source == "open_servers"


@pytest.mark.parametrize("naming", ["{tool", "mcp", "{server}", "{tool}{extra}", "{server.name}{tool}"])
async def test_a_naming_template_that_cannot_work_is_refused(naming: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(ConfigError, match="naming"):
        async with open_servers(server("a", "--pid-file", str(pids)), naming=naming):
            pass
    assert not pids.exists()


async def test_a_group_without_servers_is_a_group() -> None:
    events = Events()
    async with open_servers(strict=True, observers=[events]) as group:
        assert repr(group) == "<ServerGroup empty>"
        assert len(group) == len(group.tools) == 0
        assert group.configured == group.active == group.failed == ()
        await group.wait_ready()
        await group.reconnect()
        with pytest.raises(KeyError, match="its servers are: none"):
            group["a"]
    assert not events.states("a")


async def test_an_observer_that_raises_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    def careless(event: object) -> None:
        raise LookupError("what was that?")

    async with open_servers(server("a"), observers=[careless]) as group:
        assert state(group, "a") == "ready"
        assert text_of(await group["a"].call_tool("echo", {"text": "x"})) == "x"
    assert "what was that?" in caplog.text
    caplog.clear()


@pytest.mark.parametrize("beside", [[], [KeyboardInterrupt()]])
async def test_a_defect_that_ends_a_group_is_raised_unchanged(beside: list[BaseException]) -> None:
    """No server is to blame, so none is named, and nothing is made up."""
    defect: BaseException = RestartLimitReached("the group gave up", actor=GROUP)
    if beside:
        defect = BaseExceptionGroup("both", [defect, *beside])

    def fail() -> None:
        roster = Roster(EventHub(), strict=False, callbacks=None, limits=GroupLimits())
        with translate(roster):
            roster.opened.set()
            raise defect

    with pytest.raises(type(defect)) as caught:
        fail()
    assert caught.value is defect


class Full(logging.Handler):
    """A handler that raises, like one whose disk is full."""

    records = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.records += 1
        raise OSError(errno.ENOSPC, "the disk is full")


async def test_a_log_handler_that_raises_hurts_no_server() -> None:
    """C-30: a server whose lines cannot be logged is connected again, and its neighbor is not disturbed."""
    full, logger = Full(), logging.getLogger("mcp_actors")
    level = logger.level
    logger.addHandler(full)
    logger.setLevel(logging.DEBUG)
    try:
        with trio.fail_after(BOUND):
            async with open_servers(server("a"), server("b")) as servers:
                kill(servers["a"])
                await servers["a"].wait_state("backoff", "connecting")
                await servers["a"].wait_state("ready")
                assert text_of(await servers["b"].call_tool("echo", {"text": "hello"})) == "hello"
                assert servers["b"].statistics().incarnation == 1
    finally:
        logger.removeHandler(full)
        logger.setLevel(level)
    assert full.records > 1
