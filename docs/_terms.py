"""Link each term of the glossary at its first use on a page.

The pages stay plain Markdown. The links are added while the documentation is built, so no term is forgotten.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

ORDINARY: Final = {"adapter", "bridge", "group", "link", "path", "pin", "record", "ref"}
"""Words that other pages also use in their ordinary sense; they are linked on the pages about the design only."""

_GLOSSARY: Final = re.search(
    r"^```\{glossary\}\n(.*?)^```$", (Path(__file__).parent / "glossary.md").read_text(), re.M | re.S
)
TERMS: Final = re.findall(r"^(\w.*)$", _GLOSSARY[1] if _GLOSSARY else "", re.MULTILINE)

_NO_PROSE: Final = [
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)",  # blocks
    r"^#+ .*?$",  # headings
    r"^\|.*\|\n\|[-|]+\|$",  # heads of tables
    r"\{[\w:]+\}`[^`]*`",  # roles
    r"`[^`]*`",
    r"!?\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])",
    r"<[^>\n]*>",
]


def fill(app: Any, name: str, source: list[str]) -> None:
    """Link the terms on a page (a handler of Sphinx' ``source-read``)."""
    if name != "glossary":
        source[0] = linked(source[0], [each for each in TERMS if each not in ORDINARY or name.startswith("design/")])


def linked(text: str, terms: list[str]) -> str:
    """Return a page with a link at the first use of each term."""
    longest_first = "|".join(re.escape(each) for each in sorted(terms, key=len, reverse=True))
    pattern = re.compile(rf"(?:{'|'.join(_NO_PROSE)})|\b(?P<term>{longest_first})(?:e?s)?\b", re.M | re.S | re.I)
    missing = set(terms)

    def link(found: re.Match[str]) -> str:
        term = (found["term"] or "").lower()
        if term not in missing:
            return found[0]
        missing.remove(term)
        return f"{{term}}`{found[0]} <{term}>`"

    return pattern.sub(link, text)
