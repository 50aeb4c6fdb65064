"""Find and load the configuration of a command."""

from __future__ import annotations

import difflib
import getpass
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from .._errors import ConfigError
from .._plain_text import plain_text
from ..config import Input, LoadedConfig
from ..config.formats import load_servers, name_of
from ._output import Output
from ._problems import Misuse
from ._trust import require_trust

__all__ = ["load"]

PLACES: Final = (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")
"""The files that are tried, in this order, if none is named."""


def load(file: str | None, names: Sequence[str], output: Output) -> LoadedConfig:
    """Load a configuration file. At a terminal, ask the user for the inputs of its servers.

    Args:
        file: its path; None loads the first of `PLACES` that exists.
        names: the servers to load, by their name in the file or their name here; if empty, all.
        output: prints the name of a file that was found.

    Returns:
        The configuration, with only the servers of these names.

    Raises:
        ConfigError: the file cannot be read or parsed.
        Misuse: the file has no such server.
        Failure: a file was found that must not be used.
    """
    if file is None:
        found = find_file()
        require_trust(found, output, _reply)
        file = str(found)
    names = [_name_here(name) for name in names]
    only = frozenset(names) if names else None
    loaded = load_servers(file, _ask if sys.stdin.isatty() else None, only)
    if loaded.source in loaded.failed:
        raise loaded.failed[loaded.source]
    if not names:
        return loaded
    known = {server.name: server for server in loaded.servers}
    for name in names:
        if name not in known and name not in loaded.failed:
            raise Misuse(_unknown(name, [*known, *loaded.failed], loaded))
    failed = {name: error for name, error in loaded.failed.items() if name in names}
    # A server that is named is wanted, also if its entry says `disabled`.
    servers = tuple(attrs.evolve(known[name], enabled=True) for name in dict.fromkeys(names) if name in known)
    return attrs.evolve(loaded, servers=servers, failed=failed, errors=tuple(failed.values()))


def find_file() -> Path:
    """Return the configuration of the current folder.

    Raises:
        ConfigError: no such file exists.
    """
    for place in PLACES:
        if Path(place).exists():
            return Path(place)
    raise ConfigError(f"no configuration file in this folder ({', '.join(PLACES)}); name one with --config FILE")


def _name_here(name: str) -> str:
    """Return the name that a server has here, given that or its name in the file."""
    try:
        return name_of("", "", name)
    except ConfigError:
        return name


def _unknown(name: str, known: list[str], loaded: LoadedConfig) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its servers are: {', '.join(known) or 'none'}"
    return f"{loaded.source}: there is no server {name!r}; {hint}"


def _ask(question: Input) -> str | None:
    """Ask the user at the terminal for an input; return None for an empty answer."""
    choices = f" ({', '.join(question.options)})" if question.options else ""
    # The file may have come with a foreign project, so its text must not act on the terminal.
    prompt = plain_text(f"{question.description or question.id}{choices}") + ": "
    return _reply(prompt, hidden=question.password)


def _reply(prompt: str, *, hidden: bool = False) -> str | None:
    """Return the user's answer; None if it is empty, or at the end of the input."""
    try:
        return _answer(prompt, hidden=hidden) or None
    except (EOFError, KeyboardInterrupt) as error:
        sys.stderr.write("\n")  # otherwise the next text would follow the question on its line
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def _answer(prompt: str, *, hidden: bool) -> str:
    if hidden:
        return getpass.getpass(prompt)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
