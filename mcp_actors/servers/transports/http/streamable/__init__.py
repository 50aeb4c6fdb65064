"""Streamable HTTP: each request is a POST, which fails alone.

Only the rest of `http` and its door come in. It may touch all that HTTP transports have in common.
"""

from __future__ import annotations

from ._link import StreamableHttpLink as StreamableHttpLink

__all__ = ["StreamableHttpLink"]
