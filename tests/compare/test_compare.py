"""The comparison works with our own client, its tables are complete, and its page is the one of its results.

All cells are for ``nox -s compare``.
"""

from __future__ import annotations

import sys

import pytest

from . import page
from .scenarios import SCENARIOS, play
from .tables import CLIENTS, FAULTS, VERDICTS, mark, read_results


@pytest.mark.parametrize(("fault", "verdict"), [("print-in-a-tool", "works"), ("dies-idle", "recovers")])
def test_our_client_meets_the_expectation(fault: str, verdict: str) -> None:
    assert play(fault, sys.executable, "mcp_actors_trio").word == verdict
    assert mark(fault, verdict) == "✓"


def test_every_fault_has_a_scenario_and_every_scenario_a_fault() -> None:
    assert set(SCENARIOS) == set(FAULTS)


def test_every_verdict_is_explained() -> None:
    words = {word for row in FAULTS.values() for word in (*row["passes"], *row["partly"])}
    assert words <= set(VERDICTS)


def test_every_cell_was_run() -> None:
    cells = read_results()["cells"]
    assert {name: set(row) for name, row in cells.items()} == {name: set(CLIENTS) for name in FAULTS}
    assert {cell["verdict"] for row in cells.values() for cell in row.values()} <= set(VERDICTS)


def test_the_page_is_the_one_of_the_results() -> None:
    assert page.PAGE.read_text() == page.render(read_results())


def test_an_error_becomes_one_line_of_code() -> None:
    assert page.shorten("cannot\nread `x` at 127.0.0.1:4711") == "cannot read 'x' at 127.0.0.1:8000"
    assert len(page.shorten("x" * 1000)) == page.SHOWN
