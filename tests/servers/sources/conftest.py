"""A clock and a file for tests of sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from .written import use_no_threads


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    use_no_threads(monkeypatch)
    return autojump_clock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"
