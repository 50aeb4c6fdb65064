"""The fault matrix notices a cell that has no test, or whose test was not run or has failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import pytest

from .cells import fault
from .matrix import HEADER, Matrix, Row, all_cells

pytest_plugins = ["pytester"]

CELLS: Final = [*all_cells()]


def test_a_cell_without_a_test_is_missed_only_if_all_were_to_be_run() -> None:
    assert Matrix(whole=False).unproven() == []
    assert Matrix(whole=True).unproven() == [f"{key}: no test" for key in CELLS]


@pytest.mark.parametrize("verdict", ["failed", "skipped", "not run"])
def test_a_cell_that_was_not_proven_is_named(verdict: str) -> None:
    matrix = Matrix()
    matrix.put(Row(CELLS[0], verdict="proven"))
    matrix.put(Row(CELLS[1], verdict=verdict))  # type: ignore[arg-type]  # one of the literals above
    assert matrix.unproven() == [f"{CELLS[1]}: {verdict}"]
    assert [*matrix.table()][-1] == f"UNPROVEN  {CELLS[1]}: {verdict}"


def test_a_cell_must_be_in_the_matrix() -> None:
    with pytest.raises(ValueError, match="has no cell for 'lightning' on stdio; write it into FAULTS"):
        fault("lightning", "stdio")


def test_the_table_shows_what_was_seen_in_the_order_of_the_matrix() -> None:
    matrix = Matrix()
    for key in (CELLS[1], CELLS[0]):
        row = Row(key, "ConnectionLost", "call", 0.0123, 1.0, "other server ≤ 11 ms", "nothing", "proven")
        assert Row.from_texts(row.texts()) == row
        matrix.put(row)
    headline, header, first, second = matrix.table()
    assert headline == f"fault matrix: 2 of {len(CELLS)} cells proven (2 run)"
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


RunCells: TypeAlias = Callable[..., pytest.RunResult]


@pytest.fixture
def run_cells(pytester: pytest.Pytester, run_pytest: RunCells) -> RunCells:
    """Write the cells, one for each of some faults, and run them."""
    pytester.makeconftest("from tests.conftest import pytest_configure\nfrom tests.servers.faults.conftest import *\n")

    def run_cells(names: Sequence[str], *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_cells=CELLS_OF_A_RUN.format(*names))
        return run_pytest("-q", *options)

    return run_cells


NAMES: Final = [key.fault for key in CELLS if key.transport == "stdio"]


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "two workers"])
def test_the_run_of_cells_is_followed_and_ends_with_the_table(options: tuple[str, ...], run_cells: RunCells) -> None:
    if options:
        pytest.importorskip("xdist")
    result = run_cells(NAMES, *options)
    result.assert_outcomes(passed=1, skipped=1, failed=1)
    result.stdout.fnmatch_lines([f"*fault matrix: 1 of {len(CELLS)} cells proven (3 run)*", f"{NAMES[0]} *"])
    assert [line for line in result.outlines if line.startswith("UNPROVEN")] == [
        f"UNPROVEN  {NAMES[1]} (stdio): skipped",
        f"UNPROVEN  {NAMES[2]} (stdio): failed",
    ]


def test_a_cell_that_is_skipped_fails_the_run(run_cells: RunCells) -> None:
    result = run_cells(NAMES, "-k", "skipped")
    result.assert_outcomes(skipped=1, deselected=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_cell_has_one_proof(run_cells: RunCells) -> None:
    result = run_cells([CELLS[0].fault] * 3)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["*two tests prove the cell killed in a call (stdio); one cell is one test"])
