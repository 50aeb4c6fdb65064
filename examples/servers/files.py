"""Files: a small MCP server over stdio that reads what it may, for the examples."""

from __future__ import annotations

from pathlib import Path

from mcp.server import MCPServer

files = MCPServer("files", log_level="WARNING")


@files.tool()
def read(path: str) -> str:
    """Read a file, or say why not."""
    try:
        return Path(path).read_text()
    except OSError as error:
        return f"refused: {type(error).__name__}"


files.run("stdio")
