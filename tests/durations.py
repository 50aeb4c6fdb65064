"""Measure what each test costs, and choose the slice that the README's command runs: ``nox -s durations``.

A cost is processor time of the user and of the system, of the test's own process and of its children, the forks of
`tests.forkserver` included. The slice has for each guarantee the cheapest test that names it, and the cheapest that
costs at least `REAL`, if one does; one of `tests.slice.FIRST` only if no other names it. Then come, up to `LIMIT`, the
tests that are worth most for what they cost. A test is worth what the lines of the package are that few chosen before
have reached (`WORTH`), and one for itself; the second test of a function counts as twice as dear, and so on: a thousand
cases of one table find less than ten of a hundred tables.

Owns: tests/slice.txt.
Writes: the folder that the environment variable DURATIONS names, a file for each process that runs tests.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from time import process_time
from typing import Final, cast

import pytest

from . import forkserver
from .slice import FIRST, LIST, MATRIX, Chosen
from .source import ROOT, docs_module
from .unit import unit

LIMIT: Final = 40.0
"""Units for the tests of the slice. The README's command may take 90; the rest is for starting, importing and load."""

WORTH: Final = (3, 1)
"""What a line is worth that no test of the slice has reached yet, or only one; a test itself is worth 1."""

REAL: Final = 0.05
"""Units that no test takes without a process, a connection or many steps of its own."""

FIGURES: Final = {"B-40": "bench", "C-66": "instructions", "D-70": "elsewhere"}
"""Guarantees that a session of nox proves, and a test in part only, with that session."""

TOOLS: Final = frozenset({"benchmarks", "compare", "hosts", "load", "mutants", "simulate", "soak"})
"""Folders whose tests are for what measures, compares, loads and simulates: they are not in the slice."""

WHOLE: Final = ""
"""Stands for a whole process where others have a test."""

TICK: Final = os.sysconf("SC_CLK_TCK")


# --- Measuring -------------------------------------------------------------------------------------------------------


class Meter:
    """A plugin of pytest that writes what each test costs, and at last what its process has cost altogether.

    Args:
        folder: where to write.
        alone: False for a process whose tests are run by workers. They are its children, and write themselves.
    """

    def __init__(self, folder: str, *, alone: bool) -> None:
        self._file = Path(folder) / str(os.getpid())
        self._alone = alone

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write the cost of a test."""
        before = _spent()
        try:
            return (yield)
        finally:
            self._write(item.nodeid, _spent() - before)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Write the cost of this process."""
        self._write(WHOLE, _spent() if self._alone else process_time())

    def _write(self, what: str, cost: float) -> None:
        with self._file.open("a") as file:
            file.write(f"{json.dumps([what, cost])}\n")


class Reach:
    """A plugin of pytest that names the test that runs to coverage.py, which then notes what each test reaches."""

    def __init__(self) -> None:
        from coverage import Coverage  # other runs need not wait for its import

        self._switch = cast("Coverage", Coverage.current()).switch_context

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what a test reaches."""
        self._switch(item.nodeid)
        try:
            return (yield)
        finally:
            self._switch("")


def read(folder: Path) -> tuple[dict[str, float], float]:
    """Return the cost of each test, and that of all processes of the run, in seconds."""
    rows = [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]
    return {test: cost for test, cost in rows if test != WHOLE}, sum(cost for test, cost in rows if test == WHOLE)


def _spent() -> float:
    """Return the processor time of this process, its children, and the process that forks."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    pids = [*_read(f"/proc/self/task/{os.getpid()}/children").split(), *map(str, forkserver.running)]
    return process_time() + used.ru_utime + used.ru_stime + sum(map(_of_process, pids))


def _of_process(pid: str) -> float:
    """Return the processor time of a process and of its children that have ended."""
    return sum(map(int, _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15])) / TICK


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""  # it has ended


def lines_reached() -> dict[str, int]:
    """Run all tests, and return the lines of the package that each reaches in its own process, a bit for each."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "REACH": "1", "COVERAGE_FILE": f"{folder}/data"}
        words = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "tests"]
        subprocess.run(words, cwd=ROOT, env=environment, check=False)  # some tests fail: it makes them slower
        return read_lines(Path(folder))


def read_lines(folder: Path) -> dict[str, int]:
    """Return the lines that each test has reached, a bit for each, from what all processes have written."""
    from coverage import CoverageData  # as above

    numbers: defaultdict[tuple[str, int], int] = defaultdict(lambda: len(numbers))
    found: defaultdict[str, int] = defaultdict(int)
    for written in folder.iterdir():
        data = CoverageData(written)
        data.read()
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    found[test] |= 1 << numbers[file, line]
    return found


# --- Choosing --------------------------------------------------------------------------------------------------------


def choose(
    costs: Mapping[str, float], proofs: Mapping[str, Iterable[str]], reached_by: Mapping[str, int], limit: float
) -> dict[str, set[str]]:
    """Return the tests of the slice, each with the guarantees for which it was chosen.

    Args:
        costs: what each test costs, in units, by its node id.
        proofs: the functions that prove each guarantee, without their parameters.
        reached_by: the lines that each test reaches, a bit for each.
        limit: the units that all tests may take together, unless the guarantees alone take more.
    """
    items: defaultdict[str, list[str]] = defaultdict(list)
    costs = {test: cost for test, cost in costs.items() if test.split("/")[1] not in TOOLS}
    for test in sorted(costs, key=lambda test: (costs[test], test)):
        items[test.partition("[")[0]].append(test)
    found = _cheapest_proofs(costs, proofs, items)
    left = limit - sum(costs[test] for test in found)
    reached = [0] * len(WORTH)  # the lines that at least one test has reached, at least two, and so on
    for test in found:
        _reach(reached, reached_by.get(test, 0))
    dearness = {test: costs[test] * place for each in items.values() for place, test in enumerate(each, 1)}

    def worth(test: str) -> float:
        own = reached_by.get(test, 0)
        new = sum(each * (own & ~seen).bit_count() for each, seen in zip(WORTH, reached, strict=True))
        return (1 + new) / dearness[test]

    others = costs.keys() - found.keys()
    queue = [(-worth(test), test) for test in others if not test.startswith((MATRIX, *FIRST))]
    heapify(queue)
    while queue:
        before, test = heappop(queue)
        if (now := -worth(test)) > before:  # tests chosen meanwhile have reached some of its lines
            heappush(queue, (now, test))
            continue
        left -= costs[test]
        if left < 0:
            break
        found[test] = set()
        _reach(reached, reached_by.get(test, 0))
    return dict(found)


def _cheapest_proofs(
    costs: Mapping[str, float], proofs: Mapping[str, Iterable[str]], items: Mapping[str, Sequence[str]]
) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for least in (REAL, 0.0):  # the dear ones first: one that proves a guarantee may prove others, too
        cheapest: dict[str, str] = {}
        for row, functions in proofs.items():
            others = [each for each in functions if not each.startswith(FIRST)]
            proving = [test for each in others or functions for test in items.get(each, ()) if costs[test] >= least]
            if proving:
                cheapest[row] = min(proving, key=costs.__getitem__)
        for row in sorted(cheapest, key=lambda row: -costs[cheapest[row]]):
            there = {test for test in found if test.partition("[")[0] in proofs[row] and costs[test] >= least}
            found[min(there or {cheapest[row]}, key=costs.__getitem__)].add(row)
    return found


def _reach(reached: list[int], lines: int) -> None:
    for place, seen in enumerate(reached):
        reached[place] |= lines
        lines &= seen


def lines(found: Mapping[str, set[str]], costs: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of the list: a function of which all tests were chosen is one line."""
    modules: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    whole: defaultdict[str, int] = defaultdict(int)
    for test in costs:
        whole[test.partition("[")[0]] += 1
    for test in found:
        module, _, name = test.partition("::")
        modules[module][name.partition("[")[0]].append(test)
    for module, functions in sorted(modules.items()):
        yield module
        for function, tests in sorted(functions.items()):
            if len(tests) == whole[f"{module}::{function}"]:
                rows = sorted({row for test in tests for row in found[test]})
                yield _line(Chosen(function, sum(costs[test] for test in tests), tuple(rows)))
            else:
                for test in sorted(tests):
                    yield _line(Chosen(test.partition("::")[2], costs[test], tuple(sorted(found[test]))))


def _line(test: Chosen) -> str:
    return f"{test.units:10.3f} {test.name}  {', '.join(test.rows)}".rstrip()


# --- The command -----------------------------------------------------------------------------------------------------


def main(runs: int = 2) -> None:
    """Run all tests some times, one after the other, take the least cost of each, and write the list."""
    costs: dict[str, float] = {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            before = unit()
            words = [sys.executable, "-m", "pytest", "tests"]
            subprocess.run(words, cwd=ROOT, env={**os.environ, "DURATIONS": folder}, check=True)
            seconds = (before + unit()) / 2
            for test, cost in read(Path(folder))[0].items():
                costs[test] = min(costs.get(test, cost / seconds), cost / seconds)
    proofs = {row: tests for row, tests in docs_module("_guarantees").proofs().items() if row not in FIGURES}
    found = choose(costs, proofs, lines_reached(), LIMIT)
    total = sum(costs[test] for test in found)
    head = (
        "# The tests of `pytest --slice`, written by `nox -s durations`: units of processor time (tests/unit.py), the",
        "# test, and the guarantees whose cheapest proof it is. The others reach new lines, or are cheap.",
        f"# {len(found)} of {len(costs)} tests, {total:.0f} of {sum(costs.values()):.0f} units.",
    )
    LIST.write_text("\n".join([*head, *lines(found, costs)]) + "\n")
    print(head[-1])


if __name__ == "__main__":
    main()
