"""The weather: a small MCP server over streamable HTTP on the loopback interface, for the demo.

It prints its port, which the operating system chooses, and exits when its standard input is closed, so it never
outlives the program that started it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import zlib

import anyio
import uvicorn
from mcp.server import MCPServer

weather = MCPServer("weather", version="1.0", log_level="WARNING")


@weather.tool()
async def forecast(city: str) -> str:
    """Look at the sky for a while, then tell the weather."""
    await anyio.sleep(0.3)
    kind = ["sun", "clouds", "rain", "wind", "fog", "snow"][
        zlib.crc32(city.encode()) % 6
    ]
    return f"{kind} in {city}"


def end_with_stdin() -> None:
    """Wait for the end of standard input, then end this process as a polite signal would."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve until the process is asked to stop."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    uvicorn.Server(
        uvicorn.Config(weather.streamable_http_app(), log_level="warning")
    ).run(sockets=[listener])


if __name__ == "__main__":
    main()
