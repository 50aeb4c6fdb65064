"""Read the keys of an entry, including settings, OAuth and tools.

An entry describes a server. MCP clients use different keys for a field (``env``, ``environment``), and all are read.
`Fields` refuses an entry with two keys for one field.

Owns: fields of entries.
Writes: warnings about unknown keys.
Calls: config, _file, _inputs, _programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from ..._errors import ConfigError
from ..._misuse import names_containing
from .._oauth import OAuth
from .._policies import BreakerPolicy, RestartPolicy
from .._server import ServerConfig
from .._template import Kind
from .._tools import GLOB, ToolFilter
from .._transports import Http, Socket, Sse, Stdio
from ._file import as_object, bad, child, did_you_mean, found, nearest, shown_key
from ._inputs import Inputs
from ._programs import ANY, Program, is_comment

SETTINGS: Final = "mcp_actors"
"""The key of this package's settings in an entry."""

_OF_KIND: Final[Mapping[Kind, str]] = {
    "stdio": "stdio local",
    "http": "http streamable streamablehttp",
    "sse": "sse",
    "url": "remote",
    "socket": "socket",
}
TRANSPORT_KINDS: Final[Mapping[str, Kind]] = {word: kind for kind, words in _OF_KIND.items() for word in words.split()}
"""Value of ``type`` or ``transport``, in lower case and without ``-``, ``_`` and blanks → kind."""

_KEYS_OF_FIELD: Final = {
    **{name: name for name in ("args", "cwd", "server", "secret", "secret_file")},
    "env": "env environment",
    "env_from": "env_vars",
    "url": "url baseUrl endpoint httpUrl serverUrl uri",
    "headers": "headers http_headers",
    "auth": "auth bearer_token",
    "address": "socket",
}
TRANSPORT: Final[Mapping[str, str]] = {key: field for field, keys in _KEYS_OF_FIELD.items() for key in keys.split()}
"""Key → field of `Stdio`, `Http`, `Sse` or `Socket`."""

SERVER: Final[Mapping[str, str]] = {
    "required": "required",
    "title": "title",
    "startup_timeout_ms": "connect_timeout",
    "startup_timeout_sec": "connect_timeout",
    "tool_timeout_sec": "request_timeout",
}
"""Key → field of `ServerConfig`."""

COMMANDS: Final = ("command", "cmd")
"""The keys of the program to start."""

SWITCHES: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("enabled", "isActive", "active"), True),
    **dict.fromkeys(("disabled", "disable"), False),
}
"""Key → the value that enables the server."""

SHOWN_TOOLS: Final = ("enabled_tools", "includeTools", "tools")
HIDDEN_TOOLS: Final = ("disabled_tools", "excludeTools", "disabledTools")

OTHER_KEYS: Final = frozenset(
    {
        *(*COMMANDS, *SWITCHES, SETTINGS, "type", "transport", "oauth"),
        *("headersHelper", "bearer_token_env_var", "env_http_headers"),
    }
)
"""Further keys, each read in its own way."""

IGNORED: Final = frozenset(
    {
        *("autoStart", "description", "dev", "experimental_environment", "gallery", "icon", "icons", "installSource"),
        *("instructions", "metadata", "name", "networkTimeout", "oauth_resource", "scopes", "source"),
        *("supports_parallel_tool_calls", "tags", "version"),
    }
)
"""Keys that concern only what other programs ask, show or remember."""

UNSUPPORTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("alwaysAllow", "autoApprove", "default_tools_approval_mode", "tools", "trust"),
        "no call waits for approval, so hide tools with disabled_tools, or set the approval of an agent's adapter",
    ),
    "authProviderType": "give headers or a bearer token",
    "envFile": "set the variables before the start, and list those to pass on in mcp_actors.env_from",
    "requestInit": "give headers",
    "sandbox": "the server is not confined",
    "sandboxEnabled": "the server is not confined",
    "settings": "the settings of a Zed extension cannot be passed on",
    "timeout": (
        "some programs read it as seconds and others as milliseconds; set mcp_actors.request_timeout, in seconds"
    ),
}
"""Unsupported key of other programs → a remedy; ``tools`` only with an object as its value."""

KNOWN: Final = frozenset({*TRANSPORT, *SERVER, *SHOWN_TOOLS, *HIDDEN_TOOLS, *OTHER_KEYS, *IGNORED, *UNSUPPORTED})
WITH_EFFECT: Final = (KNOWN - IGNORED - UNSUPPORTED.keys()) | {"tools"}
"""Keys that this package uses."""

ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "a command": ("args", "cwd", "env", "env_from"),
    "a URL": ("headers", "auth"),
    "a socket": ("server", "secret", "secret_file"),
}
"""How a server is reached → fields that only such servers have."""


def is_unsupported(key: str, value: object) -> bool:
    """Return True for a key that is not supported with this value. An empty list asks for nothing."""
    return key in UNSUPPORTED and value != [] and (key != "tools" or isinstance(value, Mapping))


# --- The context of an entry ------------------------------------------------------------------------------------------


Remedy: TypeAlias = Callable[[object, Collection[str]], str]
"""Return what an unknown key may mean, given the known keys."""

_NAMED_KEYS: Final = 10  # unknown keys with a warning each


@attrs.frozen
class Surroundings:
    """The context of reading an entry.

    Attributes:
        origin: the absolute path of the file, for `ServerConfig.source`.
        variables: the values of ``${…}`` besides environment variables and inputs.
        warn: called with the place and the text of a warning.
        cwd: the directory for commands and relative directories; None for the current directory.
        only: the servers to ask inputs for, disabled or not; None for the enabled servers.
        connect_timeout: the field of this name, if an environment variable sets its value; else empty.
        of_vs_code: whether ``~`` is expanded in arguments.
        is_off: whether a list elsewhere in the file disables the server.
    """

    source: str
    origin: str
    variables: Mapping[str, str]
    inputs: Inputs
    warn: Callable[[str, str], None]
    cwd: str | None = None
    only: frozenset[str] | None = None
    connect_timeout: Mapping[str, float | None] = attrs.field(factory=dict)
    of_vs_code: bool = False
    program: Program = ANY
    is_off: bool = False

    def warn_of_unknown(self, place: str, given: Any, known: Collection[str], remedy: Remedy = did_you_mean) -> None:
        """Warn of the keys of an object that have no effect; ignore anything else."""
        keys = given if isinstance(given, Mapping) else ()
        unknown = [key for key in keys if key not in known and not is_comment(key)]
        for key in unknown[:_NAMED_KEYS]:
            self.warn(place, f"unknown key {shown_key(key)} has no effect{remedy(key, known)}")
        if len(unknown) > _NAMED_KEYS:
            self.warn(place, f"{len(unknown) - _NAMED_KEYS} more unknown keys have no effect")


# --- The values of an entry -------------------------------------------------------------------------------------------


_SETTING: Final = re.compile(r"\bset (?P<name>[a-z_]+)=(?P<value>True|False)\b")
"""A remedy in Python's syntax."""

_IN_JSON: Final = re.compile(r"(?<![\w'])(?:None|True|False)(?![\w'])")


@attrs.define
class Fields:
    """Arguments of a class, collected from keys that may set the same field.

    Attributes:
        values: field → value.
        keys: field → the place of its key.
    """

    source: str
    path: str
    values: dict[str, Any] = attrs.field(factory=dict)
    keys: dict[str, str] = attrs.field(factory=dict)

    def put(self, field: str, value: object, *keys: str) -> None:
        """Set a field; `keys` is the path of the value in the entry. Refuse a field that is already set."""
        place = self.path
        for key in keys:
            place = child(place, key)
        if field in self.values:
            earlier = self.keys[field].removeprefix(self.path).lstrip(".")
            later = place.removeprefix(self.path).lstrip(".")
            raise bad(self.source, self.path, f"{earlier!r} and {later!r} set the same option; remove one of them")
        self.values[field], self.keys[field] = value, place

    def translated(self, error: ConfigError, server: str) -> ConfigError:
        """Return an error that the class raised, with the place of the key that set the wrong value."""
        below = (error.path or "").removeprefix(f"servers.{server}.")
        field = re.split(r"[.\[]", below, maxsplit=1)[0]
        place = self.keys[field] + below.removeprefix(field) if field in self.keys else self.path
        return bad(self.source, place, _as_json(error.problem))


def _as_json(said: str) -> str:
    remedy = rf'set "{SETTINGS}": {{"\g<name>": \g<value>}}'
    return _IN_JSON.sub(lambda word: {"None": "null"}.get(word[0], word[0].lower()), _SETTING.sub(remedy, said))


# --- Settings under ``mcp_actors`` ------------------------------------------------------------------------------------


_IN_ENTRIES: Final = frozenset(
    {"name", "transport", "enabled", "source", "command", *TRANSPORT.values()} - {"env_from", "auth"}
)
"""Arguments set by the entry itself."""

IN_PYTHON: Final = frozenset({"callbacks", "client_info", "extensions", "http_client", "middleware", "predicate"})
"""Arguments that take functions or objects."""

_FIELD_CLASSES: Final[Mapping[str, type]] = {"breaker": BreakerPolicy, "restarts": RestartPolicy}
"""Classes of the fields whose default does not show the class."""

_OF_SERVER: Final = {attribute.name: attribute for attribute in attrs.fields(ServerConfig)}
_OF_TRANSPORT: Final = {attribute.name for kind in (Stdio, Http, Sse, Socket) for attribute in attrs.fields(kind)}
SETTABLE: Final = (_OF_SERVER.keys() | _OF_TRANSPORT) - _IN_ENTRIES - IN_PYTHON


def read_settings(settings: object, server: Fields, transport: Fields) -> None:
    """Store the settings of a server and its transport. Refuse an unknown key: no other program reads this section."""
    source, path = server.source, child(server.path, SETTINGS)
    for key, value in _items(source, path, settings, 'an object like {"request_timeout": 60}'):
        if key in _IN_ENTRIES:
            problem = f"this belongs in the entry itself, next to {SETTINGS!r}; move it there"
            raise bad(source, child(path, key), problem)
        if key not in SETTABLE:
            raise _unknown(source, path, key, SETTABLE)
        if key in _OF_SERVER:
            server.put(key, _value(source, child(path, key), _OF_SERVER[key], value), SETTINGS, key)
        else:
            transport.put(key, value, SETTINGS, key)


def home_of(key: object) -> str:
    """Return where a key belongs; empty if unknown, or part of several settings' names."""
    if key in SETTABLE or key in IN_PYTHON:
        return "only in Python" if key in IN_PYTHON else f'as "{SETTINGS}": {{"{key}": …}}'
    if len(names_containing(str(key), SETTABLE)) > 1:
        return ""
    kinds = {name: _class_of(each) for name, each in _OF_SERVER.items() if name in SETTABLE}
    homes = [name for name, kind in kinds.items() if attrs.has(kind) and key in attrs.fields_dict(kind)]
    return " or ".join(f'as "{SETTINGS}": {{"{home}": {{"{key}": …}}}}' for home in homes)


def _unknown(source: str, path: str, key: object, known: Collection[str]) -> ConfigError:
    home = home_of(key)
    hint = f" here; write it {home}" if home else did_you_mean(key, known) or "; remove it"
    return bad(source, path, f"{shown_key(key)} is not a setting{hint}")


def _class_of(attribute: attrs.Attribute[Any]) -> type:
    return _FIELD_CLASSES.get(attribute.name, type(attribute.default))


def _value(source: str, path: str, attribute: attrs.Attribute[Any], value: object) -> object:
    if attrs.has(kind := _class_of(attribute)):
        return value if value is None and attribute.default is None else _object(source, path, kind, value)
    return tuple(value) if isinstance(value, list) else value


def _object(source: str, path: str, kind: type, settings: object) -> object:
    attributes = {attribute.name: attribute for attribute in attrs.fields(kind)}
    given = {}
    expected = ", ".join(name for name in attributes if name not in IN_PYTHON)
    for key, value in _items(source, path, settings, f"an object with settings ({expected})"):
        if key not in attributes:
            raise _unknown(source, path, key, attributes)
        given[key] = _value(source, child(path, key), attributes[key], value)
    try:
        return kind(**given)
    except ConfigError as error:
        raise bad(source, path, _as_json(error.problem)) from None


def _items(source: str, path: str, settings: object, expected: str) -> Iterator[tuple[Any, Any]]:
    """Yield the items of an object with settings; refuse keys for Python objects."""
    for key, value in as_object(source, path, settings, expected).items():
        if key in IN_PYTHON:
            problem = "a file cannot hold the Python objects that this takes; set it in Python"
            raise bad(source, child(path, key), problem)
        yield key, value


# --- Sign-in ----------------------------------------------------------------------------------------------------------


OF_OAUTH: Final[Mapping[str, str]] = {
    "account": "account",
    "assume_pkce": "assumePkce",
    "client_id": "clientId",
    "client_metadata_url": "clientMetadataUrl",
    "client_secret": "clientSecret",
    "grant": "grantType",
    "issuer": "issuer",
    "redirect": "redirectUri",
    "scopes": "scopes",
    "send_resource": "sendResource",
}
"""Argument of `OAuth` → its key in an entry."""

OAUTH_FIELDS: Final[Mapping[str, str]] = {
    **{key.lower(): name for name, key in OF_OAUTH.items()},
    **dict.fromkeys(("redirecturl", "callbackport"), "redirect"),
    "scope": "scopes",
}
"""Key, in lower case and without underscores → the argument of `OAuth`."""

_WORD: Final = "oauth"


def is_oauth(key: str, value: object) -> bool:
    """Return True if a value describes a sign-in. A word under ``auth`` is a token, except ``"oauth"`` or a typo."""
    return key == "oauth" or (key == "auth" and (nearest(value, [_WORD]) is not None or isinstance(value, Mapping)))


def read_oauth(value: object, place: str, around: Surroundings) -> OAuth | None:
    """Return how to sign in; None if the entry turns the sign-in off."""
    if value is False or (isinstance(value, Mapping) and value.get("enabled") is False):
        return None
    if value is True or (isinstance(value, str) and value.lower() == _WORD):
        return OAuth()
    if nearest(value, [_WORD]) is not None:
        # A misspelled word would be sent as a token. No real token looks like "oauth", so show the word.
        problem = f'found {shown_key(value)}; write "oauth" to sign in, or a token like this in the headers'
        raise bad(around.source, place, problem)
    if not isinstance(value, Mapping):
        raise bad(around.source, place, f'found {found(value)}; write "oauth", or an object like {{"clientId": "…"}}')
    fields: dict[str, Any] = {}
    places: dict[str | None, str] = {}
    for key, each in value.items():
        where, field = child(place, str(key)), OAUTH_FIELDS.get(_word(key))
        if field is not None:
            fields[field] = _redirect(around.source, where, each) if _word(key) == "callbackport" else each
            places[field] = where
    # "type" and "enabled" only say that there is a sign-in.
    known = {*filter(lambda key: _word(key) in OAUTH_FIELDS, value), *OAUTH_FIELDS, "type", "enabled"}
    around.warn_of_unknown(place, value, known)
    try:
        return OAuth(**fields)
    except ConfigError as error:
        raise bad(around.source, places.get(error.path, place), error.problem) from None


def _word(key: object) -> str:
    return re.sub("[-_]", "", str(key)).lower()


def _redirect(source: str, place: str, port: object) -> str:
    if type(port) is not int or not 0 < port < 2**16:
        raise bad(source, place, f"found {found(port)}; write the number of a port, from 1 to 65535")
    return f"http://localhost:{port}/callback"


# --- Lists of tools ---------------------------------------------------------------------------------------------------


def read_tools(entry: Mapping[str, Any], server: Fields) -> None:
    """Store the filter of shown and hidden tools. A tool in both lists is hidden."""
    shown, hidden = (_listed(entry, keys, server) for keys in (SHOWN_TOOLS, HIDDEN_TOOLS))
    if shown is None and not hidden:
        return
    key = next(key for key in (*SHOWN_TOOLS, *HIDDEN_TOOLS) if entry.get(key) is not None)
    denied = set(hidden or ())
    allow = None if shown is None else [name for name in shown if name not in denied]
    names = None if allow is None else [name for name in allow if not GLOB.search(name)]
    patterns = [name for name in allow or () if GLOB.search(name)]
    patterns += [f"!{name}" for name in denied if GLOB.search(name)]
    deny = [name for name in hidden or () if not GLOB.search(name)]
    try:
        server.put("tool_filter", ToolFilter(allow=names, deny=deny, patterns=patterns or None), key)
    except ConfigError as error:
        if error.source == server.source:
            raise
        raise bad(server.source, child(server.path, key), str(error)) from None


def _listed(entry: Mapping[str, Any], keys: tuple[str, ...], server: Fields) -> list[str] | None:
    given = [key for key in keys if entry.get(key) is not None and not is_unsupported(key, entry[key])]
    if len(given) > 1:
        raise bad(server.source, server.path, f"{given[0]!r} and {given[1]!r} set the same option; remove one of them")
    if not given:
        return None
    place, value = child(server.path, given[0]), entry[given[0]]
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        raise bad(server.source, place, f"found {found(value)}; write a list of names of tools")
    return list(dict.fromkeys(value))
