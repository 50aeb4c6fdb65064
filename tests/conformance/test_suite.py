"""How the results of the suite are judged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from .suite import LEAST, Outcome, Report, outcomes

NAMES = tuple(f"scenario-{number}" for number in range(18))
FINE = {name: Outcome(Counter(SUCCESS=14)) for name in NAMES}


def judge(changes: Mapping[str, Outcome | None], *, exit_code: int = 0) -> list[str]:
    """Return the problems of a run in which all was fine but for some scenarios."""
    results = {name: outcome for name, outcome in {**FINE, **changes}.items() if outcome is not None}
    return Report("2025-11-25", exit_code, NAMES, results).problems


def test_the_results_of_a_scenario_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "auth" / "basic-cimd-2026-11-21T06-17-04-950Z"
    folder.mkdir(parents=True)
    checks = [
        {"id": "one", "status": "SUCCESS", "description": "It is so"},
        {"id": "two", "status": "INFO", "description": "A request"},
        {"id": "three", "status": "FAILURE", "description": "It is so", "errorMessage": "It is not so"},
        {"id": "four", "status": "WARNING", "description": "It should be so"},
    ]
    (folder / "checks.json").write_text(json.dumps(checks))
    [(name, outcome)] = outcomes(tmp_path)
    assert name == "auth/basic-cimd"
    assert outcome.checks == Counter(SUCCESS=1, INFO=1, FAILURE=1, WARNING=1)
    assert outcome.complaints == ("FAILURE three: It is not so", "WARNING four: It should be so")
    assert not outcome.passed


def test_all_scenarios_and_enough_checks_are_no_problem() -> None:
    assert judge({}) == []
    assert judge({"another that is not required": Outcome(Counter(), ("FAILURE",))}) == []


@pytest.mark.parametrize(
    "outcome",
    [None, Outcome(Counter()), Outcome(Counter(SUCCESS=99), ("WARNING",))],
    ids=["did not run", "nothing succeeded", "something failed"],
)
def test_a_scenario_that_is_not_passed_is_one(outcome: Outcome | None) -> None:
    assert judge({NAMES[3]: outcome}) == ["17 of the 18 required scenarios passed"]


def test_too_few_checks_are_one() -> None:
    assert judge({name: Outcome(Counter(SUCCESS=13)) for name in NAMES}) == ["234 checks succeeded, 238 should"]


def test_so_is_an_exit_code_and_another_number_of_scenarios() -> None:
    assert judge({}, exit_code=1) == ["the suite ended with exit code 1"]
    assert Report("2025-11-25", 0, NAMES[:17], FINE).problems == ["the suite requires 17 scenarios, not 18"]


def test_the_report_shows_each_scenario() -> None:
    report = Report("2026-07-28", 0, ("one", "two"), {"one": Outcome(Counter(SUCCESS=5), ("FAILURE x: y",))})
    assert str(report).splitlines() == [
        "  one                                           5 FAILED",
        "      FAILURE x: y",
        "  two                                        did not run",
        "2026-07-28: 0 of 2 scenarios, 0 checks succeeded",
        "  0 of the 2 required scenarios passed",
        "  the suite requires 2 scenarios, not 32",
        f"  0 checks succeeded, {LEAST['2026-07-28'][1]} should",
    ]
