"""An answer that cannot be read is an answer all the same: who waits for it must not wait until his time is over.

A server can answer with JSON that is nested too deeply to be parsed, with more than it may send, or with what is no
message of MCP. Where each answer comes over a connection of its own, that tells whose it is. Where all come over one,
it has to be found out from the text alone, without parsing it: the id is at its top, before what is long or after it.
So two short pieces of the text are looked at, its beginning and its end, however long it is.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Final

from mcp import MCPError
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError

from ..._errors import ConnectionLost, LimitExceeded

__all__ = ["Excerpt", "answer_over_limit", "is_unreadable", "refuse_unreadable", "unreadable_answer"]

HEAD_BYTES: Final = 4096
"""How much of the beginning is looked at. In the worst case that takes two milliseconds."""

TAIL_BYTES: Final = 1024
"""How much of the end. After a long result there is an id and a version, of a few dozen bytes."""

_UNREADABLE: Final = "mcp_actors: not what the server sent"
"""In ``data`` of the errors that are made here. A server that sends it gets its error told in other words, no more."""

_OVER_LIMIT: Final = "mcp_actors: more than the server may send"
"""Likewise."""

# A string that does not end is taken to the end, so that nothing is looked at twice.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

# Of a text that is read backwards: the end of an object, and a member of plain words before it.
_END: Final = re.compile(rb"\s*+\}")
_MEMBER: Final = re.compile(rb'\s*+(?P<value>"[^"\\]*+"|[^\s"{}\[\]:,\\]++)\s*+:\s*+(?P<name>"[^"\\]*+")\s*+,')


class Excerpt:
    """The beginning and the end of a text of JSON.

    Attributes:
        size: how many bytes the whole text has.
    """

    def __init__(self, text: bytes | memoryview) -> None:
        self.size = len(text)
        self._head = bytes(text[:HEAD_BYTES])
        self._tail = bytes(text[-TAIL_BYTES:])

    def extend(self, data: bytes) -> None:
        """Go on with the text. It has had `HEAD_BYTES` already, or its beginning is all that is looked at."""
        self.size += len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]

    @cached_property
    def _first_members(self) -> dict[bytes, bytes]:
        return _first_members(self._head)

    @property
    def may_be_answer(self) -> bool:
        """Whether it may be one, as far as its beginning tells."""
        return self._head.lstrip().startswith(b"{") and b'"method"' not in self._first_members

    @property
    def request_id(self) -> int | str | None:
        """The id of the request that it answers; None if it is no answer, or that is not known."""
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
    """Return the members of an object, as far as can be told: their names, and what their values begin with."""
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
        del members[latest]  # the text may have been cut within it
    return members


def _last_members(text: bytes) -> dict[bytes, bytes]:
    """Return the members at the end of an object, back to the first that is more than a plain word or a number."""
    backwards, members = text[::-1], dict[bytes, bytes]()
    found = _END.match(backwards)
    while found is not None and (found := _MEMBER.match(backwards, found.end())) is not None:
        members[found["name"][::-1]] = found["value"][::-1]
    return members


def unreadable_answer(text: bytes) -> JSONRPCError | None:
    """Return an error in place of an answer that cannot be read; None if it is none, or it is not known whose."""
    told = f"the answer of {len(text)} bytes cannot be read: it is nested too deeply, or is no message of MCP"
    return _answer(Excerpt(text), told, _UNREADABLE)


def answer_over_limit(excerpt: Excerpt, told: str) -> JSONRPCError | None:
    """Return an error in place of an answer that is over a limit; None if it is none, or it is not known whose."""
    return _answer(excerpt, told, _OVER_LIMIT)


def _answer(excerpt: Excerpt, told: str, mark: str) -> JSONRPCError | None:
    request_id = excerpt.request_id
    if request_id is None:
        return None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=told, data=mark))


def is_unreadable(error: MCPError) -> bool:
    """Whether an error stands for an answer that could not be read, or was not."""
    return error.code == PARSE_ERROR and error.data in (_UNREADABLE, _OVER_LIMIT)


def refuse_unreadable(server: str, operation: str, error: MCPError) -> None:
    """Give the caller of a request an error of ours, if it stands for an answer that could not be read, or was not.

    Raises:
        ConnectionLost: of that request; others, and the session, go on.
        LimitExceeded: its answer is over a limit; likewise.
    """
    if not is_unreadable(error):
        return
    told = f"server {server!r}: {operation}: {error.message}"
    if error.data == _OVER_LIMIT:
        raise LimitExceeded(told, server=server) from error
    raise ConnectionLost(f"{told}; the server may have acted on it, and has to be mended", server=server) from error
