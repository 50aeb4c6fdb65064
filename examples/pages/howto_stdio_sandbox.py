"""A server that may read one folder, and no other file of its user. Only on Linux.

Prints::

    a note
    refused: PermissionError
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import trio

from mcp_actors import ServerConfig, Stdio, open_servers
from mcp_actors.config import Sandbox

FILES = Path(__file__).parents[1] / "servers" / "files.py"


async def main(shared: Path, private: Path) -> None:
    sandbox = Sandbox(read=[shared, FILES, sys.prefix, sys.base_prefix])
    files = Stdio(sys.executable, [str(FILES)], sandbox=sandbox)
    async with open_servers(ServerConfig("files", files, required=True)) as servers:
        for file in (shared / "note", private / "key"):
            print(await servers["files"].call("read", path=str(file)))


with tempfile.TemporaryDirectory() as folder:
    shared, private = Path(folder, "shared"), Path(folder, "private")
    for each, name in (shared, "note"), (private, "key"):
        each.mkdir()
        (each / name).write_text(f"a {name}")
    trio.run(main, shared, private)
