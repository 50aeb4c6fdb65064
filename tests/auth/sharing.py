"""A program that calls a tool all the time, with the tokens that all its copies share; run as a process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import trio

from mcp_actors import HealthPolicy, ServerRef, open_servers

from .authority import Authority

TASKS = 2
"""Callers in each process."""


async def play(server: ServerRef, number: int) -> None:
    """Call the tool until the server says that it is over."""
    text, who = "", f"{os.getpid()}:{number}"
    while text != "over":
        result = await server.call_tool("whoami", {"who": who})
        text = result.content[0].text  # type: ignore[union-attr]  # the server sends text only
        await trio.sleep(0.01)


async def main(*words: str) -> None:
    """Call the tool in some tasks."""
    url, folder = words
    # Without time-outs, because a hundred processes may take long on a machine with two cores.
    patient: dict[str, Any] = {
        "connect_timeout": None,
        "request_timeout": None,
        "health": HealthPolicy(interval=None, silence=None),
    }
    config = Authority(url).config(Path(folder), **patient)
    async with open_servers(config, strict=True) as servers, trio.open_nursery() as nursery:
        for number in range(TASKS):
            nursery.start_soon(play, servers["guarded"], number)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
