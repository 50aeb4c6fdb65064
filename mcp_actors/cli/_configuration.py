"""Find and load the configuration of a command."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Final

import attrs

from .._errors import ConfigError
from .._text import plain_text
from ..config import Ask, Input, LoadedConfig, Rank, check_overrides
from ..config._sources import stamp_of
from ..config.formats import Content, load_servers, name_of, read_bytes
from ._output import Output
from ._problems import unknown
from ._trust import require_trust

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
    file, content = _chosen(file, output)
    return _load(file, names, _ask_for_input if sys.stdin.isatty() else None, content)


class FollowedFile:
    """The configuration of a command that goes on while the file changes, as a source of `open_servers`.

    A change of a file that was found, and not named, is not used: that content was never accepted by the user, and it
    decides which programs run.

    Args:
        file: as for `load`.
        names: as for `load`.
        output: as for `load`.

    Raises:
        ConfigError: as for `load`.
        Misuse: as for `load`.
        Failure: as for `load`.
    """

    interval = 1.0
    settles = True

    def __init__(self, file: str | None, names: Sequence[str], output: Output) -> None:
        self._file, content = _chosen(file, output)
        self._names = names
        self._answers: dict[str, str | None] = {}
        self._asks = sys.stdin.isatty()
        # Variables that override values of other servers in the file would be errors if only some are loaded.
        self.rank = Rank.CODE if names else Rank.FILE
        self._accepted = None if content is None else content[0]
        self.loaded = _load(self._file, names, self._answer, content)
        self._asks = False

    @property
    def name(self) -> str:
        """The absolute path."""
        return self.loaded.source

    def look(self) -> Hashable:
        """Return the identity, size and time of the file; None if it does not exist."""
        return stamp_of(self._file)

    def read(self) -> tuple[LoadedConfig, ...]:
        """Load the file again, with the answers that the user has given.

        Raises:
            ConfigError: the file cannot be read, or its new content was not accepted.
        """
        content = read_bytes(self._file)
        if self._accepted is not None and content[0] != self._accepted:
            problem = "the file has changed; run this command again to review and use it"
            raise ConfigError(f"{self._file}: {problem}", source=self._file)
        loaded = load_servers(self._file, self._answer, _only(self._names), content=content)
        return (_selected(loaded, self._names),)

    def _answer(self, question: Input) -> str | None:
        if self._asks:
            self._answers[question.id] = _ask_for_input(question)
        return self._answers.get(question.id)


def _chosen(file: str | None, output: Output) -> tuple[str, Content | None]:
    """Return the file of a command and, if it was found and not named, the content that the user has accepted."""
    if file is not None:
        return file, None
    found = find_file()
    return str(found), require_trust(found, output)


def _load(file: str, names: Sequence[str], ask: Ask | None, content: Content | None) -> LoadedConfig:
    loaded = load_servers(file, ask, _only(names), content=content)
    if loaded.source in loaded.failed:
        raise loaded.failed[loaded.source]
    loaded = _with_overrides(loaded)
    known = [server.name for server in loaded.servers]
    for name in map(_name_here, names):
        if name not in known and name not in loaded.failed:
            problem = f"{loaded.source}: there is no server {name!r}"
            raise unknown(problem, name, [*known, *loaded.failed], "servers")
    return _selected(loaded, names)


def _with_overrides(loaded: LoadedConfig) -> LoadedConfig:
    """Add the error of each environment variable that overrides a value of no server, or of several, as groups do."""
    variables = check_overrides([*(server.name for server in loaded.servers), *loaded.failed], os.environ)
    failed = {**loaded.failed, **variables}
    servers = tuple(server for server in loaded.servers if server.name not in variables)
    return attrs.evolve(loaded, servers=servers, failed=failed, errors=tuple(dict.fromkeys(failed.values())))


def _only(names: Sequence[str]) -> frozenset[str] | None:
    return frozenset(map(_name_here, names)) if names else None


def _selected(loaded: LoadedConfig, names: Sequence[str]) -> LoadedConfig:
    """Return the servers of these names, or all."""
    if not names:
        return loaded
    wanted = dict.fromkeys(map(_name_here, names))
    known = {server.name: server for server in loaded.servers}
    failed = {name: error for name, error in loaded.failed.items() if name in wanted or name == loaded.source}
    # A server that is named is wanted, also if its entry says `disabled`.
    servers = tuple(attrs.evolve(known[name], enabled=True) for name in wanted if name in known)
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


def _ask_for_input(question: Input) -> str | None:
    """Ask the user at the terminal for an input; return None for an empty answer."""
    choices = f" ({', '.join(question.options)})" if question.options else ""
    # The file may have come with a foreign project, so its text must not act on the terminal.
    prompt = plain_text(f"{question.description or question.id}{choices}") + ": "
    return _typed(prompt, hidden=question.password)


def _typed(prompt: str, *, hidden: bool = False) -> str | None:
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
