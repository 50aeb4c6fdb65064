"""Serve a group of servers as one MCP server, for many clients.

This file only gathers the public names. `serve` uses stdin and stdout, a unix socket or TCP. ``mcp-actors serve``
serves a configuration file, also over HTTP.
"""

# ``_serve`` reads and writes the clients' bytes, ``_session`` answers their messages, and ``_front`` lists tools,
# prompts and resources. Over HTTP, ``http`` takes the place of ``_serve``. The program ``attach`` loads ``_relay`` from
# this folder, without the slow import of ``mcp_actors``.

from __future__ import annotations

from .._exports import publish
from ._serve import serve

__all__ = ["serve"]

publish(__name__, globals())
