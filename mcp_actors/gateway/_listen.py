"""Accept connections, over unix sockets or TCP, and end them gracefully.

Programs that clean folders may remove a unix socket, so a missing socket is created again. Waiting connections are
accepted before a listener closes, or the system would reset them.

Owns: listeners; files of unix sockets.
Writes: the gateway's event `stopping`; socket options; the log. Asks connections to end.
Calls: _daemon.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import trio

from .._foreign import Log
from ._daemon import MAX_PATH, DaemonRefused, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

logger = Log("mcp_actors.gateway")

SHORTAGE: Final = 0.1  # seconds until the next try after a failed accept

SOCKET_POLL: Final = 2.0  # seconds between two checks that a unix socket is still in its place

ACCEPT_BACKLOG: Final = 1024
"""Connections that may wait at a unix socket: hundreds of programs may start at once."""

REFUSAL_LOG_PERIOD: Final = 60.0
"""Seconds between log lines about refused connections: strangers may connect often."""

DRAIN_SECONDS: Final = 30.0
"""Seconds that a stopping gateway waits for connections to end."""


class Acceptor:
    """Accepts the connections of a non-blocking listener.

    Attributes:
        name: the address.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.name: str = name_of(listener)
        self._listener = listener
        self._take: Callable[[socket.socket], object] | None = None
        self._short = False

    async def run(self, take: Callable[[socket.socket], object]) -> None:
        """Accept connections until the acceptor is closed. `take` gets each, non-blocking, and must not wait.

        **Cancellation**: no connection is lost.
        """
        self._take = take
        with suppress(trio.ClosedResourceError):
            while True:
                for client in await self.accept():
                    take(client)

    async def accept(self) -> list[socket.socket]:
        """Wait for connections, and accept at most four.

        An error, such as a shortage of descriptors, is logged once, and again only after all waiting connections were
        accepted.

        **Cancellation**: no connection is lost.

        Raises:
            trio.ClosedResourceError: the acceptor was closed.
        """
        accepted: list[socket.socket] = []
        while not accepted:
            if self._listener.fileno() < 0:
                raise trio.ClosedResourceError
            await trio.lowlevel.wait_readable(self._listener)
            try:
                # With 32, a flood took most of each turn, and clients waited seconds for an answer. With 4 the median
                # is 2 ms, and as many connections are accepted.
                while len(accepted) < 4:
                    accepted.append(_accept(self._listener))
            except BlockingIOError:
                self._short = False
            except OSError as exc:
                if self._listener.fileno() >= 0 and not self._short:
                    self._short = True
                    problem = "%s: a connection could not be accepted (%s); retrying every %g s"
                    logger.warning(problem, self.name, exc.strerror or exc, SHORTAGE)
                if not accepted:
                    await trio.sleep(SHORTAGE)
        return accepted

    def finish(self) -> None:
        if (take := self._take) is not None:
            with suppress(OSError):  # nothing waits, or descriptors are used up
                for _ in range(ACCEPT_BACKLOG):
                    take(_accept(self._listener))
        self.close()

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            trio.lowlevel.notify_closing(self._listener)
            self._listener.close()


class KeptSocket(Acceptor):
    """Accepts the connections at the path of a unix socket, which only this user may use.

    Every `SOCKET_POLL`, a missing socket is created again, unless something else is in its place: a daemon without its
    socket can be neither reached nor replaced.

    Args:
        path: a socket there is replaced if nothing listens on it.

    Raises:
        OSError: another process listens there, the place is not a socket of this user, or the path is too long.
    """

    def __init__(self, path: str) -> None:
        listener, self._identity = _listener_at(path)
        super().__init__(listener)
        self.name = path
        self._failed = False

    async def accept(self) -> list[socket.socket]:
        while True:
            with trio.move_on_after(SOCKET_POLL):
                return await super().accept()
            if waiting := self._look():
                return waiting

    def _look(self) -> list[socket.socket]:
        """Create the socket again if missing; return the connections that waited at the former socket."""
        if self._listener.fileno() < 0:
            raise trio.ClosedResourceError
        if _identity_of(self.name) == self._identity:
            if self._failed:
                logger.warning("%s: the socket is there again", self.name)
            self._failed = False
            return []
        try:
            listener, identity = _listener_at(self.name)
        except OSError as exc:  # also a shortage of descriptors, or a removed folder
            if not self._failed:
                problem = "%s: the socket was removed and cannot be created again (%s); retrying every %g s"
                logger.warning(problem, self.name, exc.strerror or exc, SOCKET_POLL)
            self._failed = True
            return []
        logger.warning("%s: the socket was removed; it was created again", self.name)
        former, waiting = self._listener, []
        self._listener, self._identity, self._failed = listener, identity, False
        with former, suppress(OSError):  # nothing waits, or descriptors are used up
            while True:
                waiting.append(_accept(former))
        return waiting

    def close(self) -> None:
        # While the listener is open, no other file can have its device and inode.
        if self._listener.fileno() >= 0 and _identity_of(self.name) == self._identity:
            try:
                os.unlink(self.name)
            except OSError as exc:
                logger.warning("%s: the socket cannot be removed (%s)", self.name, exc.strerror or exc)
        super().close()


def _accept(listener: socket.socket) -> socket.socket:
    client, _ = listener.accept()
    client.setblocking(False)
    return client


def _listener_at(path: str) -> tuple[socket.socket, tuple[int, int] | None]:
    if len(os.fsencode(path)) > MAX_PATH:  # bind() gets another, perhaps shorter name
        raise OSError(errno.ENAMETOOLONG, f"path too long; that of a socket has at most {MAX_PATH} bytes", path)
    if _answers(path):
        problem = "another process serves there; stop it, or choose another path"
        raise FileExistsError(errno.EADDRINUSE, problem, path)
    # Bind under another name, set the mode, listen, and only then rename. Otherwise other users could connect before
    # the chmod, and clients that come before listen() would be refused. rename() also replaces the socket of a killed
    # process in one step; bind() would fail there. The other name may not be longer, because socket paths are short.
    made = os.path.join(os.path.dirname(path), f".{os.urandom(4).hex()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(made)
        os.chmod(made, 0o600)
        listener.listen(ACCEPT_BACKLOG)
        identity = _identity_of(made)
        os.rename(made, path)
    except BaseException:
        listener.close()
        with suppress(OSError):
            os.unlink(made)
        raise
    return listener, identity


def _answers(path: str) -> bool:
    try:
        connection = connect(path)
    except BlockingIOError:
        return True
    except DaemonRefused as exc:
        raise OSError(f"{exc}, or choose another path") from None  # as `serve` documents
    if connection is not None:
        connection.close()
    return connection is not None


def _identity_of(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if missing."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# --- TCP --------------------------------------------------------------------------------------------------------------


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return listeners for an address: several for some names, but one for port 0, chosen by the system.

    Raises:
        OSError: the address is unknown, or in use.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except UnicodeError:
        problem = f"{host!r:.80} is not a valid host name; write a name or an address of this machine"
        raise OSError(errno.EINVAL, problem) from None
    found = [socket.socket(fileno=each.socket.detach()) for each in listeners]
    for each in found[1:] if port == 0 else ():
        each.close()
    return found[:1] if port == 0 else found


def name_of(listener: socket.socket) -> str:
    if isinstance(place := listener.getsockname(), (str, bytes)):  # unix socket; bytes for one without a file
        return os.fsdecode(place)
    host, port = place[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def prepare(client: socket.socket) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Seconds of silence before the kernel probes the client's machine, seconds between probes, and their number.
    # Without probes, sessions of dead machines would stay for ever.
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            client.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


# --- The end ----------------------------------------------------------------------------------------------------------


class GracefulConnection(Protocol):
    ended: trio.Event

    def drain(self) -> None:
        """End as soon as nothing is in flight, unread or unwritten."""


async def drain(
    stopping: trio.Event, acceptors: Iterable[Acceptor], connections: Collection[GracefulConnection]
) -> None:
    """Begin nothing more, and wait until all connections have ended, for at most `DRAIN_SECONDS`.

    **Cancellation**: ends the wait.

    Args:
        stopping: set first, so that sessions refuse new requests (`Gateway.stopping`).
        acceptors: closed, after accepting the waiting connections.
        connections: the open connections; updated by the caller. Later connections end themselves.
    """
    stopping.set()
    for acceptor in acceptors:
        acceptor.finish()
    for each in tuple(connections):
        each.drain()
    with trio.move_on_after(DRAIN_SECONDS):
        while connections:
            await next(iter(connections)).ended.wait()
