"""Decide who may send requests over HTTP.

A token is needed on loopback, too: all users of a machine reach that, and all containers with the network of the host.
`Access` checks the ``Host`` of a request, so that no page of a browser gets here under a name of its own (DNS
rebinding), its ``Origin`` if it has one, and its token. There are no CORS headers, so browsers let no other page read.
Several tokens in a file are identities. `tokens_in` reads them, `make_token` makes the first.

`Access` does no I/O. ``_door`` asks it for each head that it has not seen yet; ``cli`` reads the files.
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
from ._wire import Head, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

CHALLENGE: Final = b"www-authenticate: Bearer\r\n"

ANYBODY: Final = ""
"""The identity of all clients if there are no tokens."""


@define(eq=False)
class Access:
    """The rules of a gateway.

    Attributes:
        tokens: identity → token; none lets everybody in. `Door.use` sets others.
        host_names: the public names of the gateway, without a port. Those of the loopback device, and the address that
            the client has connected to, are names, too.
        origins: the origins of the pages that may send requests. Its own pages may, too.
    """

    tokens: Mapping[str, str] = field(repr=False)
    host_names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @property
    def identities(self) -> tuple[str, ...]:
        """All identities."""
        return tuple(self.tokens) or (ANYBODY,)

    def check_host(self, head: Head, local: Any) -> None:
        """Check the name under which a request was sent, and the origin of the page that has sent it.

        Args:
            head: the request.
            local: the address that the client has connected to, as `socket.getsockname` gives it.

        Raises:
            Refused: the name is not one of this gateway, or the origin is not allowed.
        """
        host = head.headers.get("host", "").lower()
        name = host.removeprefix("[").partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        address = local[0] if isinstance(local, tuple) else "127.0.0.1"  # of a unix socket
        if address.startswith("::ffff:") and "." in address:  # IPv4 on a socket for both
            address = address.removeprefix("::ffff:")
        # Clients use these for a port that a container publishes on their machine. DNS rebinding needs a name of the
        # attacker, so it cannot use them.
        names = {address, "localhost", "127.0.0.1", "::1", *self.host_names}
        if name not in names:
            raise Refused(421, f"Host {host!r:.100} is not a name of this gateway; name it with --host-name")
        origin = head.headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host and origin not in self.origins:
            raise Refused(403, f"Origin {origin!r:.100} is not allowed; allow it with --origin")

    def identify(self, head: Head) -> str:
        """Return the identity of the client that has sent a request.

        Raises:
            Refused: it has no valid token.
        """
        if not self.tokens:
            return ANYBODY
        scheme, _, given = head.headers.get("authorization", "").partition(" ")
        found = self.identity_of(given.strip())
        if found is None or scheme.lower() != "bearer":
            raise Refused(401, "send the token of this gateway as Authorization: Bearer TOKEN", CHALLENGE)
        return found

    def identity_of(self, given: str) -> str | None:
        """Return the identity to which a token belongs; None if the token is not valid."""
        found = None
        for identity, token in self.tokens.items():  # always all: the time must not show which one is similar
            if hmac.compare_digest(given.encode(errors="replace"), token.encode()):
                found = identity
        return found


def is_loopback(address: Any) -> bool:
    """Return True if only this machine reaches an address, which may be the path of a unix socket."""
    return not isinstance(address, tuple) or is_loopback_host(address[0].partition("%")[0])


# --- Files of tokens --------------------------------------------------------------------------------------------------


def make_token(path: str) -> str:
    """Make a token, and a file with it that only this user can read, unless there is such a file. Return the token.

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
        problem = f"{path} cannot be made ({exc.strerror})"
        raise ConfigError(
            f"{problem}; name a file that exists, or a folder that this user can write", source=path
        ) from None
    return token


def tokens_in(path: str) -> dict[str, str]:
    """Return the tokens in a file by identity. Each line is ``TOKEN`` or ``NAME TOKEN``; ``#`` begins a comment.

    The identity of a token without a name is that of the token alone: its line may move.

    Raises:
        ConfigError: it cannot be read, others may read it, or a line is not valid.
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
