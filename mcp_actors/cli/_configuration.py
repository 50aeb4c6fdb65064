"""Which file a command reads, and which servers of it it is about."""

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
from ..config import Input, LoadedConfig, ServerConfig
from ..config.formats import load_servers, name_of
from ._output import Output
from ._problems import Misuse
from ._trust import make_sure

__all__ = ["load"]

PLACES: Final = (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")
"""Where a configuration is looked for if none is named, in this order."""


def load(file: str | None, names: Sequence[str], output: Output) -> LoadedConfig:
    """Load a configuration, or the one that is found. Who sits at a terminal is asked for the inputs of its servers.

    Args:
        file: its path; None: the first of `PLACES` that there is.
        names: the servers to load, as the file calls them or as they are called here; empty: all.
        output: where a file that is found is named.

    Returns:
        What was loaded, with the servers of these names only.

    Raises:
        ConfigError: the file cannot be read or understood.
        Misuse: there is no such server in it.
        Failure: a file was found that must not be run.
    """
    if file is None:
        found = find_file()
        make_sure(found, output, _reply)
        file = str(found)
    names = [_called(name) for name in names]
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
    servers = tuple(_wanted(known[name]) for name in dict.fromkeys(names) if name in known)
    return attrs.evolve(loaded, servers=servers, failed=failed, errors=tuple(failed.values()))


def find_file() -> Path:
    """Return the configuration of the current folder.

    Raises:
        ConfigError: there is none.
    """
    for place in PLACES:
        if Path(place).exists():
            return Path(place)
    raise ConfigError(f"there is no {', '.join(PLACES[:-1])} or {PLACES[-1]} here; name a file with --config FILE")


def _called(name: str) -> str:
    """Return what a server is called here, if it was named as its file has it."""
    try:
        return name_of("", "", name)
    except ConfigError:
        return name


def _wanted(server: ServerConfig) -> ServerConfig:
    """Return a server that was asked for by name, and so is wanted also if its entry says otherwise."""
    return attrs.evolve(server, enabled=True)


def _unknown(name: str, known: list[str], loaded: LoadedConfig) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its servers are: {', '.join(known) or 'none'}"
    return f"{loaded.source}: there is no server {name!r}; {hint}"


def _ask(question: Input) -> str | None:
    """Put a question to who sits at the terminal; an empty answer is none."""
    choices = f" ({', '.join(question.options)})" if question.options else ""
    # The file may have come with somebody else's project.
    prompt = plain_text(f"{question.description or question.id}{choices}") + ": "
    return _reply(prompt, hidden=question.password)


def _reply(prompt: str, *, hidden: bool = False) -> str | None:
    """Return the answer of who sits at the terminal; an empty one, and the end of the input, is none."""
    try:
        return _answer(prompt, hidden=hidden) or None
    except (EOFError, KeyboardInterrupt) as error:
        sys.stderr.write("\n")  # else what follows would stand behind the question
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
