"""The numbers of the house style, and the rule that every ignore says why."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import Final

import pytest

from .source import EXAMPLES, PACKAGE, ROOT, parse, python_files

FILE_LINES: Final = 700
FUNCTION_LINES: Final = 50

OURS: Final = python_files(PACKAGE, EXAMPLES)
EVERYTHING: Final = python_files(PACKAGE, EXAMPLES, ROOT / "tests")

IGNORE: Final = re.compile(r"#\s*(type:\s*ignore|pyright:\s*ignore|noqa|pragma:\s*no\s+(cover|branch))")
EXPLAINED: Final = re.compile(
    r"#\s*("
    r"(type|pyright):\s*ignore\[[\w\-, ]+\]"  # which error
    r"|noqa:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*"
    r"|pragma:\s*no\s+(cover|branch)"
    r")\s*(#|-|:)\s*\w"  # and why
)


LONG: Final = re.compile(r"^( *)(?:async )?def .*\n(?:(?:\1[ )].*|[ \t]*)\n){50}", re.MULTILINE)
"""What looks like a long function, if its docstring and those within it count, too."""


def long_functions(tree: ast.Module, limit: int) -> list[str]:
    """List functions that are longer than `limit` lines, decorators, docstring and nested functions aside."""
    return [
        f"{node.name} (line {node.lineno}): {length} lines"
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (length := _length(node)) > limit
    ]


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    total = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        assert first.end_lineno is not None
        total -= first.end_lineno - first.lineno + 1
    nested = [node for node in function.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return total - sum(_length(node) for node in nested)


def unexplained_ignores(source: str) -> list[str]:
    """List comments that silence a tool without naming what and why."""
    if all(EXPLAINED.search(line) for line in source.splitlines() if IGNORE.search(line)):
        return []  # at a hundredth of the cost
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        f"line {token.start[0]}: {token.string}"
        for token in tokens
        if token.type == tokenize.COMMENT and IGNORE.search(token.string) and not EXPLAINED.search(token.string)
    ]


def test_a_file_has_at_most_700_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in OURS}
    assert {path: length for path, length in lengths.items() if length > FILE_LINES} == {}


def test_a_function_has_at_most_50_lines() -> None:
    paths = [path for path in OURS if LONG.search(path.read_text())]  # to parse all would take ten times as long
    found = {str(path.relative_to(ROOT)): long_functions(parse(path), FUNCTION_LINES) for path in paths}
    assert {path: functions for path, functions in found.items() if functions} == {}


def test_every_ignore_names_its_code_and_its_reason() -> None:
    found = {str(path.relative_to(ROOT)): unexplained_ignores(path.read_text()) for path in EVERYTHING}
    assert {path: comments for path, comments in found.items() if comments} == {}


def test_implementation_files_are_private() -> None:
    public = [path for path in python_files(PACKAGE) if not path.name.startswith("_") and path.parent.name != "cli"]
    assert public == [PACKAGE / "gateway" / "attach.py", PACKAGE / "hosts" / "ray.py"]  # a program; an extra


def test_no_test_brings_the_modules_of_all_tests_back_into_garbage_collections() -> None:
    """After that, each full collection of the process would take a second."""
    undone = "gc.unfreeze" + "()"
    assert [path for path in python_files(ROOT / "tests") if undone in path.read_text()] == []


def test_only_public_folders_list_their_names() -> None:
    listing = {path for path in python_files(PACKAGE) if re.search(r"^__all__\b", path.read_text(), re.MULTILINE)}
    assert {str(path.relative_to(PACKAGE)) for path in listing} == {
        "__init__.py",
        *(f"{name}/__init__.py" for name in ("adapters", "auth", "bridge", "catalog", "cli", "config", "kernel")),
        *(f"{name}/__init__.py" for name in ("gateway", "hosts", "observe", "servers", "sync", "testing")),
        "hosts/ray.py",
    }


def test_each_logger_has_the_name_of_its_folder() -> None:
    """Programs select messages by it."""
    other = {"": "servers", "cli": "gateway", "sync": "bridge", "transports": "servers"}
    for path in python_files(PACKAGE):
        folder = path.relative_to(PACKAGE).parent.parts[:1]
        name = other.get("".join(folder), "".join(folder))
        for node in ast.walk(parse(path)) if "Log(" in path.read_text() else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Log":
                expected = rf"'mcp_actors\.{name}(\.|')|f'{{TRAFFIC}}\."
                assert re.match(expected, ast.unparse(node.args[0])), f"{path}:{node.lineno}"


def test_a_function_that_is_too_long_is_found() -> None:
    code = "def short():\n    'Say what it does.\\n'\n    x = 1\n\n\ndef long():\n    x = 1\n    y = 2\n    z = 3\n"
    assert long_functions(ast.parse(code), 3) == ["long (line 6): 4 lines"]


def test_a_docstring_and_a_nested_function_do_not_count() -> None:
    code = 'def f():\n    """A.\n\n    B.\n    """\n\n    def g():\n        x = 1\n        y = 2\n\n    return g\n'
    assert long_functions(ast.parse(code), 4) == []


@pytest.mark.parametrize(
    ("comment", "fine"),
    [
        ("# type: ignore", False),
        ("# type: ignore[arg-type]", False),
        ("# type: ignore[arg-type]  # the stub is wrong", True),
        ("# noqa", False),
        ("# noqa: BLE001", False),
        ("# noqa: BLE001, B902 - foreign code may raise anything", True),
        ("# pragma: no cover", False),
        ("# pragma: no cover - only on macOS", True),
        ("# an ordinary remark", True),
    ],
)
def test_an_ignore_without_code_or_reason_is_found(comment: str, fine: bool) -> None:
    assert (unexplained_ignores(f"x = 1  {comment}\n") == []) is fine
