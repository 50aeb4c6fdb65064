"""Keep a connection up to date: its lists, age, and sign-in.

A task that lists again after a change must neither overload the server nor give up silently: `Pace` delays requests,
and failed attempts are repeated with a back-off (`keep_trying`). An old or unused connection is reported to the
lifecycle actor (`report_lifetime`). A connect that requires a sign-in asks a person, at most twice per hour.

Owns: the pace of list requests.
Writes: marks of stale lists; times and errors of sign-in questions; pauses of deadlines; mailboxes of the server actor
and the lifecycle actor; the token store; the log.
Calls: auth, config, servers, servers.requests, transports.
"""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import define, field

from ... import auth
from ..._backoff import Backoff
from ..._collapse import caused_by
from ..._errors import ActorCrashed, ActorStopped, ConfigError, ConnectFailed
from ..._foreign import Log
from ..._text import problem_of
from ...auth import SignInFailed, SignInRequired
from ...config import Http, OAuth, Sse
from ...transports import open_exchange
from .._rules import asked_to_wait
from ..requests import KeepResources, ListTools, request_internally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...config import ServerConfig, SignInCallback
    from ...kernel import ActorRef
    from .._catalog import ServerCatalog
    from ..record import ConnectionRecord, KeptResources
    from ..requests import Request

logger = Log("mcp_actors.servers")


# --- Repeat a task of the connection until it succeeds ----------------------------------------------------------------


async def keep_trying(
    attempt: Callable[[], Awaitable[None]],
    backoff: Backoff,
    describe: Callable[[Exception, float], str | None],
    *,
    failures: int = 0,
    level: int = logging.WARNING,
) -> bool:
    """Repeat an attempt until success; return False if `describe` gives up, or the connection has ended.

    Args:
        attempt: makes one attempt.
        backoff: the delays after failures. A longer ``Retry-After`` of the server wins.
        describe: returns the log message about a failure, given the seconds until the next attempt; None gives up.
        failures: consecutive failures before this call; with any, the first attempt is delayed, too.
        level: the level of the first message; the rest is logged at DEBUG.
    """
    if failures:
        await trio.sleep(backoff.delay(failures, random=random.random))
    while True:
        try:
            await attempt()
        except (ActorCrashed, ActorStopped):
            return False
        except Exception as exc:
            failures += 1
            delay = max(backoff.delay(failures, random=random.random), asked_to_wait(exc))
            if (message := describe(exc, delay)) is None:
                return False
        else:
            return True
        logger.log(level, "%s", message)
        level = logging.DEBUG
        await trio.sleep(delay)


# --- List the tools, and kept resources, again when they have changed -------------------------------------------------

# One task per connection and list sends requests through the mailbox, as any caller does: a refresh counts in
# ``max_in_flight``, has a ``request_timeout``, and an observer of the change may call the server. While disconnected,
# no refresh is needed: each connect lists again. Of several replicas one lists for all (`Freshness.turn`); when its
# connection ends, the next takes over.
#
# The delay between a notification and the request (`Pace`) is the longest of:
#
# - 0.1 s, because several notifications may come at once; up to 2 s while new notifications overtake results;
# - while results bring no change, twice the previous delay, up to a minute: some servers notify after each result. A
#   real change, or a minute without a notification, resets this;
# - the duration of the last request, up to 10 s, so refreshing takes at most half of a slow server's time.
#
# After a ``refresh_interval`` of silence, ask without delay, and without effect on later delays.


SETTLE: Final = Backoff(first=0.1, initial=0.2, maximum=2.0)
"""Seconds from a notification to the request; longer with each consecutive overtaken result."""

AFTER_NOTHING_NEW: Final = Backoff(first=0.0, initial=0.2, maximum=60.0)
"""Seconds from a notification to the request after results without a change."""

AFTER_FAILURE: Final = Backoff(first=1.0, initial=2.0, maximum=60.0, jitter=0.1)
"""Seconds from a failed refresh, or failed renewal of a subscription, to the next."""


@define
class Pace:
    """The delay before the next refresh. A pure rule: no clock, no tasks."""

    _overtaken: int = field(default=0, init=False)
    _vain: int = field(default=0, init=False)
    _took: float = field(default=0.0, init=False)
    _answered: float = field(default=-math.inf, init=False)

    def delay(self, now: float) -> float:
        """Return the seconds to wait after a notification at `now`."""
        if now - self._answered >= AFTER_NOTHING_NEW.maximum:
            self._vain = 0
        return max(SETTLE.delay(self._overtaken + 1), AFTER_NOTHING_NEW.delay(self._vain + 1), min(self._took, 10.0))

    def answered(self, asked: float, now: float, *, overtaken: bool, news: bool) -> None:
        """Note the result, at `now`, of a request at `asked`.

        `overtaken` is True if another notification has arrived meanwhile, `news` if the result has changed.
        """
        self._overtaken = self._overtaken + 1 if overtaken else 0
        self._vain = 0 if news else self._vain + 1
        self._took, self._answered = now - asked, now


async def keep_refreshed(record: ConnectionRecord, actor: ActorRef) -> None:
    """List the tools whenever they are stale, until the connection ends."""
    failed = "its tools may have changed, but tools/list failed", "the catalogue keeps the last list"
    interval = record.config.refresh_interval or math.inf
    await _keep_listed(record, actor, record.catalog, ListTools, failed, interval=interval)


async def keep_resources_listed(record: ConnectionRecord, actor: ActorRef, failure: Exception | None) -> None:
    """List the resources whenever they are stale, until the connection ends.

    A `failure` to list resources during the connect counts as the first attempt.
    """
    failed = "its resources could not be listed", "the last list is kept"
    await _keep_listed(record, actor, record.server.resources, KeepResources, failed, failure=failure)


async def _keep_listed(
    record: ConnectionRecord,
    actor: ActorRef,
    kept: ServerCatalog | KeptResources,
    request: Callable[[], Request[Any]],
    failed: tuple[str, str],
    *,
    interval: float = math.inf,
    failure: Exception | None = None,
) -> None:
    """List again whenever a list is stale, until the connection ends.

    The answer to `request` replaces the list `kept`. For the log, `failed` names the failure, and the list that stays.
    After `interval` seconds without a notification, the list is stale. A `failure` counts as the first attempt.
    """
    freshness, pace, failures = kept.freshness, Pace(), [] if failure is None else [failure]

    def describe(error: Exception, delay: float) -> str:
        what, stays = failed
        again = f"{stays}, and the request is repeated in {delay:.3g} s"
        return f"server {record.config.name!r}: {what}: {problem_of(error)}; {again}"

    async def attempt() -> None:
        if failures:
            raise failures.pop()
        with trio.move_on_after(interval) as silence:
            await freshness.wait_stale()
        if silence.cancelled_caught:
            freshness.mark_stale(trio.current_time())
            await _list_again(record, actor, request())
            return
        await trio.sleep(pace.delay(trio.current_time()))
        if freshness.is_stale:  # else a caller has listed meanwhile
            asked, known = trio.current_time(), kept.answers
            await _list_again(record, actor, request())
            pace.answered(asked, trio.current_time(), overtaken=freshness.is_stale, news=kept.answers != known)

    async with freshness.turn:
        while await keep_trying(attempt, AFTER_FAILURE, describe):
            pass


async def _list_again(record: ConnectionRecord, actor: ActorRef, request: Request[Any]) -> None:
    """List once, within ``request_timeout``, or within ``connect_timeout`` if unlimited."""
    config, bound = record.config, math.inf
    if config.request_timeout is None and config.connect_timeout is not None:
        bound = config.connect_timeout
    with trio.move_on_after(bound):
        await request_internally(record, actor, request)
        return
    raise TimeoutError(f"{request.operation} timed out after {bound:g} s (connect_timeout)")


# --- Report that a connection is unused or old ------------------------------------------------------------------------

# The group carries out the consequences (``group/_lifecycle.py``), after checking the reason again. Jitter keeps
# servers that started together from stopping together: up to a tenth more idle time, or less lifetime.


JITTER: Final = 0.1


async def report_lifetime(record: ConnectionRecord) -> None:
    """Call ``record.retire`` for a connection that is unused for too long, or too old."""
    idle = (record.config.idle_timeout or math.inf) * (1.0 + JITTER * random.random())
    lifetime = (record.config.max_lifetime or math.inf) * (1.0 - JITTER * random.random())
    requests, subscriptions = record.calls.deadlines, record.subscriptions
    last_use = trio.current_time()
    old_at = last_use + lifetime
    requests.note_quiet = True
    while True:
        now = trio.current_time()
        last_use = max(last_use, requests.quiet_since, subscriptions.ended_at)
        if now >= old_at:
            record.retire("old")
            old_at = now + JITTER * lifetime  # if kept, because another replica is down
        elif now >= last_use + idle:
            record.retire("idle")
            last_use = now  # if used after all
        await trio.sleep_until(min(old_at, last_use + idle))


# --- Let a person sign in to a server ---------------------------------------------------------------------------------


async def sign_in_to(config: ServerConfig, show: SignInCallback | None, required: object = None) -> None:
    """Let a person sign in, and store the tokens for the next connection.

    Args:
        config: the configuration of the server.
        show: shows the URL to the person. None: as configured, else the user's browser.
        required: the error that requires the sign-in, if any.

    Raises:
        SignInFailed: no tokens were obtained.
        ConfigError: this server has no sign-in, or the store cannot be used.
        ConnectFailed: the client cannot be created.
    """
    challenge = required.challenge if isinstance(required, SignInRequired) else None
    async with open_exchange(config) as exchange:
        show = show or exchange.oauth.on_sign_in or auth.open_browser
        await auth.sign_in(config.name, exchange, show, challenge=challenge)


async def sign_out_of(config: ServerConfig) -> bool:
    """Revoke and forget the tokens of a server. Return False if there were none.

    Raises:
        ConfigError, ConnectFailed: as for `sign_in_to`.
    """
    async with open_exchange(config) as exchange:
        return await auth.sign_out(exchange)


async def is_signed_in(config: ServerConfig) -> bool:
    """Return True if the store has tokens for a server.

    Raises:
        ConfigError, ConnectFailed: as for `sign_in_to`.
    """
    async with open_exchange(config) as exchange:
        found = await auth.signed_in(exchange)
        return found is not None and not found.refused


def can_ask(record: ConnectionRecord, required: BaseException | None) -> bool:
    """Return True if an error requires a sign-in, and the configured callback may ask a person."""
    transport = record.config.transport
    oauth = transport.auth if isinstance(transport, Http | Sse) else None
    asks = isinstance(oauth, OAuth) and oauth.on_sign_in is not None
    if not (asks and record.life.asks_left > 0 and isinstance(required, SignInRequired)):
        return False
    questions = record.next_connect.questions
    if questions.allowed(trio.current_time()):
        return True
    if questions.to_be_reported():
        problem = "on_sign_in is not called again now (twice within an hour)"
        remedy = f"await servers[{record.config.name!r}].sign_in() asks at once"
        logger.warning("server %r: %s; %s", record.config.name, problem, remedy)
    return False


async def ask_to_sign_in(record: ConnectionRecord, required: Exception | None) -> bool:
    """Ask a person by the configured callback. Return False if not required, or not allowed.

    A refusal is not followed by another question at a restart, and no person is asked more than twice an hour
    (`SignInQuestions`).

    Raises:
        SignInRequired: the sign-in has failed.
        ConnectFailed: the client cannot be created.
    """
    if not can_ask(record, required):
        return False
    assert isinstance(required, SignInRequired)
    # Spend the right to ask before asking, and give it back only after a success: if this connect is cancelled or
    # restarted while the person decides, or the person refuses, no restart may ask again by itself. All deadlines of
    # the server stop meanwhile, or every call would time out at the speed of a person.
    asks_left, record.life.asks_left = record.life.asks_left - 1, 0
    record.next_connect.questions.note(trio.current_time())
    record.life.note_question(required.challenge)
    try:
        with record.calls.deadlines.asking():
            await sign_in_to(record.config, None, required)
    except (SignInFailed, ConfigError) as error:
        why = str(error).removeprefix(f"server {record.config.name!r}: ")
        failure = caused_by(SignInRequired.because(record.config.name, why), error)
    except ConnectFailed:
        raise
    except Exception as error:
        # A defect of the callback. A restart would not ask again, and hide the defect behind "not signed in".
        problem = f"on_sign_in raised {type(error).__name__}; see the cause of this error"
        failure = caused_by(SignInRequired.because(record.config.name, problem), error)
    else:
        record.life.asks_left = asks_left
        return True
    raise failure
