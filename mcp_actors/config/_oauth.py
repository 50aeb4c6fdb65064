"""Configure the sign-in by OAuth; recognize loopback and private hosts.

A hostile server could send the sign-in to a private address, in any notation. Nothing here resolves a name, sends a
request or reads a token.

Owns: nothing.
Writes: nothing.
Calls: _validators, _values.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from .._misuse import explained
from . import _validators as check
from ._values import ConfigValue, Secret, mask_url, shown_secret

# --- Judge the host of a URL ------------------------------------------------------------------------------------------


_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""The public part of IPv6. The rest is local, multicast or unassigned, or contains an IPv4 address."""


def is_loopback(host: str) -> bool:
    """Return whether traffic to `host` cannot leave this machine: localhost, 127.0.0.0/8 or ::1."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback if address.version == 4 else address == ipaddress.IPv6Address("::1")


def is_not_public(host: str) -> bool:
    """Return whether `host` is an address outside the public Internet, or a name of this machine.

    True for loopback, private, shared (100.64.0.0/10), link-local, multicast and unspecified addresses. IPv4 is
    recognized within IPv6, and in any notation that a socket accepts: ``127.1``, ``0x7f000001``. False for other names.
    """
    name = unquote(host).partition("%")[0].rstrip(".").lower()  # without the zone of a link-local address
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(name))
        except (OSError, ValueError):  # ValueError: a null character
            # Names, or ends of names, that mean this machine wherever they are resolved.
            return name.rpartition(".")[2] in ("localhost", "localdomain", "ip6-localhost", "ip6-loopback")
    if isinstance(address, ipaddress.IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None:
            return address not in _GLOBAL_UNICAST or not address.is_global
        address = within
    return address.is_multicast or not address.is_global


# --- Sign-in ----------------------------------------------------------------------------------------------------------


SignInCallback: TypeAlias = Callable[[str], Awaitable[str | None] | str | None]
"""A function, async or not, that shows a URL to a person. Returns the code, or the URL that the person was redirected
to, if the person pastes either; or None to wait for the redirect.
"""

SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, 3.3


@runtime_checkable
class TokenStore(Protocol):
    """Keeps tokens between runs, for all processes of one user.

    Keys and values are opaque strings; a value has at most a few kilobytes. A store that fails raises `ConfigError`
    with a remedy, and never falls back to a less secure place. The methods run on Trio. `save` and `delete` are called
    while the lock of the key is held.
    """

    async def load(self, key: str) -> str | None:
        """Return the value of a key, or None."""

    async def save(self, key: str, value: str) -> None:
        """Replace the value of a key as a whole: a crash leaves the old value or the new."""

    async def delete(self, key: str) -> None:
        """Remove a key, if it exists."""

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold the lock of a key, against other tasks and processes. The lock ends with its process."""
        raise NotImplementedError


def _bad(field: str, problem: str) -> Exception:
    return check.refused("OAuth", field, problem)


def _to_scopes(value: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(value.split()) if isinstance(value, str) else check.as_tuple(value)


def _check_scopes(instance: OAuth, attribute: attrs.Attribute[check.Value], value: check.Value) -> None:
    if not isinstance(value, tuple):
        raise check.refused_type("OAuth", "scopes", value, "give a str or strings, such as 'files:read'")
    for scope in value:
        if not isinstance(scope, str) or not SCOPE.fullmatch(scope):
            raise _bad("scopes", f"scopes contains {scope!r}; give strings without spaces, such as 'files:read'")


def _check_client(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not (isinstance(value, str) and re.fullmatch(r"[\x20-\x7e]+", value)):  # RFC 6749, A.1
        problem = f"client_id {check.shown(value)} is not the id of a client"
        raise _bad("client_id", f"{problem}; give it as a str, as the authorization server shows it")


def _parts(url: object) -> SplitResult | None:
    """Return the parts of a URL to which codes and tokens may go; None for any other."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or not parts.hostname or parts.username is not None or parts.fragment:
            return None
        _ = parts.port  # raises ValueError if invalid
    except ValueError:
        return None
    return parts if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)) else None


def _check_redirect(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if _parts(value) is None:
        problem = f"no code may be sent to the redirect {_shown_url(value)}"
        remedy = "give http://127.0.0.1:PORT/PATH or, with a sign-in callback that reads it, an https URL"
        raise _bad("redirect", f"{problem}; {remedy}, without user and fragment")


def _check_issuer(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and _parts(value) is None:
        problem = f"issuer {_shown_url(value)} is not the issuer of an authorization server"
        raise _bad("issuer", f"{problem}; give an https URL without user and fragment")


def _check_document(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    parts = _parts(value)
    if parts is None or parts.scheme != "https" or parts.path in ("", "/"):
        problem = f"client_metadata_url {_shown_url(value)} is not the URL of a document"
        raise _bad("client_metadata_url", f"{problem}; give an https URL with a path, without user and fragment")
    if instance.client_id is not None:
        raise _bad("client_metadata_url", "client_id and client_metadata_url are both given; remove one of the two")


def _shown_url(value: object) -> str:
    return repr(mask_url(value)) if isinstance(value, str) else check.shown(value)


def _check_account(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not (isinstance(value, str) and value.strip() and value.isprintable()):
        raise _bad("account", f"account {check.shown(value)} is not a name; give a word of your choice, such as 'work'")


def _check_secret(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str | Secret) and not check.is_function(value):
        raise check.refused_type("OAuth", "client_secret", value, "give a str, a Secret or a function")
    if instance.client_id is None:
        raise _bad("client_secret", "client_secret is given without client_id; give both")


def _check_resource(instance: OAuth, attribute: attrs.Attribute[Any], value: bool) -> None:
    if not value and not instance.scopes:
        problem = "send_resource=False is given without scopes, so a token could be good for anything"
        raise _bad("send_resource", f"{problem}; give scopes, such as 'api://CLIENT-ID/access'")


def _check_function(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not check.is_function(value):
        raise check.refused_type("OAuth", attribute.name, value, "give a function")


def _check_grant(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    check.one_of("authorization_code", "client_credentials", "identity_assertion")(instance, attribute, value)
    if value == "client_credentials":
        secret = instance.assertion or instance.client_secret
        needed = {"client_id": instance.client_id, "client_secret or assertion": secret}
    elif value == "identity_assertion":
        if not instance.send_resource:
            raise _bad("send_resource", "send_resource=False is not used with grant='identity_assertion'; remove it")
        needed = {name: getattr(instance, name) for name in ("issuer", "client_id", "client_secret", "assertion")}
    else:
        needed = {}
        if instance.assertion is not None:
            raise _bad("assertion", "assertion is not used with grant='authorization_code'; set grant")
    if missing := [name for name, each in needed.items() if each is None]:
        raise _bad("grant", f"grant={value!r} is given without {' and '.join(missing)}; give that too")


def _check_store(instance: OAuth, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, TokenStore) or isinstance(value, type)):
        raise check.refused_type("OAuth", "store", value, "give an object with the methods of a TokenStore")


@explained
@check.brief
@attrs.frozen(kw_only=True)
class OAuth:
    """Sign in to a server over HTTP by OAuth 2.1, once for all processes of this user.

    Nothing here opens a browser: a server without a sign-in is ``needs_auth``, until ``mcp-actors login NAME`` or
    ``await servers[NAME].sign_in()``. Tokens are kept in the `store` and refreshed before they expire.

    Args:
        scopes: the only scopes to ask for, as a str or strings. Empty (default): those requested by the server.
        client_id: the id of a client registered with the authorization server. Default None: the client registers
            itself.
        client_secret: the client's secret, resolved like a value of ``headers``. Sent only to the `issuer`; if that is
            None, to the issuer of the first sign-in, until the sign-out. Default None: a public client.
        client_metadata_url: the https URL of a client id metadata document: the client's id, where the authorization
            server supports that. Default None.
        redirect: where the browser returns to. Default: a receiver on this machine, on a free port.
        grant: ``"authorization_code"`` (default): a person signs in. ``"client_credentials"``: the program does, by
            `client_secret` or `assertion`. ``"identity_assertion"``: the enterprise's identity provider vouches for the
            person by `assertion`.
        issuer: the only accepted issuer. Default None: the issuer named by the server's metadata.
        assume_pkce: True accepts an authorization server that does not announce PKCE, but is known to verify S256
            (Microsoft Entra ID, Amazon Cognito). Default False refuses it, as MCP requires.
        send_resource: False leaves out the parameter ``resource`` (RFC 8707), which names the server, for authorization
            servers that refuse it (Microsoft Entra ID). Then only `scopes`, which are required, limit a token. Default
            True, as MCP requires.
        assertion: a function, async or not, that returns a signed JWT. With ``"client_credentials"`` it gets the
            issuer, and the JWT authenticates the client (``private_key_jwt``). With ``"identity_assertion"`` it gets
            the issuer and the resource, and returns an identity assertion authorization grant.
        on_sign_in: shows the URL to a person when a connect needs a sign-in (see `SignInCallback`): at most twice an
            hour, and after a failed sign-in not before the server has served or is restarted explicitly. Default None:
            only `sign_in()` and ``mcp-actors login`` ask.
        sign_in_timeout: seconds for a person to sign in, not counted by any other timeout. Default 300.
        optional: True requires a sign-in only where the server's 401 names its metadata; any other 401 is an error as
            without OAuth. Default False; True for servers of configuration files without credentials.
        account: a name of your choice, to use several accounts at one URL. Servers with the same URL, client, issuer,
            grant and account share one sign-in. Default None.
        store: where tokens are kept. Default None: a file of mode 0600 in the user's data directory.

    Raises:
        ConfigError: a value is not valid, or does not go with another.
    """

    scopes: tuple[str, ...] = attrs.field(default=(), converter=_to_scopes, validator=_check_scopes)
    client_id: str | None = attrs.field(default=None, validator=_check_client)
    client_secret: ConfigValue | None = attrs.field(default=None, validator=_check_secret, repr=shown_secret)
    client_metadata_url: str | None = attrs.field(default=None, validator=_check_document)
    redirect: str = attrs.field(default="http://127.0.0.1:0/callback", validator=_check_redirect)
    issuer: str | None = attrs.field(default=None, validator=_check_issuer)
    assume_pkce: bool = attrs.field(default=False, validator=check.flag)
    send_resource: bool = attrs.field(default=True, validator=[check.flag, _check_resource])
    assertion: Callable[..., Awaitable[str] | str] | None = attrs.field(
        default=None, validator=_check_function, repr=check.shown_function
    )
    grant: Literal["authorization_code", "client_credentials", "identity_assertion"] = attrs.field(
        default="authorization_code", validator=_check_grant
    )
    on_sign_in: SignInCallback | None = attrs.field(default=None, validator=_check_function, repr=check.shown_function)
    sign_in_timeout: float = attrs.field(default=300.0, validator=check.seconds())
    optional: bool = attrs.field(default=False, validator=check.flag)
    account: str | None = attrs.field(default=None, validator=_check_account)
    store: TokenStore | None = attrs.field(default=None, validator=_check_store)

    @property
    def unattended(self) -> bool:
        """True if the program gets tokens without a person."""
        return self.grant != "authorization_code"
