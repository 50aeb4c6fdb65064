"""Transports as data: `Stdio`, `Http`, `Sse`, `Socket`, `InProcess`, and `Sandbox`.

An error or a ``repr`` must show no credential, but any argument, URL or header may hold one. Nothing here looks up a
command, expands a variable or connects.

Owns: nothing.
Writes: nothing.
Calls: _oauth, _validators, _values.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeGuard
from urllib.parse import SplitResult, urlsplit

import attrs
import httpx2
from mcp.server import MCPServer, Server

from .._errors import ConfigError
from .._misuse import explained
from . import _validators as check
from ._oauth import OAuth, is_loopback
from ._values import (
    MASK,
    ConfigValue,
    NamedValues,
    Secret,
    Written,
    check_mapping,
    check_value,
    env_problem,
    header_problem,
    mask_args,
    mask_url,
    secret_problem,
    shown_secret,
    system_problem,
    token_problem,
)

# --- Servers over HTTP ------------------------------------------------------------------------------------------------


# Some URL parsers silently drop whitespace and control characters, and others read a backslash as a slash: the URL
# checked here and the URL on the wire could name different hosts.
_NOT_IN_URL: Final = re.compile(r"[\s\x00-\x1f\x7f\\]")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, a token


# --- url ------------------------------------------------------------------------------------------------------------


def _bad_url(owner: str, url: str, problem: str) -> ConfigError:
    return check.refused(owner, "url", f"url {_NOT_IN_URL.sub('', mask_url(url))!r} {problem}")


def _split_url(owner: str, url: str) -> SplitResult:
    """Return the parts of an http or https URL with a host; refuse any other. A `Written` URL passes."""
    if isinstance(url, Written):
        return urlsplit("https://server.invalid/")
    if _NOT_IN_URL.search(url):
        raise _bad_url(owner, url, "contains whitespace, a control character or a backslash; remove it")
    if "${" in url:
        raise _bad_url(owner, url, "contains '${', but variables are expanded in headers only; build the URL in Python")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        bare = urlsplit(f"//{url}").hostname or ""
    except ValueError:
        raise _bad_url(owner, url, "has an invalid host or port; write https://host:port/path") from None
    if parts.scheme in ("unix", "http+unix"):
        remedy = "for HTTP write http://localhost/path, and give an http_client whose transport has uds=PATH"
        raise _bad_url(owner, url, f"names a unix socket; for a gateway use Socket(PATH), {remedy}")
    if parts.scheme not in ("http", "https"):
        shown = url if bare and "://" not in url and mask_url(url) == url else "host/path"
        scheme = "http" if is_loopback(bare) else "https"
        raise _bad_url(owner, url, f"is not an http or https URL; write {scheme}://{shown}")
    if not host:
        raise _bad_url(owner, url, "has no host; write https://host/path")
    return parts


def _check_url(instance: _HttpFields, attribute: attrs.Attribute[Any], value: object) -> None:
    owner = type(instance).__name__
    if not isinstance(value, str):
        raise check.refused_type(owner, "url", value, "give a str such as https://host/path")
    _split_url(owner, value)


def _check_secure(instance: _HttpFields, attribute: attrs.Attribute[Any], value: object) -> None:
    check.flag(instance, attribute, value)
    owner = type(instance).__name__
    parts = _split_url(owner, instance.url)
    if parts.scheme == "http" and not value and not is_loopback(parts.hostname or ""):
        remedy = "use https, or set allow_insecure=True if you trust the network"
        raise _bad_url(owner, instance.url, f"would send everything unencrypted, including credentials; {remedy}")


# --- credentials ----------------------------------------------------------------------------------------------------


def _to_headers(value: Mapping[str, ConfigValue]) -> Mapping[str, ConfigValue]:
    # The validator refuses anything but a mapping; unlike this converter it knows the class for the message.
    return NamedValues(value) if isinstance(value, Mapping) else value  # type: ignore[redundant-expr]  # users may pass anything


def _check_headers(
    instance: _HttpFields, attribute: attrs.Attribute[Mapping[str, ConfigValue]], value: Mapping[str, ConfigValue]
) -> None:
    owner = type(instance).__name__
    check_mapping(owner, "headers", value)
    spelled: dict[str, str] = {}
    for name, each in value.items():
        _check_header_name(owner, name)
        if name.lower() in spelled:
            problem = f"{spelled[name.lower()]!r} and {name!r} are the same header; remove one of them"
            raise check.refused(owner, "headers", problem)
        spelled[name.lower()] = name
        if problem_of_value := header_problem(check_value(owner, "headers", name, each) or ""):
            raise check.refused(owner, f"headers.{name}", f"headers[{name!r}]: {problem_of_value}")
    if "authorization" in spelled and "@" in _split_url(owner, instance.url).netloc:
        problem = "headers has 'Authorization', and url contains a user name or password; remove one of the two"
        raise check.refused(owner, "headers", problem)


def _check_header_name(owner: str, name: object) -> None:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        # Do not show the name: it may be "Authorization: Bearer …" in one string.
        problem = "the name of a header is empty or contains an invalid character"
        raise check.refused(owner, "headers", f'{problem}; write headers={{"Name": "value"}}')


def is_auth_flow(value: object) -> TypeGuard[httpx2.Auth]:
    """Return whether `value` is an `httpx2.Auth`, without importing the class."""
    return callable(getattr(value, "async_auth_flow", None)) and not isinstance(value, type)


def _shown_auth(value: object) -> str:
    if isinstance(value, OAuth):
        return repr(value)
    return "None" if value is None else f"<{type(value).__name__}>" if is_auth_flow(value) else MASK


def _check_auth(instance: _HttpFields, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    owner = type(instance).__name__
    for name in instance.headers:
        if name.lower() == "authorization":
            problem = f"auth is given, and headers has {name!r}; remove one of the two"
            raise check.refused(owner, "auth", problem)
    if "@" in _split_url(owner, instance.url).netloc:
        problem = "auth is given, and url contains a user name or password; remove one of the two"
        raise check.refused(owner, "auth", problem)
    if isinstance(value, OAuth) or is_auth_flow(value):
        return
    if not isinstance(value, str | Secret) and not check.is_function(value):
        remedy = "give a bearer token (a str, a Secret, or a function that returns a str), OAuth() or an httpx2.Auth"
        raise check.refused_type(owner, "auth", value, remedy)
    if isinstance(value, str) and value.lower() == "oauth":  # the word in files and other clients
        raise check.refused(owner, "auth", f"auth={value!r} would be sent as a token; give auth=OAuth() to sign in")
    token = value.reveal() if isinstance(value, Secret) else value
    if isinstance(token, str) and (problem_of_token := token_problem(token)):
        raise check.refused(owner, "auth", f"auth: {problem_of_token}")


# --- the client -----------------------------------------------------------------------------------------------------


def _check_factory(instance: Http, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not callable(value):
        remedy = "give a function that returns a new httpx2.AsyncClient, which is closed with the connection"
        raise check.refused_type("Http", "http_client", value, remedy)
    for name in ("verify", "max_connections", "keepalive"):
        if getattr(instance, name) != getattr(attrs.fields(Http), name).default:
            problem = f"http_client and {name} are both given; set it on the client that http_client makes"
            raise check.refused("Http", "http_client", problem)


def _to_verify(value: ssl.SSLContext | str | os.PathLike[str] | bool | None) -> ssl.SSLContext | str | bool | None:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_verify(instance: Http, attribute: attrs.Attribute[check.Value], value: check.Value) -> None:
    if not isinstance(value, ssl.SSLContext | str | bool | None) or value == "":
        remedy = "give an ssl.SSLContext, the path of a file of CA certificates, or True"
        raise check.refused("Http", "verify", f"verify is {check.a_type(value) if value != '' else 'empty'}; {remedy}")
    if value is False and not instance.allow_insecure:
        problem = "verify=False lets anyone on the network impersonate the server"
        remedy = "give the path of its CA certificate instead, or set allow_insecure=True as well"
        raise check.refused("Http", "verify", f"{problem}; {remedy}")


_check_bytes: Final = check.count(1, "give a number of bytes, 1 or more")
_check_max_connections: Final = attrs.validators.optional(
    check.count(2, "give 2 or more (the notification stream takes one), or None")
)


# --- the transports -------------------------------------------------------------------------------------------------


@attrs.frozen
class _HttpFields:
    # Do not reorder: a validator may read the fields above, which are valid by then.
    url: str = attrs.field(validator=_check_url, repr=lambda url: repr(mask_url(url)))
    headers: Mapping[str, ConfigValue] = attrs.field(
        default=NamedValues({}), converter=_to_headers, validator=_check_headers, kw_only=True
    )
    auth: ConfigValue | OAuth | httpx2.Auth | None = attrs.field(
        default=None, validator=_check_auth, repr=_shown_auth, kw_only=True
    )
    allow_insecure: bool = attrs.field(default=False, validator=_check_secure, kw_only=True)

    @property
    def display_url(self) -> str:
        """The URL for messages and logs: without user-info and fragment, all query values masked."""
        return mask_url(self.url)


@explained
@check.brief
@attrs.frozen
class Http(_HttpFields):
    """A server reached over streamable HTTP.

    ``repr`` hides `auth` and all values of `headers`, and shows `url` as `display_url`. Redirects are followed only
    within the origin of `url`.

    Args:
        url: the endpoint, ``https://…``; ``http://…`` only on this machine (localhost, 127.0.0.0/8, ``[::1]``).
        headers: headers for every request. In a str value, ``${VAR}`` is expanded at each connect.
        auth: a bearer token, resolved at each connect like `headers`; an `OAuth`, to sign in; or an `httpx2.Auth`,
            applied to every request. Default None. Variables and functions, here and in `headers`, are resolved again
            if the server answers 401 after accepting their values.
        http_client: a function that makes the `httpx2.AsyncClient` of one connection and is called once for each. The
            client is closed with the connection. A timeout of 5 seconds (the default) is ignored; any other is used.
            Default None: a client made from the options below.
        verify: an `ssl.SSLContext`, or the path of a file of CA certificates. None (default) or True uses the
            certificates of this machine. False disables verification, and requires `allow_insecure`.
        max_connections: concurrent connections, 2 or more (the notification stream takes one). None (default) means 50,
            or ``max_in_flight + 4`` if greater.
        keepalive: seconds to keep an unused connection. Default 60.
        max_body_bytes: the longest response or event, in bytes after decoding. Default 64 MiB.
        allow_insecure: True allows ``http://…`` to other machines; anyone on the network can read and alter traffic.

    Raises:
        ConfigError: a value is not valid. The message contains no credential and no header value.
    """

    verify: ssl.SSLContext | str | bool | None = attrs.field(
        default=None, converter=_to_verify, validator=_check_verify, kw_only=True
    )
    max_connections: int | None = attrs.field(default=None, validator=_check_max_connections, kw_only=True)
    keepalive: float = attrs.field(default=60.0, validator=check.seconds(), kw_only=True)
    max_body_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_check_bytes, kw_only=True)
    http_client: Callable[[], httpx2.AsyncClient] | None = attrs.field(
        default=None, validator=_check_factory, repr=check.shown_function, kw_only=True
    )


@check.brief
@attrs.frozen
class HttpOrSse(Http):
    """An `Http` from a file, with variables in its URL. Becomes an `Sse` if the expanded path ends in ``/sse``."""


@explained
@check.brief
@attrs.frozen
class Sse(_HttpFields):
    """A server reached over HTTP with SSE, the transport of 2024-11-05 that streamable HTTP replaced.

    ``repr`` and redirects work as for `Http`.

    Args:
        url: the event stream, ``https://…``; ``http://…`` only on this machine.
        headers: as for `Http`.
        auth: as for `Http`.
        allow_insecure: as for `Http`.

    Raises:
        ConfigError: a value is not valid. The message contains no credential and no header value.
    """


# --- Servers in this process ------------------------------------------------------------------------------------------


def _check_server(instance: InProcess, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None or isinstance(value, str | type):
        remedy = 'give the server object; a program is Stdio("…") and a URL is Http("…")'
        raise check.refused_type("InProcess", "server", value, remedy)


@explained
@attrs.frozen
class InProcess:
    """A server object of the `mcp` package in this process, for tests and embedding.

    Instances with the same object are equal. The object is checked at the connect, not before.

    Args:
        server: the server object.

    Raises:
        ConfigError: `server` is None, a str or a class.
    """

    server: Server[Any] | MCPServer = attrs.field(
        validator=_check_server, eq=id, repr=lambda server: f"<{type(server).__name__}>"
    )


# --- Confine a server process -----------------------------------------------------------------------------------------


_PORTS: Final = 65_536

_NOT_RESTRICTED: Final = (
    "UDP, SCTP, unix sockets with a path, priorities of processes, or modes, times and attributes of files"
)
"""Named by the `repr`, lest readers of a configuration expect more of a sandbox."""


def _to_paths(field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        raise check.refused_type("Sandbox", field, value, "give a tuple or list of paths")
    return tuple(_sandbox_path(field, each) for each in value)


def _sandbox_path(field: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise check.refused("Sandbox", field, f"{field} contains {check.a_type(value)}; give paths as str")
    if problem := system_problem(path):
        raise check.refused("Sandbox", field, f"{field} contains a path that {problem}")
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        raise check.refused("Sandbox", field, f"{field} contains {path!r}; give absolute paths, or paths with '~'")
    return os.path.normpath(path)


def _to_read(value: object) -> tuple[str, ...]:
    return _to_paths("read", value)


def _to_write(value: object) -> tuple[str, ...]:
    return _to_paths("write", value)


def _to_tcp(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    ports = tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)
    for port in ports:
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < _PORTS:
            remedy = "give a tuple of port numbers from 1 to 65535, or None for no restriction"
            raise check.refused("Sandbox", "tcp", f"tcp contains {check.shown(port)}, which is not a port; {remedy}")
    return ports


@explained
@attrs.frozen(kw_only=True, repr=False)
class Sandbox:
    """The files and TCP ports that a server process and its children may use, on Linux with Landlock.

    The process can read system files, its program and interpreter, and the paths given here; it can write only to
    `write`. A program in a folder ``bin`` can read that folder and the libraries next to it. Commands that run packages
    (``npx``, ``uvx``) can also write to their caches and use port 443. Signals to processes outside, abstract unix
    sockets, and ways around the TCP rules are refused too; the guide to stdio servers lists all.

    *Not* restricted: UDP and SCTP, unix sockets with a path, priorities and affinities of processes, and modes, times
    and extended attributes of files. With ports in ``tcp``, the process can also listen on a port that the system
    selects; with ``signals=True`` before Linux 6.12, connect to abstract sockets; as root, send raw packets.

    A start takes 30 ms longer. It fails on kernels that lack what the options need (6.12 has everything, 6.7 all but
    the restriction of signals and abstract sockets), on machines other than x86_64 and aarch64, for a path that leads
    through a folder of ``write`` to a place outside, and if ``write`` contains the interpreter or package starting the
    sandbox.

    Args:
        read: files and folders to read, with everything below. ``~`` is expanded. Default: none.
        write: files and folders to read and change. Default: none.
        tcp: ports to connect to or listen on. None does not restrict TCP. Default ``()``: no port, and no socket can
            listen, not even a unix socket.
        signals: True allows signals to all processes of the user. Default False.

    Raises:
        ConfigError: a path is not absolute, or a port is not a number from 1 to 65535.
    """

    read: tuple[str, ...] = attrs.field(default=(), converter=_to_read)
    write: tuple[str, ...] = attrs.field(default=(), converter=_to_write)
    tcp: tuple[int, ...] | None = attrs.field(default=(), converter=_to_tcp)
    signals: bool = attrs.field(default=False, validator=check.flag)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in attrs.asdict(self).items())
        return f"<Sandbox {shown}; does not restrict {_NOT_RESTRICTED}>"


def to_sandbox(value: Sandbox | Mapping[str, Any] | None) -> Sandbox | None:
    """Convert a mapping from a file; return anything else unchanged."""
    if not isinstance(value, Mapping):
        return value
    names = [each.name for each in attrs.fields(Sandbox)]
    for key in value:
        if key not in names:
            problem = f"sandbox has the key {check.shown(key)}, which is not known"
            raise check.refused("Stdio", "sandbox", f"{problem}; the keys here are {', '.join(map(repr, names))}")
    return Sandbox(**value)


check_sandbox: Final = check.kind(
    Sandbox, type(None), remedy="give a Sandbox(read=…, write=…, tcp=…), or None for no restriction"
)


# --- Child processes --------------------------------------------------------------------------------------------------


def _path(field: str, value: object, owner: str = "Stdio") -> str:
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        remedy = "give a str or a Path"
        if field == "command" and isinstance(value, (list, tuple)) and value:
            remedy = f"put the words after the first into args: {owner}({check.shown(value[0])}, […])"
        raise check.refused_type(owner, field, value, remedy)
    path: str = os.fspath(value)
    if not path.strip():
        raise check.refused(owner, field, f"{field} is empty; give a name or a path")
    if problem := system_problem(path):
        raise check.refused(owner, field, f"{field} {problem}")
    return path


def _to_command(value: str | os.PathLike[str]) -> str:
    return _path("command", value)


def _to_cwd(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else _path("cwd", value)


def _texts(field: str, value: object) -> tuple[str, ...]:
    """Return a tuple of str. Refuse a single str, which Python would split into letters."""
    if isinstance(value, str):
        problem = f"{field} is a single str, not a sequence; did you mean {field}={mask_args(value.split())}?"
        raise check.refused("Stdio", field, problem)
    if not isinstance(value, Iterable) or isinstance(value, (bytes, bytearray, Mapping)):
        raise check.refused_type("Stdio", field, value, "give a tuple or list of str")
    texts = tuple(value)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise check.refused("Stdio", field, f"{field}[{index}] is {check.a_type(text)}; give a str")
        if unusable := system_problem(text):
            raise check.refused("Stdio", field, f"{field}[{index}] {unusable}")
    return texts


def _to_args(value: Iterable[str]) -> tuple[str, ...]:
    return _texts("args", value)


def _check_variable(field: str, name: object) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        # "NAME=value" in one string is a likely mistake, and the value must not be shown.
        shown = check.shown(name.partition("=")[0] + "=…" if isinstance(name, str) and "=" in name else name)
        remedy = "give a non-empty name without '=' (a value belongs in env)"
        problem = f"{field} contains {shown}, which is not a valid name of a variable"
        raise check.refused("Stdio", field, f"{problem}; {remedy}")


def _to_env_from(value: Iterable[str]) -> tuple[str, ...]:
    names = _texts("env_from", value)
    for name in names:
        _check_variable("env_from", name)
    return names


def _to_env(value: Mapping[str, ConfigValue]) -> Mapping[str, ConfigValue]:
    check_mapping("Stdio", "env", value)
    for name, each in value.items():
        _check_variable("env", name)
        if problem := env_problem(check_value("Stdio", "env", name, each) or ""):
            raise check.refused("Stdio", f"env.{name}", f"env[{name!r}]: {problem}")
    return NamedValues(value)


def _check_env_from(instance: Stdio, attribute: attrs.Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    for name in value:
        if name in instance.env:
            problem = f"{name!r} is both in env_from (pass on) and in env (set); remove it from one of them"
            raise check.refused("Stdio", "env_from", problem)


@explained
@check.brief
@attrs.frozen
class Stdio:
    """A server that runs as a child process and communicates through stdin and stdout.

    The child inherits HOME, LOGNAME, PATH, SHELL, TERM, USER; LANG, LC_ALL, LC_CTYPE, TZ, TMPDIR; SSL_CERT_FILE,
    SSL_CERT_DIR, NODE_EXTRA_CA_CERTS; for ``docker`` and ``podman`` DOCKER_HOST and DOCKER_CONTEXT. `env_from` and
    `env` add more; nothing else is passed, but for ``LC_CTYPE=C.UTF-8`` if no locale is set and the system has C.UTF-8.
    The command is looked up when the process is started.

    ``repr`` shows no value of `env` and masks arguments that look like credentials; pass credentials in `env`.

    Args:
        command: the program: a name to look up on PATH, or a path.
        args: the arguments, one per element, passed unchanged: no shell, no ``${VAR}``.
        env: variables to set. In a str value, ``${VAR}`` is expanded at each connect.
        env_from: names of variables of this process to pass on. An unset variable is left out.
        cwd: the directory to start in. None (default) uses that of this process.
        max_line_bytes: the longest message to accept, in bytes. Default 64 MiB.
        sandbox: limits for the process. Default None: no limits.
        trust_outcomes: True for a gateway of this package (``mcp-actors serve --stdio``), perhaps behind ``ssh``: its
            errors become those of this package, with their ``outcome``. Default False: a foreign server could make this
            program repeat an action already carried out.

    Raises:
        ConfigError: a value is not valid. The message contains no value of `env`.
    """

    command: str = attrs.field(converter=_to_command)
    args: tuple[str, ...] = attrs.field(default=(), converter=_to_args, repr=lambda args: repr(mask_args(args)))
    env: Mapping[str, ConfigValue] = attrs.field(default=NamedValues({}), converter=_to_env, kw_only=True)
    env_from: tuple[str, ...] = attrs.field(default=(), converter=_to_env_from, validator=_check_env_from, kw_only=True)
    cwd: str | None = attrs.field(default=None, converter=_to_cwd, kw_only=True)
    # More than any honest message, and still little memory.
    max_line_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_check_bytes, kw_only=True)
    sandbox: Sandbox | None = attrs.field(default=None, converter=to_sandbox, validator=check_sandbox, kw_only=True)
    trust_outcomes: bool = attrs.field(default=False, validator=check.flag, kw_only=True)


# --- Servers behind a gateway -----------------------------------------------------------------------------------------


_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Za-z:.%]+)\]|(?P<host>[^\s:/@\[\]]+)):(?P<port>[0-9]{1,5})")
SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Valid names of servers, here and behind a gateway."""


def parse_address(address: str) -> str | tuple[str, int]:
    """Return the path of a unix socket, or a host and a port.

    Raises:
        ValueError: `address` is neither; the text says what is expected.
    """
    if address.startswith(("/", "~/")) and system_problem(address) is None:
        return os.path.expanduser(address)
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or int(found["port"]) >= _PORTS:
        expected = "write '/run/x.sock', 'host:port' or '[::1]:port'"
        raise ValueError(f"address {check.shown(address)} is neither a path nor a host and a port; {expected}")
    return found["v6"] or found["host"], int(found["port"])


def _check_address(instance: Socket, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, str) and not isinstance(value, Written):
        try:
            parse_address(value)
        except ValueError as exc:
            raise check.refused("Socket", "address", str(exc)) from None
    elif not isinstance(value, str) and not check.is_function(value):
        remedy = "give a path, 'host:port', or an async function that returns one of them"
        raise check.refused_type("Socket", "address", value, remedy)


def _check_named(instance: Socket, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Written | None) and not (isinstance(value, str) and SERVER_NAME.fullmatch(value)):
        remedy = "give the name of a server behind the gateway, or None for the name of this one"
        raise check.refused_value(instance, "server", value, remedy)


def _check_secret(instance: Socket, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    text = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(text, str) and not check.is_function(text):
        remedy = "give a str, a Secret, or a function that returns a str"
        raise check.refused_type("Socket", "secret", value, remedy)
    literal = isinstance(value, Secret) or "${" not in str(text)
    if isinstance(text, str) and literal and (problem := secret_problem(text)):
        raise check.refused("Socket", "secret", f"secret: {problem}")


def _to_secret_file(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else _path("secret_file", value, "Socket")


def _check_proof(instance: Socket, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    """Refuse two secrets, and a host without a secret: anyone on the network could be either side."""
    if value is not None and instance.secret is not None:
        raise check.refused("Socket", "secret_file", "secret and secret_file are both given; remove one of them")
    address = instance.address
    if not isinstance(address, str) or isinstance(address, Written):
        return
    if isinstance(parse_address(address), tuple) and instance.secret is value is None:
        remedy = "set secret or secret_file to that of the gateway's --secret-file"
        problem = f"address {address!r} is on a network, and there is no secret"
        raise check.refused("Socket", "secret", f"{problem}; {remedy}")


@explained
@check.brief
@attrs.frozen
class Socket:
    """A server behind a gateway of this package, run by another process or machine (``mcp-actors serve``).

    A connection carries this server alone; its tools keep their names. Errors of the gateway become errors of this
    package, with their ``outcome``. Over a network, both sides first prove that they know the secret; messages are not
    protected, so on a shared network use ``ssh``, a VPN or a mesh.

    ``repr`` does not show `secret`.

    Args:
        address: the path of a unix socket (``"/run/x.sock"``, ``"~/x.sock"``) of the same user as this process;
            ``"host:port"``; or an async function without arguments that returns either, called for each connect.
        server: the name of the server at the gateway. Default None: the name of the `ServerConfig`.
        secret: the secret of the gateway, 16 characters or more; resolved at each connect. Required for a host, unless
            `secret_file` is given; not used for a path.
        secret_file: the path of a file with the secret, unreadable for other users; read at each connect.
        max_line_bytes: the longest message to accept, in bytes. Default 64 MiB.

    Raises:
        ConfigError: a value is not valid. The message does not contain `secret`.
    """

    address: str | Callable[[], Awaitable[str]] = attrs.field(
        validator=_check_address,
        repr=lambda value: repr(value) if isinstance(value, str) else check.shown_function(value),
    )
    server: str | None = attrs.field(default=None, validator=_check_named, kw_only=True)
    secret: ConfigValue | None = attrs.field(default=None, validator=_check_secret, repr=shown_secret, kw_only=True)
    secret_file: str | None = attrs.field(default=None, converter=_to_secret_file, validator=_check_proof, kw_only=True)
    max_line_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_check_bytes, kw_only=True)

    @property
    def display_address(self) -> str:
        """The address for messages: the text, or the name of the function."""
        return self.address if isinstance(self.address, str) else f"<{check.name_of(self.address)}>"
