"""The README's commands, promises and links hold, and the reference has every public name."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path

import pytest

import mcp_actors

from .source import FOLDERS, PAGES, README, ROOT, blocks, commands, project

RUNNER = ROOT / ".ci" / "run"
PUBLIC = ["mcp_actors", *(f"mcp_actors.{name}" for name in FOLDERS)]


def test_ci_runs_the_readmes_test_command_then_all_other_tests_and_some_elsewhere() -> None:
    script = [line for line in RUNNER.read_text().splitlines() if ".venv/bin/python -m" in line]
    assert script[:-1] == [
        commands()[1],
        'DURATIONS="$costs/rest" .venv/bin/python -m pytest --rest',
        ".venv/bin/python -m tests.elsewhere --quick",
    ]
    assert script[-1].startswith(".venv/bin/python -m tests.costs ")


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_entry_in_the_reference(module: str) -> None:
    """A name that a folder shares with the façade has its entry there."""
    reference = "".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
    entries = re.findall(r"^\.\. (?:py:data|auto\w+):: (\S+)$", reference, re.MULTILINE)
    public = import_module(module)
    both = set(public.__all__) & set(mcp_actors.__all__)
    shared = {name for name in both if getattr(mcp_actors, name) is getattr(public, name)}
    expected = {f"{'mcp_actors' if name in shared else module}.{name}" for name in public.__all__}
    assert expected - set(entries) == set()
    assert len(entries) == len(set(entries))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_each_promise_of_the_readme_has_a_test_that_exists() -> None:
    section = README.read_text().partition("## What it promises\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 5
    assert [row for row in rows if not re.search(r"\]\(tests/[\w/]+(\.py)?\)", row)] == []


def test_the_readme_opens_with_how_to_install_it_and_ten_lines_for_each_event_loop() -> None:
    install, trio, asyncio, printed = blocks(README)[:4]
    assert (install.language, printed.language) == ("bash", "text")
    for block in (trio, asyncio):
        assert sum(1 for line in block.text.splitlines() if line) <= 12
    assert "trio.run" in trio.text
    assert "asyncio.run" in asyncio.text


def test_ci_can_be_run() -> None:
    assert os.access(RUNNER, os.X_OK)
    assert RUNNER.read_text().startswith("#!/usr/bin/env bash\n")


def test_the_readme_has_a_command_for_the_demo_and_one_for_the_tests() -> None:
    demo, test = commands()
    assert "'.[demo]'" in demo
    assert demo.endswith(" examples/main_job.py")
    assert "'.[test]'" in test
    assert test.endswith(" -m pytest --slice")
    assert {"demo", "test"} <= project()["optional-dependencies"].keys()
