"""Litestar: each worker process opens servers in its lifespan.

Run it with ``uvicorn litestar_app:app``, or with ``litestar --app litestar_app:app run``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, get
from litestar.datastructures import State

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.bridge import open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncGenerator[None]:
    async with open_servers(TIME, drain_timeout=5) as app.state.servers:
        yield


@get("/now/{zone:path}")
async def now(zone: str, state: State) -> dict[str, Any]:
    answer: dict[str, Any] = await state.servers["time"].call(
        "get_current_time", timezone=zone.lstrip("/")
    )
    return answer


def unavailable(
    request: Request[Any, Any, Any], error: ServerError
) -> Response[dict[str, str]]:
    return Response({"error": str(error)}, status_code=503)


app = Litestar(
    [now], lifespan=[lifespan], exception_handlers={ServerError: unavailable}
)
