"""Run every example, and compare its output with its docstring.

An example's module docstring ends with a line ``Prints::`` and, indented below it, the lines of its standard output. If
it logs without configuration, so on standard error, a block ``Logs::`` before that has these lines.
``...`` stands for any text, as in `doctest.ELLIPSIS`. Code that the pages show is in ``examples/pages/`` or in another
example, as ``test_pages.py`` checks.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from .copies import needs_packages
from .forkserver import frameworks, interpreter, run_python
from .servers.transports.test_sandbox import needs_landlock
from .source import EXAMPLES, parse, python_files

SCRIPTS: Final = Path(sys.executable).parent
"""Where pip has put the servers that come as packages."""

NOT_HERE: Final = {"main_job.py"}
"""Has tests of its own, in ``test_main_job.py``."""

PLACES: Final = sorted(str(path.relative_to(EXAMPLES)) for path in python_files(EXAMPLES / "places"))
"""The programs of frameworks, which ``tests/places`` runs as their users do."""

NOT_SINCE: Final = {"trio_program_with_asyncio_agents.py": (3, 14)}
"""From this version of Python on, what the example shows does not work, and says so."""

BROKEN: Final = {"pages/tutorial_naive.py"}
"""Shows what goes wrong, so Python has something to complain of at its end."""

COLD: Final = {
    "pages/howto_health.py",
    "pages/howto_stdio_sandbox.py",
    "pages/tutorial_dying_server.py",
}
"""Need a new interpreter: to stop a server by SIGSTOP, which a fork of one cannot pass on; to confine a server."""

CONFINED: Final = {"pages/howto_stdio_sandbox.py"}
"""Need a kernel that can confine a process."""

OPTIONAL: Final = re.compile(
    r"^(?:from|import) (agents|anthropic|fastmcp|langchain|langchain_core|pydantic_ai\.mcp|pydantic_ai|ray|temporalio)"
    r"\b|\b(mcp-server-\w+)",
    re.MULTILINE,
)
"""What an environment of the tests need not have: frameworks, and servers that are programs."""

NEEDS: Final = {"pydantic_ai.mcp": "fastmcp"}
"""Module of a framework → the package that it cannot be imported without."""

PYTEST: Final = ("mcp_actors.testing", "pytest_trio.plugin")
"""What pytest imports for an example that is a module of tests."""

FRAMEWORKS: Final = "agents|anthropic|langchain|langchain_core|pydantic_ai|OpenAIAgentsServer|PydanticAIToolset"
"""The names of frameworks in examples."""

PLUGINS: Final = "-p pytest_trio.plugin -W ignore::pytest.PytestAssertRewriteWarning"
"""What replaces the search for plugins. In a fork they are imported before pytest can rewrite their assertions."""

TIMEOUT: Final = 60.0
"""Seconds for one example: they take one or two; this is for a machine that is busy with other things."""


def expected_output(docstring: str | None) -> str | None:
    """Return the lines below ``Prints::``, or None if a docstring has no such block."""
    _, found, block = (docstring or "").rpartition("Prints::\n")
    return textwrap.dedent(block).strip() + "\n" if found else None


def expected_log(docstring: str | None) -> str:
    """Return the lines below ``Logs::``, or an empty string if a docstring has no such block."""
    _, found, rest = (docstring or "").rpartition("\nLogs::\n")
    return textwrap.dedent(rest.partition("\nPrints::\n")[0]).strip() + "\n" if found else ""


def agrees(output: str, expected: str) -> bool:
    """Return True if an output is the expected one, with ``...`` for any text."""
    return doctest.OutputChecker().check_output(expected, output, doctest.ELLIPSIS)


def examples() -> list[str]:
    """List the examples; a file whose name begins with ``_`` is only a part of one, and so is a server."""
    paths = {path.relative_to(EXAMPLES) for path in python_files(EXAMPLES)}
    programs = {str(path) for path in paths if path.parts[0] != "servers" and not path.name.startswith("_")}
    return sorted(programs - NOT_HERE - {*PLACES})


def missing(source: str) -> str | None:
    """Name what an example needs and this environment does not have, or return None."""
    for module, server in OPTIONAL.findall(source):
        if (module and find_spec(NEEDS.get(module, module)) is None) or (server and not (SCRIPTS / server).exists()):
            return f"needs {module or server}: install the extra 'test' (or 'bench', 'cluster')"
    return None


def imported_by(source: str) -> tuple[str, ...]:
    """Return the large modules of which an example imports some, or the package for it; a fork has them already."""
    found = re.search(rf"\b(?:(pytest)|{FRAMEWORKS})\b", source)
    return () if found is None else PYTEST if found[1] else frameworks()


def readers_environment(home: Path, python: str) -> dict[str, str]:
    """Return the environment of a reader who has just installed everything: an empty home and no credentials.

    Servers that are Python programs run in this interpreter.
    """
    variables = {name: value for name, value in os.environ.items() if name != "DOCS_TOKEN"}
    path = os.pathsep.join([str(Path(python).parent), str(SCRIPTS), variables["PATH"]])
    variables |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": PLUGINS}
    return {**variables, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_STATE_HOME": str(home), "PATH": path}


ASIDE: Final = re.compile(
    r"^(?:\[.*\] INFO +)?server '\w+': connected, .*\n(?: {10}.*\n)*|^open_servers\(\): still waiting after .*\n",
    re.MULTILINE,
)
"""What a program logs that makes a server object of the SDK, as that configures logging, in forks without a time; and
what any program logs on a busy machine."""


def only_outages(stderr: str) -> bool:
    """Return True if stderr has only the log lines of servers that fail on purpose."""
    return all(line.startswith("server '") for line in ASIDE.sub("", stderr).splitlines())


def test_there_are_examples() -> None:
    assert examples()


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[needs_landlock, needs_packages] if path in CONFINED else []) for path in examples()],
)
def test_an_example_prints_what_its_docstring_says(path: str, tmp_path: Path) -> None:
    if sys.version_info >= NOT_SINCE.get(path, (4,)):
        pytest.skip("it is for older versions of Python")
    source = (EXAMPLES / path).read_text()
    if lacking := missing(source):
        pytest.skip(lacking)
    docstring = ast.get_docstring(parse(EXAMPLES / path))
    expected = expected_output(docstring)
    assert expected is not None, f"{path}: the docstring does not end with a block 'Prints::'"
    imported = imported_by(source)
    python = sys.executable if path in COLD else interpreter(*(imported if imported == PYTEST else ()))
    finished = run_python(
        *("-W", "error", EXAMPLES / path),
        cwd=tmp_path,
        env=readers_environment(tmp_path, python),
        executable=python,
        imported=imported,
        timeout=TIMEOUT,
    )
    assert finished.returncode == 0, finished.stderr
    assert agrees(finished.stdout, expected), finished.stdout
    log = ASIDE.sub("", finished.stderr)
    assert path in BROKEN or agrees(log, expected_log(docstring)), log


def test_the_expected_output_is_the_block_below_prints() -> None:
    assert expected_output("An example.\n\nPrints::\n\n    one\n      two\n") == "one\n  two\n"
    assert expected_output("An example without output.") is None
    assert expected_output(None) is None


def test_the_expected_log_is_the_block_below_logs_and_none_is_expected_without() -> None:
    docstring = "An example.\n\nLogs::\n\n    one\n\nPrints::\n\n    two\n"
    assert (expected_log(docstring), expected_output(docstring)) == ("one\n", "two\n")
    assert expected_log("An example.\n\nPrints::\n\n    two\n") == ""


@pytest.mark.parametrize(
    ("output", "fine"), [("took 3 s\ndone\n", True), ("took 3 s\n", False), ("took 3 s\ndone\nmore\n", False)]
)
def test_dots_stand_for_any_text(output: str, fine: bool) -> None:
    assert agrees(output, "took ... s\ndone\n") is fine
