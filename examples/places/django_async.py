"""Django with async views: each worker process opens servers in the lifespan of the web server.

Run it with ``uvicorn django_async:application --timeout-graceful-shutdown 5``. Django itself ignores the lifespan.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.bridge import AsyncioServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], DEBUG=True)


async def now(request: HttpRequest, zone: str) -> JsonResponse:
    scope: Any = request.scope
    servers: AsyncioServerGroup = scope["state"]["servers"]
    try:
        time = await servers["time"].call("get_current_time", timezone=zone)
    except ServerError as error:  # the server is down, or slow
        return JsonResponse({"error": str(error)}, status=503)
    return JsonResponse(time)


urlpatterns = [path("now/<path:zone>", now)]
django = get_asgi_application()


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "lifespan":
        await django(scope, receive, send)
        return
    await receive()  # lifespan.startup
    async with open_servers(TIME, drain_timeout=5) as servers:
        scope["state"]["servers"] = servers
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
    await send({"type": "lifespan.shutdown.complete"})
