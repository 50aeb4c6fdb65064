"""Find the request id of a response that cannot be read.

Its caller then fails at once and not by a timeout. A server may send JSON that is nested too deeply, a response over a
limit, or a response that is not a valid MCP message. If each response has a connection of its own, the connection
identifies the request. If all share one, the id must be found, often without parsing the text. It is a member at the
top level, before or after the long one. So only two short excerpts of the text are searched, its beginning and its end.

An id counts only if it is whole and certainly at the top level: an answer that was taken for another one would end a
call that the server still works on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Final

from mcp import MCPError
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, RequestId

from ...._errors import ConnectionLost, LimitExceeded
from ...._text import UnparsedText
from ._messages import BYTE_ORDER_MARK, alone
from ._request_table import comparable_id

HEAD_BYTES: Final = 4096
"""Bytes of the beginning that are searched. In the worst case that takes two milliseconds."""

LONG: Final = 64 * 1024
"""Bytes from which a message that is still arriving is judged by its beginning: as many as come with one read."""

TAIL_BYTES: Final = 4096
"""Bytes of the end that are searched. After a long member there may be an id, a version and a short result."""

_UNREADABLE: Final = "mcp_actors: not what the server sent"
"""Marks, in ``data``, the errors built here. A server that sends the mark only changes the text of its own error."""

_OVER_LIMIT: Final = "mcp_actors: more than the server may send"
"""Marks errors about limits in the same way."""

# An unterminated string matches up to the end of the text. If it did not match, the search would begin again at each of
# its characters, in quadratic time.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

# The same for text that is read backwards, where the backslash of an escape follows what it escapes. A quotation mark
# ends a string unless the number of backslashes after it is odd.
_TOKEN_BACKWARDS: Final = re.compile(rb'"(?:[^"]++|"(?=\\(?:\\\\)*+(?!\\)))*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

_BRACKETS: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}

_OF_A_RESPONSE: Final = frozenset({"result", "error", "jsonrpc"})
"""Members of which a response has at least one. A line of a log in JSON may have an id, but none of these."""

_OF_OTHERS: Final = frozenset({"method", "params"})
"""Members that no response has."""


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
    def _first(self) -> dict[str, bytes] | None:
        return _first_members(self._head)

    @property
    def may_be_answer(self) -> bool:
        """True if the text may be a response, judged by its beginning."""
        return self._first is not None and _OF_OTHERS.isdisjoint(self._first)

    @property
    def request_id(self) -> RequestId | None:
        """The id of the request; None if this is not a response or the id cannot be found."""
        members = self._first or {}
        if members and self.size > len(self._head):
            members = members | _last_members(self._tail, whole=self.size == len(self._tail))
        if not _is_response(members):
            return None
        try:
            return comparable_id(json.loads(members.get("id", b"null")))
        except ValueError:  # it is cut, or is not JSON
            return None


def _is_response(names: Collection[str]) -> bool:
    """Return True if these may be the names of the members of a response, and not of another message."""
    return _OF_OTHERS.isdisjoint(names) and not _OF_A_RESPONSE.isdisjoint(names)


def _first_members(text: bytes) -> dict[str, bytes] | None:
    """Return the members of an object, as far as `text` goes, by name; see `_named`. None if it is not an object."""
    tokens = [match[0] for match in _TOKEN.finditer(text.removeprefix(BYTE_ORDER_MARK))]
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
    """Split the tokens of an object into those of its members, without what is inside of their values.

    Args:
        tokens: the tokens from the first bracket on.
        towards: -1 if they are read backwards.

    Returns:
        The members that are whole, and the tokens of one that is cut; None if the object was read to its other end.
    """
    members: list[list[bytes]] = []
    member: list[bytes] = []
    depth = 0
    for token in tokens:
        step = towards * _BRACKETS.get(token, 0)
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
    """Return members by name, with their values; empty bytes in place of a value that is not plain, or is cut."""
    named = {}
    for tokens in members:
        if len(tokens) > 1 and tokens[0][:1] == b'"' and tokens[1] == b":":
            value = tokens[2] if len(tokens) == 3 and tokens[2] not in _BRACKETS else b""
            named[tokens[0][1:-1].decode(errors="replace")] = value
    return named


def unreadable_answer(text: bytes, parsed: object = None) -> JSONRPCError | None:
    """Return an error in place of an answer that is not valid; None if its request cannot be identified.

    If the answer cannot be parsed, the error has its text as its ``data``, until `Masker.clean` drops that: the answer
    may be a list whose other items can be read.

    Args:
        text: the text of the answer.
        parsed: the same as `parse_json` returns it; None if it cannot be parsed.
    """
    reason = f"the response is not a valid MCP message, or is nested too deeply ({len(text)} bytes)"
    if parsed is not None:
        return _error(_id_in(parsed), reason, _UNREADABLE)
    unparsed = UnparsedText.of(_UNREADABLE, text.removeprefix(BYTE_ORDER_MARK))
    return _error(Excerpt(text).request_id, reason, unparsed)


def _id_in(parsed: object) -> RequestId | None:
    """Return the id of the request that a parsed response answers; None if it is not a response, or has no id."""
    message = alone(parsed)
    return comparable_id(message.get("id")) if isinstance(message, dict) and _is_response(message) else None


def answer_over_limit(excerpt: Excerpt, reason: str) -> JSONRPCError | None:
    """Return an error in place of an answer over a limit; None if its request cannot be identified."""
    return _error(excerpt.request_id, reason, _OVER_LIMIT)


def _error(request_id: RequestId | None, reason: str, mark: str) -> JSONRPCError | None:
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
