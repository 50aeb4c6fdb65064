"""Requests to authorization servers."""

from __future__ import annotations

import httpx2
import pytest

from mcp_actors.auth import Exchange, OAuth
from mcp_actors.auth._exchange import MAX_BODY
from mcp_actors.auth._failures import Refused, Unreachable


def exchange(url: str, answer: httpx2.Response) -> Exchange:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: answer))
    return Exchange(client, url, OAuth(), None, str, lambda secret: None)


@pytest.mark.parametrize(
    ("server", "endpoint"),
    [
        ("https://mcp.example.com/mcp", "http://issuer.example/token"),
        ("https://mcp.example.com/mcp", "http://127.0.0.1/token"),  # a port of this machine, named by a stranger
        ("http://127.0.0.1/mcp", "http://issuer.example/token"),
        ("https://mcp.example.com/mcp", "ftp://issuer.example/token"),
    ],
)
async def test_a_url_without_https_is_refused_by_name(server: str, endpoint: str) -> None:
    asked = exchange(server, httpx2.Response(200))
    with pytest.raises(Refused, match="which is not https") as caught:
        await asked.send(httpx2.Request("POST", endpoint))
    assert caught.value.reason == "insecure_url"
    with pytest.raises(Refused):
        asked.check_page(endpoint)


async def test_both_servers_may_be_on_this_machine() -> None:
    asked = exchange("http://127.0.0.1/mcp", httpx2.Response(200, content=b"{}"))
    assert (await asked.send(httpx2.Request("POST", "http://localhost:1234/token"))).content == b"{}"


async def test_an_endless_answer_is_cut_off() -> None:
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200, content=b"x" * (MAX_BODY + 1)))
    with pytest.raises(Refused, match="exceeds"):
        await asked.send(httpx2.Request("GET", "https://issuer.example/metadata"))


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_authorization_server_may_be_asked_again(status: int) -> None:
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(status, content=b'{"error": "busy"}'))
    with pytest.raises(Unreachable, match=f"answered {status} busy"):
        await asked.send(httpx2.Request("POST", "https://issuer.example/token"))


async def test_json_is_asked_for() -> None:
    """GitHub sends a form otherwise."""
    asked = exchange("https://mcp.example.com/mcp", httpx2.Response(200))
    answer = await asked.send(httpx2.Request("POST", "https://issuer.example/token"))
    assert answer.request.headers["accept"] == "application/json"
    answer = await asked.send(httpx2.Request("POST", "https://mcp.example.com/mcp", headers={"accept": "text/x"}))
    assert answer.request.headers["accept"] == "text/x"
