"""Print notes of tests and the fault matrix at the end of a run, from any number of processes.

A test leaves a note with pytest's fixture ``record_property("note", text)``. What a process knows of a test
travels with the report of that test, so nothing here asks where it was run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from .servers.faults.matrix import CELL, Matrix, Row

FAULTS: Final = Path(__file__).parent / "servers" / "faults"


class Summary:
    """Collects what the reports of a test run bring along, and writes it below them."""

    def __init__(self, config: pytest.Config) -> None:
        self._notes: dict[str, None] = {}
        self._matrix = Matrix(whole=_runs_all_cells(config))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in the report of one phase of a test; later ones say more."""
        for name, value in report.user_properties:
            if name == "note":
                self._notes[f"{report.nodeid}: {value}"] = None
            elif name == CELL:
                assert isinstance(value, Sequence)
                self._matrix.put(Row.from_texts(value))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Let a run fail whose matrix is not whole."""
        if exitstatus == pytest.ExitCode.OK and self._matrix.unproven() and not session.config.option.collectonly:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the notes, and draw the table."""
        if self._notes:
            terminalreporter.write_sep("=", "notes")
        for note in self._notes:
            terminalreporter.line(note)
        if self._matrix:
            headline, *rows = self._matrix.table()
            good = not self._matrix.unproven()
            terminalreporter.write_sep("=", headline, green=good, red=not good)
            for row in rows:
                terminalreporter.line(row)


def _runs_all_cells(config: pytest.Config) -> bool:
    """Return True if nothing narrows the selection, so that a cell without a test is missed."""
    # An argument with "::" names something within a file, and no such folder exists.
    named = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    narrowed = any(
        config.getoption(option, None) for option in ("lf", "keyword", "markexpr", "deselect", "stepwise", "slice")
    )
    return any(FAULTS.is_relative_to(path) for path in named) and not narrowed
