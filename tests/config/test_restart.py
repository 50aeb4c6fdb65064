"""When a server is started again, and when it is given up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcp_actors import Backoff, ConfigError, RestartPolicy

from ..messages import Said


def test_by_default_five_restarts_are_tried_after_0_1_2_4_and_8_seconds() -> None:
    policy = RestartPolicy()
    assert (policy.max_restarts, policy.window, policy.reset_after) == (5, math.inf, 60)
    assert [policy.backoff.delay(attempt) for attempt in range(1, 6)] == [0, 1, 2, 4, 8]
    assert policy.backoff.delay(100) == 60
    assert policy.backoff.delay(2, random=lambda: 0.5) == pytest.approx(1.05)


def test_zero_restarts_and_no_reset_can_be_asked_for() -> None:
    assert RestartPolicy(max_restarts=0).max_restarts == 0
    assert RestartPolicy(reset_after=None).reset_after is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "max_restarts",
            -1,
            "max_restarts=-1 is not valid; give a whole number of 0 or more; 0 disables",
        ),
        ("max_restarts", True, "max_restarts=True is not valid; give a whole number of 0 or more"),
        ("max_restarts", math.inf, "max_restarts=inf is not valid; give a whole number of 0 or more"),
        ("window", 0, "window=0 is not valid; give a positive number of seconds, or math.inf"),
        ("window", math.nan, "window=nan is not valid; give a positive number of seconds, or math.inf"),
        ("window", None, "window=None is not valid; give a positive number of seconds, or math.inf"),
        ("window", True, "window=True is not valid; give a positive number of seconds, or math.inf"),
        ("reset_after", 0, "reset_after=0 is not valid; give a positive, finite number of seconds, or None"),
        ("reset_after", math.inf, "reset_after=inf is not valid; give a positive, finite number of seconds"),
        ("backoff", 1.0, "backoff=<float> is not valid; give a Backoff(...)"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object, message: str) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError) as caught:
        RestartPolicy(**arguments)
    assert str(caught.value).startswith(f"RestartPolicy: {message}")
    assert (caught.value.source, caught.value.path) == ("RestartPolicy", field)


def test_a_limit_that_the_delays_make_unreachable_is_refused(said: Said) -> None:
    with pytest.raises(ConfigError) as caught:
        RestartPolicy(max_restarts=5, window=15)
    said("a budget that cannot be reached", str(caught.value))
    assert (caught.value.source, caught.value.path) == ("RestartPolicy", "window")


def test_a_limit_that_can_just_be_reached_is_fine() -> None:
    assert RestartPolicy(max_restarts=5, window=15.1).window == 15.1
    assert RestartPolicy(max_restarts=0, window=0.1).max_restarts == 0
    assert RestartPolicy(max_restarts=10**6, window=1, backoff=Backoff()).window == 1
