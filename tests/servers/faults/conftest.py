"""Follows what becomes of the cells; `tests.summary` ends the test run with their table."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import pytest

from .cells import Cell
from .matrix import CELL, Key, Row, Verdict

ROW: Final = pytest.StashKey[Row]()
VERDICTS: Final[dict[str, Verdict]] = {"passed": "proven", "failed": "failed", "skipped": "skipped"}


@pytest.fixture
def cell(request: pytest.FixtureRequest) -> Cell:
    """The cell that the test has to prove; see `fault`."""
    return Cell(request.node.stash[ROW])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of a cell its row.

    Raises:
        ValueError: two tests claim to be the proof of one cell.
    """
    keys = set()
    for item in items:
        if (key := _key_of(item)) is not None:
            if key in keys:
                raise ValueError(f"two tests prove the cell {key}; one cell is one test")
            keys.add(key)
            item.stash[ROW] = Row(key)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what became of a cell: what went wrong in set-up or tear-down counts too."""
    report = yield
    if (row := item.stash.get(ROW, None)) is not None:
        if report.when == "call" or not report.passed:
            row.verdict = VERDICTS[report.outcome]
        report.user_properties.append((CELL, row.texts()))
    return report


def _key_of(item: pytest.Item) -> Key | None:
    """The cell that a test proves, if it does."""
    key = item.callspec.params.get("cell") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return key if isinstance(key, Key) else None
