"""Read servers from sources: files, and directories of YAML manifests.

Only a strict subset of YAML is read. Two changes of a file within a tick of the clock could look like one. So
`stamp_of` waits until the tick of a change is over. A source's `look` and `read` block the thread.

Owns: nothing.
Writes: the log.
Calls: config.formats, _server, _validators.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from .._errors import ConfigError
from .._foreign import Log
from .._misuse import explained, is_number, is_seconds, is_whole
from .._text import plain_text
from ._server import LoadedConfig, Rank
from ._validators import is_positive, shown
from .formats import (
    WITH_EFFECT,
    Ask,
    Entry,
    bad,
    child,
    decode,
    did_you_mean,
    file_name,
    found,
    load_config,
    load_entries,
    nearest,
    permission_warnings,
    read_bytes,
)

# --- Intervals --------------------------------------------------------------------------------------------------------


_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_INTERVAL: Final = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>[smhd]?)", re.ASCII)


def seconds_of(interval: object, where: str) -> float:
    """Return an interval (a positive number of seconds, or a str with a unit) in seconds; `where` is for the error."""
    seconds: object = interval
    if isinstance(interval, str) and (found := _INTERVAL.fullmatch(interval)):
        seconds = float(found["number"]) * _UNITS[found["unit"]]
    if isinstance(seconds, (int, float)) and is_positive(seconds):
        return float(seconds)
    problem = f'{shown(interval)} is not an interval; write a number of seconds, or "30s", "5m", "1h"'
    raise ConfigError(f"{where}: {problem}", source=where)


# --- YAML, strictly ---------------------------------------------------------------------------------------------------

# YAML guesses types: ``no`` is false, ``1.10`` is 1.1, and ``12:30:00`` is 45000. Here a plain scalar is a string, but
# below `TYPED_KEYS` it may be ``true``, ``false``, ``null`` or a number of JSON.
#
# Refused, each with its line: repeated keys, of which only the last would count; aliases, by which a short file becomes
# gigabytes; tags, which call constructors.


MAX_NODES: Final = 20_000
MAX_YAML_DEPTH: Final = 64

_JSON_SCALAR: Final = re.compile(r"true|false|null|-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_SHOWN_LINE: Final = 80  # characters of the parser's message


@attrs.frozen
class Document:
    """The data and the first line of a document."""

    data: Any
    line: int


def read_documents(source: str, text: str) -> list[Document]:
    """Return the documents of a file. Below `TYPED_KEYS`, values may be numbers, booleans or null.

    Raises:
        ConfigError: the text is not valid YAML or refused (the message has the line), or PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise bad(source, "", "PyYAML is not installed; run: pip install 'mcp-actors[yaml]'") from None
    try:
        return list(_YamlBuilder(source, yaml.parse(text, Loader=yaml.SafeLoader)).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}" if mark is not None else ""
        said = str(error.problem or error.context)[:_SHOWN_LINE]
        raise bad(f"{source}{where}", "", f"this is not valid YAML: {said}") from None
    except yaml.YAMLError:
        raise bad(source, "", "this is not valid YAML: it has a character that YAML does not allow") from None


@attrs.define
class _YamlBuilder:
    source: str
    events: Iterator[Any]
    nodes: int = 0

    def documents(self) -> Iterator[Document]:
        """Yield the documents that are not empty."""
        import yaml

        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                first = next(self.events)
                data = self._node(first, typed=False, depth=0)
                if data is not None:
                    yield Document(data, first.start_mark.line + 1)

    def _node(self, event: Any, *, typed: bool, depth: int) -> Any:
        """Return the data of a node, consuming all its events."""
        import yaml

        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_YAML_DEPTH:
            problem = "has too many values" if self.nodes > MAX_NODES else "is nested too deeply"
            raise self._bad(event, f"the file {problem}; check that it is the right one")
        if isinstance(event, yaml.AliasEvent):
            raise self._bad(event, "this is an alias (*…), which is not supported; write the value again")
        if event.tag is not None and event.tag != "!":
            raise self._bad(event, "this is a tag (!…), which is not supported; remove it")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event, typed=typed)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._node(each, typed=typed, depth=depth + 1) for each in self._until(yaml.SequenceEndEvent)]
        made: dict[str, Any] = {}
        for key in self._until(yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise self._bad(key, "this key is not a string; write a string")
            name = self._node(key, typed=False, depth=depth + 1)
            if name is None:
                raise self._bad(key, "this key is empty; write a string")
            if name in made:
                raise self._bad(key, f"the key {json.dumps(name)} appears more than once; remove all but one")
            made[name] = self._node(next(self.events), typed=typed or name in TYPED_KEYS, depth=depth + 1)
        return made

    def _until(self, end: type) -> Iterator[Any]:
        for event in self.events:
            if isinstance(event, end):
                return
            yield event

    def _bad(self, event: Any, problem: str) -> ConfigError:
        return bad(f"{self.source}:{event.start_mark.line + 1}", "", problem)


def _scalar(event: Any, *, typed: bool) -> Any:
    """Return quoted text as a str, and an empty plain scalar as None."""
    plain, text = event.implicit[0], event.value
    if plain and text == "":
        return None
    return json.loads(text) if plain and typed and _JSON_SCALAR.fullmatch(text) else text


# --- Manifests of ``kind: MCPServer`` ---------------------------------------------------------------------------------

# These files are written for programs like this one, so a key without effect is an error.


logger = Log("mcp_actors.config")

KIND: Final = "MCPServer"

TYPED_KEYS: Final = frozenset(
    {
        *("annotations", "disabled", "enabled", "fallbackToStatic", "inputSchema", "mcp_actors"),
        *("onStartup", "outputSchema", "parameters", "required", "retries", "timeout"),
    }
)
"""Keys of a manifest below which values may be numbers, booleans or null."""

_OF_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "spec")
_OF_METADATA: Final = ("name", "labels", "annotations", "namespace")
_OF_SPEC: Final = ("provider", "configuration", "authentication", "discovery", "tools", "displayName", "description")
_OF_DISCOVERY: Final = ("enabled", "refreshInterval", "onStartup", "fallbackToStatic")
_OF_AUTHENTICATION: Final = ("type", "token", "key", "header", "credentials")
_OF_RETRIES: Final = ("maxAttempts", "backoff", "initialDelay")

_SPELLINGS: Final[Mapping[str, str]] = {"baseUrl": "url", "endpoint": "url", "environment": "env", "workingDir": "cwd"}
"""Key of a manifest's configuration → key of an entry."""

_OF_CONFIGURATION: Final = frozenset({*WITH_EFFECT, *_SPELLINGS, "timeout", "retries"})
_ONLY_COMMAND: Final = frozenset({"args", "cwd", "env", "env_vars"})
_ONLY_URL: Final = frozenset({"auth", "headers"})


def entry_of(file: str, document: Document) -> Entry | None:
    """Return the entry of a manifest, perhaps with an error as its value; None for a document of another kind.

    Raises:
        ConfigError: this is not a manifest, or it has no name.
    """
    manifest = _Manifest(f"{file}:{document.line}")
    if manifest.is_of_another_kind(document.data):
        return None
    data = manifest.mapping("", document.data, _OF_DOCUMENT)
    name = manifest.mapping("metadata", data.get("metadata"), _OF_METADATA).get("name")
    if not isinstance(name, str):
        raise bad(manifest.source, "metadata.name", f"found {found(name)}; write the name of the server")
    try:
        value: object = manifest.entry(data.get("spec"))
    except ConfigError as error:
        value = error
    return Entry(name, value, manifest.source, "metadata", "spec.configuration")


class _Manifest:
    def __init__(self, source: str) -> None:
        self.source = source

    def is_of_another_kind(self, data: object) -> bool:
        """Return True, and log it, for a document of another kind. Refuse a missing or misspelled kind."""
        if not isinstance(data, Mapping):
            return False
        kind = data.get("kind")
        if kind == KIND:
            return False
        if not isinstance(kind, str) or nearest(kind, (KIND,)) is not None:
            raise bad(self.source, "kind", f"found {found(kind)}; write {KIND!r}")
        shown = plain_text(kind, limit=40)
        logger.info("%s: this document of kind %r is skipped; servers are of kind %r", self.source, shown, KIND)
        return True

    def entry(self, spec: object) -> dict[str, Any]:
        spec = self.mapping("spec", spec, _OF_SPEC)
        given = spec.get("configuration")
        if not isinstance(given, Mapping):
            raise self.wrong("spec.configuration", given, "an object with 'command' or 'url'")
        entry = self._configuration(given)
        settings = entry.get("mcp_actors") or {}
        if not isinstance(settings, Mapping):
            raise self.wrong("spec.configuration.mcp_actors", settings, "an object with settings")
        settings = dict(settings)
        self._provider(spec.get("provider"), entry)
        self._authentication(spec.get("authentication"), entry)
        self._refuse_other_transport(entry, given)
        self._set("spec.displayName", settings, "title", spec.get("displayName"))
        self._timeout(entry.pop("timeout", None), settings)
        self._retries(entry.pop("retries", None), settings)
        self._discovery(spec.get("discovery"), spec.get("tools"), settings)
        if settings:
            entry["mcp_actors"] = settings
        return entry

    def mapping(self, path: str, value: object, keys: tuple[str, ...]) -> Mapping[str, Any]:
        """Return an object; refuse a key that is not in `keys`."""
        if not isinstance(value, Mapping):
            raise self.wrong(path, value, f"an object with {', '.join(map(repr, keys))}")
        for key in value:
            if key not in keys:
                raise self._unknown(child(path, key), key, keys)
        return value

    def wrong(self, path: str, value: object, remedy: str) -> ConfigError:
        return bad(self.source, path, f"found {found(value)}; write {remedy}")

    def _unknown(self, path: str, key: str, keys: tuple[str, ...]) -> ConfigError:
        homes = {"spec": _OF_SPEC, "spec.configuration": _OF_CONFIGURATION, "spec.discovery": _OF_DISCOVERY}
        if home := next((home for home, known in homes.items() if key in known), None):
            problem = f"this key belongs in {home!r}; move it there"
        elif 0 < len(keys) <= 12:  # of more keys, name only the nearest
            problem = f"this key is not known; the keys here are {', '.join(map(repr, keys))}"
        else:
            problem = f"this key has no effect here{did_you_mean(key, keys)}; remove it"
        return bad(self.source, path, problem)

    def _set(self, path: str, settings: dict[str, Any], name: str, value: object) -> None:
        """Set an option, unless None. Refuse an option that the key ``mcp_actors`` sets too."""
        if value is None:
            return
        if name in settings:
            raise bad(self.source, path, f"'mcp_actors.{name}' sets the same option; remove one of them")
        settings[name] = value

    def _configuration(self, given: Mapping[str, Any]) -> dict[str, Any]:
        path = "spec.configuration"
        entry: dict[str, Any] = {}
        for key, value in given.items():
            if key not in _OF_CONFIGURATION:
                raise self._unknown(child(path, key), key, tuple(sorted(_OF_CONFIGURATION)))
            name = _SPELLINGS.get(key, key)
            if name in entry:
                same = next(other for other in given if _SPELLINGS.get(other, other) == name)
                raise bad(self.source, path, f"{same!r} and {key!r} set the same option; remove one of them")
            entry[name] = value
        return entry

    def _provider(self, provider: object, entry: dict[str, Any]) -> None:
        """Take the transport from a provider such as ``http`` or ``mcp-http``; ignore other providers."""
        if not isinstance(provider, str | None):
            raise self.wrong("spec.provider", provider, "a string")
        transport = (provider or "").removeprefix("mcp-")
        if transport in ("stdio", "http", "sse", "streamable-http") and not entry.keys() & {"type", "transport"}:
            entry["type"] = transport

    def _refuse_other_transport(self, entry: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Refuse keys for a URL next to a command, and the reverse."""
        others, what = (_ONLY_URL, "a URL") if "command" in entry else (_ONLY_COMMAND, "a command")
        for key in sorted(entry.keys() & others if entry.keys() & {"command", "url"} else ()):
            written = [name for name in given if _SPELLINGS.get(name, name) == key]
            path = child("spec.configuration", written[0]) if written else "spec.authentication"
            raise bad(self.source, path, f"this has no effect, because it is only for a server with {what}; remove it")

    def _authentication(self, authentication: object, entry: dict[str, Any]) -> None:
        if authentication is None:
            return
        path = "spec.authentication"
        given = self.mapping(path, authentication, _OF_AUTHENTICATION)
        if (kind := given.get("type")) not in ("bearer", "api-key", "none"):
            raise self.wrong(f"{path}.type", kind, "'bearer', 'api-key' or 'none'")
        marks, header, secret = {"type"}, "header", "key"
        if "credentials" in given:
            self.mapping(path, given, ("type", "credentials"))
            # In ``credentials``, ``key`` is the name of the header; without ``credentials``, the secret.
            path, given = f"{path}.credentials", given["credentials"]
            marks, header, secret = set(), "key", "value"
        keys = {"bearer": ("token",), "api-key": (header, secret), "none": ()}[kind]
        given = self.mapping(path, given, (*marks, *keys))
        if kind == "bearer":
            entry["auth"] = self._text(path, given, "token")
        elif kind == "api-key":
            name = self._text(path, given, header) if header in given else "X-API-Key"
            headers = entry.get("headers") or {}
            if not isinstance(headers, Mapping):
                raise self.wrong("spec.configuration.headers", headers, "an object")
            entry["headers"] = {**headers, name: self._text(path, given, secret)}

    def _text(self, path: str, given: Mapping[str, Any], key: str) -> str:
        value = given.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(child(path, key), value, "a string, for example ${VARIABLE}")
        return value

    def _timeout(self, seconds: object, settings: dict[str, Any]) -> None:
        path = "spec.configuration.timeout"
        if seconds is not None and not is_seconds(seconds):
            raise self.wrong(path, seconds, "a positive number of seconds")
        self._set(path, settings, "request_timeout", seconds)

    def _retries(self, retries: object, settings: dict[str, Any]) -> None:
        """Set ``retry``; ``initialDelay`` is in milliseconds."""
        if retries is None:
            return
        path = "spec.configuration.retries"
        given = self.mapping(path, retries, _OF_RETRIES)
        policy: dict[str, Any] = {}
        if "maxAttempts" in given:
            if not is_whole(given["maxAttempts"], 1):
                raise self.wrong(f"{path}.maxAttempts", given["maxAttempts"], "a whole number of 1 or more")
            policy["attempts"] = given["maxAttempts"]
        if given.keys() & {"backoff", "initialDelay"}:
            growth = given.get("backoff", "exponential")
            if growth not in ("exponential", "fixed"):
                raise self.wrong(f"{path}.backoff", growth, "'exponential' or 'fixed'")
            delay = given.get("initialDelay", 1000)
            if not is_number(delay) or not 0 <= delay < 24 * 3600 * 1000:
                raise self.wrong(f"{path}.initialDelay", delay, "a number of milliseconds")
            factor = 2.0 if growth == "exponential" else 1.0
            first = delay / 1000
            # The default jitter of `RetryPolicy`.
            policy["backoff"] = {"first": first, "initial": first * factor, "factor": factor, "jitter": 0.5}
        self._set(path, settings, "retry", policy)

    def _discovery(self, discovery: object, tools: object, settings: dict[str, Any]) -> None:
        path = "spec.discovery"
        given = self.mapping(path, {} if discovery is None else discovery, _OF_DISCOVERY)
        if "refreshInterval" in given:
            seconds = seconds_of(given["refreshInterval"], f"{self.source}: {path}.refreshInterval")
            settings.setdefault("refresh_interval", seconds)
        if not self._flag(path, given, "onStartup", default=True):
            settings.setdefault("connect", "lazy")
        declared = list(self._tools(tools))
        if self._flag(path, given, "fallbackToStatic", default=bool(declared)):
            settings.setdefault("static_tools", declared)
        if not self._flag(path, given, "enabled", default=True):
            settings.setdefault("tool_filter", {"allow": [tool["name"] for tool in declared]})

    def _flag(self, path: str, given: Mapping[str, Any], key: str, *, default: bool) -> bool:
        value = given.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(child(path, key), value, "true or false")
        return value

    def _tools(self, tools: object) -> Iterator[Mapping[str, Any]]:
        """Yield the declared tools; without a schema, a tool takes any arguments."""
        if tools is None:
            return
        if not isinstance(tools, list):
            raise self.wrong("spec.tools", tools, "a list of tools")
        for index, tool in enumerate(tools):
            path = f"spec.tools[{index}]"
            if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
                raise self.wrong(path, tool, "an object with 'name'")
            if "parameters" not in tool:
                yield {"inputSchema": {"type": "object"}, **tool}
                continue
            if "inputSchema" in tool:
                raise bad(self.source, path, "'parameters' and 'inputSchema' say the same; remove one of them")
            schema = self._schema(f"{path}.parameters", tool["parameters"])
            yield {**{key: value for key, value in tool.items() if key != "parameters"}, "inputSchema": schema}

    def _schema(self, path: str, parameters: object) -> dict[str, Any]:
        """Return a JSON schema; each parameter may have the flag ``required``."""
        if not isinstance(parameters, Mapping):
            raise self.wrong(path, parameters, "an object with the parameters")
        properties, required = {}, []
        for name, parameter in parameters.items():
            if not isinstance(parameter, Mapping):
                raise self.wrong(child(path, name), parameter, "an object with 'type'")
            properties[name] = {key: value for key, value in parameter.items() if key != "required"}
            if self._flag(child(path, name), parameter, "required", default=False):
                required.append(name)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        return {**schema, "required": required} if required else schema


# --- Notice that a file has changed -----------------------------------------------------------------------------------


TICK: Final = 0.02
"""Seconds within which two changes may get the same time: kernels count in steps of up to 10 ms."""

Stamp: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of the content and of anything else.

Differs after a file was written, replaced, or given other permissions.
"""


def stamp_of(path: str) -> Stamp | None:
    """Return the stamp of a file, or None without a file. Sleep up to a tenth of a second after a change."""
    try:
        status = os.stat(path)
        # A file changed in this tick may change once more with the same times and size, after this look: the second
        # change would have the stamp of the first, and never be noticed. So wait until the tick is over, but not
        # forever for a file that is always written. A clock set back makes the age negative: do not wait.
        for _ in range(5):
            if not 0 <= time.time() - status.st_ctime < TICK:
                break
            time.sleep(TICK)
            status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


# --- A directory of manifests -----------------------------------------------------------------------------------------


MAX_FILES: Final = 1000
MAX_MANIFEST_BYTES: Final = 256 * 1024
"""Bytes of one file. The parser is written in Python, and takes about a second."""


class _PathSource:
    interval: float = 1.0  # seconds between two looks; a look takes one system call per file
    settles: bool = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(file_name(path, f"{type(self).__name__}: path"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    @property
    def name(self) -> str:
        """The absolute path."""
        return self._path


@explained
class DirectorySource(_PathSource):
    """The files ``*.yaml`` and ``*.yml`` in a directory, each with one or more servers as ``kind: MCPServer``.

    Subdirectories, and files whose names begin with a dot, are left out. Requires PyYAML:
    ``pip install 'mcp-actors[yaml]'``.

    Args:
        path: the directory, in which ``~`` is expanded.

    Raises:
        ConfigError: `path` is not a path.
    """

    rank = Rank.DIRECTORY

    def look(self) -> Hashable:
        """Return the path and stamp of each file.

        Raises:
            ConfigError: the directory cannot be read, or has too many files.
        """
        return tuple((file, stamp_of(file)) for file in self._files())

    def read(self) -> tuple[LoadedConfig, ...]:
        """Load the files. An invalid file is an error in the result; the rest is loaded.

        Raises:
            ConfigError: as for `look`.
        """
        return tuple(map(_load, self._files()))

    def _files(self) -> list[str]:
        try:
            with os.scandir(self._path) as found:
                names = [each.name for each in found if each.name.endswith((".yaml", ".yml")) and each.name[0] != "."]
        except OSError as error:
            problem = f"the directory cannot be read ({error.strerror}); check the path and its permissions"
            raise bad(self._path, "", problem) from None
        if len(names) > MAX_FILES:
            raise bad(self._path, "", f"there are more than {MAX_FILES} files; check that it is the right directory")
        return [os.path.join(self._path, name) for name in sorted(names)]


def _load(file: str) -> LoadedConfig:
    warnings: list[str] = []
    return load_entries(file, _entries(file, warnings), file=file, warnings=warnings)


def _entries(file: str, warnings: list[str]) -> Iterator[Entry]:
    data, status = read_bytes(file)
    warnings += permission_warnings(file, status)
    if len(data) > MAX_MANIFEST_BYTES:
        raise bad(file, "", f"the file is larger than {MAX_MANIFEST_BYTES // 1024} KiB; check that it is the right one")
    for document in read_documents(file, decode(file, data)):
        if (entry := entry_of(file, document)) is not None:
            yield entry


# --- A configuration file ---------------------------------------------------------------------------------------------


@explained
class FileSource(_PathSource):
    """A configuration file; `open_servers` makes a source of each path.

    A relative path is resolved when this object is made, not when the file is read.

    Args:
        path: the file, as for `load_config`.
        ask: as for `load_config`.
        env_file: as for `load_config`; a changed file counts as a changed configuration.

    Raises:
        ConfigError: `path` or `env_file` is not a path.
    """

    rank = Rank.FILE

    def __init__(
        self, path: str | os.PathLike[str], *, ask: Ask | None = None, env_file: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(path)
        self._ask = ask
        self._env_file = None if env_file is None else os.path.abspath(file_name(env_file, "FileSource: env_file"))

    def look(self) -> Hashable:
        """Return the stamps of the files; None for a missing file."""
        return stamp_of(self._path), None if self._env_file is None else stamp_of(self._env_file)

    def read(self) -> tuple[LoadedConfig, ...]:
        """Load the file.

        Raises:
            ConfigError: the file cannot be read, or `env_file` is not valid.
        """
        return (load_config(self._path, ask=self._ask, env_file=self._env_file),)
