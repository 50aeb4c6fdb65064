"""The page about the design shows the house as it is."""

from __future__ import annotations

import re

import pytest

from .source import PACKAGE, ROOT

PAGE = ROOT / "docs" / "design" / "index.md"
MAP = "## Where to find what in `servers/`"


@pytest.mark.parametrize("folder", ["", "transports/", "callbacks/", "group/"])
def test_every_file_of_the_servers_is_on_the_map_once(folder: str) -> None:
    _, _, section = PAGE.read_text().partition(MAP)
    _, _, rest = section.partition(f"| concern | files in `{folder}` |\n" if folder else "| concern | files |\n")
    rows, _, _ = rest.partition("\n\n")
    named = re.findall(r"`(_\w+)`", rows)
    assert sorted(named) == sorted(path.stem for path in (PACKAGE / "servers" / folder).glob("_[a-z]*.py"))


def test_every_folder_is_in_the_table_of_layers() -> None:
    named = set(re.findall(r"`mcp_actors/(\w+)/`", PAGE.read_text()))
    assert named == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.mark.parametrize("page", sorted(path.name for path in PAGE.parent.glob("*.md")))
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", (PAGE.parent / page).read_text())
    homes = (ROOT, PACKAGE, PACKAGE / "servers")
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []
