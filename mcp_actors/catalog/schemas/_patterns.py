"""The patterns of a schema, matched in a time that its author cannot choose.

The regular expressions of the standard library go back and try again, and some patterns have them do so for hours, in
which nothing else of the program runs. Those of `pydantic_core` never go back: their time is proportional to the length
of the pattern times that of the text, and both are bounded here. The price is that they know no look-around and no
references to groups.
"""

from __future__ import annotations

import math
import re
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

__all__ = ["Patterns"]

MAX_WEIGHT: Final = 5_000
"""Characters of a pattern, times the numbers in its ``{…}``, as a repetition is written out."""

MAX_CHARACTERS: Final = 10_000
"""Of a text. With the heaviest pattern that takes a tenth of a second."""

_COUNT: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


class Patterns:
    """Matches texts, and remembers what was made of patterns."""

    def __init__(self) -> None:
        self._known: dict[str, SchemaValidator | None] = {}

    def match(self, pattern: str, text: str) -> bool | None:
        """Return whether a pattern matches anywhere in a text; None if that is not known."""
        if pattern not in self._known:
            self._known[pattern] = _compiled(pattern)
        compiled = self._known[pattern]
        if compiled is None or len(text) > MAX_CHARACTERS:
            return None
        return compiled.isinstance_python(text)


def _compiled(pattern: str) -> SchemaValidator | None:
    counts = (max(int(number or 1) for number in found) for found in _COUNT.findall(pattern[:MAX_WEIGHT]))
    if len(pattern) * math.prod(map(_at_least_one, counts)) > MAX_WEIGHT:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _at_least_one(count: int) -> int:
    return max(count, 1)
