"""Run a flow of the SDK without its log.

The SDK logs whole answers, which may contain tokens. Failures are raised anyway.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import Final

import httpx2
from mcp.client.auth import OAuthClientProvider

_running: Final[ContextVar[bool]] = ContextVar("running", default=False)


class _Silence(logging.Filter):
    """Drops what the SDK logs about our flows."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop those records, and no others."""
        return not _running.get()


_SILENCE: Final = _Silence()


@asynccontextmanager
async def quietly(flow: AsyncGenerator[httpx2.Request, httpx2.Response]) -> AsyncIterator[None]:
    """Run a flow of the SDK without its log, and close it."""
    logging.getLogger(OAuthClientProvider.__module__).addFilter(_SILENCE)  # adding it twice does nothing
    token = _running.set(True)
    try:
        async with aclosing(flow):
            yield
    finally:
        _running.reset(token)
