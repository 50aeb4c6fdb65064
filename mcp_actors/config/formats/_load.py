"""Load servers from a configuration file or a mapping (`load_config`).

One bad entry must not spoil the others: `LoadedConfig.failed` has the error. `load_config` blocks the thread, and may
ask a person for inputs. Environment variables (``MCP_ACTORS_…``) override fields of entries.

Owns: nothing.
Writes: the caller's list of warnings.
Calls: config, _entry, _file, _inputs, _keys, _programs.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from ..._errors import ConfigError
from ..._misuse import explained, is_function
from .._server import LoadedConfig, ServerConfig
from .._transports import Stdio
from .._values import FROM_FILE
from ._entry import is_enabled, read_entry
from ._file import (
    Content,
    bad,
    check_numbers,
    check_size,
    child,
    decode,
    did_you_mean,
    file_name,
    found,
    in_notation,
    parse,
    permission_warnings,
    read_bytes,
    read_env_file,
    repeated_keys,
)
from ._inputs import IN_INPUT, Ask, Inputs
from ._keys import COMMANDS, SERVER, SETTABLE, SETTINGS, SWITCHES, TRANSPORT, Surroundings
from ._programs import (
    OF_CLAUDE,
    OF_VS_CODE,
    SECTION_WRITERS,
    find_sections,
    inputs_of,
    is_comment,
    looks_like_entry,
    name_of,
    predefined,
    program_of,
    project_of,
    switched_off,
)

# --- Overrides (``MCP_ACTORS__…``) ------------------------------------------------------------------------------------

# ``MCP_ACTORS__<SERVER>__<FIELD>`` or ``…__<FIELD>__<KEY>``: names in upper case, with ``_`` for other characters. A
# variable may fit two servers: ``A__ENV__URL`` a server ``a`` and a server ``a__env``. `check_overrides` refuses it.


PREFIX: Final = "MCP_ACTORS__"

_TEXT_FIELDS: Final = frozenset({"command", "cwd", "url", "type"})
_SECRETS: Final = frozenset({"env", "headers", "auth"})
_IN_ENTRY: Final = _TEXT_FIELDS | _SECRETS | {"args", "enabled", "required"}
_FIELDS_BY_VARIABLE: Final = {field.upper(): field for field in _IN_ENTRY | SETTABLE}

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "auth": ("bearer_token", "bearer_token_env_var", "oauth"),
    "command": COMMANDS,
    "enabled": tuple(SWITCHES),
    "type": ("transport",),
}


@attrs.frozen
class Override:
    """A variable that fits a server: the field to set (empty if unknown), and the key within (empty for all)."""

    variable: str
    server: str
    field: str
    key: str = ""


def apply_overrides(server: str, entry: object, environ: Mapping[str, str]) -> tuple[object, tuple[str, ...]]:
    """Return an entry with the environment's overrides, and the names of these variables."""
    found = [each for each in fitting(server, environ) if each.field]
    if not found:
        return entry, ()
    if isinstance(entry, str):
        entry = {"url" if "://" in entry else "command": entry}
    if not isinstance(entry, Mapping):
        return entry, ()
    changed = dict(entry)
    for each in found:
        _apply(changed, each, environ[each.variable])
    return changed, tuple(each.variable for each in found)


def check_overrides(servers: Collection[str], environ: Mapping[str, str]) -> dict[str, ConfigError]:
    """Return the error of each variable that fits no server or field, or several servers.

    Args:
        servers: the names of all servers. Variables (keys of an earlier result) are skipped.
        environ: the environment.

    Returns:
        The errors by variable; for a variable that fits several servers, by each of these servers.
    """
    failed, servers = {}, [each for each in servers if not each.startswith(PREFIX)]
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        fits = [each for server in servers for each in fitting(server, environ) if each.variable == variable]
        known = [each for each in fits if each.field]
        names = " and ".join(repr(each.server) for each in known or fits)
        if len(known) > 1:
            problem = f"this fits the servers {names}; rename one of them"
        elif known:
            continue
        elif fits:
            word = variable.removeprefix(f"{PREFIX}{_normal(fits[0].server)}__").partition("__")[0]
            near = did_you_mean(word, _FIELDS_BY_VARIABLE)
            problem = f"server {names} has no field {word!r} that can be set{near}"
        else:
            word = variable.removeprefix(PREFIX).partition("__")[0]
            near = did_you_mean(word, map(_normal, servers))
            problem = f"there is no server {word!r}{near}; its servers are: {', '.join(servers) or 'none'}"
        error = ConfigError(f"environment variable {variable}: {problem}", source="environment", path=variable)
        failed.update(dict.fromkeys((each.server for each in known) if known else (variable,), error))
    return failed


def _normal(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def fitting(server: str, environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the variables that begin with the name of a server."""
    prefix = f"{PREFIX}{_normal(server)}__"
    for variable in sorted(environ):
        if variable.startswith(prefix):
            word, _, key = variable.removeprefix(prefix).partition("__")
            yield Override(variable, server, _FIELDS_BY_VARIABLE.get(word, ""), key)


def _apply(entry: dict[str, Any], override: Override, text: str) -> None:
    field, key = override.field, override.key
    # Write a credential as a reference: resolved at each connect, masked by name, and never written down.
    value = f"${{{override.variable}}}" if field in _SECRETS else text if field in _TEXT_FIELDS else _value(text)
    settings = entry.get(SETTINGS)
    settings = dict(settings) if isinstance(settings, Mapping) else {}
    into = entry if field in _IN_ENTRY else settings
    if key:
        written = next((name for name in _names_of(field) if name in into), field)
        value = _with(into.get(written), field, key, value)
        field = written
    else:
        for name in _names_of(field):
            entry.pop(name, None)
            settings.pop(name, None)
    into[field] = value
    if settings or into is settings:
        entry[SETTINGS] = settings
    else:
        entry.pop(SETTINGS, None)


def _names_of(field: str) -> Iterator[str]:
    yield field
    yield from _SYNONYMS.get(field, ())
    yield from (key for keys in (TRANSPORT, SERVER) for key, target in keys.items() if target == field)


def _with(within: object, field: str, key: str, value: object) -> dict[str, object]:
    """Return an object with one value changed, under the existing spelling of the key."""
    values = dict(within) if isinstance(within, Mapping) else {}
    spelled = next((name for name in values if isinstance(name, str) and _normal(name) == key), None)
    if spelled is None:
        spelled = key if field == "env" else key.replace("_", "-") if field == "headers" else key.lower()
    return {**values, spelled: value}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# --- Load a configuration ---------------------------------------------------------------------------------------------


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
    """Read the configuration of servers from a file of another program, or from a mapping of that form.

    Supported are ``mcpServers`` (Claude, Cursor and most others), ``servers`` (VS Code, with comments and trailing
    commas), ``context_servers`` (Zed), ``[mcp_servers.…]`` (Codex, in TOML) and ``mcp`` (opencode, Crush). Settings of
    this package are in each entry under ``mcp_actors``. An invalid entry is an error in the result, and the rest is
    loaded. Claude Code's ``.claude.json`` also yields its servers for the current directory.

    Nothing is connected or started. ``${VAR}`` is expanded later, at each connect. As in the program of the file,
    servers of a project (``.mcp.json``, ``.vscode/mcp.json`` …) are started in its folder, all others in the current
    directory. This function blocks while reading; `open_servers` calls it in a thread.

    Args:
        config: the path of a file, in which ``~`` is expanded, or a mapping.
        ask: a function called once for each `Input` needed by an enabled server (``${input:id}``); returns the answer
            as a str or `Secret`, or None. Default None: an input has its default, or is an error.
        env_file: a ``.env`` file with variables for ``${VAR}``, and for the names in ``env_from``. Variables in the
            environment take precedence. None (default) reads no such file.
        source: the name of a mapping in errors and in ``ServerConfig.source``; a file has its path.

    Returns:
        The servers, errors and warnings.

    Raises:
        ConfigError: the file does not exist, is not a regular file, is too large, or may not be read; or `env_file` is
            not valid. (Invalid content of a configuration file is an error in the result instead.)
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
    """Do as `load_config`, but ask for inputs of the servers in `only`, and use `content` if given."""
    if ask is not None and not is_function(ask):
        raise ConfigError(f"load_config: ask is {found(ask)}; give a function (input) or None", source="load_config")
    variables = {} if env_file is None else read_env_file(env_file)
    if isinstance(config, Mapping):
        return _Loading(source, None, ask, only, variables).load(lambda: config)
    name = file_name(config, "load_config: config", "give the path of a file, or a mapping")
    data, status = read_bytes(name) if content is None else content
    loading = _Loading(name, name, ask, only, variables)
    loading.warnings += permission_warnings(name, status)
    return loading.load(lambda: parse(name, decode(name, data)))


# --- Refuse entries that start this package ---------------------------------------------------------------------------


_OURSELVES: Final = re.compile(
    r"""(?:^|[\s/"'=])mcp[-_]actors(?:\[[^]\s]*\])?(?:[@=<>~]\S*)?(?:/__main__\.py)?["']?\s+["']?(?:attach|serve)(?![\w-])"""
    r"|mcp_actors/gateway/attach\.py"
)
"""A command line that runs ``mcp-actors attach`` or ``serve``, by any means."""


def runs_us(command: object, args: object) -> bool:
    words = (command, *(args if isinstance(args, (list, tuple)) else ()))
    return _OURSELVES.search(" ".join(word for word in words if isinstance(word, str))) is not None


def refuse_ourselves(loaded: LoadedConfig) -> LoadedConfig:
    """Return a configuration in which each entry that runs a gateway is an error.

    ``config attach`` leaves such an entry in a host's file. A gateway with this file would start itself without end.
    """
    refused = {}
    for server in loaded.servers:
        transport = server.transport
        if isinstance(transport, Stdio) and runs_us(transport.command, transport.args):
            problem = "this entry runs mcp-actors itself, which would start itself without end"
            remedy = "remove it, and give its --config instead of this file"
            text = f"{loaded.source}: server {server.name!r}: {problem}; {remedy}"
            refused[server.name] = ConfigError(text, source=loaded.source, path=f"servers.{server.name}")
    return with_failed(loaded, refused)


def with_overrides(loaded: LoadedConfig) -> LoadedConfig:
    """Add errors for environment variables that override nothing, or values of several servers."""
    variables = check_overrides([*(server.name for server in loaded.servers), *loaded.failed], os.environ)
    return with_failed(loaded, variables)


def with_failed(loaded: LoadedConfig, errors: Mapping[str, ConfigError]) -> LoadedConfig:
    """Return a configuration with further errors by server name, and without these servers."""
    failed = {**loaded.failed, **errors}
    servers = tuple(server for server in loaded.servers if server.name not in errors)
    required = loaded.required | {each.name for each in loaded.servers if each.required and each.name in errors}
    unique = tuple(dict.fromkeys(failed.values()))
    return attrs.evolve(loaded, servers=servers, failed=failed, errors=unique, required=required)


# --- Load entries -----------------------------------------------------------------------------------------------------


@attrs.frozen
class Entry:
    """One server as written.

    Attributes:
        value: the entry, in the form of ``mcpServers``, or its error.
        source: where the entry is, for messages: a file, a file and a line, or a table.
        section: the place of the entries in the source.
    """

    key: object
    value: object
    source: str
    section: str
    place: str


def load_entries(
    source: str, entries: Iterable[Entry], *, file: str | None = None, warnings: list[str] | None = None
) -> LoadedConfig:
    """Make configurations of entries read from anything but JSON or TOML.

    A `ConfigError` of the iterator replaces all servers. Warnings about entries are added to `warnings`.
    """
    return _Loading(source, file, None, warnings=[] if warnings is None else warnings).load_entries(entries)


@attrs.define
class _Loading:
    source: str
    file: str | None
    ask: Ask | None
    only: frozenset[str] | None = None
    variables: Mapping[str, str] = attrs.field(factory=dict)
    servers: dict[str, ServerConfig] = attrs.field(factory=dict)
    entries: dict[str, Entry] = attrs.field(factory=dict)
    keys: set[object] = attrs.field(factory=set)
    off: Mapping[object, str] = attrs.field(factory=dict)
    twice: set[str] = attrs.field(factory=set)
    failed: dict[str, ConfigError] = attrs.field(factory=dict)
    required: set[str] = attrs.field(factory=set)
    warnings: list[str] = attrs.field(factory=list)

    @property
    def origin(self) -> str:
        return self.source if self.file is None else os.path.abspath(self.file)

    def load(self, read: Callable[[], Mapping[str, Any]]) -> LoadedConfig:
        with self._failing_as_a_whole():
            document = read()
            if problem := _misplaced(SETTINGS, document.get(SETTINGS)):
                raise bad(self.source, SETTINGS, problem)
            sections = find_sections(self.source, document)
            for path, section in (*sections, ("inputs", inputs_of(document))):
                check_size(self.source, path, section)
            around = self._surroundings(document)
            described = inputs_of(document)
            self.warnings += [f"{self.source}: {problem}" for problem in [around.inputs.problem] if problem]
            for index, each in enumerate(described if isinstance(described, list) else ()):
                around.warn_of_unknown(child("inputs", index), each, IN_INPUT)
            self.keys = {key for _, section in sections for key in section}
            self.off = switched_off(self.source, document, self.keys, around.warn)
            hidden: set[object] = set()
            for path, section in sections:
                program = program_of(self.file, path, section)
                around = attrs.evolve(around, of_vs_code=path in OF_VS_CODE, program=program)
                self._load_section(path, section, around, hidden)
                if os.path.basename(self.source) == OF_CLAUDE:
                    hidden |= section.keys()  # servers for this folder hide servers for all folders
        return self._loaded()

    def load_entries(self, entries: Iterable[Entry]) -> LoadedConfig:
        with self._failing_as_a_whole():
            entries = tuple(entries)
            check_size(self.source, "", {index: entry.value for index, entry in enumerate(entries)})
            self.keys = {str(entry.key) for entry in entries}
            around = self._surroundings({})
            for entry in entries:
                self._load_entry(entry, attrs.evolve(around, source=entry.source, warn=self._warner(entry.source)))
        return self._loaded()

    @contextmanager
    def _failing_as_a_whole(self) -> Iterator[None]:
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
        return lambda path, problem: self.warnings.append(f"{source}: {path}: {in_notation(source, problem)}")

    def _connect_timeout(self) -> Iterator[tuple[str, float | None]]:
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

    def _load_section(
        self, path: str, section: Mapping[str, Any], around: Surroundings, hidden: Container[object]
    ) -> None:
        twice = repeated_keys(section)
        for key, value in section.items():
            place = child(path, key)
            problem = "two servers have this name; rename one of them" if key in twice else _misplaced(key, value)
            entry = bad(self.source, place, problem) if problem else value
            if not is_comment(key) and key not in hidden:
                self._load_entry(Entry(key, entry, self.source, path, place), around)
            elif is_comment(key) and isinstance(value, Mapping):
                around.warn(place, "this begins like a comment, so it is not a server; rename it to use it")

    def _load_entry(self, entry: Entry, around: Surroundings) -> None:
        key, value, source, place = entry.key, entry.value, entry.source, entry.place
        name, variables = place, tuple[str, ...]()
        try:
            name = name_of(source, entry.section, key, self.keys)
            self._check_free(name, entry)
            if isinstance(value, ConfigError):
                raise value
            if name != key:
                allowed = "a name may have only the characters A-Z a-z 0-9 _ . -"
                around.warn(place, f"this server is renamed to {name!r}; {allowed}")
            check_numbers(source, place, value)
            value, variables = apply_overrides(name, value, os.environ)
            around = attrs.evolve(around, is_off=key in self.off)
            self.servers[name] = read_entry(name, value, place, around)
        except ConfigError as error:
            if variables:
                said = f"{error} (the entry includes values of {', '.join(variables)})"
                error = ConfigError(said, source=error.source, path=error.path)
            self._note_failure(name, value, error, is_off=key in self.off)

    def _check_free(self, name: str, entry: Entry) -> None:
        """Refuse a used name; if key and section are equal, refuse the first server too."""
        first = self.entries.setdefault(name, entry)
        if first is entry:
            return
        if (first.section, first.key) == (entry.section, entry.key) and self.servers.pop(name, None) is not None:
            self.twice.add(name)
        called = first.place if first.place != entry.place else first.source  # with a line, if the places are equal
        raise bad(entry.source, entry.place, f"{called} is called {name!r} too; rename one of them")

    def _note_failure(self, name: str, entry: object, error: ConfigError, *, is_off: bool) -> None:
        """Keep an error; for a disabled server that is not in `only`, as a warning."""
        named = name in self.twice or (self.only is not None and name in self.only)
        if not named and (is_off or (isinstance(entry, Mapping) and not _may_be_enabled(entry))):
            self.warnings.append(f"{error} (the server is disabled)")
            return
        if isinstance(entry, Mapping) and _is_required(entry):
            self.required.add(name)
        while name in self.failed:
            name += "'"
        self.failed[name] = _detached(error)


def _misplaced(key: object, value: object) -> str | None:
    """Return the problem of a key at the wrong level, among the servers or next to their section."""
    if key == SETTINGS and isinstance(value, Mapping) and not looks_like_entry(value):
        return f'settings are not read here; write them in each entry: {{"command": …, "{SETTINGS}": {{…}}}}'
    is_section = key in SECTION_WRITERS and isinstance(value, Mapping) and any(map(looks_like_entry, value.values()))
    if is_section or (key == "inputs" and isinstance(value, list)):
        return "this is not a server, but one level too deep; move it one level up"
    return None


def _detached(error: ConfigError) -> ConfigError:
    # The error outlives the load, in status and logs. Its context and traceback refer to frames that hold everything
    # that was read, credentials included: they would stay alive, and a log with tracebacks could show them.
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
