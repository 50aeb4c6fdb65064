"""Build the errors of requests, and suggest tools in errors and results."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mcp import MCPError

from ..._errors import ConnectionLost, LimitExceeded, ServerError, ServerUnavailable, ToolNotFound
from ..._foreign import Log
from ..._text import problem_of

if TYPE_CHECKING:
    from ...config import ServerConfig
    from ..record import ServerLife, ServerRecord
    from ..requests import Request

logger = Log("mcp_actors.servers")

_MAY_HAVE_ACTED: Final = "which may have taken effect; send it again only if a second time does no harm"


def request_lost(server: str, operation: str, reason: BaseException | None) -> ConnectionLost:
    """Return the error for a sent request whose connection was lost."""
    why = f" ({problem_of(reason)})" if reason is not None else ""
    return ConnectionLost(
        f"server {server!r}: connection lost{why} during {operation}, {_MAY_HAVE_ACTED}", server=server
    )


def stopped_under(server: str, operation: str, life: ServerLife) -> ServerUnavailable:
    """Return the error for a sent request to a server that was stopped."""
    message = f"server {server!r} was stopped during {operation}, {_MAY_HAVE_ACTED}"
    return ServerUnavailable(message, server=server, state=life.state, last_error=life.error, outcome="unknown")


def mailbox_full(config: ServerConfig) -> LimitExceeded:
    """Return the error for a request that found the mailbox full."""
    return LimitExceeded(
        f"server {config.name!r}: mailbox full: {config.mailbox_size} requests are queued already (mailbox_size); "
        "send fewer at a time, raise mailbox_size, or use overflow='wait'",
        server=config.name,
    )


def would_deadlock(config: ServerConfig) -> LimitExceeded:
    """Return the error for a request that would wait for itself."""
    return LimitExceeded(
        f"server {config.name!r}: this call would deadlock: all {config.max_in_flight} requests in flight "
        "(max_in_flight) wait for it, for example because their callbacks make it; raise max_in_flight, or do not "
        "call the server from there",
        server=config.name,
    )


def unavailable(config: ServerConfig, life: ServerLife) -> ServerUnavailable:
    """Return the error for a request to a server that is not serving."""
    server, state, error, retry_at = config.name, life.state, life.error, life.retry_at
    restart = f"await servers[{server!r}].restart()"
    if state == "stopped" or life.wanted.mode in ("stop", "leave"):
        problem = f"is {'stopped' if state == 'stopped' else 'being stopped'}; to connect it again, "
        message = f"server {server!r} {problem}await servers[{server!r}].start()"
        return ServerUnavailable(message, server=server, state=state, last_error=error)
    if life.overdue is not None:
        message = f"{life.overdue}; wait longer with wait_state('ready'), or raise connect_timeout"
        return ServerUnavailable(message, server=server, state=state, last_error=error)
    if life.signed_out:
        return ServerUnavailable(str(error), server=server, state="needs_auth", last_error=error, retry_at=retry_at)
    if error is not None and state not in ("pending", "connecting", "backoff"):
        problem = f"{'has failed' if state == 'failed' else f'is {state}'}: {problem_of(error)}; "
        if retry_at is None:
            problem += f"fix that, then {restart}"
        else:
            seconds = max(0.0, (retry_at - datetime.now(UTC)).total_seconds())
            problem += f"the next attempt is in {seconds:.0f} s; to retry now, {restart}"
    elif error is not None and config.when_down == "fail":
        problem = (
            f"is down ({state}): {problem_of(error)}; it reconnects by itself; to wait for it, use when_down='wait'"
        )
    else:
        problem = "was disconnected before it took the request, and connects again; send the request again"
    message = f"server {server!r} {problem}"
    return ServerUnavailable(message, server=server, state=state, last_error=error, retry_at=retry_at)


def stopped_meanwhile(config: ServerConfig, life: ServerLife) -> ServerUnavailable:
    """Return the error for the start of a server that was stopped before it was connected."""
    message = (
        f"server {config.name!r} was stopped meanwhile by another call of stop(); to connect it again, "
        f"await servers[{config.name!r}].start()"
    )
    return ServerUnavailable(message, server=config.name, state=life.state, last_error=life.error)


def note_suggestion(request: Request[Any], failure: Exception, record: ServerRecord) -> None:
    """Add what the caller may have meant as a note to the error of a request."""
    if isinstance(failure, (ServerError, MCPError)) and not isinstance(failure, ToolNotFound):
        suggestion = request.suggestion(record)
        if suggestion is not None and suggestion not in getattr(failure, "__notes__", ()):
            failure.add_note(suggestion)


def log_suggestion(request: Request[Any], record: ServerRecord) -> None:
    """Log what the caller of a tool may have meant whose result says that the server has refused the call.

    Most servers refuse an unknown tool so. The result is the caller's as the server has sent it.
    """
    suggestion = request.suggestion(record)
    if suggestion is not None:
        logger.warning("%s; it was called, and its result is an error", suggestion.removesuffix("?"))
