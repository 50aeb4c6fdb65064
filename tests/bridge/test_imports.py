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
    assert not {"trio_asyncio", "uvloop"} & sys.modules.keys(), module
    assert {name: getattr(asyncio, name) for name in dir(asyncio)} == before, module
    assert get_policy() is policy, module

async def main():
    return type(asyncio.get_running_loop()).__module__

assert asyncio.run(main()) == "asyncio.unix_events"
"""


def test_importing_it_leaves_asyncio_as_it_is() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", CODE], check=True)
