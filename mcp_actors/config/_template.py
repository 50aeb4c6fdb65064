"""Make and resolve transports; list their variables and secrets.

``${NAME}`` is a variable in the commands and URLs of a configuration file, but literal text in Python code. So a
transport holds text from a file unresolved, as `Written`; every connect resolves a copy of the transport. Secrets, and
the values of variables, are masked in logs and errors.

Owns: nothing.
Writes: nothing.
Calls: _transports, _validators, _values.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from .._errors import ConfigError
from .._python import our_python
from ._transports import Http, HttpOrSse, InProcess, Socket, Sse, Stdio
from ._validators import changed, refused
from ._values import (
    FROM_FILE,
    ExpandedUrl,
    Reference,
    Written,
    expand,
    parse,
    references,
    variables_in,
)

Kind: TypeAlias = Literal["stdio", "url", "http", "sse", "socket", "inprocess"]
"""The kind of a transport; ``"url"`` is SSE if the path ends in ``/sse``, else HTTP."""


def _python() -> str:
    try:
        return our_python("a script in Python")
    except ConfigError:
        return "python3"


INTERPRETERS: Final[Mapping[str, str]] = {".py": _python(), ".js": "node", ".cjs": "node", ".mjs": "node", ".sh": "sh"}
"""Suffix of a script → interpreter. A Python script gets the interpreter of this program, if known."""

Transport: TypeAlias = Stdio | Http | Sse | InProcess | Socket
"""The ways to reach a server."""

_CLASSES: Final[Mapping[Kind, type[Transport]]] = {
    "stdio": Stdio,
    "url": HttpOrSse,
    "http": Http,
    "sse": Sse,
    "socket": Socket,
    "inprocess": InProcess,
}

RESOLVED: Final = ("env", "headers", "auth", "secret")
"""Fields whose variables are resolved by the connect itself."""

_VARIABLE_FIELDS: Final = ("command", "args", "cwd", "url", "address", "server", "secret_file")
"""Fields with variables only in a file."""

EXPANDED: Final = (*_VARIABLE_FIELDS, *RESOLVED)
"""All fields with variables in a file."""


def make_transport(kind: Kind, options: Mapping[str, Any]) -> Transport:
    """Make a transport. For a script this looks at the file system and PATH."""
    url = options.get("url")
    if kind == "stdio":
        options = _with_interpreter(options)
    elif kind == "url" and not isinstance(url, Written):
        kind = "sse" if ends_in_sse(url) else "http"
    transport = _CLASSES[kind]
    known = {attribute.name for attribute in attrs.fields(transport)}
    for name in options:
        if name not in known:
            problem = f"{name!r} is not an option of {transport.__name__}; remove it"
            raise refused(transport.__name__, name, problem)
    return transport(**options)


def ends_in_sse(url: object) -> bool:
    try:
        return isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith("/sse")
    except ValueError:
        return False


def _with_interpreter(options: Mapping[str, Any]) -> dict[str, Any]:
    """Run a script by its interpreter, unless it is executable itself."""
    command, cwd = options.get("command"), options.get("cwd")
    if not isinstance(command, str) or not isinstance(cwd, str | None) or "\0" in f"{command}{cwd}":
        return dict(options)
    interpreter = INTERPRETERS.get(PurePath(command).suffix)
    if interpreter is None or not _needs_interpreter(os.path.join(cwd or "", command), command):
        return dict(options)
    return {**options, "command": interpreter, "args": (command, *options.get("args", ()))}


def _needs_interpreter(path: str, command: str) -> bool:
    if not os.path.isfile(path):
        return False
    return shutil.which(command) is None if not os.path.dirname(command) else not os.access(path, os.X_OK)


def kind_of(transport: Transport) -> Kind:
    return next(kind for kind, each in _CLASSES.items() if isinstance(transport, each))


def resolved(transport: Transport, environ: Mapping[str, str], *, where: str) -> Transport:
    """Return a transport for one connect, all variables replaced except in the fields of `RESOLVED`.

    Raises:
        ConfigError: a variable is not set, or an expanded option is not valid; the message begins with `where`.
    """

    def filled(place: str, text: str) -> str:
        if not isinstance(text, Written):
            return text
        expanded = expand(text, environ, where=f"{where}.{place}", variables=text.variables)
        return ExpandedUrl(expanded, written=str(text)) if place == "url" else expanded

    given = {field: list(_placed(field, getattr(transport, field, None))) for field in _VARIABLE_FIELDS}
    if not any(isinstance(text, Written) for texts in given.values() for _, text in texts):
        return transport
    options = changed(transport)
    for field in options.keys() & given:
        texts = tuple(filled(place, text) for place, text in given[field])
        options[field] = texts if field == "args" else texts[0]
    try:
        return make_transport(kind_of(transport), options)
    except ConfigError as error:
        raise ConfigError(error.problem, owner=where, path=f"{where}.{error.path}") from None


def speaks_sse(transport: Transport, environ: Mapping[str, str]) -> bool:
    """Return whether a server is reached over HTTP with SSE, as far as known before connecting."""
    try:
        return isinstance(resolved(transport, environ, where="transport"), Sse)
    except ConfigError:
        return False  # connecting raises the same error


# --- List the values to mask ------------------------------------------------------------------------------------------

# No list of secret-looking names is complete, so every value of ``env``, ``headers`` and ``auth`` counts, and every
# variable. Exceptions are short values, and values that every program knows.


INHERITED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
"""Variables inherited by every server: needed by most programs to run, and no credentials."""

_SCHEME_AND_REST: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z-]*) +(?P<rest>\S.*)", re.DOTALL)
_WHOLE_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def variables_of(transport: Transport, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a transport, as written, with their current values or defaults."""
    for _, text in texts_of(transport):
        try:
            named = list(references(parse(text, where="", variables=variables_in(text))))
        except ConfigError:
            continue  # connecting raises the same error
        for each in named:
            name = f"${{{each.text if each.text.startswith('input:') else each.name}}}"
            if value := _value_of(each, variables_in(text), environ):
                yield name, value
            elif not environ.get(each.name):
                yield from ((name, part) for part in each.default or () if isinstance(part, str))
    for name in getattr(transport, "env_from", ()):
        if name in environ and name not in INHERITED:
            yield f"${{{name}}}", environ[name]


def texts_of(transport: Transport) -> Iterator[tuple[str, str]]:
    """Yield the texts in which variables are expanded, with their places."""
    for field in EXPANDED:
        for place, text in _placed(field, getattr(transport, field, None)):
            if field in RESOLVED or isinstance(text, Written):
                yield place, text


def _placed(field: str, value: object) -> Iterator[tuple[str, str]]:
    for key, text in texts_in(value):
        yield field if key is None else f"{field}[{key}]" if isinstance(key, int) else f"{field}.{key}", text


def texts_in(value: object) -> Iterator[tuple[Any, str]]:
    """Yield the strings in the value of a field, each after its key or index, or after None for a plain str."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple | list) else ()
    return ((key, each) for key, each in pairs or [(None, value)] if isinstance(each, str))


def _value_of(reference: Reference, known: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Return the value of a reference, if it may be a credential."""
    if reference.text in known and not reference.text.startswith(FROM_FILE):
        return known[reference.text] if reference.text.startswith("input:") else None
    if reference.name in INHERITED:
        return None
    return environ.get(reference.name, known.get(f"{FROM_FILE}{reference.name}"))


def secrets_in(value: str, *, own_url: bool = False) -> Iterator[str]:
    """Yield a value, and parts that a server may print alone. Skip host and path of the server's own URL."""
    if not own_url:
        yield value
        yield from value.splitlines()
        scheme = _SCHEME_AND_REST.fullmatch(value)
        if scheme is not None:
            yield scheme["rest"]
            if scheme["name"].lower() == "basic":
                yield from _of_basic(scheme["rest"])
    if _WHOLE_URL.fullmatch(value):
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
    """Yield base64 forms of a user and a password: both alphabets, with and without padding."""
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


class SourceFile(str):
    """A file's path, with the place of an entry."""

    entry: str = ""


def written_at(config: Any) -> str:
    """Return the place of a `ServerConfig` in its file, for messages."""
    source = config.source
    return f"{source}: {source.entry}" if isinstance(source, SourceFile) else f"servers.{config.name}"


def check_variables(transport: Transport, environ: Mapping[str, str], *, where: str) -> None:
    """Check that the variables of a transport have values now. Functions are not called.

    Raises:
        ConfigError: a variable is not set, or an expanded option is not valid; the message begins with `where`.
    """
    transport = resolved(transport, environ, where=where)
    for place, text in texts_of(transport):
        expand(text, environ, where=f"{where}.{place}", variables=variables_in(text))
