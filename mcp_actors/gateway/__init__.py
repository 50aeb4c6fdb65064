"""Serve a group of servers as one MCP server, for many clients.

`serve` does, over stdin and stdout or over a unix socket. ``_serve`` has the bytes of the clients, ``_session`` their
messages, and ``_front`` what they see of the group. ``attach`` is a program of its own that imports nothing of this
package: a client that knows stdio only runs it.

Only the command line imports this folder. It uses the servers and the parser of lines of ``transports``.
"""

from __future__ import annotations

from .._exports import publish
from ._serve import serve

__all__ = [
    "serve",
]

publish(__name__, globals())
