"""Follow redirects of HTTP requests, within the origin of the server.

Everything in a request (headers, credentials, body) was configured for one origin, so it is sent to no other. A
redirect that would drop the body of a message is not followed either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import httpx2

MAX_REDIRECTS: Final = 5
"""Maximum of redirects of one request, all within the origin. More are a loop."""

Send: TypeAlias = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def next_request_within_origin(response: httpx2.Response) -> httpx2.Request | None:
    """Return the request that follows a redirect; None if it may not be sent, or if this is not a redirect."""
    following, sent = response.next_request, response.request
    if following is None or following.method != sent.method or not _same_origin(sent.url, following.url):
        return None
    # A user in the location would be sent as credentials. One of the configured URL is kept by a relative location.
    return following if following.url.userinfo in (b"", sent.url.userinfo) else None


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Return True if two URLs have one origin, or if the second is the first over TLS, both at the default ports."""
    if one.host != other.host:
        return False
    upgraded = (one.scheme, one.port, other.scheme, other.port) == ("http", None, "https", None)
    return upgraded or (one.scheme, one.port) == (other.scheme, other.port)
