"""A server of the SDK whose tool notes in a file when it begins and when it is cancelled; run as a process.

``stdio`` serves it over stdin and stdout, ``http`` and ``sse`` on a free port, which is printed first.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer


def note(path: str, line: str) -> None:
    """Append a line to a file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode() + b"\n")
    os.close(file)


def make_server() -> MCPServer:
    """Make the server and its tools."""
    server = MCPServer("lingering")

    @server.tool()
    async def linger(path: str) -> None:
        """Wait without end."""
        note(path, "began")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            note(path, "cancelled")
            raise

    @server.tool()
    async def say() -> str:
        """Answer."""
        return "said"

    return server


def main(way: str) -> None:
    """Serve until it is killed, or stdin ends."""
    server = make_server()
    if way == "stdio":
        server.run()
        return
    app: Any = server.sse_app() if way == "sse" else server.streamable_http_app()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
