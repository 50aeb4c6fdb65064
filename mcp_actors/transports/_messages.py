"""Turn bytes into lines and messages; limit sizes and the reading pace.

A server decides how long, deep, broken and frequent its messages are, and all servers share the event loop. So each
step here is short, and bytes are not scanned again when more arrive.

Owns: bytes of the arriving message; unparsed lines; the reading pace.
Writes: nothing.
Calls: _request_table.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Iterable
from functools import cached_property
from io import BytesIO
from typing import Final, Literal, TypeAlias

from attrs import frozen
from mcp import MCPError
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, RequestId, jsonrpc_message_adapter

from .._collapse import caused_by
from .._errors import ConnectionLost, LimitExceeded, ServerError
from .._json import BRACKETS, JSON_TOKEN, UnparsedText, read_json
from ._request_table import comparable_id, error_of

# --- Parse the messages of a server -----------------------------------------------------------------------------------


INITIALIZED: Final = "notifications/initialized"
"""Ends the handshake of the legacy era. Before, a server may refuse requests."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Some servers write it before their first message."""


def parse_json(data: bytes) -> object:
    """Parse the JSON text of a message, which may begin with a byte order mark. See `read_json`.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    return read_json(data.removeprefix(BYTE_ORDER_MARK))


def alone(parsed: object) -> object:
    """Return the message in a batch of one; anything else unchanged."""
    return parsed[0] if type(parsed) is list and len(parsed) == 1 else parsed


def parse_message(data: bytes) -> JSONRPCMessage:
    """Parse a message as the SDK does, and accept deviations (see `parse_json` and `to_message`).

    Raises:
        ValueError: the bytes are not a message.
    """
    # In two steps: pydantic's ``validate_json`` would parse the JSON for each kind of message.
    return to_message(parse_json(data))


def to_message(parsed: object) -> JSONRPCMessage:
    """Return the message in a parsed text, which may be a batch of one.

    Raises:
        ValueError: the text is not a message.
    """
    parsed = alone(parsed)
    if type(parsed) is dict and type(number := parsed.get("id")) is float and "method" not in parsed:
        # The SDK accepts no float as an id, but some servers know no other numbers.
        parsed = parsed if (request_id := comparable_id(number)) is None else {**parsed, "id": request_id}
    if type(parsed) is dict and parsed.get("result") == []:  # PHP has no other empty object
        parsed = {**parsed, "result": {}}
    try:
        return jsonrpc_message_adapter.validate_python(parsed, by_name=False)
    except ValueError:
        if type(parsed) is not dict or parsed.get("error") is None or not _is_response(parsed):
            raise
        # Accept an error without an id, and an error that is only a text.
        error = {"id": None, **parsed, "error": error_of(parsed["error"])}
        return JSONRPCError.model_validate(error)


# --- Find the request id of a response that cannot be read ------------------------------------------------------------

# With the id, the caller fails at once and not by a timeout. Over HTTP the connection identifies the request. Over a
# pipe the id must be found, often without parsing: at the top level, before or after the long member. So only the
# beginning and the end are searched.
#
# An id counts only if it is whole and certainly at the top level. A wrong guess would end a call that the server still
# works on.


HEAD_BYTES: Final = 4096
"""Searched bytes of the beginning: two milliseconds at worst."""

LONG: Final = 64 * 1024
"""Bytes after which an arriving message is judged by its beginning: one full read."""

SEARCHED_TAIL: Final = 4096
"""Searched bytes of the end, where an id, a version and a short result fit."""

_UNREADABLE: Final = "mcp_actors: not what the server sent"
"""Marks, in ``data``, errors for unreadable answers. A server that sends the mark only changes its own error."""

_OVER_LIMIT: Final = "mcp_actors: more than the server may send"
"""Marks errors about limits."""

# As `JSON_TOKEN`, for text that is read backwards. A quotation mark ends a string unless an odd number of backslashes
# follows.
_TOKEN_BACKWARDS: Final = re.compile(rb'"(?:[^"]++|"(?=\\(?:\\\\)*+(?!\\)))*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

_OF_A_RESPONSE: Final = frozenset({"result", "error", "jsonrpc"})
"""A response has one of these members; a line of a JSON log, which may have an id, has not."""

_NOT_OF_RESPONSES: Final = frozenset({"method", "params"})
"""Members that no response has."""


class Excerpt:
    """The beginning and the end of a text of JSON, and the `size` of the whole text in bytes."""

    def __init__(self, text: bytes | memoryview) -> None:
        self.size: int = len(text)
        self._head = bytes(text[:HEAD_BYTES])
        self._tail = bytes(text[-SEARCHED_TAIL:])

    def extend(self, data: bytes) -> None:
        self.size += len(data)
        self._tail = (self._tail + data[-SEARCHED_TAIL:])[-SEARCHED_TAIL:]

    @cached_property
    def _first(self) -> dict[str, bytes] | None:
        return _first_members(self._head)

    @property
    def may_be_answer(self) -> bool:
        return self._first is not None and _NOT_OF_RESPONSES.isdisjoint(self._first)

    @property
    def _members(self) -> dict[str, bytes]:
        members = self._first or {}
        if members and self.size > len(self._head):
            members = members | _last_members(self._tail, whole=self.size == len(self._tail))
        return members

    @property
    def id(self) -> object:
        try:
            return json.loads(self._members.get("id", b"null"))
        except ValueError:  # it is cut, or is not JSON
            return None

    @property
    def request_id(self) -> RequestId | None:
        """The id of the request; None if this is not a response or the id cannot be found."""
        return comparable_id(self.id) if _is_response(self._members) else None


def _is_response(names: Collection[str]) -> bool:
    return _NOT_OF_RESPONSES.isdisjoint(names) and not _OF_A_RESPONSE.isdisjoint(names)


def _first_members(text: bytes) -> dict[str, bytes] | None:
    """Return the members of an object, as far as `text` goes (see `_named`); None for anything else."""
    tokens = [match[0] for match in JSON_TOKEN.finditer(text.removeprefix(BYTE_ORDER_MARK))]
    if tokens[:1] != [b"{"]:
        return None
    members, cut = _split(tokens)
    if cut is not None:
        members.append(cut[:2])  # its name is certain, but its value may be cut too
    return _named(members)


def _last_members(text: bytes, *, whole: bool) -> dict[str, bytes]:
    """Return the members at the end of an object, as far back as `text` goes; see `_first_members`."""
    tokens = [match[0][::-1] for match in _TOKEN_BACKWARDS.finditer(text[::-1])]
    if tokens[:1] != [b"}"]:
        return {}
    members, cut = _split(tokens, towards=-1)
    if cut is None and not whole:
        return {}  # there is something before this object
    return _named(member[::-1] for member in reversed(members))


def _split(tokens: Iterable[bytes], towards: int = 1) -> tuple[list[list[bytes]], list[bytes] | None]:
    """Split the tokens of an object by member, without the insides of values. Backwards if `towards` is -1.

    Returns:
        The whole members, and the tokens of a cut member, or None if the other end of the object was found.
    """
    members: list[list[bytes]] = []
    member: list[bytes] = []
    depth = 0
    for token in tokens:
        step = towards * BRACKETS.get(token, 0)
        if depth == 1 and (token == b"," or step < 0):
            members.append(member)
            member = []
        elif depth == 1:
            member.append(token)
        depth += step
        if depth == 0:
            return members, None
    return members, member


def _named(members: Iterable[list[bytes]]) -> dict[str, bytes]:
    """Return the values of members by name; empty bytes for a cut value, an array or an object."""
    named = {}
    for tokens in members:
        if len(tokens) > 1 and tokens[0][:1] == b'"' and tokens[1] == b":":
            value = tokens[2] if len(tokens) == 3 and tokens[2] not in BRACKETS else b""
            named[tokens[0][1:-1].decode(errors="replace")] = value
    return named


def unreadable_answer(text: bytes, parsed: object = None) -> JSONRPCError | None:
    """Return an error in place of an invalid answer; None if its request cannot be identified.

    Args:
        text: the text of the answer. Unless parsed, ``data`` of the error keeps the text until `Masker.clean`: items of
            a list may be readable.
        parsed: the result of `parse_json`; None if the text is not JSON.
    """
    reason = f"the response is not a valid MCP message, or is nested too deeply ({len(text)} bytes)"
    if parsed is not None:
        message = alone(parsed)
        known = comparable_id(message.get("id")) if isinstance(message, dict) and _is_response(message) else None
        return _error(known, reason, _UNREADABLE)
    unparsed = UnparsedText.of(_UNREADABLE, text.removeprefix(BYTE_ORDER_MARK))
    return _error(Excerpt(text).request_id, reason, unparsed)


def answer_over_limit(excerpt: Excerpt, reason: str) -> JSONRPCError | None:
    return _error(excerpt.request_id, reason, _OVER_LIMIT)


def _error(request_id: RequestId | None, reason: str, mark: str) -> JSONRPCError | None:
    if request_id is None:
        return None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=reason, data=mark))


def is_unreadable(error: MCPError) -> bool:
    """Return True if an error replaces an unparsed answer."""
    return error.code == PARSE_ERROR and error.data in (_UNREADABLE, _OVER_LIMIT)


def not_parsed(server: str, operation: str, error: MCPError) -> ServerError | None:
    """Return our error for an `is_unreadable` error; None for any other error. The session goes on.

    `LimitExceeded` replaces an answer over a limit, `ConnectionLost` an answer that cannot be parsed.
    """
    if not is_unreadable(error):
        return None
    reason = f"server {server!r}: {operation}: {error.message}"
    if error.data == _OVER_LIMIT:
        return caused_by(LimitExceeded(reason, server=server), error)
    lost = ConnectionLost(f"{reason}; the request may have taken effect; fix the server", server=server)
    return caused_by(lost, error)


# --- Limit the bytes and JSON values of one message -------------------------------------------------------------------

# Parsing is a single step in which no other task runs, and millions of numbers take seconds. So values are counted
# before, while the bytes arrive.


Excess: TypeAlias = Literal["bytes", "values", "room"]
"""The exceeded limit; ``room`` if the message is within its own limits, but the process has no room for it."""


@frozen
class MessageLimits:
    """The limits of one message, and the words for an excess. `option`, if any, is the setting of `bytes`."""

    bytes: int
    values: int
    option: str | None = None

    def response_too_large(self, excess: Excess) -> str:
        limit, remedy = self.exceeded(excess)
        return f"the response is too large ({limit}); the request may have taken effect; {remedy}"

    def message_too_large(self, excess: Excess) -> str:
        """Return the reason and the remedy for any other message, which ends the connection."""
        limit, remedy = self.exceeded(excess)
        return f"a message from the server is too large ({limit}); {remedy}"

    def exceeded(self, excess: Excess) -> tuple[str, str]:
        if excess == "values":
            return (
                f"more than {self.values} JSON values",
                "raise limits=Limits(max_message_values=…) if that is expected",
            )
        remedy = f"raise {self.option} if that is expected" if self.option is not None else "request less data"
        return f"more than {self.bytes} bytes", remedy


class TooManyValues(Exception):
    """A message exceeds the limit on JSON values."""


class ValueCounter:
    """Counts the values of arriving JSON text by the punctuation outside of strings. A key is a value too.

    The count is the number of values minus one, plus one for each empty array or object. `depth` counts open arrays and
    objects.
    """

    def __init__(self) -> None:
        self.values: int = 0
        self.depth: int = 0
        self._in_string = False
        self._escaped = False

    def feed(self, data: bytes) -> None:
        """Count the next bytes, which may begin and end anywhere."""
        if self._escaped and data:
            data, self._escaped = data[1:], False
        if b"\\" in data:
            # Remove pairs first: then each remaining backslash escapes the next character.
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
            self._escaped = data.endswith(b"\\")
        parts = data.split(b'"')  # in turns outside and inside of strings; several times faster than a regex
        bare = b"".join(parts[1 if self._in_string else 0 :: 2])
        begun = bare.count(b"[") + bare.count(b"{")
        self.values += begun + bare.count(b",") + bare.count(b":")
        self.depth += begun - bare.count(b"]") - bare.count(b"}")
        self._in_string ^= len(parts) % 2 == 0


# --- Collect the bytes of one message, and split a stream into lines --------------------------------------------------

# Only the two ends of a message over a limit are kept. A long message in small pieces takes no quadratic time.


SKIPPED: Final = 16
"""Maximum size of a skipped response, as a multiple of the limit. An endless one must not be read for ever."""

# Some servers end lines with a carriage return alone, which is only space within a message.
_RETURN: Final = re.compile(rb"(?<=[}\]])[ \t]*+\r\s*+(?=[{\[])")

_BLANK: Final = re.compile(rb"\n\s++")


class LongLine(Excerpt):
    """The beginning and the end of a message over a limit. `excess` names the limit."""

    def __init__(self, begun: bytes | memoryview, excess: Excess) -> None:
        super().__init__(begun)
        self.excess = excess


class PartialMessage:
    """A message that is still arriving.

    Attributes:
        coming: the beginning, once the message is long.
        skipped: the two ends of a message over a limit; the rest is not kept.
    """

    def __init__(self, max_bytes: float, max_values: float) -> None:
        self.coming: Excerpt | None = None
        self.skipped: LongLine | None = None
        self._max_bytes = max_bytes
        self._max_values = max_values
        self._counter = ValueCounter()
        # `BytesIO.getvalue` copies nothing, and parsers do not copy `bytes` either.
        self._data = BytesIO()

    @property
    def size(self) -> int:
        return self._data.tell()

    @property
    def empty(self) -> bool:
        return self._data.tell() == 0 and self.skipped is None

    @property
    def complete(self) -> bool:
        """True if a whole array or object has arrived: the next byte belongs to another message."""
        if self.skipped is not None or self._counter.depth != 0:
            return False
        # Up to 16 bytes of space follow a message whose line ends with a carriage return alone.
        last = bytes(self._data.getbuffer()[-16:]).rstrip()
        return last.endswith((b"}", b"]"))

    @property
    def value(self) -> bytes | LongLine:
        """The bytes so far, or the two ends of a message over a limit."""
        return self.skipped or self._data.getvalue()

    def append(self, data: bytes) -> None:
        if self.skipped is not None:
            self.skipped.extend(data)
            return
        if self.coming is not None:
            self.coming.size += len(data)
        self._data.write(data)
        self._counter.feed(data)
        if self._data.tell() > self._max_bytes:
            self.skip("bytes")
        elif self._counter.values > self._max_values:
            self.skip("values")
        elif self.coming is None and self._data.tell() > LONG:
            self.coming = Excerpt(self._data.getbuffer())

    def skip(self, excess: Excess) -> None:
        """Drop all but the two ends, because a limit is exceeded."""
        self.coming = self.skipped = LongLine(self._data.getbuffer(), excess)
        self._data = BytesIO()


class LineSplitter:
    """Takes bytes as they arrive and returns whole lines, without newlines. Most blank lines are dropped.

    `max_values` limits the JSON values of a line that arrives in several pieces. (One piece holds few.)
    """

    def __init__(self, max_line_bytes: int, max_values: int) -> None:
        self.whole: deque[bytes | LongLine] = deque()
        self.partial: PartialMessage = PartialMessage(max_line_bytes, max_values)
        self._max_line_bytes = max_line_bytes
        self._max_values = max_values

    def feed(self, data: bytes) -> None:
        lines = data.split(b"\n")
        if len(lines) > 4:
            # One match drops thousands of blank lines: each would be a step of the reader.
            lines = _BLANK.sub(b"\n", data).split(b"\n")
        begun = lines.pop()
        if self.partial.empty:
            self.whole.extend(lines)
        else:
            self._take(lines)
        if begun:
            self._begin(begun)

    def _take(self, lines: list[bytes]) -> None:
        if lines and not self.partial.empty:
            self.partial.append(lines.pop(0))
            self.whole.append(self._take_partial())
        self.whole.extend(lines)

    def _begin(self, begun: bytes) -> None:
        if b"\r" not in begun:
            self.partial.append(begun)
            return
        if begun.startswith(b"\r") and self.partial.complete:
            self.whole.append(self._take_partial())
        *lines, begun = _RETURN.split(begun)
        self._take(lines)
        self.partial.append(begun)
        if begun.endswith(b"\r") and self.partial.complete:
            self.whole.append(self._take_partial())

    def put_back(self, line: bytes) -> bool:
        """Split an unparsable line by carriage returns, and take the parts; return False if there is only one."""
        lines = _RETURN.split(line) if len(line) <= LONG and b"\r" in line else [line]
        if len(lines) > 1:
            self.whole.extendleft(reversed(lines))
        return len(lines) > 1

    def _take_partial(self) -> bytes | LongLine:
        taken, self.partial = self.partial.value, PartialMessage(self._max_line_bytes, self._max_values)
        return taken

    def pop(self) -> bytes | LongLine | None:
        """Return the next whole line; None if none has arrived."""
        if not self.whole:
            return None
        line = self.whole.popleft()
        return LongLine(line, "bytes") if isinstance(line, bytes) and len(line) > self._max_line_bytes else line

    def take_rest(self) -> bytes:
        """Return the bytes after the last newline, once; empty if over a limit."""
        rest = self._take_partial()
        return rest if isinstance(rest, bytes) else b""


# --- Limit how fast the messages of a server are read -----------------------------------------------------------------

# Each message takes a short step, but a server that writes without pause would delay all others in every turn of the
# event loop. Pauses lose nothing: unread bytes wait in the pipe, and then the server waits.


UNASKED_AT_ONCE: Final = 500
"""Unsolicited messages read without a pause; ``Limits.max_notifications`` may raise the number."""

UNASKED_A_SECOND: Final = 6
"""Messages read per second afterwards, as a multiple of those at once: 3000, at 0.2 ms each, take 60 % of the time."""

MESSAGE_BYTES: Final = 2 * 1024
"""Bytes that count as one unsolicited message: 1 MB at once, and then 6 MB per second."""

NOTICED: Final = 0.001
"""Seconds of work wasted on input without a message before a pause: a few log lines on stdout cause none."""

RESTS: Final = 20
"""Length of a pause as a multiple of the wasted work, so that the work delays few calls to other servers."""

MAX_PAUSE: Final = 0.5
"""Maximum seconds of one pause, in which nothing of the server is noticed, not even its exit."""


REQUEST: Final = 5
"""Messages that a request of the server counts as, because a task answers it."""

ANSWERS_AT_ONCE: Final = 4
"""Answers posted over HTTP without a pause. A POST takes ten times the work of reading a message."""

ANSWERS_A_SECOND: Final = 100
"""Answers posted per second afterwards: more than a server may ask (see `IncomingRequests`)."""


class Bucket:
    """A token bucket of size `at_once`, filled at `rate` tokens per second."""

    def __init__(self, at_once: float, rate: float) -> None:
        self._at_once = at_once
        self._rate = rate
        self._tokens = at_once
        self._filled = 0.0

    def take(self, now: float, tokens: float = 1) -> float:
        """Take tokens, on credit if necessary; return the seconds until the credit is repaid."""
        self._tokens = min(self._at_once, self._tokens + (now - self._filled) * self._rate) - tokens
        self._filled = now
        return max(0.0, -self._tokens / self._rate)


class ReadingPace:
    """The reading speed of one connection. Each method counts, and returns the seconds to pause."""

    def __init__(self, max_notifications: int = UNASKED_AT_ONCE) -> None:
        at_once = max(max_notifications, UNASKED_AT_ONCE)
        self._messages = Bucket(at_once, UNASKED_A_SECOND * at_once)
        self._bytes = Bucket(at_once * MESSAGE_BYTES, UNASKED_A_SECOND * at_once * MESSAGE_BYTES)
        self._wasted = 0.0

    def unasked(self, now: float, size: int = 0, *, request: bool = False) -> float:
        """Count an unsolicited message of `size` bytes."""
        return max(self._messages.take(now, REQUEST if request else 1), self._bytes.take(now, size))

    def unasked_part(self, now: float, size: int) -> float:
        """Count bytes of an unsolicited message that is still arriving."""
        return self._bytes.take(now, size)

    def wasted(self, seconds: float) -> float:
        self._wasted += seconds
        if self._wasted < NOTICED:
            return 0.0
        rest, self._wasted = self._wasted * RESTS, 0.0
        return min(rest, MAX_PAUSE)
