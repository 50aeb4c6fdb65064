"""The page of guarantees: each sentence of ``guarantees.toml``, with the tests in whose docstrings its id stands.

The page is made of the tests whenever the documentation is built, so it cannot promise what no test holds.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
PLACE: Final = "<!-- guarantees -->"

ID: Final = re.compile(r"\b(?:K\d|(?:S\d|[A-D])-\d{2,3})\b")


DEFINED: Final = re.compile(
    r"^class (?P<class>Test\w*).*:$"
    r"|^(?P<indent>    )?(?:async )?def (?P<test>test_\w+)\((?:.*|\n(?:.*\n)*?(?P=indent)?\)) -> None:\n"
    r'(?: +"""(?P<docstring>[^"]*(?:"(?!"")[^"]*)*)""")?',
    re.MULTILINE,
)
"""A class of tests, or a test with its docstring."""


def sentences() -> dict[str, dict[str, str]]:
    """Return the guarantees: by topic, by id."""
    return tomllib.loads((ROOT / "docs" / "guarantees.toml").read_text())


@cache
def tests() -> dict[str, dict[str, str]]:
    """Return the docstrings of all tests: by the path of their module, by their name."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {path.relative_to(ROOT).as_posix(): _tests(path.read_text()) for path in paths}


def proofs() -> dict[str, list[str]]:
    """Return the tests by the ids in their docstrings, as pytest names them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, docstrings in tests().items():
        for name, docstring in docstrings.items():
            for each in dict.fromkeys(ID.findall(docstring)):
                found[each].append(f"{module}::{name}")
    return dict(found)


def _tests(source: str) -> dict[str, str]:
    """Return the docstrings of the tests of a module. To parse it would take twenty times as long."""
    found: dict[str, str] = {}
    inside = ""
    for each in DEFINED.finditer(source):
        if each["class"]:
            inside = f"{each['class']}::"
        else:
            inside = inside if each["indent"] else ""
            found[inside + each["test"]] = each["docstring"] or ""
    return found


def page() -> str:
    """Return the guarantees and their proofs as Markdown."""
    found = proofs()
    return "\n".join(line for topic, held in sentences().items() for line in _section(topic, held, found))


def _section(topic: str, held: dict[str, str], found: dict[str, list[str]]) -> Iterator[str]:
    yield f"## {topic}\n"
    for each, sentence in held.items():
        yield f"- {sentence} ({each})"
        yield from (f"  - `{test}`" for test in found[each])
    yield ""


def fill(app: Any, name: str, source: list[str]) -> None:
    """Put the guarantees into their page (a handler of Sphinx' ``source-read``)."""
    if name == "guarantees":
        source[0] = source[0].replace(PLACE, page())
