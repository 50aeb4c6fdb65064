"""Ban phrases and openings that make readers stop.

The prose of the project is its comments, docstrings, messages and pages, and the names of its tests. Each banned phrase
is unidiomatic or hides who does what, and has a plainer equivalent. A use that has none gets a row in `ALLOWED`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from .source import EXAMPLES, FENCE, PACKAGE, PAGES, ROOT, python_files

BANNED: Final[Mapping[str, str]] = {
    r"mend(s|ed|ing)?": "fix",
    r"(comes?|came|coming) to nothing": "fail, discard",
    r"by hand": "explicitly, manually",
    r"(gives?|gave|given|giving) on": "pass on",
    r"is on and": "is running and",
    r"what there is": "the name of the thing",
    r"beside": "next to, besides, while … runs",
    r"told": "asked, notified, logged, raised",
    r"whoever|nobody|somebody": "the task, the caller, the user",
    r"stands?(?! for\b)": "is, is written, is open",
    r"(?<!there )(is|are|was|were) (?-i:none)": "is not one",
    r"(is|are|was|were) so(?= (and|because|for|in)\b|[.,;:)]|$)": "is true, happens",
    r"(?<!there )(is|are|was|were) no (?!longer|more|less|fewer|later|such|one|need|way|different)\w+": "is not a",
}
"""Patterns and what to write instead."""

ALLOWED: Final[Mapping[tuple[str, str], str]] = {}
"""A file and a banned phrase in it → the reason why it stays."""

MODULE_WORDS: Final = 12
"""How many words the first line of a module has at most."""

PATTERNS: Final = {re.compile(rf"\b({phrase})(?!\w)", re.IGNORECASE): better for phrase, better in BANNED.items()}

ANY: Final = re.compile(rf"\b(?:{'|'.join(BANNED)})(?!\w)", re.IGNORECASE)
"""Any banned phrase: one search where there would be many."""

CLAUSE: Final = re.compile(r"(What|Who|Whoever|Whatever|Whose|That|Whether)\b(?!.*\?)")
"""An opening that puts a clause where a noun or a verb belongs; a question may begin so."""

SUSPECT: Final = re.compile(rf"{ANY.pattern}|(?-i:[\"']{{3}}\s*{CLAUSE.pattern})", re.IGNORECASE)
"""Anything in a source that can be a banned phrase, or an opening, of a comment or docstring."""

OPENINGS: Final = {"module", "class", "function", "message"}
"""The kinds of prose that CLAUSE is about. A property or an attribute may be documented with *Whether …*."""


COMMENT: Final = re.compile(
    r"""
    "{3} (?: \\. | [^\\] )*? "{3}  |  [']{3} (?: \\. | [^\\] )*? [']{3}
    | " (?: \\. | [^"\\\n] )* "  |  ' (?: \\. | [^'\\\n] )* '
    | [#] (?P<text> [^\n]* )
    """,
    re.VERBOSE | re.DOTALL,
)
"""A comment, or a string, which may hold a ``#``. The module `tokenize` takes ten times as long."""


class Prose(NamedTuple):
    """A piece of text that people read."""

    kind: str
    """``page, comment, module, class, function, property, attribute, message`` or ``test`` (a name)."""
    line: int
    text: str


@cache
def prose_files() -> list[Path]:
    """List the files whose prose is checked."""
    tests = (path for path in python_files(ROOT / "tests") if may_offend(path.read_text()))
    return [*PAGES, *python_files(PACKAGE, EXAMPLES), *tests]


def may_offend(source: str) -> bool:
    """Return False if no comment, docstring or name of a test can have what is banned.

    Three quarters of all Python are tests; to parse them would take most of the time.
    """
    names = " ".join(found[0].replace("_", " ") for found in re.finditer(r"(?<=def )test_\w+", source))
    return SUSPECT.search(" ".join(re.sub("`+", "x", f"{source} {names}").split())) is not None


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def prose_of(path: Path) -> list[Prose]:
    """List the prose of a file. The strings of a test are data."""
    if path.suffix == ".md":
        return list(prose_of_page(path.read_text()))
    in_tests = path.is_relative_to(ROOT / "tests")
    return [piece for piece in prose_of_module(path.read_text()) if not (in_tests and piece.kind == "message")]


def prose_of_page(page: str) -> Iterator[Prose]:
    """Yield the paragraphs of a page, without its fenced blocks."""
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page)
    for paragraph in re.finditer(r"(.*\S.*\n?)+", text):
        yield Prose("page", text.count("\n", 0, paragraph.start()) + 1, paragraph[0])


def prose_of_module(source: str) -> Iterator[Prose]:
    """Yield the comments, docstrings and messages of a module, and the names of its tests."""
    for found in COMMENT.finditer(source):
        if found["text"] is not None:
            yield Prose("comment", source.count("\n", 0, found.start()) + 1, found["text"].lstrip("# "))
    nodes = list(ast.walk(ast.parse(source)))  # outermost first, so a docstring is not mistaken for one of an attribute
    kinds = kinds_of_strings(nodes)
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield Prose("test", node.lineno, name.replace("_", " "))
            case ast.JoinedStr(values=parts):
                yield Prose("message", node.lineno, "".join(_text_of(part) for part in parts))
            case ast.Constant(value=str(text)) if kinds.get(node) != "part" and " " in text:
                yield Prose(kinds.get(node, "message"), node.lineno, text)


def kinds_of_strings(nodes: list[ast.AST]) -> dict[ast.AST, str]:
    """Return the kind of each string that is not a plain message; a literal within an f-string is a ``part``."""
    kinds: dict[ast.AST, str] = {}
    for node in nodes:
        match node:
            case ast.Module(body=[ast.Expr(value=string), *_]):
                kinds[string] = "module"
            case ast.ClassDef(body=[ast.Expr(value=string), *_]):
                kinds[string] = "class"
            case ast.FunctionDef(body=[ast.Expr(value=string), *_], decorator_list=decorators):
                kinds[string] = "property" if "property" in map(ast.unparse, decorators) else "function"
            case ast.AsyncFunctionDef(body=[ast.Expr(value=string), *_]):
                kinds[string] = "function"
            case ast.JoinedStr(values=parts):
                kinds.update(dict.fromkeys(parts, "part"))
        if isinstance(node, ast.Expr):
            kinds.setdefault(node.value, "attribute")
    return kinds


def _text_of(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "x"


def banned_phrases(prose: Prose) -> Iterator[tuple[str, str]]:
    """Yield each banned phrase of a text and what to write instead. A word in backquotes is code."""
    plain = " ".join(re.sub(r"`+[^`]*`+", "x", prose.text).split())
    for pattern, better in PATTERNS.items() if ANY.search(plain) else ():
        if found := pattern.search(plain):
            yield found[0].lower(), better


def has_long_first_line(prose: Prose) -> bool:
    """Return True if this is the docstring of a module and its first line has too many words."""
    return prose.kind == "module" and len(prose.text.partition("\n")[0].split()) > MODULE_WORDS


def test_no_banned_phrase_is_used() -> None:
    found = [
        f"{_name(path)}:{prose.line}: {prose.kind} with {phrase!r}; write: {better}"
        for path in prose_files()
        for prose in prose_of(path)
        for phrase, better in banned_phrases(prose)
        if (_name(path), phrase) not in ALLOWED
    ]
    assert found == []


def test_no_docstring_or_message_opens_with_a_clause() -> None:
    found = [
        f"{_name(path)}:{prose.line}: {prose.text[:60]!r}"
        for path in prose_files()
        for prose in prose_of(path)
        if prose.kind in OPENINGS and CLAUSE.match(prose.text)
    ]
    assert found == []


def test_the_first_line_of_a_module_has_at_most_twelve_words() -> None:
    found = [_name(path) for path in python_files(PACKAGE) for prose in prose_of(path) if has_long_first_line(prose)]
    assert found == []


def test_every_allowed_phrase_is_still_used() -> None:
    files = {name for name, _ in ALLOWED}
    used = {(name, phrase) for name in files for prose in prose_of(ROOT / name) for phrase, _ in banned_phrases(prose)}
    assert used >= ALLOWED.keys()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("# nobody is told\n", ["nobody", "told"]),
        ("def test_a_name_that_is_no_string(): ...\n", ["is no string"]),
        ("raise ValueError(f'{name} is no {kind} at all')\n", ["is no x"]),
        ('limit = 3\n"""Given on\nby hand."""\n', ["by hand", "given on"]),
        ('"""`whoever` stands for a name; there is no other, and it is no longer used."""\n', []),
        ("# It is None if there is none.\n", []),
        ("told = 'told'\n", []),
    ],
)
def test_a_banned_phrase_is_found(source: str, found: list[str]) -> None:
    prose = [*prose_of_module(source)]
    assert sorted(phrase for each in prose for phrase, _ in banned_phrases(each)) == found
    assert may_offend(source) or not found or {each.kind for each in prose} == {"message"}


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_source_with_a_clause_at_the_beginning_of_a_docstring_is_read(quotes: str) -> None:
    assert may_offend(f"def f():\n    {quotes}What it is.{quotes}\n")
    assert may_offend(f'{quotes}A module.{quotes}\n"""\n    Whoever calls."""\n')
    assert not may_offend(f"def f():\n    {quotes}Return what it is.{quotes}\n")


def test_code_on_a_page_is_not_read() -> None:
    page = "Some words\nin two lines.\n\n```python\ntold = 1\n```\n\nMore words\n"
    assert [(prose.line, prose.text) for prose in prose_of_page(page)] == [
        (1, "Some words\nin two lines.\n"),
        (8, "More words\n"),
    ]


def test_each_string_has_its_kind() -> None:
    source = '''"""A module of this kind."""

class C:
    """A class of this kind."""

    @property
    def p(self):
        """A property of this kind."""
        raise ValueError("a message of this kind", "name")

    limit = 3
    """An attribute of this kind."""

async def f():
    """A function of this kind."""
    return f"a message of this {kind}"
'''
    kinds = {prose.text.split()[1]: prose.kind for prose in prose_of_module(source)}
    assert kinds == {kind: kind for kind in ("module", "class", "property", "message", "attribute", "function")}
