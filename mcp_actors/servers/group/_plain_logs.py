"""Make the log records of this package safe to show.

Exceptions of callbacks, of the SDK and of libraries may quote a server, and their text is in the tracebacks that are
logged: of a failed clean-up, of a callback of the user, of a message without a waiting caller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from ..._text import LOGGERS, indented, plain_text

LONGEST: Final = 256 * 1024
"""Characters of a record. Tracebacks of deep nurseries have some ten thousand; this is only not to cut any."""

_FORMATTER: Final = logging.Formatter()


class _PlainText(logging.Filter):
    """Replaces the message and the traceback of a record by plain ones, where they are not plain."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through."""
        message = record.getMessage()
        plain = indented(message if _is_plain(message) else _plain(message))
        if plain != message:
            record.msg, record.args = plain, None
        if record.exc_info:
            traceback = record.exc_text or _FORMATTER.formatException(record.exc_info)
            for words in _words_in(record.exc_info[1]):
                traceback = traceback.replace(words, indented(plain_text(words, limit=LONGEST, lines=True)))
            record.exc_text = traceback if _is_plain(traceback) else _plain(traceback)
        return True


def _words_in(error: BaseException | None) -> Iterator[str]:
    """Yield what an exception, and each behind it, says in more than one line."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for words in (str(error), *getattr(error, "__notes__", ())):
            if len(words.splitlines()) > 1:
                yield words
        error = error.__cause__ or error.__context__


def _is_plain(text: str) -> bool:
    # Some of what has no width counts as printable, but none of it is ASCII.
    return text.replace("\n", "").isprintable() and (text.isascii() or _plain(text) == text)


def _plain(text: str) -> str:
    return plain_text(text, limit=LONGEST, lines=True)


_FILTER: Final = _PlainText()


def keep_logs_plain() -> None:
    """Add the filter to the loggers. It stays; adding it again changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
