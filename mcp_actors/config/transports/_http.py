"""Servers over HTTP: URL, credentials, client options (`Http`, `Sse`)."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from urllib.parse import SplitResult, urlsplit

import attrs

from ..._errors import ConfigError
from ..._misuse import explained
from .. import _validators as check
from ..values import (
    MASK,
    NO_VALUES,
    ConfigValue,
    NamedValues,
    Secret,
    check_mapping,
    check_value,
    header_problem,
    mask_url,
    token_problem,
)
from ._hosts import is_loopback
from ._oauth import OAuth

if TYPE_CHECKING:
    import httpx2

_DEFAULT_MAX_BODY: Final = 64 * 1024 * 1024  # bytes; as for a line over stdio
_DEFAULT_KEEPALIVE: Final = 60.0  # seconds

# Some URL parsers silently drop whitespace and control characters, and others read a backslash as a slash, so such a
# URL could name one host here and another one on the wire.
_NOT_IN_URL: Final = re.compile(r"[\s\x00-\x1f\x7f\\]")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, a token


def _owner(instance: _Endpoint) -> str:
    return type(instance).__name__


# --- url ------------------------------------------------------------------------------------------------------------


def _shown_url(url: str) -> str:
    return repr(mask_url(url))


def _bad_url(owner: str, url: str, problem: str) -> ConfigError:
    return check.refused(owner, "url", f"url {_NOT_IN_URL.sub('', mask_url(url))!r} {problem}")


def _split_url(owner: str, url: str) -> SplitResult:
    """Return the parts of an http or https URL with a host; refuse any other."""
    if _NOT_IN_URL.search(url):
        remedy = "contains whitespace, a control character or a backslash; remove it"
        raise _bad_url(owner, url, remedy)
    if "${" in url:
        raise _bad_url(owner, url, "contains '${', but variables are expanded in headers only; build the URL in Python")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _bad_url(owner, url, "has an invalid host or port; write https://host:port/path") from None
    if parts.scheme not in ("http", "https"):
        raise _bad_url(owner, url, "is not an http or https URL; write https://host/path")
    if not host:
        raise _bad_url(owner, url, "has no host; write https://host/path")
    return parts


def _check_url(instance: _Endpoint, attribute: attrs.Attribute[Any], value: object) -> None:
    owner = _owner(instance)
    if not isinstance(value, str):
        raise check.refused(owner, "url", f"url is {check.a_type(value)}; give a str such as https://host/path")
    _split_url(owner, value)


def _check_secure(instance: _Endpoint, attribute: attrs.Attribute[Any], value: object) -> None:
    check.flag(instance, attribute, value)
    parts = _split_url(_owner(instance), instance.url)
    if parts.scheme == "http" and not value and not is_loopback(parts.hostname or ""):
        remedy = "use https, or set allow_insecure=True if you trust the network"
        problem = f"would send everything unencrypted, including credentials; {remedy}"
        raise _bad_url(_owner(instance), instance.url, problem)


# --- credentials ----------------------------------------------------------------------------------------------------


def _to_headers(value: Mapping[str, ConfigValue]) -> Mapping[str, ConfigValue]:
    # The validator refuses anything but a mapping; unlike this converter it knows the class for the message.
    return NamedValues(value) if isinstance(value, Mapping) else value  # type: ignore[redundant-expr]  # users may pass anything


def _check_headers(instance: _Endpoint, attribute: attrs.Attribute[Any], value: Mapping[str, ConfigValue]) -> None:
    owner = _owner(instance)
    check_mapping(owner, "headers", value)
    spelled: dict[str, str] = {}
    for name, each in value.items():
        _check_header_name(owner, name)
        if name.lower() in spelled:
            problem = f"{spelled[name.lower()]!r} and {name!r} are the same header; remove one of them"
            raise check.refused(owner, "headers", problem)
        spelled[name.lower()] = name
        text = check_value(owner, "headers", name, each)
        if problem_of_value := header_problem(text or ""):
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
    """Return whether `value` is an `httpx2.Auth`, without importing that."""
    return callable(getattr(value, "async_auth_flow", None))


def _shown_auth(value: object) -> str:
    if isinstance(value, OAuth):
        return repr(value)
    return "None" if value is None else f"<{type(value).__name__}>" if is_auth_flow(value) else MASK


def _check_auth(instance: _Endpoint, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is neither a token nor an auth flow, and a second credential, of which only one could be sent."""
    if value is None:
        return
    owner = _owner(instance)
    for name in instance.headers:
        if name.lower() == "authorization":
            problem = f"auth is given, and headers has {name!r}; remove one of the two"
            raise check.refused(owner, "auth", problem)
    if "@" in _split_url(owner, instance.url).netloc:
        problem = "auth is given, and url contains a user name or password; remove one of the two"
        raise check.refused(owner, "auth", problem)
    if isinstance(value, OAuth) or is_auth_flow(value):
        return
    if not isinstance(value, str | Secret) and not callable(value):
        remedy = "give a bearer token (a str, a Secret, or a function that returns a str), OAuth() or an httpx2.Auth"
        raise check.refused(owner, "auth", f"auth is {check.a_type(value)}; {remedy}")
    if isinstance(value, str) and value.lower() == "oauth":  # as files and other clients have it
        raise check.refused(owner, "auth", f"auth={value!r} would be sent as a token; give auth=OAuth() to sign in")
    token = value.reveal() if isinstance(value, Secret) else value
    problem_of_token = token_problem(token) if isinstance(token, str) else None
    if problem_of_token is not None:
        raise check.refused(owner, "auth", f"auth: {problem_of_token}")


# --- the client -----------------------------------------------------------------------------------------------------

_ABOUT_THE_CLIENT: Final = ("verify", "max_connections", "keepalive")


def _check_factory(instance: Http, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse anything but a function, and options that a custom client would ignore."""
    if value is None:
        return
    if not callable(value):
        remedy = "give a function that returns a new httpx2.AsyncClient, which is closed with the connection"
        raise check.refused("Http", "http_client", f"http_client is {check.a_type(value)}; {remedy}")
    for name in _ABOUT_THE_CLIENT:
        if getattr(instance, name) != getattr(attrs.fields(Http), name).default:
            problem = f"http_client and {name} are both given; set it on the client that http_client makes"
            raise check.refused("Http", "http_client", problem)


def _to_verify(value: ssl.SSLContext | str | os.PathLike[str] | bool | None) -> ssl.SSLContext | str | bool | None:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_verify(instance: Http, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, ssl.SSLContext | str | bool | None) or value == "":
        remedy = "give an ssl.SSLContext, the path of a file of CA certificates, or True"
        raise check.refused("Http", "verify", f"verify is {check.a_type(value) if value != '' else 'empty'}; {remedy}")
    if value is False and not instance.allow_insecure:
        problem = "verify=False lets anyone on the network impersonate the server"
        remedy = "give the path of its CA certificate instead, or set allow_insecure=True as well"
        raise check.refused("Http", "verify", f"{problem}; {remedy}")


def _check_max_connections(instance: Http, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        remedy = "give 2 or more (the notification stream takes one), or None"
        check.count(2, remedy)(instance, attribute, value)


# --- the transports -------------------------------------------------------------------------------------------------


@attrs.frozen
class _Endpoint:
    """The fields that all servers over HTTP have."""

    # The order matters: a validator may use the fields before its own.
    url: str = attrs.field(validator=_check_url, repr=_shown_url)
    headers: Mapping[str, ConfigValue] = attrs.field(
        default=NO_VALUES, converter=_to_headers, validator=_check_headers, kw_only=True
    )
    auth: ConfigValue | OAuth | httpx2.Auth | None = attrs.field(
        default=None, validator=_check_auth, repr=_shown_auth, kw_only=True
    )
    allow_insecure: bool = attrs.field(default=False, validator=_check_secure, kw_only=True)

    @property
    def display_url(self) -> str:
        """The URL for messages and logs: without user-info and fragment, with every query value masked."""
        return mask_url(self.url)


@explained
@attrs.frozen
class Http(_Endpoint):
    """A server that is reached over streamable HTTP.

    ``repr`` shows no value of `headers` or `auth`, and `url` only as in `display_url`. Redirects are followed only
    within the origin of `url`.

    Args:
        url: the endpoint, ``https://…``; ``http://…`` only on this machine (localhost, 127.0.0.0/8, ``[::1]``).
        headers: headers for every request. In a str value, ``${VAR}`` is expanded at each connect.
        auth: a bearer token, resolved at each connect like the values of `headers`; an `OAuth`, by which a person or
            the program signs in; or an `httpx2.Auth`, which is applied to every request. Default None. Variables and
            functions, here and in `headers`, are also resolved again if the server answers 401 after it had accepted
            their values.
        http_client: a function that makes the `httpx2.AsyncClient` of one connection. It is called once per
            connection, and the client is closed with the connection. The client's default timeout of 5 seconds is
            ignored, any other is used. Default None: a client is made from the options below.
        verify: how the server's certificate is verified: an `ssl.SSLContext`, or the path of a file of CA
            certificates. None (default) or True uses the certificates of this machine. False disables verification,
            and requires `allow_insecure`.
        max_connections: concurrent connections, 2 or more (the notification stream takes one). None (default) means
            50, or ``max_in_flight + 4`` if that is more.
        keepalive: seconds that an unused connection is kept. Default 60.
        max_body_bytes: the longest response or event to accept, in bytes after decoding. Default 64 MiB.
        allow_insecure: True allows ``http://…`` to other machines, so anyone on the network can read and change
            everything.

    Raises:
        ConfigError: a value is not valid. The message contains no value of a header and no credential.
    """

    verify: ssl.SSLContext | str | bool | None = attrs.field(
        default=None, converter=_to_verify, validator=_check_verify, kw_only=True
    )
    max_connections: int | None = attrs.field(default=None, validator=_check_max_connections, kw_only=True)
    keepalive: float = attrs.field(default=_DEFAULT_KEEPALIVE, validator=check.seconds(), kw_only=True)
    max_body_bytes: int = attrs.field(
        default=_DEFAULT_MAX_BODY, validator=check.count(1, "give a number of bytes, 1 or more"), kw_only=True
    )
    http_client: Callable[[], httpx2.AsyncClient] | None = attrs.field(
        default=None, validator=_check_factory, repr=check.shown_function, kw_only=True
    )


@explained
@attrs.frozen
class Sse(_Endpoint):
    """A server that is reached over HTTP with SSE, the transport of 2024-11-05 that streamable HTTP has replaced.

    ``repr`` and redirects work as for `Http`.

    Args:
        url: the URL of its event stream, ``https://…``; ``http://…`` only on this machine.
        headers: as for `Http`.
        auth: as for `Http`.
        allow_insecure: as for `Http`.

    Raises:
        ConfigError: a value is not valid. The message contains no value of a header and no credential.
    """
