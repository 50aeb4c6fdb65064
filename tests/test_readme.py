"""What the README and the documentation tell readers to type is what works."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest
from main_job import SCRIPTS

import mcp_actors

from .source import PACKAGE, ROOT, code_blocks, programs, project
from .test_examples import agrees
from .test_main_job import needs_real_servers

FRAMEWORKS = ("agents", "langchain", "langchain_core", "pydantic_ai")
"""What the adapters need, and an environment of the tests need not have."""

README = ROOT / "README.md"
RUNNER = ROOT / ".ci" / "run"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PUBLIC = ["mcp_actors", *(f"mcp_actors.{path.parent.name}" for path in sorted(PACKAGE.glob("*/__init__.py")))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(code_blocks(page, "python"), 1)
]
PROGRAMS = [
    pytest.param(
        program,
        output,
        id=f"{page.relative_to(ROOT)}-{number}",
        marks=needs_real_servers if "mcp-server-" in program else (),
    )
    for page in PAGES
    for number, (program, output) in enumerate(programs(page), 1)
]


def blocks(language: str) -> list[str]:
    """Return the blocks of the README in a language, in its order."""
    return list(code_blocks(README, language))


def commands() -> list[str]:
    """Return the commands of the README, in its order."""
    return [line for block in blocks("bash") for line in block.splitlines()]


def test_ci_runs_the_readmes_test_command_and_nothing_else() -> None:
    script = [line for line in RUNNER.read_text().splitlines() if line and not line.startswith("#")]
    assert script == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', commands()[1]]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    collected = f".. automodule:: {module}\n" in reference
    for name in import_module(module).__all__:
        if f":: {module}.{name}\n" in reference or f"`{name}`" in reference:
            continue
        thing = getattr(import_module(module), name)
        if getattr(mcp_actors, name, None) is not thing:
            assert collected, name
            assert isinstance(thing, type | FunctionType), f"Sphinx does not find the alias {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_each_promise_of_the_readme_has_a_test_that_exists() -> None:
    section = README.read_text().partition("## What it promises\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 5
    assert [row for row in rows if not re.search(r"\]\(tests/[\w/]+(\.py)?\)", row)] == []


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
    """Run a program as a reader would who has the extra ``demo`` and an empty home; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "DOCS_TOKEN"}
    environment["XDG_CACHE_HOME"] = environment["HOME"] = str(folder)
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


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_a_program_prints_what_stands_below_it(program: str, output: str, tmp_path: Path) -> None:
    for framework in FRAMEWORKS:
        if f"from {framework} " in program:
            pytest.importorskip(framework)
    printed = run_program(program, tmp_path)
    assert agrees(printed, output + "\n"), printed
