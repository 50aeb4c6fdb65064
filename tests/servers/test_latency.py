"""Counts of requests and percentiles of their durations: right to 1 %, in bounded memory."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mcp_actors.servers._deadlines import Latency, LatencyCounts
from tests.programs import number_of

ERROR: Final = 0.01
DAY: Final = 86_400.0

durations = st.floats(min_value=1e-6, max_value=DAY)


def counted(*durations: float) -> Latency:
    counts = LatencyCounts()
    for seconds in durations:
        counts.done(seconds)
    return counts.snapshot()


def exact(durations: list[float], share: int) -> float:
    """Return the shortest of the durations within which that share of 100 lies: the nearest rank."""
    return sorted(durations)[-(-share * len(durations) // 100) - 1]


def test_before_anything_was_answered_there_are_no_percentiles() -> None:
    counts = LatencyCounts()
    counts.failed()
    assert counts.snapshot() == Latency(done=0, failed=1, p50=None, p95=None, p99=None)


def test_one_answer_is_every_percentile() -> None:
    latency = counted(0.25)
    assert (latency.done, latency.failed) == (1, 0)
    assert latency.p50 == latency.p95 == latency.p99 == pytest.approx(0.25, rel=ERROR)


def test_percentiles_of_a_hundred_answers() -> None:
    latency = counted(*(number / 100 for number in range(100, 0, -1)))
    assert latency.p50 == pytest.approx(0.50, rel=ERROR)
    assert latency.p95 == pytest.approx(0.95, rel=ERROR)
    assert latency.p99 == pytest.approx(0.99, rel=ERROR)


@pytest.mark.parametrize(
    ("quick", "slow", "p50", "p95", "p99"),
    [
        (50, 50, 1, 9, 9),
        (49, 50, 9, 9, 9),
        (95, 5, 1, 1, 9),
        (94, 5, 1, 9, 9),
        (94, 6, 1, 9, 9),
        (99, 1, 1, 1, 1),
        (98, 1, 1, 1, 9),
        (990, 10, 1, 1, 1),
        (989, 11, 1, 1, 9),
        (1, 1, 1, 9, 9),
        (2, 1, 1, 9, 9),
    ],
)
def test_a_percentile_is_that_of_its_rank_and_of_no_neighbor(
    quick: int, slow: int, p50: int, p95: int, p99: int
) -> None:
    latency = counted(*[1.0] * quick, *[9.0] * slow)
    assert [round(time or 0) for time in (latency.p50, latency.p95, latency.p99)] == [p50, p95, p99]


def test_failures_are_counted_and_not_timed() -> None:
    counts = LatencyCounts()
    counts.done(0.001)
    for _ in range(1000):
        counts.failed()
    latency = counts.snapshot()
    assert (latency.done, latency.failed) == (1, 1000)
    assert latency.p99 == pytest.approx(0.001, rel=ERROR)


@given(durations)
def test_a_time_from_a_microsecond_to_a_day_is_right_to_one_per_cent(seconds: float) -> None:
    assert counted(seconds).p50 == pytest.approx(seconds, rel=ERROR)


@pytest.mark.parametrize("bucket", [1, 2, 100, 700, 1271])
def test_the_bounds_of_a_bucket_are_right_to_one_per_cent(bucket: int) -> None:
    bound = 1e-6 * 1.02**bucket
    for seconds in (math.nextafter(bound, 0.0), bound, math.nextafter(bound, 1e9)):
        assert counted(seconds).p50 == pytest.approx(seconds, rel=ERROR)


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 1e-9, 1e-6, -1.0])
def test_a_shorter_time_counts_as_a_microsecond(seconds: float) -> None:
    assert counted(seconds).p50 == 1e-6


@pytest.mark.parametrize("seconds", [DAY, 1e9, 1.7e308, math.inf])
def test_a_longer_time_counts_as_a_day(seconds: float) -> None:
    assert counted(seconds).p50 == pytest.approx(DAY, rel=2 * ERROR)
    assert counted(seconds) == counted(DAY)


def test_a_longer_time_is_never_reported_as_shorter() -> None:
    told = [counted(1e-7 * 1.01**step).p50 or 0.0 for step in range(3000)]
    assert told == sorted(told)


def test_memory_is_bounded_by_the_range_and_not_by_the_number_of_requests() -> None:
    counts = LatencyCounts()
    for step in range(100_000):
        counts.done(1e-8 * 1.0005**step)
    assert len(counts._buckets) == 1273


def test_a_snapshot_is_frozen_and_stays_what_it_was() -> None:
    counts = LatencyCounts()
    counts.done(1.0)
    before = counts.snapshot()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        before.done = 2  # type: ignore[misc]  # that it refuses is what is tested
    for _ in range(99):
        counts.done(100.0)
    assert before.done == 1
    assert before.p50 == pytest.approx(1.0, rel=ERROR)


class LatencyMachine(RuleBasedStateMachine):
    """The counts, compared with the list of all durations."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = LatencyCounts()
        self.durations: list[float] = []
        self.failures = 0

    @rule(seconds=st.lists(durations, max_size=20))
    def answer(self, seconds: list[float]) -> None:
        for duration in seconds:
            self.counts.done(duration)
        self.durations += seconds

    @rule(seconds=durations, times=st.integers(1, 60))
    def answer_alike(self, seconds: float, times: int) -> None:
        self.answer([seconds] * times)

    @rule()
    def fail(self) -> None:
        self.counts.failed()
        self.failures += 1

    @invariant()
    def agrees(self) -> None:
        latency = self.counts.snapshot()
        assert (latency.done, latency.failed) == (len(self.durations), self.failures)
        for share, told in ((50, latency.p50), (95, latency.p95), (99, latency.p99)):
            if self.durations:
                assert told == pytest.approx(exact(self.durations, share), rel=ERROR)
            else:
                assert told is None


TestLatencyModel = LatencyMachine.TestCase
TestLatencyModel.settings = settings(max_examples=number_of(60), stateful_step_count=20)


def test_a_snapshot_during_a_count_in_another_thread_is_consistent() -> None:
    counts, seen = LatencyCounts(), []

    class Slow(dict[int, int]):
        def get(self, *args: Any) -> Any:
            seen.append(counts.snapshot())  # another thread looks in the midst of the counting
            return super().get(*args)

    counts._buckets = Slow()
    counts.done(1.0)
    counts.done(2.0)
    assert [(latency.done, latency.p50 is None, latency.p99 is None) for latency in seen] == [
        (0, True, True),
        (1, False, False),
    ]
    assert counts.snapshot().done == 2
