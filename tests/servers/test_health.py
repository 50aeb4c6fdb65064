"""The ladder of consecutive failures, as pure data."""

from __future__ import annotations

from mcp_actors import HealthPolicy
from mcp_actors.servers._rules import Condition, Ladder, Verdict

POLICY = HealthPolicy()


def climbed(ladder: Ladder, failures: int, *, at: float = 0.0) -> Ladder:
    """Return a ladder after so many questions, asked one second after the other, that were not answered."""
    for number in range(failures):
        ladder = ladder.failed(at + number, at + number + 1)
    return ladder


def test_each_step_is_reached_after_its_number_of_failures() -> None:
    """S2-24: warn, unhealthy and restart; nothing before."""
    steps: list[tuple[Condition, Verdict | None]] = []
    for failures in range(7):
        ladder = climbed(Ladder(), failures)
        steps.append((ladder.condition(POLICY), ladder.verdict(POLICY)))
    assert steps == [
        ("healthy", None),
        ("healthy", None),
        ("degraded", None),
        ("unhealthy", None),
        ("unhealthy", None),
        ("unhealthy", "restart"),
        ("unhealthy", "restart"),
    ]


def test_an_answer_resets_the_failures() -> None:
    """S2-25."""
    ladder = climbed(Ladder(), 9).answered(10)
    assert (ladder.failures, ladder.condition(POLICY), ladder.verdict(POLICY)) == (0, "healthy", None)


def test_ten_failures_without_an_answer_park_the_server_despite_restarts() -> None:
    """S2-25: a reconnect does not reset the count, but the new connection is checked first."""
    ladder = climbed(Ladder(), 5).reconnected(POLICY)
    assert (ladder.failures, ladder.condition(POLICY)) == (5, "healthy")
    assert climbed(ladder, 1).condition(POLICY) == "unhealthy"
    assert climbed(ladder, 4).verdict(POLICY) is None
    assert climbed(ladder, 5).verdict(POLICY) == "fail"


def test_a_delayed_restart_still_comes_before_parking() -> None:
    ladder = climbed(Ladder(), 60)
    assert (ladder.failures, ladder.verdict(POLICY)) == (60, "restart")
    assert climbed(ladder.reconnected(POLICY), 4).verdict(POLICY) is None


def test_a_larger_fail_after_leaves_room_for_more_restarts() -> None:
    policy = HealthPolicy(fail_after=12)
    second = climbed(Ladder(), 5).reconnected(policy)
    assert climbed(second, 5).verdict(policy) == "restart"
    third = climbed(second, 5).reconnected(policy)
    assert [climbed(third, failures).verdict(policy) for failures in (1, 2)] == [None, "fail"]


def test_requests_that_were_sent_together_are_one_failure() -> None:
    """A-13: a burst of requests that time out together says no more than one of them."""
    ladder = Ladder()
    for _ in range(8):
        ladder = ladder.failed(0, 60)
    assert ladder.failures == 1
    assert ladder.failed(60, 65).failures == 2


def test_a_request_from_before_the_last_answer_does_not_count() -> None:
    assert Ladder().answered(3).failed(0, 5).failures == 0


def test_the_failures_begin_with_the_first_failed_request() -> None:
    assert climbed(Ladder(), 3, at=7).since == 7
    assert climbed(climbed(Ladder(), 5).reconnected(POLICY), 2, at=100).since == 100
