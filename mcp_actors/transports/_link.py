"""The link: an open transport to one server.

Each transport implements `Link`, through which `mcp_actors.servers` uses it. The tasks of a link share the state of the
connection in its `Lifeline`, which any of them may write. An `Obituary` says how a server process ended. `not_open`
returns the error for a link that cannot be opened. A `ConnectionOver` says that the connection cannot be used any more;
a request that fails with it had no effect, and the next connection may serve it. `Certificates` reads the certificates
of this machine for all connections of a group, in any thread, from files and the environment, under a lock, and again
if they have changed.

Ownership: the owner task of the actor enters the link, enters the session inside it, and leaves both in reverse order.
No other task may. Other tasks send requests through it, and one reads. The other work of a transport (reading stderr,
writing to a pipe that was full, keeping an HTTP client open) is done by background tasks that belong to the link and
end with it.

It uses the masker, the pipes and the table of requests, and opens no connection itself.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import httpx2
import trio
from attrs import define, field, frozen
from mcp import MCPError

from .._errors import ConnectFailed, ConnectPhase
from .._text import plain_text
from ._credentials import Masker
from ._exchange import Pipe, Receive, Unanswered, exchange_lines
from ._request_table import CLOSED, Json, RequestTable, RequestUnderWay, ignore

OURS: Final = "mcp_actors"
"""The member of an error's ``data`` by which a gateway of this package says what has become of a request."""

MAY_HAVE_ACTED: Final = "; the request may have taken effect, so repeat it only if that is safe"
"""Ends the errors about a lost response. Removed from the errors of a connect, which is always safe to repeat."""


@define(eq=False)
class Lifeline:
    """The state of one connection, shared by all tasks that may notice its end first.

    Attributes:
        on_lost: called synchronously, at most once, when the other side turns out to be gone.
        on_exit: called synchronously when the started process has exited.
        on_gap: each called synchronously when notifications of the server may have been missed.
        lost: True if the other side ended the connection before this side began to close it.
        exited: True if the started process has exited. The connection may go on through a child of it.
        heard_at: `trio.current_time` of the last byte from the other side; initially, of the start.
        closing: True if this side has begun to close, so a later end is not a loss.
        failure: the exception that ended the connection; None if only its end is known.
    """

    on_lost: Callable[[], None]
    on_exit: Callable[[], None] = ignore
    on_gap: list[Callable[[], None]] = field(factory=list, init=False)
    heard_at: float = field(factory=trio.current_time, init=False)
    exited: bool = field(default=False, init=False)
    lost: bool = field(default=False, init=False)
    closing: bool = field(default=False, init=False)
    failure: Exception | None = field(default=None, init=False)

    def exit(self) -> None:
        """Note that the process has exited, unless this side is closing already."""
        if not self.closing:
            self.exited = True
            self.on_exit()

    def gap(self) -> None:
        """Note that notifications of the server may have been missed."""
        for fn in self.on_gap:
            fn()

    def check_open(self) -> None:
        """Refuse to send over a connection that has ended, or that this side is closing.

        Raises:
            mcp.MCPError: it is such a connection.
        """
        if self.closing or self.lost:
            raise MCPError.from_error_data(CLOSED)

    def close(self) -> None:
        """Note that this side begins to close, and refer to none of its users any more."""
        self.closing, self.on_lost, self.on_exit = True, ignore, ignore
        self.on_gap.clear()

    def lose(self, failure: Exception | None = None) -> None:
        """Note that the other side is gone. Does nothing if that is known, or if this side is closing already."""
        if self.lost or self.closing:
            return
        self.lost = True
        self.failure = failure
        self.on_lost()


@frozen
class Obituary:
    """The exit code and last words of a server, as far as they are known.

    Attributes:
        exit_code: the exit code of the process, negative for a signal. None if it is not a process, is still running,
            or exited only because this side closed the connection or killed it.
        stderr_tail: the end of its stderr, decoded leniently; empty if it wrote nothing.
        remark: what may explain it, to follow in an error; empty without any.
    """

    exit_code: int | None = None
    stderr_tail: str = ""
    remark: str = ""

    @property
    def last_line(self) -> str:
        """The last line of its stderr, printable; empty if it wrote nothing."""
        lines = self.stderr_tail.splitlines()
        return plain_text(lines[-1]) if lines else ""


class Link:
    """An open transport to one server. The defaults are those of a server that is not a child process.

    Attributes:
        endpoint: the command or URL of the server, without credentials, as messages show it.
        pid: the process of the server, which leads its own process group; None if it is not a child process.
        lifeline: the state of the connection: whether it is lost, why, and when the server was last heard.
        masker: masks the credentials of this connection in text from the server.
        table: the requests that were sent and not answered.
        direct: writes lines without a task; None if the transport has no lines.
        traced: whether requests have spans of their own. A server that is called in the task of its caller has that
            one's context variables.
        trusted: whether the other side is a gateway of this package: its errors say what became of a request, and it
            answers health checks whatever its servers do.
        max_connections: the maximum of concurrent connections to the server, of which each stream holds one; None if
            there is no limit here.
    """

    endpoint: str
    pid: int | None = None
    max_connections: int | None = None
    direct: Pipe | None = None
    traced: bool = True
    trusted: bool = False

    def __init__(self, lifeline: Lifeline, masker: Masker | None = None) -> None:
        self.lifeline: Lifeline = lifeline
        self.masker: Masker = masker or Masker()
        self.table: RequestTable = RequestTable()

    async def exchange(self, request: RequestUnderWay, receive: Receive) -> Json:
        """Send a request, wait for its answer in this task, and return the result.

        **Cancellation**: if the request was sent and is `cancellable`, the server is asked to cancel it.

        Args:
            request: the request, complete, which is in the `table`. Its ``sent`` is kept up to date.
            receive: takes what the server sends within this exchange besides the answer.

        Raises:
            mcp.MCPError: the answer is an error, or the connection was lost.
            ServerError: the request has failed.
            ConnectionOver: likewise, and it had no effect: the next connection may serve it.
        """
        assert self.direct is not None  # else a link has a way of its own
        return await exchange_lines(self.direct, request)

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """Send a message that has no answer: a notification, or the answer to a request of the server.

        **Cancellation**: nothing was sent.

        Args:
            message: the message.
            headers: the headers that go with it over HTTP.

        Raises:
            mcp.MCPError: the connection was lost.
        """
        raise NotImplementedError

    async def read(self, receive: Receive) -> None:
        """Pass on what the server sends unasked, until the connection ends; then return.

        Answers settle the requests in the `table`. It is called once, in a task of its own.
        """
        raise NotImplementedError

    @property
    def heard(self) -> bool | None:
        """True if something was sent and the server has read all of it; None if the system does not report that."""
        return None

    @property
    def malformed_lines(self) -> int:
        """The number of skipped lines or events that were not messages."""
        return 0

    @property
    def suspended(self) -> bool:
        """True if the process is suspended (SIGSTOP) and cannot answer; False if the system does not report that."""
        return False

    @property
    def input_closed(self) -> bool:
        """True if no process can read what is sent any more; False if the system does not report that."""
        return False

    async def may_serve_on(self) -> bool:
        """Return True if a child of the exited process may be the server, or if the system does not report that."""
        await trio.lowlevel.checkpoint()
        return True

    def obituary(self) -> Obituary:
        """Return the known facts about the end of the server's process. Works at any time, also after the link."""
        return Obituary()

    async def wait_obituary(self) -> Obituary:
        """Return the obituary of a lost connection, after a short wait for facts that are about to arrive.

        Call it inside the link. stdout may end some milliseconds before the process exits and before the rest of its
        stderr is read. If the connection is not lost, there is no wait.
        """
        await trio.lowlevel.checkpoint()
        return self.obituary()


def not_open(server: str, reason: object, phase: ConnectPhase = "open", *, hopeless: bool = True) -> ConnectFailed:
    """Return the error for a link that cannot be opened."""
    return ConnectFailed(f"server {server!r}: {reason}", server=server, phase=phase, hopeless=hopeless)


class ConnectionOver(Exception):
    """The connection cannot be used any more.

    As the failure of a request it also means that the request provably had no effect. No caller sees it: the request
    returns to its place in the queue, and the next connection serves it.

    Attributes:
        refusal: the error for the request if the next connection refuses it in the same way, as one of a session that
            the server does not know; None if no connection was made.
    """

    def __init__(self, message: str, *, refusal: Exception | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


# --- Share the TLS settings that trust the certificates of this machine -----------------------------------------------

# Reading them takes 30 ms of a core and 0.8 MiB of memory, in thousands of pieces. Done at each connect, in any of
# Trio's worker threads, it leaves holes in the memory arenas of all those threads: a group that often reconnects to
# HTTP servers grows for as long as it runs. So the connections of a group share one context.


VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables of the environment that name other certificates than those of this machine."""

BUNDLES: Final = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""The files that httpx2 looks for if OpenSSL was built for another system, as that of a Python from elsewhere is."""


class Certificates:
    """The certificates of this machine, read once for all connections of a group."""

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._found: object = None

    def context(self) -> ssl.SSLContext:
        """Return TLS settings that trust these certificates; read them again if they have changed. Blocks on files.

        Any thread may call it.
        """
        with self._reading:
            named = [os.environ.get(name, "") for name in VARIABLES]
            files = [*_files(*named)]
            found = (named, files)
            # Without a file to look at, a change would go unnoticed.
            if self._context is None or found != self._found or not files:
                self._context, self._found = httpx2.create_ssl_context(), found
            return self._context


def missing_certificates() -> str | None:
    """Return which variable names certificates that are missing, as the begin of a sentence; None if none does."""
    for name in VARIABLES:
        if (paths := os.environ.get(name)) and not any(map(os.path.exists, paths.split(os.pathsep))):
            return f"{name} names {paths!r}, which does not exist"
    return None


def _files(file: str, folders: str) -> Iterator[object]:
    """Yield what changes with the certificates: the identity and age of each file or folder that may hold them.

    Args:
        file: the value of the first variable.
        folders: the value of the second one, which may list several.
    """
    paths = ssl.get_default_verify_paths()
    for path in (file, *folders.split(os.pathsep), paths.openssl_cafile, paths.openssl_capath, *BUNDLES):
        if path:
            try:
                status = os.stat(path)
            except OSError:
                continue
            yield path, status.st_ino, status.st_size, status.st_mtime_ns
