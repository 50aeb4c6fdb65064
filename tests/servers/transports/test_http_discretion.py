"""Proxies, session ids in logs, and error statuses with endless bodies."""

from __future__ import annotations

import logging

import pytest
import trio

from mcp_actors import Http, HttpStatusError, ServerConfig, open_servers
from tests.idle_clock import IdleClock

from ..faults.http_faults import Raw, faulty_server
from ..groups import NEVER
from ..links import MARGIN


async def test_requests_to_a_loopback_url_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loopback URL is allowed without TLS because its requests do not leave this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with faulty_server() as running:
        config = ServerConfig("web", Http(running.url(), auth="t0ken"), restart=NEVER)
        async with open_servers(config) as servers:
            assert servers["web"].state == "ready"


async def test_no_log_of_the_libraries_shows_a_session_id(caplog: pytest.LogCaptureFixture) -> None:
    """Not even at DEBUG, where the libraries log all headers."""
    caplog.set_level(logging.DEBUG)
    with faulty_server("legacy") as running:
        config = ServerConfig("web", Http(running.url()), restart=NEVER, protocol="legacy")
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
