"""A real streamable HTTP server on the loopback interface, with the SDK's own server; run as a process.

It prints its port as the first line on stdout. ``--require-header NAME=VALUE`` answers everything else with 401;
``--sse`` speaks HTTP with SSE, at ``/sse``. ``--asks`` offers a tool that asks the user and logs.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

from tests.forkserver import Program, serve_python

TOOLS: Final = {"add", "echo", "grow", "meet", "pid", "sleep"}


class Running:
    """This server, in a process of its own."""

    def __init__(self, process: Program, port: int) -> None:
        self.pid = process.pid
        self.process = process
        self.port = port

    @property
    def url(self) -> str:
        """Its endpoint, if it speaks streamable HTTP."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        self.process.kill()
        self.process.wait()


@contextmanager
def run_server(*flags: str) -> Iterator[Running]:
    """Run this server with `flags` while a block runs."""
    with serve_python("-m", __name__, *flags) as (process, port):
        yield Running(process, port)


@contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a port for a server that may come and go; connections are refused while there is none.

    Without that, another test could get the port meanwhile. Only Linux lets a server bind to it as well.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        port: int = reservation.getsockname()[1]
        if sys.platform != "linux":
            reservation.close()
        yield port


def make_server() -> MCPServer:
    """Make the server and its tools."""
    server = MCPServer("over-http")

    @server.tool()
    def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool()
    def pid() -> str:
        """Return the process id of the server."""
        return str(os.getpid())

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool()
    async def sleep(seconds: float) -> str:
        """Sleep, then say for how long."""
        await anyio.sleep(seconds)
        return f"slept {seconds}"

    everybody: list[anyio.Event] = []

    @server.tool()
    async def meet(number: int) -> str:
        """Wait until so many calls are here at the same time."""
        everybody.append(here := anyio.Event())
        if len(everybody) == number:
            while everybody:
                everybody.pop().set()
        await here.wait()
        return "all are here"

    @server.tool()
    async def grow(name: str, ctx: Context[Any, Any]) -> str:
        """Offer one more tool, and give notice."""
        server.add_tool(lambda: name, name=name)
        await ctx.session.send_tool_list_changed()
        await ctx.notify_tools_changed()
        return name

    return server


class Name(BaseModel):
    """The question that a tool asks."""

    name: str


def ask_for_name() -> Elicit[Name]:
    """Ask, in the way of the era."""
    return Elicit("Who are you?", Name)


async def greet(who: Annotated[Name, Resolve(ask_for_name)], ctx: Context[Any, Any]) -> str:
    """Ask for a name, and log the answer too."""
    await ctx.info(who.name)
    return f"hello {who.name}"


class RequireHeader:
    """Lets only requests through that have a certain header."""

    def __init__(self, app: Any, required: str) -> None:
        self.app = app
        name, _, value = required.partition("=")
        self.header = (name.lower().encode(), value.encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or self.header in scope["headers"]:
            await self.app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Run the server until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--require-header", metavar="NAME=VALUE")
    parser.add_argument("--sse", action="store_true")
    parser.add_argument("--asks", action="store_true")
    flags = parser.parse_args()
    server = make_server()
    if flags.asks:
        server.add_tool(greet)
    app: Any = server.sse_app() if flags.sse else server.streamable_http_app()
    if flags.require_header is not None:
        app = RequireHeader(app, flags.require_header)
    # With its protocol named, asyncio switches off the delay of small packets, which would cost 40 ms per answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", flags.port))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
