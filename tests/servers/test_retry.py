"""The pure rules of retries: which failures, after how long, and how many per server."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import attrs
import mcp.types
import pytest
import trio
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mcp import MCPError
from mcp.types import ToolAnnotations

from mcp_actors import (
    Backoff,
    ConnectFailed,
    ConnectionLost,
    HttpStatusError,
    InvalidArguments,
    InvalidResult,
    LimitExceeded,
    RetryPolicy,
    ServerError,
    ServerUnavailable,
    ToolNotFound,
)
from mcp_actors.config import RetryBudget
from mcp_actors.servers._rules import NoRetry, Retries, Retry, RetryTokens, is_repeatable_call, is_transient

LARGE: Final = RetryBudget(max_tokens=1000, token_ratio=1)


def lost(cause: BaseException | None = None) -> ConnectionLost:
    error = ConnectionLost("server 's': lost", server="s")
    error.__cause__ = cause
    return error


def status(code: int, retry_after: float | None = None) -> HttpStatusError:
    return HttpStatusError("server 's': said no", server="s", status=code, retry_after=retry_after)


def not_connected(*, hopeless: bool = False, http_status: int | None = None) -> ConnectFailed:
    return ConnectFailed(
        "server 's': no connection", server="s", phase="open", hopeless=hopeless, http_status=http_status
    )


def too_long() -> LimitExceeded:
    return LimitExceeded("server 's': too long", server="s")


def retries(
    policy: RetryPolicy | None = None, *, repeatable: bool = True, deadline: float = math.inf
) -> tuple[Retries, RetryTokens]:
    policy = policy or RetryPolicy(budget=LARGE)
    tokens = RetryTokens(policy.budget)
    return Retries(policy, tokens, repeatable, deadline), tokens


class TestWhatMayPass:
    @pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504, 507, 520, 599])
    def test_transient_statuses_may_be_retried(self, code: int) -> None:
        assert is_transient(status(code))

    def test_no_other_status_may_be_retried(self) -> None:
        passing = {code for code in range(100, 700) if is_transient(status(code))}
        assert passing == {408, 425, 429, *range(500, 600)} - {501, 505}

    @pytest.mark.parametrize("cause", [None, OSError("reset"), MCPError(-32000, "Connection closed")])
    def test_a_lost_connection_may_be_retried(self, cause: BaseException | None) -> None:
        assert is_transient(lost(cause))

    def test_a_connection_lost_to_a_message_over_the_limit_may_not_be_retried(self) -> None:
        assert not is_transient(lost(too_long()))

    def test_a_failed_connect_may_be_retried_unless_it_is_hopeless_or_its_status_is_lasting(self) -> None:
        assert is_transient(not_connected())
        assert is_transient(not_connected(http_status=503))
        assert not is_transient(not_connected(hopeless=True))
        assert not is_transient(not_connected(http_status=401))
        assert not is_transient(not_connected(http_status=503, hopeless=True))

    def test_only_internal_errors_and_timeouts_of_mcp_may_be_retried(self) -> None:
        names = [name for name in dir(mcp.types) if name.isupper() and isinstance(getattr(mcp.types, name), int)]
        passing = {name for name in names if is_transient(MCPError(getattr(mcp.types, name), "no"))}
        assert passing == {"INTERNAL_ERROR", "REQUEST_TIMEOUT"}
        assert {"INVALID_PARAMS", "METHOD_NOT_FOUND", "INVALID_REQUEST", "CONNECTION_CLOSED"} <= {*names}

    @pytest.mark.parametrize("code", [-32700, -32602, -32601, -32600, -32042, -32029, -32002, -32000, 0, 1, 503])
    def test_errors_about_the_request_and_codes_of_the_server_may_not_be_retried(self, code: int) -> None:
        assert not is_transient(MCPError(code, "no"))

    @pytest.mark.parametrize(
        "error",
        [
            ServerError("server 's': the request was not sent", server="s"),
            ServerUnavailable("server 's': failed", server="s", state="failed"),
            ToolNotFound("server 's': no such tool", server="s"),
            InvalidArguments("server 's': bad", server="s", tool="t", path=("x",)),
            InvalidResult("server 's': bad", server="s", tool="t", path=(), result=None),
            too_long(),
            ValueError("somebody's code"),
            TimeoutError("the time for all attempts is over"),
            trio.TooSlowError(),
            KeyboardInterrupt(),
            ExceptionGroup("two", [lost(), status(503)]),
            ExceptionGroup("one", [lost()]),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_no_other_failure_may_be_retried(self, error: BaseException) -> None:
        assert is_transient(error) is False
        assert retries()[0].failed(error, 0.0) == NoRetry("final")

    async def test_the_cancellation_of_the_caller_may_not_be_retried(self) -> None:
        with trio.CancelScope() as scope:
            scope.cancel("the caller leaves")
            with pytest.raises(trio.Cancelled) as caught:
                await trio.lowlevel.checkpoint()
        assert retries()[0].failed(caught.value, 0.0) == NoRetry("final")


class TestWhatMayBeRepeated:
    def test_the_callers_statement_wins_over_annotations(self) -> None:
        for trusted in (False, True):
            for hint in (None, False, True):
                annotations = ToolAnnotations(read_only_hint=hint, idempotent_hint=hint)
                assert is_repeatable_call(idempotent=True, trusted=trusted, annotations=annotations)
                assert not is_repeatable_call(idempotent=False, trusted=trusted, annotations=annotations)

    def test_hints_count_only_if_the_server_is_trusted(self) -> None:
        annotations = ToolAnnotations(read_only_hint=True, idempotent_hint=True)
        assert is_repeatable_call(idempotent=None, trusted=True, annotations=annotations)
        assert not is_repeatable_call(idempotent=None, trusted=False, annotations=annotations)

    @pytest.mark.parametrize(
        ("annotations", "repeatable"),
        [
            (None, False),
            (ToolAnnotations(), False),
            (ToolAnnotations(destructive_hint=False), False),
            (ToolAnnotations(open_world_hint=False, title="t"), False),
            (ToolAnnotations(read_only_hint=False), False),
            (ToolAnnotations(idempotent_hint=False), False),
            (ToolAnnotations(read_only_hint=True), True),
            (ToolAnnotations(idempotent_hint=True), True),
            (ToolAnnotations(read_only_hint=False, idempotent_hint=True), True),
            (ToolAnnotations(read_only_hint=True, idempotent_hint=False), True),
            (ToolAnnotations(destructive_hint=True, idempotent_hint=True), True),
        ],
    )
    def test_either_hint_is_enough_and_no_other_counts(
        self, annotations: ToolAnnotations | None, repeatable: bool
    ) -> None:
        assert is_repeatable_call(idempotent=None, trusted=True, annotations=annotations) is repeatable

    @pytest.mark.parametrize("error", [lost(), status(503), status(429, 1.0), MCPError(-32603, "internal")], ids=repr)
    def test_a_tool_call_that_the_server_may_have_acted_on_is_final(self, error: Exception) -> None:
        its, tokens = retries(repeatable=False)
        assert its.failed(error, 0.0) == NoRetry("unsafe")
        assert tokens.left == 999  # the server did fail

    def test_a_tool_call_for_which_no_connection_could_be_made_is_not(self) -> None:
        its, _ = retries(repeatable=False)
        assert its.failed(not_connected(), 0.0, sent=False) == Retry(0.1)
        assert its.failed(lost(), 1.0) == NoRetry("unsafe")

    def test_no_error_alone_makes_a_retry_of_a_tool_call_safe(self) -> None:
        its, _ = retries(repeatable=False)
        assert its.failed(not_connected(), 0.0) == NoRetry("unsafe")

    def test_a_failure_that_would_be_the_same_is_final_even_if_nothing_was_sent(self) -> None:
        its, _ = retries(repeatable=False)
        assert its.failed(not_connected(hopeless=True), 0.0, sent=False) == NoRetry("final")


class TestAttempts:
    def test_by_default_there_are_two_retries(self) -> None:
        its, _ = retries()
        verdicts = [its.failed(lost(), now) for now in (0.0, 10.0, 20.0)]
        assert verdicts == [Retry(0.1), Retry(0.5), NoRetry("attempts")]
        assert its.attempts == 3

    def test_with_one_attempt_there_is_no_retry(self) -> None:
        its, _ = retries(RetryPolicy(attempts=1))
        assert its.failed(lost(), 0.0) == NoRetry("attempts")

    def test_all_pages_and_connections_share_the_attempts(self) -> None:
        its, _ = retries()
        on_page_1 = its.failed(lost(), 0.0)
        on_page_2 = its.failed(not_connected(), 5.0)
        on_page_3 = its.failed(status(503), 9.0)
        assert [on_page_1, on_page_2, on_page_3] == [Retry(0.1), Retry(0.5), NoRetry("attempts")]

    def test_a_final_failure_ends_the_request_however_many_attempts_are_left(self) -> None:
        its, _ = retries()
        assert its.failed(lost(), 0.0) == Retry(0.1)
        assert its.failed(MCPError(-32602, "unknown tool"), 1.0) == NoRetry("final")


class TestDelays:
    def test_jitter_comes_from_the_source_that_is_given(self) -> None:
        its, _ = retries()
        assert its.failed(lost(), 0.0, random=lambda: 0.5) == Retry(0.1 * 1.25)

    def test_a_longer_retry_after_takes_the_place_of_the_backoff(self) -> None:
        its, _ = retries(RetryPolicy(attempts=4, backoff=Backoff(first=2, initial=4)))
        verdicts = [its.failed(status(503, asked), 0.0) for asked in (1.9, 4.1, None)]
        assert verdicts == [Retry(2.0), Retry(4.1), Retry(8.0)]

    def test_a_retry_after_of_nothing_does_not_hurry(self) -> None:
        assert retries()[0].failed(status(429, 0.0), 0.0) == Retry(0.1)

    def test_retry_after_is_capped_at_an_hour(self) -> None:
        assert retries()[0].failed(status(503, 3600.0), 0.0) == Retry(3600.0)
        assert retries()[0].failed(status(503, 86_400.0), 0.0) == Retry(3600.0)

    def test_a_retry_that_would_begin_at_the_deadline_or_after_it_is_too_late(self) -> None:
        policy = RetryPolicy(backoff=Backoff(first=1))
        for deadline, verdict in ((11.0, NoRetry("deadline")), (math.nextafter(11.0, 12.0), Retry(1.0))):
            assert retries(policy, deadline=deadline)[0].failed(lost(), 10.0) == verdict

    def test_a_retry_after_beyond_the_deadline_ends_the_request(self) -> None:
        assert retries(deadline=60.0)[0].failed(status(429, 60.0), 0.0) == NoRetry("deadline")
        assert retries(deadline=60.0)[0].failed(status(429, 59.9), 0.0) == Retry(59.9)

    def test_a_retry_that_was_too_late_does_not_count_as_an_attempt(self) -> None:
        its, _ = retries(deadline=1.0)
        assert its.failed(status(503, 1.0), 0.0) == NoRetry("deadline")
        assert its.attempts == 1


class TestTokens:
    def test_more_than_half_of_the_tokens_must_be_left(self) -> None:
        tokens = RetryTokens(RetryBudget(max_tokens=10, token_ratio=0.1))
        allowed = []
        for _ in range(6):
            tokens.failed()
            allowed.append((tokens.left, tokens.allows))
        assert allowed == [(9, True), (8, True), (7, True), (6, True), (5, False), (4, False)]

    def test_half_of_an_odd_number_is_not_rounded(self) -> None:
        tokens = RetryTokens(RetryBudget(max_tokens=5, token_ratio=0.5))
        tokens.failed()
        tokens.failed()
        assert (tokens.left, tokens.allows) == (3, True)
        tokens.failed()
        tokens.succeeded()
        assert (tokens.left, tokens.allows) == (2.5, False)

    def test_ten_successes_pay_for_one_failure_to_the_thousandth(self) -> None:
        tokens = RetryTokens(RetryBudget(max_tokens=10, token_ratio=0.1))
        for _ in range(5):
            tokens.failed()
        allowed = []
        for _ in range(10):
            allowed.append(tokens.allows)
            tokens.succeeded()
        assert allowed == [False] + [True] * 9
        assert tokens.left == 6

    def test_a_ratio_is_counted_to_the_thousandth_whatever_a_float_makes_of_it(self) -> None:
        tokens = RetryTokens(RetryBudget(max_tokens=10, token_ratio=1.001))
        for change in (tokens.failed, tokens.failed, tokens.succeeded):
            change()
        assert tokens.left == 9.001

    def test_the_bucket_never_exceeds_its_size_or_drops_below_zero(self) -> None:
        tokens = RetryTokens(RetryBudget(max_tokens=2, token_ratio=1000))
        tokens.succeeded()
        assert tokens.left == 2
        for _ in range(3):
            tokens.failed()
        assert tokens.left == 0
        tokens.succeeded()
        assert tokens.left == 2

    def test_all_requests_to_a_server_share_the_bucket(self) -> None:
        policy = RetryPolicy(budget=RetryBudget(max_tokens=6, token_ratio=0.1))
        tokens = RetryTokens(policy.budget)
        verdicts = [Retries(policy, tokens, repeatable=True).failed(status(503), 0.0) for _ in range(4)]
        assert verdicts == [Retry(0.1), Retry(0.1), NoRetry("budget"), NoRetry("budget")]

    def test_final_failures_take_no_tokens(self) -> None:
        its, tokens = retries()
        its.failed(status(404), 0.0)
        its.failed(MCPError(-32602, "wrong argument"), 0.0)
        assert tokens.left == 1000

    def test_one_lost_connection_with_all_that_was_on_it_does_not_use_up_the_default(self) -> None:
        policy = RetryPolicy()
        tokens = RetryTokens(policy.budget)
        verdicts = [Retries(policy, tokens, repeatable=True).failed(lost(), 0.0) for _ in range(64)]
        assert verdicts == [Retry(0.1)] * 64

    def test_a_server_that_always_fails_is_not_given_three_times_as_much_to_do(self) -> None:
        policy = RetryPolicy()
        tokens = RetryTokens(policy.budget)
        sent = 0
        for _ in range(10_000):
            its = Retries(policy, tokens, repeatable=True)
            sent += 1
            while isinstance(its.failed(status(503), 0.0), Retry):
                sent += 1
        assert sent == 10_000 + 66  # a third of the first 99 failures were last attempts


# --- models ---------------------------------------------------------------------------------------------------------

ratios = st.integers(1, 2000).map(lambda thousandths: thousandths / 1000)


class TokensMachine(RuleBasedStateMachine):
    """The bucket, compared with the rule of the proposal, in fractions."""

    @initialize(most=st.integers(1, 12), ratio=ratios)
    def make(self, most: int, ratio: float) -> None:
        self.most, self.ratio = most, Fraction(str(ratio))
        self.tokens = RetryTokens(RetryBudget(max_tokens=most, token_ratio=ratio))
        self.count = Fraction(most)

    @rule(times=st.integers(1, 5))
    def fail(self, times: int) -> None:
        for _ in range(times):
            self.tokens.failed()
            self.count = max(Fraction(0), self.count - 1)

    @rule(times=st.integers(1, 12))
    def succeed(self, times: int) -> None:
        for _ in range(times):
            self.tokens.succeeded()
            self.count = min(Fraction(self.most), self.count + self.ratio)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "tokens"):
            assert self.tokens.left == float(self.count)
            assert self.tokens.allows is (self.count > Fraction(self.most, 2))


TestTokensModel = TokensMachine.TestCase

FINAL: Final = [status(404), status(501), MCPError(-32602, "no"), ValueError("no"), lost(too_long())]
TRANSIENT: Final = [not_connected(), lost(), status(429), status(503, 0.3), status(503, 7.0), MCPError(-32603, "no")]


class RequestMachine(RuleBasedStateMachine):
    """One request after the other, each tried until its verdict; the history of all is the model."""

    @initialize(
        attempts=st.integers(1, 4),
        most=st.integers(2, 30),
        ratio=ratios,
        first=st.sampled_from([0.0, 0.25, 1.0]),
        initial=st.sampled_from([0.0, 0.5, 2.0]),
    )
    def make(self, attempts: int, most: int, ratio: float, first: float, initial: float) -> None:
        backoff = Backoff(first=first, initial=initial, maximum=3.0, factor=2.0)
        self.policy = RetryPolicy(
            attempts=attempts, backoff=backoff, budget=RetryBudget(max_tokens=most, token_ratio=ratio)
        )
        self.tokens = RetryTokens(self.policy.budget)
        self.count = Fraction(most)
        self.now = 0.0
        self.its: Retries | None = None

    @precondition(lambda self: self.its is None)
    @rule(repeatable=st.booleans(), patience=st.sampled_from([0.0, 0.5, 2.0, 8.0, math.inf]))
    def begin(self, repeatable: bool, patience: float) -> None:
        self.repeatable, self.deadline = repeatable, self.now + patience
        self.its = Retries(self.policy, self.tokens, repeatable, self.deadline)
        self.sent = 1
        self.acted_on = False

    @precondition(lambda self: self.its is not None)
    @rule()
    def answered(self) -> None:
        self.tokens.succeeded()
        self.count = min(
            Fraction(self.policy.budget.max_tokens), self.count + Fraction(str(self.policy.budget.token_ratio))
        )
        self.its = None

    @precondition(lambda self: self.its is not None)
    @rule(error=st.sampled_from(FINAL))
    def final(self, error: Exception) -> None:
        assert self.its is not None
        assert self.its.failed(error, self.now) == NoRetry("final")
        self.its = None

    @precondition(lambda self: self.its is not None)
    @rule(error=st.sampled_from(TRANSIENT), sent=st.booleans(), takes=st.sampled_from([0.0, 0.25, 1.0]))
    def fail(self, error: Exception, sent: bool, takes: float) -> None:
        assert self.its is not None
        self.now += takes
        self.count = max(Fraction(0), self.count - 1)
        self.acted_on = self.acted_on or sent
        verdict = self.its.failed(error, self.now, sent=sent)
        assert verdict == self.expected(error)
        if isinstance(verdict, NoRetry):
            self.its = None
            return
        self.now += verdict.delay
        self.sent += 1

    def expected(self, error: Exception) -> Retry | NoRetry:
        backoff = self.policy.backoff
        delay = backoff.first if self.sent == 1 else min(backoff.initial * 2 ** (self.sent - 2), 3.0)
        if isinstance(error, HttpStatusError) and error.retry_after is not None and error.retry_after > delay:
            delay = error.retry_after
        if self.acted_on and not self.repeatable:
            return NoRetry("unsafe")
        if self.sent == self.policy.attempts:
            return NoRetry("attempts")
        if self.count <= Fraction(self.policy.budget.max_tokens, 2):
            return NoRetry("budget")
        return Retry(delay) if self.now + delay < self.deadline else NoRetry("deadline")

    @invariant()
    def promises(self) -> None:
        if getattr(self, "its", None) is not None:
            assert self.sent <= self.policy.attempts
            assert self.sent == 1 or self.now < self.deadline
            assert self.sent == 1 or self.repeatable or not self.acted_on


TestRequestModel = RequestMachine.TestCase


@given(
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1e5) | st.none(),
    st.floats(0, 1, exclude_max=True),
)
def test_a_retry_waits_for_the_backoff_and_for_the_server_and_not_beyond_the_deadline(
    now: float, patience: float, asked: float | None, drawn: float
) -> None:
    its, _ = retries(deadline=now + patience)
    match its.failed(status(503, asked), now, random=lambda: drawn):
        case Retry(delay=delay):
            assert delay >= 0.1
            assert delay >= min(asked or 0.0, 3600.0)
            assert now + delay < now + patience
        case NoRetry(reason=reason):
            assert reason == "deadline"


def test_verdicts_are_frozen_and_compared_by_value() -> None:
    verdict = Retry(1.0)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        verdict.delay = 2.0  # type: ignore[misc]  # that it refuses is what is tested
    assert verdict == Retry(1.0) != Retry(2.0)
