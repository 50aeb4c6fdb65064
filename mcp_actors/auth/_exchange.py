"""Send the requests of a sign-in, and read answers and challenges.

An authorization server is not trusted: an answer may be endless or may quote credentials, and metadata may name an
address in a private network. An `AuthorizationClient` limits the time and the size of each answer, masks credentials,
and checks a URL before anything is sent there.

Owns: the most recent response.
Writes: the connection's list of masked credentials; requests to servers.
Calls: config.
"""

from __future__ import annotations

import codecs
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import parse_qsl, quote

import httpx2
import trio
from attrs import define, field, frozen
from mcp.shared.auth import OAuthToken
from pydantic_core import ValidationError, from_json, to_json

from .._errors import ConnectFailed, ConnectPhase, McpActorsError, ServerError, ServerUnavailable
from .._foreign import answer_of
from .._text import plain_text
from ..config import is_loopback, is_not_public
from ..config._oauth import SCOPE

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull
    from pydantic import BaseModel

    from ..config import OAuth


# --- Failures ---------------------------------------------------------------------------------------------------------


_CODE: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,60}")  # RFC 6749, 5.2
_EXPLAINED: Final = ("error", "error_description")


class SignInRequired(ConnectFailed, ServerUnavailable):
    """A person has to sign in to the server, which has the state ``needs_auth``.

    Attributes:
        challenge: the ``WWW-Authenticate`` header of the answer that requires a sign-in, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        challenge: str | None = None,
        outcome: Literal["not_sent", "unknown"] = "unknown",
    ) -> None:
        ServerUnavailable.__init__(self, message, server=server, state="needs_auth", outcome=outcome)
        # `ConnectFailed.__init__` would call that of ServerUnavailable again.
        self.phase: ConnectPhase = "open"
        self.exit_code: int | None = None
        self.stderr_tail: str = ""
        self.http_status: int | None = None
        self.hopeless: bool = True
        self.challenge = challenge

    @classmethod
    def because(cls, server: str, why: str, challenge: str | None = None) -> Self:
        """Return the error with a remedy."""
        remedy = f"run 'mcp-actors login {server}', or await servers[{server!r}].sign_in()"
        message = f"server {server!r}: {why}; {remedy}"
        return cls(message, server=server, challenge=challenge, outcome="not_sent")


class SignInFailed(ServerError):
    """A sign-in has ended without tokens.

    Attributes:
        reason: an error code of OAuth such as ``"access_denied"``, or ``"timed_out"``, ``"state_mismatch"``,
            ``"issuer_mismatch"``, ``"issuer_changed"``, ``"invalid_metadata"``, ``"insecure_url"``,
            ``"private_address"``, ``"no_browser"``, ``"port_in_use"``, ``"registration_refused"``, ``"token_refused"``,
            ``"unreachable"``.
    """

    def __init__(self, message: str, *, server: str = "", reason: str = "") -> None:
        super().__init__(message, server=server)
        self.reason = reason

    @classmethod
    def because(cls, server: str, reason: str, why: str) -> Self:
        """Return the error with the name of the server."""
        return cls(f"server {server!r}: sign-in failed ({reason}): {why}", server=server, reason=reason)


class SignInNeeded(Exception):
    """Only a person can help. The text says why.

    Attributes:
        challenge: as for `SignInRequired`.
        dead: True if the refresh token is worthless.
    """

    def __init__(self, message: str, challenge: str | None = None, *, dead: bool = False) -> None:
        super().__init__(message)
        self.challenge = challenge
        self.dead = dead


class AuthorizationRefused(Exception):
    """The authorization server, or a check here, has refused something. A retry cannot help."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def again(self) -> AuthorizationRefused:
        return AuthorizationRefused(self.reason, str(self))


class NoBrowser(AuthorizationRefused, McpActorsError):
    """`open_browser` found no display, or no browser.

    A callback may catch this error and show the URL in another way. A sign-in raises `SignInFailed` instead.

    Attributes:
        reason: ``"no_browser"``.
    """

    def __init__(self, message: str) -> None:
        super().__init__("no_browser", message)


class Unreachable(Exception):
    """The authorization server does not answer, or cannot now. A retry may help."""

    def again(self) -> Unreachable:
        return Unreachable(str(self))


def members_in(body: bytes | bytearray) -> dict[str, Any]:
    with suppress(ValueError):
        content = from_json(body)
        return content if isinstance(content, dict) else {}
    return {}


def said_by(response: httpx2.Response, mask: Callable[[str], str]) -> tuple[str, str]:
    """Return the error code in an answer, or ``""``; and the answer in words, for errors.

    The rest of a body is not shown, because it may have a code, a token or a secret.
    """
    body = members_in(response.content)
    code, description = (each if isinstance(each := body.get(name), str) else "" for name in _EXPLAINED)
    # The code may be a credential too, by its syntax.
    code = mask(code) if _CODE.fullmatch(code) else ""
    return code, with_explanation(" ".join(filter(None, [str(response.status_code), code])), mask(description))


def with_explanation(said: str, description: str) -> str:
    explained = plain_text(description, limit=200)
    return f"{said} ({explained})" if explained else said


def remedy_for(said: str, oauth: OAuth) -> str:
    """Return the remedy for an answer as the end of a sentence, or ``""``."""
    if "invalid_client" in said:
        return "; check client_id and client_secret"
    # RFC 8707, and AADSTS901002 of Microsoft Entra ID: "The 'resource' request parameter is not supported."
    if oauth.send_resource and ("invalid_target" in said or "'resource'" in said):
        problem = "if it refuses the parameter 'resource', as Microsoft Entra ID does"
        return f"; {problem}, set scopes and send_resource=False"
    return ""


def problem_of(model: type[BaseModel], response: httpx2.Response) -> str:
    """Return why an answer does not fit a model, without content."""
    try:
        model.model_validate_json(response.content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return f" ({'; '.join(': '.join([*map(str, each['loc']), each['msg']]) for each in problems[:3])})"
    return ""


# --- Requests ---------------------------------------------------------------------------------------------------------


AUTH_TIMEOUT: Final = 30.0
"""Seconds for one request."""

MAX_BODY: Final = 1024 * 1024
"""Bytes of an answer. Metadata take a few kilobytes."""

MAX_CREDENTIAL: Final = 16 * 1024
"""Characters of an issued credential. Most servers refuse longer headers."""

_SECRET: Final = frozenset({"assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token"})
"""Fields of a form that an answer may quote."""

_ISSUED: Final = frozenset({"access_token", "client_secret", "refresh_token", "registration_access_token"})
"""Members of an answer that are credentials."""

_KEPT_HEADERS: Final = (b"content-type", b"location", b"www-authenticate")


def is_busy(response: httpx2.Response) -> bool:
    return response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status_code in (408, 425, 429)


@define(eq=False, repr=False)
class AuthorizationClient:
    """The requests to authorization servers for an MCP server.

    Args:
        client: sends the requests, without the auth of the MCP server.
        url: the URL of the MCP server, without user and password.
        secret: the resolved client secret.
        mask: masks credentials in a text.
        learn: adds a credential to mask.
    """

    client: httpx2.AsyncClient
    url: str
    oauth: OAuth
    secret: str | None
    mask: Callable[[str], str]
    learn: Callable[[str], None]
    last: httpx2.Response | None = field(default=None, init=False)

    async def send(self, request: httpx2.Request, to: str = "the authorization server") -> httpx2.Response:
        """Send a request; `to` names the receiver in errors.

        Raises:
            AuthorizationRefused: `check_url` refuses the URL, or the answer or an issued credential is too long.
            Unreachable: no answer within `AUTH_TIMEOUT`, or the server cannot answer now.
        """
        self.check_url(request.url)
        await request.aread()  # the request that follows a redirect was not read yet
        self._learn_from(request)
        request.headers.setdefault("accept", "application/json")  # GitHub answers with a form otherwise
        where = self.mask(f"{to} {request.url.scheme}://{request.url.netloc.decode()}")
        try:
            with trio.fail_after(AUTH_TIMEOUT):
                response = await self._answer(request, to)
        except trio.TooSlowError:
            raise Unreachable(f"{where} did not answer within {AUTH_TIMEOUT:g} s") from None
        except httpx2.HTTPError as error:
            raise Unreachable(f"{where} cannot be reached ({type(error).__name__})") from None
        self.last = response
        if request.method == "POST":
            self._learn_issued(response)
        # The SDK reacts to a failed GET: other URLs may have the metadata.
        if request.method == "POST" and is_busy(response):
            raise Unreachable(f"{to} answered {said_by(response, self.mask)[1]}")
        return response

    def learn_credentials(self, tokens: OAuthToken, client: OAuthClientInformationFull | None) -> None:
        for token in (tokens.access_token, tokens.refresh_token):
            if token is not None:
                self.learn(token)
        if client is not None and client.client_secret is not None:
            self._learn_client(client.client_id or "", client.client_secret)
        if self.secret is not None:
            self._learn_client(self.oauth.client_id or "", self.secret)

    def _learn_client(self, client_id: str, secret: str) -> None:
        """Mask a client's secret, plain and as in a header (RFC 6749, 2.3.1)."""
        pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        for each in (secret, f"Basic {b64encode(pair.encode()).decode()}"):
            self.learn(each)

    def _learn_from(self, request: httpx2.Request) -> None:
        for name, value in parse_qsl(request.content.decode(errors="replace")):
            if name in _SECRET:
                self.learn(value)
        if sent := request.headers.get("authorization"):
            self.learn(sent)

    def _learn_issued(self, response: httpx2.Response) -> None:
        """Mask the credentials in an answer, before anything else is read; refuse any too long to be masked quickly."""
        content = members_in(response.content)
        for name in _ISSUED.intersection(content):
            if isinstance(content[name], str):
                if len(content[name]) > MAX_CREDENTIAL:
                    problem = f"the authorization server has issued a {name} of more than {MAX_CREDENTIAL} characters"
                    raise AuthorizationRefused("token_refused", f"{problem}; report that to its operator")
                self.learn(content[name])

    async def _answer(self, request: httpx2.Request, to: str) -> httpx2.Response:
        response = await self.client.send(request, auth=None, stream=True, follow_redirects=False)
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_BODY:
                    raise AuthorizationRefused("answer_too_long", f"an answer of {to} exceeds {MAX_BODY} bytes")
        finally:
            await response.aclose()
        # As bytes: httpx2 writes the headers of a new response in ASCII.
        kept = [(name, value) for name, value in response.headers.raw if name.lower() in _KEPT_HEADERS]
        status = response.status_code
        if request.method == "POST" and response.is_success and _is_error(body):
            status = HTTPStatus.BAD_REQUEST
        answer = httpx2.Response(status, headers=kept, content=_plain(bytes(body)), request=response.request)
        answer.next_request = response.next_request
        return answer

    def check_url(self, url: httpx2.URL) -> None:
        """Refuse a URL in metadata that nothing may be sent to.

        - Without https, secrets could be read.
        - A user in front of the host hides the host from people.
        - A server on the Internet must not lead into the network of this machine.

        The host of the configured issuer may be anywhere.
        """
        server = httpx2.URL(self.url).host
        trusted = self.oauth.issuer is not None and url.host == httpx2.URL(self.oauth.issuer).host
        here = is_loopback(url.host) and (trusted or is_loopback(server))
        shown = self.mask(str(url.copy_with(userinfo=b"", query=None, fragment=None)))
        named = f"the metadata name {plain_text(shown)}"
        if url.scheme != "https" and not (url.scheme == "http" and here):
            raise AuthorizationRefused("insecure_url", f"{named}, which is not https")
        if url.userinfo:
            problem = f"{named} with a user in front of the host"
            raise AuthorizationRefused("invalid_metadata", f"{problem}; do not sign in to this server")
        if is_not_public(url.host) and not trusted and not is_not_public(server):
            problem = f"{named}, an address that is not public, for a server that is"
            raise AuthorizationRefused(
                "private_address", f"{problem}; if the authorization server is there, set issuer to its URL"
            )

    def check_page(self, url: str) -> None:
        page = httpx2.URL(url)
        self.check_url(page)
        if page.fragment:  # the sign-in's parameters would be there, unseen by the server
            raise AuthorizationRefused(
                "invalid_metadata", "the metadata name an authorization endpoint with a fragment ('#')"
            )

    def scope_for(self, asked: str | None) -> str | None:
        return " ".join(self.oauth.scopes) or asked


def _is_error(body: bytearray) -> bool:
    """Recognize an error of OAuth: GitHub sends errors with status 200."""
    content = members_in(body)
    return "error" in content and "access_token" not in content


_CLIENT_TEXTS: Final = frozenset({"client_id", "client_secret"})
_WHOLE: Final = frozenset({"client_id_issued_at", "client_secret_expires_at", "expires_in"})
_LIST_FIELDS: Final = frozenset(
    {
        *("authorization_servers", "grant_types", "grant_types_supported", "redirect_uris", "response_types"),
        *("response_types_supported", "scopes_supported", "token_endpoint_auth_methods_supported"),
    }
)
_OPTIONAL: Final = ("_at", "_documentation", "_endpoint", "_in", "_uri")
"""Ends of the names of members that may be absent, but not empty."""


def _plain(body: bytes) -> bytes:
    """Return an answer in the form of the specifications, if a deviation has only one meaning."""
    body = body.removeprefix(codecs.BOM_UTF8)
    content = members_in(body)
    meant = {name: _meant(name, value) for name, value in content.items() if value or not name.endswith(_OPTIONAL)}
    return body if meant == content else to_json(meant)


def _meant(name: str, value: object) -> object:
    if name in _WHOLE and isinstance(value, (str, float)):
        with suppress(ValueError, OverflowError):
            return int(float(value))
    if name in _CLIENT_TEXTS and isinstance(value, int):
        return str(value)
    if name in _LIST_FIELDS and isinstance(value, str):
        return value.split()
    if name == "scope" and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return value


# --- Challenges (``WWW-Authenticate``) --------------------------------------------------------------------------------

# The SDK looks for ``scope=`` and other fields anywhere in the header: the value of one field could pass for another
# field. So the SDK gets a new header, with the three fields that it uses.


HEADER: Final = "www-authenticate"

_CHALLENGE_PART: Final = re.compile(
    r"""(?P<before>[\s,]*+)(?:
        (?P<name>[!#$%&'*+.^`|~\w-]++)(?:\s*+=\s*+(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<bare>[^\s,"]*+)))?
        |[^,]*+)""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
"""A scheme, or a parameter with its value (RFC 9110, 11.6.1); or other text up to a comma. In linear time."""

_CHALLENGE_FIELDS: Final = ("error", "resource_metadata", "scope")
_LIKE_A_FIELD: Final = re.compile(rf"({'|'.join(_CHALLENGE_FIELDS)})=")
_NOT_IN_RESOURCE: Final = re.compile(r'[\x00-\x20"\\\x7f]')
_APOSTROPHES: Final = re.compile(r"'(.*)'", re.DOTALL)
_MORE_SCOPES: Final = "insufficient_scope"


@frozen(kw_only=True)
class BearerChallenge:
    """The fields of a challenge that a sign-in uses.

    Attributes:
        scope: the valid scopes that the server asks for.
    """

    scope: str | None = None
    resource_metadata: str | None = None
    error: str | None = None

    @property
    def wants_more_scopes(self) -> bool:
        """True if a token is good, but not for this request."""
        return self.error == _MORE_SCOPES

    def refusal(self, request: httpx2.Request, scope: str | None) -> httpx2.Response:
        """Return a refusal for the SDK, with the scopes to ask for."""
        fields = {"scope": scope, "error": _MORE_SCOPES if self.wants_more_scopes else None}
        fields["resource_metadata"] = self._inert_url()
        header = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value is not None)
        headers = httpx2.Headers({HEADER: f"Bearer {header}"}, encoding="utf-8")
        status = HTTPStatus.FORBIDDEN if self.wants_more_scopes else HTTPStatus.UNAUTHORIZED
        return httpx2.Response(status, headers=headers, content=b"", request=request)

    def _inert_url(self) -> str | None:
        """Return the URL of the metadata without text that looks like a field: ``%73cope=`` means ``scope=``."""
        url = self.resource_metadata
        if url is not None and _NOT_IN_RESOURCE.search(url):
            raise AuthorizationRefused(
                "invalid_metadata", "the challenge of the server names metadata without a valid URL"
            )
        return url and _LIKE_A_FIELD.sub(lambda found: f"%{ord(found[0][0]):X}{found[0][1:]}", url)


def read_challenge(header: str | None) -> BearerChallenge:
    """Return the challenge with a field for a sign-in, preferably of ``Bearer``."""
    used = [each for each in _challenges(header or "") if not each[1].keys().isdisjoint(_CHALLENGE_FIELDS)]
    found = min(used, key=lambda each: each[0] != "bearer", default=("", {}))[1]
    scopes = filter(SCOPE.fullmatch, found.get("scope", "").split())
    return BearerChallenge(
        scope=" ".join(scopes) or None,
        resource_metadata=found.get("resource_metadata") or None,
        error=found.get("error") or None,
    )


def challenge_of(response: httpx2.Response) -> BearerChallenge:
    return read_challenge(response.headers.get(HEADER))


def _challenges(header: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each scheme with its parameters, the first of each name."""
    scheme, parameters = "", dict[str, str]()
    for part in _CHALLENGE_PART.finditer(header):
        name, quoted, bare = part["name"], part["quoted"], part["bare"]
        if quoted is not None or bare is not None:
            value = _APOSTROPHES.sub(r"\1", bare) if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(name.lower(), value)
        elif name is not None and (part.start() == 0 or "," in part["before"]):
            yield scheme, parameters
            scheme, parameters = name.lower(), {}
    yield scheme, parameters


# --- Callbacks --------------------------------------------------------------------------------------------------------


async def call_back(fn: Callable[..., Any], name: str, *args: str, or_none: bool = False) -> Any:
    """Call a function of the user, async or not; return the text, or None with ``or_none``."""
    text = await answer_of(fn(*args))
    if not isinstance(text, str) and not (or_none and text is None):
        remedy = "return a str, or None to wait for the redirect" if or_none else "return a str"
        raise AuthorizationRefused("invalid_callback", f"{name} returned {type(text).__name__}; {remedy}")
    return text
