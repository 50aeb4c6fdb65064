"""Report to observers how each attempt of a request ended.

If the group has a `CallObserver`, the `Deadline` of a request refers to an `ObservedAttempt` while one is under way;
without one, all that is left is a test of that. At its end that makes an `Attempt` for the observers (`Observed`), or,
for most results, only calls the functions that they count with. `judge` decides the result and the outcome from the
error of the caller.

The caller of ``ref`` settles an attempt in the step in which it decides whether another one follows; the connection
notes when it was handed over; a deadline that ends with its attempt open settles it as cancelled. The file uses errors
and ``_rules``, reads Trio's clock, and logs an observer that raises. Decision 53 lists every way in which an attempt
can end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import trio
from attrs import define, field, frozen
from mcp import MCPError

from .._errors import (
    ConnectFailed,
    ConnectionLost,
    HttpStatusError,
    InvalidArguments,
    InvalidResult,
    NotSupported,
    RequestTimedOut,
    ServerUnavailable,
    ToolNotFound,
)
from .._foreign import Log, shown
from ..config import ServerConfig
from ..kernel import Event
from ._rules import meaning_of

logger = Log("mcp_actors.servers")

Result: TypeAlias = Literal["ok", "tool_error", "error", "timed_out", "cancelled", "lost", "unavailable"]
Outcome: TypeAlias = Literal["done", "not_sent", "unknown"]

RESULTS: Final[dict[type[Exception], Result]] = {
    RequestTimedOut: "timed_out",
    ConnectionLost: "lost",
    ServerUnavailable: "unavailable",
    ConnectFailed: "unavailable",
}
"""The results of attempts that ended with these errors; all others are ``"error"``."""

NOT_SENT: Final = (ToolNotFound, InvalidArguments)
ANSWERS: Final = (MCPError, InvalidResult, NotSupported)


class CallObserver:
    """Base of observers that are called when an attempt of a request is settled; pass them as ``observers``.

    A subclass defines `settled`. It is called in the event loop of the servers (with `mcp_actors.bridge`, in their
    thread), in the step in which the attempt is settled, so it must not block. What it raises is logged once, and the
    request is not affected.
    """

    wants_requests: bool = False

    def __call__(self, event: Event, /) -> None:
        """Take an event of the group. By default nothing is done."""

    def added(self, server: str, describe: Callable[[str], ConnectionFacts]) -> None:
        """Take a server that joins the group, before any event of it. By default nothing is done.

        Args:
            server: its name.
            describe: returns what is known now of an actor of the server, by its name as in events (``"time:2"``). It
                keeps the server in memory, so forget it at `ServerRemoved`.
        """

    def settled(self, attempt: Attempt) -> None:
        """Take an attempt that has ended. Do not keep its ``error``, which refers to frames and what they hold."""
        raise NotImplementedError(f"{type(self).__name__}: define settled(self, attempt)")

    def counter(self, attempt: Attempt) -> Callable[[float, float], object] | None:
        """Return a function that takes further results of the same tool in place of `settled`, which costs less.

        It is called with ``queued`` and ``served`` of each further call of that tool which ends with ``"ok"``, and must
        not block either. It is kept as long as the server, so return None for more tools than a server should have. If
        one of several observers returns None, `settled` of all of them takes the results of that tool.

        Args:
            attempt: a call of a listed tool with the result ``"ok"``, after `settled` has taken it.

        Returns:
            None, by default.
        """
        return None


Counter: TypeAlias = "Callable[[float, float], object]"


@frozen
class ConnectionFacts:
    """The connection of an actor, as far as it is known.

    Attributes:
        config: the configuration of the server.
        protocol_version: that of its latest connection; None before the first.
        error: why the actor does not serve; None if it does, or was asked to stop.
    """

    config: ServerConfig
    protocol_version: str | None
    error: Exception | None


Describe: TypeAlias = "Callable[[str], ConnectionFacts]"


@define(eq=False)
class Observed:
    """The observers of one server, and facts about it for them.

    Attributes:
        server: the server's name.
        observers: the observers of the group.
        lists: whether the server lists a tool now.
        describe: returns what is known of an actor of the server.
    """

    server: str
    observers: tuple[CallObserver, ...]
    lists: Callable[[str], bool]
    describe: Describe
    _counters: dict[str | None, tuple[tuple[CallObserver, Counter], ...]] = field(factory=dict, init=False)
    _logged: set[CallObserver] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        for observer in self.observers:
            try:
                observer.added(self.server, self.describe)
            except Exception:
                self._log(observer, f"server {self.server!r}")

    def refused(self, kind: str, subject: object, error: Exception) -> None:
        """Report a request that was refused in the step of its caller."""
        target = subject if isinstance(subject, str) else None
        self._report(Attempt(self, kind, target, result="error", outcome="not_sent", error=error))

    def _report(self, attempt: Attempt) -> None:
        """Call the observers. An exit of the program (`SystemExit`, Ctrl-C) leaves."""
        for observer in self.observers:
            try:
                observer.settled(attempt)
            except Exception:
                self._log(observer, shown(attempt))

    def _find_counters(self, attempt: Attempt) -> None:
        found: list[tuple[CallObserver, Counter]] = []
        for observer in self.observers:
            try:
                counter = observer.counter(attempt)
            except Exception:
                self._log(observer, shown(attempt))
                return
            if counter is None:
                return
            found.append((observer, counter))
        self._counters[attempt.target] = tuple(found)

    def _log(self, observer: CallObserver, what: str) -> None:
        """Log the running exception of an observer, once."""
        if observer not in self._logged:
            self._logged.add(observer)
            text = "observer %s raised on %s; the request is not affected, and this is logged once"
            logger.exception(text, shown(observer), what)


@define(eq=False)
class ObservedAttempt:
    """An attempt that is under way and observed. It reports its own end, once.

    Attributes:
        observed: the observers.
        operation: the protocol's method and its main argument: ``"tools/call 'search'"``.
        subject: what the request is about: the tool, prompt or resource.
        began: when the request was made, or this retry of it was due.
        number: 1 for the first attempt of its request.
        sent_at: when it was handed over; None before that.
        replica: the actor that had it last.
        request_id: the JSON-RPC id of its latest message.
    """

    observed: Observed
    operation: str
    subject: str | None
    began: float
    number: int = 1
    sent_at: float | None = None
    replica: str | None = None
    request_id: int | str | None = None

    def succeeded(self, now: float, is_tool_call: bool, is_error: bool) -> None:
        """Report a result."""
        observed, sent_at = self.observed, self.sent_at
        counters = observed._counters.get(self.subject) if is_tool_call and not is_error else None
        if counters is None or sent_at is None:
            attempt = self._ended(now, "tool_error" if is_error else "ok", "done")
            observed._report(attempt)
            if is_tool_call and not is_error and attempt.listed:
                observed._find_counters(attempt)
            return
        # Nearly all attempts end here, so all is in line, and no `Attempt` is made.
        for observer, count in counters:
            try:
                count(sent_at - self.began, now - sent_at)
            except Exception:
                observed._log(observer, f"a result of {self.operation}")

    def failed(self, error: Exception, *, last: bool) -> None:
        """Report a failure that is raised to the caller, or retried unless it is the `last`."""
        result, outcome = judge(error, self.sent_at is not None, self.request_id is not None)
        self.observed._report(self._ended(trio.current_time(), result, outcome, last, error))

    def cancelled(self) -> None:
        """Report that the caller has left."""
        outcome: Outcome = "not_sent" if self.sent_at is None else "unknown"
        self.observed._report(self._ended(trio.current_time(), "cancelled", outcome))

    def _ended(
        self, now: float, result: Result, outcome: Outcome, last: bool = True, error: Exception | None = None
    ) -> Attempt:
        sent_at = now if self.sent_at is None else self.sent_at
        queued = max(0.0, sent_at - self.began)  # a pause may end early
        kind, facts = self.operation.partition(" ")[0], (self.subject, self.number, self.replica, self.request_id)
        return Attempt(self.observed, kind, *facts, result, outcome, queued, now - sent_at, last, error)


@define(eq=False)
class Attempt:
    """One attempt of a request to a server, which has ended. Do not change it.

    Attributes:
        kind: the protocol's method: ``"tools/call"``.
        target: the tool or prompt, or the URI of the resource, with credentials masked; None for other requests.
        attempt: 1 for the first attempt of its request, 2 for the first retry.
        replica: the actor that had it last, as in events (``"time:2"``); None if it was never handed over.
        request_id: the JSON-RPC id of its latest message; None if there was none.
        result: ``"ok"``; ``"tool_error"`` (a result with ``is_error``); ``"timed_out"`` (`RequestTimedOut`); ``"lost"``
            (`ConnectionLost`); ``"unavailable"`` (`ServerUnavailable`, `ConnectFailed`); ``"cancelled"`` (its caller
            has left); ``"error"`` (any other exception).
        outcome: ``"done"``: the server has answered; ``"not_sent"``: it cannot have had an effect; ``"unknown"``.
        queued: seconds until it was handed over, or ended without that.
        served: seconds from there to its end.
        last: True if no further attempt of its request follows. Each request has exactly one such attempt.
        error: the exception for its caller, or the failure that is retried; None for a result or a cancellation.
    """

    _observed: Observed = field(repr=False)
    kind: str
    target: str | None
    attempt: int = 1
    replica: str | None = None
    request_id: int | str | None = None
    result: Result = "cancelled"
    outcome: Outcome = "not_sent"
    queued: float = 0.0
    served: float = 0.0
    last: bool = True
    error: Exception | None = None

    @property
    def server(self) -> str:
        """The server's name."""
        return self._observed.server

    @property
    def listed(self) -> bool:
        """Whether `target` is a tool that the server lists now."""
        return self.kind == "tools/call" and self.target is not None and self._observed.lists(self.target)

    @property
    def config(self) -> ServerConfig:
        """The configuration of the server."""
        return self._observed.describe(self.server).config

    @property
    def protocol_version(self) -> str | None:
        """The protocol version of the latest connection to the server; None before the first."""
        return self._observed.describe(self.server).protocol_version


def judge(error: Exception, handed_over: bool, asked: bool) -> tuple[Result, Outcome]:
    """Return the result and the outcome of an attempt that ended with an error.

    Args:
        error: the error for the caller.
        handed_over: whether a connection had the request.
        asked: whether a message of the request was given to the transport.
    """
    result: Result = next((result for kind, result in RESULTS.items() if isinstance(error, kind)), "error")
    refused = isinstance(error, NOT_SENT) or (isinstance(error, NotSupported) and not asked)
    if refused or not handed_over:  # a retry that was not sent may carry the outcome of an earlier attempt
        return result, "not_sent"
    if isinstance(error, HttpStatusError):
        return result, "unknown" if meaning_of(error.status).trouble else "done"
    return result, getattr(error, "outcome", "done" if isinstance(error, ANSWERS) else "unknown")
