"""Run one program per client against a server that dies in a call: ``python -m tests.compare.side_by_side``.

The programs are ``examples/pages/howto_compare*.py``. Their outcomes are compared with ``side_by_side.json``; other
seconds are not a difference. ``--write`` keeps the new outcomes there, in the docstrings of the programs, and on
``docs/howto/compare.md``.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from .engine import processes, wait_until
from .tables import HERE

ROOT: Final = HERE.parents[1]
PAGE: Final = ROOT / "docs" / "howto" / "compare.md"
RESULTS: Final = HERE / "side_by_side.json"
EXAMPLES: Final = ROOT / "examples"
SERVER: Final = "mortal.py"

PROGRAMS: Final = {
    "mcp_actors": "howto_compare.py",
    "openai-agents": "howto_compare_openai_agents.py",
    "pydantic-ai": "howto_compare_pydantic_ai.py",
    "fastmcp": "howto_compare_fastmcp.py",
}
"""Client → program, in ``examples/pages``."""

PACKAGES: Final = ["mcp-actors", "openai-agents", "pydantic-ai-slim", "fastmcp", "mcp"]
LIMIT: Final = 90.0
"""Seconds after which a program is killed: it has a limit of 10 s for each of its five calls."""

RUNS: Final = 3
"""Runs of each program for a page: the fewest seconds of each step are shown."""

LATE: Final = 10.0
"""Seconds after which the end of a program is late. It takes one or two, which are mostly Python's and not shown."""

LEAVING: Final = 1.0
"""Seconds that a server's process may need to end after its program has."""

GENERATED: Final = re.compile(r"(<!-- from here: nox -s compare -->\n).*(<!-- to here -->\n)", re.DOTALL)


# --- run ------------------------------------------------------------------------------------------------------------


def play(client: str, python: str) -> dict[str, list[str]]:
    """Run a program to its end, and once more with Ctrl-C; return what it printed, and what was seen from outside."""
    with folder_of(client) as program, start(program, python) as process:
        printed, errors = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{program.name} failed: {errors}")
        seen = [f"process left by the program: {left(program)}"]
    with folder_of(client) as program:
        # A call that takes long instead of the one that ends the server.
        program.write_text(program.read_text().replace('call("die")', 'call("work")'))
        seen += interrupt(program, python)
    return {"printed": printed.splitlines(), "seen": seen}


def interrupt(program: Path, python: str) -> list[str]:
    """Press Ctrl-C while two calls are in flight; return how the program ended and whether a server is left."""
    with start(program, python) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the first call is answered, so the others are made now; they take three seconds
        sleep(1)
        began = monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
        late = "" if monotonic() - began < LATE else f", but not within {LATE:g} s"
        last = (errors.splitlines() or [f"exit code {process.returncode}"])[-1]
        return [f"Ctrl-C in a call: {last}{late}", f"process left by Ctrl-C: {left(program)}"]


@contextmanager
def folder_of(client: str) -> Iterator[Path]:
    """Copy a program and its server to a new folder, so that the server's processes are known by its path."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "pages" / PROGRAMS[client]
        for path in (program, server_of(program)):
            path.parent.mkdir()
            shutil.copy(EXAMPLES / path.relative_to(folder), path)
        try:
            yield program
        finally:
            for pid in processes([str(server_of(program))]):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def start(program: Path, python: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a process group of its own, as a terminal does; it is killed if it takes too long."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    process = subprocess.Popen(
        [python, "-u", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(LIMIT, process.kill)
    watchdog.start()
    try:
        with process:
            yield process
    finally:
        watchdog.cancel()
        watchdog.join()


def server_of(program: Path) -> Path:
    """Return the path of the server that a program starts."""
    return program.parents[1] / "servers" / SERVER


def left(program: Path) -> str:
    """Return ``yes`` if a server of a program that has ended still runs."""
    gone = wait_until(lambda: not processes([str(server_of(program))]), LEAVING)
    return "yes" if gone is None else "no"


# --- compare --------------------------------------------------------------------------------------------------------


def without_times(lines: list[str]) -> list[str]:
    """Return lines with ``...`` for seconds."""
    return [re.sub(r"\b\d+\.\d s\b", "... s", line) for line in lines]


def differences(client: str, committed: dict[str, list[str]], found: dict[str, list[str]]) -> list[str]:
    """Return the lines that differ between two outcomes, regardless of their seconds."""
    before, after = (without_times([*each["printed"], *each["seen"]]) for each in (committed, found))
    return list(difflib.unified_diff(before, after, f"{client} as committed", f"{client} now", lineterm="", n=0))


def fastest(client: str, runs: list[dict[str, list[str]]]) -> dict[str, list[str]]:
    """Return each line of several runs with its fewest seconds, because a busy machine only adds some."""
    for run in runs[1:]:
        if changed := differences(client, runs[0], run):
            raise RuntimeError("\n".join(["two runs have different outcomes", *changed]))
    columns = {part: zip(*(run[part] for run in runs), strict=True) for part in ("printed", "seen")}
    return {part: [min(lines, key=seconds) for lines in each] for part, each in columns.items()}


def seconds(line: str) -> float:
    """Return the seconds of a line, or 0 if it has none."""
    found = re.search(r", after ([\d.]+) s$", line)
    return float(found[1]) if found else 0.0


# --- write ----------------------------------------------------------------------------------------------------------


def read() -> dict[str, Any]:
    """Return what is committed."""
    return dict(json.loads(RESULTS.read_text()))


def write(results: dict[str, Any]) -> None:
    """Keep results, and write them into the programs and on the page."""
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    for client, name in PROGRAMS.items():
        block = "".join(f"    {line}\n" for line in without_times(results["outcomes"][client]["printed"]))
        program = EXAMPLES / "pages" / name
        before, prints, after = program.read_text().partition("Prints::\n\n")
        program.write_text(before + prints + block + after[after.index('"""\n') :])
    PAGE.write_text(render(PAGE.read_text(), results))


def render(page: str, results: dict[str, Any]) -> str:
    """Return the page with the part between its two comments written anew."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    ran = f"Run on {results['date']} with Python {results['python']} on Linux:\n{versions}.\n"
    ran += f"Seconds are the fewest of {RUNS} runs on a busy machine.\n"
    outcomes = results["outcomes"]
    programs = [shown(client, outcomes[client]["printed"]) for client in PROGRAMS]
    parts = "\n".join([ran, table(outcomes), "## The programs\n", *programs])
    return GENERATED.sub(lambda found: f"{found[1]}\n{parts}\n{found[2]}", page)


def table(outcomes: dict[str, dict[str, list[str]]]) -> str:
    """Return the outcomes side by side: a row for each step, a column for each client."""
    columns = [
        dict(short(line).split(": ", 1) for line in [*each["printed"], *each["seen"]]) for each in outcomes.values()
    ]
    steps = max((list(column) for column in columns), key=len)
    rows = [f"| {step} | {' | '.join(column.get(step, 'not needed') for column in columns)} |" for step in steps]
    lengths = " | ".join(str(len([line for line in code(client).splitlines() if line])) for client in outcomes)
    head = f"| | {' | '.join(outcomes)} |\n|---|{'---|' * len(outcomes)}"
    return "\n".join([head, *rows, f"| lines of the program | {lengths} |"]) + "\n"


def short(line: str) -> str:
    """Return an outcome without the message of its error."""
    return re.sub(r"^([^:]+: \w+): .*(, after [\d.]+ s)$", r"\1\2", line)


def shown(client: str, printed: list[str]) -> str:
    """Return the section of a program: its code, and what it prints."""
    name = PROGRAMS[client]
    blocks = f"```python\n{code(client)}\n```\n\n```text\n{chr(10).join(without_times(printed))}\n```\n"
    return f"### {client}\n\n[{name}](../../examples/pages/{name}):\n\n{blocks}"


def code(client: str) -> str:
    """Return a program without its docstring."""
    _, _, text = (EXAMPLES / "pages" / PROGRAMS[client]).read_text().partition('\n"""\n')
    return text.strip()


def main() -> None:
    """Run all programs; compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the outcomes, and write the page")
    options = parser.parse_args()
    runs: dict[str, list[dict[str, list[str]]]] = {client: [] for client in PROGRAMS}
    for client in [*PROGRAMS] * (RUNS if options.write else 1):
        runs[client].append(play(client, sys.executable))
        print(client, *runs[client][-1]["printed"], *runs[client][-1]["seen"], sep="\n  ", flush=True)
    if options.write:
        versions = {name: importlib.metadata.version(name) for name in PACKAGES}
        when = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version()}
        outcomes = {client: fastest(client, each) for client, each in runs.items()}
        write({**when, "versions": versions, "outcomes": outcomes})
        return
    committed = read()["outcomes"]
    if wrong := [line for client, [run] in runs.items() for line in differences(client, committed[client], run)]:
        print(*wrong, sep="\n")
        sys.exit("outcomes differ from the committed ones; `nox -s compare -- --write` keeps the new ones")


if __name__ == "__main__":
    main()
