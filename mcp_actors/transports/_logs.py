"""Make logs safe to show: mask credentials, and keep text plain.

If the program itself uses the SDK or httpx2, its own log records must stay unchanged. So the code of our connections
runs in a `discreet` block, and log filters recognize the block's records:

| record | outside of a `discreet` block | within |
|---|---|---|
| of this package | plain text | plain text, masked |
| of the SDK, httpx2 or httpcore2 | unchanged | masked and shortened, or dropped |

Owns: kinds of logged SDK warnings; the `discreet` context variable.
Writes: log records; filters of loggers.
Calls: config, _credentials.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import httpx2
from attrs import frozen
from pydantic_core import ValidationError

from .._text import indented, plain_text
from ..config import mask_url
from ..config._values import ExpandedUrl
from ._credentials import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._credentials import Masker


MAX_RECORD: Final = 256 * 1024
"""Maximum characters of a record. Tracebacks of deep nurseries have some ten thousand, and must not be cut."""


@frozen
class _Ours:
    """The masker of a connection, and the URL of its requests, if any."""

    masker: Masker
    url: str | None


_ours: Final[ContextVar[_Ours | None]] = ContextVar("ours", default=None)

MAX_KINDS_LOGGED: Final = 10
"""Maximum kinds of invalid notifications that are logged for a connection."""


class _Safe(logging.Filter):
    """Masks the credentials of a connection in records, and makes the text plain.

    Foreign packages quote headers and ids of a server at any length: each message becomes a short line.

    Args:
        own: True for this package, whose records are also changed outside of a `discreet` block.
    """

    def __init__(self, *, own: bool) -> None:
        super().__init__()
        self._own = own

    def filter(self, record: logging.LogRecord) -> bool:
        if (ours := _ours.get()) is None and not self._own:
            return True
        message = record.getMessage()
        masked = message if ours is None else ours.masker(message)
        shown = indented(_plain(masked)) if self._own else plain_text(masked)
        if shown != message:
            record.msg, record.args = shown, None
        if record.exc_info:
            mask = str if ours is None else ours.masker.shown
            traceback = mask(record.exc_text or logging.Formatter().formatException(record.exc_info))
            if self._own:
                for words in map(mask, _words_in(record.exc_info[1])):
                    traceback = traceback.replace(words, indented(plain_text(words, limit=MAX_RECORD, lines=True)))
                traceback = _plain(traceback)
            record.exc_text = traceback
        return True


def _words_in(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of more than one line in an exception and all its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for words in (str(error), *getattr(error, "__notes__", ())):
            if len(words.splitlines()) > 1:
                yield words
        error = error.__cause__ or error.__context__


def _plain(text: str) -> str:
    # Some characters without a width count as printable, but none of them is ASCII.
    simple = text.isascii() and text.replace("\n", "").isprintable()
    return text if simple else plain_text(text, limit=MAX_RECORD, lines=True)


class _OfSession(logging.Filter):
    """Names the server in records of the SDK's session, which an unconfigured program writes to stderr.

    Each kind of warning about invalid notifications is logged once per connection, up to `MAX_KINDS_LOGGED` kinds: the
    SDK logs each notification with a traceback, megabytes a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: WeakKeyDictionary[Masker, set[str]] = WeakKeyDictionary()

    def filter(self, record: logging.LogRecord) -> bool:
        if (ours := _ours.get()) is None:
            return True
        misfit = str(record.msg).startswith("Failed to validate notification")
        record.msg, record.args = f"server {ours.masker.server!r}: {record.getMessage()}", None
        if not misfit:
            return True
        kinds = self._kinds.setdefault(ours.masker, set())
        problem = record.exc_info[1] if record.exc_info else None
        why = f" ({first_of(problem)})" if isinstance(problem, ValidationError) else ""
        record.msg = text = f"{plain_text(record.getMessage(), limit=200)}{why}; further ones are not logged"
        record.exc_info = record.exc_text = None
        is_new = text not in kinds and len(kinds) < MAX_KINDS_LOGGED
        if is_new:
            kinds.add(text)
        return is_new


class _MaskUrls(logging.Filter):
    """Masks the URLs in records of `httpx2` about our requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        ours = _ours.get()
        if ours is not None and ours.url is not None and isinstance(record.args, tuple):
            # A variable in the URL may be a credential, so the configured text is shown instead.
            own = ours.url if isinstance(ours.url, ExpandedUrl) else None
            record.args = tuple(
                mask_url(own or str(arg)) if isinstance(arg, httpx2.URL) else arg for arg in record.args
            )
        return True


class _Drop(logging.Filter):
    """Drops the records about our connections that begin with given words."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self._words = words

    def filter(self, record: logging.LogRecord) -> bool:
        return not (_ours.get() is not None and record.getMessage().startswith(self._words))


_LOGS: Final = (
    *("adapters", "auth", "bridge", "catalog", "config", "gateway", "hosts", "kernel"),
    *("servers", "servers.http", "servers.stderr", "traffic"),
)
_THEIRS: Final = (
    *("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy", "httpcore2.socks"),
    *("client", "mcp.client.client", "mcp.client.streamable_http"),
    *("mcp.shared.dispatcher", "mcp.shared.jsonrpc_dispatcher"),
)
_OF_THIS_PACKAGE: Final = _Safe(own=True)
_FOREIGN_SAFE: Final = _Safe(own=False)
_WITH_HEADERS: Final = _Drop("receive_response_headers.complete", "send_request_headers.failed")
"""Drops our headers: a session id, a cookie, or a token that could not be sent."""

_FILTERS: Final = (
    ("client", _OfSession()),  # before the traceback is masked
    ("httpx2", _MaskUrls()),  # before the arguments are put into the message
    *((f"mcp_actors.{name}", _OF_THIS_PACKAGE) for name in _LOGS),
    *((name, _FOREIGN_SAFE) for name in _THEIRS),
    ("httpcore2.http11", _WITH_HEADERS),
    ("httpcore2.http2", _WITH_HEADERS),
    # Our URL or session id, all that a stranger needs to join the session.
    ("mcp.client.streamable_http", _Drop("Received session ID", "Connecting to StreamableHTTP endpoint")),
)


def install_filters() -> None:
    """Add the filters to the loggers. Adding them again changes nothing."""
    for name, each in _FILTERS:
        logging.getLogger(name).addFilter(each)


@contextmanager
def discreet(masker: Masker, url: str | None = None) -> Iterator[None]:
    """Mask credentials in all logs of this block and its tasks. `url` is the configured URL of the requests."""
    token = _ours.set(_Ours(masker, url))
    try:
        yield
    finally:
        _ours.reset(token)
