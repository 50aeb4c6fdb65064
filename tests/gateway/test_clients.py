"""Clients of both SDKs and both eras, servers of both eras, and a SIGKILL of the server in the middle of a call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import trio
from mcp import Client, MCPError, StdioServerParameters

from ..node.packages import FETCHED, node
from ..servers.processes import eventually
from ..source import ROOT
from .hosts import BOUND
from .test_serve import write_file

ERAS: Final = ("legacy", "modern", "both")

UNKNOWN: Final = {"mcp_actors": {"outcome": "unknown", "error": "ConnectionLost"}}


def serve(folder: Path) -> tuple[str, list[str]]:
    """Return the command that serves a server of each era, with a log and a file for its process id."""
    servers = {
        era: ("--era", era, "--log-file", str(folder / f"{era}.log"), "--pid-file", str(folder / f"{era}.pid"))
        for era in ERAS
    }
    file = write_file(folder, **servers)
    return sys.executable, ["-m", "mcp_actors", "serve", "--config", str(file), "--stdio"]


async def kill_in_call(folder: Path, era: str) -> None:
    """Kill a server once it has begun the call of ``sleep``."""
    log = folder / f"{era}.log"
    await eventually(lambda: log.exists() and "tools/call sleep" in log.read_text())
    os.kill(int((folder / f"{era}.pid").read_text().split()[-1]), signal.SIGKILL)


def check(before: Any, error: Any, after: Any) -> None:
    """Check a cell of the table."""
    assert error == {"code": -32000, "data": UNKNOWN}
    assert before == after
    total, names = after
    assert total == "3"
    assert {f"{era}_add" for era in ERAS} <= set(names)


@pytest.mark.usefixtures("programs_in_forks")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_python_client_sees_the_death_of_a_server_of_any_era(
    mode: Literal["auto", "legacy"], tmp_path: Path
) -> None:
    command, args = serve(tmp_path)
    server = StdioServerParameters(command=command, args=args, env={**os.environ, "PYTHONPATH": str(ROOT)})
    async with Client(server, mode=mode, cache=None) as client:

        async def use(era: str) -> tuple[str, list[str]]:
            total: Any = (await client.call_tool(f"{era}_add", {"a": 1, "b": 2})).content[0]
            return total.text, [tool.name for tool in (await client.list_tools()).tools]

        for era in ERAS:
            before = await use(era)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill_in_call, tmp_path, era)
                with pytest.raises(MCPError) as caught:
                    await client.call_tool(f"{era}_sleep", {"seconds": 600})
            check(before, {"code": caught.value.code, "data": caught.value.data}, await use(era))


@pytest.mark.usefixtures("programs_in_forks", "npm_packages")
async def test_the_typescript_client_sees_the_death_of_a_server_of_any_era(tmp_path: Path) -> None:
    command, args = serve(tmp_path)
    sdk = FETCHED / "node_modules" / "@modelcontextprotocol" / "sdk"
    words = [str(node()), str(Path(__file__).with_name("client.mjs")), str(sdk), command, ",".join(ERAS), *args]
    said: list[subprocess.CompletedProcess[bytes]] = []

    async def run() -> None:
        said.append(await trio.run_process(words, capture_stdout=True, env={**os.environ, "PYTHONPATH": str(ROOT)}))

    with trio.fail_after(3 * BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            for era in ERAS:
                await kill_in_call(tmp_path, era)
    cells = [json.loads(line) for line in said[0].stdout.splitlines()]
    assert [cell.pop("server") for cell in cells] == list(ERAS)
    for cell in cells:
        check(**cell)
