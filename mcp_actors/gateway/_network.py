"""Admit clients over TCP.

`network_of` checks where to listen, and what clients must know. `admit` runs the handshake of one connection
(`Challenge`): both sides prove the secret, and the client names a server. It has `HANDSHAKE_SECONDS`, one try, and
`MAX_LINE` bytes. A client without the secret costs a task and a descriptor until then, and at most `MAX_UNPROVEN` at a
time have one. At that limit the oldest goes. So strangers take places from each other: a client with the secret needs
its place for one round trip. Clients that were admitted do not notice strangers.

``_serve`` serves those that were admitted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio
from attrs import field, frozen

from .._foreign import Log
from .._user_files import secret_problem
from ..config import parse_address
from ..transports.socket import HANDSHAKE_SECONDS, MAX_LINE, OK, REFUSED, Challenge, NotProven, answer_line, read_line
from ._listen import prepare

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

logger = Log("mcp_actors.gateway")

MAX_UNPROVEN: Final = 100
"""Connections at a time that have not proven the secret. One more takes the place of the oldest."""


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


async def admit(client: socket.socket, secret: bytes, answer_to: Callable[[str], str], name: str) -> str | None:
    """Return the server that a client has named, once it has proven the secret; None if that is not here.

    Args:
        client: the connection.
        secret: the secret.
        answer_to: returns the answer to a client that names a server: `OK` if it is there.
        name: what log lines call the client.

    Raises:
        NotProven: the client has not proven the secret.
    """
    connection = trio.socket.from_stdlib_socket(client)
    with trio.move_on_after(HANDSHAKE_SECONDS):
        try:
            prepare(client)
            challenge = Challenge(secret)
            await connection.send(challenge.line)  # a new connection takes this much
            proven = challenge.check(await read_line(connection, MAX_LINE))
            said = answer_to(proven.server)
            # It takes this much, too. Nothing is awaited here, or a stranger could take the place of this client.
            client.send(proven.answer(said))
            if said == OK:
                return proven.server
            logger.warning("%s is refused: it wants server %r, which is not here", name, proven.server)
            return None
        except NotProven:
            with suppress(OSError):  # it may have left
                client.send(answer_line(REFUSED))  # never blocks: nothing else waits
            raise
        except OSError as exc:
            raise NotProven(f"its connection ended ({exc.strerror or exc})") from None
    raise NotProven(f"it has not proven the secret within {HANDSHAKE_SECONDS:g} s")
