"""Accept connections, at a path or over TCP, and end them gracefully.

An `Acceptor` takes what comes to a listener. A `KeptSocket` is one at a path, for this user only, and makes its socket
again if that is removed. `listen` opens the listeners for TCP, and `drain` is the end.

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
from ._daemon import Refused, connect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

logger = Log("mcp_actors.gateway")

IDLE: Final = 60
"""Seconds without data from a client, after which the system asks whether its machine is still there: every
`INTERVAL` seconds, `TRIES` times. Without that, sessions of machines that are gone would stay for ever."""

INTERVAL: Final = 15
TRIES: Final = 4

AT_ONCE: Final = 4
"""Connections that are accepted in one turn of the loop. With 32, a flood took most of each turn, and clients that were
connected waited seconds for an answer; with 4 they wait 2 ms (the median), and no fewer connections are accepted."""

SHORTAGE: Final = 0.1
"""Seconds until the next connection is accepted if descriptors are used up."""

LOOK: Final = 2.0
"""Seconds between two looks at the socket of a path."""

BACKLOG_OF_CLIENTS: Final = 1024
"""Connections that may wait to be accepted at a path: two hundred programs may start at once."""

DRAIN_SECONDS: Final = 30.0
"""Seconds for what was begun when the gateway is to stop."""


class Acceptor:
    """Accepts the connections of a listener.

    Args:
        listener: does not block.

    Attributes:
        listener: the same.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self._short = False

    async def accept(self) -> list[socket.socket]:
        """Wait for connections, and accept those that are there, `AT_ONCE` at most. They do not block.

        A shortage of descriptors is logged once. It has ended when no connection waits any more.

        **Cancellation**: no connection is lost.

        Raises:
            trio.ClosedResourceError: the listener was closed.
        """
        accepted: list[socket.socket] = []
        while not accepted:
            if self.listener.fileno() < 0:
                raise trio.ClosedResourceError
            await trio.lowlevel.wait_readable(self.listener)
            try:
                while len(accepted) < AT_ONCE:
                    client, _ = self.listener.accept()
                    client.setblocking(False)
                    accepted.append(client)
            except BlockingIOError:
                self._short = False
            except OSError as exc:
                if self.listener.fileno() >= 0 and not self._short:
                    self._short = True
                    logger.warning("a connection could not be accepted: %s; retrying every %g s", exc, SHORTAGE)
                if not accepted:
                    await trio.sleep(SHORTAGE)
        return accepted

    def close(self) -> None:
        """Accept nothing more."""
        if self.listener.fileno() >= 0:
            trio.lowlevel.notify_closing(self.listener)
            self.listener.close()


class KeptSocket(Acceptor):
    """Accepts the connections at the path of a unix socket, which only this user may use.

    Programs that clean folders remove sockets. Without its socket no client finds a daemon, and none can start another
    one while this has the lock. So it is looked at every `LOOK` seconds, and made again, however often that has to be
    tried. It is closed if another process listens there.

    Args:
        path: the path. A socket that nothing listens on is replaced.

    Raises:
        OSError: another process listens there, the place is not a socket of this user, or the path is too long.
    """

    def __init__(self, path: str) -> None:
        super().__init__(_listener_at(path))
        self._path = path
        self._socket = _identity(path)
        self._failed = False

    async def accept(self) -> list[socket.socket]:
        while True:
            with trio.move_on_after(LOOK):
                return await super().accept()
            self._look()

    def _look(self) -> None:
        """Make the socket again if it is not there any more.

        Raises:
            trio.ClosedResourceError: the place belongs to another process or user.
        """
        if _identity(self._path) == self._socket:
            return
        try:
            made = _listener_at(self._path)
        except (FileExistsError, Refused) as exc:
            logger.warning("the socket %s was replaced: %s", self._path, exc.strerror or exc)
            self.close()
            raise trio.ClosedResourceError from None
        except OSError as exc:  # such as a shortage of descriptors, or the folder was removed
            if not self._failed:
                problem = "the socket %s was removed and cannot be made again: %s; retrying every %g s"
                logger.warning(problem, self._path, exc.strerror or exc, LOOK)
            self._failed = True
            return
        logger.warning("the socket %s was removed; it was made again", self._path)
        self.listener.close()
        self.listener, self._socket, self._failed = made, _identity(self._path), False

    def close(self) -> None:
        """Accept nothing more, and remove the socket."""
        super().close()
        if self._socket is not None and _identity(self._path) == self._socket:
            os.unlink(self._path)


def _listener_at(path: str) -> socket.socket:
    """Return a listener at a path; see `KeptSocket`."""
    if _answers(path):
        raise FileExistsError(errno.EADDRINUSE, "another process serves there", path)
    made = f"{path}.{os.getpid()}"  # no client can connect before it has its permissions
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        with suppress(FileNotFoundError):
            os.unlink(made)
        listener.bind(made)
        os.chmod(made, 0o600)
        listener.listen(BACKLOG_OF_CLIENTS)
        os.rename(made, path)
    except BaseException:
        listener.close()
        with suppress(OSError):
            os.unlink(made)
        raise
    return listener


def _answers(path: str) -> bool:
    """Return True if a process listens on a socket."""
    try:
        connection = connect(path)
    except BlockingIOError:
        return True  # many are waiting
    if connection is not None:
        connection.close()
    return connection is not None


def _identity(path: str) -> tuple[int, int] | None:
    """Return the numbers of a file, which no other file has; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# --- TCP --------------------------------------------------------------------------------------------------------------


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return listeners for an address. A name may have several addresses; a port 0 is chosen by the system, for one.

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
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def prepare(client: socket.socket) -> None:
    """Send small messages at once, and notice that the machine of a client is gone."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", INTERVAL), ("TCP_KEEPCNT", TRIES)):
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
        stopping: is set, which refuses new requests (`Gateway.stopping`).
        acceptors: are closed.
        connections: those that are open at any time. One that begins later ends by itself.
    """
    stopping.set()
    for acceptor in acceptors:
        acceptor.close()
    for each in tuple(connections):
        each.drain()
    with trio.move_on_after(DRAIN_SECONDS):
        while connections:
            await next(iter(connections)).ended.wait()
