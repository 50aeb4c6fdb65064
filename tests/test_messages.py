"""The tables of messages hold what tests check, and nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from .messages import check, dumped
from .source import ROOT

TABLES = sorted((ROOT / "tests").rglob("messages.toml"))


def test_every_row_of_a_table_is_checked_by_a_test_in_its_folder() -> None:
    unused = {
        f"{table.relative_to(ROOT)}: {row}"
        for table in TABLES
        for sources in ["".join(path.read_text() for path in table.parent.rglob("test_*.py"))]
        for row in tomllib.loads(table.read_text())
        if f'"{row}"' not in sources
    }
    assert unused == set()


def test_a_message_is_compared_with_its_row_and_facts_by_their_names(tmp_path: Path) -> None:
    table = tmp_path / "messages.toml"
    rows = {"gone": "server {name!}: 'gone' at {time}", "two lines": "one\n  two"}
    table.write_text(dumped(rows))
    assert tomllib.loads(table.read_text()) == rows
    check(table, "gone", "server {name!}: 'gone' at 12:31", time="12:31")
    with pytest.raises(AssertionError, match="row 'gone'"):
        check(table, "gone", "server {name!}: 'lost' at 12:31", time="12:31")
    with pytest.raises(AssertionError, match="row 'unknown'"):
        check(table, "unknown", "one\n  two")
