"""Keeps what may be a credential out of the logs of the libraries that HTTP connections are made with."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import httpx2

from ...config import mask_url
from ...config._masking import ExpandedUrl

__all__ = ["discreet", "install_filters"]

_ours: Final[ContextVar[str | None]] = ContextVar("ours", default=None)
"""The URL that the requests of this task go to, if they are ours."""


class _MaskUrls(logging.Filter):
    """Masks the URLs in the records of `httpx2` that are about our requests; it leaves those of others alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through, masked where it must be."""
        ours = _ours.get()
        if ours is not None and isinstance(record.args, tuple):
            record.args = tuple(_shown(each, ours) if isinstance(each, httpx2.URL) else each for each in record.args)
        return True


def _shown(url: httpx2.URL, ours: str) -> str:
    # What came of variables may be a credential anywhere in it, so what was written is shown in its place.
    return mask_url(ours if isinstance(ours, ExpandedUrl) else str(url))


class _DropSessions(logging.Filter):
    """Drops the records in which the SDK tells a URL or session id of ours: all that a stranger needs to join in."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop those records, and no others."""
        return not (_ours.get() is not None and record.getMessage().startswith(_WITH_SESSION_OR_URL))


class _DropHeaders(logging.Filter):
    """Drops the records with headers of ours: a session id, a cookie, or a token that was not fit to be sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop those records, and no others."""
        return not (_ours.get() is not None and record.getMessage().startswith(_WITH_HEADERS))


_WITH_SESSION_OR_URL: Final = ("Received session ID", "Connecting to StreamableHTTP endpoint")
_WITH_HEADERS: Final = ("receive_response_headers.complete", "send_request_headers.failed")

_FILTERS: Final = (
    ("httpx2", _MaskUrls()),
    ("httpcore2.http11", _DropHeaders()),
    ("httpcore2.http2", _DropHeaders()),
    ("mcp.client.streamable_http", _DropSessions()),
)


def install_filters() -> None:
    """Add the filters. They stay, and do nothing but for what is `discreet`; adding them again changes nothing."""
    for name, each in _FILTERS:
        logging.getLogger(name).addFilter(each)


@contextmanager
def discreet(url: str) -> Iterator[None]:
    """See to it that the libraries log no credential in this block, nor in any task that is started from it.

    Args:
        url: the configured URL that the requests go to.
    """
    token = _ours.set(url)
    try:
        yield
    finally:
        _ours.reset(token)
