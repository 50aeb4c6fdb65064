"""The delays between attempts: the rule, its limits, and what it refuses."""

from __future__ import annotations

import inspect
import math
import pickle

import attrs
import pytest
from hypothesis import given, strategies as st

from mcp_actors import Backoff, ConfigError

seconds = st.floats(min_value=0, max_value=1e9)
backoffs = st.builds(
    lambda delays, **others: Backoff(initial=min(delays), maximum=max(delays), **others),
    st.tuples(seconds, seconds),
    first=seconds,
    factor=st.floats(min_value=1, max_value=1e6),
    jitter=st.floats(min_value=0, max_value=1),
)


def half() -> float:
    return 0.5


def test_the_first_delay_is_first_and_the_others_grow_from_initial_to_maximum() -> None:
    backoff = Backoff(first=0.25, initial=1, maximum=60, factor=2)
    assert [backoff.delay(attempt) for attempt in range(1, 10)] == [0.25, 1, 2, 4, 8, 16, 32, 60, 60]


def test_by_default_no_attempt_waits() -> None:
    assert [Backoff().delay(attempt) for attempt in (1, 2, 3, 1000)] == [0, 0, 0, 0]


def test_first_is_not_bounded_by_maximum() -> None:
    assert Backoff(first=100, maximum=1).delay(1) == 100


def test_a_factor_of_one_keeps_the_delay_constant() -> None:
    backoff = Backoff(initial=3, factor=1)
    assert [backoff.delay(attempt) for attempt in (2, 3, 10**6)] == [3, 3, 3]


def test_jitter_adds_a_share_of_the_delay_and_only_with_a_random_source() -> None:
    backoff = Backoff(first=10, initial=20, jitter=0.1)
    assert backoff.delay(1) == 10
    assert backoff.delay(1, random=half) == pytest.approx(10.5)
    assert backoff.delay(2, random=half) == pytest.approx(21)
    assert backoff.delay(2, random=lambda: 0.0) == 20


def test_jitter_comes_on_top_of_maximum() -> None:
    assert Backoff(initial=60, maximum=60, jitter=1).delay(2, random=half) == 90


@pytest.mark.parametrize("factor", [2, 1.0000001, 1e300])
def test_a_huge_attempt_waits_maximum_instead_of_overflowing(factor: float) -> None:
    assert Backoff(initial=1, maximum=60, factor=factor).delay(10**500) == 60


def test_a_huge_attempt_without_growth_does_not_overflow_either() -> None:
    assert Backoff(initial=1, factor=1).delay(10**500) == 1
    assert Backoff(initial=0, factor=5).delay(10**500) == 0


def test_total_is_the_sum_of_the_first_delays_without_jitter() -> None:
    backoff = Backoff(first=0.5, initial=1, maximum=60, factor=2, jitter=0.1)
    assert [backoff.total(attempts) for attempts in range(7)] == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5]


def test_total_of_very_many_attempts_adds_only_the_delays_that_grow() -> None:
    assert Backoff(initial=1, maximum=60, factor=2).total(10**9) == 63 + 60 * (10**9 - 7)
    assert Backoff(first=7).total(10**9) == 7
    assert Backoff(initial=2, factor=1).total(10**9) == 2 * (10**9 - 1)


@given(backoffs, st.integers(min_value=2, max_value=10**30))
def test_later_delays_never_shrink_and_never_exceed_maximum(backoff: Backoff, attempt: int) -> None:
    delay, later = backoff.delay(attempt), backoff.delay(attempt + 1)
    assert 0 <= delay <= later <= backoff.maximum


@given(backoffs, st.integers(min_value=1, max_value=10**6), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_jitter_only_lengthens_and_by_no_more_than_its_share(backoff: Backoff, attempt: int, drawn: float) -> None:
    plain, jittered = backoff.delay(attempt), backoff.delay(attempt, random=lambda: drawn)
    assert math.isfinite(jittered)
    assert plain <= jittered <= plain * (1 + backoff.jitter)


@given(backoffs, st.integers(min_value=0, max_value=200))
def test_total_agrees_with_adding_the_delays(backoff: Backoff, attempts: int) -> None:
    delays = [backoff.delay(attempt) for attempt in range(1, attempts + 1)]
    assert backoff.total(attempts) == pytest.approx(math.fsum(delays))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"first": -1}, "Backoff: first=-1 is not valid; give a finite number of seconds, 0 or more"),
        ({"first": True}, "Backoff: first=True is not valid; give a finite number of seconds, 0 or more"),
        ({"initial": math.nan}, "Backoff: initial=nan is not valid; give a finite number of seconds, 0 or more"),
        ({"initial": "1"}, "Backoff: initial='1' is not valid; give a finite number of seconds, 0 or more"),
        ({"maximum": math.inf}, "Backoff: maximum=inf is not valid; give a finite number of seconds, 0 or more"),
        ({"maximum": None}, "Backoff: maximum=None is not valid; give a finite number of seconds, 0 or more"),
        ({"factor": 0.5}, "Backoff: factor=0.5 is not valid; give a finite number of 1 or more (1 keeps the delay"),
        ({"factor": math.inf}, "Backoff: factor=inf is not valid; give a finite number of 1 or more"),
        ({"jitter": 1.5}, "Backoff: jitter=1.5 is not valid; give a number from 0 (no jitter) to 1 (up to twice"),
        (
            {"maximum": 1, "initial": 5},
            "Backoff: initial=5 is more than maximum=1; lower initial, or raise maximum",
        ),
        ({"maximum": 60.0, "initial": 61}, "Backoff: initial=61 is more than maximum=60.0; lower initial, or raise"),
        ({"jitter": False}, "Backoff: jitter=False is not valid; give a number from 0 (no jitter) to 1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Backoff(**arguments)
    assert str(caught.value).startswith(message)
    assert (caught.value.source, caught.value.path) == ("Backoff", next(iter(arguments)))


def test_an_integer_that_no_float_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="Backoff: initial=1000"):
        Backoff(initial=10**400)


def test_a_class_whose_delay_cannot_be_called_is_refused_where_it_is_written() -> None:
    """Not at the first restart, which may be months later."""
    with pytest.raises(TypeError) as caught:

        class Steps(Backoff):
            def delay(self, attempt: int) -> float:  # type: ignore[override]  # that is what is tested
                return 0.1 * attempt

    problem, _, remedy = str(caught.value).partition("; ")
    assert problem == "Steps.delay() does not take (attempt, random=...), but (attempt: 'int') -> 'float'"
    assert remedy == "write: def delay(self, attempt, *, random=None)"

    class Plain(Backoff):
        @staticmethod
        def delay(attempt: int, **_: object) -> float:
            return 0.1 * attempt

    assert Plain().delay(2, random=float) == 0.2


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_are_counted_from_one(attempt: int) -> None:
    with pytest.raises(ValueError, match=f"attempts are counted from 1, not from {attempt}"):
        Backoff().delay(attempt)


def test_a_negative_number_of_attempts_has_no_total() -> None:
    with pytest.raises(ValueError, match="a number of attempts cannot be negative: -1"):
        Backoff().total(-1)


def test_it_is_frozen_hashable_and_comparable() -> None:
    backoff = Backoff(initial=1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        backoff.initial = 2  # type: ignore[misc]  # that it refuses is what is tested
    assert {backoff: 1}[Backoff(initial=1.0)] == 1
    assert pickle.loads(pickle.dumps(backoff)) == backoff


def test_its_signature_shows_names_types_and_defaults() -> None:
    fields = "first: 'float' = 0.0, initial: 'float' = 0.0, maximum: 'float' = 60.0"
    assert str(inspect.signature(Backoff)).startswith(f"(*, {fields}, factor: 'float' = 2.0, jitter: 'float' = 0.0)")
