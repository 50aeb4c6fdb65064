"""Receive the browser's redirect on this machine.

Any program and any web page on this machine can send requests here. So a request counts only if it has the path, the
host and the state of this sign-in. Anything else is refused by name, and the receiver goes on waiting: a stranger can
neither end a sign-in nor give it a code. The answer never redirects and quotes nothing of the request.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

import h11
import trio
from attrs import define, field

from .._foreign import Log
from ._failures import Refused

logger = Log("mcp_actors.auth")

PATIENCE: Final = 10.0
"""Seconds for one request."""

MOST: Final = 16
"""Connections at a time."""

HTTP_PORT: Final = 80
"""The port of a URL that names none."""

_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>mcp-actors</title>"
    "<p style='font-family:sans-serif'>{text} You may close this page.</p>"
)
_HEADERS: Final = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("Referrer-Policy", "no-referrer"),  # the URL of this page contains the code
    ("Connection", "close"),
)


def split(url: str) -> SplitResult:
    """Return the parts of a URL that a stranger or a person has given.

    Raises:
        Refused: it is not a URL.
    """
    try:
        return urlsplit(url)
    except ValueError:
        raise Refused("not_a_url", "this is not a URL that a browser ends at") from None


def parameters_of(query: str, state: str) -> Mapping[str, str]:
    """Return the parameters of a redirect.

    Raises:
        Refused: a parameter is there twice, or the state is not that of this sign-in.
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused("repeated_parameter", "the redirect has a parameter twice")
    if not secrets.compare_digest(found.get("state", "").encode(), state.encode()):
        raise Refused("state_mismatch", "the redirect does not have the state of this sign-in")
    return found


@define(eq=False, repr=False)
class Receiver:
    """Waits for one redirect.

    Attributes:
        url: the URL that the browser has to return to.
        state: the state of the sign-in; until it is set, every request is refused.
    """

    url: str
    state: str | None = None
    _found: Mapping[str, str] | None = field(default=None, init=False)
    _came: trio.Event = field(factory=trio.Event, init=False)
    _room: trio.Semaphore = field(factory=partial(trio.Semaphore, MOST), init=False)

    async def wait(self) -> Mapping[str, str]:
        """Wait for the redirect, and return its parameters."""
        await self._came.wait()
        assert self._found is not None
        return self._found

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one connection."""
        async with stream, self._room:
            with trio.move_on_after(PATIENCE):
                # It is not a browser, or it has left.
                with suppress(h11.RemoteProtocolError, trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._answer(stream)

    async def _answer(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some())
        if not isinstance(event, h11.Request):
            return
        found = None
        try:
            found = self._judge(event)
            # Not "You are signed in": the code may still be refused.
            text = "The sign-in goes on in your program." if "code" in found else "The sign-in was refused."
            status = HTTPStatus.OK
        except Refused as refusal:
            status, text = HTTPStatus.BAD_REQUEST, f"Refused: {refusal}."
            logger.warning("sign-in: a request to %s was refused (%s): %s", self.url, refusal.reason, refusal)
        body = _PAGE.format(text=text).encode()
        response = h11.Response(status_code=status, headers=[*_HEADERS, ("Content-Length", str(len(body)))])
        # The answer to HEAD has no body, and h11 refuses to send one.
        data = h11.Data(data=b"" if event.method == b"HEAD" else body)
        for each in (response, data, h11.EndOfMessage()):
            await stream.send_all(connection.send(each) or b"")
        if found is not None and self._found is None:
            self._found = found
            self._came.set()

    def _judge(self, request: h11.Request) -> Mapping[str, str]:
        """Return the parameters of the redirect.

        Raises:
            Refused: the request is not the redirect of this sign-in.
        """
        own = urlsplit(self.url)
        target = split(request.target.decode("ascii", "replace"))
        host = dict(request.headers).get(b"host", b"").decode("ascii", "replace")
        if request.method != b"GET" or target.path != own.path:
            raise Refused("wrong_path", "this is not the redirect of a sign-in")
        if host != own.netloc:
            raise Refused("wrong_host", "the request is for another host")
        if self.state is None:
            raise Refused("too_early", "the sign-in has not begun")
        return parameters_of(target.query, self.state)


@asynccontextmanager
async def open_receiver(redirect: str) -> AsyncIterator[Receiver]:
    """Listen at a loopback URL while the block runs; port 0 means a free one.

    Raises:
        Refused: the port is not free.
    """
    parts = urlsplit(redirect)
    host, port = parts.hostname or "", parts.port if parts.port is not None else HTTP_PORT
    try:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1" if host == "localhost" else host)
    except OSError as error:
        problem = f"port {port} of {host} cannot be used for the redirect ({error.strerror})"
        raise Refused("port_in_use", f"{problem}; end the program that uses it") from None
    actual = listeners[0].socket.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    netloc = shown if actual == HTTP_PORT else f"{shown}:{actual}"  # as browsers write it
    receiver = Receiver(parts._replace(netloc=netloc, path=parts.path or "/").geturl())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, receiver.serve, listeners), name="redirect")
        try:
            yield receiver
        finally:
            nursery.cancel_scope.cancel("the sign-in has ended")
