"""Find the servers in a document, and their names and project folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ._places import bad, child, did_you_mean, found, repeated, shown_key
from .file import repeated_keys

SECTIONS: Final[Mapping[str, str]] = {
    "mcpServers": "Claude, Cursor and others",
    "servers": "VS Code",
    "context_servers": "Zed",
    "mcp_servers": "Codex",
}
"""Top-level key → the programs that write it."""

_LIKE_ENTRIES: Final = ("command", "url", "httpUrl", "serverUrl")
OF_VS_CODE: Final = ("servers", "mcp.servers")
"""The places of sections that VS Code writes, where ``~`` is expanded in arguments too."""

_EDITOR_FOLDERS: Final = (".vscode", ".cursor", ".vs", ".claude", ".gemini", ".codex")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME: Final = 64
_LOOKED_AT: Final = 100  # keys of a document that are searched for a misspelling


def find_sections(source: str, document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the parts of a document that map names to entries, each with its place.

    Raises:
        ConfigError: there is no such part, or one is not an object or appears twice.
    """
    if twice := [key for key in repeated_keys(document) if key in SECTIONS]:
        raise repeated(source, "", tuple(twice))
    within = document.get("mcp")
    if isinstance(within, Mapping) and isinstance(within.get("servers"), Mapping):
        return [("mcp.servers", within["servers"])]  # VS Code's settings.json
    given = [(key, document[key]) for key in SECTIONS if key in document]
    if not given and document and all(map(_looks_like_entry, document.values())):
        return [("", document)]
    if not given:
        raise bad(source, "", _nothing_found(document))
    for key, section in given:
        if section is not None and not isinstance(section, Mapping):
            raise bad(source, key, f'found {found(section)}; write an object: {{"name": {{"command": …}}}}')
    return [(key, section) for key, section in given if section is not None]


def inputs_of(document: Mapping[str, Any]) -> object:
    """Return the definitions of the inputs that a document asks for."""
    within = document.get("mcp")
    return document["inputs"] if "inputs" in document else within.get("inputs") if isinstance(within, Mapping) else None


def _looks_like_entry(value: object) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in _LIKE_ENTRIES)


def _nothing_found(document: Mapping[str, Any]) -> str:
    first = list(islice(document, _LOOKED_AT))
    near = next(filter(None, (did_you_mean(key, SECTIONS) for key in first)), "")
    expected = ", ".join(f"{key!r} ({who})" for key, who in SECTIONS.items())
    keys = ", ".join(shown_key(key) for key in first[:4]) or "none"
    return f"no servers found; expected one of the keys {expected}, found {keys}{near}"


def name_of(source: str, path: str, key: object) -> str:
    """Return the name of a server: its key, with invalid characters replaced by ``_``.

    Raises:
        ConfigError: the key is not a str, or no valid name remains.
    """
    if not isinstance(key, str):
        raise bad(source, path, f"the name of a server is {shown_key(key)}; write a string")
    name = _NOT_IN_NAMES.sub("_", key).strip("_") if _NOT_IN_NAMES.search(key) else key
    if not name or len(name) > _LONGEST_NAME:
        problem = "is empty" if not key else "is too long" if name else "has no character that a name may have"
        allowed = f"use 1 to {_LONGEST_NAME} of the characters A-Z a-z 0-9 _ . -"
        raise bad(source, child(path, key), f"the name of this server {problem}; {allowed}")
    return name


def project_of(file: str | None) -> str | None:
    """Return the folder of the project that a file belongs to, in which its servers are started.

    Return None for any other file: a file in the home folder is for all projects.
    """
    if file is None:
        return None
    path, workspace = Path(os.path.abspath(file)), _workspace(file)
    in_project = path.name == ".mcp.json" or path.parent.name in _EDITOR_FOLDERS
    return str(workspace) if in_project and workspace != Path(os.path.expanduser("~")) else None


def _workspace(file: str) -> Path:
    folder = Path(os.path.abspath(file)).parent
    return folder.parent if folder.name in _EDITOR_FOLDERS else folder


def predefined(file: str | None) -> dict[str, str]:
    """Return the variables that editors define for their files and that mean something without the editor."""
    workspace = _workspace(file) if file is not None else Path.cwd()
    return {
        "workspaceFolder": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "userHome": os.path.expanduser("~"),
        "pathSeparator": os.sep,
        "/": os.sep,
    }
