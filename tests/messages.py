"""Check messages against the table of their folder, ``tests/<folder>/messages.toml``.

People read the table at review. A whole sentence is pinned there and nowhere else, so a better sentence changes one
file. A test names its row: ``said("unknown server", str(error), name=name)``; facts that differ from run to run are
written ``{name}`` in the row. ``MESSAGES=write python -m pytest -n 0 tests/<folder>`` writes the current messages; read
the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Final, Protocol

WRITE: Final = os.environ.get("MESSAGES") == "write"


class Said(Protocol):
    """Compare a message with its row."""

    def __call__(self, row: str, text: str, /, **facts: object) -> None: ...


def table_for(folder: Path) -> Path:
    """Return the table of the nearest folder upwards that has one."""
    return next(path for each in (folder, *folder.parents) if (path := each / "messages.toml").exists())


def check(table: Path, row: str, text: str, /, **facts: object) -> None:
    """Fail unless the table has this text in this row, with each fact replaced by its name."""
    for name, value in sorted(facts.items(), key=lambda fact: -len(str(fact[1]))):
        text = text.replace(str(value), f"{{{name}}}")
    rows = rows_of(table)
    if WRITE and rows.get(row) != text:
        rows[row] = text
        table.write_text(dumped(rows))
        return
    assert text == rows.get(row), f"row {row!r} of {table}: {text}"


@cache
def rows_of(table: Path) -> dict[str, str]:
    """Read a table, once in each process."""
    return tomllib.loads(table.read_text())


def dumped(rows: dict[str, str]) -> str:
    """Return the table as TOML, in the order of its rows; a message of several lines is shown as such."""
    return "".join(f"{json.dumps(row)} = {_string(rows[row])}\n" for row in sorted(rows))


def _string(text: str) -> str:
    if "\n" in text and "'''" not in text and text.replace("\n", "").isprintable():
        return f"'''\n{text}'''"
    return json.dumps(text, ensure_ascii=False)
