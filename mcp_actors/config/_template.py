"""A transport with variables in its strings, and the secrets of transports.

Files may have ``${…}`` in commands, arguments, directories, URLs and addresses too, which the transports take
literally. A `TransportTemplate` expands the variables for every connect, like the values of ``env`` and ``headers``,
and does not keep the result. `make_transport` makes a transport from options. `speaks_sse` says whether a server is
reached over HTTP with SSE, as far as that is known. `variables_of` and `secrets_in` list what must be masked;
`INHERITED` names the variables that every server inherits.

``formats`` makes templates, and other transports with `make_transport`; `mcp_actors.transports` expands them and masks
the secrets; `mcp_actors.servers` calls `speaks_sse`, which expands a template too. The environment of variables is an
argument. `make_transport`, which a template calls when it is made and expanded, may look at the file system and at PATH
to see whether a script needs an interpreter. It uses ``_transports``, the values and the validators.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from .._errors import ConfigError
from .._python import our_python
from ._transports import Http, InProcess, Socket, Sse, Stdio
from ._validators import refused
from ._values import (
    FROM_FILE,
    MASK,
    SHORTEST_SECRET,
    ExpandedUrl,
    NamedValues,
    Reference,
    Secret,
    expand,
    mask_args,
    mask_url,
    parse,
    references,
)

Kind: TypeAlias = Literal["stdio", "script", "http", "sse", "url", "socket"]
"""The kind of a transport. ``"script"`` is a file for an interpreter; ``"url"`` is decided by the end of the URL."""

_T = TypeVar("_T", Stdio, Http, Sse, Socket)

_SECRETS: Final = ("auth", "secret")


def _python() -> str:
    try:
        return our_python("a script in Python")
    except ConfigError:
        return "python3"


INTERPRETERS: Final[Mapping[str, str]] = {".py": _python(), ".js": "node", ".cjs": "node", ".mjs": "node", ".sh": "sh"}
"""Suffix of a script → its interpreter. Python scripts run in the environment of this program, if it has one."""

_TEXTS: Final = ("command", "cwd", "url", "address", "server", "secret_file", *_SECRETS)
_NAMED: Final = ("env", "headers")

_STAND_INS: Final[Mapping[str, str]] = {
    "url": "https://server.invalid/",
    "auth": "token",
    "address": "/x",
    "secret": "x" * SHORTEST_SECRET,
}
"""Placeholders for strings with variables while the other options are validated; for other fields ``"x"``."""


def make_transport(kind: Kind, options: Mapping[str, Any]) -> Stdio | Http | Sse | Socket:
    """Make a transport of a kind. For a script this looks at the file system.

    Raises:
        ConfigError: an option is not valid.
    """
    if kind in ("stdio", "script"):
        return _made(Stdio, _with_interpreter(options, always=kind == "script"))
    if kind == "socket":
        return _made(Socket, options)
    if kind == "sse" or (kind == "url" and ends_in_sse(options.get("url"))):
        return _made(Sse, options)
    return _made(Http, options)


def _made(transport: type[_T], options: Mapping[str, Any]) -> _T:
    known = {attribute.name for attribute in attrs.fields(transport)}
    for name in options:
        if name not in known:
            problem = f"{name!r} is not an option of {transport.__name__}; remove it"
            raise refused(transport.__name__, name, problem)
    return transport(**options)


def ends_in_sse(url: object) -> bool:
    """Return whether the path of a URL looks like an endpoint of HTTP with SSE."""
    try:
        return isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith("/sse")
    except ValueError:
        return False


def _with_interpreter(options: Mapping[str, Any], *, always: bool) -> dict[str, Any]:
    """Run a script by its interpreter, unless it is executable itself."""
    command, cwd = options.get("command"), options.get("cwd")
    if not isinstance(command, str) or not isinstance(cwd, str | None) or "\0" in f"{command}{cwd}":
        return dict(options)
    interpreter = INTERPRETERS.get(PurePath(command).suffix)
    if interpreter is None or not (always or _needs_interpreter(os.path.join(cwd or "", command), command)):
        return dict(options)
    return {**options, "command": interpreter, "args": (command, *options.get("args", ()))}


def _needs_interpreter(path: str, command: str) -> bool:
    if not os.path.isfile(path):
        return False
    return shutil.which(command) is None if not os.path.dirname(command) else not os.access(path, os.X_OK)


def _masked(options: Mapping[str, Any]) -> dict[str, object]:
    """Return valid options without credentials, except for those in mappings."""
    masked: dict[str, object] = dict(options)
    if "args" in options:
        masked["args"] = mask_args(options["args"])
    if "url" in options:
        masked["url"] = mask_url(options["url"])
    masked.update(dict.fromkeys(options.keys() & _SECRETS, MASK))
    return masked


def _shown_options(options: Mapping[str, Any]) -> str:
    shown = (f"{name!r}: {value if name in _SECRETS else repr(value)}" for name, value in _masked(options).items())
    return "{" + ", ".join(shown) + "}"


def _to_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: NamedValues(value) if name in _NAMED else tuple(value) if name == "args" else value
        for name, value in options.items()
    }


def _to_variables(variables: Mapping[str, str]) -> NamedValues:
    return NamedValues(variables)


def _stand_in(field: str, text: str) -> str:
    return _STAND_INS.get(field, "x") if "${" in text else text


@attrs.frozen
class TransportTemplate:
    """A transport with variables in any of its strings; `load_config` makes one where a file needs it.

    It is used in place of a `Stdio`, `Http`, `Sse` or `Socket`, and every connect makes one of these from it. ``repr``
    shows what theirs would show.

    Args:
        kind: ``"stdio"``, ``"script"``, ``"http"``, ``"sse"``, ``"socket"``, or ``"url"`` if the end of the URL
            decides.
        options: the arguments of `Stdio`, `Http`, `Sse` or `Socket`. In strings, ``${…}`` is expanded at each connect.
        variables: values of names other than environment variables, for example of ``"input:token"``.

    Raises:
        ConfigError: an option is not valid, whatever the values of its variables will be.
    """

    kind: Kind
    options: Mapping[str, Any] = attrs.field(converter=_to_options, repr=_shown_options, hash=False)
    variables: Mapping[str, str] = attrs.field(default=NamedValues({}), converter=_to_variables, repr=False)

    def __attrs_post_init__(self) -> None:
        make_transport(self.kind, self._with(_stand_in))

    @property
    def display_options(self) -> dict[str, object]:
        """The options for messages and logs, as JSON-like data: without credentials, with variables as written."""
        shown = _masked(self.options)
        for field in _NAMED:
            if field in shown:
                shown[field] = sorted(self.options[field])
        return shown

    def resolve(self, environ: Mapping[str, str], *, where: str) -> Stdio | Http | Sse | Socket:
        """Make the transport for one connect.

        Args:
            environ: the environment variables, usually ``os.environ``.
            where: the place in the configuration, for the message; for example ``"servers.docs"``.

        Raises:
            ConfigError: a variable is not set, or an expanded option is not valid.
        """

        def filled(field: str, text: str) -> str:
            return expand(text, environ, where=f"{where}.{field}", variables=self.variables)

        options = self._with(filled)
        if "url" in options:
            options["url"] = ExpandedUrl(options["url"], written=self.options["url"])
        try:
            return make_transport(self.kind, options)
        except ConfigError as error:
            raise ConfigError(error.problem, owner=where, path=f"{where}.{error.path}") from None

    def _with(self, filled: Callable[[str, str], str]) -> dict[str, Any]:
        """Return the options with every string replaced by ``filled(field, text)``."""
        options = dict(self.options)
        for field in _TEXTS:
            if isinstance(options.get(field), str):
                options[field] = filled(field, options[field])
        if "args" in options:
            options["args"] = tuple(
                filled(f"args[{index}]", text) if isinstance(text, str) else text
                for index, text in enumerate(options["args"])
            )
        for field in _SECRETS:
            if isinstance(options.get(field), str):
                options[field] = Secret(options[field])
        for field in _NAMED:
            if field in options:
                options[field] = {
                    name: Secret(filled(f"{field}.{name}", value)) if isinstance(value, str) else value
                    for name, value in options[field].items()
                }
        return options


Transport: TypeAlias = Stdio | Http | Sse | InProcess | Socket | TransportTemplate
"""The ways to reach a server."""


def speaks_sse(transport: Transport, environ: Mapping[str, str]) -> bool:
    """Return whether a server is reached over HTTP with SSE, as far as that is known before connecting."""
    if not isinstance(transport, TransportTemplate):
        return isinstance(transport, Sse)
    try:
        return isinstance(transport.resolve(environ, where="transport"), Sse)
    except ConfigError:
        return False  # connecting raises the same error


# --- List the values that must be masked in a server's output ---------------------------------------------------------

# These are the values of ``env``, ``headers`` and ``auth``, the variables that are expanded in any string, defaults in
# their place, and the parts of URLs that may be credentials. All of them count, because a list of secret-looking names
# is never complete. Exceptions are short values and those that every program knows.


INHERITED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
"""Variables that every server inherits: those that most programs need to run, and that are not credentials."""

_SCHEME: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z-]*) +(?P<rest>\S.*)", re.DOTALL)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def variables_of(transport: Transport, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that a transport references, as they are written, with their current values or defaults."""
    options = getattr(transport, "options", None)
    known: Mapping[str, str] = getattr(transport, "variables", {})
    if options is None:  # not a template: only values can contain variables
        fields = (getattr(transport, name, None) for name in ("env", "headers", *_SECRETS))
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


def check_variables(transport: object, environ: Mapping[str, str], *, where: str) -> None:
    """Check that the variables of a transport have values now. Functions and secrets are not looked at.

    Args:
        transport: one of a `ServerConfig`.
        environ: the environment variables, usually ``os.environ``.
        where: the place in the configuration, for the message.

    Raises:
        ConfigError: a variable is not set, or an expanded option is not valid.
    """
    if isinstance(transport, TransportTemplate):
        transport = transport.resolve(environ, where=where)
    for field in _NAMED:
        for name, value in (getattr(transport, field, None) or {}).items():
            if isinstance(value, str):
                expand(value, environ, where=f"{where}.{field}.{name}")
