"""Importing this package leaves asyncio as it is."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, importlib, sys, warnings

def get_policy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.14
        return asyncio.get_event_loop_policy()

before = {name: getattr(asyncio, name) for name in dir(asyncio)}
policy = get_policy()
for module in ("mcp_actors", "mcp_actors.servers", "mcp_actors.bridge"):
    importlib.import_module(module)
    assert "trio_asyncio" not in sys.modules, module
    assert {name: getattr(asyncio, name) for name in dir(asyncio)} == before, module
    assert get_policy() is policy, module

async def main():
    return type(asyncio.get_running_loop()).__module__

assert asyncio.run(main()) == "asyncio.unix_events"
"""


def test_importing_it_leaves_asyncio_as_it_is() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", CODE], check=True)


def test_the_bridge_imports_asyncio_only_when_it_is_used() -> None:
    code = "import sys, trio, mcp; known = set(sys.modules); import mcp_actors.bridge; print(*set(sys.modules) - known)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"trio_asyncio", "uvloop"} & set(run.stdout.split())
