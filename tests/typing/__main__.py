"""Run the type checkers over the programs of this folder and all examples, and compare what they refuse.

``python -m tests.typing`` runs all of `CHECKERS`, ``python -m tests.typing mypy`` those that are named.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.source import ROOT

HERE: Final = Path(__file__).parent.relative_to(ROOT)
PROGRAMS: Final = [str(HERE / "right"), str(HERE / "wrong")]
FOREIGN: Final = {
    each.removeprefix("../../") for each in json.loads((ROOT / HERE / "pyright.json").read_text())["exclude"]
}
"""The examples whose frameworks have partial types, or are not installed."""

EXAMPLES: Final = sorted(
    path
    for folder in ("", "pages/", "patterns/")
    for path in (str(each.relative_to(ROOT)) for each in ROOT.glob(f"examples/{folder}*.py"))
    if path not in FOREIGN
)

CHECKERS: Final = {
    "mypy": ["mypy", "--config-file", f"{HERE}/mypy.ini", *PROGRAMS],  # all examples are checked by `mypy` alone
    "pyright": ["pyright", "--project", f"{HERE}/pyright.json", "--pythonpath", sys.executable],
    "ty": ["ty", "check", "--config-file", f"{HERE}/ty.toml", "--output-format", "concise", *PROGRAMS, *EXAMPLES],
    "pyrefly": ["pyrefly", "check", "-c", f"{HERE}/pyrefly.toml", "--output-format", "min-text", *PROGRAMS, *EXAMPLES],
}
"""Checker → the command that checks everything at once."""

REFUSED: Final = re.compile(
    r"(?:^|\s)(?P<path>[^\s:]+\.py):(?P<line>\d+)(?:[:\d-]*(?P<column>)) ?-? ?(?:error|warning)(?=[:\[ ])|"
    r"ERROR (?P<file>[^\s:]+\.py):(?P<at>\d+)"
)

Line = tuple[str, int]


def wrong_lines(checker: str) -> Iterator[tuple[Line, bool]]:
    """Yield the wrong lines, and whether this checker must refuse each."""
    for path in sorted((ROOT / HERE / "wrong").glob("*.py")):
        for number, text in enumerate(path.read_text().splitlines(), start=1):
            if found := re.search(r"# wrong(?:: ([\w ]+))?(?:; says .+)?$", text):
                yield (str(path.relative_to(ROOT)), number), found[1] is None or checker in found[1].split()


def refused_lines(checker: str) -> dict[Line, str]:
    """Run a checker, and return the lines that it refuses."""
    done = subprocess.run(CHECKERS[checker], capture_output=True, text=True, cwd=ROOT, check=False)
    refused: dict[Line, str] = {}
    for text in done.stdout.splitlines():
        if found := REFUSED.search(text):
            path = Path(found["path"] or found["file"])
            place = str(path.relative_to(ROOT) if path.is_absolute() else path), int(found["line"] or found["at"])
            refused[place] = f"{refused.get(place, '')}{text}\n"
    if not refused:
        sys.exit(f"{checker} did not run:\n{done.stdout}{done.stderr}")
    return refused


def said(place: Line) -> str:
    """Return the words that each error about a line must have, behind ``; says`` in its comment."""
    return (ROOT / place[0]).read_text().splitlines()[place[1] - 1].partition("; says ")[2]


def main(*checkers: str) -> None:
    """Print each line that a checker judges wrongly; exit with 1 if there is one."""
    problems = 0
    for checker in checkers or CHECKERS:
        refused, wrong = refused_lines(checker), dict(wrong_lines(checker))
        accepted = [place for place, must in wrong.items() if must and place not in refused]
        others = [text for place, text in refused.items() if place not in wrong]
        others += [text for place, text in refused.items() if said(place) not in text]
        for path, line in accepted:
            print(f"{checker} accepts {path}:{line}")
        for text in others:
            print(f"{checker} refuses {text.strip()}")
        print(
            f"{checker}: refuses {len(wrong.keys() & refused.keys())} of {len(wrong)} wrong lines, {len(others)} others"
        )
        problems += len(accepted) + len(others)
    sys.exit(problems > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
