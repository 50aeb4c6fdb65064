"""Find servers in the files of other MCP clients.

A file seldom names its client (a `Program`), so the program is recognized by the file's folder, name and keys.

Owns: nothing.
Writes: the caller's list of warnings.
Calls: _file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Container, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs

from ..._errors import ConfigError
from ._file import JsonObject, bad, child, did_you_mean, found, repeated, repeated_keys, shown_key

# --- The table of programs --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Program:
    """An MCP client, and how to read its configuration file.

    Attributes:
        section: the key of the servers.
        folder: the program's folder in a project, with the file inside or one level deeper; empty if none.
        files: file names at the top of a project, separated by spaces.
        variable: the program's notation of an environment variable; ``${NAME}`` is always read.
        timeout: the unit of ``timeout``, ``"s"`` or ``"ms"``; empty if unknown.
        is_shell: whether the program runs ``$(…)`` in arguments.
    """

    name: str
    section: str = "mcpServers"
    folder: str = ""
    files: str = ""
    variable: str = "${NAME}"
    timeout: str = ""
    is_shell: bool = False

    def translated(self, value: Any, key: str) -> Any:
        """Return a value with this program's variables in our notation."""
        pattern = _OWN.get(self.variable)
        if pattern is None:
            return value
        if isinstance(value, str):
            # In a shell's command line, a variable that is not set here stays: the shell may set it.
            unset = r":-$\g<name>" if key == "args" and " " in value and self.variable == "$NAME" else ""
            return pattern.sub(rf"${{\g<name>{unset}}}", value)
        if isinstance(value, Mapping):
            same = JsonObject((name, self.translated(each, key)) for name, each in value.items())
            same.repeated = repeated_keys(value)
            return same
        return [self.translated(each, key) for each in value] if isinstance(value, (list, tuple)) else value


# The page about configuration files shows the same table.
PROGRAMS: Final = (
    Program(name="Claude Code", folder=".claude", files=".mcp.json", timeout="ms"),
    Program(name="Cursor", folder=".cursor", variable="${env:NAME}"),
    Program(name="VS Code", section="servers", folder=".vscode", variable="${env:NAME}"),
    Program(name="Visual Studio", section="servers", folder=".vs", variable="${env:NAME}"),
    Program(name="Zed", section="context_servers", folder=".zed"),
    Program(name="Codex", section="mcp_servers", folder=".codex"),
    Program(name="Gemini CLI", folder=".gemini", files="gemini-extension.json", variable="$NAME", timeout="ms"),
    Program(name="Qwen Code", folder=".qwen", files="qwen-extension.json", variable="$NAME", timeout="ms"),
    Program(name="opencode", section="mcp", files="opencode.json opencode.jsonc", variable="{env:NAME}", timeout="ms"),
    Program(name="Crush", section="mcp", files="crush.json .crush.json", variable="$NAME", timeout="s", is_shell=True),
    Program(name="Roo Code", folder=".roo", variable="${env:NAME}", timeout="s"),
    Program(name="Windsurf", folder=".windsurf", variable="${env:NAME}"),
    Program(name="Amazon Q", folder=".amazonq", timeout="ms"),
    Program(name="Kiro", folder=".kiro"),
    Program(name="Junie", folder=".junie"),
    Program(name="Factory", folder=".factory"),
    Program(name="several", folder=".agents"),
)

ANY: Final = Program(name="another program")

_OWN: Final[Mapping[str, re.Pattern[str]]] = {
    "$NAME": re.compile(r"(?<!\$)\$(?P<name>[A-Za-z_]\w*)", re.ASCII),
    "{env:NAME}": re.compile(r"(?<!\$)\{env:(?P<name>[A-Za-z_]\w*)\}", re.ASCII),
}
"""Notation of a variable → pattern. Other notations of `PROGRAMS` are valid here too."""

FOREIGN: Final = re.compile(
    r"(?<![\w$])\$(?:env:)?[A-Z_][A-Z0-9_]*(?!\w)|%[A-Z_][A-Z0-9_]{2,}%|(?<!\$)\{(?:env|file):[^}]*\}|\{\{[\s\w.-]+\}\}",
    re.ASCII,
)
"""A likely variable in another notation."""

SUBSTITUTION: Final = re.compile(r"\$\([^)]*\)")
"""A command of a shell, which some programs replace by its output."""


def program_of(file: str | None, section: str, entries: Mapping[str, Any]) -> Program:
    if section == "mcp":
        name = "opencode" if {"local", "remote"} & _types_in(entries) else "Crush"
        return next(each for each in PROGRAMS if each.name == name)
    path = Path(os.path.abspath("/" if file is None else file))
    folder = _folder_of(path)
    own = folder.name if folder is not None else None
    return next((each for each in PROGRAMS if each.folder == own or path.name in each.files.split()), ANY)


# --- Sections and names -----------------------------------------------------------------------------------------------


SECTION_WRITERS: Final[Mapping[str, str]] = {
    "mcpServers": "Claude, Cursor and others",
    "servers": "VS Code",
    "context_servers": "Zed",
    "mcp_servers": "Codex",
    "mcp": "opencode and Crush, where an entry has a 'type'",
}
"""Top-level key → programs that write it."""

OF_VS_CODE: Final = ("servers", "mcp.servers")
"""Sections written by VS Code, which expands ``~`` in arguments too."""

OF_CLAUDE: Final = ".claude.json"
"""Claude Code's file with a person's servers, and those for single folders below ``projects``."""

_COMMENT_KEY: Final = re.compile(r"//|#|\$(?:comment|schema)$|_+comment", re.IGNORECASE)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME: Final = 64


def find_sections(source: str, document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the parts of a document that map names to entries, with their places.

    In a ``.claude.json``, the current directory's servers come first.

    Raises:
        ConfigError: no section, or a section that is not an object or appears twice.
    """
    if twice := [key for key in repeated_keys(document) if key in SECTION_WRITERS]:
        raise repeated(source, "", tuple(twice))
    within = document.get("mcp")
    given = [
        (key, document[key]) for key in SECTION_WRITERS if key in document and (key != "mcp" or _has_servers(within))
    ]
    if isinstance(within, Mapping) and isinstance(within.get("servers"), Mapping | list):
        given = [("mcp.servers", within["servers"])]  # VS Code's settings.json
    of_claude = os.path.basename(source) == OF_CLAUDE
    if of_claude and (servers := _project(document).get("mcpServers")):
        given = [(f"{child('projects', os.getcwd())}.mcpServers", servers), *given]
    entries = {key: value for key, value in document.items() if not is_comment(key)}
    if not given and entries and all(map(looks_like_entry, entries.values())):
        return [("", document)]
    if not given and not of_claude:
        raise _nothing_found(source, document)
    for key, section in given:
        if section is not None and not isinstance(section, Mapping):
            raise bad(source, key, f'found {found(section)}; write an object: {{"name": {{"command": …}}}}')
    return [(key, section) for key, section in given if section is not None]


def _project(document: Mapping[str, Any]) -> Mapping[str, Any]:
    projects = document.get("projects")
    project = projects.get(os.getcwd()) if isinstance(projects, Mapping) else None
    return project if isinstance(project, Mapping) else {}


_OF_GEMINI: Final = ("mcp.allowed", "mcp.excluded")


def switched_off(
    source: str,
    document: Mapping[str, Any],
    servers: Collection[object],
    warn: Callable[[str, str], None] | None = None,
) -> dict[object, str]:
    """Return servers switched off by a list of Gemini CLI or Claude Code, each with the place of the list.

    With `warn`, warn of unknown names in the lists of Gemini CLI, and if no server is left. A value that is not a list
    is refused: it could mean any server.
    """
    within, project = document.get("mcp"), _project(document)
    lists = {} if not isinstance(within, Mapping) or _types_in(within) else within
    names = {
        "mcp.allowed": lists.get("allowed"),
        "mcp.excluded": lists.get("excluded"),
        f"{child('projects', os.getcwd())}.disabledMcpServers": project.get("disabledMcpServers"),
    }
    for path, listed in names.items():
        if listed is not None and not isinstance(listed, list):
            raise bad(source, path, f'found {found(listed)}; write a list of servers: ["name"]')
        if listed and warn is not None and path in _OF_GEMINI:
            for name in (each for each in listed if each not in servers):
                warn(path, f"{shown_key(name)} is not a server of this file{did_you_mean(name, map(str, servers))}")
    off: dict[object, str] = {}
    for path, listed in names.items():
        wanted = listed or ()
        if path == "mcp.allowed":
            wanted = [] if listed is None else [each for each in servers if each not in listed]
        off |= dict.fromkeys((each for each in wanted if isinstance(each, str)), path)
    if warn is not None and servers and off.keys() >= {*servers} and {*off.values()} <= {*_OF_GEMINI}:
        warn(" and ".join({*off.values()}), "this disables every server of the file; change it to use one of them")
    return off


def _has_servers(within: object) -> bool:
    return isinstance(within, list) or (isinstance(within, Mapping) and (not within or bool(_types_in(within))))


def _types_in(section: Mapping[str, Any]) -> set[object]:
    types = (each.get("type") for each in section.values() if isinstance(each, Mapping))
    return {each for each in types if isinstance(each, str)}


def inputs_of(document: Mapping[str, Any]) -> object:
    within = document.get("mcp")
    return document["inputs"] if "inputs" in document else within.get("inputs") if isinstance(within, Mapping) else None


def looks_like_entry(value: object) -> bool:
    """Return whether a value says how a server is reached."""
    return isinstance(value, Mapping) and any(key in value for key in ("command", "url", "httpUrl", "serverUrl"))


def is_comment(key: object) -> bool:
    return isinstance(key, str) and _COMMENT_KEY.match(key) is not None


def _nothing_found(source: str, document: Mapping[str, Any]) -> ConfigError:
    for key, within in islice(document.items(), 100):
        for name, each in islice(within.items() if isinstance(within, Mapping) else (), 100):
            if name in SECTION_WRITERS and isinstance(each, Mapping):
                return bad(source, child(key, name), f"this is one level too deep; move {name!r} to the top level")
            if looks_like_entry(each):
                written = "[mcp_servers.NAME]" if source.endswith(".toml") else '"mcpServers": {"NAME": {…}}'
                problem = f"{shown_key(key)} is not a key for servers; write {written}"
                if key == "mcp":
                    problem = '\'type\' is missing; add "type": "local" for a command, or "type": "remote" for a URL'
                return bad(source, child(key, name), problem)
    first = list(islice(document, 100))
    near = next(filter(None, (did_you_mean(key, SECTION_WRITERS) for key in first if key not in SECTION_WRITERS)), "")
    expected = ", ".join(f"{key!r} ({who})" for key, who in SECTION_WRITERS.items())
    keys = ", ".join(shown_key(key) for key in first[:4]) or "none"
    return bad(source, "", f"no servers found; expected one of the keys {expected}, found {keys}{near}")


def name_of(source: str, path: str, key: object, taken: Container[object] = ()) -> str:
    """Return the name of a server: the key, with invalid characters replaced by ``_``.

    A hash is added if letters of another script are lost, or if the name is the key of another server. Refuse a key
    that is not a str, or leaves no valid name.
    """
    if not isinstance(key, str):
        raise bad(source, path, f"the name of a server is {shown_key(key)}; write a string")
    name = _NOT_IN_NAMES.sub("_", key).strip("_") if _NOT_IN_NAMES.search(key) else key
    if (name != key and name in taken) or any(each.isalnum() and not each.isascii() for each in key):
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:8]
        return f"{name[: _LONGEST_NAME - 1 - len(digest)] or 'server'}-{digest}"
    if not name or len(name) > _LONGEST_NAME:
        problem = "is empty" if not key else "is too long" if name else "has no character that a name may have"
        allowed = f"use 1 to {_LONGEST_NAME} of the characters A-Z a-z 0-9 _ . -"
        raise bad(source, child(path, key), f"the name of this server {problem}; {allowed}")
    return name


# --- The project of a file --------------------------------------------------------------------------------------------


_FOLDERS: Final = frozenset(each.folder for each in PROGRAMS) - {""}
_IN_PROJECTS: Final = frozenset(name for each in PROGRAMS for name in each.files.split())
_OF_PROJECTS: Final = (".git", "pyproject.toml", "package.json")
"""Found only in the folder of a project."""


def project_of(file: str | None) -> str | None:
    """Return the folder of a file's project, to start servers in; None for a file of all projects."""
    if file is None:
        return None
    path, workspace = Path(os.path.abspath(file)), _workspace(file)
    in_project = _folder_of(path) is not None or (path.name in _IN_PROJECTS and ".config" not in path.parts)
    return str(workspace) if in_project and workspace != Path(os.path.expanduser("~")) else None


def _workspace(file: str) -> Path:
    path = Path(os.path.abspath(file))
    return (_folder_of(path) or path).parent


def _folder_of(path: Path) -> Path | None:
    """Return the folder of a program with the file inside or one level deeper, or None."""
    for folder in path.parents[:2]:
        in_project = folder.name.startswith(".") and any(os.path.lexists(folder.parent / name) for name in _OF_PROJECTS)
        if in_project or folder.name in _FOLDERS:
            return folder
    return None


def predefined(file: str | None) -> dict[str, str]:
    """Return the variables of editors that also mean something without the editor."""
    workspace = _workspace(file) if file is not None else Path.cwd()
    return {
        **dict.fromkeys(("workspaceFolder", "extensionPath", "CLAUDE_PLUGIN_ROOT"), str(workspace)),
        "workspaceFolderBasename": workspace.name,
        "userHome": os.path.expanduser("~"),
        "pathSeparator": os.sep,
        "/": os.sep,
    }
