"""What stays on this machine, and out of its logs; and a status that is told though its words never come."""

from __future__ import annotations

import logging

import pytest
import trio

from mcp_actors import Http, HttpStatusError, ServerConfig, open_servers

from ..faults.http_faults import Raw, faulty_server
from ..groups import NEVER
from ..links import MARGIN


async def test_what_goes_to_this_machine_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go without TLS because it does not leave."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with faulty_server() as running:
        config = ServerConfig("web", Http(running.url(), auth="t0ken"), restart=NEVER, connect_timeout=5)
        async with open_servers(config) as servers:
            assert servers["web"].state == "ready"


async def test_no_log_of_the_libraries_shows_a_session_id(caplog: pytest.LogCaptureFixture) -> None:
    """Also not at DEBUG, where they log all headers."""
    caplog.set_level(logging.DEBUG)
    with faulty_server("legacy") as running:
        config = ServerConfig("web", Http(running.url()), restart=NEVER, protocol="legacy")
        async with open_servers(config) as servers:
            await servers["web"].list_tools()
            session = running.session()
    assert session not in caplog.text


async def test_a_status_is_told_though_its_body_never_ends() -> None:
    """S2-16: with the time that the server asks to wait."""
    text = "HTTP/1.1 429 Status\r\nRetry-After: 7\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\nx"
    with faulty_server() as running:
        async with open_servers(ServerConfig("web", Http(running.url()))) as servers:
            began = trio.current_time()
            with pytest.raises(HttpStatusError) as caught:
                await servers["web"].call_tool("raw", Raw(text, "keep")._asdict())
            assert trio.current_time() - began < 1 + MARGIN
    assert (caught.value.status, caught.value.retry_after) == (429, 7)
