"""Serve a gateway over HTTP.

This file only gathers names. ``_wire`` reads and writes bytes, ``_streamable`` handles the messages and sessions of
MCP, ``_access`` decides who is admitted, ``_door`` accepts connections and routes by path, and ``_page`` shows a page
to people.
"""

from __future__ import annotations

from ._access import (
    Access as Access,
    is_loopback as is_loopback,
    read_or_make_token as read_or_make_token,
    tokens_in as tokens_in,
)
from ._door import HttpDoor as HttpDoor, listen_at as listen_at, serve_http as serve_http, url_of as url_of
from ._page import add_page as add_page, serve_page as serve_page
