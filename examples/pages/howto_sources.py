"""Servers from a table, from a directory of YAML, from a file, and from a source of one's own.

Prints::

    time: .../servers.db:mcp_servers
    docs: .../servers.d/docs.yaml
    notes: .../mcp.json
    agent-1: {'time': 'stopped'}
    registry: ['search']
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Hashable
from contextlib import closing
from pathlib import Path

import trio

from mcp_actors import LoadedConfig, load_config, open_servers
from mcp_actors.config import DirectorySource, Rank, SqliteSource

LAZY = {"connect": "lazy"}


def configure(database: Path) -> None:
    SqliteSource(database).create_tables()
    entry = {"command": "mcp-server-time", "mcp_actors": LAZY}
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO mcp_servers (name, spec) VALUES (?, ?)",
            ("time", json.dumps(entry)),
        )


DOCS = """\
apiVersion: mcp.example.com/v1
kind: MCPServer
metadata:
  name: docs
  labels: {team: search}
spec:
  provider: http
  configuration:
    url: https://docs.example.com/mcp
    mcp_actors: {request_timeout: 120}
  authentication:
    type: bearer
    token: ${DOCS_TOKEN}
  discovery:
    onStartup: false
    fallbackToStatic: true
  tools:
    - name: search
      description: Search the docs.
      inputSchema: {type: object}
"""


async def serve(database: Path, directory: Path, file: Path) -> None:
    table = SqliteSource(database, refresh_interval="30s", instance="agent-1")
    async with open_servers(table, DirectorySource(directory), file) as servers:
        for status in servers.status().values():
            print(f"{status.name}: {status.source}")


def states(database: Path) -> dict[str, str]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT name, status FROM mcp_server_status WHERE instance = 'agent-1'"
        )
        return dict(rows.fetchall())


class Registry:
    """Servers that another part of the program knows."""

    name = "registry"
    rank = Rank.TABLE
    interval = 60.0
    settles = False

    def __init__(self, entries: dict[str, object]) -> None:
        self.entries = entries

    def look(self) -> Hashable:
        return json.dumps(self.entries)

    def read(self) -> tuple[LoadedConfig, ...]:
        return (load_config({"mcpServers": self.entries}, source=self.name),)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = trio.Path(name)
        await (folder / "servers.d").mkdir()
        await (folder / "servers.d" / "docs.yaml").write_text(DOCS)
        notes = {"command": "notes", "mcp_actors": LAZY}
        await (folder / "mcp.json").write_text(
            json.dumps({"mcpServers": {"notes": notes}})
        )
        database = Path(name, "servers.db")
        configure(database)
        await serve(database, Path(name, "servers.d"), Path(name, "mcp.json"))
        print(f"agent-1: {states(database)}")
    registry = Registry({"search": {"command": "search", "mcp_actors": LAZY}})
    async with open_servers(registry, watch=True) as servers:
        print(f"registry: {list(servers)}")


trio.run(main)
