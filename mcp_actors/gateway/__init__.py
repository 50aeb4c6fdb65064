"""Serve a group of servers as one MCP server, for many clients.

`serve` does so over stdin and stdout, a unix socket or TCP; the command line ``mcp-actors serve`` does it for a
configuration file, over HTTP too.
"""

# `serve` does, over stdin and stdout, a unix socket or TCP; ``http`` does over HTTP. ``_serve`` has the bytes of the
# clients, ``_session`` their messages, and ``_front`` what they see of the group. ``attach`` is a program of its own
# that imports nothing of this package: a client that knows stdio only runs it.
#
# Only the command line and ``hosts`` import this folder. It uses the servers, and of ``transports`` the parser of lines
# and the handshake of sockets.

from __future__ import annotations

from .._exports import publish
from ._serve import serve

__all__ = ["serve"]

publish(__name__, globals())
