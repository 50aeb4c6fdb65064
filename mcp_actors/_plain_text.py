"""Make foreign text safe for logs and terminals.

The text of a server reaches people through logs and terminals, where some characters have effects. Escape sequences
move the cursor or rewrite the screen or the clipboard; a line break forges a log line; bidirectional marks reorder
words; zero-width characters hide words or make two names look alike. None of them is needed for reading. Programs
get such text unchanged: this is only for text that is shown.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

DEFAULT_LIMIT: Final = 1000
"""Characters: a dozen lines of a terminal."""

_READ_PER_SHOWN: Final = 8
"""Characters that are read for each one that may be shown, so that skipping hidden ones takes a bounded time."""

# The sequences of ECMA-48, each as a whole; the rest of a broken one is text. No repeated class contains an
# introducer, so a failed match never scans text again and the time is linear.
_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, screen
    r"|(?:\x1b[P\]X^_]|[\x90\x9d\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # OSC …: titles, links
    r"|\x1b[ -/]*[0-~]"  # all others: character sets, resets
)

# The characters that Unicode calls default-ignorable, which are not drawn, outside the category Cf.
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


_BARE_LINE: Final = re.compile(r"\n(?=\S)")


def plain_text(text: str, *, limit: int = DEFAULT_LIMIT, lines: bool = False) -> str:
    """Return foreign text as it may be shown to people.

    Escape sequences and characters that control something, set the direction of writing or have no width are dropped.
    All whitespace, including tabs, becomes a space. Code points that are not characters (surrogates, or unknown to this
    Python) become U+FFFD, the replacement character. Whitespace at the end is removed.

    Args:
        text: the text of a server.
        limit: the most characters that are returned; a text that was cut ends in ``…``. Default 1000.
        lines: True keeps line breaks, where several lines do no harm. Default False: they become spaces.
    """
    seen = text[: limit * _READ_PER_SHOWN]
    if not (seen.isascii() and seen.isprintable()):
        bare = _IGNORABLE.sub("", _ESCAPE.sub("", seen))
        if not lines:
            bare = bare.replace("\n    ", "\n")  # undo `indented`
        seen = ("\n" if lines else " ").join(map(_shown_line, bare.splitlines()))
    seen = seen.rstrip()
    complete = len(seen) <= limit and len(text) <= limit * _READ_PER_SHOWN
    return seen if complete else f"{seen[: limit - 1]}…"


def indented(text: str) -> str:
    """Indent all lines but the first, so that none of them can be mistaken for a separate message."""
    return _BARE_LINE.sub("\n    ", text)


def _shown_line(line: str) -> str:
    return line if line.isprintable() else "".join(map(_shown, line))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return "" if unicodedata.category(character) in ("Cc", "Cf") else "\ufffd"
