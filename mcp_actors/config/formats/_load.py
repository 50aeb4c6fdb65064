"""Load the servers of a configuration file or mapping (`load_config`)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from ..._errors import ConfigError
from .._server import ServerConfig
from ._inputs import Ask, Inputs
from ._places import bad, child, found
from ._sections import OF_VS_CODE, find_sections, inputs_of, name_of, predefined, project_of
from .entry import SETTINGS, Surroundings, is_enabled, read_entry
from .file import check_numbers, check_size, decode, file_name, parse, permission_warnings, read_bytes, repeated_keys

CONNECT_TIMEOUT: Final = "MCP_ACTORS_CONNECT_TIMEOUT"
"""The environment variable that overrides the connect timeout of every server, in seconds; 0 disables the limit."""


def _frozen(failed: Mapping[str, ConfigError]) -> Mapping[str, ConfigError]:
    return MappingProxyType(dict(failed))


@attrs.frozen
class LoadedConfig:
    """The content of a configuration: the valid servers, and an error for each of the others.

    Attributes:
        servers: the servers in the order of the file, including disabled ones.
        errors: one `ConfigError` for each invalid entry, in the order of the file; or a single one for the whole file,
            which has no servers then.
        warnings: messages about keys without effect, and about risks.
        source: the absolute path of the file, or ``"a mapping"``.
        failed: the same errors by the name of the server, or by `source` for the whole file.
        required: the names in `failed` whose entries say that the server is required for the start of a group.
    """

    servers: tuple[ServerConfig, ...]
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str = attrs.field(default="a mapping", kw_only=True)
    failed: Mapping[str, ConfigError] = attrs.field(factory=dict, converter=_frozen, kw_only=True, repr=False)
    required: frozenset[str] = attrs.field(default=frozenset(), kw_only=True, repr=False)


def load_config(config: str | os.PathLike[str] | Mapping[str, Any], *, ask: Ask | None = None) -> LoadedConfig:
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

    Returns:
        The servers, errors and warnings.

    Raises:
        ConfigError: the file cannot be read, because it does not exist, is not a regular file, is too large, or its
            permissions forbid it. (A file with invalid content is an error in the result instead.)
    """
    return load_servers(config, ask)


def load_servers(
    config: str | os.PathLike[str] | Mapping[str, Any], ask: Ask | None, only: frozenset[str] | None = None
) -> LoadedConfig:
    """Do as `load_config` does; if `only` is given, ask for the inputs of these servers, not of the enabled ones."""
    if ask is not None and not callable(ask):
        raise ConfigError(f"load_config: ask is {found(ask)}; give a function (input) or None", source="load_config")
    if isinstance(config, Mapping):
        return _Loading("a mapping", None, ask, only).load(config)
    name = file_name(config)
    data, status = read_bytes(name)
    loading = _Loading(name, name, ask, only)
    loading.warnings += permission_warnings(name, status)
    text = decode(name, data)
    return loading.load(text if isinstance(text, ConfigError) else parse(name, text))


@attrs.define
class _Loading:
    """The state of reading one configuration."""

    source: str
    file: str | None
    ask: Ask | None
    only: frozenset[str] | None = None
    servers: dict[str, ServerConfig] = attrs.field(factory=dict)
    keys: dict[str, str] = attrs.field(factory=dict)
    failed: dict[str, ConfigError] = attrs.field(factory=dict)
    required: set[str] = attrs.field(factory=set)
    warnings: list[str] = attrs.field(factory=list)

    @property
    def origin(self) -> str:
        return self.source if self.file is None else os.path.abspath(self.file)

    def load(self, document: Mapping[str, Any] | ConfigError) -> LoadedConfig:
        """Read a document, or report the error that there is instead of one."""
        try:
            if isinstance(document, ConfigError):
                raise document
            sections = find_sections(self.source, document)
            for path, section in (*sections, ("inputs", inputs_of(document))):
                check_size(self.source, path, section)
            around = self._surroundings(document)
            for path, section in sections:
                self._load_section(path, section, attrs.evolve(around, of_vs_code=path in OF_VS_CODE))
        except ConfigError as error:
            self.servers, self.failed = {}, {self.origin: _detached(error)}
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
            predefined(self.file),
            Inputs(inputs_of(document), self.ask),
            lambda path, problem: self.warnings.append(f"{self.source}: {path}: {problem}"),
            project_of(self.file),
            self.only,
            dict(self._connect_timeout()),
        )

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
        for key, entry in section.items():
            place = child(path, key)
            name = place
            try:
                name = name_of(self.source, path, key)
                self._check_free(name, key, place)
                if key in twice:
                    raise bad(self.source, place, "two servers have this name; rename one of them")
                if name != key:
                    around.warn(
                        place,
                        f"this server is renamed to {name!r}; a name may have only the characters A-Z a-z 0-9 _ . -",
                    )
                check_numbers(self.source, place, entry)
                self.servers[name] = read_entry(name, entry, place, around)
            except ConfigError as error:
                self._note_failure(name, entry, error)

    def _check_free(self, name: str, key: str, place: str) -> None:
        if name in self.keys:
            raise bad(self.source, place, f"{self.keys[name]} is called {name!r} too; rename one of them")
        self.keys[name] = place

    def _note_failure(self, name: str, entry: object, error: ConfigError) -> None:
        """Keep an error; for a disabled server it is only a warning."""
        named = self.only is not None and name in self.only
        if not named and isinstance(entry, Mapping) and not _may_be_enabled(entry):
            self.warnings.append(f"{error} (the server is disabled)")
            return
        if isinstance(entry, Mapping) and _is_required(entry):
            self.required.add(name)
        while name in self.failed:
            name += "'"
        self.failed[name] = _detached(error)


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
