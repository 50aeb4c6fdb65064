"""A server behind a gateway in a child process, which dies in a call: the outcome comes back by name.

Prints::

    5
    ConnectionLost unknown
    5
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import trio

from mcp_actors import ConnectionLost, ServerConfig, Stdio, open_servers

MORTAL = Path(__file__).parents[1] / "servers" / "mortal.py"


def hosted(file: Path, server: str) -> ServerConfig:
    """Return a server of a file that a child process starts and supervises."""
    serve = ("-m", "mcp_actors", "serve", "--stdio", "--config", f"{file}#{server}")
    host = Stdio(sys.executable, serve, trust_outcomes=True)
    return ServerConfig(server, host)


async def main(file: Path) -> None:
    async with open_servers(hosted(file, "sums")) as servers:
        sums = servers["sums"]
        print(await sums.call("add", a=2, b=3))
        try:
            await sums.call("die")
        except ConnectionLost as error:
            print(type(error).__name__, error.outcome)
        print(await sums.call("add", a=2, b=3))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        entry = {"command": sys.executable, "args": [str(MORTAL)]}
        file = Path(folder, "servers.json")
        file.write_text(json.dumps({"mcpServers": {"sums": entry}}))
        trio.run(main, file)
