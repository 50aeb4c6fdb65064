"""A transport with variables in its strings (`TransportTemplate`).

Files may have ``${…}`` in commands, arguments and URLs too, which `Stdio`, `Http` and `Sse` take literally. The
variables are expanded for every connect, like the values of ``env`` and ``headers``, and the result is not kept.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import attrs

from ..._errors import ConfigError
from .._validators import refused
from ..values import MASK, NO_VALUES, ExpandedUrl, NamedValues, Secret, expand, mask_args, mask_url
from ._http import Http, Sse
from ._in_process import InProcess
from ._stdio import Stdio

Kind: TypeAlias = Literal["stdio", "script", "http", "sse", "url"]
"""The kind of a transport. ``"script"`` is a file for an interpreter; ``"url"`` is decided by the end of the URL."""

_T = TypeVar("_T", Stdio, Http, Sse)

INTERPRETERS: Final[Mapping[str, str]] = {
    ".py": sys.executable or "python3",
    ".js": "node",
    ".cjs": "node",
    ".mjs": "node",
    ".sh": "sh",
}
"""Suffix of a script → its interpreter. Python scripts run in the environment of this program."""

_TEXTS: Final = ("command", "cwd", "url", "auth")
_NAMED: Final = ("env", "headers")

_STAND_INS: Final[Mapping[str, str]] = {"url": "https://server.invalid/", "auth": "token"}
"""Placeholders for strings with variables while the other options are validated; for other fields ``"x"``."""


def make_transport(kind: Kind, options: Mapping[str, Any]) -> Stdio | Http | Sse:
    """Make a transport of a kind. For a script this looks at the file system.

    Raises:
        ConfigError: an option is not valid.
    """
    if kind in ("stdio", "script"):
        return _made(Stdio, _with_interpreter(options, always=kind == "script"))
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
    if "auth" in options:
        masked["auth"] = MASK
    return masked


def _shown_options(options: Mapping[str, Any]) -> str:
    shown = (f"{name!r}: {value if name == 'auth' else repr(value)}" for name, value in _masked(options).items())
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

    It is used in place of a `Stdio`, `Http` or `Sse`, and every connect makes one of these from it. ``repr`` shows what
    theirs would show.

    Args:
        kind: ``"stdio"``, ``"script"``, ``"http"``, ``"sse"``, or ``"url"`` if the end of the URL decides.
        options: the arguments of `Stdio`, `Http` or `Sse`. In strings, ``${…}`` is expanded at each connect.
        variables: values of names other than environment variables, for example of ``"input:token"``.

    Raises:
        ConfigError: an option is not valid, whatever the values of its variables will be.
    """

    kind: Kind
    options: Mapping[str, Any] = attrs.field(converter=_to_options, repr=_shown_options, hash=False)
    variables: Mapping[str, str] = attrs.field(default=NO_VALUES, converter=_to_variables, repr=False)

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

    def resolve(self, environ: Mapping[str, str], *, where: str) -> Stdio | Http | Sse:
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
            problem = str(error).removeprefix(f"{error.source}: ")
            raise ConfigError(f"{where}: {problem}", path=f"{where}.{error.path}") from None

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
        if isinstance(options.get("auth"), str):
            options["auth"] = Secret(options["auth"])
        for field in _NAMED:
            if field in options:
                options[field] = {
                    name: Secret(filled(f"{field}.{name}", value)) if isinstance(value, str) else value
                    for name, value in options[field].items()
                }
        return options


Transport: TypeAlias = Stdio | Http | Sse | InProcess | TransportTemplate
"""The ways to reach a server."""


def speaks_sse(transport: Transport, environ: Mapping[str, str]) -> bool:
    """Return whether a server is reached over HTTP with SSE, as far as that is known before connecting."""
    if not isinstance(transport, TransportTemplate):
        return isinstance(transport, Sse)
    try:
        return isinstance(transport.resolve(environ, where="transport"), Sse)
    except ConfigError:
        return False  # connecting raises the same error
