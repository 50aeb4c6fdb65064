"""Answer the probes of an orchestrator: ``/healthz``, ``/readyz``, ``/status`` and ``/metrics``.

A probe must be answered while servers fail or connect. So the functions `answer`, `missing` and `status` only read
snapshots. Any thread may call them.

Owns: nothing.
Writes: HTTP responses.
Calls: servers, servers.record, _metrics.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..servers import ServerStatus, SourceStatus
from ..servers.record import ACTIVE
from ._metrics import Metrics, Observable


class Answer(NamedTuple):
    """An HTTP answer: the status, the ``content-type`` and the body."""

    status: int
    content_type: str
    body: bytes


def missing(servers: Observable) -> dict[str, dict[str, Any]]:
    """Return why the program is not ready: the name of each required server that does not serve → state, time, reason.

    A refused configuration is listed too, under the name of its source: a required server that cannot be loaded appears
    in no view of the group.
    """
    return _missing(servers.status(), servers.sources)


def _missing(statuses: Mapping[str, ServerStatus], sources: Iterable[SourceStatus]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {
        each.name: {"state": each.state, "since": each.changed_at.isoformat(), "reason": each.reason}
        for each in statuses.values()
        if each.required and each.state not in ACTIVE
    }
    for source in sources:
        if source.refused:
            found[source.name] = {"state": "refused", "since": source.read_at.isoformat(), "reason": str(source.error)}
    return found


def status(servers: Observable) -> dict[str, Any]:
    """Return everything about the servers and their sources, as values for `json.dumps`."""
    statuses, sources = servers.status(), servers.sources  # read once, to agree
    lacking = _missing(statuses, sources)
    return {
        "ready": not lacking,
        "missing": lacking,
        "servers": {name: each.to_json() for name, each in statuses.items()},
        "sources": [each.to_json() for each in sources],
    }


def answer(servers: Observable, path: str, metrics: Metrics | None = None) -> Answer:
    """Answer a GET of a path: 404 if the path is unknown, or for ``/metrics`` without `metrics`.

    ``/healthz`` is 200 as long as the program answers. ``/readyz`` is 200 if no required server is `missing`, else 503.
    """
    match path:
        case "/healthz":
            return Answer(200, "text/plain", b"ok\n")
        case "/readyz":
            return Answer(503, "text/plain", b"not ready\n") if missing(servers) else Answer(200, "text/plain", b"ok\n")
        case "/status":
            return Answer(200, "application/json", json.dumps(status(servers)).encode())
        case "/metrics" if metrics is not None:
            return Answer(200, "text/plain; version=0.0.4; charset=utf-8", metrics.text(servers).encode())
    return Answer(404, "text/plain", b"not found\n")


Asgi = Callable[[dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


def health_app(servers: Observable, metrics: Metrics | None = None) -> Asgi:
    """Return an ASGI application with the paths of `answer`, to mount in any server.

    There is no access control, and ``/status`` names servers and errors. Mount it where only the orchestrator has
    access.
    """

    async def app(
        scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        found = answer(servers, scope["path"].removeprefix(scope.get("root_path", "")), metrics)
        if scope["method"] not in ("GET", "HEAD"):
            found = Answer(405, "text/plain", b"use GET\n")
        headers = [(b"content-type", found.content_type.encode()), (b"content-length", b"%d" % len(found.body))]
        await send({"type": "http.response.start", "status": found.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else found.body})

    return app
