"""What stands under ``mcp_actors`` in an entry: every argument of `ServerConfig` and of its transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...._errors import ConfigError
from ..._server import ServerConfig
from ...policies import BreakerPolicy
from ...transports import Http, Sse, Stdio
from .._places import bad, child, did_you_mean, found, repeated, shown_key
from ..file import repeated_keys
from ._fields import Fields
from ._keys import SETTINGS, TRANSPORT

_IN_ENTRIES: Final = frozenset(
    {"name", "transport", "enabled", "source", "command", *TRANSPORT.values()} - {"env_from", "auth"}
)
"""What the entry itself says."""

_IN_PYTHON: Final = frozenset({"callbacks", "extensions", "http_client", "middleware", "predicate"})
"""What takes functions and objects."""

_OPTIONAL: Final[Mapping[str, type]] = {"breaker": BreakerPolicy}
"""Fields that hold an object of these classes, or None. What a field holds by default tells that of all others."""

_OF_SERVER: Final = {attribute.name: attribute for attribute in attrs.fields(ServerConfig)}
_OF_TRANSPORT: Final = {attribute.name for kind in (Stdio, Http, Sse) for attribute in attrs.fields(kind)}
SETTABLE: Final = (_OF_SERVER.keys() | _OF_TRANSPORT) - _IN_ENTRIES - _IN_PYTHON


def read_settings(settings: object, server: Fields, transport: Fields) -> None:
    """Add what `settings` says to the fields of a server and of its transport.

    Unlike keys of other programs, a key that is not known is an error here: nobody else reads it.

    Raises:
        ConfigError: a key is not known, or its value has the wrong shape.
    """
    source, path = server.source, child(server.path, SETTINGS)
    for key, value in _items(source, path, settings):
        if key in _IN_PYTHON:
            raise bad(
                source, child(path, key), "a file cannot hold the Python objects that this takes; set it in Python"
            )
        if key in _IN_ENTRIES:
            raise bad(
                source, child(path, key), f"this belongs in the entry itself, next to {SETTINGS!r}; move it there"
            )
        if key not in SETTABLE:
            raise bad(source, path, f"{shown_key(key)} is not a setting{did_you_mean(key, SETTABLE)}")
        if key in _OF_SERVER:
            server.put(key, _value(source, child(path, key), _OF_SERVER[key], value), SETTINGS, key)
        else:
            transport.put(key, value, SETTINGS, key)


def _value(source: str, path: str, attribute: attrs.Attribute[Any], value: object) -> object:
    """Return a value as its field takes it: an object of the field's class, a tuple for a list."""
    kind: type = _OPTIONAL.get(attribute.name, type(attribute.default))
    if attrs.has(kind):
        return value if value is None and attribute.name in _OPTIONAL else _object(source, path, kind, value)
    return tuple(value) if isinstance(value, list) else value


def _object(source: str, path: str, kind: type, settings: object) -> object:
    """Make an object of an attrs class from a mapping of its arguments."""
    attributes = {attribute.name: attribute for attribute in attrs.fields(kind)}
    given = {}
    for key, value in _items(source, path, settings):
        if key in _IN_PYTHON:
            raise bad(
                source, child(path, key), "a file cannot hold the Python objects that this takes; set it in Python"
            )
        if key not in attributes:
            raise bad(source, path, f"{shown_key(key)} is not one of its settings{did_you_mean(key, attributes)}")
        given[key] = _value(source, child(path, key), attributes[key], value)
    try:
        return kind(**given)
    except ConfigError as error:
        raise bad(source, path, str(error).removeprefix(f"{error.source}: ")) from None


def _items(source: str, path: str, settings: object) -> list[tuple[Any, Any]]:
    if not isinstance(settings, Mapping):
        raise bad(source, path, f"found {found(settings)}; write an object with settings")
    if twice := repeated_keys(settings):
        raise repeated(source, path, twice)
    return list(settings.items())
