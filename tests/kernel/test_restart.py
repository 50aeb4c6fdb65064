from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_actors.kernel import Actor, Backoff, ChildSpec, Supervisor
from mcp_actors.kernel._restart import RestartBudget, restarts_after


class Idle(Actor):
    async def handle(self, message: object) -> None: ...


# --- which ends are followed by another start -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restart", "reasons"),
    [("permanent", {"normal", "shutdown", "crashed"}), ("transient", {"crashed"}), ("temporary", set())],
)
def test_the_restart_type_decides_after_which_ends_a_child_is_started_again(restart: Any, reasons: set[str]) -> None:
    ends: tuple[Any, ...] = ("normal", "shutdown", "crashed", "ignored")
    assert {reason for reason in ends if restarts_after(restart, reason)} == reasons


# --- the budget -------------------------------------------------------------------------------------------------------


def test_a_budget_allows_so_many_attempts_and_no_more() -> None:
    budget = RestartBudget(2, 5.0)
    assert [budget.spend(0, "a"), budget.spend(1, "b"), budget.spend(2, "a")] == [True, True, False]


def test_both_ends_of_the_window_count() -> None:
    budget = RestartBudget(1, 5.0)
    assert budget.spend(0, "a")
    assert not budget.spend(5.0, "a")
    assert budget.spend(5.001, "a")


def test_an_attempt_that_was_refused_does_not_count() -> None:
    budget = RestartBudget(1, 5.0)
    assert budget.spend(0, "a")
    assert not budget.spend(4, "a")
    assert budget.spend(6, "a")


def test_an_infinite_window_forgets_nothing() -> None:
    budget = RestartBudget(1, math.inf)
    assert budget.spend(0, "a")
    assert not budget.spend(1e9, "a")


def test_a_budget_of_0_allows_nothing() -> None:
    assert not RestartBudget(0, 5.0).spend(0, "a")


def test_what_was_spent_on_one_child_can_be_forgotten() -> None:
    budget = RestartBudget(2, 5.0)
    assert budget.spend(0, "a")
    assert budget.spend(0, "b")
    budget.forget("a")
    assert [budget.spend(1, "b"), budget.spend(1, "b")] == [True, False]


def test_a_cleared_budget_is_as_new() -> None:
    budget = RestartBudget(1, 5.0)
    assert budget.spend(0, "a")
    budget.clear()
    assert budget.spend(0, "a")


@given(
    gaps=st.lists(st.floats(0, 4, allow_nan=False)),
    max_restarts=st.integers(0, 4),
    window=st.sampled_from([1.0, 2.5, 5.0]),
)
def test_no_window_ever_holds_more_attempts_than_allowed(gaps: list[float], max_restarts: int, window: float) -> None:
    budget = RestartBudget(max_restarts, window)
    now, made = 0.0, list[float]()
    for gap in gaps:
        now += gap
        counting = sum(now - then <= window for then in made)
        assert budget.spend(now, "a") == (counting < max_restarts)
        if counting < max_restarts:
            made.append(now)


# --- what a user can get wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": ""}, "ChildSpec: id must be a non-empty str, not ''"),
        ({"id": 3}, "ChildSpec: id must be a non-empty str, not 3"),
        ({"factory": 3}, "child 'a': factory must be a callable that makes a new actor for every start, not 3; give"),
        (
            {"restart": "always"},
            "child 'a': restart must be one of permanent, transient, temporary, not 'always'",
        ),
        ({"start_timeout": 0}, "child 'a': start_timeout must be positive seconds, or None for no bound, not 0"),
        ({"start_timeout": True}, "child 'a': start_timeout must be positive seconds, or None for no bound, not True"),
        ({"start_timeout": math.nan}, "child 'a': start_timeout must be positive seconds, or None"),
        ({"shutdown": -1}, "child 'a': shutdown must be positive seconds, 'brutal_kill' or 'infinity', not -1"),
        ({"shutdown": math.inf}, "child 'a': shutdown must be positive seconds, 'brutal_kill' or 'infinity', not inf"),
        ({"shutdown": "never"}, "child 'a': shutdown must be positive seconds, 'brutal_kill' or 'infinity', not 'ne"),
        ({"mailbox_size": 0}, "child 'a': mailbox_size must be an int of at least 1, not 0"),
        ({"overflow": "drop"}, "child 'a': overflow must be 'wait' or 'fail', not 'drop'"),
    ],
)
def test_an_impossible_child_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared below
        ChildSpec(**{"id": "a", "factory": Idle, **given})
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_restarts": -1}, "Supervisor: max_restarts must be an int of at least 0, not -1"),
        ({"max_restarts": True}, "Supervisor: max_restarts must be an int of at least 0, not True"),
        ({"max_restarts": 1.5}, "Supervisor: max_restarts must be an int of at least 0, not 1.5"),
        ({"window": 0}, "Supervisor: window must be positive seconds or math.inf, not 0"),
        ({"window": math.nan}, "Supervisor: window must be positive seconds or math.inf, not nan"),
        ({"reset_after": -1}, "Supervisor: reset_after must be positive seconds or None, not -1"),
        ({"backoff": 3}, "Supervisor: backoff must be a Backoff, not 3"),
        ({"on_limit": "stay"}, "Supervisor: on_limit must be 'end' or 'park', not 'stay'"),
        ({"start_order": "random"}, "Supervisor: start_order must be 'sequential' or 'parallel', not 'random'"),
        ({"stop_order": "random"}, "Supervisor: stop_order must be 'sequential' or 'concurrent', not 'random'"),
        ({"strict": "yes"}, "Supervisor: strict must be True or False, not 'yes'"),
        (
            {"max_restarts": 3, "window": 5, "backoff": Backoff(initial=2)},
            "Supervisor: max_restarts=3 within window=5 can never be reached, because the back-offs alone take 6 s; "
            "widen the window or shorten the back-off",
        ),
    ],
)
def test_an_impossible_policy_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared below
        Supervisor(**given)
    assert str(refused.value) == message


def test_integers_that_are_too_large_for_a_float_are_seconds_like_others() -> None:
    assert ChildSpec("a", Idle, shutdown=10**400).shutdown == 10**400


def test_two_children_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="two children have the id 'a'; ids are unique in a supervisor"):
        Supervisor(ChildSpec("a", Idle), ChildSpec("a", Idle))


def test_what_is_no_child_spec_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"every child is a ChildSpec, not .*Idle.*; write ChildSpec\('name', factory\)"
    ):
        Supervisor(Idle)  # type: ignore[arg-type]  # the mistake under test


def test_a_budget_that_is_reached_just_before_the_window_ends_is_possible() -> None:
    Supervisor(max_restarts=3, window=6.1, backoff=Backoff(initial=2))
    Supervisor(max_restarts=3, window=math.inf, backoff=Backoff(initial=2))
