"""Make and read the first lines of a connection to a gateway.

Before MCP begins, a client names a server. Over a unix socket the client begins, and needs no secret::

    client    mcp-actors/1 NAME
    gateway   mcp-actors/1 - ok

Over a network the gateway begins, and each side proves the secret by an HMAC over both nonces::

    gateway   mcp-actors/1 NONCE
    client    mcp-actors/1 NAME NONCE PROOF
    gateway   mcp-actors/1 PROOF ok

Owns: one handshake's secret and nonces.
Writes: nothing.
Calls: nothing.
"""

from __future__ import annotations

import hmac
import re
import secrets
import socket
import sys
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import trio

LINE_VERSION: Final = b"mcp-actors/1"
"""The version, at the beginning of each line."""

HANDSHAKE_SECONDS: Final = 5.0

MAX_LINE: Final = 256
"""Maximum bytes of a line before the secret is proven."""

MAX_ANSWER: Final = 4096
"""Maximum bytes of the gateway's last line, which lists up to `MAX_NAMED` servers after an unknown name."""

MAX_NAMED: Final = 20

OK: Final = "ok"
REFUSED: Final = "refused"
_UNKNOWN: Final = "unknown "

_UNPROVEN: Final = b"-"

_HEX: Final = rb"[0-9a-f]{64}"
_NAME: Final = rb"[A-Za-z0-9_.-]{1,64}"
_CHALLENGE: Final = re.compile(rb"%b (?P<nonce>%b)" % (LINE_VERSION, _HEX))
_NAMED_LINE: Final = re.compile(rb"%b (?P<name>%b)" % (LINE_VERSION, _NAME))
_PROVEN: Final = re.compile(rb"%b (?P<name>%b) (?P<nonce>%b) (?P<proof>%b)" % (LINE_VERSION, _NAME, _HEX, _HEX))
_ANSWER: Final = re.compile(rb"%b (?P<proof>-|%b) (?P<answer>[ -~]+)" % (LINE_VERSION, _HEX))


class NotProven(Exception):
    """The other side sent an unexpected line. The text says why, without a part of a secret."""


def _nonce() -> bytes:
    return secrets.token_hex(32).encode()


def _proof(secret: bytes, role: bytes, *parts: bytes) -> bytes:
    # A proof covers the version, the role, both nonces and the name; the gateway's also covers the answer. The role
    # keeps each side from sending the other's proof back; the gateway's new nonce makes a recorded line useless.
    #
    # No part contains a zero, so no two lists of parts have the same text.
    return hmac.new(secret, b"\0".join((LINE_VERSION, role, *parts)), "sha256").hexdigest().encode()


# --- The gateway's side -----------------------------------------------------------------------------------------------


@frozen
class Challenge:
    """The gateway's side of a connection over a network.

    A client has one try for each connection.
    """

    secret: bytes = field(repr=False)
    _nonce: bytes = field(factory=_nonce, init=False)

    @property
    def line(self) -> bytes:
        """The gateway's first line."""
        return b"%b %b\n" % (LINE_VERSION, self._nonce)

    def check(self, line: bytes) -> ProvenClient:
        """Return the client proven by a line.

        Raises:
            NotProven: the line is not valid, or the client has another secret.
        """
        found = _PROVEN.fullmatch(line)
        if found is None:
            raise NotProven("it did not begin as a client of this version of the gateway does")
        name, nonce, proof = found["name"], found["nonce"], found["proof"]
        if not hmac.compare_digest(proof, _proof(self.secret, b"client", self._nonce, nonce, name)):
            raise NotProven("it has another secret; compare it with that of this gateway")
        return ProvenClient(name.decode(), self.secret, (self._nonce, nonce, name))


@frozen
class ProvenClient:
    """A client that has proven the secret, and named a `server`."""

    server: str
    _secret: bytes = field(repr=False)
    _proven: tuple[bytes, ...]

    def answer(self, said: str) -> bytes:
        """Return the line that answers the client and proves the secret."""
        return answer_line(said, _proof(self._secret, b"server", *self._proven, said.encode()))


def is_ours(line: bytes) -> bool:
    """Return True if a client's first line begins our handshake.

    No line of MCP begins with ``mcp-actors/``.
    """
    return line.startswith(LINE_VERSION.partition(b"/")[0] + b"/")


def server_in(line: bytes) -> str | None:
    """Return the server in a client's first line over a unix socket; None if not valid."""
    found = _NAMED_LINE.fullmatch(line)
    return None if found is None else found["name"].decode()


def unknown(names: Sequence[str]) -> str:
    """Return the answer to a client that has named an unknown server."""
    return _UNKNOWN + ",".join(names[:MAX_NAMED]) + (",…" if len(names) > MAX_NAMED else "")


def answer_line(said: str, proof: bytes = _UNPROVEN) -> bytes:
    """Return the last line of the gateway.

    The line ends with ``ok``, or after a wrong name with ``unknown`` and the names of the servers. After a wrong proof,
    the line is ``mcp-actors/1 - refused``.
    """
    return b"%b %b %b\n" % (LINE_VERSION, proof, said.replace("…", "...").encode())


# --- The client's side ------------------------------------------------------------------------------------------------


@frozen
class Proof:
    """The client's side of a connection. The `secret` is None over a unix socket."""

    server: str
    secret: bytes | None = field(default=None, repr=False)
    _nonce: bytes = field(factory=_nonce, init=False)

    def line(self, challenge: bytes = b"") -> bytes:
        """Return the line to send; over a network, in answer to the gateway's first line.

        Raises:
            NotProven: the gateway's line is not valid.
        """
        if self.secret is None:
            return b"%b %b\n" % (LINE_VERSION, self.server.encode())
        return b"%b %b %b %b\n" % (
            LINE_VERSION,
            self.server.encode(),
            self._nonce,
            _proof(self.secret, b"client", *self._parts(challenge)),
        )

    def _parts(self, challenge: bytes) -> tuple[bytes, ...]:
        found = _CHALLENGE.fullmatch(challenge)
        if found is None:
            raise NotProven(_stranger(challenge))
        return found["nonce"], self._nonce, self.server.encode()

    def check(self, line: bytes, challenge: bytes = b"") -> str:
        """Return the answer of the gateway.

        Raises:
            NotProven: the line is not valid, or the gateway has not proven the secret.
        """
        found = _ANSWER.fullmatch(line)
        if found is None:
            raise NotProven(_stranger(line))
        if self.secret is None:
            return found["answer"].decode()
        if found["proof"] == _UNPROVEN:
            raise NotProven("refused the secret; compare secret or secret_file here with the --secret-file there")
        expected = _proof(self.secret, b"server", *self._parts(challenge), found["answer"])
        if not hmac.compare_digest(found["proof"], expected):
            raise NotProven(
                "has not proven the secret; check which program listens there, and the secret on both sides"
            )
        return found["answer"].decode()


def _stranger(line: bytes) -> str:
    if not line:
        return "closed the connection; check that it is a gateway, that it has no other user, and its log"
    if is_ours(line):
        return "has another version of the handshake; install the same version of mcp-actors on both sides"
    return "is not a gateway of mcp-actors, or an older one; check the address"


def names_of(answer: str) -> Sequence[str]:
    """Return the names of servers in an answer that is not `OK`."""
    return [name for name in answer.removeprefix(_UNKNOWN).split(",") if name] if answer.startswith(_UNKNOWN) else []


# --- What both sides read with ----------------------------------------------------------------------------------------


async def read_line(connection: trio.socket.SocketType, most: int) -> bytes:
    """Read a line, and return it without the newline; empty if the connection has ended.

    **Cancellation**: what was read is lost.

    Raises:
        NotProven: more than a line, or no line within `most` bytes.
    """
    data = b""
    while b"\n" not in data and len(data) < most:
        piece = await connection.recv(most - len(data))
        if not piece:
            return b""
        data += piece
    line, end, rest = data.partition(b"\n")
    if rest or not end:
        raise NotProven("sent something else than one line")
    return line


def peer_uid(connection: trio.socket.SocketType) -> int:
    """Return the uid of the process at the other end of a unix socket."""
    # ``gateway/_daemon`` has the same code, because that file also runs without the package.
    if sys.platform == "linux":
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, uid, gid
    else:
        data = connection.getsockopt(0, 1, 76)  # LOCAL_PEERCRED: a version, the uid, groups
    return int.from_bytes(data[4:8], sys.byteorder)
