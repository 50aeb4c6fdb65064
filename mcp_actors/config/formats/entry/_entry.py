"""Convert one entry of a file into a `ServerConfig`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final

from ...._errors import ConfigError
from ..._server import ServerConfig
from ...transports import INTERPRETERS, Kind
from .._places import bad, child, found, nearest, repeated, shown_key
from ..file import repeated_keys
from . import _keys
from ._fields import Fields
from ._kinds import kind_of, leave_out_unsuited
from ._oauth import is_oauth, read_oauth
from ._paths import locate
from ._settings import IN_PYTHON, SETTABLE, read_settings
from ._surroundings import Surroundings
from ._tools import read_tools
from ._variables import transport_of

_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE: Final = re.compile(r"\s")
_BARE_VARIABLE: Final = re.compile(r"\$[A-Z_][A-Z0-9_]*")
_NAMED: Final = 10  # unknown keys that get a warning each
_MAY_BE_UNBOUNDED: Final = (
    *("connect_timeout", "startup_timeout", "request_timeout", "progress_timeout"),
    *("idle_timeout", "max_lifetime"),
)


def read_entry(name: str, entry: object, path: str, around: Surroundings) -> ServerConfig:
    """Make the configuration of one server.

    Raises:
        ConfigError: the entry is not valid; the message names the key, what was found, and what is expected.
    """
    entry, kind = _as_mapping(entry, path, around.source)
    server, transport = Fields(around.source, path), Fields(around.source, path)
    given = {key: value for key, value in entry.items() if value is not None}
    for key in given:
        if key in _keys.KNOWN:
            _read_key(key, given[key], server, transport, around)
    _warn_of_unknown([key for key in given if key not in _keys.KNOWN], path, around)
    read_tools(entry, server)
    _read_credentials(entry, transport)
    if _keys.SETTINGS in entry:
        read_settings(entry[_keys.SETTINGS], server, transport)
    kind = kind or kind_of(entry, transport)
    leave_out_unsuited(kind, transport, around.warn)
    if kind in ("stdio", "script"):
        locate(transport, around)
    for field in _MAY_BE_UNBOUNDED:
        # TOML has no null, so files have 0 for "no limit".
        if server.values.get(field) == 0 and not isinstance(server.values[field], bool):
            server.values[field] = None
    server.values.update(around.connect_timeout)
    enabled = is_enabled(entry, path, around.source)
    try:
        made = transport_of(kind, transport, around, wanted=around.is_wanted(name, enabled=enabled))
    except ConfigError as error:
        if error.source == around.source:
            raise
        raise transport.translated(error, name) from error.__cause__
    try:
        return ServerConfig(name, made, enabled=enabled, source=around.origin, **server.values)
    except ConfigError as error:
        raise server.translated(error, name) from error.__cause__


def is_enabled(entry: Mapping[str, Any], path: str, source: str) -> bool:
    """Return whether a server is enabled, by either of the keys ``enabled`` and ``disabled``.

    Raises:
        ConfigError: a value is not a bool, or the two contradict each other.
    """
    for key in ("enabled", "disabled"):
        if not isinstance(entry.get(key, False), bool | None):
            raise bad(source, child(path, key), f"found {found(entry[key])}; write true or false")
    enabled, disabled = entry.get("enabled"), entry.get("disabled")
    if enabled is not None and enabled is disabled:
        raise bad(source, path, f"'enabled' and 'disabled' are both {str(enabled).lower()}; remove one of them")
    return enabled is not False and disabled is not True


def _as_mapping(entry: object, path: str, source: str) -> tuple[Mapping[str, Any], Kind | None]:
    """Return an entry as a mapping; a str is short for a URL or a script without further settings."""
    if isinstance(entry, str):
        if "://" in entry:
            return {"url": entry}, None
        if PurePath(entry).suffix in INTERPRETERS:
            return {"command": entry}, "script"
        endings = ", ".join(INTERPRETERS)
        raise bad(
            source, path, f"found {found(entry)}; a string must be a URL or a script ({endings}); else write {{…}}"
        )
    if not isinstance(entry, Mapping):
        raise bad(source, path, f"found {found(entry)}; write an object with 'command' or 'url'")
    if twice := repeated_keys(entry):
        raise repeated(source, path, twice)
    return entry, None


def _warn_of_unknown(keys: list[object], path: str, around: Surroundings) -> None:
    for key in keys[:_NAMED]:
        around.warn(path, f"unknown key {shown_key(key)} has no effect{_remedy(key)}")
    if len(keys) > _NAMED:
        around.warn(path, f"{len(keys) - _NAMED} more unknown keys have no effect")


def _remedy(key: object) -> str:
    """Say where a setting belongs that is written in the entry itself, or what a misspelled key may mean."""
    near = nearest(key, _keys.KNOWN | SETTABLE | IN_PYTHON)
    if near is None:
        return ""
    if near in _keys.KNOWN:
        return f" (did you mean {near!r}?)"
    place = "only in Python" if near in IN_PYTHON else f'as "{_keys.SETTINGS}": {{"{near}": …}}'
    return f"; set {near} {place}" if near == key else f" (did you mean {near!r}?); set that {place}"


def _read_key(key: str, value: Any, server: Fields, transport: Fields, around: Surroundings) -> None:
    """Store the value of one key in the field that it sets, or warn that the key has no effect."""
    if key in _keys.NOT_DONE:
        around.warn(child(server.path, key), f"this is not supported and has no effect; {_keys.NOT_DONE[key]}")
    elif is_oauth(key, value):
        auth = read_oauth(value, child(transport.path, key), around)
        if auth is not None:
            transport.put("auth", auth, key)
    elif key == "command":
        _read_command(value, transport, around)
    elif key in _keys.TRANSPORT:
        taken = _converted(key, value, child(transport.path, key), around)
        transport.put(_keys.TRANSPORT[key], taken, key)
    elif key in _keys.SERVER:
        in_seconds = value / 1000 if key.endswith("_ms") and type(value) in (int, float) else value
        server.put(_keys.SERVER[key], in_seconds, key)


def _read_command(value: object, transport: Fields, around: Surroundings) -> None:
    """Store a command, which is an object in old files of Zed."""
    place = child(transport.path, "command")
    if isinstance(value, (list, tuple)):
        raise bad(around.source, place, f"found {found(value)}; write the program here, and the rest in 'args'")
    if not isinstance(value, Mapping):
        transport.put("command", value, "command")
        return
    for key, field in (("path", "command"), ("args", "args"), ("env", "env")):
        if value.get(key) is not None:
            transport.put(field, _converted(key, value[key], child(place, key), around), "command", key)


def _args(value: object, place: str, around: Surroundings) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise bad(around.source, place, f"found {found(value)}; write a list of strings")
    return value


def _names(value: object, place: str, around: Surroundings) -> list[str]:
    """Return the names of variables to pass on; in files of Codex they may be objects."""
    names = [each.get("name") if isinstance(each, Mapping) else each for each in _args(value, place, around)]
    return [_variable(name, child(place, index), around.source) for index, name in enumerate(names)]


def _texts(value: object, place: str, around: Surroundings) -> dict[str, Any]:
    """Return a mapping of names to strings. Numbers become strings; null, as in VS Code, leaves a name out."""
    if not isinstance(value, Mapping):
        raise bad(around.source, place, f'found {found(value)}; write an object like {{"NAME": "value"}}')
    if twice := repeated_keys(value):
        raise repeated(around.source, place, twice)
    texts = {}
    for name, each in value.items():
        if isinstance(name, str) and _SPACE.search(name):
            # "Authorization: Bearer …" as a name is a likely mistake, and its credential must not be shown.
            first = shown_key(_SPACE.split(name, maxsplit=1)[0])
            raise bad(
                around.source, place, f'a name that begins with {first} contains whitespace; write {{"NAME": "value"}}'
            )
        if isinstance(each, (bool, list, Mapping)):
            raise bad(around.source, child(place, name), f"found {found(each)}; write a string, in quotes")
        if isinstance(each, str) and _BARE_VARIABLE.fullmatch(each):
            around.warn(
                child(place, name), "this is not expanded without braces; write ${NAME} for the value of a variable"
            )
        if each is not None:
            texts[name] = str(each) if isinstance(each, (int, float)) else each
    return texts


_CONVERTERS: Final[Mapping[str, Callable[[object, str, Surroundings], object]]] = {
    "args": _args,
    "env": _texts,
    "env_vars": _names,
    "headers": _texts,
    "http_headers": _texts,
}


def _converted(key: str, value: object, place: str, around: Surroundings) -> object:
    convert = _CONVERTERS.get(key)
    return value if convert is None else convert(value, place, around)


def _read_credentials(entry: Mapping[str, Any], transport: Fields) -> None:
    """Store the credentials of Codex: names of environment variables instead of values."""
    variable = entry.get("bearer_token_env_var")
    if variable is not None:
        place = child(transport.path, "bearer_token_env_var")
        transport.put("auth", f"${{{_variable(variable, place, transport.source)}}}", "bearer_token_env_var")
    from_environment = entry.get("env_http_headers")
    if from_environment is None:
        return
    place = child(transport.path, "env_http_headers")
    if not isinstance(from_environment, Mapping):
        raise bad(transport.source, place, f"found {found(from_environment)}; write an object with strings as values")
    headers = dict(transport.values.get("headers", {}))
    for name, variable in from_environment.items():
        if name in headers:
            raise bad(transport.source, place, f"{shown_key(name)} is also in the headers; remove one of them")
        headers[name] = f"${{{_variable(variable, child(place, name), transport.source)}}}"
    transport.values["headers"] = headers
    transport.keys.setdefault("headers", place)


def _variable(name: object, place: str, source: str) -> str:
    if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name):
        raise bad(source, place, f"found {found(name)}; write the name of an environment variable")
    return name
