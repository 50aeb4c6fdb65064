"""Servers over HTTP: what is shown of their credentials, and a client of one's own.

The server that is called is `servers/weather_http.py`, on the loopback interface.

Prints::

    Http('https://example.com/mcp', auth=…)
    Sse('https://example.com/sse', headers={'X-Api-Key': …})
    fog in Oslo
    for anna: fog in Oslo
    for ben: fog in Oslo
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import httpx2
import trio

from mcp_actors import (
    Http,
    ServerConfig,
    ServerGroup,
    Sse,
    open_servers,
    result_value,
)

docs = ServerConfig("docs", Http("https://example.com/mcp", auth="${DOCS_TOKEN}"))
older = ServerConfig(
    "older", Sse("https://example.com/sse", headers={"X-Api-Key": "${OLDER_KEY}"})
)


def make_client() -> httpx2.AsyncClient:
    proxy = os.environ.get("WEATHER_PROXY")
    return httpx2.AsyncClient(proxy=proxy, timeout=httpx2.Timeout(None, connect=5))


async def ask(url: str) -> None:
    weather = ServerConfig("weather", Http(url, http_client=make_client))
    async with open_servers(weather, strict=True) as servers:
        print(
            result_value(
                await servers["weather"].call_tool("forecast", {"city": "Oslo"})
            )
        )


USER: ContextVar[str] = ContextVar("USER", default="guest")


class ForUser(httpx2.Auth):
    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers["X-User-ID"] = USER.get()
        yield request


async def ask_for(user: str, servers: ServerGroup) -> None:
    USER.set(user)
    forecast = await servers["weather"].call("forecast", city="Oslo")
    print(f"for {user}: {forecast}")


async def two_users(url: str) -> None:
    weather = ServerConfig("weather", Http(url, auth=ForUser()), required=True)
    async with open_servers(weather) as servers:
        await ask_for("anna", servers)
        await ask_for("ben", servers)


@contextmanager
def weather_server() -> Generator[str]:
    """Run the server, which ends when its standard input does; give its URL."""
    program = Path(__file__).parents[1] / "servers" / "weather_http.py"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, program], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        finally:
            process.stdin.close()


print(docs.transport, older.transport, sep="\n")
with weather_server() as url:
    trio.run(ask, url)
    trio.run(two_users, url)
