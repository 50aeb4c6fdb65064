"""``python -m mcp_actors`` is ``mcp-actors``."""

from __future__ import annotations

from .cli import main

main()
