"""Create the HTTP client of a connection from the configuration.

A client combines headers, an auth flow, TLS settings, proxies and limits. Unless the user gives an `http_client`, a
thread makes the client, because it may read a certificate file. If a function of the configuration fails, or a proxy or
a certificate file is unusable, `ConnectFailed` is raised. No request is sent to the server here.

Owns: the thread that makes the client.
Writes: the client's headers, hooks and auth flow; the list of credentials to mask.
Calls: auth, config, transports, _bodies, _proxies, _transport.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from http.cookiejar import Cookie
from typing import TYPE_CHECKING, Final
from urllib.request import getproxies

import httpx2
import trio

from ... import auth
from ..._errors import ConnectFailed
from ..._text import own_shortage, shortage_of
from ...config import Http, OAuth, Sse, is_auth_flow, is_loopback, resolve
from .._credentials import Credentials, Masker, Renewal, resolve_credentials
from .._link import Certificates, missing_certificates, not_open
from ._bodies import note_refusal, refuse_surplus
from ._proxies import EnvironmentProxies, UnusableProxy, proxy_of
from ._transport import KeepAliveTransport

if TYPE_CHECKING:
    from ...config import ServerConfig

_hopeless: Final = partial(not_open, phase="configure")
_retryable: Final = partial(not_open, phase="configure", hopeless=False)

HTTP_TIMEOUT: Final = httpx2.Timeout(connect=10.0, write=30.0, read=None, pool=None)
"""Seconds until the network counts as broken. ``read`` and ``pool`` are None: the timeouts of requests limit these
waits."""

LIBRARY_TIMEOUT: Final = httpx2.Timeout(5.0)
"""The default of httpx2, too short for many calls: `HTTP_TIMEOUT` replaces it."""

MIN_CONNECTIONS: Final = 50
"""Minimum connections for a small ``max_in_flight``; each event stream holds a connection."""

SPARE_CONNECTIONS: Final = 4
"""Connections beyond one per request in flight: notifications, a probe, a cancellation, the end of the session."""

KEEPALIVE: Final = 60.0
"""Seconds that `Sse` keeps an unused connection; `Http` has ``keepalive``."""

KEPT_CONNECTIONS: Final = 20
"""Maximum of kept unused connections. The HTTP library looks at each twice per request: 64 after a burst would double
the time of each later call."""

MAX_COOKIES: Final = 50
"""Maximum of cookies of one connection, all sent with each request."""

MAX_COOKIE_BYTES: Final = 8 * 1024
"""Maximum size of the names, values and paths of cookies. Many servers refuse longer headers."""


def real_url(transport: Http | Sse) -> str:
    """Return the URL for requests, without the fragment, and without the user and password, which a header carries."""
    return str(httpx2.URL(transport.url).copy_with(userinfo=b"", fragment=None))


async def make_client(
    config: ServerConfig, transport: Http | Sse, masker: Masker, certificates: Certificates
) -> httpx2.AsyncClient:
    """Create the client of one connection. The caller closes it.

    **Cancellation**: leaves nothing behind.

    Raises:
        ConnectFailed: a credential cannot be resolved, `http_client` fails, or the certificates or proxies that the
            environment names cannot be used.
    """
    credentials = Credentials(config, transport, masker)
    headers = await credentials.resolve()
    masker.add("<url>", transport.url, own_url=True)
    given = transport.auth
    if isinstance(transport, Http) and transport.http_client is not None:
        client = _call_factory(config.name, transport.http_client)
    else:
        try:
            client = await trio.to_thread.run_sync(_new_client, config, transport, certificates, abandon_on_cancel=True)
        except RuntimeError as error:
            if (shortage := own_shortage(error)) is None:
                raise
            reason = f"the HTTP client cannot be created ({shortage.what}); {shortage.remedy}"
            raise _retryable(config.name, reason) from error
    client.headers.update(headers)
    # In this order: a refusal that came before its request proves nothing.
    client.event_hooks["response"] += [refuse_surplus, note_refusal]
    client.event_hooks["response"].append(partial(_forget_cookies, client))
    url = httpx2.URL(transport.url)
    if url.userinfo:
        client.auth = httpx2.BasicAuth(url.username, url.password)
    elif (oauth := oauth_of(config, transport)) is not None:
        asks = await authorization_client(config, transport, oauth, client, masker)
        client.auth = auth.OAuthTokens(config.name, asks)
    elif is_auth_flow(given):
        client.auth = given
    elif client.auth is None and credentials.renewable:
        client.auth = Renewal(client, credentials, headers)
    if is_auth_flow(given) or (isinstance(transport, Http) and transport.http_client is not None):
        client.event_hooks["response"].append(partial(_note_token, masker))
    return client


@asynccontextmanager
async def finish_refresh(client: httpx2.AsyncClient) -> AsyncIterator[None]:
    """Let a refresh of the token end before a client is closed: no task of the connection owns the refresh."""
    try:
        yield
    finally:
        # The class is imported when the first client needs it.
        if "OAuthTokens" in vars(auth) and isinstance(client.auth, auth.OAuthTokens):
            await client.auth.finish()


def oauth_of(config: ServerConfig, transport: Http | Sse) -> OAuth | None:
    """Return how to sign in to a server; None if it has other credentials, or has none and no file configures it."""
    if transport.auth is not None:
        return transport.auth if isinstance(transport.auth, OAuth) else None
    named = any(name.lower() == "authorization" for name in transport.headers) or httpx2.URL(transport.url).userinfo
    return None if named or config.source is None else OAuth(optional=True)


async def authorization_client(
    config: ServerConfig, transport: Http | Sse, oauth: OAuth, client: httpx2.AsyncClient, masker: Masker
) -> auth.AuthorizationClient:
    """Return the client of an authorization server.

    Raises:
        ConnectFailed: the client secret cannot be resolved.
    """
    secret = None
    if oauth.client_secret is not None:
        secret = await resolve_credentials(resolve, oauth.client_secret, config, "auth.client_secret")
        masker.add("<auth.client_secret>", secret)
    return auth.AuthorizationClient(
        client, real_url(transport), oauth, secret, masker, partial(masker.add_recent, "<token>")
    )


async def _forget_cookies(client: httpx2.AsyncClient, response: httpx2.Response) -> None:
    """Drop the oldest cookies beyond the limits. A response hook."""
    if "set-cookie" not in response.headers:
        return
    jar = client.cookies.jar
    cookies = list(jar)
    size = sum(map(_size_of, cookies))
    first = 0
    while len(cookies) - first > MAX_COOKIES or size > MAX_COOKIE_BYTES:
        size -= _size_of(cookies[first])
        first += 1
    jar.clear()  # a jar keeps the path of a cookie that has expired or was dropped
    for cookie in cookies[first:]:
        jar.set_cookie(cookie)


def _size_of(cookie: Cookie) -> int:
    return len(cookie.name) + len(cookie.value or "") + len(cookie.path)


async def _note_token(masker: Masker, response: httpx2.Response) -> None:
    """Mask a token that becomes known when it is sent. A response hook."""
    if sent := response.request.headers.get("authorization"):
        masker.add_recent("<auth>", sent)


def _call_factory(server: str, factory: Callable[[], httpx2.AsyncClient]) -> httpx2.AsyncClient:
    try:
        client: object = factory()
    except Exception as error:
        # Not hopeless: the function may succeed next time.
        raise _retryable(server, f"http_client raised {type(error).__name__}; see the cause of this error") from error
    if not isinstance(client, httpx2.AsyncClient):
        raise _hopeless(server, f"http_client returned {type(client).__name__!r}; return an httpx2.AsyncClient")
    if client.is_closed:
        raise _hopeless(server, "http_client returned a closed client; create a new one in each call")
    if client.timeout == LIBRARY_TIMEOUT:
        client.timeout = HTTP_TIMEOUT
    return client


def _new_client(config: ServerConfig, transport: Http | Sse, certificates: Certificates) -> httpx2.AsyncClient:
    """Create a client as configured. Blocks."""
    try:
        verify = context_of(config.name, transport, certificates)
        limits, url = limits_of(config, transport), httpx2.URL(transport.url)
        ours = KeepAliveTransport(verify, limits)
        # No proxy for a loopback URL, which is allowed without TLS because nothing leaves this machine.
        if is_loopback(url.host) or not getproxies().keys() - {"no"}:
            return httpx2.AsyncClient(transport=ours, timeout=HTTP_TIMEOUT, trust_env=False)
        proxies = EnvironmentProxies(ours, lambda proxy: httpx2.AsyncHTTPTransport(verify, limits=limits, proxy=proxy))
        proxies.transport_for(url)
        return httpx2.AsyncClient(transport=proxies, timeout=HTTP_TIMEOUT)
    except UnusableProxy as error:
        raise _hopeless(config.name, str(error)) from None
    except ConnectFailed:
        raise
    except Exception as error:
        if shortage := shortage_of(error):
            remedy = _remedy_of(error)
            raise _retryable(config.name, f"the HTTP client cannot be created ({shortage}); {remedy}") from error
        # Hide the text of the error, which may contain the URL of a proxy with its password. But show an ImportError,
        # which names the package that a proxy needs.
        shown = f": {error}" if isinstance(error, ImportError) else ""
        if (missing := missing_certificates()) is not None:
            remedy = "set it to a file of CA certificates, or unset it"
            raise _hopeless(config.name, f"{missing}, so no certificate can be checked; {remedy}") from error
        reason = f"the HTTP client cannot be created ({type(error).__name__}{shown})"
        remedy = "check SSL_CERT_FILE, SSL_CERT_DIR and the proxy variables of the environment"
        raise _hopeless(config.name, f"{reason}; {remedy}") from error


def proxy_variable(transport: Http | Sse) -> str:
    """Return the environment variable with the proxy through which a server is reached; empty if there is none."""
    own = isinstance(transport, Http) and transport.http_client is not None
    found = None if own else proxy_of(httpx2.URL(transport.url))
    return "" if found is None else found[0]


def limits_of(config: ServerConfig, transport: Http | Sse) -> httpx2.Limits:
    """Return the limits on connections, and the seconds that an unused connection is kept."""
    limit, keepalive = None, KEEPALIVE
    if isinstance(transport, Http):
        limit, keepalive = transport.max_connections, transport.keepalive
    limit = limit or max(MIN_CONNECTIONS, config.max_in_flight + SPARE_CONNECTIONS)
    return httpx2.Limits(max_connections=limit, max_keepalive_connections=KEPT_CONNECTIONS, keepalive_expiry=keepalive)


def bound_on_connections(config: ServerConfig, transport: Http | Sse) -> int | None:
    """Return the maximum number of connections to a server; None over SSE, or for a client of the user."""
    if not isinstance(transport, Http) or transport.http_client is not None:
        return None
    return limits_of(config, transport).max_connections


def context_of(server: str, transport: Http | Sse, certificates: Certificates) -> ssl.SSLContext:
    """Return the TLS settings that check the server's certificate. Blocks on files.

    Raises:
        ConnectFailed: the configured file cannot be used.
    """
    verify = transport.verify if isinstance(transport, Http) else None
    if isinstance(verify, str):
        return _read_certificates(server, verify)
    if isinstance(verify, ssl.SSLContext):
        return verify
    return httpx2.create_ssl_context(verify=False) if verify is False else certificates.context()


def _read_certificates(server: str, path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        if shortage := shortage_of(error):
            raise _retryable(server, f"verify={path!r} cannot be read ({shortage}); {_remedy_of(error)}") from error
        reason = error.strerror or type(error).__name__
        remedy = "set it to the path of a PEM file of CA certificates"
        raise _hopeless(server, f"verify={path!r} cannot be used ({reason}); {remedy}") from error


def _remedy_of(error: Exception) -> str:
    shortage = own_shortage(error)
    return "try again later" if shortage is None else shortage.remedy
