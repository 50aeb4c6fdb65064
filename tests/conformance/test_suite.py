"""How the results of the suite are judged."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from .suite import Outcome, Report, outcome

NAMES = tuple(f"scenario-{number}" for number in range(18))
FINE = {name: Outcome(Counter(SUCCESS=14)) for name in NAMES}


def judge(**changes: Outcome) -> list[str]:
    """Return the problems of a run in which all was fine but for some scenarios."""
    return Report("2025-11-25", FINE | {name.replace("_", "-"): changed for name, changed in changes.items()}).problems


def write(folder: Path, *checks: dict[str, str], stderr: str = "") -> None:
    """Write what the suite writes for a scenario."""
    results = folder / "auth" / "basic-cimd-2026-11-21T06-17-04-950Z"
    results.mkdir(parents=True)
    (results / "checks.json").write_text(json.dumps(checks))
    (results / "stderr.txt").write_text(stderr)


def test_the_results_of_a_scenario_are_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"id": "one", "status": "SUCCESS", "description": "It is so"},
        {"id": "two", "status": "INFO", "description": "A request"},
        {"id": "three", "status": "FAILURE", "description": "It is so", "errorMessage": "It is not so"},
        {"id": "four", "status": "WARNING", "description": "It should be so"},
    )
    found = outcome(tmp_path, 1)
    assert found.checks == Counter(SUCCESS=1, INFO=1, FAILURE=1, WARNING=1)
    assert found.complaints == ("FAILURE three: It is not so", "WARNING four: It should be so")
    assert not found.passed


def test_a_client_that_failed_has_not_passed_though_all_checks_have_succeeded(tmp_path: Path) -> None:
    write(tmp_path, {"id": "one", "status": "SUCCESS", "description": "It is so"}, stderr="Traceback …\nOops: no\n\n")
    assert outcome(tmp_path, 0).passed
    assert outcome(tmp_path, 1).complaints == ("the client failed: Oops: no",)
    assert not outcome(tmp_path, 1).passed


def test_a_suite_that_did_not_run_at_all_has_passed_nothing(tmp_path: Path) -> None:
    assert outcome(tmp_path, 1).complaints == ("the client failed: it said nothing",)
    assert not outcome(tmp_path, 0).passed


def test_all_scenarios_with_enough_checks_pass() -> None:
    assert judge() == []


@pytest.mark.parametrize("bad", [Outcome(), Outcome(Counter(SUCCESS=99), ("WARNING",))], ids=["nothing", "something"])
def test_a_scenario_that_is_not_passed_is_one(bad: Outcome) -> None:
    assert judge(scenario_3=bad) == ["17 of the 18 required scenarios passed"]


def test_too_few_checks_are_one() -> None:
    few = dict.fromkeys(NAMES, Outcome(Counter(SUCCESS=13)))
    assert Report("2025-11-25", few).problems == ["234 checks succeeded, 238 should"]


def test_the_report_shows_each_scenario() -> None:
    report = Report("2026-07-28", {"one": Outcome(Counter(SUCCESS=5), ("FAILURE x: y",)), "two": FINE[NAMES[0]]})
    assert str(report).splitlines() == [
        "  one                                           5 FAILED",
        "      FAILURE x: y",
        "  two                                          14 passed",
        "2026-07-28: 1 of 2 scenarios, 14 checks succeeded",
        "  1 of the 35 required scenarios passed",
        "  14 checks succeeded, 424 should",
    ]
