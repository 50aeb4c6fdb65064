"""Every scenario on every host. See ``scenarios.py``, whose docstrings name the rows."""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from mcp_actors import ServerConfig, Socket
from tests.forkserver import run_python
from tests.gateway.daemons import daemon
from tests.servers.groups import BOUND
from tests.servers.scripted_server import command
from tests.source import ROOT

from . import scenarios
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


class Gateways:
    """Configures servers as the scenarios do, each behind a gateway of its own, which is a process."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._paths: dict[tuple[str, ...], str] = {}

    def server(self, name: str, *flags: str, **options: Any) -> ServerConfig:
        """Configure a scripted server with these flags, and start its gateway if there is none."""
        if (name, *flags) not in self._paths:
            program, args = command(*flags)
            entry = {"command": program, "args": list(args), "mcp_actors": {"protocol": "legacy"}}
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            self._paths[name, *flags] = self._stack.enter_context(daemon(folder, **{name: entry})).path
        return ServerConfig(name, Socket(self._paths[name, *flags]), **{"stop_timeout": BOUND, **options})


BEHIND: Final = [name for name, fn in SCENARIOS.items() if "server(" in inspect.getsource(fn)]


@pytest.mark.parametrize("scenario", BEHIND)
def test_scenario_through_a_gateway(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with servers of another process, over a `Socket`, on the hosts in turns: both know only the link."""
    host = ("trio", "thread", "guest")[BEHIND.index(scenario) % 3]
    with ExitStack() as stack:
        monkeypatch.setattr(scenarios, "server", Gateways(stack).server)
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
