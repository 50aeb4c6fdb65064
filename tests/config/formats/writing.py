"""Configuration files as people write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mcp_actors.config import LoadedConfig, ServerConfig, load_config


def write(folder: Path, content: object, name: str = "mcp.json") -> Path:
    """Write a file; what is neither str nor bytes is written as JSON."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    path.chmod(0o600)
    return path


def load(folder: Path, content: object, name: str = "mcp.json", **options: Any) -> LoadedConfig:
    """Write a file and load it."""
    return load_config(write(folder, content, name), **options)


def one(folder: Path, entry: object, **options: Any) -> ServerConfig:
    """Load a file with one entry, called ``docs``, of which nothing may be wrong."""
    loaded = load(folder, {"mcpServers": {"docs": entry}}, **options)
    assert (loaded.errors, loaded.warnings) == ((), ())
    [server] = loaded.servers
    return server


def wrong(folder: Path, entry: object, **options: Any) -> str:
    """Load a file with one entry, called ``docs``, that is an error; return what is said after the name of the file."""
    loaded = load(folder, {"mcpServers": {"docs": entry}}, **options)
    assert loaded.servers == ()
    [error] = loaded.errors
    assert error.source == str(folder / "mcp.json")
    assert error.path is not None
    assert f"{error.source}: {error.path}: " in str(error)
    assert loaded.failed == {"docs": error}
    return str(error).removeprefix(f"{error.source}: ")


def warned(folder: Path, entry: object, **options: Any) -> tuple[ServerConfig, str]:
    """Load a file with one entry, called ``docs``, and one warning; return it without the name of the file."""
    loaded = load(folder, {"mcpServers": {"docs": entry}}, **options)
    assert loaded.errors == ()
    [server], [warning] = loaded.servers, loaded.warnings
    return server, warning.removeprefix(f"{folder / 'mcp.json'}: ")
