"""Parse and expand variables (``${…}``) in strings.

Parsing needs no values, so malformed variables are refused when a file is loaded. Expanding uses the values of the
moment, at each connect.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from ..._errors import ConfigError

MAX_DEPTH: Final = 16
"""Nesting depth of defaults. Four are rare; without a limit a hostile file could exhaust the stack."""

MAX_EXPANDED: Final = 1024 * 1024
"""Characters of an expanded string. Linux accepts an eighth of that as one argument; without a limit, many references
to a long variable would fill the memory."""

MAX_REFERENCES: Final = 1000
"""References in one string, including those in defaults. Ten are rare; parsing a million takes half a minute."""

NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})

_REFERENCE: Final = re.compile(r"\$?\$\{")
_BRACE: Final = re.compile(r"\$\{|\}")
_VARIABLE: Final = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
FROM_FILE: Final = "env:"
"""The beginning of a name in ``variables`` of the value for an environment variable that is not set."""

INPUT: Final = re.compile(r"input:(?P<id>[\w.-]{1,64})")


@attrs.frozen
class Reference:
    """One ``${…}``: `text` is everything between the braces, `default` the parsed rest after ``:-``, or None."""

    text: str
    name: str
    default: tuple[Part, ...] | None = None


Part: TypeAlias = str | Reference


def expand(text: str, environ: Mapping[str, str], *, where: str, variables: Mapping[str, str] = NO_VARIABLES) -> str:
    """Replace the references in `text` with their values.

    ``${VAR}`` or ``${env:VAR}`` is the value of an environment variable, which must be set but may be empty.
    ``${VAR:-default}`` is the default if the variable is unset or empty, as in a shell; a default may contain
    references. ``$${`` is a literal ``${``, and any other ``$`` is literal. Values are not expanded again, so there are
    no cycles.

    Args:
        text: the string as it was configured.
        environ: the environment variables, usually ``os.environ``.
        where: the place in the configuration, for the message; for example ``"servers.docs.env.TOKEN"``.
        variables: more values, by the text between the braces. They take precedence over environment variables, except
            for names that begin with ``env:``.

    Raises:
        ConfigError: a variable is not set and has no default, a reference is malformed, or the result is too long. The
            message names the variable and `where`, and shows nothing else of the string.
    """
    expanded = "".join(_values(parse(text, where=where, variables=variables), environ, variables, where))
    if len(expanded) > MAX_EXPANDED:
        raise _bad(
            where, f"the string is longer than {MAX_EXPANDED} characters after its variables are expanded; shorten it"
        )
    return expanded


def parse(text: str, *, where: str, variables: Container[str] = NO_VARIABLES) -> tuple[Part, ...]:
    """Split `text` into literal pieces and references.

    Args:
        text: the string as it was configured.
        where: the place in the configuration, for the message.
        variables: names that are valid between the braces besides environment variables.

    Raises:
        ConfigError: a reference is malformed or names an unknown input, or there are too many references.
    """
    if text.count("${") > MAX_REFERENCES:
        raise _bad(where, f"there are more than {MAX_REFERENCES} variables ${{…}} in one string; use fewer")
    return tuple(_parts(text, where, variables, 0))


def literal(text: str) -> str:
    """Return a string that expands to `text`."""
    return text.replace("${", "$${")


def references(parts: tuple[Part, ...]) -> Iterator[Reference]:
    """Yield every reference in a parsed string, including those in defaults."""
    for part in parts:
        if isinstance(part, Reference):
            yield part
            yield from references(part.default or ())


# --- parsing --------------------------------------------------------------------------------------------------------


def _parts(text: str, where: str, variables: Container[str], depth: int) -> Iterator[Part]:
    if depth > MAX_DEPTH:
        raise _bad(where, f"defaults are nested more than {MAX_DEPTH} deep; write fewer ${{…}} inside each other")
    at = 0
    while reference := _REFERENCE.search(text, at):
        yield text[at : reference.start()]
        if reference[0] == "$${":
            yield "${"
            at = reference.end()
        else:
            end = _closing_brace(text, reference.end(), where)
            yield _reference(text[reference.end() : end], where, variables, depth)
            at = end + 1
    yield text[at:]


def _closing_brace(text: str, start: int, where: str) -> int:
    """Return the index of the ``}`` that closes the reference whose content begins at `start`."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.start()
    raise _bad(where, "a '${' has no closing '}'; add it, or write '$${' for the two characters")


def _reference(inside: str, where: str, variables: Container[str], depth: int) -> Reference:
    if inside in variables and not inside.startswith(FROM_FILE):
        return Reference(inside, inside)
    if asked := INPUT.fullmatch(inside):
        remedy = "inputs are for files; read them with load_config(…, ask=…)"
        raise _bad(where, f"input {asked['id']!r} has no value; {remedy}")
    variable = _VARIABLE.fullmatch(inside)
    if variable is None:
        # Do not show the content: it may be part of a password that happens to contain these two characters.
        remedy = "write ${VAR}, ${env:VAR} or ${VAR:-default}, or '$${' for the two characters"
        raise _bad(where, f"a '${{…}}' does not contain a variable; {remedy}")
    default = variable["default"]
    parsed = None if default is None else tuple(_parts(default, where, variables, depth + 1))
    return Reference(inside, variable["name"], parsed)


# --- expanding ------------------------------------------------------------------------------------------------------


def _values(
    parts: tuple[Part, ...], environ: Mapping[str, str], variables: Mapping[str, str], where: str
) -> Iterator[str]:
    length = 0
    for part in parts:
        value = part if isinstance(part, str) else _look_up(part, environ, variables, where)
        length += len(value)
        yield value
        if length > MAX_EXPANDED:
            return  # the caller compares the length of the pieces so far with the limit


def _look_up(reference: Reference, environ: Mapping[str, str], variables: Mapping[str, str], where: str) -> str:
    if reference.text in variables and not reference.text.startswith(FROM_FILE):
        return variables[reference.text]
    value = environ.get(reference.name)
    if value is None:
        value = variables.get(f"{FROM_FILE}{reference.name}")
    if reference.default is not None and not value:
        return "".join(_values(reference.default, environ, variables, where))
    if value is None:
        name = reference.name
        remedy = f"set it, or give a default: ${{{name}:-default}}"
        raise _bad(where, f"environment variable {name!r} is not set; {remedy}")
    return value


def _bad(where: str, problem: str) -> ConfigError:
    return ConfigError(f"{where}: {problem}", path=where)
