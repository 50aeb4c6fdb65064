"""Parse the messages of a server, and log malformed ones."""

from __future__ import annotations

import logging
from typing import Final

from attrs import define, field
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic_core import from_json

from ...._foreign import Log
from ._request_table import comparable_id

INITIALIZED: Final = "notifications/initialized"
"""Ends the handshake of the legacy era. The server accepts no other request before it."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Some servers write it before their first message."""

LOGGED: Final = 10
"""Skipped messages that are logged as warnings. A server that prints its log to stdout would fill ours."""


def parse_json(data: bytes) -> object:
    """Parse the JSON text of a message, which may begin with a byte order mark.

    Raises:
        ValueError: it is not JSON, or is nested too deeply.
    """
    return from_json(data.removeprefix(BYTE_ORDER_MARK))


def alone(parsed: object) -> object:
    """Return the message in a batch of one; anything else as it is."""
    return parsed[0] if type(parsed) is list and len(parsed) == 1 else parsed


def parse_message(data: bytes) -> JSONRPCMessage:
    """Parse a message as the SDK does, and also what `parse_json` and `to_message` accept.

    In two steps: pydantic's ``validate_json`` would parse the JSON once for each kind of message.

    Raises:
        ValueError: it is not a message.
    """
    return to_message(parse_json(data))


def to_message(parsed: object) -> JSONRPCMessage:
    """Return the message in a parsed text, which may be a batch of one.

    Raises:
        ValueError: it is not a message.
    """
    parsed = alone(parsed)
    if type(parsed) is dict and type(number := parsed.get("id")) is float and "method" not in parsed:
        # The SDK accepts no float as an id, but some servers know no other numbers.
        parsed = parsed if (request_id := comparable_id(number)) is None else {**parsed, "id": request_id}
    return jsonrpc_message_adapter.validate_python(parsed, by_name=False)


@define(eq=False)
class SkippedMessages:
    """Counts and logs what a server sends that is not an MCP message.

    Attributes:
        server: the name of the server.
        logger: the logger of the transport.
        count: the number of skipped messages so far.
    """

    server: str
    logger: Log
    count: int = field(default=0, init=False)

    def add(self, message: str) -> None:
        """Log a skipped message: the first `LOGGED` as warnings, the others at DEBUG."""
        self.count += 1
        level = logging.WARNING if self.count <= LOGGED else logging.DEBUG
        self.logger.log(level, "server %r: skipped %s", self.server, message)
