"""Servers that are HTTP endpoints, over streamable HTTP or over SSE.

Only the door of `transports` comes in. It may touch the link, `wire` and `credentials`, but nothing of processes.
"""

from __future__ import annotations

from ._failures import MAY_HAVE_ACTED as MAY_HAVE_ACTED
from ._link import open_link_over_http as open_link_over_http
from ._sse import SseLink as SseLink
from .streamable import StreamableHttpLink as StreamableHttpLink

__all__ = ["MAY_HAVE_ACTED", "SseLink", "StreamableHttpLink", "open_link_over_http"]
