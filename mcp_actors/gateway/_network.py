"""Listen, accept connections, admit clients over TCP, and end connections gracefully.

`network_of` checks where to listen, `listen` opens the listeners, an `Acceptor` takes what comes, and `drain` is the
end; ``http`` uses the last three as well.

`admit` runs the handshake of one connection (`Challenge`): both sides prove the secret, and the client names a server.
It has `HANDSHAKE_SECONDS`, one try, and `MAX_LINE` bytes. A client without the secret costs a task and a descriptor
until then, and at most `MAX_UNPROVEN` at a time have one; clients that were admitted do not notice them.

``_serve`` serves those that were admitted.
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import trio
from attrs import define, field, frozen

from .._foreign import Log
from .._user_files import secret_problem
from ..config import parse_address
from ..transports.socket import HANDSHAKE_SECONDS, MAX_LINE, OK, REFUSED, Challenge, NotProven, answer_line, read_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

logger = Log("mcp_actors.gateway")

MAX_UNPROVEN: Final = 100
"""Connections at a time that have not proven the secret. One more is closed at once."""

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

DRAIN_SECONDS: Final = 30.0
"""Seconds for what was begun when the gateway is to stop."""


@frozen
class Network:
    """An address of this machine, and the secret that its clients must prove."""

    host: str
    port: int
    secret: bytes = field(repr=False)


def network_of(address: str, secret: str | None) -> Network:
    """Return where to listen.

    Raises:
        ValueError: the address has no host and port, or there is no secret, or a short one.
    """
    at = parse_address(address)
    if isinstance(at, str):
        raise ValueError(f"address {address!r} is a path; write host:port, or give it as path=…")
    if secret is None:
        raise ValueError(f"address {address!r} is on a network, where anyone could call; give a secret")
    if problem := secret_problem(secret):
        raise ValueError(problem)
    return Network(*at, secret.encode(errors="surrogateescape"))


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


@define(eq=False)
class Acceptor:
    """Accepts the connections of a listener.

    Attributes:
        listener: the listener. It does not block.
    """

    listener: socket.socket
    _short: bool = field(default=False, init=False)

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


async def admit(client: socket.socket, secret: bytes, answer_to: Callable[[str], str], name: str) -> str | None:
    """Return the server that a client has named, once it has proven the secret; None if it is refused.

    Args:
        client: the connection.
        secret: the secret.
        answer_to: returns the answer to a client that names a server: `OK` if it is there.
        name: what log lines call the client.
    """
    connection = trio.socket.from_stdlib_socket(client)
    why = f"it has not proven the secret within {HANDSHAKE_SECONDS:g} s"
    with trio.move_on_after(HANDSHAKE_SECONDS):
        try:
            prepare(client)
            challenge = Challenge(secret)
            await connection.send(challenge.line)  # a new connection takes this much
            proven = challenge.check(await read_line(connection, MAX_LINE))
            said = answer_to(proven.server)
            await connection.send(proven.answer(said))
            if said == OK:
                return proven.server
            why = f"it wants server {proven.server!r}, which is not here"
        except NotProven as exc:
            why = str(exc)
            with suppress(OSError):  # it may have left
                client.send(answer_line(REFUSED))  # never blocks: nothing else waits
        except OSError as exc:
            why = f"its connection ended ({exc.strerror or exc})"
    logger.warning("%s is refused: %s", name, why)
    return None


class Draining(Protocol):
    """A connection that can end gracefully.

    Attributes:
        ended: whether it has ended.
    """

    ended: trio.Event

    def drain(self) -> None:
        """End the connection as soon as nothing is in flight, unread or unwritten."""


async def drain(stopping: trio.Event, listeners: Iterable[socket.socket], connections: Collection[Draining]) -> None:
    """Accept and begin nothing more, and wait until all connections have ended, for `DRAIN_SECONDS` at most.

    **Cancellation**: ends the wait.

    Args:
        stopping: is set, which refuses new requests (`Gateway.stopping`).
        listeners: are closed.
        connections: those that are open at any time. One that begins later ends by itself.
    """
    stopping.set()
    for listener in listeners:
        trio.lowlevel.notify_closing(listener)
        listener.close()
    for each in tuple(connections):
        each.drain()
    with trio.move_on_after(DRAIN_SECONDS):
        while connections:
            await next(iter(connections)).ended.wait()
