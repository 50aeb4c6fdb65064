"""A proxy of the environment holds for some URLs."""

from __future__ import annotations

import ssl
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio
from attrs import evolve

from mcp_actors import ConfigError, ConnectFailed, Http, ServerConfig, open_servers
from mcp_actors.auth import OAuth
from mcp_actors.transports import open_exchange
from mcp_actors.transports.http._failures import HttpFailures
from mcp_actors.transports.http._proxies import proxy_of

from ..groups import NEVER
from .test_http_client import self_signed

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
WEB = ServerConfig("web", Http("https://mcp.example.com/mcp", auth=OAuth()), restarts=NEVER)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the proxies of this machine."""
    for name in (*VARIABLES, *map(str.upper, VARIABLES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("https://mcp.example.com/mcp", "https_proxy"),
        ("http://mcp.example.com/mcp", "ALL_PROXY"),
        ("https://internal.example.com/mcp", None),
        ("https://sub.internal.example.com/mcp", None),
        ("https://mcp.example.com:8443/mcp", None),
        ("https://a.corp.example/mcp", None),
        ("https://notcorp.example/mcp", "https_proxy"),
        ("https://192.168.7.9/mcp", None),
        ("https://192.169.7.9/mcp", "https_proxy"),
        ("https://[fd00::7]/mcp", None),
        ("https://127.0.0.1/mcp", None),
    ],
)
def test_the_variable_that_holds_for_a_url_is_the_one_that_is_read(
    url: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-23: ``NO_PROXY`` comes first, then the variable of the scheme."""
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("ALL_PROXY", "socks://proxy.example:1080")
    monkeypatch.setenv(
        "NO_PROXY", "internal.example.com, mcp.example.com:8443,192.168.0.0/16,[fd00::]/8, *.corp.example"
    )
    found = proxy_of(httpx2.URL(url))
    assert (found and found[0]) == variable


@pytest.mark.parametrize("unusable", ["socks://proxy.example:1080", "nonsense://proxy.example", "http://[", "://"])
async def test_a_variable_that_does_not_hold_for_a_server_does_not_matter(
    unusable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-23: as on a desktop that sets ``ALL_PROXY`` to a scheme of its own."""
    monkeypatch.setenv("ALL_PROXY", unusable)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    async with open_exchange(WEB):
        pass
    monkeypatch.delenv("https_proxy")
    monkeypatch.setenv("no_proxy", "example.com")
    async with open_exchange(WEB):
        pass


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nonsense://user:p4ssword@proxy", "has a URL with nonsense://, which cannot be used; write http://, https://"),
        ("http://user:p4ssword@proxy:port", "has no valid URL, which cannot be used"),
    ],
)
async def test_a_variable_that_holds_and_cannot_be_used_is_named_with_its_scheme(
    value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-23: its value may hold a password, and is not shown."""
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(ConnectFailed) as caught:
        async with open_exchange(WEB):
            raise AssertionError("not reached")
    assert f"server 'web': the proxy variable ALL_PROXY {problem}" in str(caught.value)
    assert "p4ssword" not in str(caught.value)
    assert caught.value.hopeless


async def test_socks_is_socks5(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-23: the library is asked for a proxy of version 5, and names the package that it needs for that."""
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", "socks://proxy.example:1080")
    with pytest.raises(ConnectFailed, match=r"variable ALL_PROXY cannot be used: .*'socksio' package is not installed"):
        async with open_exchange(WEB):
            raise AssertionError("not reached")


async def test_a_proxy_gets_the_requests_that_it_holds_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-23: with the name of the host, which this machine may not know."""
    heard: list[bytes] = []

    async def refuse(stream: trio.SocketStream) -> None:
        heard.append(await stream.receive_some())
        await stream.send_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, refuse, 0, host="127.0.0.1"))
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.socket.getsockname()[1]}")
        async with open_servers(evolve(WEB, transport=Http("https://mcp.example.com/mcp"))) as servers:
            assert "through the proxy in HTTPS_PROXY" in str(servers.errors["web"])
        nursery.cancel_scope.cancel("the proxy was asked")
    assert heard[0].startswith(b"CONNECT mcp.example.com:443 HTTP/1.1")


async def test_a_variable_that_names_no_certificates_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-23."""
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/bundle.pem")
    with pytest.raises(ConnectFailed, match=r"SSL_CERT_FILE names '/no/such/bundle.pem', which does not exist"):
        async with open_exchange(WEB):
            raise AssertionError("not reached")


def refused_without_certificate(certificate: Path) -> ssl.SSLError:
    """Return what a client reads, after the handshake, from a server that demands a certificate of it by TLS 1.3."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    server.load_cert_chain(certificate)
    server.verify_mode = ssl.CERT_REQUIRED
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(there, here, server_side=True)
    asking = ssl.create_default_context(cafile=str(certificate)).wrap_bio(here, there, server_hostname="127.0.0.1")
    for _ in range(3):
        for side in (asking, serving):
            with suppress(ssl.SSLError):
                side.do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        asking.read()
    return caught.value


def test_a_server_that_requires_a_client_certificate_is_answered_with_the_remedy(tmp_path: Path) -> None:
    """D-23."""
    failures, error = HttpFailures("web", "https://mcp.example.com/mcp"), httpx2.ReadError("reset")
    error.__cause__ = refused_without_certificate(self_signed(tmp_path))
    remedy = "the server requires a client certificate: set verify to an ssl.SSLContext that has loaded one"
    assert remedy in str(failures.broken(error))
    assert remedy in str(failures.unreached(error))


@pytest.mark.parametrize("url", ["unix:///run/mcp.sock", "http+unix://%2Frun%2Fmcp.sock/mcp"])
def test_a_url_of_a_unix_socket_is_answered_with_the_remedy(url: str) -> None:
    """D-23."""
    with pytest.raises(ConfigError, match=r"names a unix socket; for a gateway use Socket\(PATH\), for HTTP write"):
        Http(url)
