"""How often a request is sent again, and how much of that one server gets."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest

from mcp_actors import Backoff, ConfigError, RetryPolicy
from mcp_actors.config import RetryBudget


def test_by_default_a_request_is_sent_three_times_with_a_tenth_and_half_a_second_between() -> None:
    policy = RetryPolicy()
    assert (policy.attempts, policy.isolated, policy.budget) == (3, False, RetryBudget())
    assert [policy.backoff.delay(retry) for retry in range(1, 9)] == [0.1, 0.5, 1, 2, 4, 8, 10, 10]
    assert policy.backoff.delay(1, random=lambda: 0.5) == pytest.approx(0.125)


def test_by_default_the_bucket_holds_more_than_what_one_lost_connection_can_take_out() -> None:
    budget = RetryBudget()
    assert (budget.max_tokens, budget.token_ratio) == (200, 0.2)


def test_retrying_can_be_disabled() -> None:
    assert RetryPolicy(attempts=1).attempts == 1


def test_the_ends_of_the_ranges_of_a_budget_are_possible() -> None:
    assert RetryBudget(max_tokens=1, token_ratio=0.001).token_ratio == 0.001
    assert RetryBudget(max_tokens=1000, token_ratio=1000).max_tokens == 1000
    assert RetryBudget(token_ratio=0.125).token_ratio == 0.125


TOKENS = "give a whole number from 1 to 1000"
RATIO = "give a number from 0.001 to 1000 with at most 3 decimals"


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        (RetryPolicy, "attempts", 0, "attempts=0 is not valid; give a whole number of 1 or more; 1 disables"),
        (RetryPolicy, "attempts", True, "attempts=True is not valid; give a whole number of 1 or more"),
        (RetryPolicy, "attempts", 2.0, "attempts=2.0 is not valid; give a whole number of 1 or more"),
        (RetryPolicy, "backoff", 1.0, "backoff=<float> is not valid; give a Backoff(...)"),
        (RetryPolicy, "isolated", "no", "isolated='no' is not valid; give True or False"),
        (RetryPolicy, "budget", 10, "budget=<int> is not valid; give a RetryBudget(...)"),
        (RetryBudget, "max_tokens", 0, f"max_tokens=0 is not valid; {TOKENS}"),
        (RetryBudget, "max_tokens", 1001, f"max_tokens=1001 is not valid; {TOKENS}"),
        (RetryBudget, "max_tokens", 10.0, f"max_tokens=10.0 is not valid; {TOKENS}"),
        (RetryBudget, "max_tokens", True, f"max_tokens=True is not valid; {TOKENS}"),
        (RetryBudget, "token_ratio", 0, f"token_ratio=0 is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", -0.1, f"token_ratio=-0.1 is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", 0.0001, f"token_ratio=0.0001 is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", 0.1234, f"token_ratio=0.1234 is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", 1000.001, f"token_ratio=1000.001 is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", math.nan, f"token_ratio=nan is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", math.inf, f"token_ratio=inf is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", "0.1", f"token_ratio='0.1' is not valid; {RATIO}"),
        (RetryBudget, "token_ratio", True, f"token_ratio=True is not valid; {RATIO}"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(kind: type, field: str, value: object, message: str) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError) as caught:
        kind(**arguments)
    assert str(caught.value).startswith(f"{kind.__name__}: {message}")
    assert (caught.value.source, caught.value.path) == (kind.__name__, field)


def test_both_are_frozen_and_compared_by_value() -> None:
    policy = RetryPolicy(backoff=Backoff(first=1), budget=RetryBudget(max_tokens=10, token_ratio=0.1))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        policy.attempts = 4  # type: ignore[misc]  # that it refuses is what is tested
    same = RetryPolicy(backoff=Backoff(first=1), budget=RetryBudget(max_tokens=10, token_ratio=0.1))
    assert {policy: 1}[same] == 1
