"""PyInstaller and shiv: one file that is a program and its own server.

``pyinstaller frozen_app.py`` and ``shiv --console-script`` make a program of it. There is no other Python then:
`sys.executable` is the program itself, so ``Stdio(sys.executable, ["server"])`` starts it again, with an argument by
which it must notice that it is to be the server.

Prints::

    5
"""

from __future__ import annotations

import sys

import trio
from mcp.server import MCPServer

from mcp_actors import ServerConfig, Stdio, open_servers

calculator = MCPServer("calculator")


@calculator.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def itself(*arguments: str) -> Stdio:
    """Return how this program is started again."""
    frozen = getattr(sys, "frozen", False)  # by PyInstaller
    return Stdio(sys.executable, arguments if frozen else [sys.argv[0], *arguments])


async def main() -> None:
    async with open_servers(ServerConfig("calculator", itself("server"))) as servers:
        print(await servers["calculator"].call("add", a=2, b=3))


def run() -> None:
    if sys.argv[1:] == ["server"]:
        calculator.run()
    else:
        trio.run(main)


if __name__ == "__main__":
    run()
