"""Follows what becomes of the cells, and ends the test run with their table."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

import pytest

from .cells import Cell
from .matrix import Key, Matrix, Verdict

PACKAGE: Final = Path(__file__).parent
MATRIX: Final = pytest.StashKey[Matrix]()
VERDICTS: Final[dict[str, Verdict]] = {"passed": "proven", "failed": "failed", "skipped": "skipped"}


@pytest.fixture
def matrix(pytestconfig: pytest.Config) -> Matrix:
    """The matrix of this test run."""
    return pytestconfig.stash[MATRIX]


@pytest.fixture
def cell(request: pytest.FixtureRequest, matrix: Matrix) -> Cell:
    """The cell that the test has to prove; see `fault`."""
    return Cell(matrix[request.param])


def pytest_configure(config: pytest.Config) -> None:
    """Begin with an empty matrix, which is whole unless something narrows the selection."""
    # An argument with "::" names something within a file, and no such folder exists.
    named = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    everything = any(PACKAGE.is_relative_to(path) for path in named) and not config.getoption("lf", False)
    config.stash[MATRIX] = Matrix(whole=everything)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Without the cells that ``-k`` and the like leave out, the matrix is not whole."""
    for item in items:
        if _key_of(item) is not None:
            item.config.stash[MATRIX].whole = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take in the selected cells, and let tests that look at all of them run last, whatever the order is."""
    for item in items:
        if (key := _key_of(item)) is not None:
            config.stash[MATRIX].add(key)
    items.sort(key=lambda item: "matrix" in _fixtures_of(item) and _key_of(item) is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what became of a cell: what went wrong in set-up or tear-down counts too."""
    report = yield
    if (key := _key_of(item)) is not None:
        row = item.config.stash[MATRIX][key]
        if report.when == "call" or not report.passed:
            row.verdict = VERDICTS[report.outcome]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Draw the table."""
    if (matrix := config.stash[MATRIX]) and not config.getoption("collectonly"):
        headline, *rows = matrix.table()
        good = not matrix.unproven()
        terminalreporter.write_sep("=", headline, green=good, red=not good)
        for row in rows:
            terminalreporter.line(row)


def _key_of(item: pytest.Item) -> Key | None:
    """The cell that a test proves, if it does."""
    key = item.callspec.params.get("cell") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return key if isinstance(key, Key) else None


def _fixtures_of(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []
