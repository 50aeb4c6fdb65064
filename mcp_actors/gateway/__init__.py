"""Serve a group of servers as one MCP server, for many clients.

`serve` uses stdin and stdout, a unix socket or TCP. The command line ``mcp-actors serve`` does the same for a
configuration file, over HTTP too.
"""

# ``_serve`` has the bytes of the clients, ``_session`` their messages, and ``_front`` their view of the group; ``http``
# replaces ``_serve``. ``attach``, a program for clients over stdio, runs two files of this folder without the package.

from __future__ import annotations

from .._exports import publish
from ._serve import serve

__all__ = ["serve"]

publish(__name__, globals())
