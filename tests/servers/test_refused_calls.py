"""System calls that a sandbox refuses, shortages at the start, and unknown exit codes."""

from __future__ import annotations

import platform
import sys
from typing import Final

import pytest

from tests.forkserver import run_python
from tests.source import ROOT

from .groups import BOUND

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="seccomp and its numbers of x86_64 are needed"
)

CLONE3, EVENTFD, SETSID, WAITID = 435, 290, 112, 247

REFUSE: Final = """
import ctypes, struct, sys

def refuse(number):  # with EPERM, as the profiles of containers do
    libc = ctypes.CDLL(None, use_errno=True)
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0

number = int(sys.argv[1])
if number:
    refuse(number)
"""

CALL: Final = """
import asyncio, trio
import mcp_actors
from mcp_actors import bridge, sync
from tests.servers.groups import server

async def called(open_servers):
    async with open_servers(server("a", required=True, stop_timeout=0.3)) as servers:
        print(await servers["a"].call("add", a=1, b=2))
        await servers["a"].check_health()

def by_thread():
    with sync.open_servers(server("a", required=True, stop_timeout=0.3)) as servers:
        print(servers["a"].call("add", a=1, b=2))

for door in (
    lambda: trio.run(called, mcp_actors.open_servers),
    lambda: asyncio.run(called(bridge.open_servers)),
    by_thread,
):
    try:
        door()
    except Exception as error:
        print(type(error).__name__, error)
"""


def lines_without(number: int, program: str) -> list[str]:
    """Return what a program prints if a system call is refused; none is if the number is 0."""
    finished = run_python("-c", REFUSE + program, str(number), cwd=ROOT, timeout=BOUND)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout.splitlines()


@pytest.mark.parametrize("number", [WAITID, EVENTFD])
def test_a_refused_call_that_can_be_replaced_is_not_noticed(number: int) -> None:
    """D-87."""
    assert lines_without(number, CALL) == ["3", "3", "3"]


def test_a_refused_setsid_is_not_a_problem_of_permissions_of_the_server() -> None:
    """D-87."""
    for line in lines_without(SETSID, CALL):
        assert line.startswith("ConnectFailed server 'a': command ")
        assert line.endswith("(operation not permitted); allow setsid and execve in this program's sandbox (seccomp)")


def test_a_program_that_cannot_start_a_thread_gets_one_error_with_a_remedy() -> None:
    """D-87: on each door; that on Trio needs a thread for the server's process."""
    on_trio, *others = lines_without(CLONE3, CALL)
    remedy = (
        "(can't start new thread); raise the limit of processes and threads (ulimit -u, in a container its limit of "
        "pids), or allow clone3 in its seccomp profile"
    )
    assert on_trio.startswith("ConnectFailed server 'a': command ")
    assert on_trio.endswith(remedy)
    assert others == [f"ConfigError open_servers(): cannot start {remedy}"] * 2


FEW_FILES: Final = """
import os, resource

async def short(spare):
    highest = os.open("/", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        await called(bridge.open_servers)
    except Exception as error:
        print(type(error).__name__, error)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

for spare in range(1, 6):
    asyncio.run(short(spare))
"""


def test_a_bridge_that_is_short_of_files_fails_with_a_remedy() -> None:
    """D-87: at each of the files that it and Trio open."""
    program = CALL.partition("for door in")[0] + FEW_FILES
    remedy = "(Too many open files); raise the limit of open files (ulimit -n)"
    lines = lines_without(0, program)
    assert len(lines) == 5
    assert set(lines) == {f"ConfigError open_servers(): cannot start {remedy}"}


UNKNOWN: Final = """
import signal, trio
from mcp_actors import ServerConfig, Stdio, open_servers

signal.signal(signal.SIGCHLD, signal.SIG_IGN)

async def main():
    three = ServerConfig("three", Stdio("/bin/sh", ["-c", "exit 3"]))
    async with open_servers(three) as servers:
        error = servers.errors["three"]
        print(error.exit_code, "code 0" in str(error))

trio.run(main)
"""


@pytest.mark.parametrize("number", [0, WAITID])
def test_an_exit_code_that_cannot_be_known_is_reported_as_unknown(number: int) -> None:
    """D-87: SIGCHLD may be ignored since before this program, and the system then drops the codes."""
    finished = run_python("-c", REFUSE + UNKNOWN, str(number), cwd=ROOT, timeout=BOUND)
    assert finished.stdout == "None False\n"
