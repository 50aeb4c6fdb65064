"""Accept connections, at a path or over TCP, and end them gracefully.

An `Acceptor` accepts the connections of a listener. A `KeptSocket` is the acceptor of a unix socket: only this user can
connect, and it creates the socket again if something removes it. `listen` opens the listeners for TCP. `drain` closes
acceptors, and waits for the connections that are open.

``_serve``, ``_control`` and ``http`` use them; ``_network`` admits the clients over TCP.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import trio

from .._foreign import Log
from ._daemon import MAX_PATH, Refused, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

logger = Log("mcp_actors.gateway")

SHORTAGE: Final = 0.1
"""Seconds until the next connection is accepted if descriptors are used up."""

LOOK_SECONDS: Final = 2.0
"""Seconds between two looks at the socket of a path."""

BACKLOG: Final = 1024
"""Connections that may wait to be accepted at a path: two hundred programs may start at once."""

WARN: Final = 60.0
"""Seconds between two log lines about connections that were refused: strangers can connect as often as they like."""

DRAIN_SECONDS: Final = 30.0
"""Seconds for what was begun when the gateway is to stop."""


class Acceptor:
    """Accepts the connections of a listener.

    Args:
        listener: a non-blocking socket that listens.

    Attributes:
        name: where it listens, as clients and log lines write it.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.name: str = name_of(listener)
        self._listener = listener
        self._take: Callable[[socket.socket], object] | None = None
        self._short = False

    async def run(self, take: Callable[[socket.socket], object]) -> None:
        """Accept connections until the acceptor is closed.

        **Cancellation**: no connection is lost.

        Args:
            take: called with each connection, which does not block. It must not wait.
        """
        self._take = take
        with suppress(trio.ClosedResourceError):
            while True:
                for client in await self.accept():
                    take(client)

    async def accept(self) -> list[socket.socket]:
        """Wait for connections, and accept those that are there, four at most. They do not block.

        An error, such as a shortage of descriptors, is logged once, and again only after all that waited were accepted.

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
                # With 32, a flood took most of each turn, and clients that were connected waited seconds for an answer;
                # with 4 they wait 2 ms (the median), and no fewer connections are accepted.
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
        """Accept the connections that wait, which would be reset otherwise, and nothing more."""
        if (take := self._take) is not None:
            with suppress(OSError):  # nothing waits any more, or descriptors are used up
                for _ in range(BACKLOG):
                    take(_accept(self._listener))
        self.close()

    def close(self) -> None:
        """Accept nothing more."""
        if self._listener.fileno() >= 0:
            trio.lowlevel.notify_closing(self._listener)
            self._listener.close()


class KeptSocket(Acceptor):
    """Accepts the connections at the path of a unix socket, which only this user may use.

    Programs that clean folders remove sockets. Without the socket, clients cannot find a daemon, and cannot start
    another one, because it holds the lock. So the socket is looked at every `LOOK_SECONDS`, and created again if it is
    not there, or once nothing else is in its place.

    Args:
        path: the path. A socket that nothing listens on is replaced.

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
            with trio.move_on_after(LOOK_SECONDS):
                return await super().accept()
            if waiting := self._look():
                return waiting

    def _look(self) -> list[socket.socket]:
        """Create the socket again if it is not there any more; return the connections that waited at the former one.

        Raises:
            trio.ClosedResourceError: the acceptor was closed.
        """
        if self._listener.fileno() < 0:
            raise trio.ClosedResourceError
        if _identity_of(self.name) == self._identity:
            if self._failed:
                logger.warning("%s: the socket is there again", self.name)
            self._failed = False
            return []
        try:
            listener, identity = _listener_at(self.name)
        except OSError as exc:  # also a shortage of descriptors, or the folder was removed, too
            if not self._failed:
                problem = "%s: the socket was removed and cannot be created again (%s); retrying every %g s"
                logger.warning(problem, self.name, exc.strerror or exc, LOOK_SECONDS)
            self._failed = True
            return []
        logger.warning("%s: the socket was removed; it was created again", self.name)
        former, waiting = self._listener, []
        self._listener, self._identity, self._failed = listener, identity, False
        with former, suppress(OSError):  # nothing waits any more, or descriptors are used up
            while True:
                waiting.append(_accept(former))
        return waiting

    def close(self) -> None:
        """Accept nothing more, and remove the socket."""
        # While a listener is open, no other file has the numbers of its socket.
        if self._listener.fileno() >= 0 and _identity_of(self.name) == self._identity:
            try:
                os.unlink(self.name)
            except OSError as exc:  # the end goes on
                logger.warning("%s: the socket cannot be removed (%s)", self.name, exc.strerror or exc)
        super().close()


def _accept(listener: socket.socket) -> socket.socket:
    """Accept a connection, which does not block."""
    client, _ = listener.accept()
    client.setblocking(False)
    return client


def _listener_at(path: str) -> tuple[socket.socket, tuple[int, int] | None]:
    """Return a listener at a path, and the identity of its socket; see `KeptSocket`."""
    if len(os.fsencode(path)) > MAX_PATH:  # the name that is bound may be shorter
        raise OSError(errno.ENAMETOOLONG, f"path too long; that of a socket has at most {MAX_PATH} bytes", path)
    if _answers(path):
        problem = "another process serves there; stop it, or choose another path"
        raise FileExistsError(errno.EADDRINUSE, problem, path)
    # No client can connect before the socket has its permissions. The name may not be longer, nor be taken.
    made = os.path.join(os.path.dirname(path), f".{os.urandom(4).hex()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(made)
        os.chmod(made, 0o600)
        listener.listen(BACKLOG)
        identity = _identity_of(made)
        os.rename(made, path)
    except BaseException:
        listener.close()
        with suppress(OSError):
            os.unlink(made)
        raise
    return listener, identity


def _answers(path: str) -> bool:
    """Return True if a process listens on a socket."""
    try:
        connection = connect(path)
    except BlockingIOError:
        return True  # many are waiting
    except Refused as exc:
        raise OSError(f"{exc}, or choose another path") from None  # the class that `serve` documents
    if connection is not None:
        connection.close()
    return connection is not None


def _identity_of(path: str) -> tuple[int, int] | None:
    """Return the numbers of the device and the inode of a file; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# --- TCP --------------------------------------------------------------------------------------------------------------


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return listeners for an address. A name may have several addresses.

    With port 0 the system chooses one, and only the first address is used.

    Raises:
        OSError: the address is not known, or in use.
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
    """Return the address of a listener as clients write it."""
    if isinstance(place := listener.getsockname(), (str, bytes)):  # a unix socket; bytes for one without a file
        return os.fsdecode(place)
    host, port = place[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def prepare(client: socket.socket) -> None:
    """Send small messages at once, and notice that the machine of a client is gone."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # After how many seconds without data the kernel asks a client's machine whether it is still there, after how many
    # more it asks again, and how often. Without that, sessions of machines that are gone would stay for ever.
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            client.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


# --- The end ----------------------------------------------------------------------------------------------------------


class Draining(Protocol):
    """A connection that can end gracefully.

    Attributes:
        ended: whether it has ended.
    """

    ended: trio.Event

    def drain(self) -> None:
        """End the connection as soon as nothing is in flight, unread or unwritten."""


async def drain(stopping: trio.Event, acceptors: Iterable[Acceptor], connections: Collection[Draining]) -> None:
    """Accept and begin nothing more, and wait until all connections have ended, for `DRAIN_SECONDS` at most.

    **Cancellation**: ends the wait.

    Args:
        stopping: is set first, so that sessions refuse new requests (`Gateway.stopping`).
        acceptors: are closed. Connections that wait are accepted first.
        connections: those that are open, which this follows. One that begins later ends by itself.
    """
    stopping.set()
    for acceptor in acceptors:
        acceptor.finish()
    for each in tuple(connections):
        each.drain()
    with trio.move_on_after(DRAIN_SECONDS):
        while connections:
            await next(iter(connections)).ended.wait()
