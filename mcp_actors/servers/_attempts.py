"""Report to observers how each attempt of a request ended.

An `Attempt` is made for each attempt of a caller's request, if the group has a `CallObserver`; without one there is
none, and all that is left is a test of an attribute. `Observed` is what the attempts to one server share. `judge`
decides the result and the outcome from the error of the caller.

The caller of ``ref`` makes an attempt, and settles it in the step in which it decides whether another one follows; the
actor notes when it was handed over; a deadline that ends with its attempt open settles it as cancelled. The file uses
errors and ``_rules``, reads Trio's clock, and logs an observer that raises. Decision 53 lists every way in which an
attempt can end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio
from attrs import define, field
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
from ._rules import meaning_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config import ServerConfig
    from ..kernel import Event


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

    def settled(self, attempt: Attempt) -> None:
        """Take an attempt that has ended. Do not keep its ``error``, which refers to frames and what they hold."""
        raise NotImplementedError(f"{type(self).__name__}: define settled(self, attempt)")


@define(eq=False)
class Observed:
    """The observers of one server, and facts about it for them.

    Attributes:
        observers: the observers of the group.
        lists: whether the server lists a tool now.
        described: returns the configuration of the server, and the protocol version of its latest connection.
    """

    observers: tuple[CallObserver, ...]
    lists: Callable[[str], bool]
    described: Callable[[], tuple[ServerConfig, str | None]]
    _logged: set[CallObserver] = field(factory=set, init=False)

    def report(self, attempt: Attempt, now: float) -> None:
        """Call the observers at the end of an attempt. An exit of the program (`SystemExit`, Ctrl-C) leaves."""
        sent_at = attempt.sent_at
        if sent_at is None:
            attempt.queued = max(0.0, now - attempt.began)  # the pause before it may end early
        else:
            attempt.queued, attempt.served = sent_at - attempt.began, now - sent_at
        for observer in self.observers:
            try:
                observer.settled(attempt)
            except Exception:
                if observer not in self._logged:
                    self._logged.add(observer)
                    text = "observer %s raised on %s; the request is not affected, and this is logged once"
                    logger.exception(text, shown(observer), shown(attempt))


class Attempt:
    """One attempt of a request to a server, which has ended. Do not change it.

    Attributes:
        server: the server's name.
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
        began: `trio.current_time` when it began, after the pause before a retry.
        sent_at: the same when it was handed over; None if it never was.
    """

    # Each observed call makes one. Defaults of the class cost it nothing, unlike those of an attrs class.
    attempt: int = 1
    replica: str | None = None
    request_id: int | str | None = None
    result: Result = "cancelled"
    outcome: Outcome = "not_sent"
    queued: float = 0.0
    served: float = 0.0
    last: bool = True
    error: Exception | None = None
    sent_at: float | None = None

    def __init__(self, server: str, kind: str, target: str | None, began: float, observed: Observed) -> None:
        self.server = server
        self.kind = kind
        self.target = target
        self.began = began
        self._observed = observed

    def __repr__(self) -> str:
        end = f"{self.result}, {self.outcome}{'' if self.last else ', is retried'}"
        return f"<Attempt {self.attempt} of {self.kind} {self.target!r} of server {self.server!r}: {end}>"

    @property
    def listed(self) -> bool:
        """Whether `target` is a tool that the server lists now."""
        return self.kind == "tools/call" and self.target is not None and self._observed.lists(self.target)

    @property
    def config(self) -> ServerConfig:
        """The configuration of the server."""
        return self._observed.described()[0]

    @property
    def protocol_version(self) -> str | None:
        """The protocol version of the latest connection to the server; None before the first."""
        return self._observed.described()[1]

    def handed_over(self, replica: str, request_id: int | str | None = None, *, at_once: bool = False) -> None:
        """Note that a connection has taken it, in the step in which its request began if `at_once`."""
        self.replica, self.request_id = replica, request_id
        self.sent_at = self.began if at_once else trio.current_time()

    def put_back(self) -> None:
        """Note that it waits in the mailbox again, because nothing of it was sent."""
        self.sent_at = self.request_id = None

    def succeeded(self, now: float, *, is_error: bool) -> None:
        """Report a result."""
        self.result, self.outcome = "tool_error" if is_error else "ok", "done"
        self._observed.report(self, now)

    def failed(self, error: Exception) -> None:
        """Report a failure that is raised to the caller."""
        self.error = error
        self.result, self.outcome = judge(error, self.sent_at is not None, self.request_id is not None)
        self._observed.report(self, trio.current_time())

    def cancelled(self) -> None:
        """Report that the caller has left."""
        self.outcome = "not_sent" if self.sent_at is None else "unknown"
        self._observed.report(self, trio.current_time())

    def retried(self, error: Exception, delay: float) -> Attempt:
        """Report a failure that is not raised; return the attempt that follows after a pause."""
        self.last = False
        self.failed(error)
        began = trio.current_time() + delay
        follows = Attempt(self.server, self.kind, self.target, began, self._observed)
        follows.attempt = self.attempt + 1
        return follows


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
    judged = isinstance(error, HttpStatusError) and not meaning_of(error.status).trouble
    return result, "done" if judged or isinstance(error, ANSWERS) else getattr(error, "outcome", "unknown")
