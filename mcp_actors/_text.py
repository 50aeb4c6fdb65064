"""Make foreign text safe to show, and describe errors.

The kernel uses this file, so few imports are allowed.

Owns: nothing.
Writes: nothing.
Calls: _collapse, _errors.
"""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from attrs import frozen

from ._collapse import caused_by
from ._errors import ConfigError, ServerError

T = TypeVar("T")

# --- Make foreign text safe for logs and terminals --------------------------------------------------------------------

# Escape sequences move a terminal's cursor, or rewrite the screen or the clipboard; a line break forges a log line;
# bidirectional marks reorder words; zero-width characters hide words or make two names look alike.


_READ_PER_SHOWN: Final = 8
"""Characters read for each that may be shown: many hidden characters must not take long."""

# Matches complete sequences of ECMA-48. The rest of a broken sequence is text. No repeated character class contains the
# first character of a sequence, so the time is linear.
_TERMINAL_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, screen
    r"|(?:\x1b[P\]X^_]|[\x90\x9d\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # OSC …: titles, links
    r"|\x1b[ -/]*[0-~]"  # all others: character sets, resets
)

# Characters that are not drawn: controls (Cc) except whitespace, formats (Cf), and characters of other categories if
# Unicode calls them default-ignorable.
_UNDRAWN: Final = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)

HIDDEN: Final = re.compile(f"{_TERMINAL_ESCAPE.pattern}|[{_UNDRAWN}]")
"""Escape sequences, and characters that are not drawn. `plain_text` drops them."""

_WHITESPACE: Final = re.compile(r"\s")

_BARE_LINE: Final = re.compile(r"\n(?=\S)")


def plain_text(text: str, *, limit: int = 1000, lines: bool = False) -> str:
    """Return foreign text as it may be shown to people.

    Escape sequences and characters that control something, set the direction of writing or have no width are dropped.
    Whitespace becomes spaces, and is removed at the end. Surrogates and code points unknown to this Python become
    U+FFFD.

    Args:
        text: the text of a server.
        limit: the most characters to return; a cut text ends in ``…``. Default: a dozen lines of a terminal.
        lines: True keeps line breaks, for places where several lines do no harm.
    """
    seen = text[: limit * _READ_PER_SHOWN]
    if not (seen.isascii() and seen.isprintable()):
        bare = HIDDEN.sub("", seen)
        if not lines:
            bare = bare.replace("\n    ", "\n")  # undo `indented`
        # Each line as a whole if possible, because a look at each character takes many times as long.
        each = (line if line.isprintable() else "".join(map(_shown, line)) for line in bare.splitlines())
        seen = ("\n" if lines else " ").join(each)
    seen = seen.rstrip()
    complete = len(seen) <= limit and len(text) <= limit * _READ_PER_SHOWN
    return seen if complete else f"{seen[: limit - 1]}…"


def one_line(text: str) -> str:
    """Drop hidden characters, and make all whitespace spaces, to search a text for what people see."""
    return _WHITESPACE.sub(" ", HIDDEN.sub("", text))


def escaped(text: str) -> str:
    """Return a line for review, with escapes for matches of `HIDDEN` and for characters that look like a blank."""
    shown = HIDDEN.sub(lambda hidden: ascii(hidden[0])[1:-1], text)
    inkless = "\u2800\U0001d159"  # printable characters of Braille and of musical notation
    return "".join(each if each.isprintable() and each not in inkless else ascii(each)[1:-1] for each in shown)


def some_of(items: Sequence[T], most: int, show: Callable[[T], str] = repr) -> str:
    """Return the first items for a sentence, as ``"'a', 'b' and 3 more"``."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(show, items[:most])) + more


def indented(text: str) -> str:
    """Indent all lines but the first, so that no line looks like a separate message."""
    return _BARE_LINE.sub("\n    ", text)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return "" if unicodedata.category(character) in ("Cc", "Cf") else "\ufffd"


# --- Describe errors, and recognize temporary shortages ---------------------------------------------------------------


PROBLEM_CHARACTERS: Final = 2000
"""Maximum of characters of an error within another message. Our own errors have fewer."""


def problem_of(error: BaseException) -> str:
    """Return an error's text in one line, without the server's name, which is in the message around."""
    words = str(error) or type(error).__name__
    if isinstance(error, ServerError):
        words = words.removeprefix(f"server {error.server!r}: ")
    return plain_text(words, limit=PROBLEM_CHARACTERS)


def bad_option(name: str, value: object, problem: str) -> ConfigError:
    return ConfigError(f"{name}={value!r} {problem}", source="open_servers", path=name)


_TASKS: Final = "raise the limit of processes and threads (ulimit -u, in a container its limit of pids)"

_SHORTAGE_REMEDIES: Final = {
    errno.EAGAIN: _TASKS,
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this system (sysctl fs.file-max)",
    errno.ENOBUFS: "raise the limit of memory for sockets (sysctl net.core.wmem_max and net.ipv4.tcp_mem)",
    errno.ENOMEM: "free memory, or raise the limit of memory (ulimit -v, in a container its limit of memory)",
}
"""Error number of a shortage of this program or machine → its remedy."""

_NO_THREAD: Final = "can't start new thread"
"""The words of Python's `RuntimeError`."""

_PASSING_ERRORS: Final = {errno.ETXTBSY, errno.EINTR, errno.EIO}
"""Further errors that the next attempt may not meet."""


@frozen
class Shortage:
    """A shortage of this program or machine, not of a server, and the limit to raise."""

    what: str
    remedy: str


def own_shortage(error: BaseException | None) -> Shortage | None:
    """Return the shortage behind an exception; None for another cause."""
    for cause in causes_of(error):
        if isinstance(cause, OSError) and cause.errno in _SHORTAGE_REMEDIES:
            return Shortage(os.strerror(cause.errno), _SHORTAGE_REMEDIES[cause.errno])
        if isinstance(cause, RuntimeError) and str(cause).startswith(_NO_THREAD):
            return Shortage(_NO_THREAD, f"{_TASKS}, or allow clone3 in its seccomp profile")
    return None


def with_remedy(error: BaseException) -> BaseException:
    """Replace an error about a shortage of this program by a `ConfigError` with a remedy."""
    if (shortage := own_shortage(error)) is None:
        return error
    problem = f"open_servers(): cannot start ({shortage.what}); {shortage.remedy}"
    return caused_by(ConfigError(problem, source="open_servers"), error)


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, its causes and members of groups: each address of a host may fail."""
    seen, open_ends = set[int](), [error]
    while open_ends:
        cause = open_ends.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            open_ends.append(cause.__cause__)
            # The HTTP library hides the cause of its errors by ``from None``. But a `BlockingIOError` only says that a
            # pipe or socket was full, which is not a shortage.
            if cause.__cause__ is None and not isinstance(cause.__context__, BlockingIOError):
                open_ends.append(cause.__context__)
            open_ends += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()


def shortage_of(error: BaseException) -> str | None:
    """Return the system's words for a shortage that a retry may not meet; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in _SHORTAGE_REMEDIES.keys() | _PASSING_ERRORS:
        return None
    return os.strerror(error.errno)
