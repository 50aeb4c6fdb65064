"""A program that calls a tool until a time, with the tokens that all its copies share; run as a process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import trio

from mcp_actors import open_servers

from .authority import Authority


async def main(*words: str) -> None:
    """Call the tool; print the number of calls."""
    url, folder, seconds = words
    number = 0
    async with open_servers(Authority(url).config(Path(folder)), strict=True) as servers:
        until = time.monotonic() + float(seconds)
        while time.monotonic() < until:
            await servers["guarded"].call_tool("whoami")
            number += 1
            await trio.sleep(0.01)
    print(number)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
