"""Read the settings of this package, under the key ``mcp_actors``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
"""Arguments that the entry itself sets."""

IN_PYTHON: Final = frozenset({"callbacks", "client_info", "extensions", "http_client", "middleware", "predicate"})
"""Arguments that take functions or objects."""

_OPTIONAL: Final[Mapping[str, type]] = {"breaker": BreakerPolicy}
"""Optional fields and their classes; the class of any other field is that of its default."""

_OF_SERVER: Final = {attribute.name: attribute for attribute in attrs.fields(ServerConfig)}
_OF_TRANSPORT: Final = {attribute.name for kind in (Stdio, Http, Sse) for attribute in attrs.fields(kind)}
SETTABLE: Final = (_OF_SERVER.keys() | _OF_TRANSPORT) - _IN_ENTRIES - IN_PYTHON


def read_settings(settings: object, server: Fields, transport: Fields) -> None:
    """Store the settings in the fields of a server and of its transport.

    An unknown key is an error, unlike in the rest of the entry, because no other program reads these settings.

    Raises:
        ConfigError: a key is unknown, or its value has the wrong type.
    """
    source, path = server.source, child(server.path, SETTINGS)
    for key, value in _items(source, path, settings):
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
    """Convert a value for its field: a mapping into an object of the field's class, a list into a tuple."""
    kind: type = _OPTIONAL.get(attribute.name, type(attribute.default))
    if attrs.has(kind):
        return value if value is None and attribute.name in _OPTIONAL else _object(source, path, kind, value)
    return tuple(value) if isinstance(value, list) else value


def _object(source: str, path: str, kind: type, settings: object) -> object:
    """Make an object of an attrs class from a mapping of its arguments."""
    attributes = {attribute.name: attribute for attribute in attrs.fields(kind)}
    given = {}
    for key, value in _items(source, path, settings):
        if key not in attributes:
            raise bad(source, path, f"{shown_key(key)} is not a setting{did_you_mean(key, attributes)}; remove it")
        given[key] = _value(source, child(path, key), attributes[key], value)
    try:
        return kind(**given)
    except ConfigError as error:
        raise bad(source, path, str(error).removeprefix(f"{error.source}: ")) from None


def _items(source: str, path: str, settings: object) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values of an object with settings, unless a file cannot hold one."""
    if not isinstance(settings, Mapping):
        raise bad(source, path, f"found {found(settings)}; write an object with settings")
    if twice := repeated_keys(settings):
        raise repeated(source, path, twice)
    for key, value in settings.items():
        if key in IN_PYTHON:
            raise bad(
                source, child(path, key), "a file cannot hold the Python objects that this takes; set it in Python"
            )
        yield key, value
