"""The documentation for programs: signatures, Markdown of each page, and an index by task."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from .source import FOLDERS, PACKAGE, ROOT, docs_module

PAGES = {
    path.relative_to(ROOT / "docs").with_suffix("").as_posix(): path.read_text()
    for path in (ROOT / "docs").rglob("*.md")
    if not {"changes", "examples", "_build"} & set(path.relative_to(ROOT / "docs").parts)
}


def test_the_page_of_signatures_has_every_public_name() -> None:
    """D-96: it is made of the package, so it is current."""
    sections = re.split(r"^## ", docs_module("_machines").signatures(), flags=re.MULTILINE)[1:]
    shown = {section.partition("\n")[0]: section for section in sections}
    for folder in FOLDERS:
        names = import_module(f"mcp_actors.{folder}").__all__ if folder != "cli" else []
        for name in names:
            home = folder if f"mcp_actors.{folder}" in shown else ""
            assert re.search(rf"\b{name}\b", shown[f"mcp_actors.{home}".rstrip(".")]), f"{folder}: {name}"
    assert "async def call_tool(self, /, name: str, arguments: Mapping[str, Any] | None = None" in shown["mcp_actors"]
    assert "connect: Literal['eager', 'lazy'] = 'eager'" in shown["mcp_actors"]
    assert re.search(r"^def open_servers\(.* -> AbstractAsyncContextManager\[ServerGroup\]$", shown["mcp_actors"], re.M)
    assert "async def serve(group: ServerGroup" in shown["mcp_actors.gateway"]
    assert re.findall(r" at 0x|NOTHING|ForwardRef\(", "".join(sections)) == []


def test_each_page_is_there_as_markdown_and_the_index_leads_to_them() -> None:
    """D-96."""
    files = docs_module("_machines").files(PAGES)
    assert {f"{name}.md" for name in PAGES} <= files.keys()
    index = files["llms.txt"]
    links = re.findall(r"\]\((?!https?:)([\w./-]+\.md)", index)
    assert len(links) >= 60
    assert [link for link in links if link not in files] == []
    assert "from mcp_actors.bridge import open_servers" in index
    assert "toctree" not in index
    assert all(PAGES[name] in files["llms-full.txt"] for name in ("tutorial", "howto/actors", "howto/typing"))


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_help_of_a_public_module_begins_with_words_for_users(folder: str) -> None:
    """D-96: files are named in comments, for those who change them."""
    document = import_module(f"mcp_actors.{folder}".rstrip(".")).__doc__ or ""
    assert re.findall(r"``_\w+``|`_\w+`|\b_[A-Z]+\b|map above", document) == []
    assert PACKAGE.exists()
