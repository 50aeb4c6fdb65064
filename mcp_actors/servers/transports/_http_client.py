"""The HTTP client of one connection: from what was configured to what sends."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import httpx2
import trio

from ..._errors import ConnectFailed
from ...config import Http, Sse, is_auth_flow, is_loopback
from ._http_bodies import note_refusal
from ._masker import Masker
from ._renewal import Credentials, Renewal
from ._shortage import shortage_of

if TYPE_CHECKING:
    from ...config import ServerConfig

__all__ = ["bound_on_connections", "make_client", "real_url"]

TIMEOUT: Final = httpx2.Timeout(connect=10.0, write=30.0, read=None, pool=None)
"""Seconds for what tells that the network is broken. None for what only tells that a server is slow, or we are busy:
deadlines are the caller's."""

NO_WISH: Final = httpx2.Timeout(5.0)
"""The time-outs of a client that nobody gave any. They would end every call that takes longer."""

MIN_CONNECTIONS: Final = 50
"""Connections allowed however few requests are: server-sent streams hold one each."""

SPARE_CONNECTIONS: Final = 4
"""Beyond one per request in flight: the stream of notifications, a probe, a cancellation, the end of the session."""

KEEPALIVE: Final = 60.0
"""Seconds that an unused connection is kept, where that cannot be configured."""


def real_url(transport: Http | Sse) -> str:
    """The URL to send requests to: without user name and password, which are sent as a header, and without fragment."""
    return str(httpx2.URL(transport.url).copy_with(userinfo=b"", fragment=None))


async def make_client(config: ServerConfig, transport: Http | Sse, masker: Masker) -> httpx2.AsyncClient:
    """Make the client of one connection; whoever asked for it closes it.

    **Cancellation**: leaves nothing behind.

    Raises:
        ConnectFailed: a credential cannot be resolved, the user's function makes no client, or what the environment
            says about certificates or proxies cannot be used.
    """
    credentials = Credentials(config.name, transport, masker, config.connect_timeout or math.inf)
    headers = await credentials.resolve()
    masker.add("<url>", transport.url, own_url=True)
    auth = transport.auth
    if isinstance(transport, Http) and transport.http_client is not None:
        client = _ask_for_client(config.name, transport.http_client)
    else:
        # In a thread, because reading the certificates of this machine takes some 25 ms.
        client = await trio.to_thread.run_sync(_new_client, config, transport)
    client.headers.update(headers)
    client.event_hooks["response"].append(note_refusal)
    url = httpx2.URL(transport.url)
    if url.userinfo:
        client.auth = httpx2.BasicAuth(url.username, url.password)
    elif is_auth_flow(auth):
        client.auth = auth
    elif client.auth is None and credentials.renewable:
        client.auth = Renewal(client, credentials, headers)
    if is_auth_flow(auth) or (isinstance(transport, Http) and transport.http_client is not None):
        client.event_hooks["response"].append(partial(_note_token, masker))
    return client


async def _note_token(masker: Masker, response: httpx2.Response) -> None:
    """A hook for a client whose token is known only when it is sent."""
    if sent := response.request.headers.get("authorization"):
        masker.add("<auth>", sent)


def _ask_for_client(server: str, factory: Callable[[], httpx2.AsyncClient]) -> httpx2.AsyncClient:
    """Let the user's function make a client."""
    try:
        client: object = factory()
    except Exception as error:
        # That may be another thing next time.
        raise _failed(server, f"http_client raised {type(error).__name__} (the cause of this error)") from error
    if not isinstance(client, httpx2.AsyncClient):
        raise _hopeless(server, f"http_client returned {type(client).__name__!r}; let it return an httpx2.AsyncClient")
    if client.is_closed:
        raise _hopeless(server, "http_client returned a client that is closed; let it make a new one each time")
    if client.timeout == NO_WISH:
        client.timeout = TIMEOUT
    return client


def _new_client(config: ServerConfig, transport: Http | Sse) -> httpx2.AsyncClient:
    """Make a client as configured. Blocks."""
    try:
        verify = context_of(config.name, transport)
        # To this machine without TLS is allowed because nothing leaves it, so no proxy of the environment may take it.
        here = is_loopback(httpx2.URL(transport.url).host)
        limits = limits_of(config, transport)
        return httpx2.AsyncClient(verify=verify, timeout=TIMEOUT, limits=limits, trust_env=not here)
    except ConnectFailed:
        raise
    except Exception as error:
        if shortage := shortage_of(error):
            raise _failed(config.name, f"the HTTP client cannot be set up: {shortage}") from error
        # Not the text of the error: it may show the URL of a proxy, password and all.
        what = f"the HTTP client cannot be set up ({type(error).__name__})"
        remedy = "check SSL_CERT_FILE, SSL_CERT_DIR and the proxy variables of the environment"
        raise _hopeless(config.name, f"{what}; {remedy}") from error


def limits_of(config: ServerConfig, transport: Http | Sse) -> httpx2.Limits:
    """How many connections there may be, and how long an unused one is kept."""
    limit, keepalive = None, KEEPALIVE
    if isinstance(transport, Http):
        limit, keepalive = transport.max_connections, transport.keepalive
    limit = limit or max(MIN_CONNECTIONS, config.max_in_flight + SPARE_CONNECTIONS)
    return httpx2.Limits(max_connections=limit, keepalive_expiry=keepalive)


def bound_on_connections(config: ServerConfig, transport: Http | Sse) -> int | None:
    """How many connections there may be to a server; None if that is not bounded here."""
    if not isinstance(transport, Http) or transport.http_client is not None:
        return None
    return limits_of(config, transport).max_connections


def context_of(server: str, transport: Http | Sse) -> ssl.SSLContext:
    """How the server's certificate is checked. Reads files.

    Raises:
        ConnectFailed: the configured file cannot be used.
    """
    verify = transport.verify if isinstance(transport, Http) else None
    if isinstance(verify, str):
        return _read_certificates(server, verify)
    if isinstance(verify, ssl.SSLContext):
        return verify
    return httpx2.create_ssl_context(verify=verify is not False)


def _read_certificates(server: str, path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        if shortage := shortage_of(error):
            raise _failed(server, f"verify={path!r} cannot be read: {shortage}") from error
        why = error.strerror or type(error).__name__
        problem = f"verify={path!r} cannot be used ({why}); give the path of a file of CA certificates"
        raise _hopeless(server, problem) from error


def _hopeless(server: str, problem: str) -> ConnectFailed:
    error = _failed(server, problem)
    error.hopeless = True
    return error


def _failed(server: str, problem: str) -> ConnectFailed:
    return ConnectFailed(f"server {server!r}: {problem}", server=server, phase="configure")
