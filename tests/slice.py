"""Select the tests of ``pytest --slice``, or of ``pytest --rest``, which runs all others.

The slice is what the README's command runs: at least one test of every guarantee, and what reaches most for its cost.
``tests/slice.txt`` lists it, with the reason of each test; ``nox -s durations`` writes the list from measured times.
Nothing is measured when tests run, so the slice is the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import pytest

from .source import ROOT

LIST: Final = Path(__file__).with_name("slice.txt")
LINE: Final = re.compile(r"^ +(?P<units>\d+\.\d{3}) (?P<name>.+?)(?:  (?P<rows>[A-Z\d, -]+))?$")
"""A test of the module above: what it costs, its name, and the guarantees for which it was chosen."""


MATRIX: Final = "tests/servers/faults/"
"""Tests that make one table, which has to be whole: ``--rest`` runs all of them."""


FIRST: Final = (
    "tests/adapters/",
    "tests/bridge/test_imports.py",
    "tests/catalog/test_validation.py::test_mode_off_checks_nothing",
    "tests/test_examples.py",
    "tests/test_exports.py",
    "tests/test_language.py",
    "tests/test_layers.py",
    "tests/test_pickling.py::test_the_adapters_have_no_error_and_no_event_of_their_own",
)
"""Tests that import frameworks, ask what the package imports, or read all prose: each takes a second or more, and a
process that has done it once need not do it again. They run first, which is in one worker of two; in the slice are only
those that prove what no other test proves."""


class Chosen(NamedTuple):
    """A test of the slice.

    Attributes:
        name: that of a test function with all its parameters, or of one of its items.
        units: the processor time that it takes, its child processes' included, in units of `tests.unit`.
        rows: the guarantees whose cheapest proof it is; without one, it reaches lines, or is cheap.
    """

    name: str
    units: float
    rows: tuple[str, ...]


@cache
def chosen() -> dict[str, list[Chosen]]:
    """Return the tests of the slice by the paths of their modules."""
    found: dict[str, list[Chosen]] = {}
    module = ""
    for line in LIST.read_text().splitlines():
        if (test := LINE.match(line)) is not None:
            rows = tuple(test["rows"].split(", ")) if test["rows"] else ()
            found[module].append(Chosen(test["name"], float(test["units"]), rows))
        elif line and not line.startswith("#"):
            found[module := line] = []
    return found


@cache
def path_of(test: Path) -> str:
    """Return the path of a module as the list has it."""
    return test.relative_to(ROOT).as_posix()


def in_slice(item: pytest.Item) -> bool:
    """Return True if the list names a test, or its function."""
    name = item.nodeid.partition("::")[2]
    return not {name, name.partition("[")[0]}.isdisjoint(_names(path_of(item.path)))


def in_rest(item: pytest.Item) -> bool:
    """Return True if the list does not name a test, or the test is a part of a table."""
    return not in_slice(item) or item.nodeid.startswith(MATRIX)


@cache
def _names(module: str) -> frozenset[str]:
    return frozenset(each.name for each in chosen().get(module, ()))


def modules(config: pytest.Config) -> Iterator[Path]:
    """Yield the modules of tests below the folders that a run was given, in their order."""
    for argument in config.args:
        for path in sorted((config.invocation_params.dir / argument).rglob("test_*.py")):
            if not set(config.getini("norecursedirs")) & set(path.parts) and not _left_out(path, config):
                yield path


def _left_out(path: Path, config: pytest.Config) -> bool:
    module = path_of(path)
    return bool(config.getoption("slice") and not _names(module)) or not in_part(module, config.getoption("one_in"))


def in_part(module: str, one_in: int) -> bool:
    """Return True for about one module in so many, for the same ones in each run."""
    return crc32(module.encode()) % one_in == 0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("selection", "which tests to run")
    group.addoption("--slice", action="store_true", help="run the tests that tests/slice.txt lists")
    group.addoption("--one-in", type=int, default=1, metavar="N", help="run the tests of one module in N")
    group.addoption("--rest", action="store_true", help="run all tests that tests/slice.txt does not list")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module of which no test is wanted, so that no framework is imported for it."""
    return True if collection_path.name.startswith("test_") and _left_out(collection_path, config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one side of the slice, and let one worker have the tests that should be in one process.

    Each worker begins with an equal part of the tests, in their order, and one that has ended takes from the end of
    another's.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    if config.getoption("slice") or config.getoption("rest"):
        wanted = in_slice if config.getoption("slice") else in_rest
        sides: tuple[list[pytest.Item], list[pytest.Item]] = [], []
        for item in items:
            sides[wanted(item)].append(item)
        config.hook.pytest_deselected(items=sides[0])
        items[:] = sides[1]
