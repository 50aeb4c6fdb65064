"""An answer that cannot be read is an answer all the same: who waits for it must not wait until his time is over.

A server can answer with JSON that is nested too deeply to be parsed, or with what is no message of MCP. Where each
answer comes over a connection of its own, that tells whose it is. Where all come over one, it has to be found out from
the text alone, without parsing it: the id is at its top, wherever its writer has put it.
"""

from __future__ import annotations

import json
import re
from typing import Final

from mcp import MCPError
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError

from ..._errors import ConnectionLost

__all__ = ["is_unreadable", "refuse_unreadable", "unreadable_answer"]

MAX_BYTES: Final = 1024 * 1024
"""A longer text is not searched: it takes about a second per 10 MiB, in which nothing else runs."""

_MARK: Final = "mcp_actors: not what the server sent"
"""In ``data`` of the errors that are made here. A server that sends it gets its error told in other words, no more."""

# A string that does not end is taken to the end, so that nothing is looked at twice.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)


def unreadable_answer(text: bytes) -> JSONRPCError | None:
    """Return an error in place of an answer that cannot be read; None if it is none, or it is not known whose."""
    if len(text) > MAX_BYTES or not text.lstrip().startswith(b"{"):
        return None
    members = _top_members(text)
    if b'"method"' in members or not members.keys() & {b'"result"', b'"error"'}:
        return None
    try:
        request_id = json.loads(members.get(b'"id"', b"null"))
    except ValueError:
        return None
    if not isinstance(request_id, (int, str)) or isinstance(request_id, bool):
        return None
    told = f"the answer of {len(text)} bytes cannot be read: it is nested too deeply, or is no message of MCP"
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=told, data=_MARK))


def is_unreadable(error: MCPError) -> bool:
    """Whether an error stands for an answer that could not be read."""
    return error.code == PARSE_ERROR and error.data == _MARK


def refuse_unreadable(server: str, operation: str, error: MCPError) -> None:
    """Give the caller of a request an error of ours, if it stands for an answer that could not be read.

    Raises:
        ConnectionLost: of that request; others, and the session, go on.
    """
    if is_unreadable(error):
        raise ConnectionLost(
            f"server {server!r}: {operation}: {error.message}; the server may have acted on it, and has to be mended",
            server=server,
        ) from error


def _top_members(text: bytes) -> dict[bytes, bytes]:
    """Return the members of an object, as far as can be told: their names, and what their values begin with."""
    members: dict[bytes, bytes] = {}
    depth = 0
    before = name = b""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if depth == 1 and token == b":":
            name = before
        elif depth == 1 and name:
            members[name] = token
            name = b""
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        before = token
    return members
