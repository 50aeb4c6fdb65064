"""Connect to a server behind a gateway.

This file only gathers names. ``_link`` connects, and exchanges lines as over `stdio`. ``_handshake`` has the lines that
client and gateway exchange before MCP begins.
"""

from __future__ import annotations

from ._handshake import (
    HANDSHAKE_SECONDS as HANDSHAKE_SECONDS,
    MAX_LINE as MAX_LINE,
    OK as OK,
    REFUSED as REFUSED,
    Challenge as Challenge,
    NotProven as NotProven,
    answer_line as answer_line,
    is_ours as is_ours,
    read_line as read_line,
    server_in as server_in,
    unknown as unknown,
)
from ._link import open_socket_link as open_socket_link
