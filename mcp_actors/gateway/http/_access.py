"""Decide who may send requests over HTTP.

A foreign page must not get in through a user's browser, so each request's ``Host`` and ``Origin`` are checked. Tokens
are the default on loopback too, because other users, and containers on this machine's network, reach it. A gateway
without tokens (``--no-token``) listens on loopback only.

Owns: the gateway's tokens; permitted host names; permitted origins.
Writes: new token files; their folders.
Calls: config, _wire.
"""

from __future__ import annotations

import hmac
import os
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ..._errors import ConfigError
from ..._user_files import SHORTEST_SECRET, read_private
from ...config import is_loopback as is_loopback_host
from ._wire import Head, HttpRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

BEARER_HEADER: Final = b"www-authenticate: Bearer\r\n"

ANYBODY: Final = ""
"""The identity of all clients of a gateway without tokens."""


@define(eq=False)
class Access:
    """The rules of a gateway.

    Attributes:
        tokens: identity → token; empty admits everybody.
        host_names: names (without port) permitted in ``Host``, besides loopback and the gateway's own address.
        origins: origins of pages that may send requests, besides the gateway's own.
    """

    tokens: Mapping[str, str] = field(repr=False)
    host_names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @property
    def identities(self) -> tuple[str, ...]:
        return tuple(self.tokens) or (ANYBODY,)

    def check_host_and_origin(self, head: Head, own_address: Any) -> None:
        """Check the name under which a request was sent, and the origin of the sending page. Raises `HttpRefused`.

        The gateway sends no CORS headers, so a browser lets no page of another origin read replies.

        `own_address` is the address that the client has connected to, as from `socket.getsockname`.
        """
        host = head.headers.get("host", "").lower()
        name = host.removeprefix("[").partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        address = own_address[0] if isinstance(own_address, tuple) else "127.0.0.1"  # unix socket
        if address.startswith("::ffff:") and "." in address:  # IPv4 on a socket for both
            address = address.removeprefix("::ffff:")
        # Clients use loopback names for a port that a container publishes. DNS rebinding needs the attacker's own name.
        if name not in {address, "localhost", "127.0.0.1", "::1", *self.host_names}:
            raise HttpRefused(421, f"Host {host!r:.100} is not a name of this gateway; name it with --host-name")
        origin = head.headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host and origin not in self.origins:
            raise HttpRefused(403, f"Origin {origin!r:.100} is not allowed; allow it with --origin")

    def identify(self, head: Head) -> str:
        """Return the identity of the sender, or raise `HttpRefused` without a valid token."""
        if not self.tokens:
            return ANYBODY
        scheme, _, given = head.headers.get("authorization", "").partition(" ")
        found = self.identity_of(given.strip())
        if found is None or scheme.lower() != "bearer":
            raise HttpRefused(401, "send the token of this gateway as Authorization: Bearer TOKEN", BEARER_HEADER)
        return found

    def identity_of(self, given: str) -> str | None:
        """Return the identity of a token; None if not valid."""
        found = None
        for identity, token in self.tokens.items():  # compare all: the time must not reveal a similar token
            if hmac.compare_digest(given.encode(errors="replace"), token.encode()):
                found = identity
        return found


def is_loopback(address: Any) -> bool:
    """Return True if an address, perhaps the path of a unix socket, can be reached from this machine only."""
    return not isinstance(address, tuple) or is_loopback_host(address[0].partition("%")[0])


# --- Files of tokens --------------------------------------------------------------------------------------------------


def read_or_make_token(path: str) -> str:
    """Return the token in a file. Without a file, make one that only this user can read.

    Raises:
        ConfigError: the file cannot be made, or is not fit for use.
    """
    token = secrets.token_urlsafe(32)
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), 0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")
    except FileExistsError:
        return next(iter(tokens_in(path).values()))
    except OSError as exc:
        remedy = "name a file that exists, or a folder that this user can write"
        raise ConfigError(f"{path} cannot be made ({exc.strerror}); {remedy}", source=path) from None
    return token


def tokens_in(path: str) -> dict[str, str]:
    """Return identity → token of a file. Each line is ``TOKEN`` or ``NAME TOKEN``; ``#`` begins a comment.

    A token without a name gets an identity made from the token, so its line may move.

    Raises:
        ConfigError: the file cannot be read, others may read it, or a line is not valid.
    """
    try:
        lines = [line.partition("#")[0].split() for line in read_private(path, 256 * 1024).split("\n")]
    except OSError as exc:
        raise ConfigError(str(exc), source=path) from None
    tokens: dict[str, str] = {}
    for number, words in enumerate(lines, 1):
        if not words:
            continue
        token = words[-1]
        name = words[0] if len(words) > 1 else f"token {sha256(token.encode()).hexdigest()[:16]}"
        if len(words) > 2 or len(token) < SHORTEST_SECRET or not token.isascii():
            problem = f"is not TOKEN or NAME TOKEN with a token of {SHORTEST_SECRET} or more ASCII characters"
            remedy = "make one with: openssl rand -hex 32"
            raise ConfigError(f"{path}: line {number} {problem}; {remedy}", source=path)
        if name in tokens or token in tokens.values():
            problem = f"line {number} has a name or a token for the second time"
            raise ConfigError(f"{path}: {problem}; remove one", source=path)
        tokens[name] = token
    if not tokens:
        raise ConfigError(f"{path} has no token; remove the file to have one made", source=path)
    return tokens
