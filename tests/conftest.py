"""Fixtures and settings for every test: nothing is left behind, and hypothesis has no deadline."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial

import hypothesis
import pytest

from .leftovers import Snapshot
from .messages import Said, check, table_for

# How long an example takes depends on the machine. What must not take long says so in its test.
hypothesis.settings.register_profile(
    "mcp_actors", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("mcp_actors")

# What a shell runs in the background, it runs deaf to Ctrl-C, and nohup to the end of a terminal; and so would be all
# programs that are interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a child process, an open file descriptor or a busy thread.

    It is synchronous, so for a Trio test it looks before `trio.run` begins and after it has ended. It is the first
    fixture to be set up and the last to be torn down; what fixtures of a wider scope hold is not the test's.
    """
    before = Snapshot.take()
    yield
    if found := before.leftovers():
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture
def said(request: pytest.FixtureRequest) -> Said:
    """Compare a message with its row in the table of the test's folder."""
    return partial(check, table_for(request.path.parent))
