"""Running the suite, and judging what it has written.

Its exit code is not enough: in some scenarios a client that does nothing fails no check. So what counts is also how
many checks have succeeded, out of the files that it writes for each scenario.

The suite could run all that a revision requires by itself. But then it starts all clients at the same time, which are
too many for most machines, and does not mind that a client ends with an error.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from attrs import field, frozen

from ..node.packages import environment, node, program
from ..source import ROOT

PACKAGE: Final = "@modelcontextprotocol/conformance"

CLIENT: Final = f"{shlex.quote(sys.executable)} -m tests.conformance.client"
"""The command that plays the client. The suite runs it in a shell."""

SECONDS_PER_SCENARIO: Final = 60

EXTENSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "2026-07-28": (
        "auth/client-credentials-basic",
        "auth/client-credentials-jwt",
        "auth/enterprise-managed-authorization",
    )
}
"""Revision → scenarios of extensions that are run too."""

LEAST: Final[Mapping[str, tuple[int, int]]] = {"2025-11-25": (18, 238), "2026-07-28": (35, 424)}
"""Revision → how many scenarios must pass, and how many checks succeed in these at least."""


@frozen
class Outcome:
    """The outcome of one scenario.

    Attributes:
        checks: how many checks ended as ``SUCCESS``, ``FAILURE``, ``WARNING``, ``SKIPPED`` or ``INFO``.
        complaints: the failures, in the words of the suite, or an unexpected failure of the client.
    """

    checks: Counter[str] = field(factory=Counter)
    complaints: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether something succeeded, and nothing failed."""
        return self.checks["SUCCESS"] > 0 and not self.complaints


@frozen
class Report:
    """The outcomes of all scenarios that a revision requires.

    Attributes:
        revision: of the protocol, ``"2026-07-28"``.
        outcomes: scenario → its outcome.
    """

    revision: str
    outcomes: Mapping[str, Outcome] = field(repr=False)

    def __str__(self) -> str:
        passed, checks = self.score
        total = f"{self.revision}: {passed} of {len(self.outcomes)} scenarios, {checks} checks succeeded"
        return "\n".join([*self._rows(), total, *(f"  {problem}" for problem in self.problems)])

    def _rows(self) -> Iterator[str]:
        for name, outcome in self.outcomes.items():
            yield f"  {name:42} {outcome.checks['SUCCESS']:4} {'passed' if outcome.passed else 'FAILED'}"
            yield from (f"      {complaint}" for complaint in outcome.complaints)

    @property
    def score(self) -> tuple[int, int]:
        """How many scenarios have passed, and how many checks have succeeded in them."""
        passed = [outcome for outcome in self.outcomes.values() if outcome.passed]
        return len(passed), sum(outcome.checks["SUCCESS"] for outcome in passed)

    @property
    def problems(self) -> list[str]:
        """What is less than it must be."""
        (passed, checks), (scenarios, least) = self.score, LEAST[self.revision]
        wrong = {
            f"{passed} of the {scenarios} required scenarios passed": passed < scenarios,
            f"{checks} checks succeeded, {least} should": checks < least,
        }
        return [problem for problem, so in wrong.items() if so]


def run(revision: str, folder: Path, *, client: str = CLIENT) -> Report:
    """Run the scenarios that a revision requires, and those of `EXTENSIONS`, as many at a time as there are processors.

    Args:
        revision: ``"2025-11-25"`` or ``"2026-07-28"``.
        folder: where all that the suite writes is put.
        client: the shell's words for the client.

    Raises:
        NodeMissing: the suite is not there, and could not be fetched.
    """
    names = (*required(revision), *EXTENSIONS.get(revision, ()))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(lambda name: play(name, revision, folder, client=client), names)
        return Report(revision, dict(zip(names, outcomes, strict=True)))


def play(scenario: str, revision: str, folder: Path, *, client: str = CLIENT) -> Outcome:
    """Run one scenario.

    Args:
        scenario: its name.
        revision: of the protocol, in which to run it.
        folder: where all that the suite writes is put.
        client: the shell's words for the client.

    Raises:
        NodeMissing: the suite is not there, and could not be fetched.
    """
    results, script = folder / scenario, program(PACKAGE, "dist/index.js")
    results.mkdir(parents=True)
    what = ["--command", client, "--scenario", scenario, "--spec-version", revision, "--force"]
    options = ["--timeout", str(1000 * SECONDS_PER_SCENARIO), "-o", str(results)]
    with (results / "log.txt").open("w") as log:
        ended = subprocess.run(
            [str(node()), str(script), "client", *what, *options],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
        )
    return outcome(results, ended.returncode)


def outcome(results: Path, exit_code: int) -> Outcome:
    """Judge what the suite has written, and that it ended with this exit code."""
    checks = [check for file in results.rglob("checks.json") for check in json.loads(file.read_text())]
    complaints = [
        f"{check['status']} {check['id']}: {check.get('errorMessage') or check['description']}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    ]
    if exit_code and not complaints:
        complaints.append(f"the client failed: {_last_words(results)}")
    return Outcome(Counter(check["status"] for check in checks), tuple(complaints))


def _last_words(results: Path) -> str:
    said = [line for file in results.rglob("stderr.txt") for line in file.read_text().splitlines() if line.strip()]
    return said[-1] if said else "it said nothing"


def required(revision: str) -> Iterator[str]:
    """Yield the scenarios that a revision requires of clients, out of a file of the suite."""
    part = None
    for line in program(PACKAGE, f"requirements/{revision}.yaml").read_text().splitlines():
        if line.endswith(":") and not line.startswith(" "):
            part = line.removesuffix(":")
        elif part == "client" and line.startswith("  - "):
            yield line.removeprefix("  - ")
