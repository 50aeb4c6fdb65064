"""The circuit breaker of one server: when requests fail at once, without being sent. A pure state machine.

The pattern is Nygard's (*Release It!*): a caller learns at once what it would learn after a time-out, and a server that
has trouble is left alone, but for one probe now and then.

    closed ── so many failures in a row ──► open ── reset_after is over, and somebody asks ──► half-open
      ▲                                      ▲                                                  │    │
      │                                      └──────────────── the probe fails ─────────────────┘    │
      └─────────────────────────────────────────────── the probe is answered ────────────────────────┘

There is no timer: whoever asks first after that time becomes the probe, and the breaker is half-open for as long as
that probe is out. A probe that comes to nothing, because its caller left, leaves the place to the next; so the breaker
cannot be stuck.

Whoever is let through gets a ticket, which is the number of the breaker's present phase. What became of a request is
counted only in the phase in which it was let through: a time-out of a call from before the breaker opened says nothing
about the server that has answered the probe since.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

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
from ..basics import problem_of

if TYPE_CHECKING:
    from datetime import datetime

    from ...config import BreakerPolicy

__all__ = ["Breaker", "BreakerState", "Evidence", "Ticket", "evidence"]

BreakerState = Literal["closed", "open", "half_open"]
Evidence = Literal["success", "failure", "nothing"]
Ticket = int

_TROUBLED_4XX: Final = frozenset({408, 429})
"""Request Timeout and Too Many Requests: with any other 4xx the server has judged the request."""


def evidence(error: BaseException | None, *, server: str) -> Evidence:
    """What the outcome of a request says about its server.

    Args:
        error: what it failed with; None if it had a result, one with ``is_error`` included.
        server: whose request it was. What a middleware passes on about another server says nothing about this one.

    Returns:
        ``"failure"`` for a time-out, a lost connection, one that could not be made, and the HTTP statuses 408, 429 and
        5xx. ``"success"`` for whatever else the server answered. ``"nothing"`` for what did not come from the server: a
        cancellation, a limit of ours, an exception of a middleware.
    """
    match error:
        case ServerError() if error.server != server:
            return "nothing"
        case RequestTimedOut() | ConnectionLost() | ConnectFailed():
            return "failure"
        case HttpStatusError(status=status):
            return "failure" if status in _TROUBLED_4XX or 500 <= status <= 599 else "success"
        case None | MCPError() | InvalidResult():
            return "success"
        case _:
            return "nothing"


@define(eq=False)
class Breaker:
    """The breaker of one server, which lives as long as the server is in its group.

    All times are on one clock, in seconds: the caller's `trio.current_time`.

    Attributes:
        server: the server's name.
        policy: when it opens, and for how long.
        state: ``"half_open"`` is it only while its probe is out.
        failures: how many there were in a row, since the last success.
        retry_at: when a probe is let through, or was; None while it is closed. A time that has passed means that the
            probe is out, or that nobody has asked since.
        last_error: the last failure that counted; None after a success.
    """

    server: str
    policy: BreakerPolicy
    state: BreakerState = field(default="closed", init=False)
    failures: int = field(default=0, init=False)
    retry_at: float | None = field(default=None, init=False)
    last_error: BaseException | None = field(default=None, init=False)
    _phase: Ticket = field(default=0, init=False)

    def admit(self, now: float) -> Ticket | None:
        """Ask to send a request.

        Returns:
            A ticket for `settle`, which must be called with it, whatever becomes of the request; None if the request is
            not to be sent (see `refusal`).
        """
        if self.retry_at is None:
            return self._phase
        if self.state == "half_open" or now < self.retry_at:
            return None
        self._enter("half_open")
        return self._phase

    def settle(self, ticket: Ticket, now: float, error: BaseException | None = None) -> None:
        """A request that was let through has come to its end.

        Args:
            ticket: its ticket. A second time it counts for nothing, if it was the probe's.
            now: the time.
            error: what it failed with, a cancellation included; None if it had a result.
        """
        if ticket != self._phase:
            return
        match evidence(error, server=self.server):
            case "success":
                self._succeeded()
            case "failure":
                self._failed(now, error)
            case "nothing" if self.state == "half_open":
                self._enter("open")

    def refusal(self, state: str, now: float, wall: datetime, *, again: bool = False) -> ServerUnavailable:
        """The error for a request that was not let through.

        Args:
            state: the state of the server.
            now: the time.
            wall: the same by the wall clock, which is what the error shows.
            again: whether the request was sent before, and was to be sent again.
        """
        assert self.retry_at is not None  # a closed breaker refuses nothing
        left = self.retry_at - now
        after = f" ({problem_of(self.last_error)})" if self.last_error is not None else ""
        what = "1 request" if self.failures == 1 else f"{self.failures} requests"
        until = f"the next is let through in {max(left, 0.1):.1f} s" if left > 0 else "one is with it, as a probe"
        this = "this one was not sent again" if again else "this one was not sent"
        error = ServerUnavailable(
            f"server {self.server!r}: its last {what} failed{after}, so {this}; {until}; wait for that, or "
            "see what is wrong with the server",
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
        if self.failures >= self.policy.failures:  # a probe's too: the count goes on from what opened it
            self.retry_at = now + self.policy.reset_after
            self._enter("open")

    def _enter(self, state: BreakerState) -> None:
        self.state = state
        self._phase += 1
