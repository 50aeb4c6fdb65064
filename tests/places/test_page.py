"""The page about places, its programs, and the extra that installs their frameworks."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

from tests.source import EXAMPLES, ROOT, parse, project

PAGE: Final = (ROOT / "docs" / "howto" / "places.md").read_text()
ROWS: Final = [row for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| your program")]
PROGRAMS: Final = sorted((EXAMPLES / "places").glob("*.py"))
TESTS: Final = "".join(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py")))


def frameworks(path: Path) -> set[str]:
    """Return the modules that a program imports, without Python's and this project's."""
    nodes = [node for node in ast.walk(parse(path)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    ours = {"mcp_actors", *(program.stem for program in PROGRAMS)}
    return {name.partition(".")[0] for name in names} - ours - sys.stdlib_module_names


def normal(requirement: str) -> str:
    """Return the name of a package, as registries compare it."""
    return re.split(r"[\[<>=]", requirement)[0].lower().replace("_", "-")


def test_each_row_says_where_to_open_and_to_close_which_door_its_signals_and_its_end() -> None:
    assert [row for row in ROWS if len(row.strip("| ").split(" | ")) != 6] == []
    assert [row for row in ROWS if not re.search(r"\| `bridge`|\| `sync`|\| any|\| that of the test", row)] == []


def test_each_program_is_in_a_row_and_is_run_by_a_test() -> None:
    linked = {name for row in ROWS for name in re.findall(r"examples/places/(\w+\.py)\)", row)}
    assert linked == {path.name for path in PROGRAMS}
    assert [path.name for path in PROGRAMS if path.name not in TESTS] == []


def test_the_extra_has_each_framework_with_the_version_that_was_run_or_the_tests_have_it() -> None:
    extras = project()["optional-dependencies"]
    assert [bound for bound in extras["places"] if ">=" not in bound] == []
    listed = {normal(name) for name in [*extras["places"], *extras["test"]]}
    listed |= {normal(name) for name in project()["dependencies"]}
    owners = packages_distributions()
    needed = {name: {normal(owner) for owner in owners.get(name, [])} for path in PROGRAMS for name in frameworks(path)}
    assert {name: found for name, found in needed.items() if found and not found & listed} == {}
