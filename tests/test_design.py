"""The page about the design shows the house as it is."""

from __future__ import annotations

import re

import pytest

from .source import PACKAGE, ROOT

PAGE = ROOT / "docs" / "design" / "index.md"
MAP = "## Where to find what in `servers/` and `transports/`"


def test_every_file_of_the_servers_and_transports_is_on_the_map_once() -> None:
    _, _, section = PAGE.read_text().partition(MAP)
    rows = re.findall(r"^\| `([\w/]+)/` \|[^|]*\| (.*) \|$", section, re.MULTILINE)
    named = sorted((room, sorted(re.findall(r"`(_\w+)`", files))) for room, files in rows)
    assert named == sorted(
        (str(face.parent.relative_to(PACKAGE)), sorted(path.stem for path in face.parent.glob("_[a-z]*.py")))
        for home in ("servers", "transports")
        for face in (PACKAGE / home).rglob("__init__.py")
    )


def test_every_folder_is_in_the_table_of_layers() -> None:
    named = set(re.findall(r"`mcp_actors/(\w+)/`", PAGE.read_text()))
    assert named == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_decisions_are_numbered_dated_records_of_three_parts() -> None:
    records = sorted((PAGE.parent / "decisions").glob("*.md"))
    shape = (
        r"---\nnosearch: true\n---\n\n# (\d+)\. .+\n\nDate: \d{4}-\d\d-\d\d\n\n"
        r"## Context\n\n.+\n\n## Decision\n\n.+\n\n## Consequences\n\n.+\n"
    )
    numbers = [re.fullmatch(shape, record.read_text(), re.DOTALL) for record in records]
    assert [int(found[1]) for found in numbers if found] == list(range(1, len(records) + 1))
    assert [
        record.name for record, at in zip(records, range(1, 100), strict=False) if record.name[:4] != f"{at:04}"
    ] == []


@pytest.mark.parametrize("page", sorted(path.name for path in PAGE.parent.glob("*.md")))
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", (PAGE.parent / page).read_text())
    homes = (ROOT, PACKAGE, PACKAGE / "servers")
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []
