"""Running the suite, and judging what it has written.

Its exit code is not enough: in some scenarios a client that does nothing fails no check. So what counts is how many
checks have succeeded, out of the files that it writes for each scenario.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from attrs import field, frozen

from ..node.packages import node, program
from ..source import ROOT

PACKAGE: Final = "@modelcontextprotocol/conformance"

CLIENT: Final = f"{shlex.quote(sys.executable)} -m tests.conformance.client"
"""What plays the client. The suite gives it to a shell."""

SECONDS_PER_SCENARIO: Final = 60

LEAST: Final[Mapping[str, tuple[int, int]]] = {"2025-11-25": (18, 238), "2026-07-28": (32, 402)}
"""Revision → how many scenarios it requires, and how many checks succeed in these at least, as with `mcp.Client`."""

TIMESTAMP: Final = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


@frozen
class Outcome:
    """What came of one scenario.

    Attributes:
        checks: how many checks ended as ``SUCCESS``, ``FAILURE``, ``WARNING``, ``SKIPPED`` or ``INFO``.
        complaints: what was wrong, in the words of the suite.
    """

    checks: Counter[str]
    complaints: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether something succeeded, and nothing failed."""
        return self.checks["SUCCESS"] > 0 and not self.complaints


@frozen
class Report:
    """What came of all scenarios that a revision requires.

    Attributes:
        revision: of the protocol, ``"2026-07-28"``.
        exit_code: that of the suite, which also says whether a client failed that should not have.
        required: the names of the scenarios.
        outcomes: scenario → what came of it.
    """

    revision: str
    exit_code: int
    required: tuple[str, ...]
    outcomes: Mapping[str, Outcome] = field(repr=False)

    def __str__(self) -> str:
        rows = [self._row(name) for name in self.required]
        passed, checks = self.score
        total = f"{self.revision}: {passed} of {len(self.required)} scenarios, {checks} checks succeeded"
        return "\n".join([*rows, total, *(f"  {problem}" for problem in self.problems)])

    def _row(self, name: str) -> str:
        outcome = self.outcomes.get(name)
        if outcome is None:
            return f"  {name:42} did not run"
        said = "".join(f"\n      {complaint}" for complaint in outcome.complaints)
        return f"  {name:42} {outcome.checks['SUCCESS']:4} {'passed' if outcome.passed else 'FAILED'}{said}"

    @property
    def score(self) -> tuple[int, int]:
        """How many scenarios have passed, and how many checks have succeeded in them."""
        passed = [outcome for name in self.required if (outcome := self.outcomes.get(name)) and outcome.passed]
        return len(passed), sum(outcome.checks["SUCCESS"] for outcome in passed)

    @property
    def problems(self) -> list[str]:
        """What is less than it must be."""
        (passed, checks), (scenarios, least) = self.score, LEAST[self.revision]
        wrong = {
            f"{passed} of the {len(self.required)} required scenarios passed": passed < len(self.required),
            f"the suite requires {len(self.required)} scenarios, not {scenarios}": len(self.required) != scenarios,
            f"{checks} checks succeeded, {least} should": checks < least,
            f"the suite ended with exit code {self.exit_code}": self.exit_code != 0,
        }
        return [problem for problem, so in wrong.items() if so]


def run(revision: str, folder: Path, log: IO[str]) -> Report:
    """Run all scenarios that a revision of the protocol requires, at the same time, and judge them.

    Args:
        revision: ``"2025-11-25"`` or ``"2026-07-28"``.
        folder: an empty one, for the results.
        log: where the suite may print.

    Raises:
        NodeMissing: the suite is not there, and could not be fetched.
    """
    exit_code = run_client(["--requirements", revision], folder, log)
    return Report(revision, exit_code, tuple(required(revision)), dict(outcomes(folder)))


def run_client(options: list[str], folder: Path, log: IO[str], *, client: str = CLIENT) -> int:
    """Run the suite against a client; return its exit code.

    Args:
        options: which scenarios.
        folder: an empty one, for the results.
        log: where the suite may print.
        client: the shell's words for the client.
    """
    script = program(PACKAGE, "dist/index.js")
    timeout = str(1000 * SECONDS_PER_SCENARIO)
    where = ["--timeout", timeout, "-o", str(folder)]
    command = [str(node()), str(script), "client", "--command", client, *options, *where]
    path = os.pathsep.join([str(node().parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        check=False,
    ).returncode


def required(revision: str) -> Iterator[str]:
    """Yield the scenarios that a revision requires of clients, out of a file of the suite."""
    part = None
    for line in program(PACKAGE, f"requirements/{revision}.yaml").read_text().splitlines():
        if line.endswith(":") and not line.startswith(" "):
            part = line.removesuffix(":")
        elif part == "client" and line.startswith("  - "):
            yield line.removeprefix("  - ")


def outcomes(folder: Path) -> Iterator[tuple[str, Outcome]]:
    """Yield what is in the results of the suite: each scenario's name, and what came of it."""
    for file in folder.rglob("checks.json"):
        checks = json.loads(file.read_text())
        name = TIMESTAMP.sub("", str(file.parent.relative_to(folder)))
        complaints = (
            f"{check['status']} {check['id']}: {check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        )
        yield name, Outcome(Counter(check["status"] for check in checks), tuple(complaints))
