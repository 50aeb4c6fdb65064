"""Load the servers of a configuration file or mapping (`load_config`)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from ..._errors import ConfigError
from ..._misuse import explained
from .._loaded import LoadedConfig
from .._server import ServerConfig
from ..values import FROM_FILE
from ._env_file import read_env_file
from ._inputs import Ask, Inputs
from ._overrides import apply_overrides
from ._places import bad, child, found
from ._sections import OF_VS_CODE, find_sections, inputs_of, name_of, predefined, project_of
from .entry import SETTINGS, Surroundings, is_enabled, read_entry
from .file import (
    Content,
    check_numbers,
    check_size,
    decode,
    file_name,
    parse,
    permission_warnings,
    read_bytes,
    repeated_keys,
)

CONNECT_TIMEOUT: Final = "MCP_ACTORS_CONNECT_TIMEOUT"
"""The environment variable that overrides the connect timeout of every server, in seconds; 0 disables the limit."""


@explained
def load_config(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    ask: Ask | None = None,
    env_file: str | os.PathLike[str] | None = None,
    source: str = "a mapping",
) -> LoadedConfig:
    """Read the configuration of servers from a file as other programs write it, or from a mapping of that form.

    The supported formats are ``mcpServers`` (Claude, Cursor and most others), ``servers`` (VS Code, with comments and
    trailing commas), ``context_servers`` (Zed) and ``[mcp_servers.…]`` (Codex, in TOML). Settings of this package are
    in each entry under ``mcp_actors``. An invalid entry is an error in the result, and the others are loaded.

    Nothing is connected or started. ``${VAR}`` is kept, and expanded at each connect. Relative paths mean what they
    mean in the program that the file is for: the servers of a project (``.mcp.json``, ``.vscode/mcp.json`` …) are
    started in its folder, all others in the current directory.

    This function blocks while it reads the file. `open_servers` calls it in a thread.

    Args:
        config: the path of a file, in which ``~`` is expanded, or a mapping.
        ask: a function that gets each `Input` that an enabled server needs (``${input:id}``), once, and returns the
            answer as a str or `Secret`, or None. Default None: an input has its default, or is an error.
        env_file: a ``.env`` file with variables for ``${VAR}``, and for the names in ``env_from``. Variables that are
            set in the environment take precedence. None (default) reads no such file.
        source: names a mapping in errors and in ``ServerConfig.source``; a file has its path.

    Returns:
        The servers, errors and warnings.

    Raises:
        ConfigError: the file cannot be read, because it does not exist, is not a regular file, is too large, or its
            permissions forbid it; or `env_file` is not valid. (A configuration file with invalid content is an error
            in the result instead.)
    """
    return load_servers(config, ask, env_file=env_file, source=source)


def load_servers(
    config: str | os.PathLike[str] | Mapping[str, Any],
    ask: Ask | None,
    only: frozenset[str] | None = None,
    *,
    env_file: str | os.PathLike[str] | None = None,
    source: str = "a mapping",
    content: Content | None = None,
) -> LoadedConfig:
    """Do as `load_config` does; if `only` is given, ask for the inputs of these servers, not of the enabled ones.

    With the `content` of a file that was read already, the file is not read again.
    """
    if ask is not None and not callable(ask):
        raise ConfigError(f"load_config: ask is {found(ask)}; give a function (input) or None", source="load_config")
    variables = {} if env_file is None else read_env_file(env_file)
    if isinstance(config, Mapping):
        return _Loading(source, None, ask, only, variables).load(config)
    name = file_name(config, "load_config: config", "give the path of a file, or a mapping")
    data, status = read_bytes(name) if content is None else content
    loading = _Loading(name, name, ask, only, variables)
    loading.warnings += permission_warnings(name, status)
    text = decode(name, data)
    return loading.load(text if isinstance(text, ConfigError) else parse(name, text))


@attrs.frozen
class Entry:
    """One server as it is written, or the error that there is instead.

    Attributes:
        key: its name there.
        value: the entry, in the form of ``mcpServers``.
        source: the place of the whole, for messages: a file, a file and a line, or a table.
        section: the place of the entries around it.
        place: the place of the entry.
    """

    key: object
    value: object
    source: str
    section: str
    place: str


def load_entries(
    source: str, entries: Iterable[Entry] | ConfigError, *, file: str | None = None, warnings: Iterable[str] = ()
) -> LoadedConfig:
    """Make configurations of entries that were read from anything but JSON or TOML.

    Args:
        source: names the whole, for messages and for ``ServerConfig.source``.
        entries: the entries, or the error of the whole.
        file: the file that they are in, if they are in one.
        warnings: messages about the whole.
    """
    loading = _Loading(source, file, None)
    loading.warnings += warnings
    return loading.load_entries(entries)


@attrs.define
class _Loading:
    """The state of reading one configuration."""

    source: str
    file: str | None
    ask: Ask | None
    only: frozenset[str] | None = None
    variables: Mapping[str, str] = attrs.field(factory=dict)
    servers: dict[str, ServerConfig] = attrs.field(factory=dict)
    entries: dict[str, Entry] = attrs.field(factory=dict)
    twice: set[str] = attrs.field(factory=set)
    failed: dict[str, ConfigError] = attrs.field(factory=dict)
    required: set[str] = attrs.field(factory=set)
    warnings: list[str] = attrs.field(factory=list)

    @property
    def origin(self) -> str:
        return self.source if self.file is None else os.path.abspath(self.file)

    def load(self, document: Mapping[str, Any] | ConfigError) -> LoadedConfig:
        """Read a document, or report the error that there is instead of one."""
        with self._whole():
            if isinstance(document, ConfigError):
                raise document
            sections = find_sections(self.source, document)
            for path, section in (*sections, ("inputs", inputs_of(document))):
                check_size(self.source, path, section)
            around = self._surroundings(document)
            for path, section in sections:
                self._load_section(path, section, attrs.evolve(around, of_vs_code=path in OF_VS_CODE))
        return self._loaded()

    def load_entries(self, entries: Iterable[Entry] | ConfigError) -> LoadedConfig:
        """Read entries, or report the error that there is instead of them."""
        with self._whole():
            if isinstance(entries, ConfigError):
                raise entries
            entries = tuple(entries)
            check_size(self.source, "", {index: entry.value for index, entry in enumerate(entries)})
            around = self._surroundings({})
            for entry in entries:
                self._load_entry(entry, attrs.evolve(around, source=entry.source, warn=self._warner(entry.source)))
        return self._loaded()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self.servers, self.failed = {}, {self.origin: _detached(error)}

    def _loaded(self) -> LoadedConfig:
        return LoadedConfig(
            tuple(self.servers.values()),
            tuple(self.failed.values()),
            tuple(self.warnings),
            source=self.origin,
            failed=self.failed,
            required=frozenset(self.required & self.failed.keys()),
        )

    def _surroundings(self, document: Mapping[str, Any]) -> Surroundings:
        return Surroundings(
            self.source,
            self.origin,
            predefined(self.file)
            | {f"{FROM_FILE}{name}": value for name, value in self.variables.items() if name not in os.environ},
            Inputs(inputs_of(document), self.ask),
            self._warner(self.source),
            project_of(self.file),
            self.only,
            dict(self._connect_timeout()),
        )

    def _warner(self, source: str) -> Callable[[str, str], None]:
        return lambda path, problem: self.warnings.append(f"{source}: {path}: {problem}")

    def _connect_timeout(self) -> Iterator[tuple[str, float | None]]:
        """Yield the connect timeout that the environment sets for every server, if any."""
        text = os.environ.get(CONNECT_TIMEOUT)
        if not text:
            return
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if 0 <= seconds < math.inf:
            yield "connect_timeout", seconds or None
        else:
            problem = "this is not a number of seconds, so it is ignored; set a number, or 0 to disable the limit"
            self.warnings.append(f"environment variable {CONNECT_TIMEOUT}: {problem}")

    def _load_section(self, path: str, section: Mapping[str, Any], around: Surroundings) -> None:
        twice = repeated_keys(section)
        for key, value in section.items():
            place = child(path, key)
            problem = "two servers have this name; rename one of them"
            entry = bad(self.source, place, problem) if key in twice else value
            self._load_entry(Entry(key, entry, self.source, path, place), around)

    def _load_entry(self, entry: Entry, around: Surroundings) -> None:
        key, value, source, place = entry.key, entry.value, entry.source, entry.place
        name, variables = place, tuple[str, ...]()
        try:
            name = name_of(source, entry.section, key)
            self._check_free(name, entry)
            if isinstance(value, ConfigError):
                raise value
            if name != key:
                around.warn(
                    place,
                    f"this server is renamed to {name!r}; a name may have only the characters A-Z a-z 0-9 _ . -",
                )
            check_numbers(source, place, value)
            value, variables = apply_overrides(name, value, os.environ)
            self.servers[name] = read_entry(name, value, place, around)
        except ConfigError as error:
            self._note_failure(name, value, _with_variables(error, variables))

    def _check_free(self, name: str, entry: Entry) -> None:
        """Check that a name is not used yet. If it is even written the same, neither is used: which one was meant?"""
        first = self.entries.setdefault(name, entry)
        if first is entry:
            return
        if (first.section, first.key) == (entry.section, entry.key) and self.servers.pop(name, None) is not None:
            self.twice.add(name)
        called = first.place if first.place != entry.place else first.source  # a line, if the places are equal
        raise bad(entry.source, entry.place, f"{called} is called {name!r} too; rename one of them")

    def _note_failure(self, name: str, entry: object, error: ConfigError) -> None:
        """Keep an error; for a disabled server it is only a warning."""
        named = name in self.twice or (self.only is not None and name in self.only)
        if not named and isinstance(entry, Mapping) and not _may_be_enabled(entry):
            self.warnings.append(f"{error} (the server is disabled)")
            return
        if isinstance(entry, Mapping) and _is_required(entry):
            self.required.add(name)
        while name in self.failed:
            name += "'"
        self.failed[name] = _detached(error)


def _with_variables(error: ConfigError, variables: tuple[str, ...]) -> ConfigError:
    """Return the error of an entry that the environment has changed, with the names of these variables."""
    if not variables:
        return error
    message = f"{error} (the entry includes values of {', '.join(variables)})"
    return ConfigError(message, source=error.source, path=error.path)


def _detached(error: ConfigError) -> ConfigError:
    # The error outlives the loading. Its context and traceback refer to frames that hold everything that was read,
    # credentials included, and would keep all of it alive and within reach of whatever logs the error.
    error.__context__ = None
    return error.with_traceback(None)


def _may_be_enabled(entry: Mapping[str, Any]) -> bool:
    try:
        return is_enabled(entry, "", "")
    except ConfigError:
        return True


def _is_required(entry: Mapping[str, Any]) -> bool:
    settings = entry.get(SETTINGS)
    return entry.get("required") is True or (isinstance(settings, Mapping) and settings.get("required") is True)
