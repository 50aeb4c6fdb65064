"""Run the *server* scenarios of the suite against the gateway over HTTP, and against its server directly.

A check is known by its scenario and its id. Each that succeeds directly must succeed through the gateway, but those of
`OTHERWISE`. Scenarios of extensions, and those that the suite calls pending, are run and shown but not judged. The
gateway serves without a token, because the suite sends no headers; and without names of its own, because the suite has
names of tools. In the era of sessions its server belongs to one client, so that it may ask it.

    python -m tests.conformance.gateway [REVISION]…
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..forkserver import interpreter, start_python
from ..node.packages import NodeMissing, environment, node, program
from ..source import ROOT
from .suite import PACKAGE

REVISIONS: Final = ("2025-11-25", "2026-07-28")

MODULE: Final = "tests.conformance.server"

OTHERWISE: Final[Mapping[tuple[str, str], str]] = {
    ("server-sse-multiple-streams", "server-sse-streams-functional"): "the replies are JSON, which is as good",
}
"""Checks that need not succeed, and why."""

LEAST: Final = {"2025-11-25": 60, "2026-07-28": 140}
"""Revision → how many checks succeed at least."""

FOLDER: Final = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""How the suite names the folder of a scenario."""

SECONDS: Final = 60.0
"""Seconds in which a server has to listen."""

Checks = Mapping[tuple[str, str], Counter[str]]
"""(scenario, id) → how often it ended how."""


@contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """Run a Python program that is a server over HTTP; return the URL of its endpoint."""
    with log.open("wb") as said, start_python(*command, cwd=ROOT, stdout=said, stderr=said) as process:
        try:
            until = time.monotonic() + SECONDS
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    if time.monotonic() > until or process.poll() is not None:
                        raise RuntimeError(f"{command} does not listen: {log.read_text()}") from None
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.send_signal(signal.SIGINT)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def direct(folder: Path, revision: str, port: int) -> list[str]:
    """Return the words for an interpreter that runs the server."""
    return ["-m", MODULE, str(port)]


def through(folder: Path, revision: str, port: int) -> list[str]:
    """Return those for the gateway in front of it."""
    ours = {} if revision >= "2026" else {"isolation": "per-session", "protocol": "legacy"}
    server = {"command": interpreter(), "args": ["-m", MODULE, "stdio"], "cwd": str(ROOT), "mcp_actors": ours}
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"fixture": server}}))
    flags = ["--config", f"{file}#fixture", "--http", f"127.0.0.1:{port}", "--no-token"]
    return ["-m", "mcp_actors", "serve", *flags]


def play(url: str, revision: str, folder: Path, scenarios: Sequence[str] = ()) -> Checks:
    """Run the scenarios that a revision requires, or these; return the checks."""
    all_of_them = [["--requirements", revision]]
    for what in [["--scenario", each, "--spec-version", revision] for each in scenarios] or all_of_them:
        with (folder / "log.txt").open("ab") as log:
            subprocess.run(
                [str(node()), str(program(PACKAGE, "dist/index.js")), "server", "--url", url, *what, "-o", str(folder)],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for file in folder.rglob("checks.json"):
        scenario = FOLDER.fullmatch(file.parent.name)[1]  # type: ignore[index]  # the suite names them all so
        for check in json.loads(file.read_text()):
            found[scenario, check["id"]][check["status"]] += 1
    return found


def not_scored(revision: str) -> set[str]:
    """Return the scenarios that the suite runs and does not judge."""
    lines = program(PACKAGE, f"requirements/{revision}.yaml").read_text().splitlines()
    return {line.split()[-1] for line in lines if line.startswith("  - scenario: ")}


def lost(directly: Checks, passed: Checks, unjudged: set[str]) -> list[str]:
    """Return the checks that succeed directly and not through the gateway, and those that fail through it only."""
    nothing = Counter[str]()
    worse = []
    for place in sorted(directly.keys() | passed.keys()):
        before, after = set(directly.get(place, nothing)), set(passed.get(place, nothing))
        if place[0] in unjudged or place in OTHERWISE:
            continue
        if (before == {"SUCCESS"} != after) or ("FAILURE" in after and "FAILURE" not in before):
            worse.append(place)
    return [f"{scenario}: {check}: {dict(passed.get((scenario, check), {}))}" for scenario, check in worse]


def compare(revision: str, folder: Path, scenarios: Sequence[str] = ()) -> tuple[Checks, Checks]:
    """Run the scenarios against the server, and against the gateway in front of it."""
    found = []
    for command in (direct, through):
        own = folder / command.__name__
        own.mkdir(parents=True)
        port = free_port()
        with running(command(own, revision, port), port, own / "server.txt") as url:
            found.append(play(url, revision, own, scenarios))
    return found[0], found[1]


def main() -> int:
    """Compare, print what came of it, and return 1 if something is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.gateway", description=__doc__)
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help=f"of the protocol: {', '.join(REVISIONS)}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all that the suite writes, in a new folder")
    flags = parser.parse_args()
    fine = True
    with tempfile.TemporaryDirectory() as temporary:
        for revision in flags.revisions or REVISIONS:
            try:
                directly, passed = compare(revision, (flags.keep or Path(temporary)) / revision)
            except NodeMissing as error:
                print(error, file=sys.stderr)
                return 1
            missing = lost(directly, passed, not_scored(revision))
            totals = [sum((each for each in found.values()), Counter()) for found in (directly, passed)]
            print(f"{revision}: directly {dict(totals[0])}, through the gateway {dict(totals[1])}")
            print("\n".join(f"  lost: {each}" for each in missing) or "  nothing is lost")
            fine = fine and not missing and totals[1]["SUCCESS"] >= LEAST[revision]
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
