"""See what importing the package does, in one new interpreter for all tests that ask.

To import it takes a second of processor time, so the interpreter imports one part after the other, with all warnings as
errors, and prints what it finds in between.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Final

OPTIONAL: Final = (
    "h11",
    "jwt",
    "mcp.client.auth",
    "mcp_actors.auth._sign_in",
    "mcp_actors.auth._tokens",
    "mcp_actors.config.formats",
    "mcp_actors.config._sources",
    "mcp_actors.config._tables",
    "mcp_actors.transports.http._client",
    "mcp_actors.transports.http._streamable",
    "sqlite3",
    "tomllib",
    "webbrowser",
)
"""Modules that only some programs use."""

FRAMEWORKS: Final = (
    "agents",
    "pydantic_ai",
    "langchain",
    "langchain_core",
    "anthropic",
    "dspy",
    "llama_index",
    "agent_framework",
)
"""What the adapters are for."""

IMPORTING: Final = f"""
import asyncio, os, sys, warnings
found = {{"asyncio changed by": [], "frameworks imported by": []}}

def policy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.14
        return asyncio.get_event_loop_policy()

def of_asyncio():
    return [*vars(asyncio).items(), policy()]

def look(part):
    if of_asyncio() != before_all or {{"trio_asyncio", "uvloop"}} & sys.modules.keys():
        found["asyncio changed by"].append(part)
    if {{*{FRAMEWORKS!r}}} & sys.modules.keys():
        found["frameworks imported by"].append(part)

before_all = of_asyncio()
import mcp_actors
found["with the facade"] = [name for name in sys.modules if name.startswith(("mcp", "trio"))]
found["names of the facade"] = sorted(set(mcp_actors.__all__) - set(dir(mcp_actors)))
look("mcp_actors")

if os.fork() == 0:
    from mcp_actors import _errors
    errors = [each for each in vars(_errors).values() if isinstance(each, type)]
    homes = {{each.__module__ for each in errors if issubclass(each, _errors.McpActorsError)}}
    print({{"homes of errors": sorted(homes)}}, flush=True)
    os._exit(0)
os.wait()

import attrs, trio
before = {{*sys.modules}}
import mcp_actors.kernel
added = {{name.partition(".")[0] for name in {{*sys.modules}} - before}}
found["with the kernel"] = sorted(added - sys.stdlib_module_names)
found["json with the kernel"] = "json" in sys.modules

from mcp_actors import config
found["names of config"] = sorted({{*config.__all__}} - {{*dir(config)}})

from mcp_actors import open_servers
found["with servers"] = sorted({{*{OPTIONAL!r}}} & sys.modules.keys())
look("mcp_actors.servers")

import mcp_actors.catalog as catalog, mcp.types
tool = mcp.types.Tool(name="find", input_schema={{"type": "object", "required": ["q"]}})
found["the validator with checks"] = checked = {{}}
for mode in "off", "schema":
    catalog.ToolChecks("docs", [tool], mode).check_arguments("find", {{"q": 1}})
    checked[mode] = "jsonschema" in sys.modules

import mcp_actors.bridge
dir(mcp_actors.bridge)
look("mcp_actors.bridge")

import mcp_actors.adapters
mcp_actors.adapters.__all__, dir(mcp_actors.adapters)
look("mcp_actors.adapters")

config.load_config
from mcp_actors.config.formats import Input
found["homes of config"] = [config.load_config.__module__, Input.__module__]

from mcp_actors.config import *
found["home of a source"] = SqliteSource.__module__

async def main():
    return type(asyncio.get_running_loop()).__module__

found["loop of asyncio"] = asyncio.run(main())
print(found)
"""


@cache
def importing() -> Mapping[str, object]:
    """Return what a new interpreter finds while it imports one part of the package after the other."""
    done = python("-W", "error", "-c", IMPORTING)
    assert done.returncode == 0, done.stderr
    return {name: found for line in done.stdout.splitlines() for name, found in ast.literal_eval(line).items()}


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a new interpreter, and return its output."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, **variables}, timeout=60
    )
