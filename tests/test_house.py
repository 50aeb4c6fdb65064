"""One word means one thing, prose stays short, and each room keeps to its lines."""

from __future__ import annotations

import ast
import re
from typing import Final

from .house import (
    FILES,
    MODULE,
    POINTING,
    RELATIVE,
    calls_of,
    code_of,
    homonyms,
    lines_of_rooms,
    parse,
    prose_of,
    share,
)
from .source import PACKAGE

WORDS: Final = 138_000
"""Words of docstrings, of the texts below constants and attributes, and of comments."""

LINES: Final = {
    ".": 1533,
    "adapters": 715,
    "auth": 1626,
    "bridge": 1337,
    "catalog": 1535,
    "cli": 2880,
    "config": 3935,
    "gateway": 4412,
    "hosts": 76,
    "kernel": 4718,
    "observe": 280,
    "servers": 8969,
    "sync": 286,
    "testing": 1141,
    "transports": 5278,
}
"""Lines of code of each room. A commit that raises one says what went for it."""

SMALL: Final = 60
"""Lines of code below which a module needs no list of what it owns, writes and calls."""


LOGS: Final = re.compile(r"\b(?:logger|_log|hub)\.(?:debug|info|warning|error|exception|critical|log)\(")


def test_no_class_has_the_name_of_another_and_no_constant_two_values() -> None:
    """Underscores aside: a reader who has seen one of two would take the other for the same."""
    assert homonyms() == ({}, {})


def test_the_prose_of_the_package_is_short_and_names_its_things() -> None:
    """A docstring is read alone, so its subject is named in it."""
    prose = [prose_of(path) for path in FILES]
    assert sum(each.words for each in prose) <= WORDS
    assert share(POINTING, prose) <= 4.0
    assert share(RELATIVE, prose) <= 1.6


def test_each_room_keeps_to_its_lines() -> None:
    """Size is a cost: code that is not there needs no reader."""
    assert {room: lines for room, lines in lines_of_rooms().items() if lines > LINES.get(room, 0)} == {}


def test_each_module_says_what_it_owns_writes_and_calls() -> None:
    """The rooms and files that it calls are those that it imports when it runs."""
    wrong = []
    for path in FILES:
        last = (ast.get_docstring(parse(path)) or "").rpartition("\n\n")[2]
        found = [each for each in MODULE if f"\n{each} " in f"\n{last}"]
        has_to = path.name.startswith("_") and path.name != "__init__.py" and code_of(path) >= SMALL
        calls = " ".join(last.partition("Calls: ")[2].split())
        if (has_to or found) and (found != [*MODULE] or calls != f"{calls_of(path)}."):
            wrong.append(f"{path.relative_to(PACKAGE)}: Calls: {calls_of(path)}.")
    assert wrong == []


def test_each_module_that_logs_says_so() -> None:
    wrong = []
    for path in FILES:
        writes = (ast.get_docstring(parse(path)) or "").partition("\nWrites: ")[2].partition("\nCalls: ")[0]
        if writes and LOGS.search(path.read_text()) and re.search(r"\blogs?\b", writes) is None:
            wrong.append(f"{path.relative_to(PACKAGE)}: Writes: {writes}")
    assert wrong == []
