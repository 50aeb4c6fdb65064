"""The files that the documentation shows load, and nothing is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_actors.config import load_config

from ...source import EXAMPLES, ROOT, code_blocks
from .writing import load

PAGE = ROOT / "docs" / "howto" / "configuration.md"
FILES = [(language, block) for language in ("json", "toml") for block in code_blocks(PAGE, language)]


@pytest.mark.parametrize(("language", "content"), FILES, ids=range(len(FILES)))
def test_a_file_that_is_shown_loads(tmp_path: Path, language: str, content: str) -> None:
    loaded = load(tmp_path, content, f"mcp.{language}")
    assert loaded.servers
    assert (loaded.errors, loaded.warnings) == ((), ())


def test_so_does_the_one_of_the_example_but_for_its_mistake() -> None:
    loaded = load_config(EXAMPLES / "mcp.json")
    assert [server.name for server in loaded.servers] == ["kitchen", "pantry"]
    assert list(loaded.failed) == ["cellar"]
