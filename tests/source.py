"""The project's own source, for the tests that read it."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "mcp_actors"
EXAMPLES: Final = ROOT / "examples"
FOLDERS: Final = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py") if path.parent.name != "transports")
"""The folders that programs import. ``transports`` is known to the rest of the package only."""

README: Final = ROOT / "README.md"

PAGES: Final = [
    README,
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if not {"changes", "examples"} & set(path.parts)),
]


FENCE: Final = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
"""A block of a page, with its language and its text."""


def docs_module(name: str) -> ModuleType:
    """Import a module of the documentation, which is not a package."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def project() -> dict[str, Any]:
    """Return the table ``[project]`` of ``pyproject.toml``."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def python_files(*folders: Path) -> list[Path]:
    """List the Python files in these folders and below."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def blocks(*pages: Path) -> list[Block]:
    """List the fenced blocks of pages, in their order."""
    found: list[Block] = []
    for page in pages:
        for fence in FENCE.finditer(page.read_text()):
            line = fence.string.count("\n", 0, fence.start()) + 1
            found.append(Block(page, line, fence[1], fence[2].removesuffix("\n")))
    return found


def commands() -> list[str]:
    """Return the commands of the README that work in a checkout, in its order."""
    typed = [line for block in blocks(README) if block.language == "bash" for line in block.text.splitlines()]
    return [line for line in typed if line.startswith("python3 -m venv")]


def parse(path: Path) -> ast.Module:
    """Parse a Python file."""
    return ast.parse(path.read_text(), str(path))
