"""Streamable HTTP: each request is a POST, which fails alone.

Only `http` itself uses it. It uses what all transports over HTTP have in common.
"""

from __future__ import annotations

from ._link import StreamableHttpLink as StreamableHttpLink
