"""The tokens of one connection: load, send, refresh and replace them.

`OAuthTokens` is the auth flow of a connection's HTTP client, and never asks a person to sign in. Many authorization
servers accept a refresh token once, and take a second use for a theft. So a single task of a single process refreshes
the token, and a cancelled caller does not end the refresh.

Owns: the connection's tokens; refresh tasks.
Writes: headers of requests; the list of credentials to mask; the token store; the log.
Calls: _exchange, _flow, _stores.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

import httpx2
import outcome
import trio
from attrs import define, field

from .._errors import ConfigError, ConnectFailed
from .._foreign import Log
from .._text import plain_text
from ._exchange import (
    AUTH_TIMEOUT,
    HEADER,
    AuthorizationClient,
    AuthorizationRefused,
    BearerChallenge,
    SignInNeeded,
    SignInRequired,
    Unreachable,
    challenge_of,
)
from ._flow import refresh, run_unattended
from ._stores import LONGEST_WAIT, STORE_TIMEOUT, FileTokenStore, SignedIn, StoreBusy, busy, key_of, patiently

if TYPE_CHECKING:
    from ..config import OAuth, TokenStore

logger = Log("mcp_actors.auth")

T = TypeVar("T")

REFRESH_GRACE: Final = 2.0
"""Seconds that the end of a connection or program waits for a refresh, because the answer has the only valid
refresh token."""

REFRESH_PAUSE: Final = 10.0
"""Seconds until the next attempt after a failed early refresh, or after a failed write of a new token."""


def store_of(oauth: OAuth) -> TokenStore:
    return oauth.store if oauth.store is not None else FileTokenStore()


@define(eq=False, repr=False)
class OAuthTokens(httpx2.Auth):
    """Sends a token with each request, and replaces a refused one.

    | answer of the MCP server | reaction |
    |---|---|
    | 401 | the request is sent once more, if another token can be got |
    | 401 without ``resource_metadata`` to a request without a token, if the sign-in is optional | none |
    | 403 for more scopes, if the grant needs no person | as for 401 |
    | 403 for more scopes, with an ``on_sign_in`` | `SignInRequired` |
    | any other 403, such as for scopes already asked for, or outside the configured ones | none |

    Raises:
        SignInRequired: a person has to sign in.
        ConnectFailed: no token, for another reason; the request was not sent, or was refused.
    """

    _server: str
    _exchange: AuthorizationClient
    _current: SignedIn | None = field(default=None, init=False)
    _loaded: bool = field(default=False, init=False)
    _stored: str | None = field(default=None, init=False)
    _unsaved: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)
    _not_before: float = field(default=0.0, init=False)
    _failed_last: AuthorizationRefused | Unreachable | None = field(default=None, init=False)
    _answered: trio.Event | None = field(default=None, init=False)
    _store: TokenStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._store = store_of(self._exchange.oauth)
        self._key = key_of(self._exchange.url, self._exchange.oauth)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        used = await self._translated(self._usable())
        _put(request, used)
        response = yield request
        if not self._refuses_token(response):
            return
        # Close the refusal unread: httpx2 would read all of it, however long. Close before the replacement: refused
        # requests may hold all connections of the client, and the request to the authorization server would time out.
        await response.stream.aclose()  # type: ignore[union-attr]  # an AsyncClient's are async
        response.stream = httpx2.ByteStream(b"")
        new = await self._translated(self._replace(used, response))
        _put(request, new)
        response = yield request
        if response.status_code == HTTPStatus.UNAUTHORIZED and not self._exchange.oauth.unattended:
            raise SignInRequired.because(self._server, "the server refuses a new token")

    async def finish(self) -> None:
        """Wait for the answer to a refresh, for `REFRESH_GRACE` seconds at most, before the client is closed."""
        if self._answered is not None:
            with trio.move_on_after(REFRESH_GRACE, shield=True):
                await self._answered.wait()

    def _refuses_token(self, response: httpx2.Response) -> bool:
        """Return True if another token may be accepted.

        A token with more scopes can be got only with ``on_sign_in``, or by a grant without a person.
        """
        if response.status_code == HTTPStatus.FORBIDDEN:
            oauth, challenge = self._exchange.oauth, challenge_of(response)
            others = oauth.scopes and not {*(challenge.scope or "").split()}.issubset(oauth.scopes)
            if not challenge.wants_more_scopes or others:  # no server widens the configured scopes
                return False
            scope = self._exchange.scope_for(challenge.scope)
            in_vain = scope is not None and self._current is not None and self._current.has_asked_for(scope)
            return not in_vain and (oauth.unattended or oauth.on_sign_in is not None)
        names_metadata = challenge_of(response).resource_metadata is not None
        if self._exchange.oauth.optional and self._current is None and not names_metadata:
            return False
        return response.status_code == HTTPStatus.UNAUTHORIZED

    async def _usable(self) -> SignedIn | None:
        """Return the sign-in to use; refresh a token about to expire.

        During the refresh, other requests use the old token. After a failure, which is logged, the next attempt waits
        `REFRESH_PAUSE` seconds, unless the token expires or is refused.
        """
        if not self._loaded:
            await self._load()
        # By Trio's clock: the wall clock, by which tokens expire, may be set back.
        may_try = not self._turn.locked() and trio.current_time() >= self._not_before
        if self._unsaved and may_try:
            await self._save_again()
        current, now = self._current, time.time()
        if current is None or not current.due(now):
            return current
        if current.expired(now):
            return await self._renew(current, None)
        if not may_try:
            return current
        try:
            return await self._renew(current, None)
        except (SignInNeeded, AuthorizationRefused, Unreachable, ConfigError) as error:
            logger.warning("server %r: its token is not refreshed yet: %s", self._server, error)
            self._not_before = trio.current_time() + REFRESH_PAUSE
            return current

    async def _load(self) -> None:
        with patiently():
            text = await self._store.load(self._key)
        if self._unsaved and text == self._stored:
            return  # the store still has what the current token has replaced
        found = SignedIn.from_text(text, self._exchange.url, self._key)
        if found is not None:
            self._exchange.learn_credentials(found.tokens, found.client)
        self._current, self._loaded, self._stored, self._unsaved = found, True, text, False

    async def _replace(self, used: SignedIn | None, refusal: httpx2.Response) -> SignedIn | None:
        # A server may quote the token that it refuses.
        challenge = self._exchange.mask(refusal.headers.get(HEADER, "")) or None
        if refusal.status_code == HTTPStatus.FORBIDDEN and not self._exchange.oauth.unattended:
            scope = challenge_of(refusal).scope
            named = f"the scope {plain_text(self._exchange.mask(scope), limit=200)!r}" if scope else "more scopes"
            raise SignInNeeded(f"the server requires {named}", challenge)
        try:
            return await self._renew(used, refusal)
        except SignInNeeded as error:
            error.challenge = challenge
            raise

    async def _renew(self, used: SignedIn | None, refusal: httpx2.Response | None) -> SignedIn | None:
        """Replace a token, unless another task or process has.

        The task takes the turn of its connection, then the lock of the store, and reads the store again: another
        process may have refreshed meanwhile.
        """
        return await _in_system_task(partial(self._renew_alone, used, refusal))

    async def _renew_alone(
        self, used: SignedIn | None, refusal: httpx2.Response | None, begin: Callable[[], None]
    ) -> SignedIn | None:
        failed = self._failed_last
        async with self._turn:
            # Compare tokens, not sign-ins: a failed refresh has loaded the same token into a new object, which would
            # pass for a new token.
            if _token_of(self._current) != _token_of(used):
                return self._current
            if self._failed_last is not None and self._failed_last is not failed:
                raise self._failed_last.again()  # while this task waited: many calls make one attempt
            if used is None and not self._exchange.oauth.unattended:
                await self._load()  # a person may have signed in elsewhere
                if self._current is None:
                    raise SignInNeeded("not signed in")
                return self._current
            async with self._store.lock(self._key):
                await self._load()
                found = self._current
                if found is not None and not found.due(time.time()) and _token_of(found) != _token_of(used):
                    return found
                begin()
                try:
                    return await self._obtain(refusal)
                except (AuthorizationRefused, Unreachable) as error:
                    self._failed_last = error.again()  # without the frames, which hold tokens
                    raise

    async def _obtain(self, refusal: httpx2.Response | None) -> SignedIn:
        """Get new tokens and store them, while the lock is held."""
        old = self._current
        if self._exchange.oauth.unattended:
            known = BearerChallenge(resource_metadata=None if old is None else old.challenge)
            challenge = known if refusal is None else challenge_of(refusal)
            new = await run_unattended(self._exchange, challenge, old)
        elif old is None or not old.renewable:
            lacks = "no refresh token" if old is None or not old.refused else "a refresh token that was refused"
            raise SignInNeeded("not signed in" if old is None else f"the token has expired, and has {lacks}")
        else:
            # Before the refresh, which uses the refresh token up: a store that cannot take the next one is found in
            # time. Otherwise the sign-in would be lost.
            await self._save(old)
            try:
                new = await self._refreshed(old)
            except SignInNeeded as error:
                await self._take(old.when_refused(dead=error.dead))
                raise
        await self._take(new)
        return new

    async def _refreshed(self, old: SignedIn) -> SignedIn:
        self._answered = trio.Event()
        try:
            with trio.fail_after(AUTH_TIMEOUT):
                return await refresh(self._exchange, old)
        except trio.TooSlowError:
            raise Unreachable(f"the authorization server did not answer within {AUTH_TIMEOUT:g} s") from None
        finally:
            self._answered.set()

    async def _take(self, new: SignedIn) -> None:
        """Replace the sign-in, while the lock is held, even if the store fails.

        A failed write (disk full) is logged, and repeated at later requests, unless the store has got another sign-in.
        """
        self._current, self._unsaved = new, True
        try:
            await self._save(new)
        except ConfigError as error:
            why = f"is not stored yet, and is lost with this connection: {error}"
            logger.error("server %r: a change of its sign-in %s", self._server, why)
            self._not_before = trio.current_time() + REFRESH_PAUSE

    async def _save(self, signed_in: SignedIn) -> None:
        text = signed_in.to_text(self._key)
        with patiently():
            await self._store.save(self._key, text)
        self._stored, self._unsaved = text, False

    async def _save_again(self) -> None:
        with suppress(ConfigError), patiently(1.0):  # not longer: the store has refused the token before
            async with self._turn, self._store.lock(self._key):
                await self._load()
                if self._unsaved and self._current is not None:
                    await self._save(self._current)
        self._not_before = trio.current_time() + REFRESH_PAUSE

    async def _translated(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except SignInNeeded as error:
            failure: Exception = SignInRequired.because(self._server, str(error), error.challenge)
        except (AuthorizationRefused, ConfigError) as error:
            failure = self._failed(str(error), hopeless=not isinstance(error, StoreBusy))
        except Unreachable as error:
            failure = self._failed(f"{error}; it is asked again later", hopeless=False)
        raise failure

    def _failed(self, why: str, *, hopeless: bool) -> ConnectFailed:
        message = f"server {self._server!r}: no token: {why}"
        return ConnectFailed(message, server=self._server, phase="open", hopeless=hopeless)


def _put(request: httpx2.Request, signed_in: SignedIn | None) -> None:
    if signed_in is not None:
        request.headers["Authorization"] = f"Bearer {signed_in.tokens.access_token}"


def _token_of(signed_in: SignedIn | None) -> str | None:
    return None if signed_in is None else signed_in.tokens.access_token


async def _in_system_task(fn: Callable[[Callable[[], None]], Awaitable[T]]) -> T:
    """Call a function in a separate task. Until the function calls ``begin``, the task ends with the caller.

    Afterwards the task goes on without the caller; at the end of the program for `REFRESH_GRACE` seconds.

    **Cancellation**: leaves at once.

    Raises:
        StoreBusy: the store does not answer in time.
    """
    found: list[outcome.Outcome[T]] = []
    begun, done = trio.Event(), trio.Event()
    # Shielded: the end of a program cancels system tasks at once, and the answer under way has the only valid refresh
    # token. Bounded: a store may hang; `begin` and `attend` move the deadline.
    scope = trio.CancelScope(shield=True, deadline=trio.current_time() + LONGEST_WAIT + STORE_TIMEOUT)

    def begin() -> None:
        begun.set()
        # For the exchange, and for the store before and after it.
        scope.deadline = trio.current_time() + AUTH_TIMEOUT + 2 * STORE_TIMEOUT

    async def work() -> None:
        try:
            with scope:
                found.append(outcome.Value(await fn(begin)))
        except BaseException as error:  # not of `scope`, which absorbs its cancellation
            found.append(outcome.Error(error))
        done.set()

    async def attend() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, name="refresh")
            try:
                await done.wait()
            finally:  # the program ends
                scope.deadline = min(scope.deadline, trio.current_time() + REFRESH_GRACE)

    trio.lowlevel.spawn_system_task(attend, name="refresh", context=copy_context())
    try:
        await done.wait()
    finally:
        if not begun.is_set():
            scope.cancel("the caller has left")
    if not found:
        raise busy(LONGEST_WAIT + STORE_TIMEOUT)
    return found[0].unwrap()
