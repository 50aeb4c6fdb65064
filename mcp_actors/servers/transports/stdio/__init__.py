"""Servers that are processes: started, watched, read, written to and ended.

Only the door of `transports` comes in. It may touch the link, `wire` and `credentials`, but nothing of HTTP.
"""

from __future__ import annotations

from ._link import open_stdio_link as open_stdio_link

__all__ = ["open_stdio_link"]
