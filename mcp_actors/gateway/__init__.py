"""Serve a group of servers as one MCP server, for many clients.

This file only gathers the public names. `serve` uses stdin and stdout, a unix socket or TCP. ``mcp-actors serve``
serves a configuration file, also over HTTP.
"""

# ``_serve`` has the bytes of the clients, ``_session`` the clients' messages, and ``_front`` the clients' view of the
# group. Over HTTP, ``http`` takes the place of ``_serve``. ``attach`` runs ``_relay`` without importing ``mcp_actors``.

from __future__ import annotations

from .._exports import publish
from ._serve import serve

__all__ = ["serve"]

publish(__name__, globals())
