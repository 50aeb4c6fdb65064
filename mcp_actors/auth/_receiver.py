"""Open this machine's browser, and receive the redirect of a sign-in.

Other programs and web pages can send requests here, so a request counts only with the ``state`` of the sign-in. All
local users can read the browser's command line. So the browser gets only the URL of a local page. The page redirects
to the sign-in, once.

Owns: the received redirect; the local page; loopback sockets and their tasks; the browser thread.
Writes: HTTP replies; the log.
Calls: _exchange.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import struct
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final, NoReturn, TypeAlias
from urllib.parse import SplitResult, parse_qsl, urlsplit

import anyio
import anyio.to_thread
import h11
import httpx2
import trio
from anyio.abc import TaskGroup
from attrs import define, field, frozen

from .._foreign import Log
from ._exchange import AuthorizationRefused, NoBrowser

logger = Log("mcp_actors.auth")

RECEIVER_TIMEOUT: Final = 10.0
"""Seconds for one request."""

MAX_CONNECTIONS: Final = 16
"""Connections at a time."""

HTTP_PORT: Final = 80

_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})

_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>mcp-actors</title>"
    "<p style='font-family:sans-serif'>{text} You may close this page.</p>"
)
_RECEIVER_HEADERS: Final = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("Referrer-Policy", "no-referrer"),  # the URL of this page contains the code
    ("Connection", "close"),
)


def split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise AuthorizationRefused("not_a_url", "this is not a URL that a browser ends at") from None


SIGN_IN_AGAIN: Final = "sign in again; if that repeats, do not sign in to this server"


def parameters_of(query: str, state: str) -> Mapping[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise AuthorizationRefused("repeated_parameter", f"the redirect has a parameter twice; {SIGN_IN_AGAIN}")
    if not secrets.compare_digest(found.get("state", "").encode(), state.encode()):
        raise AuthorizationRefused(
            "state_mismatch", f"the redirect does not have the state of this sign-in; {SIGN_IN_AGAIN}"
        )
    return found


# --- Serve strangers ------------------------------------------------------------------------------------------------


@frozen
class RedirectReply:
    """The answer to a request.

    The page quotes nothing of the request.

    Attributes:
        location: where to lead on to; None for a page.
    """

    text: str
    status: HTTPStatus = HTTPStatus.OK
    location: str | None = None
    sent: Callable[[], object] = lambda: None

    @classmethod
    def of(cls, refusal: AuthorizationRefused) -> RedirectReply:
        return cls(f"Refused: {refusal}.", HTTPStatus.BAD_REQUEST)


Judge: TypeAlias = Callable[[h11.Request, socket.socket], RedirectReply]


async def serve(listeners: Sequence[socket.socket], judge: Judge) -> None:
    """Answer one request of each connection, on Trio and on asyncio; never return."""
    room: dict[anyio.CancelScope, None] = {}
    async with anyio.create_task_group() as tasks:
        for listener in listeners:
            tasks.start_soon(_accept, listener, judge, room, tasks)


async def _accept(
    listener: socket.socket, judge: Judge, room: dict[anyio.CancelScope, None], tasks: TaskGroup
) -> NoReturn:
    while True:
        await anyio.wait_readable(listener)
        try:
            connection, _ = listener.accept()
        except OSError as error:  # the other side has left, or there is no descriptor
            if error.errno in _SHORTAGES:
                await anyio.sleep(0.1)
            continue
        connection.setblocking(False)
        # A further connection ends the oldest. If it waited for room, a flood of silent connections would keep the
        # browser out. A request that has arrived is answered even so: its task needs no checkpoint to read and answer.
        while len(room) >= MAX_CONNECTIONS:
            oldest = next(iter(room))
            del room[oldest]
            oldest.cancel()
        scope = anyio.CancelScope()
        room[scope] = None
        tasks.start_soon(_serve, connection, judge, room, scope)


async def _serve(
    connection: socket.socket, judge: Judge, room: dict[anyio.CancelScope, None], scope: anyio.CancelScope
) -> None:
    # Errors: the peer is not a browser, or has left.
    with connection, scope, anyio.move_on_after(RECEIVER_TIMEOUT), suppress(h11.RemoteProtocolError, OSError):
        await _answer(connection, judge)
    room.pop(scope, None)


async def _answer(connection: socket.socket, judge: Judge) -> None:
    http = h11.Connection(h11.SERVER)
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await _receive(connection))
    if not isinstance(event, h11.Request):
        return
    answer = judge(event, connection)
    try:
        body = _PAGE.format(text=answer.text).encode()
        led_on = [] if answer.location is None else [("Location", answer.location)]
        headers = [*_RECEIVER_HEADERS, ("Content-Length", str(len(body))), *led_on]
        # The answer to HEAD has no body, and h11 refuses to send one.
        data = h11.Data(data=b"" if event.method == b"HEAD" else body)
        for each in (h11.Response(status_code=answer.status, headers=headers), data, h11.EndOfMessage()):
            await _send(connection, http.send(each) or b"")
    finally:
        answer.sent()


async def _receive(connection: socket.socket) -> bytes:
    while True:
        try:
            return connection.recv(4096)
        except BlockingIOError:
            await anyio.wait_readable(connection)


async def _send(connection: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            await anyio.wait_writable(connection)


@contextmanager
def listening(host: str, port: int) -> Iterator[Sequence[socket.socket]]:
    """Listen at a loopback address while the block runs.

    For ``localhost`` listen at two addresses: a browser tries both, and a stranger could listen at the other.
    """
    with ExitStack() as stack:
        hosts = ("127.0.0.1", "::1") if host == "localhost" else (host,)
        listeners: list[socket.socket] = []
        attempts = 1 if port else 10  # to find a port that is free for IPv4 and IPv6
        while not listeners:
            attempts -= 1
            try:
                listeners = _listeners(hosts, port, stack)
            except OSError:
                if not attempts:
                    raise
        yield listeners


def _listeners(hosts: Sequence[str], port: int, stack: ExitStack) -> list[socket.socket]:
    found: list[socket.socket] = []
    for host in hosts:
        try:
            listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            stack.enter_context(listener).setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind((host, port))
        except OSError as error:
            if found and error.errno in _NO_FAMILY:
                continue  # this machine has no IPv6
            for each in found:
                each.close()
            raise
        listener.listen(socket.SOMAXCONN)
        found.append(listener)
        port = listener.getsockname()[1]
    return found


# --- The redirect ---------------------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class Receiver:
    """Waits for a redirect.

    A request counts only with the path, the host and the state of this sign-in. Others are refused, and the receiver
    goes on waiting: a stranger can neither end a sign-in nor give it a code.

    Attributes:
        url: where the browser has to return to.
        state: the state of the sign-in; None refuses every request.
    """

    url: str
    state: str | None = None
    _found: Mapping[str, str] | None = field(default=None, init=False)
    _came: trio.Event = field(factory=trio.Event, init=False)
    _logged: set[str] = field(factory=set, init=False)

    async def wait(self) -> Mapping[str, str]:
        await self._came.wait()
        assert self._found is not None
        return self._found

    def judge(self, request: h11.Request, connection: socket.socket) -> RedirectReply:
        try:
            found = self._parameters(request)
        except AuthorizationRefused as refusal:
            # Warn once for each reason: a stranger could fill the disk.
            level = logging.DEBUG if refusal.reason in self._logged else logging.WARNING
            self._logged.add(refusal.reason)
            logger.log(level, "sign-in: a request to %s was refused (%s): %s", self.url, refusal.reason, refusal)
            return RedirectReply.of(refusal)
        if self._found is None:
            self._found = found
        # Not "You are signed in": the code may still be refused.
        agreed = "code" in found
        said = "The sign-in goes on in your program" if agreed else "The authorization server has refused the sign-in"
        return RedirectReply(f"{said}. Your program shows the outcome and the next step.", sent=self._came.set)

    def _parameters(self, request: h11.Request) -> Mapping[str, str]:
        own = urlsplit(self.url)
        target = _target(request)
        host = dict(request.headers).get(b"host", b"").decode("ascii", "replace")
        if request.method != b"GET" or target.path != own.path:
            raise AuthorizationRefused("wrong_path", "this is not the redirect of a sign-in")
        if host != own.netloc:
            raise AuthorizationRefused("wrong_host", "the request is for another host")
        if self.state is None:
            raise AuthorizationRefused("too_early", "the sign-in has not begun")
        return parameters_of(target.query, self.state)


def _target(request: h11.Request) -> SplitResult:
    return split(request.target.decode("ascii", "replace"))


@asynccontextmanager
async def open_receiver(redirect: str) -> AsyncIterator[Receiver]:
    """Listen at a loopback URL while the block runs; port 0 means a free one."""
    parts = urlsplit(redirect)
    host, port = parts.hostname or "", parts.port if parts.port is not None else HTTP_PORT
    with ExitStack() as stack:
        try:
            listeners = stack.enter_context(listening(host, port))
        except OSError as error:
            problem = f"port {port} of {host} cannot be used for the redirect ({error.strerror})"
            raise AuthorizationRefused("port_in_use", f"{problem}; end the program that uses it") from None
        actual = listeners[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        netloc = shown if actual == HTTP_PORT else f"{shown}:{actual}"  # as browsers write it
        receiver = Receiver(parts._replace(netloc=netloc, path=parts.path or "/").geturl())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, listeners, receiver.judge, name="redirect")
            try:
                yield receiver
            finally:
                nursery.cancel_scope.cancel("the sign-in has ended")


# --- The first page -------------------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class _FirstPage:
    """The page that the browser is started with. Leads on once.

    The URL of a sign-in is enough to get a code. So the path of the page is unguessable; on Linux, processes of other
    users, except root, are refused (`is_stranger`). A private file with a redirect would not do: browsers in a sandbox
    (Snap, Flatpak) cannot read it.

    Attributes:
        over: set once the page has led on, or no browser opens.
    """

    _url: str
    path: str = field(factory=lambda: f"/{secrets.token_urlsafe(32)}", init=False)
    over: anyio.Event = field(factory=anyio.Event, init=False)
    no_browser: bool = field(default=False, init=False)
    _opened: bool = field(default=False, init=False)

    def judge(self, request: h11.Request, connection: socket.socket) -> RedirectReply:
        try:
            self._check(request, connection)
        except AuthorizationRefused as refusal:
            return RedirectReply.of(refusal)
        self._opened = True
        return RedirectReply("", HTTPStatus.FOUND, self._url, self.over.set)

    def _check(self, request: h11.Request, connection: socket.socket) -> None:
        path = _target(request).path
        if request.method != b"GET" or not secrets.compare_digest(path.encode(), self.path.encode()):
            raise AuthorizationRefused("wrong_path", "this is not the page of a sign-in")
        if is_stranger(connection):
            logger.warning("sign-in: the first page was refused to a process of another user")
            raise AuthorizationRefused("another_user", "only the user who signs in can open this page")
        if self._opened:
            raise AuthorizationRefused("opened_before", "this page was opened before; begin the sign-in again")


def is_stranger(connection: socket.socket) -> bool:
    """Return True if the peer of a local connection belongs to another user, except root.

    False if unknown: only Linux has a table of connections with users.
    """
    ours, theirs = (_written(*each) for each in (connection.getsockname(), connection.getpeername()))
    rows = [row.split() for table in ("tcp", "tcp6") for row in _table(Path("/proc/net", table))]
    known = any(row[1] in ours and row[2] in theirs for row in rows)
    owners = {row[7] for row in rows if row[1] in theirs and row[2] in ours and row[3] == "01"}  # established
    return known and not owners & {"0", str(os.getuid()), str(os.geteuid())}


def _table(path: Path) -> Sequence[str]:
    try:
        return path.read_text().splitlines()[1:]
    except OSError:
        return ()


def _written(host: str, port: int) -> frozenset[str]:
    """Return an IPv4 address as in the tables: plain, and mapped to IPv6."""
    packed = socket.inet_aton(host)
    forms = (packed, b"\0" * 10 + b"\xff\xff" + packed)
    words = (struct.unpack(f"={len(each) // 4}I", each) for each in forms)
    return frozenset(f"{''.join(f'{word:08X}' for word in each)}:{port:04X}" for each in words)


async def open_browser(url: str) -> None:
    """Open a page in the user's browser, and wait until the browser has opened it. On Trio and on asyncio.

    The URL appears in no command line, which everybody on this machine could read. The browser starts at a page on this
    machine, which leads on to the URL once.

    **Cancellation**: ends the wait; the page leads nowhere from then on.

    Raises:
        NoBrowser: there is no browser, or no display for it.
    """
    page = _FirstPage(str(httpx2.URL(url)))
    if _has_display():
        with listening("127.0.0.1", 0) as listeners:
            at = f"http://127.0.0.1:{listeners[0].getsockname()[1]}{page.path}"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve, listeners, page.judge)
                tasks.start_soon(_start, at, page)
                await page.over.wait()
                tasks.cancel_scope.cancel()
    if page.no_browser or not _has_display():
        problem = "no browser can be opened here"
        raise NoBrowser(f"{problem}; use mcp-actors login, or give a function that shows the URL")


async def _start(at: str, page: _FirstPage) -> None:
    # Some browsers stay in the foreground, and the sign-in does not wait for them.
    started = False
    with suppress(webbrowser.Error, OSError):
        started = await anyio.to_thread.run_sync(webbrowser.open, at, abandon_on_cancel=True)
    if not started and not page.over.is_set():
        page.no_browser = True
        page.over.set()


def _has_display() -> bool:
    # Without a display, `webbrowser` would start a text browser in the terminal, without JavaScript.
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
