"""Resolve credentials at every connect, and renew those that expire in mid-session.

After a 401 they are resolved again, once for all refused requests. A request that was answered with 401 was not carried
out, so it is sent once more with the new credentials. Credentials that the server never accepted are not resolved
again: a function may run a program or ask a person for a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeGuard, TypeVar

import httpx2
import trio
from attrs import define, field

from ...._errors import ConfigError, ConnectFailed
from ....config import OAuth, is_auth_flow, resolve_headers, resolve_token

if TYPE_CHECKING:
    from ....config import ConfigValue, Http, Sse
    from ._masker import Masker

Resolved = TypeVar("Resolved")

VARIABLE: Final = re.compile(r"\$\{\w+")


async def resolve_credentials(
    resolver: Callable[..., Awaitable[Resolved]], configured: object, *, server: str, field: str
) -> Resolved:
    """Resolve one field (``"env"``, ``"headers"``, ``"auth"``) against the current environment.

    **Cancellation:** waits only inside an async function of the user, and leaves nothing behind.

    Raises:
        ConnectFailed: a value cannot be resolved. Hopeless, unless a function of the user raised: it may succeed next
            time.
    """
    try:
        return await resolver(configured, os.environ, where=f"servers.{server}.{field}")
    except ConfigError as error:
        raise ConnectFailed(
            f"server {server!r}: {error}", server=server, phase="configure", hopeless=error.__cause__ is None
        ) from error


def named_credentials(transport: Http | Sse) -> str:
    """Return the sources of the credentials, without any value; empty without credentials."""
    named = []
    if transport.auth is not None:
        named.append(f"auth{_source(transport.auth)}" if _is_token(transport.auth) else "auth")
    if httpx2.URL(transport.url).userinfo:
        named.append("the user in url")
    return ", ".join([*named, *(f"header {name}{_source(value)}" for name, value in transport.headers.items())])


def _is_token(auth: ConfigValue | OAuth | httpx2.Auth | None) -> TypeGuard[ConfigValue]:
    """Return True if `auth` is a bearer token, or the source of one."""
    return auth is not None and not isinstance(auth, OAuth) and not is_auth_flow(auth)


def _source(value: object) -> str:
    if callable(value):
        return " (a function)"
    names = VARIABLE.findall(value) if isinstance(value, str) else []
    return f" ({', '.join(f'{name}}}' for name in names)})" if names else ""


@define(eq=False)
class Credentials:
    """The credentials of one server.

    Attributes:
        server: the name of the server.
        transport: the configured transport.
        masker: masks every value that is resolved.
        timeout: seconds that a renewal may take. It has a limit of its own, because it may outlive the request that
            began it, and every other refused request waits for it.
    """

    server: str
    transport: Http | Sse
    masker: Masker
    timeout: float

    @property
    def renewable(self) -> bool:
        """True if resolving them again may return other values."""
        auth, headers = self.transport.auth, self.transport.headers.values()
        return (auth is None or _is_token(auth)) and any(map(_source, (auth, *headers)))

    async def resolve(self) -> dict[str, str]:
        """Resolve the headers to send.

        Raises:
            ConnectFailed: a value cannot be resolved.
        """
        auth = self.transport.auth
        headers = await resolve_credentials(
            resolve_headers, self.transport.headers, server=self.server, field="headers"
        )
        self.masker.add_all("headers", headers)
        if _is_token(auth):
            token = await resolve_credentials(resolve_token, auth, server=self.server, field="auth")
            self.masker.add("<auth>", token)
            headers["Authorization"] = f"Bearer {token}"
        return headers


@define(eq=False)
class Renewal(httpx2.Auth):
    """Sends a request once more if it was refused and its credentials have changed.

    Attributes:
        client: the client of the connection.
        credentials: resolves the headers.
        headers: the headers that are sent now.
    """

    client: httpx2.AsyncClient
    credentials: Credentials
    headers: dict[str, str]
    _renewed: dict[str, str] = field(factory=dict, init=False)
    _accepted: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, and a second time if it was refused and the credentials could be renewed."""
        # `sent` identifies the credentials of this request. Another request may renew them before the response arrives;
        # then `_renew` sees that they have changed and does not resolve them a second time.
        sent = self.headers
        request.headers.update(self._renewed)  # the request may have been built before the last renewal
        response = yield request
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            self._accepted = self._accepted or sent is self.headers
        elif await self._renew(sent):
            # Replace the body of the refusal: httpx2 would read all of it, however long, before the second request.
            await response.stream.aclose()  # type: ignore[union-attr]  # an AsyncClient's are async
            response.stream = httpx2.ByteStream(b"")
            request.headers.update(self._renewed)
            response = yield request
            self._accepted = self._accepted or response.status_code != HTTPStatus.UNAUTHORIZED

    async def _renew(self, refused: dict[str, str]) -> bool:
        """Resolve the credentials again, unless that was done since `refused` was sent; return True if they changed."""
        async with self._turn:
            if self.headers is refused and self._accepted:
                headers = refused  # if it stays so, the reconnect that follows fails with an error that says why
                with suppress(ConnectFailed), trio.move_on_after(self.credentials.timeout):
                    headers = await self.credentials.resolve()
                # Not before the checkpoints above: a caller that is cancelled there has proved nothing.
                self._accepted = False
                if headers != refused:
                    self._renewed |= {name: value for name, value in headers.items() if value != refused[name]}
                    self.headers = headers
                    self.client.headers.update(headers)
        return self.headers is not refused
