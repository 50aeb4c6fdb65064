"""Around every test of servers: observers never raise, exits and files are awaited, ways are drawn.

The moment that the kernel takes to report the exit of a process is long on a machine that is busy. An error then could
not say how the process has ended, which many tests expect; so here the library waits for it as long as it takes.

A request over a pipe may be a line without a task, or an exchange in a task, and nothing but its cost may depend on
that. So each test draws one way or both, and a failure shows which. ``PROGRAMS_SEED`` repeats it; with ``WAY``, all
tests take one of `WAYS`. A test with the mark ``own_way`` decides: only its calls with `BY_SESSION` have a task.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from mcp_actors.kernel import Later
from mcp_actors.servers.connection._direct import DirectRequests
from mcp_actors.servers.group import _memory, _tree
from mcp_actors.transports._request_table import RequestTable
from mcp_actors.transports.stdio import _link
from tests.programs import SEED

from .answers import BY_SESSION

WAYS: Final = {"direct": 1.0, "mixed": 0.5, "exchanged": 0.0}
"""The share of requests that are lines without a task if they may."""


EXIT: Final = 30.0
"""Seconds for a process to exit, or for a file, which takes milliseconds; every time-out of a request is longer."""


@pytest.fixture(autouse=True)
def no_observer_has_raised(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which an observer raised: a group's own observer checks every change of state."""
    yield
    raised = [record for record in caplog.get_records("call") if record.getMessage().startswith("observer ")]
    if raised:
        pytest.fail("\n".join(f"{record.getMessage()}: {record.exc_info}" for record in raised), pytrace=False)


@pytest.fixture(autouse=True)
def exits_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the exit of a process after its stdout ended, however long a busy machine takes to report it."""
    for constant in ("EXIT_WAIT", "OBITUARY_WAIT", "STDERR_WAIT"):
        monkeypatch.setattr(_link, constant, EXIT)


@pytest.fixture(autouse=True)
def files_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the files of a catalogue, which takes milliseconds, however long a busy machine takes."""
    for constant in ("LOAD_WAIT", "PINS_WAIT", "FLUSH_WAIT"):
        monkeypatch.setattr(_memory, constant, EXIT)
    monkeypatch.setattr(_tree, "FLUSH_WAIT", EXIT)


def is_by_session(later: Later[Any]) -> bool:
    """Return True for a call that is to have a task."""
    return getattr(later.message, "meta", None) == BY_SESSION


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Draw the way of the requests that may go directly, unless the test has the mark ``own_way``."""
    if request.node.get_closest_marker("own_way") is not None:
        take = DirectRequests.take
        monkeypatch.setattr(DirectRequests, "take", lambda self, later: not is_by_session(later) and take(self, later))
        return "direct"
    draw = random.Random(f"{SEED} {request.node.nodeid}")
    drawn = os.environ.get("WAY") or draw.choice([*WAYS])
    request.node.add_report_section("setup", "way", f"requests: {drawn}; PROGRAMS_SEED={SEED}")
    if drawn != "direct":
        take, share = DirectRequests.take, WAYS[drawn]
        monkeypatch.setattr(DirectRequests, "take", lambda self, later: draw.random() < share and take(self, later))
    return drawn


@pytest.fixture
def in_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no request go directly if the parameter is true."""
    if request.param:
        monkeypatch.setattr(DirectRequests, "take", lambda self, later: False)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[RequestTable]:
    """Collect the tables of all connections."""
    made, init = list[RequestTable](), RequestTable.__init__

    def note(table: RequestTable) -> None:
        init(table)
        made.append(table)

    monkeypatch.setattr(RequestTable, "__init__", note)
    return made
