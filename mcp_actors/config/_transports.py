"""How a server is reached: a child process, an HTTP endpoint, or an object in this process."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

import attrs

from .._errors import ConfigError
from . import _validators as check
from ._masking import mask_args, mask_url
from ._values import ConfigValue, NamedValues, Secret, env_problem, header_problem

_NO_VALUES: Final = NamedValues()
_DEFAULT_MAX_LINE: Final = 64 * 1024 * 1024  # bytes; larger than any honest message, small enough to hold in memory


def _shown_args(args: tuple[str, ...]) -> str:
    return repr(mask_args(args))


def _check_value(owner: str, field: str, name: str, value: object) -> str | None:
    """Refuse what is no `ConfigValue`; return the text of one that is known already, None for a function."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, str):
        return value
    if not callable(value):
        remedy = "give a str, a Secret, or a function that returns a str"
        raise check.refused(owner, f"{field}.{name}", f"{field}[{name!r}] is {check.a_type(value)}; {remedy}")
    return None


def _check_mapping(owner: str, field: str, value: object) -> None:
    if not isinstance(value, Mapping):
        problem = f'{field} is {check.a_type(value)}; write {field}={{"NAME": "value"}}'
        raise check.refused(owner, field, problem)


# --- Stdio ----------------------------------------------------------------------------------------------------------


def _path(field: str, value: object) -> str:
    """Return a path as text; refuse what the operating system would not take as one."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise check.refused("Stdio", field, f"{field} is {check.a_type(value)}; give a str or a path of str")
    path: str = os.fspath(value)
    if not path.strip():
        raise check.refused("Stdio", field, f"{field} is empty; give the name or the path")
    if "\0" in path:
        raise check.refused("Stdio", field, f"{field} holds a NUL character; remove it")
    return path


def _to_command(value: str | os.PathLike[str]) -> str:
    return _path("command", value)


def _to_cwd(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else _path("cwd", value)


def _texts(field: str, value: object) -> tuple[str, ...]:
    """Return a sequence of str as a tuple; refuse one plain str, which Python would take apart into letters."""
    if isinstance(value, str):
        problem = f"{field} is one str, not a sequence of them; did you mean {field}={mask_args(value.split())}?"
        raise check.refused("Stdio", field, problem)
    if not isinstance(value, Iterable) or isinstance(value, (bytes, bytearray, Mapping)):
        raise check.refused("Stdio", field, f"{field} is {check.a_type(value)}; give a tuple or list of str")
    texts = tuple(value)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            problem = f"{field}[{index}] is {check.a_type(text)}; give a str"
            raise check.refused("Stdio", field, problem)
        if "\0" in text:
            raise check.refused("Stdio", field, f"{field}[{index}] holds a NUL character; remove it")
    return texts


def _to_args(value: Iterable[str]) -> tuple[str, ...]:
    return _texts("args", value)


def _check_variable(field: str, name: object) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        # "NAME=value" in one text is a likely mistake, and the value is not to be shown.
        shown = check.shown(name.partition("=")[0] + "=…" if isinstance(name, str) and "=" in name else name)
        remedy = "give a name that is not empty and holds no '=' (a value belongs into env)"
        raise check.refused("Stdio", field, f"{field} holds {shown}, which cannot name a variable; {remedy}")


def _to_env_from(value: Iterable[str]) -> tuple[str, ...]:
    names = _texts("env_from", value)
    for name in names:
        _check_variable("env_from", name)
    return names


def _to_env(value: Mapping[str, ConfigValue]) -> Mapping[str, ConfigValue]:
    _check_mapping("Stdio", "env", value)
    for name, each in value.items():
        _check_variable("env", name)
        text = _check_value("Stdio", "env", name, each)
        if problem := env_problem(text or ""):
            raise check.refused("Stdio", f"env.{name}", f"env[{name!r}]: {problem}")
    return NamedValues(value)


def _check_env_from(instance: Stdio, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    """Refuse a variable that is to be set and to be passed on: which of the two is meant is anyone's guess."""
    for name in value:
        if name in instance.env:
            problem = f"{name!r} is both in env_from (pass on) and in env (set); remove it from one of them"
            raise check.refused("Stdio", "env_from", problem)


@attrs.frozen
class Stdio:
    """A server that is started as a child process and spoken to through its stdin and stdout.

    The child sees a few variables of this process (HOME, LOGNAME, PATH, SHELL, TERM, USER), those named in `env_from`,
    and `env`; nothing else. Whether the command exists is seen when it is started.

    ``repr`` shows no value of `env`, and masks the arguments that look like credentials; `env` is the place for them.

    Args:
        command: the program: a name to be looked up on PATH, or a path.
        args: its arguments, each on its own. They are passed as they are: no shell, no ``${VAR}``.
        env: variables to set. In a str value ``${VAR}`` is expanded at each connect.
        env_from: names of variables of this process to pass on. One that is not set then is left out.
        cwd: the directory to start in. None: that of this process.
        max_line_bytes: the longest message to accept, in bytes. Default 64 MiB.

    Raises:
        ConfigError: a value cannot be used. No value of `env` is in the message.
    """

    command: str = attrs.field(converter=_to_command)
    args: tuple[str, ...] = attrs.field(default=(), converter=_to_args, repr=_shown_args)
    env: Mapping[str, ConfigValue] = attrs.field(default=_NO_VALUES, converter=_to_env, kw_only=True)
    env_from: tuple[str, ...] = attrs.field(default=(), converter=_to_env_from, validator=_check_env_from, kw_only=True)
    cwd: str | None = attrs.field(default=None, converter=_to_cwd, kw_only=True)
    max_line_bytes: int = attrs.field(
        default=_DEFAULT_MAX_LINE, validator=check.count(1, "give a number of bytes, 1 or more"), kw_only=True
    )


# --- Http -----------------------------------------------------------------------------------------------------------

# White space and control characters are dropped silently by some URL parsers, and a backslash is a slash to others:
# such a URL could name another host here than on the wire.
_NOT_IN_URL: Final = re.compile(r"[\s\x00-\x1f\x7f\\]")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, a token


def _shown_url(url: str) -> str:
    return repr(mask_url(url))


def _bad_url(url: str, problem: str) -> ConfigError:
    return check.refused("Http", "url", f"url {mask_url(url)!r} {problem}")


def _split_url(url: str) -> SplitResult:
    """Return the parts of an http or https URL with a host, or refuse it."""
    if _NOT_IN_URL.search(url):
        raise _bad_url(_NOT_IN_URL.sub("", url), "holds white space, a control character or a backslash; remove it")
    if "${" in url:
        raise _bad_url(url, "holds '${', but variables are expanded in headers only; build the URL in Python")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _bad_url(url, "is malformed (its host or its port); write https://host:port/path") from None
    if parts.scheme not in ("http", "https"):
        raise _bad_url(url, "is not an http or https URL; write https://host/path")
    if not host:
        raise _bad_url(url, "has no host; write https://host/path")
    return parts


def _is_loopback(host: str) -> bool:
    """Return whether traffic to `host` cannot leave this machine: localhost, 127.0.0.0/8 or ::1."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback if address.version == 4 else address == ipaddress.IPv6Address("::1")


def _check_url(instance: Http, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str):
        raise check.refused("Http", "url", f"url is {check.a_type(value)}; give a str such as https://host/path")
    _split_url(value)


def _check_secure(instance: Http, attribute: attrs.Attribute[Any], value: object) -> None:
    check.flag(instance, attribute, value)
    parts = _split_url(instance.url)
    if parts.scheme == "http" and not value and not _is_loopback(parts.hostname or ""):
        remedy = "use https, or say allow_insecure=True if the network in between is trusted"
        raise _bad_url(instance.url, f"would send everything unencrypted, credentials too; {remedy}")


def _check_header_name(name: object) -> None:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        # The name is not shown: it may be "Authorization: Bearer …", given as one text.
        problem = "the name of a header is empty or holds a character that no name can hold"
        raise check.refused("Http", "headers", f'{problem}; write headers={{"Name": "value"}}')


def _to_headers(value: Mapping[str, ConfigValue]) -> Mapping[str, ConfigValue]:
    _check_mapping("Http", "headers", value)
    spelled: dict[str, str] = {}
    for name, each in value.items():
        _check_header_name(name)
        if name.lower() in spelled:
            problem = f"{spelled[name.lower()]!r} and {name!r} are the same header; remove one of them"
            raise check.refused("Http", "headers", problem)
        spelled[name.lower()] = name
        text = _check_value("Http", "headers", name, each)
        if problem_of_value := header_problem(text or ""):
            raise check.refused("Http", f"headers.{name}", f"headers[{name!r}]: {problem_of_value}")
    return NamedValues(value)


def _check_one_credential(instance: Http, attribute: attrs.Attribute[Any], value: Mapping[str, ConfigValue]) -> None:
    """Refuse two credentials, of which only one could be sent."""
    has_user_info = "@" in _split_url(instance.url).netloc
    if has_user_info and any(name.lower() == "authorization" for name in value):
        problem = "headers has 'Authorization', and url holds a user name or password; remove one of the two"
        raise check.refused("Http", "headers", problem)


@attrs.frozen
class Http:
    """A server that is reached over streamable HTTP.

    ``repr`` shows no value of `headers`, and of `url` only what `display_url` shows.

    Args:
        url: the endpoint, ``https://…``; ``http://…`` only on this machine (localhost, 127.0.0.0/8, ``[::1]``).
        headers: sent with every request. In a str value ``${VAR}`` is expanded at each connect.
        allow_insecure: True allows ``http://…`` to other machines: whoever is on the way reads and changes all.

    Raises:
        ConfigError: a value cannot be used. No header's value and no credential of the URL is in the message.
    """

    url: str = attrs.field(validator=_check_url, repr=_shown_url)
    headers: Mapping[str, ConfigValue] = attrs.field(
        default=_NO_VALUES, converter=_to_headers, validator=_check_one_credential, kw_only=True
    )
    allow_insecure: bool = attrs.field(default=False, validator=_check_secure, kw_only=True)

    @property
    def display_url(self) -> str:
        """The URL for messages and logs: no user-info, no fragment, and every query value masked."""
        return mask_url(self.url)


# --- InProcess ------------------------------------------------------------------------------------------------------


def _check_server(instance: InProcess, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None or isinstance(value, str):
        remedy = 'give the server object; a program is Stdio("…") and a URL is Http("…")'
        raise check.refused("InProcess", "server", f"server is {check.a_type(value)}; {remedy}")


def _shown_server(server: object) -> str:
    return f"<{type(server).__name__}>"


@attrs.frozen
class InProcess:
    """A server that is an object in this process, of the `mcp` package; meant for tests and for embedding.

    Two of these are equal if they hold the same object. Whether it can serve is seen at the connect.

    Args:
        server: the server object.

    Raises:
        ConfigError: `server` is None or a str.
    """

    server: Any = attrs.field(validator=_check_server, eq=id, repr=_shown_server)


Transport: TypeAlias = Stdio | Http | InProcess
"""How a server is reached."""
