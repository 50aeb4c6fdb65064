"""What a server writes to stderr: always read, logged by the line, its end kept."""

from __future__ import annotations

import logging
from typing import Final

import trio

from ..._plain_text import plain_text

__all__ = ["StderrReader"]

logger = logging.getLogger("mcp_actors.servers.stderr")
"""One logger for all servers: each record names its server in the text and, for filters, in ``record.mcp_server``. A
logger per server would be a global that is never freed."""

TAIL_BYTES: Final = 64 * 1024
"""How much of the end is kept: room for a long traceback, and also what a pipe holds."""

LINE_BYTES: Final = 8 * 1024
"""A longer line is logged in pieces: a progress bar may never write a newline."""


class StderrReader:
    """Reads one server's stderr until it ends, because a server that nobody reads stops at 64 KiB."""

    def __init__(self, stream: trio.lowlevel.FdStream, server: str) -> None:
        self._stream = stream
        self._server = server
        self._tail = bytearray()
        self._begun = b""
        self._ended = trio.Event()

    async def run(self) -> None:
        """Read until the end, or until the stream is closed."""
        try:
            while data := await self._stream.receive_some():
                self._take(bytes(data))
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass
        finally:
            self._log(self._begun)
            self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until everything was read."""
        await self._ended.wait()

    def tail(self) -> str:
        """Return the end of what was read so far."""
        return self._tail.decode("utf-8", "replace").rstrip()

    def _take(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-TAIL_BYTES]
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._log(line)
        if len(self._begun) > LINE_BYTES:
            self._log(self._begun)
            self._begun = b""

    def _log(self, line: bytes) -> None:
        if text := plain_text(line.decode("utf-8", "replace"), limit=len(line) + 1):
            logger.info("%s: %s", self._server, text, extra={"mcp_server": self._server})
