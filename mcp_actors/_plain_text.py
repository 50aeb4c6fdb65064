"""Foreign text made fit for a log line or a terminal: what it says stays, what it could do there goes.

A server's words reach people through logs and terminals, and there some characters act: escape sequences move the
cursor, rewrite the screen or the clipboard; a line end forges a log line of its own; marks for the direction of
writing put words into another order than they stand in; characters without width hide words, or make two names look
alike. None of them is needed for reading. Programs get such text as it came: this is for what is shown only.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["indented", "plain_text"]

DEFAULT_LIMIT: Final = 1000
"""Characters: a dozen lines of a terminal."""

_LOOKED_AT: Final = 8
"""How much is read for each character that may be shown: what is hidden in a text must not take long to skip."""

# The sequences of ECMA-48, each as a whole; of a broken one what follows is text. No
# part can match what another one begins with, so the time is proportional to the length, whatever the text is.
_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, screen
    r"|(?:\x1b[P\]X^_]|[\x90\x9d\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # OSC …: titles, links
    r"|\x1b[ -/]*[0-~]"  # all others: character sets, resets
)

# What Unicode calls default-ignorable, as nothing is drawn for it, and is not in the category Cf.
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


_BARE_LINE: Final = re.compile(r"\n(?=\S)")


def plain_text(text: str, *, limit: int = DEFAULT_LIMIT, lines: bool = False) -> str:
    """Return foreign text as it may be shown to people.

    Escape sequences and characters that control something, set the direction of writing or have no width are dropped.
    Any other whitespace becomes a space. What is no character (half of one, or one that this Python does not know)
    becomes U+FFFD, the replacement character. Whitespace at the end goes.

    Args:
        text: what a server wrote.
        limit: how many characters are returned at most; a text that was cut ends in ``…``. Default 1000.
        lines: True keeps line ends, for where several lines do no harm. Default False: they become spaces.
    """
    seen = text[: limit * _LOOKED_AT]
    if not (seen.isascii() and seen.isprintable()):
        bare = _IGNORABLE.sub("", _ESCAPE.sub("", seen))
        if not lines:
            bare = bare.replace("\n    ", "\n")  # what `indented` has put there
        seen = ("\n" if lines else " ").join(map(_shown_line, bare.splitlines()))
    seen = seen.rstrip()
    complete = len(seen) <= limit and len(text) <= limit * _LOOKED_AT
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
