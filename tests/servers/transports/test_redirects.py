"""Redirects within the origin: the rule is that of the SDK."""

from __future__ import annotations

from itertools import product

import httpx2
import pytest
from mcp.shared import _httpx_utils

from mcp_actors.transports.http._failures import next_request_within_origin

SENT = ("http://a.example/mcp", "https://a.example/mcp", "http://a.example:8080/mcp", "http://u:p@a.example/mcp")
PLACES = (
    *("/other", "other", "//b.example/mcp", "?x=1", "http://a.example/mcp/", "https://a.example/mcp/"),
    *("http://a.example:80/mcp", "https://a.example:443/mcp", "https://a.example:8443/mcp", "http://A.EXAMPLE/mcp"),
    *("http://a.example:8080/x", "https://a.example:8080/x", "http://u:p@a.example/x", "http://v:q@a.example/x", ""),
    *("https://u:p@a.example/x", "http://a.example.evil/mcp", "ftp://a.example/mcp"),
)
STATUSES = (200, 300, 301, 302, 303, 304, 307, 308, 401, 500)


async def answered(method: str, url: str, status: int, place: str) -> httpx2.Response | None:
    """Return the response to a request that is not followed; None if the HTTP library refuses it."""
    headers = {"location": place} if place else {}
    transport = httpx2.MockTransport(lambda request: httpx2.Response(status, headers=headers))
    async with httpx2.AsyncClient(transport=transport) as client:
        request = httpx2.Request(method, url, content=b"{}" if method == "POST" else None)
        try:
            return await client.send(request, follow_redirects=False)
        except httpx2.RemoteProtocolError:
            return None


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_the_same_redirects_are_followed_as_by_the_sdk(method: str) -> None:
    followed = set[str]()
    for url, status, place in product(SENT, STATUSES, PLACES):
        if (response := await answered(method, url, status, place)) is not None:
            following = next_request_within_origin(response)
            assert following is _httpx_utils.next_request_within_origin(response), (url, status, place)
            if following is not None:
                followed.add(str(following.url))
    assert {"http://a.example/other", "https://a.example/mcp/", "http://a.example:8080/mcp?x=1"} <= followed
    assert not [url for url in followed if "b.example" in url or "evil" in url or "v:q" in url]
