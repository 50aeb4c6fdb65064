"""Many servers, one of them broken: the others serve, and the broken one joins them once it is repaired.

The kitchen downstairs needs gas, which is a file in this example. Without the file, its program exits with a message.
The group retries it in the background, and meanwhile shows why it failed.

Prints::

    active: upstairs, adder
    downstairs: its process exited with code 1: the kitchen has no gas
    mcp__upstairs__cook: one soup
    mcp__adder__add: 5
    now there is gas
    active: upstairs, downstairs, adder
    mcp__downstairs__cook: one roast
    a required server that is broken: server 'downstairs': ...the kitchen has no gas
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import trio
from mcp.server import MCPServer

from mcp_actors import (
    Backoff,
    ConnectFailed,
    InProcess,
    RestartPolicy,
    ServerConfig,
    ServerGroup,
    Stdio,
    open_servers,
)

KITCHEN = str(Path(__file__).parent / "servers" / "kitchen.py")

adder = MCPServer("adder", log_level="ERROR")


@adder.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def configure(gas: Path) -> list[ServerConfig]:
    """Two programs and an object in this process. The second is tried again every half a second, for a minute."""
    patient = RestartPolicy(
        max_restarts=120, backoff=Backoff(first=0.5, initial=0.5, maximum=0.5)
    )
    return [
        ServerConfig("upstairs", Stdio(sys.executable, [KITCHEN])),
        ServerConfig(
            "downstairs",
            Stdio(sys.executable, [KITCHEN, "--gas", str(gas)]),
            restarts=patient,
        ),
        ServerConfig("adder", InProcess(adder)),
    ]


async def call(
    servers: ServerGroup, public_name: str, arguments: dict[str, Any]
) -> None:
    """Call a tool by its public name, and print the answer."""
    result = await servers.call_tool(public_name, arguments)
    print(f"{public_name}:", *(getattr(part, "text", part) for part in result.content))


def print_active(servers: ServerGroup) -> None:
    """Print who serves, which is always in configured order."""
    print("active:", ", ".join(server.name for server in servers.active))


def repair(gas: Path) -> None:
    """Let there be gas."""
    gas.touch()
    print("now there is gas")


async def start_and_repair(gas: Path) -> None:
    """Begin with one server broken, and repair it."""
    async with open_servers(*configure(gas)) as servers:
        print_active(servers)
        for name, error in servers.errors.items():
            if isinstance(error, ConnectFailed) and error.exit_code is not None:
                code, stderr = error.exit_code, error.stderr_tail.strip()
                print(f"{name}: its process exited with code {code}: {stderr}")
            else:
                print(error)
        await call(servers, "mcp__upstairs__cook", {"dish": "soup"})
        await call(servers, "mcp__adder__add", {"a": 2, "b": 3})

        repair(gas)
        await servers.wait_ready()
        print_active(servers)
        await call(servers, "mcp__downstairs__cook", {"dish": "roast"})


async def start_strictly(gas: Path) -> None:
    """With ``strict=True`` a broken server is an error, and the others are not left running."""
    try:
        async with open_servers(*configure(gas), strict=True):
            print("this is never reached")
    except ConnectFailed as error:
        print("a required server that is broken:", str(error).replace("\n", " "))


async def main() -> None:
    """Start with what works, then insist on everything."""
    with tempfile.TemporaryDirectory() as folder:
        await start_and_repair(Path(folder, "gas"))
        await start_strictly(Path(folder, "gas of another house"))


trio.run(main)
