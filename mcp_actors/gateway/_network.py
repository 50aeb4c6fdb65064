"""Admit clients over TCP.

Strangers must not use up the connections that clients need. So a connection becomes a client by proving the gateway's
secret and naming a server, in one try of at most `HANDSHAKE_SECONDS` and `MAX_LINE` bytes.

Owns: nothing.
Writes: handshake lines to clients; the log.
Calls: config, transports.socket, _listen.
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
"""Maximum of connections without a proven secret. A further connection replaces the oldest."""


@frozen
class Network:
    host: str
    port: int
    secret: bytes = field(repr=False)


def network_of(address: str, secret: str | None) -> Network:
    """Return where to listen, or raise ValueError for a path, or for a missing or short secret."""
    at = parse_address(address)
    if isinstance(at, str):
        raise ValueError(f"address {address!r} is a path; write host:port, or give it as path=…")
    if secret is None:
        raise ValueError(f"address {address!r} is on a network, where anyone could call; give a secret")
    if problem := secret_problem(secret):
        raise ValueError(problem)
    return Network(*at, secret.encode(errors="surrogateescape"))


async def admit(client: socket.socket, secret: bytes, answer_to: Callable[[str], str], name: str) -> str | None:
    """Return the server named by a client that proves the secret; None if `answer_to` refuses the name.

    Raises:
        NotProven: the client has not proven the secret.
    """
    connection = trio.socket.from_stdlib_socket(client)
    with trio.move_on_after(HANDSHAKE_SECONDS):
        try:
            prepare(client)
            challenge = Challenge(secret)
            await connection.send(challenge.line)  # fits into a new connection's buffer
            proven = challenge.check(await read_line(connection, MAX_LINE))
            said = answer_to(proven.server)
            # Send without a checkpoint: the answer fits into the buffer, and from the proof to the return the task
            # cannot be cancelled. In an await here, a newer stranger could still take the place of this client, which
            # has proven the secret.
            client.send(proven.answer(said))
            if said == OK:
                return proven.server
            logger.warning("%s is refused: it wants server %r, which is not here", name, proven.server)
            return None
        except NotProven:
            with suppress(OSError):  # the client may have left
                client.send(answer_line(REFUSED))  # never blocks: nothing else waits
            raise
        except OSError as exc:
            raise NotProven(f"its connection ended ({exc.strerror or exc})") from None
    raise NotProven(f"it has not proven the secret within {HANDSHAKE_SECONDS:g} s")
