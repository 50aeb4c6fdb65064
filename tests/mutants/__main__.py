"""Run mutmut, and compare the survivors with those that are explained."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

EXPLAINED: Final = Path(__file__).with_name("survivors.toml")

ENOUGH: Final = 0.95
"""The part of all mutants that must be caught."""

CAUGHT: Final = frozenset({"killed", "timeout", "segfault"})

NEIGHBOURS: Final = (
    "_backoff.sleep_through_suspend.",
    *(f"kernel._mailbox.{name}." for name in ("Reply", "_nothing", "_awaited_already", "_call", "Envelope")),
    *(f"kernel._restart.{name}." for name in ("SupervisorOptions", "SupervisorPolicy", "shows_options")),
    *(f"kernel._restart.{name}." for name in ("_default_if_none", "_check_flag", "_check_choice")),
    *(f"servers._rules.{name}." for name in ("seconds_to_retry", "_spread")),
)
"""What is in the same files as the decisions, and is judged by other tests."""


class Survivor(NamedTuple):
    """A mutant: its function, and the lines that differ."""

    place: str
    was: str
    now: str

    def __str__(self) -> str:
        fields = ((name, value.replace("\\", "\\\\").replace('"', '\\"')) for name, value in self._asdict().items())
        return "\n".join(["[[survivor]]", *(f'{name} = "{value}"' for name, value in fields), 'why = ""'])


def main() -> int:
    """Return 1 if a survivor is not explained, an explained one is caught, or too few are caught."""
    shutil.rmtree("mutants", ignore_errors=True)  # results of before, which tests may have changed since
    mutmut("run", "--max-children", str(os.cpu_count()))
    listed = re.findall(r"^\s*(\S+): (.+)$", mutmut("results", "--all", "true"), re.MULTILINE)
    results = {
        name: status
        for name, status in listed
        if not f"{place_of(name)}.".startswith(tuple(f"{each}." for each in NEIGHBOURS))
    }
    survivors = {survivor(name) for name, status in results.items() if status not in CAUGHT}
    rows = tomllib.loads(EXPLAINED.read_text())["survivor"]
    out_of_reach = {row["place"] for row in rows if "was" not in row}
    survivors = {each for each in survivors if each.place not in out_of_reach}
    explained = {Survivor(row["place"], row["was"], row["now"]) for row in rows if "was" in row and row["why"]}
    for each in sorted(survivors - explained):
        print(f"# Not caught; add a test, or explain it in {EXPLAINED.name}:\n{each}\n")
    for each in sorted(explained - survivors):
        print(f"# Caught now, or gone; remove it from {EXPLAINED.name}:\n{each}\n")
    caught = sum(status in CAUGHT for status in results.values())
    print(f"{caught} of {len(results)} mutants were caught ({caught / len(results):.1%})")
    return int(survivors != explained or caught < ENOUGH * len(results))


def mutmut(*arguments: str) -> str:
    """Run a command of mutmut, and return what it prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def survivor(name: str) -> Survivor:
    """Return what a mutant changes."""
    diff = mutmut("show", name).splitlines()
    was, now = ([line[1:].strip() for line in diff if re.match(rf"\{sign}(?!\{sign})", line)] for sign in "-+")
    return Survivor(place_of(name), " ".join(was), " ".join(now))


def place_of(name: str) -> str:
    """Return the function that a mutant is in: ``"kernel._mailbox.Mailbox.put"``."""
    return re.sub(r"\.xǁ|\.x_|ǁ", ".", re.sub(r"__mutmut_\d+$", "", name).removeprefix("mcp_actors."))


if __name__ == "__main__":
    sys.exit(main())
