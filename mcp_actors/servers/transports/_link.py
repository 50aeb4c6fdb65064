"""The link: an open transport to one server.

The owner task of the actor enters the link, enters ``mcp.Client(link.target)`` inside it, and leaves both in reverse
order. No other task may. The other work of a transport (reading stderr, writing to a pipe that was full, keeping an
HTTP client open) is done by background tasks that belong to the link and end with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import trio
from attrs import define, field, frozen
from mcp.client import Transport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from ..._plain_text import plain_text
from .credentials import Masker
from .wire import RequestTable

MAY_HAVE_ACTED: Final = "; the request may have taken effect, so repeat it only if that is safe"
"""Ends the errors about a lost response. Removed from the errors of a connect, which is always safe to repeat."""

Target: TypeAlias = Transport | Server[Any] | MCPServer
"""The argument of `mcp.Client`."""


def _ignore() -> None:
    pass


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
    on_exit: Callable[[], None] = _ignore
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


class OutgoingLine(Protocol):
    """A line that waits to be written without a task of its own.

    Attributes:
        sent: set by the pipe: to False before `written` is called, and to True once all of it was written. None before.
    """

    sent: bool | None

    @property
    def line(self) -> bytes:
        """The line with its newline."""

    def written(self) -> None:
        """Note that its first byte was offered to the pipe: the server may read it. Never raises."""

    def withdrawn(self) -> None:
        """Note that it is not written, because the connection ends. Never raises."""


class DirectPipe(Protocol):
    """Writes lines past the SDK's session, in the step of the caller.

    Attributes:
        table: the requests that were sent so, by id.
        on_room: called when a line can be offered again after `offer` has refused one.
        meta: the member ``_meta`` that the session writes into every request since 2026-07-28; None until it has.
    """

    table: RequestTable
    on_room: Callable[[], None]
    meta: bytes | None

    def offer(self, line: OutgoingLine) -> bool:
        """Write a line at once, or with all lines of this tick. Return False if the pipe has no room for it.

        Until its `written` is called the line may be withdrawn. After a False, `on_room` is called once there is room.
        If the server is gone this returns False too, and the connection is marked as lost soon.

        Raises:
            ValueError: the server is in this process, and the line is nested too deeply or has too long a number to be
                parsed.
        """

    def collect(self, line: OutgoingLine) -> None:
        """Write a line with all lines of this tick, or as soon as the pipe has room."""

    def withdraw(self, line: OutgoingLine) -> None:
        """Drop a line that was offered and is not yet written."""

    def withdraw_all(self) -> None:
        """Withdraw all lines that were not written."""

    def count_request(self) -> None:
        """Count a request that was written, for the limits of the server's own requests."""

    def count_cancelled(self) -> None:
        """Count a request that was written and is cancelled; see `ServerRequests.cancelled`."""


class DirectPosts(Protocol):
    """Sends each request as a POST of its own, past the SDK's dispatcher."""

    @property
    def initialized(self) -> bool:
        """True once a legacy server knows that the handshake is over."""

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        headers: Mapping[str, str],
        pass_on: Callable[[int], Awaitable[dict[str, Any]]],
        *,
        notify: bool,
    ) -> dict[str, Any]:
        """Send a request and return the ``result`` of its answer.

        **Cancellation**: closes the response; the server is notified if that does not cancel the request.

        Args:
            method: the method of the protocol.
            params: the params of the request.
            headers: the headers of this request.
            pass_on: passes the request to the SDK's dispatcher, with this id.
            notify: whether a cancelled request needs a notification.

        Raises:
            mcp.MCPError: the server answered with an error, or the request failed; then its trace has the failure.
        """


class Link:
    """An open transport to one server. The defaults are those of a server that is not a child process.

    Attributes:
        target: the argument for `mcp.Client`, to be entered once, inside the link.
        endpoint: the command or URL of the server, without credentials, as messages show it.
        pid: the process of the server, which leads its own process group; None if it is not a child process.
        masker: masks the credentials of this connection in text from the server.
        direct: writes lines past the session; None if the transport has no lines.
        posts: sends requests past the SDK's dispatcher; None if the transport has no requests of its own.
        max_connections: the maximum of concurrent connections to the server, of which each stream holds one; None if
            there is no limit here.
    """

    target: Target
    endpoint: str
    pid: int | None = None
    max_connections: int | None = None
    direct: DirectPipe | None = None
    posts: DirectPosts | None = None

    def __init__(self, lifeline: Lifeline, masker: Masker | None = None) -> None:
        self._lifeline = lifeline
        self.masker: Masker = masker or Masker()

    @property
    def lost(self) -> bool:
        """True if the other side ended the connection, or a write failed, before this side began to close it."""
        return self._lifeline.lost

    @property
    def failure(self) -> Exception | None:
        """The exception that ended a lost connection, for use as ``__cause__``; None if only its end is known."""
        return self._lifeline.failure

    @property
    def heard(self) -> bool | None:
        """True if something was sent and the server has read all of it; None if the system does not report that."""
        return None

    @property
    def malformed_lines(self) -> int:
        """The number of skipped lines or events that were not messages."""
        return 0

    @property
    def heard_at(self) -> float:
        """`trio.current_time` of the last byte from the server."""
        return self._lifeline.heard_at

    @property
    def exited(self) -> bool:
        """True if the started process has exited. Its child may be the real server and go on serving."""
        return self._lifeline.exited

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

    def lose(self) -> None:
        """Mark the connection as lost."""
        self._lifeline.lose()

    def hear_of_exit(self, on_exit: Callable[[], None]) -> None:
        """Call a function, synchronously, when the started process has exited."""
        self._lifeline.on_exit = on_exit

    def hear_of_gaps(self, on_gap: Callable[[], None]) -> None:
        """Call a function, synchronously, whenever notifications of the server may have been missed."""
        self._lifeline.on_gap.append(on_gap)

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
