"""When a server that fails is left alone."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest

from mcp_actors import BreakerPolicy, ConfigError


def test_by_default_five_failures_in_a_row_open_it_for_half_a_minute() -> None:
    policy = BreakerPolicy()
    assert (policy.failures, policy.reset_after) == (5, 30)


def test_one_failure_may_be_enough() -> None:
    assert BreakerPolicy(failures=1, reset_after=0.01).failures == 1


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("failures", 0, "failures=0 is not valid; give a whole number of 1 or more"),
        ("failures", True, "failures=True is not valid; give a whole number of 1 or more"),
        ("failures", 2.5, "failures=2.5 is not valid; give a whole number of 1 or more"),
        ("reset_after", 0, "reset_after=0 is not valid; give a positive, finite number of seconds"),
        ("reset_after", math.inf, "reset_after=inf is not valid; give a positive, finite number of seconds"),
        ("reset_after", None, "reset_after=None is not valid; give a positive, finite number of seconds"),
        ("reset_after", True, "reset_after=True is not valid; give a positive, finite number of seconds"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object, message: str) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError) as caught:
        BreakerPolicy(**arguments)
    assert str(caught.value).startswith(f"BreakerPolicy: {message}")
    assert (caught.value.source, caught.value.path) == ("BreakerPolicy", field)


def test_it_is_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        BreakerPolicy().failures = 1  # type: ignore[misc]  # that it refuses is what is tested
