"""Parse responses of HTTP/1.1, and serialize requests.

A server may send any bytes, cut anywhere. A wrong end of a response would give a caller the result of another call. So
this parser is stricter than h11, and otherwise agrees with it. A long head would block h11 for seconds (decision 76).

Owns: the response being parsed.
Writes: the connection's buffer of unparsed bytes.
Calls: _bodies.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator
from typing import Final, NoReturn

import httpx2
from attrs import define, field

from ._bodies import BODY_PIECE

MAX_REPLY_HEAD: Final = 100 * 1024
"""Maximum bytes of a head, or of the trailers, as with httpx2's own transport."""

MAX_FIELDS: Final = 1000
"""Maximum fields of a head. httpx2 looks at all of them in one step."""

MAX_INTERIM: Final = 100
"""Maximum interim responses, such as 103 Early Hints, before a response."""

MAX_CHUNK_LINE: Final = 4096
"""Maximum bytes of the line before a chunk."""

UNTIL_END: Final = sys.maxsize
"""The length of a body that ends with the connection."""

_FIELD_NAME: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++"
_REQUEST_HEAD: Final = re.compile(
    rb"%b [!-~]++ HTTP/1\.1\r\n(?:%b: (?:[^\0\s]++(?:[ \t]++[^\0\s]++)*+)?+\r\n)*+\r\n" % (_FIELD_NAME, _FIELD_NAME)
)
_FRAMING: Final = (b"content-length:", b"transfer-encoding:")
_STATUS_LINE: Final = re.compile(rb"(HTTP/[0-9]\.[0-9]) (?!101)([1-9][0-9]{2})(?: ([^\0\r\n\v\f]*+))?+\r?\n")
_FIELD: Final = re.compile(rb"^(%b):[ \t]*+([^\0\r\n\v\f]*+)\r?\n" % _FIELD_NAME, re.MULTILINE)
_FOLD: Final = re.compile(rb"\r?\n[ \t]++")
_EMPTY_LINE: Final = re.compile(rb"\n\r?\n")
_CHUNK_LINE: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,20})(?:;.*|[ \t]*+)\r\n")


def head_of(request: httpx2.Request) -> memoryview:
    """Return the head of a request.

    A memoryview, because requests have credentials: a traceback with variables shows no contents of a memoryview.

    Raises:
        httpx2.LocalProtocolError: a header has a character that would end the header, or is not allowed.
    """
    line, fields = (request.method.encode("ascii"), request.url.raw_path), request.headers.raw
    head = memoryview(b"%b %b HTTP/1.1\r\n%b\r\n" % (*line, b"".join([b"%b: %b\r\n" % each for each in fields])))
    # Count the lines, because one header could contain the whole of another.
    if _REQUEST_HEAD.fullmatch(head) is None or bytes(head).count(b"\n") != len(fields) + 2:
        raise httpx2.LocalProtocolError("a header has a character that cannot be sent")
    return head


def pieces_to_send(head: memoryview, body: memoryview) -> Iterator[memoryview]:
    """Yield a request in pieces. TLS encrypts a piece in one step.

    Raises:
        httpx2.LocalProtocolError: the body is not as long as the head says.
    """
    framing = [line for line in bytes(head).lower().split(b"\r\n") if line.startswith(_FRAMING)]
    if framing == [b"transfer-encoding: chunked"]:
        chunk = b"".join([b"%x\r\n" % len(body), body, b"\r\n"])
        body = memoryview((chunk if body else b"") + b"0\r\n\r\n")
    elif framing != [b"content-length: %d" % len(body)] and (framing or body):
        raise httpx2.LocalProtocolError("the body is not as long as the head says")
    for begin in range(0, len(body) or 1, BODY_PIECE):
        yield memoryview(b"".join([b"" if begin else head, body[begin : begin + BODY_PIECE]]))


@define(eq=False)
class HttpReply:
    """The response to one request.

    The response is taken from the front of a buffer, to which the caller adds. The generators yield empty bytes when
    the buffer lacks bytes. The time of a step is bounded by the new bytes and by the limits above. The tests compare
    the results with h11's.

    Attributes:
        fields: the headers, as they were sent.
        reusable: True if another request may follow over the same connection.
        done: True once the whole response, trailers included, was parsed.
    """

    _method: str
    reusable: bool
    version: bytes = field(default=b"", init=False)
    status: int = field(default=0, init=False)
    reason: bytes = field(default=b"", init=False)
    fields: list[tuple[bytes, bytes]] = field(factory=list, init=False)
    done: bool = field(default=False, init=False)
    _chunked: bool = field(default=False, init=False)
    _length: int = field(default=0, init=False)

    def take_head(self, buffer: bytearray) -> Iterator[bytes]:
        """Parse the heads of interim responses, which are dropped, and then the head of the response.

        Raises:
            httpx2.RemoteProtocolError: the bytes are not a head, or exceed a limit.
        """
        for _ in range(MAX_INTERIM):
            lines = yield from _take_lines(buffer, b"HTTP/")
            if (line := _STATUS_LINE.match(lines)) is None:
                _refuse(f"illegal status line: {lines.splitlines()[0][:80]!r}")
            self.version, self.status, self.reason = line[1], int(line[2]), line[3] or b""
            self.fields = _fields_in(lines[line.end() :])
            self._frame()
            if self.status >= 200:
                return
        _refuse(f"more than {MAX_INTERIM} interim responses came before a response")

    def _frame(self) -> None:
        """Read from the head how the body is framed."""
        items: dict[bytes, list[bytes]] = {}
        for name, value in self.fields:
            items.setdefault(name.lower(), []).extend(map(bytes.strip, value.lower().split(b",")))
        lengths, codings = set(items.get(b"content-length", ())), items.get(b"transfer-encoding", [])
        bad_length = len(lengths) > 1 or any(not each.isdigit() or len(each) > 20 for each in lengths)
        if bad_length or codings not in ([], [b"chunked"]):
            _refuse("bad or conflicting Content-Length or Transfer-Encoding headers")
        bodiless = self._method == "HEAD" or self.status < 200 or self.status in (204, 304)
        self._chunked = bool(codings) and not bodiless
        self._length = 0 if bodiless else int(lengths.pop()) if lengths else UNTIL_END
        # RFC 9112, 6.3: with both headers, a response may be smuggled. With neither, the body ends with the connection.
        certain = self._chunked is (self._length == UNTIL_END)
        self.reusable &= certain and self.version >= b"HTTP/1.1" and b"close" not in items.get(b"connection", ())

    def take_body(self, buffer: bytearray) -> Iterator[bytes]:
        """Parse the body, and yield it in pieces.

        Raises:
            httpx2.RemoteProtocolError: the body is not framed as announced.
        """
        yield from _take_chunks(buffer) if self._chunked else _take_bytes(buffer, self._length)
        self.done = True

    def check_end(self) -> None:
        """Check that the response may end with the connection.

        Raises:
            httpx2.RemoteProtocolError: the response is not complete.
        """
        if not self.status:
            _refuse("Server disconnected without sending a response.")
        if self._chunked or self._length != UNTIL_END:
            _refuse("peer closed connection without sending complete message body")


def _take_lines(buffer: bytearray, begin: bytes) -> Generator[bytes, None, bytes]:
    """Take the lines before an empty line, and drop the empty line."""
    searched = 0
    while (found := _EMPTY_LINE.search(buffer, max(searched - 2, 0))) is None:
        if not buffer.startswith(begin[: len(buffer)]):
            _refuse(f"illegal status line: {bytes(buffer[:80])!r}")
        if len(buffer) > MAX_REPLY_HEAD:
            _refuse("the head or the trailers of the response are too long")
        searched = len(buffer)
        yield b""
    lines = bytes(buffer[: found.start() + 1])
    del buffer[: found.end()]
    return lines


def _fields_in(lines: bytes) -> list[tuple[bytes, bytes]]:
    if b"\n " in lines or b"\n\t" in lines:  # a field may go on in the next line
        lines = _FOLD.sub(b" ", lines)
    found = _FIELD.findall(lines)
    if len(found) != lines.count(b"\n") or len(found) > MAX_FIELDS:
        _refuse(f"illegal header line, or more than {MAX_FIELDS} headers")
    return [(name, value.rstrip(b" \t")) for name, value in found]


def _take_bytes(buffer: bytearray, size: int) -> Iterator[bytes]:
    while size:
        piece = bytes(buffer[:size])
        del buffer[: len(piece)]
        size -= len(piece)
        yield piece


def _take_chunks(buffer: bytearray) -> Iterator[bytes]:
    buffer[:0] = b"\r\n"  # so that each line of a chunk follows the end of another line
    size = 1
    while size:
        while (line := _CHUNK_LINE.match(buffer)) is None:
            illegal = not buffer.startswith(b"\r\n"[: len(buffer)]) or buffer.find(b"\n", 2, MAX_CHUNK_LINE) >= 0
            if illegal or len(buffer) > MAX_CHUNK_LINE:
                _refuse(f"illegal chunk header or footer: {bytes(buffer[:80])!r}")
            yield b""
        size = int(line[1], 16)
        del buffer[: line.end()]  # from here on, `line` has other bytes
        yield from _take_bytes(buffer, size)
    buffer[:0] = b"\n"
    _fields_in((yield from _take_lines(buffer, b"\n"))[1:])  # trailers, which MCP does not use


def _refuse(what: str) -> NoReturn:
    raise httpx2.RemoteProtocolError(what)
