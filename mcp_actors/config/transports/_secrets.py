"""List the values that must be masked in a server's output.

These are the values of ``env``, ``headers`` and ``auth``, the variables that are expanded in any string, defaults in
their place, and the parts of URLs that may be credentials. All of them count, because a list of secret-looking names is
never complete. Exceptions are short values and those that every program knows.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ..._errors import ConfigError
from ..values import FROM_FILE, Reference, parse, references

if TYPE_CHECKING:
    from ._template import Transport

INHERITED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Variables that every server inherits: those that most programs need to run, and that are not credentials."""

_SCHEME: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z-]*) +(?P<rest>\S.*)", re.DOTALL)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def variables_of(transport: Transport, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that a transport references, as they are written, with their current values or defaults."""
    options = getattr(transport, "options", None)
    known: Mapping[str, str] = getattr(transport, "variables", {})
    if options is None:  # not a template: only values can contain variables
        fields = (getattr(transport, name, None) for name in ("env", "headers", "auth"))
    else:
        fields = iter(options.values())
    for text in _texts(fields):
        try:
            named = list(references(parse(text, where="", variables=known)))
        except ConfigError:
            continue  # connecting raises the same error
        for each in named:
            name = f"${{{each.text if each.text.startswith('input:') else each.name}}}"
            if value := _value_of(each, known, environ):
                yield name, value
            elif not environ.get(each.name):
                yield from ((name, part) for part in each.default or () if isinstance(part, str))
    for name in getattr(transport, "env_from", ()) if options is None else options.get("env_from", ()):
        if name in environ and name not in INHERITED:
            yield f"${{{name}}}", environ[name]


def _value_of(reference: Reference, known: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Return the value of a reference, if it may be a credential."""
    if reference.text in known and not reference.text.startswith(FROM_FILE):
        return known[reference.text] if reference.text.startswith("input:") else None
    if reference.name in INHERITED:
        return None
    return environ.get(reference.name, known.get(f"{FROM_FILE}{reference.name}"))


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _texts(value.values())
        elif isinstance(value, tuple):
            yield from _texts(value)


def secrets_in(value: str, *, own_url: bool = False) -> Iterator[str]:
    """Yield the secrets in one value: the value itself, and the parts that a server may print on their own.

    Args:
        value: the value.
        own_url: True if it is the URL of the server, whose host and path are not secret.
    """
    if not own_url:
        yield value
        yield from value.splitlines()
        scheme = _SCHEME.fullmatch(value)
        if scheme is not None:
            yield scheme["rest"]
            if scheme["name"].lower() == "basic":
                yield from _of_basic(scheme["rest"])
    if _URL.fullmatch(value):
        yield from _of_url(value, own_url)


def _of_basic(encoded: str) -> Iterator[str]:
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    secret = pair.partition(":")[2]
    yield pair
    yield secret
    yield unquote(secret)  # OAuth sends both parts encoded as in a form
    yield from _encoded(pair)


def _encoded(pair: str) -> Iterator[str]:
    """Yield the base64 forms of a user and a password: of both alphabets, with and without the padding."""
    raw = pair.encode(errors="replace")
    for encoded in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        yield encoded
        yield encoded.rstrip("=")


def _of_url(url: str, own: bool) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        return
    if password:
        yield password
        yield f"{user}:{password}"
        yield from _encoded(f"{user}:{password}")
    if own:
        yield user
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        yield value or name  # a pair without "=" may be a value as well as a name
    yield parts.fragment
