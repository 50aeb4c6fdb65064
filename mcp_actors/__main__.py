"""Run the command line: ``python -m mcp_actors`` is ``mcp-actors``.

It calls `main` of the folder ``cli``, which runs the command and exits the process.
"""

from __future__ import annotations

from .cli import main

main()
