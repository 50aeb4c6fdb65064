"""Use one client as its users do, on command: ``python driver.py CLIENT SERVERS``.

Commands and answers are lines of JSON on stdin and stdout. This program runs in the environment of its client, so it
imports the standard library only; the modules in ``drivers`` import the clients.

======================================================================  ======================================
``{"id": 1, "do": "open"}``                                             connect to all servers
``{"id": 2, "do": "list", "server": "a"}``                              the names of the tools of a server
``{"id": 3, "do": "call", "server": "a", "tool": …, "arguments": {…}}`` the text of the result of a tool
``{"id": 4, "do": "follow", "server": "a", "tool": …}``                 the reports of progress of a tool, as a list
``{"id": 5, "do": "cancel", "of": 3}``                                  cancel the task that waits for a call
``{"id": 6, "do": "close"}``                                            disconnect, and end
======================================================================  ======================================

Each is answered by ``{"id": …, "ok": …}`` or ``{"id": …, "error": "…"}``, a cancelled call by ``"error": "cancelled"``.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol, cast

Servers = dict[str, dict[str, Any]]
"""By name: ``command`` and ``args``, or ``url``; and ``timeout``, the seconds for a call, or None for the default."""


THROWN_OUT: Final = -1
"""The number under which a client's error is reported that ends the program's block before it is closed."""


class Connected(Protocol):
    """A client that is connected to its servers."""

    async def list_tools(self, server: str) -> list[str]:
        """Return the names of the tools of a server."""

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Return the text of a result; raise what the client raises, or `ToolFailed` for a result that is an error."""


class Report(Protocol):
    """A function for the progress of a tool."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take one report."""


class Reporting(Connected, Protocol):
    """A client with progress."""

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool without arguments, and let the client report its progress."""


class Driver(Protocol):
    """A module in ``drivers``."""

    def connect(self, servers: Servers) -> AbstractAsyncContextManager[Connected]:
        """Connect to the servers around a block."""


class ToolFailed(Exception):
    """The client reports a failure as a result."""


_reports: list[Report] = []


def report_to(report: Report) -> None:
    """Let `pass_on` report to a function from now on."""
    _reports.append(report)


async def pass_on(progress: float, total: float | None, message: str | None) -> None:
    """Report progress; for clients that take a function when they are made, before the program has one."""
    await _reports[-1](progress, total, message)


def say(number: int, **answer: object) -> None:
    """Answer a command."""
    os.write(1, json.dumps({"id": number, **answer}).encode() + b"\n")


def describe(error: BaseException) -> str:
    """Return the types and the texts of an error, or of the errors in a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(describe(each) for each in error.exceptions))
    return f"{type(error).__name__}: {error}" if not isinstance(error, ToolFailed) else str(error)


def text_of(result: Any) -> str:
    """Return the text of a result of the SDK.

    Raises:
        ToolFailed: the result is an error.
    """
    text = "".join(getattr(each, "text", "") for each in result.content)
    if getattr(result, "is_error", False):
        raise ToolFailed(text)
    return text


async def follow(client: Reporting, command: dict[str, Any]) -> list[float]:
    """Call a tool; return the progress that was reported before its result."""
    seen: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    await client.follow_tool(command["server"], command["tool"], report)
    return list(seen)


def carry_out(client: Connected, command: dict[str, Any]) -> Coroutine[Any, Any, object]:
    """Return what a command asks for."""
    if command["do"] == "list":
        return client.list_tools(command["server"])
    if command["do"] == "follow":
        return follow(cast("Reporting", client), command)
    return client.call_tool(command["server"], command["tool"], command["arguments"])


async def answer(client: Connected, command: dict[str, Any]) -> None:
    """Carry out a command in a task of its own."""
    try:
        say(command["id"], ok=await carry_out(client, command))
    except asyncio.CancelledError:
        say(command["id"], error="cancelled")
        raise
    except Exception as error:
        say(command["id"], error=describe(error))


async def run(driver: Driver, servers: Servers) -> None:
    """Serve the commands on asyncio."""
    stdin = asyncio.StreamReader(limit=64 * 1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    command = json.loads(await stdin.readline())
    calls: dict[int, asyncio.Task[None]] = {}
    try:
        async with driver.connect(servers) as client:
            say(command["id"], ok="open")
            async for line in stdin:
                command = json.loads(line)
                if command["do"] == "close":
                    break
                if command["do"] == "cancel":
                    calls[command["of"]].cancel()
                else:
                    calls[command["id"]] = asyncio.create_task(answer(client, command))
        say(command["id"], ok="closed")
    except BaseException as error:
        say(command["id"] if command["do"] in {"open", "close"} else THROWN_OUT, error=describe(error))
        raise


def main(name: str, servers: str) -> None:
    """Import a client, say so, and serve the commands."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    driver: Any = importlib.import_module(f"tests.compare.drivers.{name}")
    say(0, ok="imported")
    if hasattr(driver, "run"):  # it does not run on asyncio
        driver.run(json.loads(servers))
    else:
        asyncio.run(run(driver, json.loads(servers)))


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    sys.modules["tests.compare.driver"] = sys.modules["__main__"]  # for the modules in `drivers`
    main(*sys.argv[1:])
