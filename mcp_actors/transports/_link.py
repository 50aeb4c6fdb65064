"""The link: an open transport to one server.

`mcp_actors.servers` uses every transport through a `Link`. The owner task of the actor enters the link, enters the
session inside, and leaves both in reverse order; no other task may. The first task that notices the end of the
connection records the end in the `Lifeline`.

Owns: the state of the connection; the request table; TLS settings, which all links of a group share.
Writes: the pipe to the server.
Calls: _credentials, _exchange, _request_table.
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

OUTCOME_MEMBER: Final = "mcp_actors"
"""In an error's ``data``, the member with the outcome that a gateway reports."""

MAY_HAVE_ACTED: Final = "; the request may have taken effect, so repeat it only if that is safe"
"""The last words of errors about a lost response. Removed from errors of a connect."""


@define(eq=False)
class Lifeline:
    """The state of one connection.

    Attributes:
        on_lost: called synchronously, at most once, when the other side turns out to be gone.
        on_exit: called synchronously when the started process has exited.
        on_gap: functions called synchronously when notifications of the server may have been missed.
        lost: True if the other side ended the connection before this side began to close.
        exited: True if the started process has exited. A child process may keep the connection open.
        heard_at: `trio.current_time` of the last byte from the other side, or of the start.
        closing: True once this side has begun to close: a later end is not a loss.
        failure: the exception that ended the connection, if any.
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
        if not self.closing:
            self.exited = True
            self.on_exit()

    def gap(self) -> None:
        for fn in self.on_gap:
            fn()

    def check_open(self) -> None:
        """Refuse to send over a closed, closing or lost connection.

        Raises:
            mcp.MCPError: the connection is not open.
        """
        if self.closing or self.lost:
            raise MCPError.from_error_data(CLOSED)

    def close(self) -> None:
        self.closing, self.on_lost, self.on_exit = True, ignore, ignore
        self.on_gap.clear()

    def lose(self, failure: Exception | None = None) -> None:
        """Note that the other side is gone. Does nothing if known already, or if this side is closing."""
        if self.lost or self.closing:
            return
        self.lost = True
        self.failure = failure
        self.on_lost()


@frozen
class Obituary:
    """The known exit code and last words of a server.

    Attributes:
        exit_code: the exit code of the process, negative for a signal. None without a process, while it runs, or after
            an exit that this side caused.
        stderr_tail: the end of stderr, decoded leniently; may be empty.
        remark: a possible explanation, as the end of an error; may be empty.
    """

    exit_code: int | None = None
    stderr_tail: str = ""
    remark: str = ""

    @property
    def last_line(self) -> str:
        lines = self.stderr_tail.splitlines()
        return plain_text(lines[-1]) if lines else ""


class Link:
    """An open transport to one server. The defaults are for a server without a child process.

    Any task sends requests, one task reads, and background tasks of the link do the rest and end with the link.

    Attributes:
        endpoint: the command or URL of the server, without credentials, as messages show it.
        pid: the child process of the server, which leads its own process group; None without a process.
        lifeline: the state of the connection.
        masker: masks the credentials of this connection in text from the server.
        table: the requests that were sent and not answered.
        direct: writes lines without a task; None if the transport has no lines.
        traced: whether requests get spans; not needed if the server runs in its caller's context variables.
        trusted: whether the other side is a gateway of this package, which reports the outcome of a request in errors,
            and answers health checks whatever its servers do.
        max_connections: the maximum of concurrent connections to the server, streams included; None without a limit.
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

        **Cancellation**: if the request was sent and is `cancellable`, the server is asked to cancel.

        Args:
            request: the complete request, in the `table`. Its ``sent`` is kept up to date.
            receive: takes further messages of the server within this exchange.

        Raises:
            mcp.MCPError: the answer is an error, or the connection was lost.
            ServerError: the request has failed.
            ConnectionOver: the request has failed without effect: the next connection may serve it.
        """
        assert self.direct is not None  # links without lines override this method
        return await exchange_lines(self.direct, request)

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """Send a message without an answer: a notification, or an answer to the server.

        **Cancellation**: nothing was sent.

        Args:
            message: the message.
            headers: extra headers over HTTP.

        Raises:
            mcp.MCPError: the connection was lost.
        """
        raise NotImplementedError

    async def read(self, receive: Receive) -> None:
        """Pass on unsolicited messages of the server until the connection ends; then return.

        Answers settle the requests in the `table`. Called once, in a task of its own.
        """
        raise NotImplementedError

    @property
    def heard(self) -> bool | None:
        """True if something was sent and the server has read everything; None if unknown."""
        return None

    @property
    def malformed_lines(self) -> int:
        return 0

    @property
    def suspended(self) -> bool:
        """True if the process is suspended (SIGSTOP); False if unknown."""
        return False

    @property
    def input_closed(self) -> bool:
        return False

    async def may_serve_on(self) -> bool:
        """Return True if a child of the exited process may be the server, or if unknown."""
        await trio.lowlevel.checkpoint()
        return True

    def obituary(self) -> Obituary:
        """Return the known facts about the end of the process. Works at any time, also after the link is closed."""
        return Obituary()

    async def wait_obituary(self) -> Obituary:
        """Return the obituary; for a lost connection, after a short wait for facts that are about to arrive.

        Call this inside the link. stdout may end some milliseconds before the process exits and the rest of stderr is
        read.
        """
        await trio.lowlevel.checkpoint()
        return self.obituary()


def not_open(server: str, reason: object, phase: ConnectPhase = "open", *, hopeless: bool = True) -> ConnectFailed:
    return ConnectFailed(f"server {server!r}: {reason}", server=server, phase=phase, hopeless=hopeless)


class ConnectionOver(Exception):
    """The connection cannot be used any more.

    As the failure of a request, it proves that the request had no effect. No caller sees this error: the request
    returns to its place in the queue, and the next connection serves it.

    Attributes:
        refusal: the error for the caller if an earlier connection has refused the request too, as for an unknown
            session; None without a refusal.
    """

    def __init__(self, message: str, *, refusal: Exception | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


# --- Share the TLS settings that trust the certificates of this machine -----------------------------------------------

# Reading certificates takes 30 ms of a core and 0.8 MiB of memory in thousands of pieces. If each connect did so in a
# worker thread of Trio, holes would be left in the memory arenas of all threads, and a group that often reconnects
# would grow for ever. So the connections of a group share one context.


VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of the environment that name other certificates."""

BUNDLES: Final = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""The files that httpx2 looks for if OpenSSL was built for another system, as in a downloaded Python."""


class Certificates:
    """The certificates of this machine, read once for all connections of a group."""

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._found: object = None

    def context(self) -> ssl.SSLContext:
        """Return TLS settings that trust the certificates, read again after a change. Blocks; for any thread."""
        with self._reading:
            named = [os.environ.get(name, "") for name in VARIABLES]
            files = [*_files(*named)]
            found = (named, files)
            # Read again if no file was found: a change would go unnoticed.
            if self._context is None or found != self._found or not files:
                self._context, self._found = httpx2.create_ssl_context(), found
            return self._context


def missing_certificates() -> str | None:
    """Name a variable whose certificates are missing, as the beginning of an error; None if all exist."""
    for name in VARIABLES:
        if (paths := os.environ.get(name)) and not any(map(os.path.exists, paths.split(os.pathsep))):
            return f"{name} names {paths!r}, which does not exist"
    return None


def _files(file: str, folders: str) -> Iterator[object]:
    paths = ssl.get_default_verify_paths()
    for path in (file, *folders.split(os.pathsep), paths.openssl_cafile, paths.openssl_capath, *BUNDLES):
        if path:
            try:
                status = os.stat(path)
            except OSError:
                continue
            yield path, status.st_ino, status.st_size, status.st_mtime_ns
