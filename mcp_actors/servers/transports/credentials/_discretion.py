"""Mask credentials in logs, including those of the SDK and of httpx2.

A filter of a logger sees the records of the whole program. Those about our connections are logged in the context of the
connection, which distinguishes them from others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from weakref import WeakKeyDictionary

import httpx2
from attrs import frozen
from pydantic_core import ValidationError

from ...._text import plain_text
from ....config import mask_url
from ....config._values import ExpandedUrl
from ...basics import LOGGERS
from ._masker import Masker, first_of


@frozen
class _Ours:
    """The connection that the running code belongs to, and the URL of its requests, if any."""

    masker: Masker
    url: str | None


_ours: Final[ContextVar[_Ours | None]] = ContextVar("ours", default=None)

LOGGED: Final = 10
"""Invalid notifications of a connection that are logged, as many as malformed messages."""

NAMED: Final = 200
"""Characters of such a line that name the method."""

_FORMATTER: Final = logging.Formatter()


class _MaskSecrets(logging.Filter):
    """Masks the credentials of a connection in what is logged about it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask a record; drop none."""
        if (ours := _ours.get()) is not None:
            message = record.getMessage()
            if (masked := ours.masker(message)) != message:
                record.msg, record.args = masked, None
            if record.exc_info:
                record.exc_text = ours.masker.shown(record.exc_text or _FORMATTER.formatException(record.exc_info))
        return True


class _Shorten(logging.Filter):
    """Makes each message of other packages one short line: they quote headers and ids of a server at any length."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record; drop none."""
        if _ours.get() is not None:
            message = record.getMessage()
            if (shown := plain_text(message)) != message:
                record.msg, record.args = shown, None
        return True


class _FewMisfits(logging.Filter):
    """Makes each warning about an invalid notification one line, and passes the first `LOGGED` of a connection.

    The SDK logs each with its traceback: megabytes a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: WeakKeyDictionary[Masker, int] = WeakKeyDictionary()

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten such a record, or drop it."""
        ours = _ours.get()
        if ours is None or not str(record.msg).startswith(_INVALID_NOTIFICATION):
            return True
        count = self._counts[ours.masker] = self._counts.get(ours.masker, 0) + 1
        problem = record.exc_info[1] if record.exc_info else None
        why = f" ({first_of(problem)})" if isinstance(problem, ValidationError) else ""
        last = "; further ones of this connection are not logged" if count == LOGGED else ""
        record.msg, record.args = f"{plain_text(record.getMessage(), limit=NAMED)}{why}{last}", None
        record.exc_info = record.exc_text = None
        return count <= LOGGED


class _MaskUrls(logging.Filter):
    """Masks the URLs in the records of `httpx2` that are about our requests; it leaves those of others alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask a record; drop none."""
        ours = _ours.get()
        if ours is not None and ours.url is not None and isinstance(record.args, tuple):
            record.args = tuple(
                _shown(each, ours.url) if isinstance(each, httpx2.URL) else each for each in record.args
            )
        return True


def _shown(url: httpx2.URL, ours: str) -> str:
    # The value of a variable may be a credential anywhere in the URL, so the configured text is shown instead.
    return mask_url(ours if isinstance(ours, ExpandedUrl) else str(url))


class _DropSessions(logging.Filter):
    """Drops the records of the SDK with our URL or session id, which are all that a stranger needs to join in."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop those records, and no others."""
        return not (_ours.get() is not None and record.getMessage().startswith(_WITH_SESSION_OR_URL))


class _DropHeaders(logging.Filter):
    """Drops the records with our headers: a session id, a cookie, or a token that could not be sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop those records, and no others."""
        return not (_ours.get() is not None and record.getMessage().startswith(_WITH_HEADERS))


_INVALID_NOTIFICATION: Final = "Failed to validate notification"
_WITH_SESSION_OR_URL: Final = ("Received session ID", "Connecting to StreamableHTTP endpoint")
_WITH_HEADERS: Final = ("receive_response_headers.complete", "send_request_headers.failed")

_THEIRS: Final = (
    *("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy", "httpcore2.socks"),
    *("client", "mcp.client.client", "mcp.client.streamable_http"),
    *("mcp.shared.dispatcher", "mcp.shared.jsonrpc_dispatcher"),
)
_MASK: Final = _MaskSecrets()
_SHORTEN: Final = _Shorten()

_FILTERS: Final = (
    ("client", _FewMisfits()),  # before its traceback is masked
    ("httpx2", _MaskUrls()),  # before its arguments are put into the message
    *((name, _MASK) for name in (*LOGGERS, *_THEIRS)),
    *((name, _SHORTEN) for name in _THEIRS),
    ("httpcore2.http11", _DropHeaders()),
    ("httpcore2.http2", _DropHeaders()),
    ("mcp.client.streamable_http", _DropSessions()),
)


def install_filters() -> None:
    """Add the filters to the loggers. They stay, and only affect `discreet` blocks. Adding them twice does nothing."""
    for name, each in _FILTERS:
        logging.getLogger(name).addFilter(each)


@contextmanager
def discreet(masker: Masker, url: str | None = None) -> Iterator[None]:
    """Mask credentials in all logs of this block and of the tasks that are started from it.

    Args:
        masker: masks the credentials of the connection.
        url: the configured URL that the requests go to, if there are any.
    """
    token = _ours.set(_Ours(masker, url))
    try:
        yield
    finally:
        _ours.reset(token)
