"""Read and log the stderr of a server, and keep its end."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

import trio

from ...._foreign import Log
from ...._text import plain_text
from ...basics import TimeSlice
from ..credentials import Masker

stderr_logger = Log("mcp_actors.servers.stderr")
"""One logger for all servers: each record names its server in the text and, for filters, in ``record.mcp_server``. A
logger per server would be a global that is never freed."""

TAIL_BYTES: Final = 64 * 1024
"""Bytes of the end that are kept: a long traceback fits, and so does the content of a pipe."""

LINE_BYTES: Final = 8 * 1024
"""Longer lines are logged in pieces, because a progress bar may never write a newline."""

PART_BYTES: Final = 4 * 1024
"""Bytes that are split into lines in one step: each of them may be a line."""

LINES_A_SECOND: Final = 200
"""Lines that are logged per second; others are only counted. Several long tracebacks fit."""

BYTES_A_SECOND: Final = 256 * 1024
"""Bytes that are logged per second. In the worst case, cleaning so many takes a tenth of a second."""

PAUSE: Final = 0.01
"""Seconds between two reads while lines are dropped, so that a flood takes little time of the event loop."""


class StderrReader:
    """Reads the stderr of one server until it ends. A server whose stderr is not read blocks after 64 KiB."""

    def __init__(self, stream: trio.lowlevel.FdStream, server: str, masker: Masker) -> None:
        self._stream = stream
        self._server = server
        self._masker = masker
        self._tail = bytearray()
        self._begun = b""
        self._second = trio.current_time()
        self._lines = 0
        self._bytes = 0
        self._left_out = 0
        self._ended = trio.Event()

    async def run(self) -> None:
        """Read until the end, or until the stream is closed."""
        try:
            while data := await self._read():
                self._tail += data
                del self._tail[: -TAIL_BYTES - self._margin]
                if stderr_logger.is_enabled_for(logging.INFO):
                    await self._take(data)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass
        finally:
            if self._begun:
                self._log(self._begun)
            self._report()
            self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until stderr has ended and everything was read."""
        await self._ended.wait()

    def tail(self) -> str:
        """Return the end of the text so far, masked."""
        text = self._tail.decode("utf-8", "replace")
        # More than the tail is kept, so that a credential that begins before it is still recognized and masked.
        begin = self._masker.place_to_cut(text, len(self._tail[:-TAIL_BYTES].decode("utf-8", "replace")))
        return self._masker(text[begin:]).rstrip()

    async def _read(self) -> bytes:
        """Read the next bytes. Log the number of dropped lines when their second is over, even if nothing comes."""
        if self._left_out:
            await trio.sleep(PAUSE)
            with trio.move_on_at(self._second + 1):
                return bytes(await self._stream.receive_some())
            self._report()
        return bytes(await self._stream.receive_some())

    async def _take(self, data: bytes) -> None:
        time_slice = TimeSlice()
        for begin in range(0, len(data), PART_BYTES):
            lines = self._lines_in(data[begin : begin + PART_BYTES])
            while lines and not self._enough():
                self._log(lines.popleft())
                await time_slice.checkpoint()
            self._left_out += len(lines)
            await time_slice.checkpoint()

    def _lines_in(self, part: bytes) -> deque[bytes]:
        """Return the lines that a part of the stream completes, without empty ones."""
        *lines, begun = (self._begun + part).split(b"\n")
        if len(begun) > LINE_BYTES + self._margin:
            piece, begun = self._parted(begun)
            lines.append(piece)
        self._begun = begun
        return deque(filter(None, lines))

    @property
    def _margin(self) -> int:
        return 4 * self._masker.longest  # bytes of as many characters

    def _parted(self, line: bytes) -> tuple[bytes, bytes]:
        """Split a line that may have no end, so that a credential that has arrived in part stays whole in the rest."""
        text = line.decode("utf-8", "replace")
        end = self._masker.place_to_cut(text, max(len(text) - self._masker.longest, 0))
        return text[:end].encode(), text[end:].encode()

    def _enough(self) -> bool:
        """Return True if the limit of this second is reached."""
        now = trio.current_time()
        if now >= self._second + 1:
            self._report()
            self._second, self._lines, self._bytes = now, 0, 0
        return self._lines >= LINES_A_SECOND or self._bytes >= BYTES_A_SECOND

    def _log(self, line: bytes) -> None:
        """Log a line, in pieces if it is long."""
        self._lines += 1
        self._bytes += len(line)
        # Mask before cutting: a credential may lie across the cut and would not be recognized in pieces.
        masked = self._masker(line.decode("utf-8", "replace"))
        for begin in range(0, len(masked), LINE_BYTES):
            if text := plain_text(masked[begin : begin + LINE_BYTES], limit=LINE_BYTES + 1):
                stderr_logger.info("%s: %s", self._server, text, extra={"mcp_server": self._server})

    def _report(self) -> None:
        if self._left_out:
            stderr_logger.info(
                "%s: %d more lines on stderr were not logged (limit: %d lines or %d bytes per second)",
                self._server,
                self._left_out,
                LINES_A_SECOND,
                BYTES_A_SECOND,
                extra={"mcp_server": self._server},
            )
            self._left_out = 0
