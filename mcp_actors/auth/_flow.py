"""Run the SDK's OAuth flows outside of requests.

In the HTTP client of a connection, a provider of the SDK would make requests wait for each other, and might open a
browser during a call. So each sign-in or refresh has a new provider, and an `AuthorizationClient` sends the provider's
requests.

Owns: the SDK's providers.
Writes: OAuth requests; the list of credentials to mask; the SDK's log filters; Python's warning filters.
Calls: _exchange, _stores.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote_plus

import httpx2
from attrs import define, evolve, field
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.types import LATEST_PROTOCOL_VERSION
from pydantic_core import ValidationError, to_json

from .._text import plain_text
from ._exchange import (
    AuthorizationClient,
    AuthorizationRefused,
    BearerChallenge,
    SignInNeeded,
    Unreachable,
    call_back,
    is_busy,
    members_in,
    problem_of,
    remedy_for,
    said_by,
)
from ._stores import SignedIn

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..config import OAuth

WITHOUT_RESOURCE: Final = frozenset({"invalid_request", "invalid_target"})
"""Errors of a server that may not know the parameter ``resource``."""

UNUSABLE_ANSWERS: Final = (ValidationError, httpx2.InvalidURL, UnicodeError, OverflowError)
"""Errors of the SDK and httpx2 about an answer outside the protocol, or an unusable value in it."""


@define(eq=False, repr=False)
class _Memory:
    client: OAuthClientInformationFull | None = None
    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


# --- Three ways to tokens -------------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class Person:
    """The part of a sign-in that a person does.

    Attributes:
        answer: waits for the code, given the provider and the issuer in its metadata.
    """

    redirect: str
    show: Callable[[str], Awaitable[None]]
    answer: Callable[[OAuthClientProvider, str | None], Awaitable[AuthorizationCodeResult]]


async def run_person(
    exchange: AuthorizationClient, challenge: BearerChallenge, person: Person, old: SignedIn | None
) -> SignedIn:
    """Let a person sign in. If the server wants more scopes, ask again for the scopes of `old` too.

    Raises:
        AuthorizationRefused, Unreachable: there are no tokens.
    """
    memory = _Memory(_registered(exchange, person.redirect))
    guard = _Guard(exchange, challenge, old)
    granted = old.tokens.scope if old is not None and challenge.wants_more_scopes else None

    async def show(url: str) -> None:
        guard.check(provider.context)
        url = _page(provider, url)
        exchange.check_page(url)
        _check_pkce(exchange, provider)
        client = provider.context.client_info
        if exchange.secret is not None and client is not None and _wants_post(provider):
            client.token_endpoint_auth_method = "client_secret_post"
        await person.show(url)

    async def answer() -> AuthorizationCodeResult:
        return await person.answer(provider, guard.issuer)

    provider = OAuthClientProvider(
        exchange.url,
        _metadata(person.redirect, exchange.scope_for(granted)),
        memory,
        redirect_handler=show,
        callback_handler=answer,
        client_metadata_url=exchange.oauth.client_metadata_url,
    )
    guard.adapt(provider)
    await _run(exchange, provider, guard)
    return _signed_in(exchange, memory, provider, challenge.resource_metadata)


def _name_resource(oauth: OAuth, provider: OAuthClientProvider) -> None:
    """Leave out the parameter ``resource`` unless ``send_resource`` is set."""
    if not oauth.send_resource:
        provider.context.should_include_resource_param = lambda protocol_version=None: False  # type: ignore[method-assign]  # the SDK has no option


def _page(provider: OAuthClientProvider, url: str) -> str:
    """Return the URL of the page with the query of the authorization endpoint, if any (RFC 6749, 3.1).

    The SDK appends a second query. Parameters of the sign-in are dropped from the first: the server could read either
    value.
    """
    metadata = provider.context.oauth_metadata
    endpoint, mark, query = str(metadata.authorization_endpoint).partition("?") if metadata else ("", "", "")
    if not mark:
        return url
    ours = url.removeprefix(f"{endpoint}?{query}?")
    names = {each.partition("=")[0] for each in ours.split("&")}
    kept = [each for each in query.split("&") if each and unquote_plus(each.partition("=")[0]) not in names]
    return f"{endpoint}?{'&'.join([*kept, ours])}"


def _registered(exchange: AuthorizationClient, redirect: str) -> OAuthClientInformationFull | None:
    """Return the client that the user has registered, if any."""
    oauth = exchange.oauth
    if oauth.client_id is None:
        return None
    return OAuthClientInformationFull.model_validate(
        {
            "client_id": oauth.client_id,
            "client_secret": exchange.secret,
            "redirect_uris": [redirect],
            "token_endpoint_auth_method": "none" if exchange.secret is None else "client_secret_basic",
            "issuer": oauth.issuer,
        }
    )


def _metadata(redirect: str | None, scope: str | None) -> OAuthClientMetadata:
    described = {"client_name": "mcp-actors", "redirect_uris": redirect and [redirect], "scope": scope}
    return OAuthClientMetadata.model_validate(described)


def _check_pkce(exchange: AuthorizationClient, provider: OAuthClientProvider) -> None:
    """Refuse an authorization server with metadata that do not announce PKCE.

    MCP requires the announcement in metadata. A server without metadata follows the revision of 2025-03-26, which has
    no announcement.
    """
    metadata = provider.context.oauth_metadata
    if metadata is None or "S256" in (methods := metadata.code_challenge_methods_supported or ()):
        return
    if methods:
        offered = plain_text(exchange.mask(", ".join(methods)), limit=60)
        problem = f"the authorization server offers PKCE by {offered} only, which protects no code"
        raise AuthorizationRefused("pkce_unsupported", f"{problem}; ask its operator to enable S256")
    if not exchange.oauth.assume_pkce:
        problem = "the metadata of the authorization server do not announce PKCE (code_challenge_methods_supported)"
        remedy = "if it is known to verify S256, as Microsoft Entra ID and Amazon Cognito do, set assume_pkce=True"
        raise AuthorizationRefused("pkce_unsupported", f"{problem}; {remedy}")


async def run_unattended(exchange: AuthorizationClient, challenge: BearerChallenge, old: SignedIn | None) -> SignedIn:
    """Get tokens without a person; the errors are those of `run_person`."""
    memory = _Memory()
    guard = _Guard(exchange, challenge, old)
    provider = _unattended(exchange, memory, "client_secret_basic", guard)
    try:
        await _run(exchange, provider, guard)
    except AuthorizationRefused:
        # Try the other method: not every authorization server names its method in the metadata.
        if exchange.secret is None or exchange.last is None or said_by(exchange.last, str)[0] != "invalid_client":
            raise
        provider = _unattended(exchange, memory, "client_secret_post", guard)
        await _run(exchange, provider, guard)
    return _signed_in(exchange, memory, provider, challenge.resource_metadata)


def _unattended(exchange: AuthorizationClient, memory: _Memory, method: str, guard: _Guard) -> Any:
    from mcp.client.auth.extensions import client_credentials as client, identity_assertion as identity  # import PyJWT

    oauth = exchange.oauth

    provider: Any

    async def assertion(*args: str) -> str:
        assert oauth.assertion is not None
        if oauth.grant != "identity_assertion":
            guard.check(provider.context)  # before anything is signed for the authorization server
        signed: str = await call_back(oauth.assertion, "assertion", *args)
        return signed

    # The configured issuer is checked by the guard, whose errors say more; for identity assertions, by the SDK too.
    named: dict[str, Any] = {"client_id": oauth.client_id, "scope": exchange.scope_for(None)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK warns about a missing issuer, which is the user's choice
        if oauth.grant == "identity_assertion":
            assert exchange.secret is not None
            named |= {"client_secret": exchange.secret, "token_endpoint_auth_method": method, "issuer": oauth.issuer}
            return identity.IdentityAssertionOAuthProvider(exchange.url, memory, assertion_provider=assertion, **named)
        if oauth.assertion is not None:
            provider = client.PrivateKeyJWTOAuthProvider(exchange.url, memory, assertion_provider=assertion, **named)
        else:
            assert exchange.secret is not None
            named |= {"client_secret": exchange.secret, "token_endpoint_auth_method": method}
            provider = client.ClientCredentialsOAuthProvider(exchange.url, memory, **named)
    guard.adapt(provider)
    return provider


async def refresh(exchange: AuthorizationClient, old: SignedIn) -> SignedIn:
    """Exchange a refresh token for new tokens.

    Raises:
        SignInNeeded: the refresh token was refused, or the answer has no usable token.
        Unreachable: no answer now, so the refresh token may still be good.
    """
    if old.metadata is None and old.protected is not None:
        raise SignInNeeded("the authorization server that issued the token is not known")
    memory = _Memory(_with_secret(old.client, exchange), old.tokens)
    provider = OAuthClientProvider(exchange.url, _metadata(None, None), memory)
    _name_resource(exchange.oauth, provider)
    context = provider.context
    context.token_expiry_time = 1.0  # in 1970: the SDK would take a stored token for a new one
    context.oauth_metadata, context.protected_resource_metadata = old.metadata, old.protected
    flow = provider.async_auth_flow(_request(exchange.url))
    async with _quietly(flow):
        outgoing = await anext(flow)
        response = await exchange.send(outgoing)
        if said_by(response, str)[0] in WITHOUT_RESOURCE and (other := _without_resource(outgoing)) is not None:
            response = await exchange.send(other)
        _check_refreshed(response, exchange)
        try:
            await flow.asend(response)
        except UNUSABLE_ANSWERS:
            raise SignInNeeded("the new token of the authorization server cannot be used") from None
    if memory.tokens is None or memory.tokens is old.tokens:
        problem = f"has answered a refresh without a valid token{problem_of(OAuthToken, response)}"
        raise SignInNeeded(f"the authorization server {problem}")
    if not memory.tokens.refresh_token:
        memory.tokens.refresh_token = old.tokens.refresh_token  # an empty token replaces nothing
    try:
        return evolve(_signed_in(exchange, memory, provider, old.challenge), asked=old.asked)
    except AuthorizationRefused as error:
        raise SignInNeeded(str(error)) from None


def _without_resource(request: httpx2.Request) -> httpx2.Request | None:
    """Return a request for tokens without the parameter ``resource``, or None."""
    form = parse_qs(request.content.decode())
    if form.pop("resource", None) is None:
        return None
    kept = {name: value for name, value in request.headers.items() if name != "content-length"}
    return httpx2.Request("POST", request.url, data=form, headers=kept)


def _check_refreshed(response: httpx2.Response, exchange: AuthorizationClient) -> None:
    """Raise an error for an answer without a token: `SignInNeeded`, unless the server may answer later."""
    if response.is_success:
        return
    code, said = said_by(response, exchange.mask)
    if code in ("server_error", "slow_down", "temporarily_unavailable") or response.is_redirect:
        raise Unreachable(f"the authorization server answered {said} to a refresh")
    problem = f"the authorization server has refused the refresh token: {said}{remedy_for(said, exchange.oauth)}"
    # The first of these errors is GitHub's.
    raise SignInNeeded(problem, dead=code in ("bad_refresh_token", "invalid_grant", "invalid_refresh_token"))


def revocation(exchange: AuthorizationClient, old: SignedIn) -> httpx2.Request | None:
    """Return the request that revokes tokens, or None without an endpoint for it."""
    endpoint = None if old.metadata is None else old.metadata.revocation_endpoint
    if endpoint is None:
        return None
    context = OAuthClientProvider(exchange.url, _metadata(None, None), _Memory()).context
    context.client_info = _with_secret(old.client, exchange)
    form = {"token": old.tokens.refresh_token or old.tokens.access_token, "client_id": old.client.client_id}
    form, headers = context.prepare_token_auth(form, {})
    return httpx2.Request("POST", str(endpoint), data=form, headers=headers)


def _with_secret(client: OAuthClientInformationFull, exchange: AuthorizationClient) -> OAuthClientInformationFull:
    return client.model_copy(update={} if exchange.secret is None else {"client_secret": exchange.secret})


# --- Check what was discovered ---------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class _Guard:
    """Checks the authorization server of a run before anything but requests for metadata is sent.

    Attributes:
        issuer: the issuer in the latest metadata, to the letter.
    """

    exchange: AuthorizationClient
    challenge: BearerChallenge
    old: SignedIn | None
    issuer: str | None = field(default=None, init=False)
    _names_server: bool = field(default=False, init=False)
    _read: tuple[type[BaseModel], httpx2.Response] | None = field(default=None, init=False)

    def adapt(self, provider: OAuthClientProvider) -> None:
        """Set what the SDK has no option for."""
        _name_resource(self.exchange.oauth, provider)
        provider._select_authorization_server = self._select  # type: ignore[method-assign]  # subclasses in the SDK replace it

    def note(self, response: httpx2.Response, expected: str | None) -> httpx2.Response:
        """Note the metadata in an answer, valid or not; return the answer for the SDK.

        `expected` is the issuer that was asked for its metadata, or None.
        """
        body = members_in(response.content)
        if not response.is_success or response.request.method != "GET":
            return response
        if "authorization_servers" in body:
            self._names_server, self._read = True, (ProtectedResourceMetadata, response)
        elif isinstance(found := body.get("issuer"), str):
            self._read, self.issuer = (OAuthMetadata, response), found
            if expected is not None and found != expected:
                self._check_same(found, expected)
                content = to_json({**body, "issuer": expected})  # the SDK compares to the letter
                return httpx2.Response(response.status_code, content=content, request=response.request)
        return response

    def _check_same(self, found: str, expected: str) -> None:
        if not issuers_match(found, expected):
            problem = f"the metadata of the authorization server {self._shown(expected)} name {self._shown(found)}"
            raise AuthorizationRefused(
                "issuer_mismatch", f"{problem}; {self._remedy}, or do not sign in to this server"
            )

    def check(self, context: OAuthContext) -> None:
        metadata, last = context.oauth_metadata, self.exchange.last
        if metadata is None and last is not None and is_busy(last):
            raise Unreachable(f"the authorization server answered {said_by(last, self.exchange.mask)[1]}")
        if context.protected_resource_metadata is None:
            if self._names_server or self.challenge.resource_metadata is not None:
                problem = "the server says that it has metadata for a sign-in, and they are missing or not valid"
                raise AuthorizationRefused("invalid_metadata", f"{problem}{self._problem}; report that to its operator")
        elif metadata is None:
            problem = f"the authorization server {self._shown(context.auth_server_url)} has no valid metadata"
            raise AuthorizationRefused(
                "invalid_metadata", f"{problem}{self._problem}, so nothing is sent to it; {self._remedy}"
            )
        self._check_endpoints(metadata)
        self._check_issuer(metadata)

    def _select(self, advertised: list[str]) -> str:
        if self.exchange.oauth.issuer is not None:
            return self.exchange.oauth.issuer
        known = self._issuer_of_secret
        return next((each for each in advertised if known and issuers_match(each, known)), advertised[0])

    def _check_endpoints(self, metadata: OAuthMetadata | None) -> None:
        """Check every URL before the first is used: no person should agree to a sign-in that then fails."""
        names = ("issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")
        for name in names:
            if (url := getattr(metadata, name, None)) is not None:
                self.exchange.check_url(httpx2.URL(str(url)))

    @property
    def _problem(self) -> str:
        """The problem of the latest metadata, as the end of an error."""
        return "" if self._read is None else problem_of(*self._read)

    @property
    def _remedy(self) -> str:
        return "correct issuer" if self.exchange.oauth.issuer else "report that to its operator"

    @property
    def _issuer_of_secret(self) -> str | None:
        """The issuer that the configured secret was used with; None if the secret may go to any issuer."""
        if self.exchange.secret is None or self.old is None:
            return None
        return self.old.issuer or _origin(self.old.resource)

    def _check_issuer(self, metadata: OAuthMetadata | None) -> None:
        """Refuse an authorization server other than the configured issuer, or else the secret's issuer."""
        configured = self.exchange.oauth.issuer
        found = None if metadata is None else str(metadata.issuer)
        if configured is not None:
            if found is None or not issuers_match(found, configured):
                problem = f"the server names {self._shown(found)}, and the issuer {configured} is configured"
                raise AuthorizationRefused(
                    "issuer_mismatch", f"{problem}; correct that, or do not sign in to this server"
                )
            return
        known = self._issuer_of_secret
        if known is not None and not issuers_match(found or _origin(self.exchange.url), known):
            problem = f"the server names {self._shown(found)}"
            used = f"the client_secret has been used with {self._shown(known)}, so it is not sent"
            remedy = "if the change is right, run 'mcp-actors logout' for this server, and sign in again"
            raise AuthorizationRefused("issuer_changed", f"{problem}, and {used}; {remedy}")

    def _shown(self, issuer: str | None) -> str:
        return "no issuer" if issuer is None else plain_text(self.exchange.mask(issuer), limit=200)


def _origin(url: str) -> str:
    return str(httpx2.URL(url).copy_with(raw_path=b"/", fragment=None))


# --- Run a provider -------------------------------------------------------------------------------------------------


_running: Final[ContextVar[bool]] = ContextVar("running", default=False)


class _Silence(logging.Filter):
    """Drops the SDK's records about these flows: whole answers, perhaps with tokens."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _running.get()


_SILENCE: Final = _Silence()


@asynccontextmanager
async def _quietly(flow: AsyncGenerator[httpx2.Request, httpx2.Response]) -> AsyncIterator[None]:
    logging.getLogger(OAuthClientProvider.__module__).addFilter(_SILENCE)  # adding it twice does nothing
    token = _running.set(True)
    try:
        async with aclosing(flow):
            yield
    finally:
        _running.reset(token)


async def _run(exchange: AuthorizationClient, provider: httpx2.Auth, guard: _Guard) -> None:
    """Run a provider's flow from the refusal of a request to the tokens."""
    request = _request(exchange.url)
    refusal = guard.challenge.refusal(request, exchange.scope_for(guard.challenge.scope))
    context = getattr(provider, "context", None)  # the provider of identity assertions has none
    flow = provider.async_auth_flow(request)
    try:
        async with _quietly(flow):
            outgoing = await anext(flow)
            if outgoing is request:
                outgoing = await flow.asend(refusal)
            while outgoing is not request:
                if context is not None and outgoing.method == "POST":
                    guard.check(context)
                response = await exchange.send(outgoing)
                expected = exchange.oauth.issuer if context is None else context.auth_server_url
                outgoing = await flow.asend(guard.note(response, expected))
    except (OAuthFlowError, *UNUSABLE_ANSWERS) as error:
        raise _refused(exchange, error, context) from None


def _request(url: str) -> httpx2.Request:
    return httpx2.Request("POST", url, headers={MCP_PROTOCOL_VERSION_HEADER: LATEST_PROTOCOL_VERSION})


def _refused(exchange: AuthorizationClient, error: Exception, context: Any) -> Exception:
    """Return the failure for an error of the SDK, whose text quotes whole answers and is not shown."""
    last = exchange.last
    said = "" if last is None or last.is_success else said_by(last, exchange.mask)[1]
    if last is not None and is_busy(last):
        return Unreachable(f"the authorization server answered {said}")
    if isinstance(error, OAuthRegistrationError):
        remedy = "register a client with it, and set client_id"
        if context is not None and context.oauth_metadata is None and context.protected_resource_metadata is None:
            # The SDK then takes the host of the URL for an authorization server, whatever answers there.
            problem = "the host of the URL publishes no OAuth metadata, and registers no client"
            remedy = "if the server takes a key or a token, give it in headers; if it lets everybody in, do not sign in"
            remedy += "; else check its URL, or register a client there, and set client_id"
            return AuthorizationRefused("registration_refused", f"{problem}: {said or 'invalid answer'}; {remedy}")
        said = said or f"invalid answer{'' if last is None else problem_of(OAuthClientInformationFull, last)}"
        problem = f"the authorization server does not register this client: {said}"
        return AuthorizationRefused("registration_refused", f"{problem}; {remedy}")
    if isinstance(error, OAuthTokenError):
        remedy = "sign in again, or ask its operator" if said else "report that to its operator"
        said = said or f"invalid answer{'' if last is None else problem_of(OAuthToken, last)}"
        remedy = remedy_for(said, exchange.oauth) or f"; {remedy}"
        return AuthorizationRefused("token_refused", f"the authorization server issues no token: {said}{remedy}")
    if isinstance(error, UNUSABLE_ANSWERS):
        return AuthorizationRefused(
            "invalid_metadata", "the metadata or the answer of the authorization server are not valid"
        )
    return AuthorizationRefused("protocol_error", plain_text(exchange.mask(str(error)), limit=300))


def _signed_in(exchange: AuthorizationClient, memory: _Memory, provider: Any, challenge: str | None) -> SignedIn:
    context = getattr(provider, "context", None)  # the provider of identity assertions has none
    client = memory.client or (context and context.client_info)
    tokens = memory.tokens
    assert tokens is not None
    exchange.learn_credentials(tokens, client)
    if client is not None and exchange.secret is not None:
        client = client.model_copy(update={"client_secret": None})  # the secret is the user's, perhaps from a vault
    now = time.time()
    try:
        return SignedIn(
            resource=exchange.url,
            client=client or OAuthClientInformationFull(client_id=exchange.oauth.client_id or ""),
            tokens=tokens,
            # A token that had expired when issued could never be used, so such a number means nothing.
            expires_at=now + tokens.expires_in if tokens.expires_in is not None and tokens.expires_in > 0 else None,
            since=now,
            metadata=context and context.oauth_metadata,
            protected=context and context.protected_resource_metadata,
            challenge=challenge,
            asked=context and context.client_metadata.scope,
        )
    except (ValueError, OverflowError) as error:
        raise AuthorizationRefused(
            "token_refused", f"the answer of the authorization server cannot be used: {error}"
        ) from None


def _wants_post(provider: OAuthClientProvider) -> bool:
    metadata = provider.context.oauth_metadata
    methods = (metadata and metadata.token_endpoint_auth_methods_supported) or []
    return "client_secret_post" in methods and "client_secret_basic" not in methods
