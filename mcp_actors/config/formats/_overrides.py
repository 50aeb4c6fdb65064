"""Apply the environment variables that override single values (``MCP_ACTORS__…``).

``MCP_ACTORS__<SERVER>__<FIELD>`` or ``…__<FIELD>__<KEY>``: names in upper case, with ``_`` for every character that a
variable cannot have. Two servers, or a server and a field, may so have the same name in a variable; such a variable is
refused, and never applied to the first server that fits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from ..._errors import ConfigError
from ._places import did_you_mean
from .entry import SERVER, SETTABLE, SETTINGS, TRANSPORT

PREFIX: Final = "MCP_ACTORS__"

_TEXTS: Final = frozenset({"command", "cwd", "url", "type"})
_SECRETS: Final = frozenset({"env", "headers", "auth"})
_IN_ENTRY: Final = _TEXTS | _SECRETS | {"args", "enabled", "required"}
_FIELDS: Final = {field.upper(): field for field in _IN_ENTRY | SETTABLE}

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "auth": ("bearer_token", "bearer_token_env_var", "oauth"),
    "enabled": ("disabled",),
    "type": ("transport",),
}


@attrs.frozen
class Override:
    """A variable that fits a server: the field that it sets, and the key in it (empty for the field itself)."""

    variable: str
    server: str
    field: str
    key: str = ""


def apply_overrides(server: str, entry: object, environ: Mapping[str, str]) -> tuple[object, tuple[str, ...]]:
    """Return an entry with the values that the environment overrides, and the names of these variables."""
    found = [each for each in _fitting(server, environ) if each.field]
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
    """Return the error of each variable that fits no server or field, or more than one.

    Args:
        servers: the names of all servers.
        environ: the environment.

    Returns:
        The errors by the name of the variable; or, if it fits several servers, by the name of each of them.
    """
    failed = {}
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        fits = [each for server in servers for each in _fitting(server, environ) if each.variable == variable]
        known = [each for each in fits if each.field]
        names = " and ".join(repr(each.server) for each in known or fits)
        if len(known) > 1:
            problem = f"this fits the servers {names}; rename one of them"
        elif known:
            continue
        elif fits:
            word = variable.removeprefix(f"{PREFIX}{_normal(fits[0].server)}__").partition("__")[0]
            near = did_you_mean(word, _FIELDS)
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


def _fitting(server: str, environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the variables that begin with a server; those that name no field of it have an empty field."""
    prefix = f"{PREFIX}{_normal(server)}__"
    for variable in sorted(environ):
        if variable.startswith(prefix):
            word, _, key = variable.removeprefix(prefix).partition("__")
            yield Override(variable, server, _FIELDS.get(word, ""), key)


def _apply(entry: dict[str, Any], override: Override, text: str) -> None:
    field, key = override.field, override.key
    # A credential is referred to, so that it is resolved at each connect, masked by its name, and never written down.
    value = f"${{{override.variable}}}" if field in _SECRETS else text if field in _TEXTS else _value(text)
    settings = entry.get(SETTINGS)
    settings = dict(settings) if isinstance(settings, Mapping) else {}
    into = entry if field in _IN_ENTRY else settings
    if key:
        value = _with(into.get(field), field, key, value)
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
    """Yield the keys that set a field, in the words of every program."""
    yield field
    yield from _SYNONYMS.get(field, ())
    yield from (key for keys in (TRANSPORT, SERVER) for key, target in keys.items() if target == field)


def _with(within: object, field: str, key: str, value: object) -> dict[str, object]:
    """Return an object with one value changed, under the spelling of the key that it has there."""
    values = dict(within) if isinstance(within, Mapping) else {}
    spelled = next((name for name in values if isinstance(name, str) and _normal(name) == key), None)
    if spelled is None:
        spelled = key if field == "env" else key.replace("_", "-") if field == "headers" else key.lower()
    return {**values, spelled: value}


def _value(text: str) -> object:
    """Return a value as JSON, and a word that is not JSON as a str."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
