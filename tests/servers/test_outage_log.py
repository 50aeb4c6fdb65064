"""The log records of an outage by default: enough to understand it, and no more."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import Backoff, ConnectFailed, RestartPolicy, ServerConfig, ServerUnavailable, Stdio, open_servers
from tests.forkserver import run_python
from tests.source import ROOT

from .fleet import http_config, http_server
from .groups import NEVER, Fault, crash, reach, server, shell

LEVELS = {logging.WARNING: "W", logging.INFO: "I", logging.DEBUG: "D"}

POLICY = RestartPolicy(max_restarts=1, backoff=Backoff(), reset_after=1000, park_retry=0.2)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """The log records about servers, each with the first letter of its level; by default those that a program shows."""
    caplog.set_level(logging.DEBUG, "mcp_actors.servers")

    def tell(lowest: int = logging.WARNING) -> list[str]:
        records = [each for each in caplog.records if each.name == "mcp_actors.servers" and hasattr(each, "mcp_server")]
        return [f"{LEVELS[each.levelno]} {each.getMessage()}" for each in records if each.levelno >= lowest]

    return tell


def shape(lines: list[str]) -> list[str]:
    """The lines, up to their reasons."""
    return [re.sub(r"\d+ s", "N s", line.partition(": ")[2].partition(":")[0]) for line in lines]


async def test_an_outage_from_its_beginning_to_its_end(told: Callable[..., list[str]]) -> None:
    """B-22: a loss, a failed connect and a parking are warnings with their reasons, and the recovery is INFO."""
    with http_server() as (port, process):
        async with open_servers(http_config(port, restarts=POLICY)) as group:
            process.kill()
            process.wait()
            with pytest.raises(Exception, match="web"):
                await group["web"].call_tool("pid")
            await reach(group, "web", "failed")
            await reach(group, "web", "connecting")
            await reach(group, "web", "failed")
            with http_server(port):
                await reach(group, "web", "ready")
    lines = told(logging.INFO)
    assert [line[0] for line in lines] == ["I", "W", "W", "I"]
    assert shape(lines) == [
        "connected, 6 tools",
        "connection lost",
        "parked after 2 failures in a row, next attempt in N s",
        "connected, 6 tools; recovered after N s",
    ]
    assert "could not connect" in lines[2]


async def test_a_server_that_cannot_start(told: Callable[..., list[str]]) -> None:
    """B-22: it was logged nowhere, at any level."""
    async with open_servers(server("a", "--exit-at-start", "3", restarts=POLICY)) as group:
        await reach(group, "a", "failed")
    lines = told()
    assert shape(lines) == ["connect failed, retrying", "parked after 2 failures in a row, next attempt in N s"]
    assert all("its process exited with code 3" in line for line in lines)


async def test_a_server_that_is_parked_because_it_crashes_again_and_again(told: Callable[..., list[str]]) -> None:
    """B-22: it connected each time, so "after 1 failure" would be no reason to park it."""
    async with open_servers(server("a", restarts=POLICY)) as group:
        await crash(group, "a")
        await reach(group, "a", "ready")
        await crash(group, "a")
        await reach(group, "a", "failed")
    assert shape(told())[-1] == "parked, next attempt in N s"


async def test_a_server_that_will_not_be_tried_again_says_what_to_do(told: Callable[..., list[str]]) -> None:
    """B-22: with the remedy."""
    async with open_servers(
        ServerConfig("a", Stdio("no-such-command")), server("b", "--exit-at-start", "3", restarts=NEVER)
    ):
        pass
    assert len(told()) == 2
    for line in told():
        assert line.endswith("; fix that, then restart the server")
    assert "command 'no-such-command' not found" in told()[0]


async def test_a_warning_that_each_attempt_would_repeat_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """B-22: that a process ends at the first question, attempt after attempt, for as long as its outage lasts."""
    config = ServerConfig("a", Stdio("/bin/sh", ("-c", "read question; exit 3")), restarts=POLICY)
    async with open_servers(config) as group:
        for _ in range(3):
            await reach(group, "a", "failed")
            await reach(group, "a", "connecting")
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == len(set(lines)) == 3


@pytest.mark.parametrize("options", [{"required": True}, {"restarts": NEVER, "on_failure": "raise"}], ids=str)
async def test_a_failure_that_is_raised_is_not_logged_too(
    options: dict[str, Any], told: Callable[..., list[str]]
) -> None:
    """B-22: one report of one failure."""
    with pytest.raises(ConnectFailed):
        async with open_servers(server("a", "--exit-at-start", "3", **options)):
            pass
    assert told() == []


async def test_a_failure_that_leads_to_an_exception_later_is_logged(told: Callable[..., list[str]]) -> None:
    async def lose() -> None:
        async with open_servers(server("a", restarts=NEVER, on_failure="raise")) as group:
            await crash(group, "a")
            await trio.sleep_forever()

    with pytest.raises(ServerUnavailable):
        await lose()
    assert shape(told()) == ["connection lost"]


async def test_repeats_are_not_shown(autojump_clock: MockClock, told: Callable[..., list[str]]) -> None:
    """B-22: an outage of hours is two warnings; whatever else happens, no more than ten."""
    fault = Fault()
    fault.on_enter = RuntimeError("the database is away")
    async with open_servers(fault.config()) as group:
        await trio.sleep(3 * 3600)
        assert shape(told()) == ["connect failed, retrying", "parked after 6 failures in a row, next attempt in N s"]
        assert len(told(logging.DEBUG)) > 180
        for number in range(30):
            fault.on_enter = RuntimeError(f"no, at {number} o'clock")
            await trio.sleep(120)
        assert len(told()) == 10
        assert "further failures are logged at level DEBUG)" in told()[-1]
        fault.on_enter = None
        await group["here"].wait_state("ready")
        assert "I server 'here': connected" in told(logging.INFO)[-1]


async def test_a_server_that_flaps_is_one_outage(mock_clock: MockClock, told: Callable[..., list[str]]) -> None:
    """B-22: each loss is the same story until it has served for its ``reset_after``."""
    policy = RestartPolicy(max_restarts=100, reset_after=60, backoff=Backoff())
    async with open_servers(server("a", restarts=policy)) as group:
        for _ in range(5):
            mock_clock.jump(59)
            await crash(group, "a")
            await reach(group, "a", "ready")
        lines = told(logging.INFO)
        assert [line[0] for line in lines] == ["I", "W", "I"], lines
        mock_clock.jump(61)
        await crash(group, "a")
        await reach(group, "a", "ready")
    lines = told(logging.INFO)
    assert [line[0] for line in lines] == ["I", "W", "I", "W", "I"], lines


async def test_a_server_cannot_forge_a_line(told: Callable[..., list[str]]) -> None:
    """B-22: its stderr is shown in one line, and controls no terminal."""
    script = r"printf 'away\nserver \'\''b\'\'': connected, 3 tools\033[2J\n' >&2; exit 3"
    async with open_servers(shell("a", script, restarts=NEVER)):
        pass
    [line] = told()
    assert "away" in line
    assert line.isprintable()


PROGRAM = """
import sys, trio
from mcp_actors import open_servers
from tests.servers.groups import NEVER, server

async def main():
    async with open_servers(server("a", "--exit-at-start", "3", restarts=NEVER)):
        pass

if sys.argv[1] == "asyncio":
    import asyncio
    from mcp_actors.bridge import open_servers
    asyncio.run(main())
else:
    trio.run(main)
"""


@pytest.mark.parametrize("flavor", ["trio", "asyncio"])
def test_a_program_that_does_not_configure_logging_shows_it(flavor: str) -> None:
    """B-22: on stderr, by Python's own last resort."""
    finished = run_python("-c", PROGRAM, flavor, cwd=ROOT, timeout=60)
    assert finished.stderr.count("\n") == 1
    assert finished.stderr.startswith("server 'a': has failed")
    assert "exited with code 3" in finished.stderr
