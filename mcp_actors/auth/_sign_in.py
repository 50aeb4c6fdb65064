"""Sign in and out: get tokens, and store, find or revoke them.

A person takes minutes, may paste anything, or may leave. So an unusable token store is found before the sign-in page is
shown, and each wait has a limit.

Owns: the receiver of the redirect; the task of the receiver.
Writes: the token store; the list of masked credentials; requests to servers.
Calls: _exchange, _flow, _receiver, _stores, _tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import trio
from attrs import define, field
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult

from .._collapse import collapse
from .._errors import ConfigError
from .._text import plain_text
from ._exchange import (
    AUTH_TIMEOUT,
    HEADER,
    AuthorizationClient,
    AuthorizationRefused,
    BearerChallenge,
    SignInFailed,
    Unreachable,
    call_back,
    read_challenge,
    remedy_for,
    with_explanation,
)
from ._flow import Person, revocation, run_person, run_unattended
from ._receiver import SIGN_IN_AGAIN, Receiver, open_receiver, parameters_of, split
from ._stores import LONGEST_WAIT, STORE_TIMEOUT, SignedIn, key_of, of_store, patiently
from ._tokens import store_of

if TYPE_CHECKING:
    from ..config import OAuth, SignInCallback, TokenStore

PING_BODY: Final = json.dumps({"jsonrpc": "2.0", "id": "mcp_actors:sign-in", "method": "ping"}).encode()

_PING_HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

CHALLENGE_TIMEOUT: Final = 10.0
"""Seconds for the answer to the ``ping``. Without an answer, the sign-in tries the well-known URLs of metadata."""


async def sign_in(
    server: str, exchange: AuthorizationClient, show: SignInCallback, *, challenge: str | None = None
) -> SignedIn:
    """Let a person sign in, or get tokens without a person if `OAuth` says so; store the tokens.

    `challenge` is the header of the answer that requires the sign-in; None asks the server.

    **Cancellation**: ends the sign-in at once; nothing is stored, unless the write has begun.

    Raises:
        SignInFailed: the person or the authorization server has refused, or a wait timed out.
        ConfigError: the store cannot be used.
    """
    oauth = exchange.oauth
    store, key = store_of(oauth), key_of(exchange.url, oauth)
    old = await _load(store, key, exchange)
    if isinstance(old, ConfigError):
        raise old
    try:
        named = await _challenge(exchange, challenge)
        if oauth.unattended:
            with trio.fail_after(AUTH_TIMEOUT):
                new = await run_unattended(exchange, named, old)
        else:
            with trio.fail_after(oauth.sign_in_timeout):
                new = await _with_person(exchange, show, named, old)
        stored = await _store(store, key, new)
    except trio.TooSlowError:
        failure: Exception = _too_slow(server, oauth)
    except AuthorizationRefused as error:
        failure = SignInFailed.because(server, error.reason, str(error))
    except Unreachable as error:
        failure = SignInFailed.because(server, "unreachable", f"{error}; sign in again later")
    else:
        if stored is None:
            return new
        failure = stored
    raise failure


async def _load(store: TokenStore, key: str, exchange: AuthorizationClient) -> SignedIn | ConfigError | None:
    """Return the stored sign-in, or a failure if the store cannot be used.

    The failure has no traceback, whose frames would show tokens.
    """
    try:
        with patiently(LONGEST_WAIT + STORE_TIMEOUT):
            async with store.lock(key):
                text = await store.load(key)
                await store.save(key, text or " " * 1000)  # blanks count as no sign-in
                kept = await store.load(key)
                if not text:
                    await store.delete(key)
    except ConfigError as error:
        return error.with_traceback(None)
    if kept is None:
        problem = f"a {type(store).__name__} does not keep what is saved in it"
        remedy = "choose another backend if it is a keyring, or use a FileTokenStore"
        return of_store(f"{problem}; {remedy}")
    old = SignedIn.from_text(text, exchange.url, key)
    if old is not None:
        exchange.learn_credentials(old.tokens, old.client)  # the authorization server may quote them
    return old


def _too_slow(server: str, oauth: OAuth) -> SignInFailed:
    if oauth.unattended:
        why = f"there are no tokens within {AUTH_TIMEOUT:g} s; sign in again later"
        return SignInFailed.because(server, "unreachable", why)
    why = f"timed out after {oauth.sign_in_timeout:g} s (sign_in_timeout); sign in again, or raise sign_in_timeout"
    return SignInFailed.because(server, "timed_out", why)


async def _store(store: TokenStore, key: str, new: SignedIn) -> ConfigError | None:
    try:
        with patiently(LONGEST_WAIT + STORE_TIMEOUT):
            async with store.lock(key):
                await store.save(key, new.to_text(key))
    except ConfigError as error:
        return error.with_traceback(None)
    return None


async def _challenge(exchange: AuthorizationClient, header: str | None) -> BearerChallenge:
    if header is None:
        request = httpx2.Request("POST", exchange.url, headers=_PING_HEADERS, content=PING_BODY)
        with trio.move_on_after(CHALLENGE_TIMEOUT):
            header = (await exchange.send(request, "the MCP server")).headers.get(HEADER)
    return read_challenge(header)


async def _with_person(
    exchange: AuthorizationClient, show: SignInCallback, challenge: BearerChallenge, old: SignedIn | None
) -> SignedIn:
    failure: BaseException
    try:
        async with AsyncExitStack() as stack:
            redirect, receiver = exchange.oauth.redirect, None
            if urlsplit(redirect).scheme == "http":  # to this machine only; the receiver has no TLS
                receiver = await stack.enter_async_context(open_receiver(redirect))
                redirect = receiver.url
            visit = _Visit(show, receiver, exchange)
            person = Person(redirect, visit.begin, visit.answer)
            return await run_person(exchange, challenge, person, old)
    except BaseExceptionGroup as group:
        failure = collapse(group)
        if isinstance(failure, _CallbackRaised):
            [failure] = failure.args
    raise failure


class _CallbackRaised(Exception):
    """Carries an exception of the user's function out of the SDK, past the SDK's own handlers.

    The frames on the way hold the verifier of the code.
    """


@define(eq=False, repr=False)
class _Visit:
    show: SignInCallback
    receiver: Receiver | None
    exchange: AuthorizationClient
    _url: str = field(default="", init=False)
    _state: str = field(default="", init=False)
    _found: Mapping[str, str] | None = field(default=None, init=False)

    async def begin(self, url: str) -> None:
        self._url, self._state = url, parse_qs(urlsplit(url).query)["state"][0]
        if self.receiver is not None:
            self.receiver.state = self._state
        await trio.lowlevel.checkpoint()

    async def answer(self, provider: OAuthClientProvider, issuer: str | None) -> AuthorizationCodeResult:
        """Show the page, and return the code, from the redirect or pasted by the person."""
        async with trio.open_nursery() as nursery:
            if self.receiver is not None:
                nursery.start_soon(self._receive, self.receiver, nursery.cancel_scope, name="redirect")
            await self._show(nursery.cancel_scope)
        found = self._found
        if found is None:
            problem = "the sign-in callback returned no code, and the redirect is not to this machine"
            raise AuthorizationRefused("no_code", f"{problem}; return the code, or the URL that the browser ends at")
        if "error" in found:
            self._refuse(found)
        metadata, iss = provider.context.oauth_metadata, found.get("iss")
        # To the letter: RFC 9207 has no exception for a slash.
        promised = metadata is not None and metadata.authorization_response_iss_parameter_supported
        if promised if iss is None else (metadata is None or iss != issuer):
            problem = f"the redirect is not from the authorization server that was asked; {SIGN_IN_AGAIN}"
            raise AuthorizationRefused("issuer_mismatch", problem)
        same = str(metadata.issuer) if iss is not None and metadata is not None else None  # as the SDK compares it
        return AuthorizationCodeResult(code=found.get("code", ""), state=self._state, iss=same)

    def _refuse(self, found: Mapping[str, str]) -> None:
        reason = plain_text(self.exchange.mask(found["error"]), limit=60)
        said = with_explanation(reason, self.exchange.mask(found.get("error_description", "")))
        remedy = remedy_for(said, self.exchange.oauth) or "; sign in again, or ask its operator"
        raise AuthorizationRefused(reason, f"the authorization server answered {said}{remedy}")

    async def _receive(self, receiver: Receiver, scope: trio.CancelScope) -> None:
        self._found = await receiver.wait()
        scope.cancel("the redirect has come")

    async def _show(self, scope: trio.CancelScope) -> None:
        try:
            pasted = await call_back(self.show, "the sign-in callback", self._url, or_none=True)
        except AuthorizationRefused:
            raise
        except Exception as error:
            ours = error.__traceback__
            raise _CallbackRaised(error.with_traceback(ours and ours.tb_next and ours.tb_next.tb_next)) from None
        if pasted is not None:
            self._found = self._read(pasted.strip())
            scope.cancel("the person has pasted the code")

    def _read(self, pasted: str) -> Mapping[str, str]:
        query = split(pasted).query if "://" in pasted else pasted.lstrip("?")
        if "://" not in pasted and {"code", "error", "state"}.isdisjoint(parse_qs(query, keep_blank_values=True)):
            return {"code": pasted}
        return parameters_of(query, self._state)


async def signed_in(exchange: AuthorizationClient) -> SignedIn | None:
    key = key_of(exchange.url, exchange.oauth)
    with patiently():
        text = await store_of(exchange.oauth).load(key)
    return SignedIn.from_text(text, exchange.url, key)


async def sign_out(exchange: AuthorizationClient) -> bool:
    """Forget the tokens, then revoke them if the authorization server can. Return False if there were no tokens.

    A failed revocation is ignored: the tokens expire there.
    """
    oauth = exchange.oauth
    store, key = store_of(oauth), key_of(exchange.url, oauth)
    with patiently(LONGEST_WAIT + STORE_TIMEOUT):
        async with store.lock(key):
            old = SignedIn.from_text(await store.load(key), exchange.url, key)
            await store.delete(key)
    if old is None:
        return False
    if (request := revocation(exchange, old)) is not None:
        with trio.move_on_after(AUTH_TIMEOUT):
            with suppress(AuthorizationRefused, Unreachable):
                await exchange.send(request)
    return True
