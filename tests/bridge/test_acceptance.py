"""Every scenario on every host. See ``scenarios.py``, whose docstrings name the rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import uvloop

from tests.forkserver import run_python
from tests.source import ROOT

from .hosts import on_asyncio, on_trio
from .scenarios import SCENARIOS

HOSTS = {
    "trio": on_trio,
    "thread": on_asyncio("thread"),
    "guest": on_asyncio("guest"),
    "thread, uvloop": on_asyncio("thread", uvloop.run),
    "guest, uvloop": on_asyncio("guest", uvloop.run),
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, host: str, tmp_path: Path) -> None:
    """S3-26, S4-11, S4-18, A-01, A-27: from asyncio as from Trio."""
    HOSTS[host](SCENARIOS[scenario], tmp_path)


@pytest.fixture(scope="module")
def ends_on_trio_asyncio(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How each scenario ended there. One process for all: trio-asyncio changes asyncio for the process it is in."""
    finished = run_python("-m", "tests.bridge.hosts", tmp_path_factory.mktemp("trio_asyncio"), cwd=ROOT, timeout=300)
    assert finished.returncode == 0, finished.stderr
    ends: dict[str, str] = json.loads(finished.stdout)
    return ends


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="trio-asyncio does not work there")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_on_trio_asyncio(scenario: str, ends_on_trio_asyncio: dict[str, str]) -> None:
    assert ends_on_trio_asyncio[scenario] == "fine"
