"""Proxies, session ids in logs, and error statuses with endless bodies."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import httpx2
import pytest
import trio

from mcp_actors import Http, HttpStatusError, ServerConfig, open_servers
from mcp_actors.auth import OAuth
from mcp_actors.transports import open_exchange
from tests.idle_clock import IdleClock

from ..faults.http_faults import Raw, faulty_server
from ..groups import NEVER
from ..links import MARGIN


async def test_requests_to_a_loopback_url_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loopback URL is allowed without TLS because its requests do not leave this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with faulty_server() as running:
        config = ServerConfig("web", Http(running.url(), auth="t0ken"), restarts=NEVER)
        async with open_servers(config) as servers:
            assert servers["web"].state == "ready"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_requests_to_an_issuer_on_this_machine_use_no_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is elsewhere and has a proxy, which would see the secret and the code without TLS."""
    heard: dict[str, list[bytes]] = {"proxy": [], "issuer": []}

    def serve(name: str) -> Callable[[trio.SocketStream], Awaitable[None]]:
        async def answer(stream: trio.SocketStream) -> None:
            heard[name].append(await stream.receive_some())
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")

        return answer

    async with trio.open_nursery() as nursery:
        ports = {}
        for name in heard:
            (listener,) = await nursery.start(partial(trio.serve_tcp, serve(name), 0, host="127.0.0.1"))
            ports[name] = listener.socket.getsockname()[1]
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{ports['proxy']}")
        for variable in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
        # Its endpoints may be on other ports of its host.
        oauth = OAuth(client_id="me", client_secret="a secret of the client", issuer=f"http://{host}:1")
        async with open_exchange(ServerConfig("web", Http("https://mcp.example.com/mcp", auth=oauth))) as exchange:
            request = httpx2.Request("POST", f"http://{host}:{ports['issuer']}/token", data={"code": "a-code-of-it"})
            await exchange.send(request)
        nursery.cancel_scope.cancel("both servers have been asked")
    assert heard["proxy"] == []
    assert b"POST /token HTTP/1.1" in heard["issuer"][0]


async def test_no_log_of_the_libraries_shows_a_session_id(caplog: pytest.LogCaptureFixture) -> None:
    """Not even at DEBUG, where the libraries log all headers."""
    caplog.set_level(logging.DEBUG)
    with faulty_server("legacy") as running:
        config = ServerConfig("web", Http(running.url()), restarts=NEVER, protocol="legacy")
        async with open_servers(config) as servers:
            await servers["web"].list_tools()
            session = running.session()
    assert session not in caplog.text


async def test_an_error_status_is_raised_even_if_its_body_never_ends(idle_clock: IdleClock) -> None:
    """S2-16: the error has the Retry-After of the server."""
    text = "HTTP/1.1 429 Status\r\nRetry-After: 7\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\nx"
    with faulty_server() as running:
        async with open_servers(ServerConfig("web", Http(running.url()))) as servers:
            began = trio.current_time()
            with pytest.raises(HttpStatusError) as caught:
                await servers["web"].call_tool("raw", Raw(text, "keep")._asdict())
            assert trio.current_time() - began < 1 + MARGIN
    assert (caught.value.status, caught.value.retry_after) == (429, 7)
