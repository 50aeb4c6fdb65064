"""Policies and limits of one server, as frozen data.

The classes hold values; `mcp_actors.servers` and `mcp_actors.transports` apply them. Values that contradict each other
are refused.

Owns: nothing.
Writes: nothing.
Calls: _validators.
"""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

from .._backoff import Backoff
from .._misuse import explained, is_number
from . import _validators as check

# --- Circuit breaker --------------------------------------------------------------------------------------------------


@explained
@check.brief
@attrs.frozen(kw_only=True)
class BreakerPolicy:
    """The circuit breaker of a server.

    After `failures` consecutive failures the breaker opens: every request fails at once with `ServerUnavailable`, whose
    ``retry_at`` says until when. After `reset_after` seconds one request is sent as a probe. A success closes the
    breaker; a failure restarts the wait.

    A timeout, a lost connection, and the HTTP statuses 408, 429 and 5xx are failures. Any other answer is a success,
    even an error of a tool: the server responds.

    Args:
        failures: consecutive failures that open the breaker. Default 5.
        reset_after: seconds for which the breaker stays open. Default 30.

    Raises:
        ConfigError: a value is out of range.
    """

    failures: int = attrs.field(default=5, validator=check.at_least_one)
    reset_after: float = attrs.field(default=30.0, validator=check.seconds())


# --- Health checks ----------------------------------------------------------------------------------------------------


_RUNGS: Final = ("warn_after", "unhealthy_after", "restart_after", "fail_after")


def _check_rung(instance: HealthPolicy, attribute: attrs.Attribute[Any], value: int) -> None:
    check.at_least_one(instance, attribute, value)
    before = _RUNGS[_RUNGS.index(attribute.name) - 1] if attribute.name != _RUNGS[0] else None
    if before is not None and value < getattr(instance, before):
        remedy = f"give at least {before}, which is {getattr(instance, before)}"
        raise check.refused_value(instance, attribute.name, value, remedy)


@explained
@check.brief
@attrs.frozen(kw_only=True)
class HealthPolicy:
    """How a connected server is checked, and what consecutive failures lead to.

    A check is a request that every server answers: ``ping``, or ``server/discover`` since 2026-07-28. Without an answer
    within `timeout` a check fails, and the next follows at once. A request that times out without a byte from the
    server is a failure too, followed by a check at once. Any answer resets the count.

    A server that executes one request at a time looks frozen while busy. So a merely silent server becomes
    ``unhealthy``, but is restarted only after `silence`, and not while a request from before the silence is within its
    deadline. A stopped process (SIGSTOP) is restarted without these conditions, as is a gateway behind a `Socket`,
    because a gateway always answers at once.

    Args:
        interval: seconds between successful checks; None disables checks. Default 60.
        timeout: seconds to wait for an answer. Default 5.
        warn_after: failures until the server is ``degraded``, with a warning. Default 2.
        unhealthy_after: failures until the server is ``unhealthy``, and no longer in ``active``. Default 3.
        restart_after: failures until a restart. Default 5.
        fail_after: failures until the server is parked as ``failed``. A restart does not reset the count. Default 10.
        silence: seconds without a byte until a silent server may be restarted. None disables restarts for silence.
            Default 300.

    Raises:
        ConfigError: a value is out of range, or a later step comes before an earlier step.
    """

    interval: float | None = attrs.field(default=60.0, validator=check.seconds(optional=True))
    timeout: float = attrs.field(default=5.0, validator=check.seconds())
    warn_after: int = attrs.field(default=2, validator=_check_rung)
    unhealthy_after: int = attrs.field(default=3, validator=_check_rung)
    restart_after: int = attrs.field(default=5, validator=_check_rung)
    fail_after: int = attrs.field(default=10, validator=_check_rung)
    silence: float | None = attrs.field(default=300.0, validator=check.seconds(optional=True))


# --- Limits -----------------------------------------------------------------------------------------------------------


# Code that reads schemas, here and in other packages, is recursive.
_check_depth: Final = check.count(1, "give a whole number from 1 to 200", highest=200)


@explained
@check.brief
@attrs.frozen(kw_only=True)
class Limits:
    """How much one server may list, and how many messages it may send on its own.

    A tool that exceeds a limit is left out, with a warning. A server with too many tools fails its whole listing with
    `LimitExceeded`: nothing says which tools matter. ``Stdio(max_line_bytes=…)`` and ``Http(max_body_bytes=…)`` limit
    the length of a message.

    Args:
        max_tools: tools in a listing, also those hidden by a `ToolFilter`. Default 1000.
        max_list_bytes: bytes of JSON of a whole list with all pages, for each list (tools, resources, resource
            templates, prompts) on its own. Default 8388608 (8 MiB).
        max_text_chars: characters of each text of a listed item (name, title, description …), and of a cursor. Default
            16384.
        max_schema_bytes: bytes of JSON of each other part of a listed item (schemas, annotations, icons, meta). Default
            262144 (256 KiB).
        max_schema_depth: nesting depth of objects and arrays in each of these parts, 1 to 200. Default 64.
        max_message_values: JSON values in a message, approximately (commas, colons, opening brackets and braces outside
            of strings are counted; a key is a value too). A response with more fails its request; over stdio and HTTP
            with SSE, any other message with more ends the connection. Default 250000.
        max_notifications: notifications per second that callbacks get. Unrequested messages are read no faster than at
            six times this rate, or 3000 per second if greater, at 2 KiB per message. Default 500.
        max_requests: unanswered requests of the server (sampling, elicitation, roots, pings), and requests sent at
            once. The server earns thirty more per second, and ten for each request to it. A server that sends more
            loses its connection. Default 500.

    Raises:
        ConfigError: a value is out of range.
    """

    max_tools: int = attrs.field(default=1000, validator=check.at_least_one)
    max_list_bytes: int = attrs.field(default=8 * 1024 * 1024, validator=check.at_least_one)
    max_text_chars: int = attrs.field(default=16 * 1024, validator=check.at_least_one)
    max_schema_bytes: int = attrs.field(default=256 * 1024, validator=check.at_least_one)
    max_schema_depth: int = attrs.field(default=64, validator=_check_depth)
    max_message_values: int = attrs.field(default=250_000, validator=check.at_least_one)
    max_notifications: int = attrs.field(default=500, validator=check.at_least_one)
    max_requests: int = attrs.field(default=500, validator=check.at_least_one)


# --- Restarts ---------------------------------------------------------------------------------------------------------


def _check_reachable(instance: RestartPolicy, attribute: attrs.Attribute[Any], value: Backoff) -> None:
    window = instance.window
    if window == math.inf:
        return
    total = value.total(instance.max_restarts)
    if total >= window:
        problem = f"max_restarts={instance.max_restarts} can never be reached within window={window}"
        why = f"because the back-off alone takes {total:g} s, so a failing server would be restarted forever"
        remedy = f"make window longer than {total:g}, or max_restarts or the back-off smaller"
        raise check.refused("RestartPolicy", "window", f"{problem}, {why}; {remedy}")


@explained
@check.brief
@attrs.frozen(kw_only=True)
class RestartPolicy:
    """How often and how soon a failed server is restarted.

    Each attempt counts, successful or not. If more than `max_restarts` attempts would be needed within `window`, the
    server is parked as ``failed`` (or the group ends, see ``ServerConfig.on_failure``): by default after five attempts
    in a row, after 0, 1, 2, 4 and 8 seconds, without a minute of serving in between.

    A parked server is retried every `park_retry` seconds, and so recovers by itself after any outage. It is not retried
    after `ServerRef.stop`, or a failure that no retry fixes (``ConnectFailed.hopeless``, HTTP statuses 401 and 403).

    Args:
        max_restarts: allowed restarts; 0 disables restarting. Default 5.
        window: seconds within which restarts are counted. Default infinity: only `reset_after` clears the count.
        reset_after: seconds of serving until the count and the back-off are reset. None disables the reset. Default 60.
        backoff: the delays before restarts. Default ``Backoff(first=0, initial=1, maximum=60, factor=2, jitter=0.1)``.
        park_retry: seconds until a parked server is retried (up to a tenth less, at random). Each retry is a single
            attempt: until the server has served for `reset_after`, the next failure parks it again. Time in which the
            machine was suspended counts. None disables these retries, as does ``max_restarts=0``. Default 60.

    Raises:
        ConfigError: a value is out of range, or the delays before `max_restarts` restarts (without jitter) are not less
            than `window`: the limit could never be reached.
    """

    max_restarts: int = attrs.field(
        default=5, validator=check.count(0, "give a whole number of 0 or more; 0 disables restarting")
    )
    window: float = attrs.field(default=math.inf, validator=check.seconds(unlimited=True))
    reset_after: float | None = attrs.field(default=60.0, validator=check.seconds(optional=True))
    # The first restart happens at once (most failures are one-off). A tenth of jitter keeps servers that failed
    # together from restarting in the same instant.
    backoff: Backoff = attrs.field(
        default=Backoff(first=0.0, initial=1.0, maximum=60.0, factor=2.0, jitter=0.1),
        validator=[check.kind(Backoff), _check_reachable],
    )
    park_retry: float | None = attrs.field(default=60.0, validator=check.seconds(optional=True))


# --- Retries ----------------------------------------------------------------------------------------------------------


_MOST_TOKENS: Final = 1000
"""As in gRPC."""

_DECIMALS: Final = 3
"""As in gRPC: thousandths of tokens make the arithmetic exact."""


def _check_token_ratio(instance: RetryBudget, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not (is_number(value) and 0 < value <= _MOST_TOKENS and round(value, _DECIMALS) == value):
        remedy = f"give a number from 0.001 to {_MOST_TOKENS} with at most {_DECIMALS} decimals"
        raise check.refused_value(instance, attribute.name, value, remedy)


@explained
@check.brief
@attrs.frozen(kw_only=True)
class RetryBudget:
    """How many of the requests to one server may be retries: a token bucket.

    Rule and names are those of gRPC's retry throttling (proposal A6). The bucket starts full. An attempt with a
    transient failure takes one token, a success returns `token_ratio` tokens. While the bucket is at most half full,
    nothing is retried: a request fails with the error of its attempt. First attempts are never held back. In the long
    run there is one retry per ``1 / token_ratio`` successes.

    The default bucket is large enough for a lost connection, which fails up to ``max_in_flight`` requests together.

    Args:
        max_tokens: tokens in a full bucket, 1 to 1000. With 1 or 2 nothing is ever retried. Default 200: the hundredth
            failure in a row is the first without a retry.
        token_ratio: tokens returned by a success, 0.001 to 1000, with at most three decimals. Default 0.2.

    Raises:
        ConfigError: a value is out of range.
    """

    max_tokens: int = attrs.field(
        default=200, validator=check.count(1, f"give a whole number from 1 to {_MOST_TOKENS}", highest=_MOST_TOKENS)
    )
    token_ratio: float = attrs.field(default=0.2, validator=_check_token_ratio)


@explained
@check.brief
@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often, and after which delays, a failed request is sent again.

    Only transient failures are retried: a lost connection, HTTP statuses 408, 425, 429 and 5xx (except 501 and 505),
    and an internal error of the server. Any other answer (an unknown tool, a wrong argument, another 4xx, a result with
    ``is_error``) is final.

    Only safe requests are retried: lists and reads always; a tool call if provably nothing of it was sent, if the
    caller passed ``idempotent=True``, or if the server is trusted (``trust_annotations``) and lists the tool as
    read-only or idempotent.

    A retry keeps the deadline of its request, and is not awaited if it could not begin in time. A longer
    ``Retry-After`` replaces the delay.

    Args:
        attempts: how often a request is sent, including the first time, over all pages of a list and all connections. 1
            disables retrying. Repeating a request that was provably not sent is not counted. Default 3.
        backoff: the delays before the retries. Default ``Backoff(first=0.1, initial=0.5, maximum=10, factor=2,
            jitter=0.5)``.
        isolated: True retries on a separate connection, closed afterwards; connecting counts as part of the attempt,
            and towards ``max_starting`` and ``max_processes`` of `open_servers`. Default False: retry on the server's
            connection once restored.
        budget: the retries of all requests to the server together. Default ``RetryBudget()``.

    Raises:
        ConfigError: a value is out of range.
    """

    attempts: int = attrs.field(
        default=3, validator=check.count(1, "give a whole number of 1 or more; 1 disables retrying")
    )
    # A tenth of a second is enough for one-off failures, such as a proxy that switches its backend.
    backoff: Backoff = attrs.field(
        default=Backoff(first=0.1, initial=0.5, maximum=10.0, factor=2.0, jitter=0.5),
        validator=check.kind(Backoff),
    )
    isolated: bool = attrs.field(default=False, validator=check.flag)
    budget: RetryBudget = attrs.field(default=RetryBudget(), validator=check.kind(RetryBudget))
