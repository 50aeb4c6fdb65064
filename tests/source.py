"""The project's own source, for the tests that read it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "mcp_actors"
EXAMPLES: Final = ROOT / "examples"
RUNS: Final = re.compile(r"^ *(trio|asyncio)\.run\(", re.MULTILINE)
"""Whether a block is a whole program."""


def project() -> dict[str, Any]:
    """Return the table ``[project]`` of ``pyproject.toml``."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def python_files(*folders: Path) -> list[Path]:
    """List the Python files in these folders and below."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def fenced_blocks(markdown: Path) -> Iterator[tuple[str, str]]:
    """Yield the fenced blocks of a Markdown file, each with its language."""
    language, block = "", list[str]()
    fenced = False
    for line in markdown.read_text().splitlines():
        if line.strip().startswith("```"):
            if fenced:
                yield language, "\n".join(block)
            language, block, fenced = line.strip().removeprefix("```"), [], not fenced
        elif fenced:
            block.append(line)


def code_blocks(markdown: Path, language: str) -> Iterator[str]:
    """Yield the fenced blocks of a Markdown file that are marked as `language`."""
    return (block for marked, block in fenced_blocks(markdown) if marked == language)


def programs(markdown: Path) -> Iterator[tuple[str, str]]:
    """Yield the whole programs of a Markdown file, each with the block of text below it: what it prints."""
    for (language, block), (below, output) in pairwise([*fenced_blocks(markdown), ("", "")]):
        if language == "python" and RUNS.search(block):
            yield block, output if below == "text" else ""


def parse(path: Path) -> ast.Module:
    """Parse a Python file."""
    return ast.parse(path.read_text(), str(path))
