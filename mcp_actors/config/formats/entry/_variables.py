"""Find the variables of an entry, and make its transport."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from ...._errors import ConfigError
from ...transports import Kind, Transport, TransportTemplate, make_transport
from ...values import FROM_FILE, INPUT, parse, references
from .._places import bad, child
from ._fields import Fields
from ._surroundings import Surroundings

_RESOLVED: Final = ("env", "headers", "auth")
"""The fields whose variables a transport resolves on its own."""


def transport_of(kind: Kind, fields: Fields, around: Surroundings, *, wanted: bool) -> Transport:
    """Make the transport itself if it can resolve all variables on its own, else a template."""
    _pass_on(fields, around)
    used: set[str] = set()
    everywhere = False
    known = Nameable(around.variables)
    for field, place, text in _all_texts(fields):
        found = [*references(parse(text, where=place, variables=known))]
        for reference in found:
            used |= {text for text in (reference.text, f"{FROM_FILE}{reference.name}") if text in known}
        everywhere |= bool(found) and field not in _RESOLVED
    if not used and not everywhere:
        return make_transport(kind, _unescaped(fields))
    return TransportTemplate(kind, fields.values, _values_of(used, fields, around, wanted=wanted))


def _pass_on(fields: Fields, around: Surroundings) -> None:
    """Set the variables to pass on that only a ``.env`` file has; a process gets the others from this one."""
    names = fields.values.get("env_from", ())
    if isinstance(names, (list, tuple)):
        ours = [name for name in names if f"{FROM_FILE}{name}" in around.variables]
        if ours:
            fields.values["env_from"] = [name for name in names if name not in ours]
            fields.values["env"] = {**{name: f"${{{name}}}" for name in ours}, **fields.values.get("env", {})}


def _unescaped(fields: Fields) -> dict[str, Any]:
    """Return the values without variables as `Stdio` and `Http` take them, where ``${`` is not special."""
    values = dict(fields.values)
    for field in ("command", "cwd", "url"):
        if isinstance(values.get(field), str):
            values[field] = _plain(values[field])
    if isinstance(values.get("args"), (list, tuple)):
        values["args"] = [_plain(each) if isinstance(each, str) else each for each in values["args"]]
    return values


def _plain(text: str) -> str:
    return "".join(map(str, parse(text, where="")))


def _all_texts(fields: Fields) -> Iterator[tuple[str, str, str]]:
    """Yield each string that may contain variables: its field, its place and the string."""
    for field in ("command", "cwd", "url", "auth", "args", "env", "headers"):
        value = fields.values.get(field)
        if isinstance(value, str):
            yield field, field, value
        elif isinstance(value, (list, tuple)) and field == "args":
            yield from ((field, f"{field}[{index}]", each) for index, each in enumerate(value) if isinstance(each, str))
        elif isinstance(value, Mapping):
            yield from ((field, child(field, name), each) for name, each in value.items() if isinstance(each, str))


def _values_of(used: set[str], fields: Fields, around: Surroundings, *, wanted: bool) -> dict[str, str]:
    """Return the values of variables that are not environment variables; skip the inputs of an unwanted server."""
    values = {}
    for text in sorted(used):
        asked = INPUT.fullmatch(text)
        if asked is None:
            values[text] = around.variables[text]
        elif wanted:
            try:
                values[text] = around.inputs.variable(asked["id"])
            except ConfigError as error:
                raise bad(fields.source, fields.path, str(error)) from error.__cause__
    return values


@attrs.frozen
class Nameable:
    """The names that are valid besides environment variables: those that the file defines, and any input."""

    variables: Mapping[str, str]

    def __contains__(self, text: object) -> bool:
        return text in self.variables or (isinstance(text, str) and INPUT.fullmatch(text) is not None)
