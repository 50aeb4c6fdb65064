"""Match the patterns of a schema in bounded time.

The regular expressions of the standard library backtrack, and a hostile pattern keeps them busy for hours, during which
the whole program stops. Those of `pydantic_core` do not backtrack: their time is proportional to the length of the
pattern times that of the text, and both are limited here. In return, they do not support look-around and references to
groups.
"""

from __future__ import annotations

import math
import re
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_WEIGHT: Final = 5_000
"""Characters of a pattern times the counts in its ``{…}``, because repetitions are expanded."""

MAX_CHARACTERS: Final = 10_000
"""Characters of a text. With the heaviest pattern, matching that many takes a tenth of a second."""

_COUNT: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


class Patterns:
    """Matches texts, and caches compiled patterns."""

    def __init__(self) -> None:
        self._known: dict[str, SchemaValidator | None] = {}

    def match(self, pattern: str, text: str) -> bool | None:
        """Return whether a pattern matches anywhere in a text; None if that cannot be checked."""
        if pattern not in self._known:
            self._known[pattern] = _compiled(pattern)
        compiled = self._known[pattern]
        if compiled is None or len(text) > MAX_CHARACTERS:
            return None
        return compiled.isinstance_python(text)


def _compiled(pattern: str) -> SchemaValidator | None:
    counts = (max(1, *(int(number or 1) for number in found)) for found in _COUNT.findall(pattern[:MAX_WEIGHT]))
    if len(pattern) * math.prod(counts) > MAX_WEIGHT:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None
