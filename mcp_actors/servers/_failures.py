"""Build errors for connection attempts, connections and requests.

An error names the server, the event and a remedy. Credentials are removed from quoted exceptions, and from the last
output of a dead process.

Owns: nothing.
Writes: texts of quoted exceptions. Drops their tracebacks.
Calls: auth, transports, _eras, _session.
"""

from __future__ import annotations

import re
import signal
import sys
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import httpx2
from mcp import MCPError
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic_core import ValidationError, to_json

from .._collapse import caused_by, collapse
from .._errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectPhase,
    HttpStatusError,
    LimitExceeded,
    RequestTimedOut,
    ServerError,
    ServerState,
    ServerUnavailable,
)
from .._text import indented, own_shortage, plain_text, problem_of
from ..auth import SignInRequired
from ..transports import MAY_HAVE_ACTED, OUTCOME_MEMBER, ConnectionOver, Masker, Obituary, is_unreadable, not_parsed
from ._eras import first_problem, incompatibility
from ._session import MAX_ROUNDS

if TYPE_CHECKING:
    from ..config import ServerConfig
    from ..transports import Link
    from .record import ServerLife


STDERR_IN_MESSAGE: Final = 400
"""Characters of stderr in the text of an error; the attribute has the whole tail."""

_SAYS_NOTHING: Final = re.compile(r"[\s^~{}\[\]()]*|Node\.js v\S+")
"""A line of a traceback that only marks a place, closes a bracket, or names the interpreter."""

_DOING: Final[dict[ConnectPhase, str]] = {
    "configure": "resolving its configuration",
    "open": "opening the connection",
    "negotiate": "negotiating the protocol",
    "list_tools": "listing its tools",
}


# --- A connect that failed, or takes long -----------------------------------------------------------------------------


Limit: TypeAlias = Literal["startup_timeout", "connect_timeout"]


class TimedOut(Exception):
    """An attempt to connect took too long.

    Attributes:
        limit: the setting that expired.
        seconds: the value of the setting.
        read: whether the process has read its input; None if the system does not report reading.
    """

    def __init__(self, limit: Limit, seconds: float, read: bool | None) -> None:
        super().__init__(f"timed out after {seconds:g} s ({limit})")
        self.limit = limit
        self.seconds = seconds
        self.read = read


def known_failure(link: Link | None, exc: BaseException) -> ConnectFailed | None:
    """Return the `ConnectFailed` in an exception, or one noted by the link; None without either."""
    causes = (collapse(exc), None if link is None else link.lifeline.failure)
    return next((cause for cause in causes if isinstance(cause, ConnectFailed)), None)


def connect_failed(config: ServerConfig, phase: ConnectPhase, link: Link | None, exc: BaseException) -> ConnectFailed:
    if isinstance(exc, TimedOut):
        return _timed_out(config, phase, link, exc)
    masker = link.masker if link is not None else Masker()
    failure = None if link is None else link.lifeline.failure
    cause = collapse(exc) if failure is None else failure
    unreached = isinstance(cause, ConnectionOver) or own_shortage(cause) is not None
    if unreached and isinstance(cause.__cause__, httpx2.TransportError):
        phase = "open"  # no server was reached
    hopeless = False
    if link is not None and failure is None and link.lifeline.lost and link.pid is not None:
        what = f"{_ended(link.obituary())} while {_DOING[phase]}"
    else:
        words = _words(cause, masker).removesuffix(MAY_HAVE_ACTED)
        remedy = incompatibility(config, cause) if phase == "negotiate" else None
        hopeless = remedy is not None
        hint = f"; {remedy}" if hopeless else _hint(config, phase, cause)
        if (shortage := own_shortage(cause)) is not None and shortage.remedy not in words:
            hint = f"; {shortage.remedy}"
        says_all = phase == "open" and isinstance(cause, ConnectionOver)
        what = f"{words}{hint}" if says_all else f"{_DOING[phase]} failed: {words}{hint}"
    error = _with_last_words(config, phase, link, what)
    error.hopeless = hopeless
    error.http_status = cause.status if isinstance(cause, HttpStatusError) else None
    behind = _behind(cause)
    return caused_by(error, None if behind is None else masker.clean(behind))


def _timed_out(config: ServerConfig, phase: ConnectPhase, link: Link | None, over: TimedOut) -> ConnectFailed:
    unread = "; its process has not read the request" if over.read is False else ""
    what = (
        f"timed out after {over.seconds:g} s ({over.limit}) while {_DOING[phase]}{unread}; "
        f"check what the server waits for, or raise {over.limit}"
    )
    return _with_last_words(config, phase, link, what)


def _hint(config: ServerConfig, phase: ConnectPhase, cause: BaseException) -> str:
    if not isinstance(cause, MCPError) or phase != "negotiate":
        return ""
    if config.protocol != "auto":
        return f"; if it does not support protocol={config.protocol!r}, use 'auto'"
    return "; check that it is an MCP server" if cause.code == METHOD_NOT_FOUND else ""


def _with_last_words(config: ServerConfig, phase: ConnectPhase, link: Link | None, what: str) -> ConnectFailed:
    obituary = link.obituary() if link is not None else Obituary()
    silent = "; it wrote nothing to stderr; run its command in a terminal to see why"
    words, others = _last_words(obituary.stderr_tail)
    noise = link.malformed_lines if link is not None else 0
    return ConnectFailed(
        f"server {config.name!r}: {what}"
        + (f"; lines on stdout that are not MCP messages: {noise}" if noise else "")
        + (f"; its stderr ends with: {words}" if words else "" if obituary.exit_code is None else silent)
        + obituary.remark
        + others,
        server=config.name,
        phase=phase,
        exit_code=obituary.exit_code,
        stderr_tail=obituary.stderr_tail,
    )


def _last_words(tail: str) -> tuple[str, str]:
    """Return the most telling line of a traceback, and the surrounding lines, for the end of an error."""
    text = plain_text(tail, limit=len(tail), lines=True)
    lines = [line for line in text.splitlines() if not _SAYS_NOTHING.fullmatch(line)]
    at = max((at for at, line in enumerate(lines) if not line[0].isspace()), default=-1)
    said = plain_text(lines.pop(at).strip(), limit=STDERR_IN_MESSAGE) if lines else ""
    others = ""
    for line in reversed(lines):
        if len(line) + len(others) + len(said) > STDERR_IN_MESSAGE:
            break
        others = f"\n{line}{others}"
    return said, indented(f"; the other lines:{others}") if others else ""


def still_connecting(server: str, seconds: float, link: Link) -> str:
    """Return a warning about a connect that takes long."""
    words = link.obituary().last_line
    why = (
        f"; the last line of its stderr is: {words}"
        if words
        else "; it has written nothing to stderr; check that its command starts an MCP server"
    )
    if link.lifeline.exited:
        why = f"; its process has exited, and only a child of it can be the server{why}"
    elif link.heard is False:
        why = f"; its process has not read anything yet{why}"
    return f"server {server!r}: is still connecting after {seconds:g} s{why}"


def tools_not_listed(server: str, seconds: float) -> RequestTimedOut:
    what = f"server {server!r}: tools/list timed out after {seconds:g} s; static_tools are used instead"
    return RequestTimedOut(what, server=server, operation="tools/list", seconds=seconds, limit="request_timeout")


# --- A connection that was lost ---------------------------------------------------------------------------------------


def reason_of_end(server: str, link: Link) -> ConnectionLost | SignInRequired:
    return link.lifeline.failure if isinstance(link.lifeline.failure, SignInRequired) else connection_lost(server, link)


def connection_lost(server: str, link: Link) -> ConnectionLost:
    # A noted failure means that this side has ended the process, so the exit code says nothing.
    failure = link.lifeline.failure
    what = _ended(link.obituary()) if link.pid is not None and failure is None else "the connection ended"
    because = f": {problem_of(failure)}" if failure is not None else ""
    lost = ConnectionLost(f"server {server!r}: {what} while it was connected{because}", server=server)
    return caused_by(lost, None if failure is None else _behind(failure))


def unresponsive(server: str, failures: int, problem: Exception | None) -> ConnectionLost:
    why = f" (last: {problem_of(problem)})" if problem is not None else ""
    what = f"server {server!r}: no response to {failures} health checks in a row{why}"
    return caused_by(ConnectionLost(what, server=server), problem)


def connection_over(server: str, over: ConnectionOver) -> ConnectionLost:
    """Return the error of a connection that a request found unusable."""
    return caused_by(ConnectionLost(f"server {server!r}: {over}", server=server), _behind(over))


def session_failed(server: str, exc: BaseException, masker: Masker) -> ConnectionLost:
    """Return the error of a session broken on this side of the link."""
    cause = collapse(exc)
    what = f"server {server!r}: session failed: {_words(cause, masker)}"
    return caused_by(ConnectionLost(what, server=server), masker.clean(cause))


def _behind(cause: BaseException) -> BaseException | None:
    """Return the cause to show; instead of a `ConnectionOver`, which is internal, its own cause."""
    return cause.__cause__ if isinstance(cause, ConnectionOver) else cause


def _ended(obituary: Obituary) -> str:
    if obituary.exit_code is None:
        return "its process closed its stdout"
    if obituary.exit_code < 0:
        return f"its process was killed by {_signal_name(-obituary.exit_code)}"
    return f"its process exited with code {obituary.exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal; only two have names
        return f"signal {number}"


def _words(cause: BaseException, masker: Masker) -> str:
    if isinstance(cause, MCPError) and is_unreadable(cause):
        return cause.message
    if isinstance(cause, MCPError):
        data = f" ({plain_text(to_json(cause.data).decode())})" if cause.data is not None else ""
        return f"the server answered with error {cause.code}: {plain_text(cause.message)}{data}"
    if isinstance(cause, ValidationError):
        return _invalid_response(cause, masker)
    return problem_of(cause)


# --- A request that was sent ------------------------------------------------------------------------------------------


_MAY_BE_DONE: Final = "which may have taken effect; send it again only if a second time does no harm"


def request_lost(server: str, operation: str, reason: BaseException | None, stderr: str) -> ConnectionLost:
    """Return the error for a sent request with a lost connection.

    The end of stderr is a note, because the error's text may be shown to people without a right to the output of a
    shared process.
    """
    why = f" ({problem_of(reason)})" if reason is not None else ""
    what = f"server {server!r}: connection lost{why} during {operation}, {_MAY_BE_DONE}"
    lost = ConnectionLost(what, server=server)
    if lines := stderr[-4096:].splitlines()[-10:]:  # characters, lines
        begin = f"its stderr ends with (servers[{server!r}].stderr_tail has more until it is started again):"
        lost.add_note("\n".join([begin, *map(plain_text, lines)]))
    return lost


def stopped_under(server: str, operation: str, life: ServerLife) -> ServerUnavailable:
    end = life.end_of_group()
    why = f" ({problem_of(end)})" if end is not None else ""
    message = f"server {server!r} was stopped{why} during {operation}, {_MAY_BE_DONE}"
    return ServerUnavailable(message, server=server, state=life.state, last_error=life.error, outcome="unknown")


def after_rounds(operation: str, failure: Exception, *, begun: bool) -> Exception:
    """Return the failure of a request; after a sent round, none that says that nothing was sent.

    Args:
        operation: the request.
        failure: why its last message failed.
        begun: whether the request may have had an effect.
    """
    if not begun or getattr(failure, "outcome", None) != "not_sent":
        return failure
    said = f"{failure}; {operation} may have taken effect, because an earlier round of it was sent"
    failure = copy(failure)  # other requests may have failed with it
    failure.args, failure.outcome = (said,), "unknown"  # type: ignore[attr-defined]  # as errors of this package have
    return failure


def too_many_rounds(server: str, operation: str) -> LimitExceeded:
    return LimitExceeded(
        f"server {server!r}: {operation} asked for input {MAX_ROUNDS} times without an answer, and may have taken "
        "effect; fix the server",
        server=server,
    )


def of_answer(server: str, operation: str, link: Link, exc: MCPError | ValidationError) -> Exception:
    """Return the error for an answer that is invalid or an error. The session continues."""
    if isinstance(exc, MCPError):
        link.masker.clean(exc)
        return not_parsed(server, operation, exc) or named_by_gateway(server, operation, link, exc)
    what = f"{_invalid_response(exc, link.masker)}; the request may have taken effect; fix the server"
    misfit = ConnectionLost(f"server {server!r}: {operation}: {what}", server=server)
    return caused_by(misfit, link.masker.clean(exc))


def answer_not_read(server: str, operation: str, exc: Exception) -> ConnectionLost:
    """Return the error for a response left unread because of a defect on this side."""
    return ConnectionLost(
        f"server {server!r}: {operation}: reading the response failed with {type(exc).__name__}; the request may have "
        "taken effect; this is a defect of mcp_actors, so report it with the traceback in the log",
        server=server,
    )


def _invalid_response(exc: ValidationError, masker: Masker) -> str:
    return f"invalid response ({first_problem(exc, masker)})"


# --- A request that a gateway of this package has refused -------------------------------------------------------------


def named_by_gateway(server: str, operation: str, link: Link, error: MCPError) -> ServerError | MCPError:
    """Return the error named by a trusted gateway of this package; else the error as is.

    A foreign server could name an error to have a request repeated. Only a trusted link (`Link.trusted`) is believed.
    """
    said = error.data.get(OUTCOME_MEMBER) if link.trusted and isinstance(error.data, dict) else None
    if not isinstance(said, dict) or error.code == INVALID_PARAMS:
        return error
    outcome: Literal["not_sent", "unknown"] = "not_sent" if said.get("outcome") == "not_sent" else "unknown"
    message = f"server {server!r}: {link.endpoint} answered: {plain_text(error.message)}"
    named: ServerError
    match said.get("error"):
        case "ConnectionLost":
            named = ConnectionLost(message, server=server, outcome=outcome)
        case "ConnectFailed":  # of the gateway's last attempt; an earlier one may have had an effect
            named = ConnectionLost(message, server=server)
        case "RequestTimedOut":
            limit = said.get("limit")
            named = RequestTimedOut(
                message,
                server=server,
                operation=operation,
                seconds=_seconds(said.get("seconds")),
                limit="progress_timeout" if limit == "progress_timeout" else "request_timeout",
                outcome=outcome,
            )
        case "ServerUnavailable":
            named = ServerUnavailable(
                message,
                server=server,
                state=next((each for each in get_args(ServerState) if each == said.get("state")), "failed"),
                outcome=outcome,
                retry_at=_time(said.get("retry_at")),
            )
        case "LimitExceeded":
            named = LimitExceeded(message, server=server, outcome=outcome)
        case _:
            return error
    return named


def _seconds(value: object) -> float:
    """Return a duration; 0 for anything else, such as NaN, or an integer too large for a float."""
    if type(value) is not int and type(value) is not float:
        return 0.0
    return float(value) if 0 <= value <= sys.float_info.max else 0.0


def _time(text: object) -> datetime | None:
    """Return a time, or None: not a time, without a zone, or not representable in UTC."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
        return None if time is None or time.utcoffset() is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


# --- A request that was not sent --------------------------------------------------------------------------------------


def mailbox_full(config: ServerConfig) -> LimitExceeded:
    what = (
        f"server {config.name!r}: mailbox full: {config.mailbox_size} requests are queued already (mailbox_size); "
        "send fewer at a time, raise mailbox_size, or use overflow='wait'"
    )
    return LimitExceeded(what, server=config.name, outcome="not_sent")


def would_deadlock(config: ServerConfig) -> LimitExceeded:
    what = (
        f"server {config.name!r}: this call would deadlock: all {config.max_in_flight} requests in flight "
        "(max_in_flight) wait for it, for example because their callbacks make it; raise max_in_flight, or do not "
        "call the server from there"
    )
    return LimitExceeded(what, server=config.name, outcome="not_sent")


def unavailable(config: ServerConfig, life: ServerLife) -> ServerUnavailable:
    server, state, error, retry_at = config.name, life.state, life.error, life.retry_at
    failure = partial(ServerUnavailable, server=server, state=state, last_error=error, outcome="not_sent")
    restart = f"await servers[{server!r}].restart()"
    if state == "stopped" or life.wanted.mode in ("stop", "leave"):
        problem = f"is {'stopped' if state == 'stopped' else 'being stopped'}; to connect it again, "
        return failure(f"server {server!r} {problem}await servers[{server!r}].start()")
    if life.overdue is not None:
        return failure(f"{life.overdue}; wait longer with wait_state('ready'), or raise connect_timeout")
    if isinstance(error, SignInRequired):
        return failure(str(error), state="needs_auth", retry_at=retry_at)
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
    return failure(f"server {server!r} {problem}", retry_at=retry_at)


def stopped_meanwhile(config: ServerConfig, life: ServerLife) -> ServerUnavailable:
    message = (
        f"server {config.name!r} was stopped meanwhile by another call of stop(); to connect it again, "
        f"await servers[{config.name!r}].start()"
    )
    return ServerUnavailable(message, server=config.name, state=life.state, last_error=life.error, outcome="not_sent")
