"""What the README and the documentation tell readers to type is what works."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from main_job import SCRIPTS

from .source import ROOT, code_blocks, project
from .test_examples import agrees
from .test_main_job import needs_real_servers

README = ROOT / "README.md"
RUNNER = ROOT / ".ci" / "run"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(code_blocks(page, "python"), 1)
]
RUNS = re.compile(r"^(trio|asyncio)\.run\(", re.MULTILINE)
"""Whether a block is a whole program."""

DOCUMENTED = [block for page in PAGES if page != README for block in code_blocks(page, "python")]


def blocks(language: str) -> list[str]:
    """Return the blocks of the README in a language, in its order."""
    return list(code_blocks(README, language))


def commands() -> list[str]:
    """Return the commands of the README, in its order."""
    return [line for block in blocks("bash") for line in block.splitlines()]


def test_ci_runs_the_readmes_test_command_and_nothing_else() -> None:
    script = [line for line in RUNNER.read_text().splitlines() if line and not line.startswith("#")]
    assert script == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', commands()[1]]


@pytest.mark.parametrize("module", ["mcp_actors", "mcp_actors.kernel", "mcp_actors.bridge"])
def test_the_reference_names_the_aliases_that_sphinx_cannot_find_by_itself(module: str) -> None:
    public = vars(import_module(module))["__all__"]
    aliases = [name for name in public if not isinstance(getattr(import_module(module), name), type | FunctionType)]
    reference = (ROOT / "docs" / "reference.md").read_text()
    assert [name for name in aliases if f".. py:data:: {module}.{name}\n" not in reference] == []


def test_ci_can_be_run() -> None:
    assert os.access(RUNNER, os.X_OK)
    assert RUNNER.read_text().startswith("#!/usr/bin/env bash\n")


def test_the_readme_has_a_command_for_the_demo_and_one_for_the_tests() -> None:
    demo, test = commands()[:2]
    assert "'.[demo]'" in demo
    assert demo.endswith(" examples/main_job.py")
    assert "'.[test]'" in test
    assert test.endswith(" -m pytest")
    assert {"demo", "test"} <= project()["optional-dependencies"].keys()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_python_compiles_and_imports_names_that_exist(block: str) -> None:
    tree = ast.parse(block)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("mcp_actors"):
            module = import_module(node.module)
            assert {alias.name for alias in node.names} <= set(module.__all__)


def run_program(program: str, folder: Path) -> str:
    """Run a program as a reader would who has installed the extra ``demo``; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "DOCS_TOKEN"}
    environment["PATH"] = os.pathsep.join([str(SCRIPTS), environment["PATH"]])
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def as_parameters(programs: Iterable[tuple[str, ...]]) -> list[Any]:
    """Parametrize with programs and what belongs to them; skip those whose servers are not installed."""
    return [
        pytest.param(*values, id=str(number), marks=needs_real_servers if "mcp-server-" in values[0] else ())
        for number, values in enumerate(programs, 1)
    ]


@pytest.mark.parametrize(("program", "output"), as_parameters(zip(blocks("python"), blocks("text"), strict=True)))
def test_the_readmes_programs_print_what_the_readme_says(program: str, output: str, tmp_path: Path) -> None:
    printed = run_program(program, tmp_path)
    assert agrees(printed, output + "\n"), printed


@pytest.mark.parametrize("program", as_parameters((block,) for block in DOCUMENTED if RUNS.search(block)))
def test_the_programs_in_the_documentation_run(program: str, tmp_path: Path) -> None:
    assert run_program(program, tmp_path) != ""
