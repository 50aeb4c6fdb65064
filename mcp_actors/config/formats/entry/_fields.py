"""The values that an entry sets, and the key of each."""

from __future__ import annotations

import re
from typing import Any, Final

import attrs

from ...._errors import ConfigError
from .._places import bad, child
from ._keys import SETTINGS

_SETTING: Final = re.compile(r"\bset (?P<name>[a-z_]+)=(?P<value>True|False)\b")
"""A remedy in Python's syntax."""


@attrs.define
class Fields:
    """Values for the arguments of a class, collected from keys that may set the same field.

    Attributes:
        source: the file, for messages.
        path: the place of the entry in it.
        values: field → value.
        keys: field → the place of the key that gave it.
    """

    source: str
    path: str
    values: dict[str, Any] = attrs.field(factory=dict)
    keys: dict[str, str] = attrs.field(factory=dict)

    def put(self, field: str, value: object, *keys: str) -> None:
        """Set a field; `keys` is the path of the value in the entry.

        Raises:
            ConfigError: another key has set the field already.
        """
        place = self.path
        for key in keys:
            place = child(place, key)
        if field in self.values:
            earlier = self.keys[field].removeprefix(self.path).lstrip(".")
            later = place.removeprefix(self.path).lstrip(".")
            raise bad(self.source, self.path, f"{earlier!r} and {later!r} set the same option; remove one of them")
        self.values[field], self.keys[field] = value, place

    def drop(self, field: str) -> Any:
        """Remove a field and return its value."""
        self.keys.pop(field)
        return self.values.pop(field)

    def translated(self, error: ConfigError, server: str) -> ConfigError:
        """Translate an error of a class into one of this file, at the place of the key that set the value."""
        below = (error.path or "").removeprefix(f"servers.{server}.")
        field = re.split(r"[.\[]", below, maxsplit=1)[0]
        place = self.keys[field] + below.removeprefix(field) if field in self.keys else self.path
        said = str(error)
        for owner in (f"{error.source}: ", f"server {server!r}: ", f"{error.path}: "):
            said = said.removeprefix(owner)
        return bad(self.source, place, _SETTING.sub(_as_json, said))


def _as_json(setting: re.Match[str]) -> str:
    return f'set "{SETTINGS}": {{"{setting["name"]}": {setting["value"].lower()}}}'
