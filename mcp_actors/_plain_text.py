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

# Characters that are not drawn: controls (Cc) that are not whitespace, formats (Cf), and those of other categories that
# Unicode calls default-ignorable.
_UNDRAWN: Final = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)

HIDDEN: Final = re.compile(f"{_ESCAPE.pattern}|[{_UNDRAWN}]")
"""What `plain_text` drops: escape sequences and characters that are not drawn."""

_WHITESPACE: Final = re.compile(r"\s")


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
        bare = HIDDEN.sub("", seen)
        if not lines:
            bare = bare.replace("\n    ", "\n")  # undo `indented`
        seen = ("\n" if lines else " ").join(map(_shown_line, bare.splitlines()))
    seen = seen.rstrip()
    complete = len(seen) <= limit and len(text) <= limit * _READ_PER_SHOWN
    return seen if complete else f"{seen[: limit - 1]}…"


def one_line(text: str) -> str:
    """Return a text without what is hidden, and with a space for each character of whitespace. It may be of any length.

    A text that is not `plain_text` yet is searched in this form, in which people would read it.
    """
    return _WHITESPACE.sub(" ", HIDDEN.sub("", text))


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
