"""Find the variables of an entry, and make its transport."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from ...._errors import ConfigError
from ...transports import Kind, Transport, TransportTemplate, make_transport
from ...values import INPUT, parse, references
from .._places import bad, child
from ._fields import Fields
from ._surroundings import Surroundings


def transport_of(kind: Kind, fields: Fields, around: Surroundings, *, wanted: bool) -> Transport:
    """Make the transport itself if it can resolve all variables on its own, else a template."""
    used: set[str] = set()
    everywhere = False
    known = _Nameable(around.variables)
    for field, place, text in _all_texts(fields):
        parts = parse(text, where=place, variables=known)
        used |= {reference.text for reference in references(parts) if reference.text in known}
        everywhere |= len(parts) > 1 and field not in ("env", "headers", "auth")
    if not used and not everywhere:
        return make_transport(kind, fields.values)
    return TransportTemplate(kind, fields.values, _values_of(used, fields, around, wanted=wanted))


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
class _Nameable:
    """The names that are valid besides environment variables: those that the file defines, and any input."""

    variables: Mapping[str, str]

    def __contains__(self, text: object) -> bool:
        return text in self.variables or (isinstance(text, str) and INPUT.fullmatch(text) is not None)
