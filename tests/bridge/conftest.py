"""Create what exists once per process, so that no test seems to have left it behind."""

from __future__ import annotations

import pytest
import uvloop


@pytest.fixture(scope="session", autouse=True)
def libuv_has_its_pipe() -> None:
    """The library below uvloop keeps a pipe for signals from the first event loop on."""
    uvloop.new_event_loop().close()
