"""What the README and the documentation tell readers to type is what works."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from .source import ROOT, code_blocks, project

README = ROOT / "README.md"
RUNNER = ROOT / ".ci" / "run"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(code_blocks(page, "python"), 1)
]


def commands() -> list[str]:
    """Return the commands of the README, in its order."""
    return [line for block in code_blocks(README, "bash") for line in block.splitlines()]


def test_ci_runs_the_readmes_test_command_and_nothing_else() -> None:
    script = [line for line in RUNNER.read_text().splitlines() if line and not line.startswith("#")]
    assert script == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', commands()[1]]


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


def test_the_readmes_actor_prints_what_the_readme_says(tmp_path: Path) -> None:
    [program] = [block for block in code_blocks(README, "python") if "mcp_actors.kernel" in block]
    [output] = code_blocks(README, "text")
    finished = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == output
