"""What comes over a wire, as the SDK's messages."""

from __future__ import annotations

from typing import Final

from mcp.types import JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic_core import from_json

__all__ = ["INITIALIZED", "parse_message", "with_result_type"]

INITIALIZED: Final = "notifications/initialized"
"""The notification with which a session begins, in the legacy era: before it the server takes no request."""


def parse_message(data: bytes) -> JSONRPCMessage:
    """Make a message of JSON, exactly as the SDK does.

    In two steps, because in one the JSON would be parsed once for each kind of message that there is.

    Raises:
        ValueError: it is none.
    """
    return jsonrpc_message_adapter.validate_python(from_json(data), by_name=False)


def with_result_type(message: JSONRPCMessage) -> JSONRPCMessage:
    """Return a message in which a result says of which type it is: one that says nothing is complete.

    So the specification has it, for servers that were written before there were types. The SDK refuses such a result
    in the modern era; in the legacy one it takes no notice of the type.
    """
    if isinstance(message, JSONRPCResponse):
        message.result.setdefault("resultType", "complete")
    return message
