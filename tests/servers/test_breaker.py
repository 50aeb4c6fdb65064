"""The circuit breaker as a pure state machine: what opens it, who is let through, and what closes it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
import trio
from attrs import define
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mcp import MCPError

from mcp_actors import (
    BreakerPolicy,
    ConnectFailed,
    ConnectionLost,
    HttpStatusError,
    InvalidArguments,
    InvalidResult,
    LimitExceeded,
    RequestTimedOut,
    ServerError,
    ServerUnavailable,
    ToolNotFound,
)
from mcp_actors.servers._rules import Breaker, Ticket, evidence

from ..messages import Said

LOST: Final = ConnectionLost("server 's': the connection ended", server="s")
TIMED_OUT: Final = RequestTimedOut(
    "server 's': late", server="s", operation="tools/list", seconds=60.0, limit="request_timeout"
)
NOT_CONNECTED: Final = ConnectFailed("server 's': no connection", server="s", phase="open")
NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
OWN: Final = ValueError("a middleware raised")


def status(code: int) -> HttpStatusError:
    return HttpStatusError(f"server 's': answered with {code}", server="s", status=code)


def opened(failures: int = 2, reset_after: float = 30.0, *, at: float = 0.0) -> Breaker:
    """Return a breaker that has just opened."""
    breaker = Breaker("s", BreakerPolicy(failures=failures, reset_after=reset_after))
    for _ in range(failures):
        breaker.settle(let_through(breaker, at), at, LOST)
    assert breaker.state == "open"
    return breaker


def let_through(breaker: Breaker, now: float) -> Ticket:
    ticket = breaker.admit(now)
    assert ticket is not None
    return ticket


class TestEvidence:
    @pytest.mark.parametrize("error", [LOST, TIMED_OUT, NOT_CONNECTED], ids=lambda error: type(error).__name__)
    def test_time_outs_and_lost_connections_are_failures(self, error: Exception) -> None:
        assert evidence(error, server="s") == "failure"

    def test_of_the_statuses_408_429_and_5xx_are_failures_and_all_others_are_answers(self) -> None:
        said = {code: evidence(status(code), server="s") for code in range(100, 700)}
        assert {code for code, what in said.items() if what == "failure"} == {408, 429, *range(500, 600)}
        assert {*said.values()} == {"failure", "success"}

    @pytest.mark.parametrize("code", [-32603, -32602, -32601, -32001, -32000, 0])
    def test_a_result_and_errors_that_the_server_answers_are_successes(self, code: int) -> None:
        assert evidence(None, server="s") == "success"
        assert evidence(MCPError(code, "no"), server="s") == "success"

    def test_a_result_that_breaks_its_output_schema_is_a_success_too(self) -> None:
        assert (
            evidence(InvalidResult("server 's': bad", server="s", tool="t", path=(), result=None), server="s")
            == "success"
        )

    @pytest.mark.parametrize(
        "error",
        [
            LimitExceeded("server 's': its mailbox is full", server="s"),
            ServerUnavailable("server 's': stopped", server="s", state="stopped"),
            ServerError("server 's': the request was not sent", server="s"),
            ToolNotFound("server 's': no such tool", server="s"),
            InvalidArguments("server 's': bad", server="s", tool="t", path=("x",)),
            OWN,
            TimeoutError("a middleware's own"),
            trio.TooSlowError(),
            KeyboardInterrupt(),
            ExceptionGroup("several", [LOST, TIMED_OUT]),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_a_failure_that_is_not_the_servers_is_not_evidence(self, error: BaseException) -> None:
        assert evidence(error, server="s") == "nothing"

    def test_a_middlewares_error_about_another_server_is_not_evidence(self) -> None:
        assert evidence(LOST, server="other") == "nothing"


class TestOpening:
    def test_a_number_of_failures_in_a_row_opens_the_breaker(self) -> None:
        breaker = Breaker("s", BreakerPolicy(failures=3, reset_after=30))
        for now in (1.0, 2.0):
            breaker.settle(let_through(breaker, now), now, LOST)
        assert (breaker.state, breaker.failures, breaker.retry_at) == ("closed", 2, None)
        breaker.settle(let_through(breaker, 3.0), 4.0, TIMED_OUT)
        assert (breaker.state, breaker.failures, breaker.retry_at) == ("open", 3, 34.0)
        assert breaker.last_error is TIMED_OUT

    @pytest.mark.parametrize("answer", [None, MCPError(-32603, "internal"), status(404)], ids=repr)
    def test_an_answer_in_between_starts_the_count_afresh(self, answer: Exception | None) -> None:
        breaker = Breaker("s", BreakerPolicy(failures=2))
        for error in (LOST, answer, LOST):
            breaker.settle(let_through(breaker, 0.0), 0.0, error)
        assert (breaker.state, breaker.failures) == ("closed", 1)

    def test_an_outcome_without_evidence_does_not_change_the_count(self) -> None:
        breaker = Breaker("s", BreakerPolicy(failures=2))
        for error in (LOST, OWN, OWN, OWN):
            breaker.settle(let_through(breaker, 0.0), 0.0, error)
        assert (breaker.state, breaker.failures) == ("closed", 1)
        breaker.settle(let_through(breaker, 0.0), 0.0, LOST)
        assert breaker.state == "open"

    def test_failures_of_requests_that_were_sent_together_count_each(self) -> None:
        breaker = Breaker("s", BreakerPolicy(failures=3))
        tickets = [let_through(breaker, 0.0) for _ in range(3)]
        for ticket in tickets:
            breaker.settle(ticket, 1.0, LOST)
        assert breaker.state == "open"

    def test_an_outcome_from_before_it_opened_is_ignored(self) -> None:
        breaker = Breaker("s", BreakerPolicy(failures=2, reset_after=30))
        tickets = [let_through(breaker, 0.0) for _ in range(4)]
        breaker.settle(tickets[0], 1.0, LOST)
        breaker.settle(tickets[1], 1.0, LOST)
        breaker.settle(tickets[2], 20.0, LOST)  # would keep it open for longer
        breaker.settle(tickets[3], 20.0)  # would close it
        assert (breaker.state, breaker.failures, breaker.retry_at) == ("open", 2, 31.0)


class TestHalfOpen:
    def test_requests_are_refused_until_retry_at_and_then_one_is_admitted(self) -> None:
        breaker = opened(reset_after=30, at=10.0)
        assert breaker.admit(10.0) is None
        assert breaker.admit(math.nextafter(40.0, 0.0)) is None
        states = [breaker.state]
        assert breaker.admit(40.0) is not None
        states.append(breaker.state)
        assert states == ["open", "half_open"]

    def test_there_is_exactly_one_probe(self) -> None:
        breaker = opened()
        let_through(breaker, 30.0)
        assert [breaker.admit(now) for now in (30.0, 31.0, 1e9)] == [None, None, None]

    @pytest.mark.parametrize("answer", [None, MCPError(-32602, "unknown tool"), status(401)], ids=repr)
    def test_a_probe_that_is_answered_closes_it(self, answer: Exception | None) -> None:
        breaker = opened(failures=2)
        breaker.settle(let_through(breaker, 30.0), 31.0, answer)
        assert (breaker.state, breaker.failures) == ("closed", 0)
        assert (breaker.retry_at, breaker.last_error) == (None, None)
        breaker.settle(let_through(breaker, 31.0), 31.0, LOST)
        assert breaker.state == "closed"  # it takes two again

    def test_a_failed_probe_opens_the_breaker_again_for_reset_after(self) -> None:
        breaker = opened(failures=2, reset_after=30)
        breaker.settle(let_through(breaker, 30.0), 45.0, TIMED_OUT)
        assert (breaker.state, breaker.failures, breaker.retry_at) == ("open", 3, 75.0)
        assert breaker.admit(math.nextafter(75.0, 0.0)) is None
        assert breaker.admit(75.0) is not None

    async def test_a_probe_whose_caller_leaves_makes_room_for_the_next(self) -> None:
        breaker = opened(failures=2, reset_after=30)
        ticket = let_through(breaker, 30.0)
        with trio.CancelScope() as scope:
            scope.cancel("the caller leaves")
            with pytest.raises(trio.Cancelled) as caught:
                await trio.lowlevel.checkpoint()
        breaker.settle(ticket, 31.0, caught.value)
        assert (breaker.state, breaker.failures, breaker.retry_at) == ("open", 2, 30.0)
        second = let_through(breaker, 31.0)
        assert breaker.admit(31.0) is None
        breaker.settle(second, 32.0)
        assert breaker.state == "closed"

    def test_a_probe_that_is_settled_twice_counts_once(self) -> None:
        breaker = opened()
        first = let_through(breaker, 30.0)
        breaker.settle(first, 31.0, OWN)
        let_through(breaker, 31.0)
        breaker.settle(first, 32.0)
        assert breaker.state == "half_open"

    def test_an_outcome_from_before_it_opened_does_not_settle_the_probe(self) -> None:
        breaker = Breaker("s", BreakerPolicy(failures=1, reset_after=30))
        old = [let_through(breaker, 0.0) for _ in range(3)]
        breaker.settle(old[0], 0.0, LOST)
        probe = let_through(breaker, 30.0)
        breaker.settle(old[1], 30.0)
        assert breaker.state == "half_open"
        breaker.settle(probe, 31.0)
        breaker.settle(old[2], 32.0, LOST)
        assert (breaker.state, breaker.failures) == ("closed", 0)


class TestRefusal:
    def test_a_refusal_names_the_failure_and_the_time_of_the_next_request(self, said: Said) -> None:
        breaker = opened(failures=2, reset_after=30, at=100.0)
        error = breaker.refusal("ready", 117.5, NOON)
        said("breaker open", str(error))
        assert (error.server, error.state, error.retry_at) == ("s", "ready", NOON + timedelta(seconds=12.5))
        assert error.last_error is error.__cause__ is LOST

    def test_a_refusal_says_that_a_probe_is_under_way(self) -> None:
        breaker = opened(failures=1)
        let_through(breaker, 30.0)
        error = breaker.refusal("ready", 30.0, NOON)
        assert "its last 1 request failed" in str(error)
        assert "not sent; a probe request is under way; retry" in str(error)
        assert error.retry_at == NOON

    def test_a_refused_retry_is_not_called_unsent(self) -> None:
        assert "so this one was not retried; the next" in str(opened(at=0.0).refusal("ready", 1.0, NOON, again=True))

    def test_a_refusal_without_a_known_failure_names_none(self) -> None:
        breaker = opened(at=0.0)
        breaker.last_error = None
        assert "its last 2 requests failed, so this one" in str(breaker.refusal("ready", 1.0, NOON))

    def test_a_short_wait_is_not_shown_as_zero(self) -> None:
        assert "in 0.1 s" in str(opened(at=0.0).refusal("ready", 29.999, NOON))

    def test_every_caller_gets_an_error_of_its_own(self) -> None:
        breaker = opened()
        assert breaker.refusal("ready", 1.0, NOON) is not breaker.refusal("ready", 1.0, NOON)

    def test_only_the_errors_of_a_breaker_have_a_time_to_retry(self) -> None:
        assert ServerUnavailable("server 's': stopped", server="s", state="stopped").retry_at is None


# --- model ----------------------------------------------------------------------------------------------------------


@define(eq=False)
class Sent:
    """A request that is with the server."""

    ticket: Ticket
    round: int
    probe: bool


class BreakerMachine(RuleBasedStateMachine):
    """Overlapping requests, compared with a model that keeps the outcomes between two changes of state."""

    @initialize(failures=st.integers(1, 4), reset_after=st.sampled_from([1.0, 2.5, 10.0]))
    def make(self, failures: int, reset_after: float) -> None:
        self.policy = BreakerPolicy(failures=failures, reset_after=reset_after)
        self.breaker = Breaker("s", self.policy)
        self.now = 0.0
        self.sent: list[Sent] = []
        self.round = 0  # counts how often it closed or opened; outcomes of another round count for nothing
        self.outcomes: list[str] = []
        self.opened_at: float | None = None
        self.probe: Sent | None = None

    def is_open(self) -> bool:
        return self.opened_at is not None

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 2.5, 9.5, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        ticket = self.breaker.admit(self.now)
        if self.opened_at is None:
            expected = True
        else:
            expected = self.probe is None and self.now - self.opened_at >= self.policy.reset_after
        assert (ticket is not None) is expected
        if ticket is None:
            error = self.breaker.refusal("ready", self.now, NOON)
            until = (self.opened_at or 0.0) + self.policy.reset_after
            assert error.retry_at == NOON + timedelta(seconds=until - self.now)
            return
        request = Sent(ticket, self.round, probe=self.is_open())
        if request.probe:
            self.probe = request
        self.sent.append(request)

    @precondition(lambda self: bool(getattr(self, "sent", None)))
    @rule(which=st.integers(0, 10**6), error=st.sampled_from([None, status(404), LOST, TIMED_OUT, status(503), OWN]))
    def settle(self, which: int, error: Exception | None) -> None:
        request = self.sent.pop(which % len(self.sent))
        self.breaker.settle(request.ticket, self.now, error)
        fails, says_nothing = error in (LOST, TIMED_OUT) or getattr(error, "status", 0) == 503, error is OWN
        if request.probe:
            assert request is self.probe
            self.probe = None
            if fails:
                self.change(opened_at=self.now)
            elif not says_nothing:
                self.change(opened_at=None)
        elif request.round == self.round and not self.is_open() and not says_nothing:
            self.outcomes.append("failure" if fails else "success")
            if self.outcomes[-self.policy.failures :] == ["failure"] * self.policy.failures:
                self.change(opened_at=self.now)

    def change(self, *, opened_at: float | None) -> None:
        self.round += 1
        self.outcomes = []
        self.opened_at = opened_at

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "breaker"):
            return
        half = self.probe is not None
        assert self.breaker.state == ("half_open" if half else "open" if self.is_open() else "closed")
        assert (self.breaker.retry_at is None) is not self.is_open()
        assert sum(request.probe for request in self.sent) == half  # one probe at most, and never a lost one


TestBreakerModel = BreakerMachine.TestCase
