"""Read messages that break the specification, and log skipped messages.

A server's log may precede a response on the same line. A response that the log only quotes must not end a call.

Owns: counts of skipped messages; their kinds.
Writes: the log.
Calls: _messages, _request_table.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

from attrs import define, field
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId

from .._foreign import Log
from .._text import HIDDEN, plain_text
from ._messages import Excerpt, parse_json
from ._request_table import NO_IDS

# --- Log what is skipped ----------------------------------------------------------------------------------------------


NOT_A_MESSAGE: Final = "an event that is not an MCP message"


@define(eq=False)
class SkippedMessages:
    """Counts and logs a server's messages that are not MCP, or answer no request."""

    server: str
    logger: Log
    mask: Callable[[str], str]
    count: int = field(default=0, init=False)
    _kinds: set[str] = field(factory=set, init=False)

    def add(self, kind: str, details: str = "", *, remedy: str = "fix the server") -> None:
        """Log a skipped message: the first of a kind as a warning, the rest at DEBUG."""
        self.count += 1
        level = logging.DEBUG if kind in self._kinds else logging.WARNING
        self._kinds.add(kind)
        self.logger.log(level, "server %r: skipped %s%s; %s", self.server, kind, details, remedy)

    def add_stray(self, message: JSONRPCMessage) -> bool:
        """Log a response without a usable id; return False for anything else."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id not in NO_IDS:
            return False
        if isinstance(message, JSONRPCError):
            self.add("an error without an id", f" ({plain_text(self.mask(message.error.message), limit=200)})")
        else:
            self.add("a result without an id")
        return True

    def end(self) -> None:
        if (more := self.count - len(self._kinds)) > 0:
            self.logger.info("server %r: skipped %d more messages of these kinds", self.server, more)


# --- Find a response after other output -------------------------------------------------------------------------------

# A progress bar, a prompt or a log without a line end may precede a response on its line. The response counts only if
# its request waits, the whole line is not JSON, and no quote or bracket is open before it. A request or notification is
# never read in this way, because it may have an effect.


OTHER_OUTPUT: Final = 16 * 1024
"""Searched bytes before a response. More would take seconds, in a single step."""

_BEGINS: Final = re.compile(rb'\{\s*+"(?:jsonrpc|id|result|error)"\s*+:')
_QUOTING: Final = re.compile(r"""\\.|["'`()\[\]{}]""", re.DOTALL)


def response_after(line: bytes, awaits: Callable[[RequestId | None], bool]) -> object | None:
    """Return the parsed response at the end of a line, if any.

    Args:
        line: a line with further output, not JSON as a whole.
        awaits: whether a request with an id waits.
    """
    for begin in islice(_BEGINS.finditer(line, 1, OTHER_OUTPUT), 8):  # maximum of places to try
        text = line[begin.start() :]
        if awaits(Excerpt(text).request_id) and not _is_open(line[: begin.start()]):
            with suppress(ValueError):
                return parse_json(text)
    return None


def _is_open(text: bytes) -> bool:
    depth, quote = 0, ""
    for match in _QUOTING.finditer(HIDDEN.sub("", text.decode(errors="replace"))):
        mark, place = match[0] if quote else match[0][-1], match.start()
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth = max(depth - 1, 0)
        elif mark == '"' or (mark in "'`" and not (place and match.string[place - 1].isalnum())):
            quote = mark
    return depth > 0 or bool(quote)
