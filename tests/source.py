"""The project's own source, for the tests that read it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "mcp_actors"
EXAMPLES: Final = ROOT / "examples"


def project() -> dict[str, Any]:
    """Return the table ``[project]`` of ``pyproject.toml``."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def python_files(*folders: Path) -> list[Path]:
    """List the Python files in these folders and below."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def code_blocks(markdown: Path, language: str) -> Iterator[str]:
    """Yield the fenced blocks of a Markdown file that are marked as `language`."""
    block: list[str] | None = None
    for line in markdown.read_text().splitlines():
        if block is None and line.strip() == f"```{language}":
            block = []
        elif block is not None and line.strip() == "```":
            yield "\n".join(block)
            block = None
        elif block is not None:
            block.append(line)


def parse(path: Path) -> ast.Module:
    """Parse a Python file."""
    return ast.parse(path.read_text(), str(path))
