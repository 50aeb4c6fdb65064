"""Judge a room's tests by some random changes of its code: ``nox -s rooms -- --seed 46``.

The tests of a room that the README's command runs come first, then all tests of the room for what they have missed,
and then all others for what those have missed. A change that no test catches needs a test, or a row in ``rooms.toml``
that says why it makes no difference. The changes are made in a copy of the checkout.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from ..copies import copy_checkout, link_environment
from ..servers.processes import parents
from ..source import PACKAGE, ROOT
from .edits import Edit, draw

EXPLAINED: Final = Path(__file__).with_name("rooms.toml")

ROOMS: Final = {
    **{name: name for name in ("kernel", "servers", "config", "catalog", "auth", "bridge", "gateway", "cli")},
    "transports": "servers",
}
"""The rooms of the package, each with the folder of its tests. Programs know transports by their servers only."""

PUBLIC: Final = ("tests/test_exports.py", "tests/test_pickling.py", "tests/test_public_objects.py")
"""Tests of what every room makes public: they are tests of each room, too."""

COUNT: Final = 8
"""Changes of each room."""

STAGES: Final = ("slice", "room", "all")
"""Which tests: those of the room in the slice, all of the room, or all of the other folders."""

ENOUGH: Final = {"slice": 0.8, "all": 0.97}
"""The part of all changes that must be caught up to a stage."""

SECONDS: Final = {"slice": 300, "room": 1200, "all": 3600}
"""Seconds after which a run of tests counts as hanging, on a loaded machine; most take a tenth."""

MISSED: Final = "missed"
"""The outcome of a run of tests that has caught nothing."""


class Mutant(NamedTuple):
    """A change of a room."""

    room: str
    number: int
    edit: Edit

    @property
    def row(self) -> tuple[str, str, str]:
        """What identifies the change in the list of those that are explained."""
        was, now = self.edit.lines()
        return self.edit.path.relative_to(PACKAGE).as_posix(), was, now

    def __str__(self) -> str:
        place, was, now = (field.replace("\\", "\\\\").replace('"', '\\"') for field in self.row)
        return f'[[equivalent]]  # {self.room}.{self.number}\nplace = "{place}"\nwas = "{was}"\nnow = "{now}"\nwhy = ""'


def mutants(room: str, seed: int) -> list[Mutant]:
    """Return the changes of a room that a seed draws."""
    modules = sorted((PACKAGE / room).rglob("*.py"))
    return [Mutant(room, number, edit) for number, edit in enumerate(draw(modules, f"{seed} {room}", COUNT))]


class Judge:
    """Run tests in copies of this checkout, one for each process that may run at a time."""

    def __init__(self, folder: Path, processes: int) -> None:
        self._copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(processes):
            copy_checkout(place := folder / str(number))
            link_environment(place)
            if (node := ROOT / ".node").exists():
                (place / ".node").symlink_to(node)
            self._copies.put(place)

    def run(self, stage: str, mutant: Mutant) -> str:
        """Run the tests of a stage with a change; return "missed", or what has caught it."""
        own = [f"tests/{ROOMS[mutant.room]}", *PUBLIC]
        tests = {"slice": ["--slice", *own], "room": own, "all": [f"--ignore={each}" for each in own]}[stage]
        place = self._copies.get()
        try:
            with _changed(place, mutant.edit):
                return _run_tests(place, SECONDS[stage], *tests)
        finally:
            self._copies.put(place)

    def check(self, outcomes: Iterable[str]) -> str:
        """Run the tests that have caught changes without any change; return "missed", as they should say."""
        place = self._copies.get()
        try:
            tests = sorted({each.partition("[")[0] for each in outcomes if "::" in each})
            return _run_tests(place, SECONDS["all"], *tests) if tests else MISSED
        finally:
            self._copies.put(place)


@contextmanager
def _changed(place: Path, edit: Edit) -> Iterator[None]:
    """Make a change in a copy during a block."""
    path = place / edit.path.relative_to(ROOT)
    before = path.read_bytes()
    _write(path, edit.apply(before))
    try:
        yield
    finally:
        _write(path, before)


def _write(path: Path, source: bytes) -> None:
    """Write a module with another time than it had, so that Python compiles it again."""
    path.write_bytes(source)
    os.utime(path, (since := random.randrange(2**30), since))


def _run_tests(place: Path, seconds: float, *tests: str) -> str:
    command = [str(place / ".venv/bin/python"), "-m", "pytest", "-qx", "-n", "0", "-p", "no:randomly", *tests]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"a time-out of {seconds} s"
        finally:
            if process.poll() is None:
                _kill(process)
        output.seek(0)
        return MISSED if code in {0, 5} else _reason(output.read(), code)  # 5: there are no tests


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a run with all processes that it has started, which may be in groups of their own."""
    doomed, parent_of = {process.pid}, parents()
    while more := {pid for pid, parent in parent_of.items() if parent in doomed} - doomed:
        doomed |= more
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _reason(output: str, code: int) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", output, re.MULTILINE)
    return found[1] if found is not None else f"exit code {code}: {' '.join(output.split())[-80:]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if too few changes are caught, or if one that is not is not explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.rooms", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rooms", nargs="+", default=[*ROOMS], metavar="ROOM", choices=ROOMS)
    parser.add_argument("--mutants", nargs="+", metavar="ROOM.NUMBER", help="only these")
    parser.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    drawn = [each for room in given.rooms for each in mutants(room, given.seed)]
    if given.mutants:
        drawn = [each for each in drawn if f"{each.room}.{each.number}" in given.mutants]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        judge = Judge(Path(folder), given.processes)
        missed = {stage: (drawn := _judge(drawn, stage, judge, given.processes)) for stage in given.stages}
    return _report(missed, COUNT * len(given.rooms) if not given.mutants else len(given.mutants))


def _judge(drawn: Sequence[Mutant], stage: str, judge: Judge, processes: int) -> list[Mutant]:
    """Return the changes that the tests of a stage do not catch; say of each what has caught it."""

    def one(mutant: Mutant) -> str:
        began = monotonic()
        outcome = judge.run(stage, mutant)
        print(f"{mutant.room}.{mutant.number} {stage}, {monotonic() - began:.0f} s: {outcome}", flush=True)
        return outcome

    with ThreadPoolExecutor(processes) as pool:
        outcomes = list(pool.map(one, drawn))
    if (outcome := judge.check(outcomes)) != MISSED:
        sys.exit(f"it fails without a change: {outcome}")
    return [mutant for mutant, outcome in zip(drawn, outcomes, strict=True) if outcome == MISSED]


def _report(missed: dict[str, list[Mutant]], count: int) -> int:
    rows = tomllib.loads(EXPLAINED.read_text())["equivalent"]
    explained = {(row["place"], row["was"], row["now"]) for row in rows if row["why"]}
    failed, unexplained = False, list[Mutant]()
    for stage, left in missed.items():
        unexplained = [each for each in left if each.row not in explained]
        caught = 1 - len(unexplained) / count
        failed |= caught < ENOUGH.get(stage, 0.0)
        print(f"{stage}: {caught:.1%} of {count} caught, {len(left) - len(unexplained)} of them make no difference")
    for each in unexplained:
        print(f"# Not caught; add a test, or explain it in {EXPLAINED.name}:\n{each}\n")
    return int(failed or bool(unexplained and "all" in missed))


if __name__ == "__main__":
    sys.exit(main())
