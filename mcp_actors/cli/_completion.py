"""Complete a word in a shell: server name or configuration file.

The shell runs this code at each press of the tab key, perhaps in an untrusted folder. So nothing is started, written or
logged. An unreadable file counts as empty.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

DEFAULT_FILES: Final = (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")
"""The files to try, in order, if the user names no file."""

_SECTIONS: Final = ("mcpServers", "servers", "context_servers", "mcp_servers")
_LONGEST_FILE: Final = 1024 * 1024  # bytes
_COMMENT_OR_STRING: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def servers_for(context: CompletionContext) -> list[str]:
    """Return the names of the servers in the command's configuration file."""
    named = context["--config"].raw
    with suppress(OSError, ValueError, RecursionError, RuntimeError, StopIteration):
        # Like the command, use only the first file that exists.
        file = Path(named).expanduser() if named else next(filter(Path.exists, map(Path, DEFAULT_FILES)))
        if file.is_file() and file.stat().st_size <= _LONGEST_FILE:
            return _names(_parsed(file))
    return []


def _parsed(file: Path) -> Any:
    text = file.read_text("utf-8-sig")
    if file.suffix == ".toml":
        return tomllib.loads(text)
    return json.loads(_LAST_COMMA.sub(r"\1", _COMMENT_OR_STRING.sub(r"\1", text)))


def _names(document: Any) -> list[str]:
    document = document if isinstance(document, Mapping) else {}
    parts = [document.get(key) for key in _SECTIONS]
    if isinstance(within := document.get("mcp"), Mapping):
        typed = {name: each for name, each in within.items() if isinstance(each, Mapping) and "type" in each}
        parts += [within.get("servers"), typed]
    return [name for part in parts if isinstance(part, Mapping) for name in part if name.isprintable()]


def files_for(context: CompletionContext) -> list[str]:
    """Return folders and possible configuration files whose paths begin with the incomplete word."""
    folder, slash, begin = context.incomplete.rpartition("/")
    place = Path(f"{folder}{slash}").expanduser()
    with suppress(OSError, RuntimeError):
        found = sorted(each for each in place.iterdir() if each.name.startswith(begin))
        names = (f"{each.name}/" if each.is_dir() else each.name for each in found)
        return [f"{folder}{slash}{name}" for name in names if name.endswith(("/", ".json", ".toml", ".jsonc"))]
    return []
