"""Send requests to the authorization server of one MCP server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote

import httpx2
import trio
from attrs import define, field
from pydantic_core import from_json

from .._text import plain_text
from ..config import is_loopback, is_not_public
from ._failures import Refused, Unreachable, said_by

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

    from ..config import OAuth

TIMEOUT: Final = 30.0
"""Seconds for one request."""

MAX_BODY: Final = 1024 * 1024
"""Bytes of an answer of an authorization server. Metadata take a few kilobytes."""

MAX_CREDENTIAL: Final = 16 * 1024
"""Characters of a credential that an authorization server issues. Most servers refuse a request with longer headers."""

_BUSY: Final = frozenset({408, 425, 429})
"""Statuses of a server that may answer later; besides those from 500 on."""

_SECRET: Final = frozenset({"assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token"})
"""Fields of a form that the other side may quote."""

_ISSUED: Final = frozenset({"access_token", "client_secret", "refresh_token", "registration_access_token"})
"""Members of an answer that are credentials."""

_KEPT: Final = (b"content-type", b"location", b"www-authenticate")
"""Headers of an answer that the flows read."""


def is_busy(response: httpx2.Response) -> bool:
    """Return True if a server cannot answer now, and may later."""
    return response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status_code in _BUSY


@define(eq=False, repr=False)
class Exchange:
    """The requests to authorization servers for one MCP server.

    Args:
        client: sends them, without the auth of the MCP server.
        url: the URL of the MCP server, without user and password.
        oauth: how to sign in.
        secret: the resolved client secret.
        mask: masks credentials in the text of a server.
        learn: adds a credential to those that are masked.
    """

    client: httpx2.AsyncClient
    url: str
    oauth: OAuth
    secret: str | None
    mask: Callable[[str], str]
    learn: Callable[[str], None]
    last: httpx2.Response | None = field(default=None, init=False)

    async def send(self, request: httpx2.Request, to: str = "the authorization server") -> httpx2.Response:
        """Send one request.

        Args:
            request: the request.
            to: the name of the other side in errors.

        Raises:
            Refused: its URL must not be asked (`check_url`), or the answer or a credential in it is too long.
            Unreachable: there is no answer within `TIMEOUT`, or the server cannot answer now.
        """
        self.check_url(request.url)
        await request.aread()  # the request that follows a redirect was not read yet
        self._learn_from(request)
        request.headers.setdefault("accept", "application/json")  # GitHub answers with a form otherwise
        where = self.mask(f"{to} {request.url.scheme}://{request.url.netloc.decode()}")
        try:
            with trio.fail_after(TIMEOUT):
                response = await self._answer(request, to)
        except trio.TooSlowError:
            raise Unreachable(f"{where} did not answer within {TIMEOUT:g} s") from None
        except httpx2.HTTPError as error:
            raise Unreachable(f"{where} cannot be reached ({type(error).__name__})") from None
        self.last = response
        if request.method == "POST":
            self._learn_issued(response)
        # To a GET for metadata, which other URLs may have too, the SDK reacts.
        if request.method == "POST" and is_busy(response):
            raise Unreachable(f"{to} answered {said_by(response, self.mask)[1]}")
        return response

    def learn_credentials(self, tokens: OAuthToken, client: OAuthClientInformationFull | None) -> None:
        """Mask the credentials of a sign-in from now on."""
        for token in (tokens.access_token, tokens.refresh_token):
            if token is not None:
                self.learn(token)
        if client is not None and client.client_secret is not None:
            self._learn_client(client.client_id or "", client.client_secret)
        if self.secret is not None:
            self._learn_client(self.oauth.client_id or "", self.secret)

    def _learn_client(self, client_id: str, secret: str) -> None:
        """Mask a client's secret, also as the header of a request has it (RFC 6749, 2.3.1)."""
        pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        for each in (secret, f"Basic {b64encode(pair.encode()).decode()}"):
            self.learn(each)

    def _learn_from(self, request: httpx2.Request) -> None:
        """Mask the credentials that a request sends."""
        for name, value in parse_qsl(request.content.decode(errors="replace")):
            if name in _SECRET:
                self.learn(value)
        if sent := request.headers.get("authorization"):
            self.learn(sent)

    def _learn_issued(self, response: httpx2.Response) -> None:
        """Mask the credentials that an answer contains, before anything else of it is read.

        Raises:
            Refused: one is too long; masking it would take long.
        """
        try:
            content = from_json(response.content)
        except ValueError:
            return
        for name in _ISSUED.intersection(content if isinstance(content, dict) else ()):
            if isinstance(content[name], str):
                if len(content[name]) > MAX_CREDENTIAL:
                    problem = f"the authorization server has issued a {name} of more than {MAX_CREDENTIAL} characters"
                    raise Refused("token_refused", f"{problem}; report that to its operator")
                self.learn(content[name])

    async def _answer(self, request: httpx2.Request, to: str) -> httpx2.Response:
        response = await self.client.send(request, auth=None, stream=True, follow_redirects=False)
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_BODY:
                    raise Refused("answer_too_long", f"an answer of {to} exceeds {MAX_BODY} bytes")
        finally:
            await response.aclose()
        # As bytes: httpx2 reads headers in any encoding, and writes those of a new response in ASCII.
        kept = [(name, value) for name, value in response.headers.raw if name.lower() in _KEPT]
        status = response.status_code
        if request.method == "POST" and response.is_success and _is_error(body):
            status = HTTPStatus.BAD_REQUEST
        answer = httpx2.Response(status, headers=kept, content=bytes(body), request=response.request)
        answer.next_request = response.next_request
        return answer

    def check_url(self, url: httpx2.URL) -> None:
        """Refuse a URL that the metadata name, if nothing may be sent to it.

        Secrets would be sent to it unencrypted, its user-info would hide its host from people, or it leads from the
        Internet into the network of this machine. The host of the configured issuer may be anywhere.

        Raises:
            Refused: it is such a URL.
        """
        server = httpx2.URL(self.url).host
        trusted = self.oauth.issuer is not None and url.host == httpx2.URL(self.oauth.issuer).host
        here = is_loopback(url.host) and (trusted or is_loopback(server))
        shown = self.mask(str(url.copy_with(userinfo=b"", query=None, fragment=None)))
        named = f"the metadata name {plain_text(shown)}"
        if url.scheme != "https" and not (url.scheme == "http" and here):
            raise Refused("insecure_url", f"{named}, which is not https")
        if url.userinfo:
            problem = f"{named} with a user in front of the host"
            raise Refused("invalid_metadata", f"{problem}; do not sign in to this server")
        if is_not_public(url.host) and not trusted and not is_not_public(server):
            problem = f"{named}, an address that is not public, for a server that is"
            raise Refused("private_address", f"{problem}; if the authorization server is there, set issuer to its URL")

    def check_page(self, url: str) -> None:
        """Refuse the URL of a page that a browser must not open."""
        page = httpx2.URL(url)
        self.check_url(page)
        if page.fragment:  # the parameters of the sign-in are behind it, so the server would not see them
            raise Refused("invalid_metadata", "the metadata name an authorization endpoint with a fragment ('#')")

    def scope_for(self, asked: str | None) -> str | None:
        """Return the scopes to ask for: the configured ones; only without any, those that the server asks for."""
        return " ".join(self.oauth.scopes) or asked


def _is_error(body: bytearray) -> bool:
    """Return True if a body is an error of OAuth. GitHub sends errors with status 200."""
    try:
        content = from_json(body)
    except ValueError:
        return False
    return isinstance(content, dict) and "error" in content and "access_token" not in content
