"""The matrix is whole: every cell has a test, every test was run, and what it proves is so."""

from __future__ import annotations

from typing import Final

import pytest

from ...source import ROOT
from .cells import fault
from .matrix import HEADER, Matrix, all_cells

pytest_plugins = ["pytester"]

CELLS: Final = [*all_cells()]


def test_every_cell_that_must_exist_is_proven(matrix: Matrix) -> None:
    """Runs after all cells. If only some tests were selected, it is about the cells among them."""
    assert matrix.unproven() == []


def test_a_cell_without_a_test_is_missed_only_if_all_were_to_be_run() -> None:
    assert Matrix(whole=False).unproven() == []
    assert Matrix(whole=True).unproven() == [f"{key}: no test" for key in CELLS]


@pytest.mark.parametrize("verdict", ["failed", "skipped", "not run"])
def test_a_cell_that_was_not_proven_is_named(verdict: str) -> None:
    matrix = Matrix()
    matrix.add(CELLS[0]).verdict = "proven"
    matrix.add(CELLS[1]).verdict = verdict  # type: ignore[assignment]  # one of the literals above
    assert matrix.unproven() == [f"{CELLS[1]}: {verdict}"]
    assert [*matrix.table()][-1] == f"UNPROVEN  {CELLS[1]}: {verdict}"


def test_a_cell_has_one_proof() -> None:
    matrix = Matrix()
    matrix.add(CELLS[0])
    with pytest.raises(ValueError, match="two tests prove the cell killed in a call"):
        matrix.add(CELLS[0])


def test_a_cell_must_be_in_the_matrix() -> None:
    with pytest.raises(ValueError, match="has no cell for 'lightning' on stdio; write it into FAULTS"):
        fault("lightning", "stdio")


def test_the_table_shows_what_was_seen_in_the_order_of_the_matrix() -> None:
    matrix = Matrix()
    for key in (CELLS[1], CELLS[0]):
        row = matrix.add(key)
        row.error, row.phase, row.seconds, row.bound = "ConnectionLost", "call", 0.0123, 1.0
        row.siblings, row.leftovers, row.verdict = "other server ≤ 11 ms", "nothing", "proven"
    headline, header, first, second = matrix.table()
    assert headline == f"fault matrix: 2 of {len(CELLS)} cells proven (2 selected)"
    assert header.split() == " ".join(HEADER).split()
    assert first.split("  ")[0] == CELLS[0].fault
    assert second.split("  ")[0] == CELLS[1].fault
    assert "ConnectionLost" in first
    assert " 0.012 of 1 " in first


CELLS_OF_A_RUN: Final = """
    import pytest
    from tests.servers.faults.cells import fault

    @fault({0!r}, "stdio")
    def test_proven(cell):
        pass

    @fault({1!r}, "stdio")
    def test_skipped(cell):
        pytest.skip("no time")

    @fault({2!r}, "stdio")
    def test_failed(cell):
        assert False
"""


def test_the_run_of_cells_is_followed_and_ends_with_the_table(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [key.fault for key in CELLS if key.transport == "stdio"]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest("from tests.servers.faults.conftest import *")
    pytester.makepyfile(test_cells=CELLS_OF_A_RUN.format(*names))
    pytester.makepyfile(test_all="def test_all(matrix):\n    assert matrix.unproven() == []\n")
    result = pytester.runpytest_subprocess("-q", "-p", "no:randomly")
    result.assert_outcomes(passed=1, skipped=1, failed=2)
    result.stdout.fnmatch_lines([f"*fault matrix: 1 of {len(CELLS)} cells proven (3 selected)*", f"{names[0]} *"])
    assert [line for line in result.outlines if line.startswith("UNPROVEN")] == [
        f"UNPROVEN  {names[1]} (stdio): skipped",
        f"UNPROVEN  {names[2]} (stdio): failed",
    ]
