"""Choose a proxy from the environment for each request.

httpx2 reads all proxy variables when it makes a client, and fails if any proxy is unusable. `EnvironmentProxies` reads
the variables for each request, so an unusable proxy concerns only requests through it.

Owns: a transport for each proxy.
Writes: requests to servers.
Calls: config.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Final, TypeAlias
from urllib.request import getproxies, proxy_bypass

import httpx2

from ...config import is_loopback

Make: TypeAlias = Callable[[httpx2.Proxy], httpx2.AsyncBaseTransport]

SCHEMES: Final = ("http", "https", "socks5", "socks5h")


class UnusableProxy(httpx2.ProxyError):
    """The proxy for a URL cannot be used. The text names the variable and the scheme, and no value."""


def proxy_of(url: httpx2.URL) -> tuple[str, str] | None:
    """Return the proxy for a URL as ``(variable, proxy URL)``; None for a direct connection.

    A URL of this machine, or in ``NO_PROXY``, needs no proxy. Else the variable of the scheme counts, then
    ``ALL_PROXY``.
    """
    found = getproxies()
    proxy = found.get(url.scheme) or found.get("all")
    if not proxy or is_loopback(url.host) or _is_exempt(url, found.get("no", "")):
        return None
    names = (f"{url.scheme}_proxy", f"{url.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return next((name for name in names if os.environ.get(name)), "the settings of the system"), proxy


def _is_exempt(url: httpx2.URL, exempt: str) -> bool:
    if proxy_bypass(url.host) or (url.port is not None and proxy_bypass(f"{url.host}:{url.port}")):
        return True
    if any(each.strip().startswith("*.") and url.host.endswith(each.strip()[1:].lower()) for each in exempt.split(",")):
        return True  # other tools accept a name after ``*.``, but not urllib
    with suppress(ValueError):
        address = ip_address(url.host)
        for network in filter(None, map(str.strip, exempt.split(","))):
            with suppress(ValueError):
                if address in ip_network(network.replace("[", "").replace("]", ""), strict=False):
                    return True
    return False


class EnvironmentProxies(httpx2.AsyncBaseTransport):
    """Sends each request through the proxy for the URL, or directly.

    Args:
        direct: sends a request directly.
        make: makes a transport for a proxy.
    """

    def __init__(self, direct: httpx2.AsyncBaseTransport, make: Make) -> None:
        self._make = make
        self._made: dict[tuple[str, str] | None, httpx2.AsyncBaseTransport] = {None: direct}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.transport_for(request.url).handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._made.values():
            await transport.aclose()

    def transport_for(self, url: httpx2.URL) -> httpx2.AsyncBaseTransport:
        """Return the transport for a URL.

        Raises:
            UnusableProxy: the proxy cannot be used.
        """
        found = proxy_of(url)
        if found is not None and found not in self._made:
            try:
                self._made[found] = self._make(_proxy(*found))
            except ImportError as error:  # of the package that a proxy needs
                raise UnusableProxy(f"the proxy variable {found[0]} cannot be used: {error}") from None
        return self._made[found]


def _proxy(variable: str, value: str) -> httpx2.Proxy:
    scheme, found, rest = value.partition("://")
    if not found:
        scheme, rest = "http", value
    scheme = "socks5" if scheme.lower() == "socks" else scheme.lower()  # as desktops write it into the environment
    with suppress(ValueError, httpx2.InvalidURL):
        if scheme in SCHEMES:
            return httpx2.Proxy(f"{scheme}://{rest}")
    problem = f"has a URL with {scheme}://" if scheme not in SCHEMES else "has no valid URL"
    remedy = "write http://, https:// or socks5:// there, or add the host of the server to NO_PROXY"
    raise UnusableProxy(f"the proxy variable {variable} {problem}, which cannot be used; {remedy}")
