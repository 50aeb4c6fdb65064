"""The house in figures: prose, names of several things, lines of code of each room: ``python -m tests.house``.

A room is a folder of the package; its top has a room of its own, ``.``. Files that a tool writes are left out.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from attrs import field, frozen

from .source import PACKAGE, parse as read, python_files

FILES: Final = [path for path in python_files(PACKAGE) if not path.name.startswith("_generated_")]

POINTING: Final = re.compile(r"\b(it|its|they|them|that|those|such|ones?|others?|likewise|so)\b", re.IGNORECASE)
"""Words that point at something that a reader of one sentence has not read."""

RELATIVE: Final = re.compile(r"\b(which|this|these|what|whose|same)\b", re.IGNORECASE)

MODULE: Final = "Owns:", "Writes:", "Calls:"
"""The last three paragraphs of a module's docstring."""


@cache
def parse(path: Path) -> ast.Module:
    """Parse a file once for all figures."""
    return read(path)


@frozen
class Prose:
    """The words of a file: of its docstrings, of the texts below its constants and attributes, and of its comments."""

    docstrings: str
    below: str
    comments: str = field(repr=False)

    @property
    def words(self) -> int:
        """How many words there are."""
        return sum(map(_words, (self.docstrings, self.below, self.comments)))


def _words(text: str) -> int:
    return len(re.findall(r"[A-Za-z']+", text))


def share(words: re.Pattern[str], prose: list[Prose]) -> float:
    """Return how many of 100 words of docstrings are such words."""
    docstrings = [each.docstrings for each in prose]
    return 100 * sum(len(words.findall(text)) for text in docstrings) / sum(map(_words, docstrings))


def _text(node: ast.stmt | None) -> str:
    """Return the text of a statement that is nothing but a string."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


@cache
def prose_of(path: Path) -> Prose:
    """Read the prose of a file."""
    docstrings, below = [], []
    for node in ast.walk(parse(path)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstrings.append(_text(node.body[0] if node.body else None))
        body = getattr(node, "body", None)
        if isinstance(body, list):
            pairs = pairwise(body)
            below += [_text(after) for before, after in pairs if isinstance(before, (ast.Assign, ast.AnnAssign))]
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return Prose("\n".join(docstrings), "\n".join(below), "\n".join(comments))


def code_of(path: Path) -> int:
    """Count the lines of code: without docstrings, imports, comments and blank lines."""
    lines, left_out = path.read_text().splitlines(), set[int]()
    for node in ast.walk(parse(path)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            left_out |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
        elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if _text(first):
                left_out |= {*range(first.lineno, (first.end_lineno or 0) + 1)}
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in left_out
        for number, line in enumerate(lines, 1)
    )


def room_of(path: Path) -> str:
    """Return the folder that a file is in; ``.`` for the package itself."""
    return path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "."


def lines_of_rooms() -> dict[str, int]:
    """Count the lines of code of each room."""
    rooms: defaultdict[str, int] = defaultdict(int)
    for path in FILES:
        rooms[room_of(path)] += code_of(path)
    return dict(sorted(rooms.items()))


def homonyms() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """List the classes and the constants whose name stands for several things, underscores aside, with their places.

    Classes in classes count, too. A constant may have one value in several places, and a member of an enumeration is
    not a constant.
    """
    classes: defaultdict[str, list[str]] = defaultdict(list)
    constants: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for path in FILES:
        for node in ast.walk(parse(path)):
            where = str(path.relative_to(PACKAGE))
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(f"{where}:{node.lineno}")
            if isinstance(node, ast.Module) or (isinstance(node, ast.ClassDef) and not _is_enumeration(node)):
                for name, value in _constants(node):
                    constants[name].setdefault(ast.unparse(value), f"{where}:{value.lineno}")
    return (
        {name: places for name, places in sorted(classes.items()) if len(places) > 1},
        {name: [*values.values()] for name, values in sorted(constants.items()) if len(values) > 1},
    )


def _is_enumeration(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases)


def _constants(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in scope.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in [node.target] if isinstance(node, ast.AnnAssign) else node.targets:
                name = target.id.strip("_") if isinstance(target, ast.Name) else ""
                if name.isupper() and len(name) > 1:
                    yield name, node.value


def calls_of(path: Path) -> str:
    """Return the rooms, and the files of its own room, that a module imports when it runs.

    The files at the top are left out: they are there for all rooms.
    """
    tree, here = parse(path), path.relative_to(PACKAGE).parts[:-1]
    for_checkers = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and ast.unparse(test.test).endswith("TYPE_CHECKING")
        for statement in test.body
        for node in ast.walk(statement)
    }
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in for_checkers:
            base = here[: len(here) - node.level + 1]
            for module in [node.module] if node.module else [each.name for each in node.names]:
                target = (*base, *module.split("."))
                is_folder = PACKAGE.joinpath(*target).is_dir()
                folder = target if is_folder else target[:-1]
                if folder != here:
                    found |= {".".join(folder)} - {""}
                elif not is_folder:
                    found.add(target[-1])
    return ", ".join(sorted(found, key=lambda name: (name.startswith("_"), name))) or "nothing"


def main() -> None:
    """Print the figures."""
    prose = [prose_of(path) for path in FILES]
    print(f"{sum(each.words for each in prose)} words")
    print(f"{share(POINTING, prose):.1f} pointing and {share(RELATIVE, prose):.1f} relative words in 100")
    for names in homonyms():
        for name, places in names.items():
            print(f"{name}: {', '.join(places)}")
    lines = lines_of_rooms()
    for room, number in lines.items():
        print(f"{number:6} {room}")
    print(f"{sum(lines.values()):6} lines of code")


if __name__ == "__main__":
    main()
