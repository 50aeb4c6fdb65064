"""Renew credentials that expire in mid-session: a 401 has them resolved anew, once for all requests that it meets.

A request that was answered with 401 was not acted upon, so it is sent once more, with the new credentials. Those that
were refused from the first are not resolved again: a function may run a program, or ask somebody for a password.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import httpx2
import trio
from attrs import define, field

from ..._errors import ConnectFailed
from ...config import is_auth_flow, resolve_headers, resolve_token
from ._credentials import resolve_credentials

if TYPE_CHECKING:
    from ...config import ConfigValue, Http, Sse
    from ._masker import Masker

__all__ = ["Credentials", "Renewal", "named_credentials"]

VARIABLE: Final = re.compile(r"\$\{\w+")


def named_credentials(transport: Http | Sse) -> str:
    """Say where the credentials come from, without any value; empty if there are none."""
    named = []
    if transport.auth is not None:
        named.append("auth" if is_auth_flow(transport.auth) else f"auth{_source(transport.auth)}")
    if httpx2.URL(transport.url).userinfo:
        named.append("the user in url")
    return ", ".join([*named, *(f"header {name}{_source(value)}" for name, value in transport.headers.items())])


def _source(value: object) -> str:
    if callable(value):
        return " (a function)"
    names = VARIABLE.findall(value) if isinstance(value, str) else []
    return f" ({', '.join(f'{name}}}' for name in names)})" if names else ""


@define(eq=False)
class Credentials:
    """What the requests to one server carry.

    Attributes:
        server: its name.
        transport: how it is reached.
        masker: is told what must not be shown.
    """

    server: str
    transport: Http | Sse
    masker: Masker

    @property
    def renewable(self) -> bool:
        """Whether they may be others when they are resolved again."""
        values: list[ConfigValue | httpx2.Auth | None] = [self.transport.auth, *self.transport.headers.values()]
        return not is_auth_flow(self.transport.auth) and any(map(_source, values))

    async def resolve(self) -> dict[str, str]:
        """Return the headers to send.

        Raises:
            ConnectFailed: one cannot be resolved.
        """
        auth = self.transport.auth
        headers = await resolve_credentials(
            resolve_headers, self.transport.headers, server=self.server, field="headers"
        )
        self.masker.add_all("headers", headers)
        if auth is not None and not is_auth_flow(auth):
            token = await resolve_credentials(resolve_token, auth, server=self.server, field="auth")
            self.masker.add("<auth>", token)
            headers["Authorization"] = f"Bearer {token}"
        return headers


@define(eq=False)
class Renewal(httpx2.Auth):
    """Sends a request that was refused once more, if there are other credentials now.

    Attributes:
        client: the client of the connection.
        credentials: where they come from.
        headers: what is sent now.
    """

    client: httpx2.AsyncClient
    credentials: Credentials
    headers: dict[str, str]
    _renewed: dict[str, str] = field(factory=dict, init=False)
    _accepted: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, and maybe a second time."""
        sent = self.headers
        request.headers.update(self._renewed)  # it may have been made before
        response = yield request
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            self._accepted = self._accepted or sent is self.headers
        elif await self._renew(sent):
            # httpx2 would read all of the body, however long it is.
            await response.stream.aclose()  # type: ignore[union-attr]  # an AsyncClient's are async
            response.stream = httpx2.ByteStream(b"")
            request.headers.update(self._renewed)
            response = yield request
            self._accepted = self._accepted or response.status_code != HTTPStatus.UNAUTHORIZED

    async def _renew(self, refused: dict[str, str]) -> bool:
        """Resolve the credentials anew, unless that was done since these were sent; return whether there are others."""
        async with self._turn:
            if self.headers is refused and self._accepted:
                try:
                    headers = await self.credentials.resolve()
                except ConnectFailed:
                    headers = refused  # the server is connected anew then, and that fails with it
                self._accepted = False  # not earlier: a caller that leaves in between has shown nothing
                if headers != refused:
                    self._renewed |= {name: value for name, value in headers.items() if value != refused[name]}
                    self.headers = headers
                    self.client.headers.update(headers)
        return self.headers is not refused
