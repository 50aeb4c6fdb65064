"""A program that gevent or eventlet has patched is refused by name where it opens servers, and at a call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from .forkserver import run_python
from .servers.groups import BOUND
from .source import ROOT

pytest.importorskip("gevent", reason="gevent is not installed; it is part of the extra 'test'")

MESSAGE: Final = (
    "{who}: not supported in a program that {library} has patched (monkey patching), where this would wait for ever; "
    "run it with threads or processes, unpatched: gunicorn --worker-class gthread, celery --pool threads or prefork"
)

PROGRAM: Final = """
import asyncio
from gevent import monkey
from mcp_actors import bridge, kernel, sync
from tests.servers.groups import server

def refused(fn, *args):
    try:
        fn(*args)
    except RuntimeError as error:
        print(error)

def enter(block):
    async def enter():
        async with block:
            print("opened")
    asyncio.run(enter())

with sync.open_servers(server("a")) as servers:
    print(servers["a"].call("echo", text="not patched"))
    monkey.patch_socket()
    print(servers["a"].call("echo", text="still served"))
    monkey.patch_all()
    refused(lambda: servers["a"].call("echo", text="patched"))
refused(sync.open_servers(server("a")).__enter__)
for host in ("thread", "guest"):
    refused(enter, bridge.open_servers(server("a"), host=host))
refused(enter, bridge.open_supervisor())
"""


def test_a_patched_program_is_refused_by_name_when_it_opens_servers_and_at_a_call() -> None:
    """D-83: a call would wait for ever. Servers that were open before are stopped."""
    finished = run_python("-W", "ignore", "-c", PROGRAM, cwd=ROOT, timeout=BOUND)
    assert finished.returncode == 0, finished.stderr  # where gevent complains of threads that ran before it patched
    before, still, call, *opened = finished.stdout.splitlines()
    assert (before, still) == ("not patched", "still served")
    assert call == MESSAGE.format(who="server 'a'", library="gevent")
    assert opened == [
        MESSAGE.format(who=f"mcp_actors.{door}()", library="gevent")
        for door in ("sync.open_servers", "bridge.open_servers", "bridge.open_servers", "bridge.open_supervisor")
    ]


PATCHED_ON_THE_WAY: Final = """
import asyncio
from gevent import monkey
from mcp_actors import bridge
from tests.servers.groups import server

async def main():
    async with bridge.open_servers(server("a")) as servers:
        monkey.patch_select()
        await servers["a"].call("echo", text="patched")

asyncio.run(main())
"""


def test_a_call_of_asyncio_in_a_program_that_was_patched_since_is_refused() -> None:
    finished = run_python("-W", "ignore", "-c", PATCHED_ON_THE_WAY, cwd=ROOT, timeout=BOUND)
    assert finished.returncode == 1
    message = MESSAGE.format(who="server 'a'", library="gevent")
    assert finished.stderr.endswith(f"RuntimeError: {message}\n")


def test_eventlet_under_which_trio_cannot_be_imported_is_refused_at_the_import(tmp_path: Path) -> None:
    """The point is a new interpreter, in which eventlet has patched the sockets before Trio is imported."""
    pytest.importorskip("eventlet", reason="eventlet is not installed; it is part of the extra 'places'")
    program = "import eventlet; eventlet.monkey_patch(); import mcp_actors.sync"
    environment = {**os.environ, "EVENTLET_NO_GREENDNS": "yes"}  # what it imports for DNS may import Trio as well
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, timeout=BOUND, capture_output=True, text=True
    )
    assert finished.returncode == 1
    assert finished.stderr.endswith(f"ImportError: {MESSAGE.format(who='mcp_actors', library='eventlet')}\n")
