"""Log records of this package whose text is fit for a log or a terminal, whoever has written what is in it.

Errors of servers (`mcp.MCPError`) reach programs as they came, and so may stand in the traceback of what is logged
here: of a failed clean-up, of a callback of the user's, of a message that nobody waited for.
"""

from __future__ import annotations

import logging
from typing import Final

from .._plain_text import plain_text

__all__ = ["keep_logs_plain"]

LONGEST: Final = 256 * 1024
"""Characters of a record. Tracebacks of deep nurseries have some ten thousand; this is only not to cut any."""

_FORMATTER: Final = logging.Formatter()


class _PlainText(logging.Filter):
    """Replaces the message and the traceback of a record by plain ones, where they are not plain."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through."""
        message = record.getMessage()
        if not _is_plain(message):
            record.msg, record.args = _plain(message), None
        if record.exc_info and not record.exc_text:
            traceback = _FORMATTER.formatException(record.exc_info)
            if not _is_plain(traceback):
                record.exc_text = _plain(traceback)
        return True


def _is_plain(text: str) -> bool:
    # Some of what has no width counts as printable, but none of it is ASCII.
    return text.replace("\n", "").isprintable() and (text.isascii() or _plain(text) == text)


def _plain(text: str) -> str:
    return plain_text(text, limit=LONGEST, lines=True)


_FILTER: Final = _PlainText()
_LOGGERS: Final = tuple(
    f"mcp_actors.{name}" for name in ("catalog", "config", "kernel", "servers", "servers.http", "servers.stderr")
)


def keep_logs_plain() -> None:
    """Add the filter to the loggers. It stays; adding it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
