"""Around every test of servers: observers never raise, exits and files are awaited, ways are drawn.

The moment that the kernel takes to report the exit of a process is long on a machine that is busy. An error then could
not say how the process has ended, which many tests expect; so here the library waits for it as long as it takes.

A request over stdio or HTTP may go directly or through the SDK's dispatcher, and nothing but its cost may depend on
that. So each test draws one way or both, and a failure shows which. ``PROGRAMS_SEED`` repeats it; with ``WAY``, all
tests take one of `WAYS`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Final

import pytest

from mcp_actors.servers.connection import _dispatch
from mcp_actors.servers.connection._direct import DirectRequests
from mcp_actors.servers.group import _memory, _tree
from mcp_actors.servers.requests import is_traced
from mcp_actors.servers.transports.stdio import _link
from tests.programs import SEED

WAYS: Final = {"direct": 1.0, "mixed": 0.5, "dispatched": 0.0}
"""The share of requests that go directly if they may."""


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


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Draw the way of the requests that may go directly, unless the test has the mark ``own_way``."""
    if request.node.get_closest_marker("own_way") is not None:
        return "direct"
    draw = random.Random(f"{SEED} {request.node.nodeid}")
    drawn = os.environ.get("WAY") or draw.choice([*WAYS])
    request.node.add_report_section("setup", "way", f"requests: {drawn}; PROGRAMS_SEED={SEED}")
    if drawn != "direct":
        take, share = DirectRequests.take, WAYS[drawn]
        monkeypatch.setattr(DirectRequests, "take", lambda self, later: draw.random() < share and take(self, later))
        monkeypatch.setattr(_dispatch, "is_traced", lambda: draw.random() >= share or is_traced())
    return drawn
