"""Run an ASGI application on one HTTP connection, in Trio.

It is small because its only client is a test: no pipelining, no upgrade, no limits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import h11
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def serve_asgi(stream: trio.SocketStream, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
    """Answer the requests of a connection, one after the other, until the client closes it, even within a request."""
    http = h11.Connection(h11.SERVER)
    async with stream:
        with suppress(h11.RemoteProtocolError, OSError):  # also if its socket is closed before its address is read
            while True:
                event = await _next_event(http, stream)
                if not isinstance(event, h11.Request):
                    return
                body = b""
                while isinstance(part := await _next_event(http, stream), h11.Data):
                    body += part.data
                await _Exchange(http, stream, event, body).run(app)
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    return
                http.start_next_cycle()


async def _next_event(http: h11.Connection, stream: trio.SocketStream) -> Any:
    while True:
        event = http.next_event()
        if event is not h11.NEED_DATA:
            return event
        http.receive_data(await _receive(stream))


async def _receive(stream: trio.SocketStream) -> bytes:
    """Return the next bytes; empty if the connection has ended in any way, also by a reset of this side."""
    try:
        return bytes(await stream.receive_some())
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""


class _Exchange:
    """One request and its response."""

    def __init__(self, http: h11.Connection, stream: trio.SocketStream, request: h11.Request, body: bytes) -> None:
        self._http = http
        self._stream = stream
        self._body: bytes | None = body
        self._left = trio.Event()
        path, _, query = request.target.partition(b"?")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(name, value) for name, value in request.headers],
            "client": stream.socket.getpeername(),
            "server": stream.socket.getsockname(),
        }

    async def run(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            await app(self._scope, self._receive, self._send)
            nursery.cancel_scope.cancel("the response is complete")

    async def _watch(self) -> None:
        """Notice that the client has left, also while nothing is sent."""
        while data := await _receive(self._stream):
            self._http.receive_data(data)
        self._left.set()

    async def _receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Any) -> None:
        if event["type"] == "http.response.start":
            headers = list(event.get("headers", []))
            await self._write(h11.Response(status_code=event["status"], headers=headers))
        else:
            if event.get("body"):
                await self._write(h11.Data(event["body"]))
            if not event.get("more_body"):
                await self._write(h11.EndOfMessage())

    async def _write(self, part: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        if self._http.our_state is h11.DONE:  # if a session ends while it answers, the SDK answers a second time
            return
        # After a client has left, an application may go on sending.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_all(self._http.send(part) or b"")
