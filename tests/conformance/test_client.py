"""One scenario of each kind, so that every run of the tests proves that the client of the suite works."""

from __future__ import annotations

import pytest

from .conftest import RunScenario


@pytest.mark.parametrize(
    ("scenario", "revision", "successes"),
    [
        ("auth/basic-cimd", "2025-11-25", 13),
        ("sep-2322-client-request-state", "2026-07-28", 5),  # what a server asks back
        ("json-schema-2020-12-preservation", "2026-07-28", 8),  # that the catalogue keeps all keywords of a schema
    ],
)
def test_a_scenario_is_passed(scenario: str, revision: str, successes: int, run_scenario: RunScenario) -> None:
    exit_code, outcome = run_scenario(scenario, revision)
    assert outcome.complaints == ()
    assert outcome.checks["SUCCESS"] >= successes
    assert exit_code == 0


def test_a_client_that_does_nothing_passes_nothing_though_the_suite_finds_nothing_wrong(
    run_scenario: RunScenario,
) -> None:
    exit_code, outcome = run_scenario("initialize", "2025-11-25", client="true")
    assert exit_code == 0
    assert outcome.complaints == ()
    assert not outcome.passed
