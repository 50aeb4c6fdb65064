"""The circuit breaker of one server, as a pure state machine.

The pattern is Nygard's (*Release It!*): while a server has trouble, its requests fail at once without being sent,
except for one probe now and then.

    closed ── several failures in a row ──► open ── reset_after has passed, and a request asks ──► half-open
      ▲                                      ▲                                                      │    │
      │                                      └────────────────── the probe fails ───────────────────┘    │
      └───────────────────────────────────────────────── the probe is answered ──────────────────────────┘

There is no timer: the first request after that time becomes the probe, and the breaker stays half-open until the probe
ends. If the probe ends without evidence, because its caller left, the next request becomes the probe; so the breaker
cannot get stuck.

Each admitted request holds a ticket, the number of the breaker's phase. Its outcome counts only in the same phase: the
timeout of a call from before the breaker opened says nothing about a server that has answered the probe since.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from attrs import define, field
from mcp import MCPError

from ..._collapse import caused_by
from ..._errors import (
    ConnectFailed,
    ConnectionLost,
    HttpStatusError,
    InvalidResult,
    RequestTimedOut,
    ServerError,
    ServerUnavailable,
)
from ..._text import own_shortage, problem_of
from ._statuses import meaning_of

if TYPE_CHECKING:
    from datetime import datetime

    from ...config import BreakerPolicy

BreakerState = Literal["closed", "open", "half_open"]
Evidence = Literal["success", "failure", "nothing"]
Ticket = int


def evidence(error: BaseException | None, *, server: str, serves: bool = False) -> Evidence:
    """Classify the outcome of a request as evidence about its server.

    Args:
        error: the failure; None for any result, one with ``is_error`` included.
        server: the name of the request's server. An error about another one counts as ``"nothing"``.
        serves: whether another replica of the server serves. The loss of one counts as ``"nothing"`` then, because all
            of its requests fail with it.

    Returns:
        ``"failure"`` for a timeout, a lost or failed connection, and the HTTP statuses 408, 429 and 5xx. ``"success"``
        for any other answer of the server. ``"nothing"`` for outcomes that are not the server's: a cancellation, a
        local limit or shortage, an exception of a middleware.
    """
    match error:
        case ServerError() if error.server != server or own_shortage(error) is not None:
            return "nothing"
        case ConnectionLost() if serves:
            return "nothing"
        case RequestTimedOut() | ConnectionLost() | ConnectFailed():
            return "failure"
        case HttpStatusError(status=status):
            return "failure" if meaning_of(status).trouble else "success"
        case None | MCPError() | InvalidResult():
            return "success"
        case _:
            return "nothing"


@define(eq=False)
class Breaker:
    """The breaker of one server, kept while the server is in its group.

    All times are in seconds on one clock, `trio.current_time`.

    Attributes:
        server: the server's name.
        policy: when the breaker opens, and for how long.
        state: ``"half_open"`` only while a probe is under way.
        failures: the number of failures since the last success.
        retry_at: from when on a probe is admitted; None while the breaker is closed.
        last_error: the latest failure that counted; None after a success.
    """

    server: str
    policy: BreakerPolicy
    state: BreakerState = field(default="closed", init=False)
    failures: int = field(default=0, init=False)
    retry_at: float | None = field(default=None, init=False)
    last_error: BaseException | None = field(default=None, init=False)
    _phase: Ticket = field(default=0, init=False)

    def admit(self, now: float) -> Ticket | None:
        """Admit or refuse a request.

        Returns:
            A ticket, which must be passed to `settle` however the request ends; None if the request must not be sent
            (see `refusal`).
        """
        if self.retry_at is None:
            return self._phase
        if self.state == "half_open" or now < self.retry_at:
            return None
        self._enter("half_open")
        return self._phase

    def settle(self, ticket: Ticket, now: float, error: BaseException | None = None, *, serves: bool = False) -> None:
        """Count the outcome of an admitted request.

        Args:
            ticket: its ticket.
            now: the current time.
            error: the failure, a cancellation included; None for a result.
            serves: whether another replica of the server serves.
        """
        if ticket != self._phase:
            return
        match evidence(error, server=self.server, serves=serves):
            case "success":
                self._succeeded()
            case "failure":
                self._failed(now, error)
            case "nothing" if self.state == "half_open":
                self._enter("open")

    def refusal(self, state: str, now: float, wall: datetime, *, again: bool = False) -> ServerUnavailable:
        """Return the error for a refused request.

        Args:
            state: the state of the server.
            now: the current time.
            wall: the same moment by the wall clock, for the error.
            again: whether the refused attempt was a retry.
        """
        assert self.retry_at is not None  # a closed breaker refuses nothing
        left = self.retry_at - now
        after = f" ({problem_of(self.last_error)})" if self.last_error is not None else ""
        what = "1 request" if self.failures == 1 else f"{self.failures} requests"
        until = f"the next request is sent in {max(left, 0.1):.1f} s" if left > 0 else "a probe request is under way"
        this = "this one was not retried" if again else "this one was not sent"
        error = ServerUnavailable(
            f"server {self.server!r}: circuit breaker open: its last {what} failed{after}, so {this}; {until}; "
            "retry later, or check the server",
            server=self.server,
            state=state,
            last_error=self.last_error,
            retry_at=wall + timedelta(seconds=left),
        )
        return caused_by(error, self.last_error)

    def _succeeded(self) -> None:
        self.failures = 0
        self.last_error = None
        if self.state != "closed":
            self.retry_at = None
            self._enter("closed")

    def _failed(self, now: float, error: BaseException | None) -> None:
        self.failures += 1
        self.last_error = error
        if self.failures >= self.policy.failures:  # also after a failed probe, because the count was not reset
            self.retry_at = now + self.policy.reset_after
            self._enter("open")

    def _enter(self, state: BreakerState) -> None:
        self.state = state
        self._phase += 1
