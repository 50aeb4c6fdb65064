"""The link to a server behind a gateway, over a socket.

The server's process belongs to the gateway, so no exit is awaited: the connection ends with the socket. Only health
checks notice a frozen gateway or a lost network.

Owns: the writing task; the thread for the secret's file; the socket.
Writes: the list of credentials to mask; lines to the gateway.
Calls: config, transports, transports.stdio, _handshake.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from ..._collapse import collapse
from ..._errors import ConnectFailed
from ..._foreign import answer_of
from ..._tasks import Background, open_background
from ..._text import own_shortage
from ..._user_files import read_secret
from ...config import parse_address, resolve_secret
from .._credentials import Masker, resolve_credentials
from .._link import Lifeline, not_open
from .._logs import discreet
from ..stdio import LinesLink
from ._handshake import HANDSHAKE_SECONDS, MAX_ANSWER, MAX_LINE, OK, NotProven, Proof, names_of, peer_uid, read_line

if TYPE_CHECKING:
    from ...config import ServerConfig, Socket


class SocketLink(LinesLink):
    """A link to a server behind a gateway. On leaving, the socket is closed."""

    trusted = True

    def __init__(
        self,
        config: ServerConfig,
        transport: Socket,
        endpoint: str,
        stream: trio.lowlevel.FdStream,
        background: Background,
        lifeline: Lifeline,
        masker: Masker,
    ) -> None:
        gone = f"{endpoint} closed the connection"
        wait, most = _wait_no_exit, transport.max_line_bytes
        super().__init__(config, stream, stream, wait, most, lifeline, masker, gone=gone)
        self._stream = stream
        self.endpoint = endpoint
        background.start_soon(self._writer.run, name=f"{config.name}:socket")

    def __repr__(self) -> str:
        state = "closed" if self._stream.fileno() == -1 else "lost" if self.lifeline.lost else "open"
        return f"<SocketLink {self._name!r} to {self.endpoint}, {state}>"

    def close(self) -> None:
        """Close the socket. The gateway withdraws unanswered requests."""
        self._reader.close()
        self._writer.close()
        self._stream.close()


async def _wait_no_exit() -> bool:
    await trio.lowlevel.checkpoint()
    return False


@asynccontextmanager
@trio.lowlevel.enable_ki_protection  # a Ctrl-C between the dial and the `try` would leak the socket
async def open_socket_link(
    config: ServerConfig, transport: Socket, masker: Masker, *, on_lost: Callable[[], None]
) -> AsyncIterator[SocketLink]:
    """Connect to a gateway, and name the server; on leaving, close the connection.

    Raises:
        ConnectFailed: there is no address or secret, nothing listens there, or the gateway refuses.
    """
    dial = Dial(config, transport, masker)
    async with open_background() as background:
        await dial.resolve()
        stream = await dial.connect()
        # No checkpoint between here and the `try`: a cancellation delivered there would leak the socket.
        link = SocketLink(config, transport, dial.endpoint, stream, background, Lifeline(on_lost), masker)
        try:
            with discreet(masker):
                yield link
        finally:
            link.close()


class Dial:
    """One attempt to connect to a gateway. Messages show the gateway as `endpoint`."""

    def __init__(self, config: ServerConfig, transport: Socket, masker: Masker) -> None:
        self._config = config
        self._transport = transport
        self._masker = masker
        self._address: str | tuple[str, int] = ""
        self._secret: bytes | None = None
        self.endpoint = f"the gateway at {transport.display_address}"

    def _failed(self, problem: str, *, configured: bool = False) -> ConnectFailed:
        return not_open(self._config.name, problem, "configure" if configured else "open", hopeless=False)

    async def resolve(self) -> None:
        """Find the address, and over a network the secret.

        Raises:
            ConnectFailed: there is no address or no secret.
        """
        transport, given = self._transport, self._transport.address
        if not isinstance(given, str):
            try:
                given = await answer_of(given())
            except Exception as exc:
                # Without its text, which may contain a credential, such as the URL of a database.
                problem = f"the function for the address raised {type(exc).__name__} (see the cause of this error)"
                raise self._failed(f"{self.endpoint}: {problem}", configured=True) from exc
        try:
            self._address = parse_address(given if isinstance(given, str) else "")
        except ValueError:
            problem = f"{self.endpoint}: the function returned {given!r:.80}; return a path or 'host:port'"
            raise self._failed(problem, configured=True) from None
        self.endpoint = f"the gateway at {given}"
        if isinstance(self._address, str):
            return
        if transport.secret_file is not None:
            try:
                secret = await trio.to_thread.run_sync(read_secret, transport.secret_file, abandon_on_cancel=True)
            except OSError as exc:
                raise self._failed(f"secret_file: {exc}", configured=True) from exc
        elif transport.secret is not None:
            secret = await resolve_credentials(resolve_secret, transport.secret, self._config, "secret")
        else:
            problem = f"{self.endpoint} is on a network, and there is no secret; set secret or secret_file"
            raise self._failed(problem, configured=True)
        self._masker.add("<secret>", secret)
        self._secret = secret.encode(errors="surrogateescape")

    async def connect(self) -> trio.lowlevel.FdStream:
        """Connect, and name the server; return the socket.

        Raises:
            ConnectFailed: nothing listens there, or the gateway refuses.
        """
        stream = await self._open()
        try:
            with trio.move_on_after(HANDSHAKE_SECONDS) as waiting:
                answer = await self._greet(stream.socket)
            if waiting.cancelled_caught:
                problem = f"{self.endpoint} did not answer within {HANDSHAKE_SECONDS:g} s; check that it is a gateway"
                raise self._failed(f"{problem}, and whether it is frozen")
            if answer != OK:
                raise self._failed(self._refusal(answer))
        except (NotProven, OSError) as exc:
            stream.socket.close()
            said = exc if isinstance(exc, NotProven) else f"closed the connection ({exc.strerror or exc})"
            raise self._failed(f"{self.endpoint} {said}") from None
        except BaseException:
            stream.socket.close()
            raise
        return trio.lowlevel.FdStream(stream.socket.detach())

    async def _open(self) -> trio.SocketStream:
        try:
            if isinstance(self._address, str):
                stream = await trio.open_unix_socket(self._address)
            else:
                stream = await trio.open_tcp_stream(*self._address)
        except OSError as exc:
            cause = collapse(exc.__cause__) if exc.__cause__ is not None else exc
            reason = getattr(cause, "strerror", None) or cause
            remedy = "check that it runs, and the address"
            if (shortage := own_shortage(cause)) is not None:
                remedy = shortage.remedy
            raise self._failed(f"cannot connect to {self.endpoint} ({reason}); {remedy}") from exc
        return stream

    async def _greet(self, connection: trio.socket.SocketType) -> str:
        proof = Proof(self._transport.server or self._config.name, self._secret)
        challenge = b""
        if isinstance(self._address, str):
            if (uid := peer_uid(connection)) != os.geteuid():
                raise NotProven(f"belongs to another user (uid {uid}); check the path")
        else:
            challenge = await read_line(connection, MAX_LINE)
        line = proof.line(challenge)
        while line:
            line = line[await connection.send(line) :]
        return proof.check(await read_line(connection, MAX_ANSWER), challenge)

    def _refusal(self, answer: str) -> str:
        names = names_of(answer)
        wanted = self._transport.server or self._config.name
        if not names:
            return f"{self.endpoint} answered {answer:.80}; read its log"
        return (
            f"{self.endpoint} has no server {wanted!r}; its servers: {', '.join(names)}; set server=…, or add it there"
        )
