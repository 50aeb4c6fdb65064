from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_actors.kernel import Actor, Backoff, ChildSpec, Supervisor, open_supervisor
from mcp_actors.kernel._restart import Plan, RestartBudget, Row, affected, plan_restart, restarts_after, shuts_down

from ..messages import Said


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


@pytest.mark.parametrize(
    ("strategy", "failed", "ids"),
    [
        ("one_for_one", "b", ["b"]),
        ("one_for_all", "b", ["a", "b", "c"]),
        ("rest_for_one", "a", ["a", "b", "c"]),
        ("rest_for_one", "b", ["b", "c"]),
        ("rest_for_one", "c", ["c"]),
    ],
)
def test_the_strategy_decides_which_children_are_restarted(strategy: Any, failed: str, ids: list[str]) -> None:
    assert affected(strategy, {"a": 1, "b": 2, "c": 3}, failed) == ids


def test_one_for_one_does_not_read_the_table() -> None:
    assert affected("one_for_one", map(pytest.fail, "abc"), "b") == ["b"]


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_a_group_stops_newest_first_and_starts_oldest_first() -> None:
    rows = [Row("a", "permanent", up=True), Row("b", "transient", up=False), Row("c", "permanent", up=True)]
    assert plan_restart(rows, "b") == Plan(stops=("c", "a"), starts=("a", "b", "c"))


def test_a_member_that_is_down_is_started_with_its_group() -> None:
    rows = [Row("a", "transient", up=False), Row("b", "permanent", up=False), Row("c", "permanent", up=True)]
    assert plan_restart(rows, "b") == Plan(stops=("c",), starts=("a", "b", "c"))


def test_a_temporary_member_is_stopped_and_not_started() -> None:
    rows = [Row("a", "permanent", up=False), Row("b", "temporary", up=True)]
    assert plan_restart(rows, "a") == Plan(stops=("b",), starts=("a",))


def test_a_parked_member_is_left_alone() -> None:
    rows = [Row("a", "permanent", up=False), Row("b", "permanent", up=False, parked=True)]
    assert plan_restart(rows, "a") == Plan(stops=(), starts=("a",))


def test_the_child_that_failed_is_not_stopped_even_if_it_is_about_to_be_started() -> None:
    assert plan_restart([Row("a", "permanent", up=True)], "a") == Plan(stops=(), starts=("a",))


@given(
    st.lists(
        st.builds(
            Row,
            st.sampled_from("abcdef"),
            st.sampled_from(["permanent", "transient", "temporary"]),
            up=st.booleans(),
            parked=st.booleans(),
        ),
        unique_by=lambda row: row.id,
        min_size=1,
    ),
    st.data(),
)
def test_a_plan_keeps_to_the_order_of_the_table(rows: list[Row], data: st.DataObject) -> None:
    failed = data.draw(st.sampled_from(rows)).id
    order = [row.id for row in rows]
    plan = plan_restart(rows, failed)
    assert list(plan.stops) == sorted(plan.stops, key=order.index, reverse=True)
    assert list(plan.starts) == sorted(plan.starts, key=order.index)
    assert failed not in plan.stops
    assert {row.id for row in rows if row.up} <= {*plan.stops, failed}
    assert not {row.id for row in rows if row.restart == "temporary" or row.parked} & {*plan.starts}


# --- auto_shutdown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("auto_shutdown", "others_idle", "ends"),
    [
        ("never", [], False),
        ("never", [True], False),
        ("any_significant", [False], True),
        ("any_significant", [], True),
        ("all_significant", [], True),
        ("all_significant", [True, True], True),
        ("all_significant", [True, False], False),
    ],
)
def test_auto_shutdown_decides_whether_the_end_of_a_significant_child_is_the_end(
    auto_shutdown: Any, others_idle: list[bool], ends: bool
) -> None:
    assert shuts_down(auto_shutdown, others_idle) is ends


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


def test_the_attempts_of_one_child_can_be_forgotten() -> None:
    budget = RestartBudget(2, 5.0)
    assert budget.spend(0, "a")
    assert budget.spend(0, "b")
    assert budget.spenders() == {"a", "b"}
    budget.forget({"a"})
    assert budget.spenders() == {"b"}
    assert [budget.spend(1, "b"), budget.spend(1, "b")] == [True, False]


def test_a_renewed_budget_is_as_new_for_all_who_share_it() -> None:
    budget = RestartBudget(1, 5.0)
    assert budget.spend(0, "a")
    budget.renew("b")
    assert budget.spend(0, "a")


def test_children_with_budgets_of_their_own_do_not_spend_those_of_others() -> None:
    budget = RestartBudget(1, 5.0, per_child=True)
    assert [budget.spend(0, "a"), budget.spend(0, "b"), budget.spend(1, "a")] == [True, True, False]
    budget.renew("a")
    assert [budget.spend(2, "a"), budget.spend(2, "b")] == [True, False]


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
    ("given", "row"),
    [
        ({"id": ""}, "child: id is empty"),
        ({"id": 3}, "child: id=3"),
        ({"factory": 3}, "child: factory=3"),
        ({"restart": "always"}, "child: restart=always"),
        ({"start_timeout": 0}, "child: start_timeout=0"),
        ({"start_timeout": True}, "child: start_timeout=True"),
        ({"start_timeout": math.nan}, "child: start_timeout=math.nan"),
        ({"shutdown": -1}, "child: shutdown=-1"),
        ({"shutdown": math.inf}, "child: shutdown=math.inf"),
        ({"shutdown": "never"}, "child: shutdown=never"),
        ({"significant": True}, "child: significant=True"),
        ({"significant": "yes"}, "child: significant=yes"),
        ({"mailbox_size": 0}, "child: mailbox_size=0"),
        ({"overflow": "drop"}, "child: overflow=drop"),
    ],
)
def test_an_impossible_child_is_refused(given: dict[str, Any], row: str, said: Said) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the table has the whole message
        ChildSpec(**{"id": "a", "factory": Idle, **given})
    said(row, str(refused.value))


@pytest.mark.parametrize(
    ("given", "row"),
    [
        ({"max_restarts": -1}, "supervisor: max_restarts=-1"),
        ({"max_restarts": True}, "supervisor: max_restarts=True"),
        ({"max_restarts": 1.5}, "supervisor: max_restarts=1.5"),
        ({"window": 0}, "supervisor: window=0"),
        ({"window": math.nan}, "supervisor: window=math.nan"),
        ({"reset_after": -1}, "supervisor: reset_after=-1"),
        ({"backoff": 3}, "supervisor: backoff=3"),
        ({"backoff": Backoff}, "supervisor: backoff=Backoff"),
        ({"strategy": "one"}, "supervisor: strategy=one"),
        ({"auto_shutdown": True}, "supervisor: auto_shutdown=True"),
        ({"on_limit": "stay"}, "supervisor: on_limit=stay"),
        ({"start_order": "random"}, "supervisor: start_order=random"),
        ({"stop_order": "random"}, "supervisor: stop_order=random"),
        ({"strict": "yes"}, "supervisor: strict=yes"),
    ],
)
def test_an_impossible_policy_is_refused(given: dict[str, Any], row: str, said: Said) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the table has the whole message
        Supervisor(**given)
    said(row, str(refused.value))


def test_integers_that_are_too_large_for_a_float_are_seconds_like_others() -> None:
    assert ChildSpec("a", Idle, shutdown=10**400).shutdown == 10**400


def test_two_children_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="two children have the id 'a'; rename one of them, or for"):
        Supervisor(ChildSpec("a", Idle), ChildSpec("a", Idle))


def test_a_significant_child_without_auto_shutdown_is_refused() -> None:
    significant = ChildSpec("b", Idle, restart="transient", significant=True)
    with pytest.raises(ValueError, match=r"'b'.*auto_shutdown.*; use 'any_significant' or 'all_significant'$"):
        Supervisor(ChildSpec("a", Idle), significant)
    Supervisor(significant, auto_shutdown="all_significant")


async def test_an_invalid_supervisor_starts_no_child() -> None:
    made: list[str] = []

    def factory() -> Actor:
        made.append("an actor")
        return Idle()

    specs = [ChildSpec("a", factory), ChildSpec("b", factory, restart="temporary", significant=True)]
    with pytest.raises(ValueError, match="child 'b': significant=True"):
        async with open_supervisor(*specs):
            raise AssertionError("not reached")
    assert made == []


def test_an_object_that_is_not_a_child_spec_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"every child is a ChildSpec, not .*Idle.*; write ChildSpec\('name', factory\)"
    ):
        Supervisor(Idle)  # type: ignore[arg-type]  # the mistake under test


def test_a_budget_that_is_reached_just_before_the_window_ends_is_possible() -> None:
    Supervisor(max_restarts=3, window=6.1, backoff=Backoff(initial=2))
    Supervisor(max_restarts=3, window=math.inf, backoff=Backoff(initial=2))
