"""FastAPI: each worker process opens servers in its lifespan.

Run it with one of::

    uvicorn fastapi_app:app --timeout-graceful-shutdown 5
    uvicorn fastapi_app:app --timeout-graceful-shutdown 5 --workers 2
    uvicorn fastapi_app:app --timeout-graceful-shutdown 5 --reload
    hypercorn fastapi_app:app
    gunicorn fastapi_app:app --worker-class uvicorn_worker.UvicornWorker
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.bridge import AsyncioServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, AsyncioServerGroup]]:
    async with open_servers(TIME, drain_timeout=5) as servers:
        yield {"servers": servers}


app = FastAPI(lifespan=lifespan)


@app.get("/now/{zone:path}")
async def now(zone: str, request: Request) -> Any:
    servers: AsyncioServerGroup = request.state.servers
    return await servers["time"].call("get_current_time", timezone=zone)


@app.exception_handler(ServerError)
async def unavailable(request: Request, error: ServerError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=503)
