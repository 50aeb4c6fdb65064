"""Quart: each worker process opens servers while it serves.

Run it with ``hypercorn quart_app:app``, or with ``uvicorn quart_app:app``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from quart import Quart

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.bridge import open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))

app = Quart(__name__)


@app.while_serving
async def hold_servers() -> AsyncGenerator[None]:
    async with open_servers(TIME, drain_timeout=5) as servers:
        app.extensions["servers"] = servers
        yield


@app.get("/now/<path:zone>")
async def now(zone: str) -> Any:
    servers = app.extensions["servers"]
    return await servers["time"].call("get_current_time", timezone=zone)


@app.errorhandler(ServerError)
async def unavailable(error: ServerError) -> tuple[dict[str, str], int]:
    return {"error": str(error)}, 503
