"""A web application that opens its servers when it starts and closes them when it stops.

Prints::

    200 {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
    200 {'time': 'ready'}
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.bridge import AsyncioServerGroup, open_servers


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, AsyncioServerGroup]]:
    async with open_servers(ServerConfig("time", Stdio("mcp-server-time"))) as servers:
        yield {"servers": servers}


async def now(request: Request) -> JSONResponse:
    servers = request.state.servers
    zone = request.path_params["zone"]
    result = await servers["time"].call_tool("get_current_time", {"timezone": zone})
    return JSONResponse(result.structured_content)


async def health(request: Request) -> JSONResponse:
    servers = request.state.servers
    states = {server.name: server.state for server in servers.configured}
    return JSONResponse(states, status_code=503 if servers.errors else 200)


async def unavailable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=503)


app = Starlette(
    routes=[Route("/now/{zone:path}", now), Route("/health", health)],
    lifespan=lifespan,
    exception_handlers={ServerError: unavailable},
)


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()
    async with httpx2.AsyncClient(base_url=f"http://{host}:{port}") as client:
        for path in ("/now/Europe/Paris", "/health"):
            response = await client.get(path)
            print(response.status_code, response.json())
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
