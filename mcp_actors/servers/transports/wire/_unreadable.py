"""Find the request id of a response that cannot be parsed.

Its caller then fails at once and not by a timeout. A server may send JSON that is nested too deeply, a response over a
limit, or a response that is not a valid MCP message. If each response has a connection of its own, the connection
identifies the request. If all share one, the id must be found without parsing the text. It is a member at the top
level, before or after the long one. So only two short excerpts of the text are searched, its beginning and its end.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Final

from mcp import MCPError
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError

from ...._errors import ConnectionLost, LimitExceeded

HEAD_BYTES: Final = 4096
"""Bytes of the beginning that are searched. In the worst case that takes two milliseconds."""

LONG: Final = 64 * 1024
"""Bytes from which a message that is still arriving is judged by its beginning: as many as come with one read."""

TAIL_BYTES: Final = 1024
"""Bytes of the end that are searched. After a long result there is an id and a version, of a few dozen bytes."""

_UNREADABLE: Final = "mcp_actors: not what the server sent"
"""Marks, in ``data``, the errors built here. A server that sends the mark only changes the text of its own error."""

_OVER_LIMIT: Final = "mcp_actors: more than the server may send"
"""Marks errors about limits in the same way."""

# An unterminated string matches up to the end of the text. If it did not match, the search would begin again at each of
# its characters, in quadratic time.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

# For text that is read backwards: the end of an object, and a member with a plain value before it.
_END: Final = re.compile(rb"\s*+\}")
_MEMBER: Final = re.compile(rb'\s*+(?P<value>"[^"\\]*+"|[^\s"{}\[\]:,\\]++)\s*+:\s*+(?P<name>"[^"\\]*+")\s*+,')


class Excerpt:
    """The beginning and the end of a text of JSON.

    Attributes:
        size: the size of the whole text in bytes.
    """

    def __init__(self, text: bytes | memoryview) -> None:
        self.size: int = len(text)
        self._head = bytes(text[:HEAD_BYTES])
        self._tail = bytes(text[-TAIL_BYTES:])

    def extend(self, data: bytes) -> None:
        """Append to the text. Its searched beginning stays as it is, even if that is shorter than `HEAD_BYTES`."""
        self.size += len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]

    @cached_property
    def _first_members(self) -> dict[bytes, bytes]:
        return _first_members(self._head)

    @property
    def may_be_answer(self) -> bool:
        """True if the text may be a response, judged by its beginning."""
        members = self._first_members
        return self._head.lstrip().startswith(b"{") and not members.keys() & {b'"method"', b'"params"'}

    @property
    def request_id(self) -> int | str | None:
        """The id of the request; None if this is not a response or the id cannot be found."""
        if not self.may_be_answer:
            return None
        members = self._first_members
        if self.size > len(self._head):
            members = _last_members(self._tail) | members
        if b'"method"' in members or not members.keys() & {b'"result"', b'"error"'}:
            return None
        try:
            request_id = json.loads(members.get(b'"id"', b"null"))
        except ValueError:
            return None
        return request_id if isinstance(request_id, (int, str)) and not isinstance(request_id, bool) else None


def _first_members(text: bytes) -> dict[bytes, bytes]:
    """Return the members of an object, as far as `text` goes: their names, and the first token of their values."""
    members: dict[bytes, bytes] = {}
    depth = 0
    before = name = latest = b""
    for match in _TOKEN.finditer(text):
        token, latest = match[0], b""
        if depth == 1 and token == b":":
            name = before
        elif depth == 1 and name:
            members[name] = token
            name, latest = b"", name
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        before = token
    if latest == b'"id"':
        del members[latest]  # the text may be cut in the middle of the id
    return members


def _last_members(text: bytes) -> dict[bytes, bytes]:
    """Return the members at the end of an object, back to the first whose value is not a plain word or number."""
    backwards, members = text[::-1], dict[bytes, bytes]()
    found = _END.match(backwards)
    while found is not None and (found := _MEMBER.match(backwards, found.end())) is not None:
        members[found["name"][::-1]] = found["value"][::-1]
    return members


def unreadable_answer(text: bytes) -> JSONRPCError | None:
    """Return an error in place of an answer that cannot be parsed; None if its request cannot be identified."""
    reason = f"the response is not a valid MCP message, or is nested too deeply ({len(text)} bytes)"
    return _answer(Excerpt(text), reason, _UNREADABLE)


def answer_over_limit(excerpt: Excerpt, reason: str) -> JSONRPCError | None:
    """Return an error in place of an answer over a limit; None if its request cannot be identified."""
    return _answer(excerpt, reason, _OVER_LIMIT)


def _answer(excerpt: Excerpt, reason: str, mark: str) -> JSONRPCError | None:
    request_id = excerpt.request_id
    if request_id is None:
        return None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=reason, data=mark))


def is_unreadable(error: MCPError) -> bool:
    """Return True if an error stands for an answer that was not parsed."""
    return error.code == PARSE_ERROR and error.data in (_UNREADABLE, _OVER_LIMIT)


def refuse_unreadable(server: str, operation: str, error: MCPError) -> None:
    """Raise an error of this package if `error` stands for an answer that was not parsed.

    Raises:
        ConnectionLost: the answer cannot be parsed; other requests and the session go on.
        LimitExceeded: the answer exceeds a limit; likewise.
    """
    if not is_unreadable(error):
        return
    reason = f"server {server!r}: {operation}: {error.message}"
    if error.data == _OVER_LIMIT:
        raise LimitExceeded(reason, server=server) from error
    raise ConnectionLost(f"{reason}; the request may have taken effect; fix the server", server=server) from error
