"""Report to the user's observers how each attempt of a request ended.

A request has one attempt, and another for each retry. Each must be reported exactly once (decision 53), even if the
caller leaves.

Owns: a server's list of observers; counters of each tool's results.
Writes: the log. Runs observers.
Calls: config, kernel, _rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias

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
"""The results of attempts that end with these errors; any other error is ``"error"``."""

NOT_SENT: Final = (ToolNotFound, InvalidArguments)
ANSWERS: Final = (MCPError, InvalidResult, NotSupported)


class CallObserver:
    """Base of observers for settled attempts of requests; pass instances as ``observers``.

    A subclass defines `settled`, which is called in the event loop of the servers (with `mcp_actors.bridge`, in the
    bridge's thread), in the step that settles the attempt, and must not block. Exceptions do not affect the request;
    the first for each server is logged.
    """

    wants_requests: bool = False

    def __call__(self, event: Event, /) -> None:
        """Take an event of the group. Does nothing by default."""

    def added(self, server: str, describe: Callable[[str], ConnectionFacts]) -> None:
        """Take a server joining the group, before all its events. Does nothing by default.

        Args:
            server: the server's name.
            describe: takes the name of an actor of the server, as in events (``"time:2"``), and returns current facts.
                Forget this function at `ServerRemoved`: the function keeps the server in memory.
        """

    def settled(self, attempt: Attempt) -> None:
        """Take an ended attempt. Do not keep its ``error``, which holds frames and their objects."""
        raise NotImplementedError(f"{type(self).__name__}: define settled(self, attempt)")

    def counter(self, attempt: Attempt) -> Callable[[float, float], object] | None:
        """Return a function that takes further results of this attempt's tool in place of `settled`, at less cost.

        The function is called with ``queued`` and ``served`` of each further call of the tool with the result ``"ok"``,
        and must not block either. The function is kept as long as the server, so return None beyond a reasonable number
        of tools. If any observer returns None, `settled` of all observers takes the results of the tool.

        Args:
            attempt: a call of a listed tool with the result ``"ok"``, after `settled` has taken it.

        Returns:
            None, by default.
        """
        return None


Counter: TypeAlias = "Callable[[float, float], object]"


@frozen
class ConnectionFacts:
    """The connection of an actor, as far as known.

    Attributes:
        config: the configuration of the server.
        protocol_version: the version of the latest connection; None before the first.
        error: why the actor does not serve; None if it does, or was asked to stop.
    """

    config: ServerConfig
    protocol_version: str | None
    error: Exception | None


Describe: TypeAlias = "Callable[[str], ConnectionFacts]"


class UnderWay(Protocol):
    """The attempt under way of an observed request, kept by the request's `Deadline`."""

    operation: str
    began: float
    since: float | None
    tries: int
    subject: str | None
    sent_at: float | None
    replica: str | None
    request_id: int | str | None


@define(eq=False)
class Observed:
    """The observers of one server, with facts for them.

    The `Caller` (``ref``) reports an attempt in the step that decides about a retry. `Deadline.end` reports a leftover
    attempt as cancelled.

    Attributes:
        lists: returns whether the server lists a tool now.
        describe: returns the facts about an actor of the server.
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

    def succeeded(self, under_way: UnderWay, now: float, is_tool_call: bool, is_error: bool) -> None:
        sent_at = under_way.sent_at
        counters = self._counters.get(under_way.subject) if is_tool_call and not is_error else None
        if counters is None or sent_at is None:
            attempt = self._attempt(under_way, now, "tool_error" if is_error else "ok", "done")
            self._report(attempt)
            if is_tool_call and not is_error and attempt.listed:
                self._find_counters(attempt)
            return
        # With counters, nearly all attempts end here, so everything is inline.
        began = under_way.began if under_way.since is None else under_way.since
        for observer, count in counters:
            try:
                count(sent_at - began, now - sent_at)
            except Exception:
                self._log(observer, f"a result of {under_way.operation}")

    def failed(self, under_way: UnderWay, error: Exception, *, last: bool) -> None:
        """Report a failure, which is raised to the caller if `last`, else retried."""
        result, outcome = judge(error, under_way.sent_at is not None, under_way.request_id is not None)
        self._report(self._attempt(under_way, trio.current_time(), result, outcome, last, error))

    def cancelled(self, under_way: UnderWay) -> None:
        outcome: Outcome = "not_sent" if under_way.sent_at is None else "unknown"
        self._report(self._attempt(under_way, trio.current_time(), "cancelled", outcome))

    def _attempt(
        self,
        under_way: UnderWay,
        now: float,
        result: Result,
        outcome: Outcome,
        last: bool = True,
        error: Exception | None = None,
    ) -> Attempt:
        sent_at = now if under_way.sent_at is None else under_way.sent_at
        began = under_way.began if under_way.since is None else under_way.since
        queued = max(0.0, sent_at - began)  # the pause before a retry may end early
        kind, request_id = under_way.operation.partition(" ")[0], under_way.request_id
        facts = under_way.subject, under_way.tries, under_way.replica, request_id
        return Attempt(self, kind, *facts, result, outcome, queued, now - sent_at, last, error)

    def refused(self, kind: str, subject: object, error: Exception) -> None:
        """Report a request refused in the step of its caller."""
        target = subject if isinstance(subject, str) else None
        self._report(Attempt(self, kind, target, result="error", outcome="not_sent", error=error))

    def _report(self, attempt: Attempt) -> None:
        """Call the observers. `SystemExit` and `KeyboardInterrupt` propagate."""
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
        if observer not in self._logged:
            self._logged.add(observer)
            text = "observer %s raised on %s; the request is not affected, and this is logged once"
            logger.exception(text, shown(observer), what)


@define(eq=False)
class Attempt:
    """One ended attempt of a request to a server. Do not change it.

    Attributes:
        kind: the protocol's method: ``"tools/call"``.
        target: the tool or prompt, or the URI of the resource, with credentials masked; None for other requests.
        attempt: 1 for the first attempt of its request, 2 for the first retry.
        replica: the last actor to have the attempt, as in events (``"time:2"``); None if never handed over.
        request_id: the JSON-RPC id of the latest message; None without a message.
        result: ``"ok"``; ``"tool_error"`` (a result with ``is_error``); ``"timed_out"`` (`RequestTimedOut`); ``"lost"``
            (`ConnectionLost`); ``"unavailable"`` (`ServerUnavailable`, `ConnectFailed`); ``"cancelled"`` (the caller
            has left); ``"error"`` (any other exception).
        outcome: ``"done"``: the server has answered; ``"not_sent"``: an effect is impossible; ``"unknown"``: an effect
            is possible.
        queued: seconds until the attempt was handed over to an actor, or ended in the queue.
        served: seconds from then to the end; 0 if never handed over.
        last: True if no further attempt of the request follows. Each request has exactly one last attempt.
        error: the exception for the caller, or the failure to be retried; None for a result or a cancellation.
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
    """Return the result and the outcome of an attempt with an error.

    `handed_over` is True if a connection had the request, and `asked` if the transport was given a message.
    """
    result: Result = next((result for kind, result in RESULTS.items() if isinstance(error, kind)), "error")
    refused = isinstance(error, NOT_SENT) or (isinstance(error, NotSupported) and not asked)
    if refused or not handed_over:  # the error of an unsent retry may say "unknown", because of an earlier attempt
        return result, "not_sent"
    if isinstance(error, HttpStatusError):
        return result, "unknown" if meaning_of(error.status).trouble else "done"
    return result, getattr(error, "outcome", "done" if isinstance(error, ANSWERS) else "unknown")
