"""The page about the design shows the house as it is."""

from __future__ import annotations

import re

from .source import PACKAGE, ROOT

PAGE = ROOT / "docs" / "design" / "index.md"
MAP = "## Where to find what in `servers/`"


def test_every_file_of_the_servers_is_on_the_map_once() -> None:
    _, _, section = PAGE.read_text().partition(MAP)
    named = re.findall(r"`(_\w+)`", section)
    assert sorted(named) == sorted(path.stem for path in (PACKAGE / "servers").glob("_[a-z]*.py"))


def test_every_folder_is_in_the_table_of_layers() -> None:
    named = set(re.findall(r"`mcp_actors/(\w+)/`", PAGE.read_text()))
    assert named == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
