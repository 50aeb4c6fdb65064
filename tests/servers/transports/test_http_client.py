"""The HTTP client of a connection: its credentials, limits, certificates and logs."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
from attrs import evolve
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from httpcore2._ssl import CA_FILE_CANDIDATES

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    ConnectFailed,
    ConnectionLost,
    Http,
    HttpStatusError,
    LimitExceeded,
    Limits,
    RetryPolicy,
    ServerConfig,
    ServerError,
    ServerUnavailable,
    Sse,
    open_servers,
)
from mcp_actors.config import Secret
from mcp_actors.transports import Masker, _link
from mcp_actors.transports._link import Certificates
from mcp_actors.transports.http import _client
from mcp_actors.transports.http._bodies import SMALL, is_small

from ...messages import Said
from ..faults.http_faults import FaultyServer, Raw, answer, faulty_server, response, stream
from ..fleet import calls
from ..groups import AT_ONCE, NEVER
from ..links import text_of
from ..processes import eventually

MEBIBYTE = 1 << 20


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as running:
        yield running


def http(server: FaultyServer, *, query: str = "", **options: Any) -> ServerConfig:
    return ServerConfig("web", Http(server.url(f"/mcp{query}"), **options), restarts=NEVER)


def sent(server: FaultyServer, header: str) -> list[str | None]:
    """Return the values of a header, request by request."""
    return [request.headers.get(header) for request in server.requests]


# --- credentials ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "auth", [Secret("t0ken"), "${HTTP_TOKEN}", lambda: "t0ken"], ids=["secret", "text", "function"]
)
async def test_a_token_is_sent_with_every_request(
    server: FaultyServer, auth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_TOKEN", "t0ken")
    async with open_servers(http(server, auth=auth)) as servers:
        await servers["web"].call_tool("sleep")
    assert set(sent(server, "authorization")) == {"Bearer t0ken"}
    assert len(server.requests) == 3


async def test_a_token_is_resolved_again_at_each_connect(server: FaultyServer) -> None:
    """S3-25."""
    tokens = iter(["first", "second"])
    async with open_servers(http(server, auth=lambda: next(tokens))) as servers:
        await servers["web"].restart()
    assert sent(server, "authorization")[0] == "Bearer first"
    assert sent(server, "authorization")[-1] == "Bearer second"


async def test_a_token_that_cannot_be_sent_is_refused_without_being_shown(server: FaultyServer) -> None:
    async with open_servers(http(server, auth=lambda: "Bearer hunter2")) as servers:
        error = servers.errors["web"]
    assert isinstance(error, ConnectFailed)
    assert (error.phase, error.hopeless) == ("configure", True)
    assert "servers.web.auth: the value begins with an auth scheme" in str(error)
    assert "hunter2" not in str(error)


class Flow(httpx2.Auth):
    """Counts its requests, and raises before or after the request if a test sets an exception."""

    def __init__(self) -> None:
        self.count = 0
        self.before: Exception | None = None
        self.after: Exception | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        self.count += 1
        if self.before is not None:
            raise self.before
        request.headers["X-Count"] = str(self.count)
        answered = yield request
        if answered.status_code == 401 and self.after is not None:
            raise self.after


async def test_an_auth_flow_is_used_for_every_request_and_outlives_the_connections(server: FaultyServer) -> None:
    flow = Flow()
    async with open_servers(http(server, auth=flow)) as servers:
        await servers["web"].call_tool("sleep")
        await servers["web"].restart()
        await servers["web"].call_tool("sleep")
    assert sent(server, "x-count") == [str(number) for number in range(1, len(server.requests) + 1)]


VISITOR: ContextVar[str] = ContextVar("VISITOR", default="guest")


class ForVisitor(httpx2.Auth):
    """Sends the visitor of the task that makes the call."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers["X-Visitor"] = VISITOR.get()
        yield request


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_an_auth_flow_sees_the_context_variables_of_each_of_several_callers(
    server: FaultyServer, protocol: Any
) -> None:
    async def visit(visitor: str) -> None:
        VISITOR.set(visitor)
        await servers["web"].call_tool("sleep")

    async with open_servers(evolve(http(server, auth=ForVisitor()), protocol=protocol)) as servers:
        connecting = len(server.requests)
        async with trio.open_nursery() as nursery:
            for visitor in ("anna", "ben", "cleo"):
                nursery.start_soon(visit, visitor)
    visitors = [str(visitor) for visitor in sent(server, "x-visitor")]
    assert set(visitors[:connecting]) == {"guest"}
    # A legacy server has a stream of notifications too, which no caller asks for.
    assert sorted(visitor for visitor in visitors if visitor != "guest") == ["anna", "ben", "cleo"]


async def test_a_reachability_probe_does_not_begin_an_auth_flow(server: FaultyServer) -> None:
    """The flow might open a browser only because a request was lost."""
    async with open_servers(http(server, auth=Flow())) as servers:
        with pytest.raises(ConnectionLost):
            await servers["web"].call_tool("raw", Raw("", "reset")._asdict())
        await eventually(lambda: "OPTIONS" in server.methods())
    [look] = [request for request in server.requests if request.method == "OPTIONS"]
    assert "x-count" not in look.headers


async def test_lost_requests_open_the_breaker_though_the_session_goes_on(server: FaultyServer) -> None:
    """The server fails them all; that of several replicas may have been lost alone."""
    config = evolve(http(server), breaker=BreakerPolicy(failures=2, reset_after=600))
    async with open_servers(config) as servers:
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await servers["web"].call_tool("raw", Raw("", "reset")._asdict())
        assert servers["web"].state == "ready"
        with pytest.raises(ServerUnavailable, match="circuit breaker open"):
            await servers["web"].call_tool("sleep")


@pytest.mark.parametrize("sse", [False, True])
async def test_a_request_whose_auth_flow_fails_fails_alone(sse: bool) -> None:
    """A-15: the error says that the request had no effect, without the text of the flow's exception."""
    flow = Flow()
    with faulty_server("legacy") as server:
        transport = Sse(server.url("/sse"), auth=flow) if sse else Http(server.url(), auth=flow)
        config = ServerConfig("web", transport, restarts=NEVER)
        async with open_servers(config) as servers, calls(1, servers["web"].call_tool, "hold") as [held]:
            await server.held()
            flow.before = RuntimeError("hunter2 is wrong")
            with pytest.raises(ServerError) as caught:
                await servers["web"].call_tool("sleep")
            flow.before = None
            assert type(caught.value) is ServerError
            assert vars(caught.value)["outcome"] == "not_sent"
            assert caught.value.__cause__ is not None
            assert "failed before it took effect (RuntimeError); check the configured auth" in str(caught.value)
            flow.after = RuntimeError("hunter2 is wrong")
            with pytest.raises(ServerError) as caught:
                await servers["web"].call_tool("raw", Raw(response(401), "keep")._asdict())
            assert type(caught.value) is ServerError
            assert "failed before it took effect (RuntimeError); check the configured auth" in str(caught.value)
            server.release()
            assert text_of(await held.result()) == "released"
            assert servers["web"].state == "ready"


async def test_an_auth_flow_that_cannot_reach_its_own_server_does_not_end_the_connection(server: FaultyServer) -> None:
    class Elsewhere(httpx2.Auth):
        reached = True

        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            if not self.reached:
                yield httpx2.Request("POST", "http://127.0.0.1:1/token")
            yield request

    flow = Elsewhere()
    async with open_servers(http(server, auth=flow)) as servers:
        flow.reached = False
        with pytest.raises(ServerError) as caught:
            await servers["web"].call_tool("sleep")
        assert isinstance(caught.value.__cause__, httpx2.ConnectError)
        flow.reached = True
        await servers["web"].call_tool("sleep")
        assert servers["web"].statistics().incarnation == 1


# --- a client of the user's own -------------------------------------------------------------------------------------


async def test_http_client_is_called_for_each_connection_and_its_client_is_closed_with_it(server: FaultyServer) -> None:
    made: list[httpx2.AsyncClient] = []

    def make() -> httpx2.AsyncClient:
        made.append(httpx2.AsyncClient(headers={"X-Mine": "yes"}))
        return made[-1]

    config = http(server, http_client=make, headers={"X-Ours": "too"}, auth="t0ken")
    async with open_servers(config) as servers:
        await servers["web"].restart()
        assert [client.is_closed for client in made] == [True, False]
    assert [client.is_closed for client in made] == [True, True]
    assert set(sent(server, "x-mine")) == {"yes"}
    assert set(sent(server, "x-ours")) == {"too"}
    assert set(sent(server, "authorization")) == {"Bearer t0ken"}


async def test_a_request_that_fails_in_a_configured_client_fails_alone(server: FaultyServer) -> None:
    """A-15."""
    async with open_servers(http(server, http_client=httpx2.AsyncClient, max_body_bytes=MEBIBYTE)) as servers:
        web = servers["web"]
        with pytest.raises(HttpStatusError):
            await web.call_tool("raw", Raw(response(503), "keep")._asdict())
        with pytest.raises(LimitExceeded):
            await web.call_tool("raw", Raw(response(200, "x" * (MEBIBYTE + 1)), "keep")._asdict())
        assert web.state == "ready"


def giving(client: httpx2.AsyncClient) -> Callable[[], httpx2.AsyncClient]:
    return lambda: client


async def make_client(transport: Http) -> httpx2.AsyncClient:
    return await _client.make_client(ServerConfig("web", transport), transport, Masker(), Certificates())


async def test_the_default_timeouts_of_httpx_are_replaced(server: FaultyServer) -> None:
    """The default of httpx2 would end every call that takes longer than five seconds."""
    own = [httpx2.AsyncClient(), httpx2.AsyncClient(timeout=7.0)]
    for client in own:
        transport = Http(server.url(), http_client=giving(client))
        assert await make_client(transport) is client
        await client.aclose()
    assert own[0].timeout == _client.HTTP_TIMEOUT
    assert own[1].timeout == httpx2.Timeout(7.0)
    transport = Http(server.url())
    async with await make_client(transport) as client:
        assert (client.timeout.read, client.timeout.pool) == (None, None)
        assert client.timeout.connect is not None


def closed_client() -> httpx2.AsyncClient:
    client = httpx2.AsyncClient()
    client._state = httpx2._client.ClientState.CLOSED
    return client


def broken() -> httpx2.AsyncClient:
    raise RuntimeError("hunter2")


@pytest.mark.parametrize(
    ("make", "row", "hopeless"),
    [
        (broken, "http_client raised", False),
        (lambda: None, "http_client returned no client", True),
        (closed_client, "http_client returned a closed client", True),
    ],
)
async def test_an_http_client_function_that_fails_is_named(
    server: FaultyServer, make: Any, row: str, hopeless: bool, said: Said
) -> None:
    async with open_servers(http(server, http_client=make)) as servers:
        error = servers.errors["web"]
    assert isinstance(error, ConnectFailed)
    said(row, str(error))
    assert (error.phase, error.hopeless) == ("configure", hopeless)


class Flaky(httpx2.AsyncHTTPTransport):
    """Fails as on a stale connection, before or after it has written the body of the request."""

    closed = 0
    too_late = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.closed:
            self.closed -= 1
            if self.too_late:
                await request.aread()
                async for _ in request.stream:  # type: ignore[union-attr]  # an AsyncClient's are async
                    pass
            raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
        return await super().handle_async_request(request)


async def test_a_request_on_a_stale_connection_is_sent_again(server: FaultyServer) -> None:
    """A-09: over another connection, if nothing of its body was offered to the stale one."""
    transport = Flaky()
    async with open_servers(http(server, http_client=lambda: httpx2.AsyncClient(transport=transport))) as servers:
        transport.closed = 3
        assert text_of(await servers["web"].call_tool("sleep")) == "slept None"
        transport.closed, transport.too_late = 1, True
        with pytest.raises(ConnectionLost):
            await servers["web"].call_tool("sleep")
        transport.closed, transport.too_late = 1000, False
        with pytest.raises(ServerError, match="the request failed before it took effect") as caught:
            await servers["web"].call_tool("sleep")
        assert type(caught.value) is ServerError
        assert servers["web"].statistics().incarnation == 1


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("in_flight", "expected"), [(1, 50), (46, 50), (47, 51), (200, 204)])
def test_the_connection_limit_exceeds_max_in_flight(in_flight: int, expected: int) -> None:
    """S2-15."""
    transport = Http("http://localhost/")
    limits = _client.limits_of(ServerConfig("web", transport, max_in_flight=in_flight), transport)
    assert (limits.max_connections, limits.keepalive_expiry) == (expected, 60)


def test_the_connection_pool_can_be_configured() -> None:
    """S2-15."""
    transport = Http("http://localhost/", max_connections=3, keepalive=7)
    limits = _client.limits_of(ServerConfig("web", transport), transport)
    assert (limits.max_connections, limits.keepalive_expiry) == (3, 7)


async def test_max_connections_is_enforced(server: FaultyServer) -> None:
    """S2-15: requests wait for a free connection as long as necessary."""
    async with (
        open_servers(http(server, max_connections=2)) as servers,
        calls(2, servers["web"].call_tool, "hold") as [held, _],
    ):
        await server.held()
        await server.held()
        async with calls(1, servers["web"].call_tool, "sleep") as [waiting]:
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert not waiting.over
            server.release(2)
        assert text_of(await held.result()) == "released"
        assert waiting.error is None


@pytest.mark.parametrize("form", ["whole", "event"])
async def test_a_response_may_have_max_body_bytes_and_not_one_more(server: FaultyServer, form: str) -> None:
    async with open_servers(http(server, max_body_bytes=MEBIBYTE)) as servers:

        async def ask(length: int) -> str:
            # An id takes as many bytes as its placeholder.
            body = answer("x" * (length - len(answer(""))))
            text = response(200, body) if form == "whole" else stream(f"data: {body}\n\n")
            return text_of(await servers["web"].call_tool("raw", Raw(text, "keep")._asdict()))

        assert set(await ask(MEBIBYTE)) == {"x"}
        with pytest.raises(LimitExceeded, match=rf"too large \(more than {MEBIBYTE} bytes\).*; raise max_body_bytes"):
            await ask(MEBIBYTE + 1)


async def test_a_response_with_too_many_values_fails_its_request_and_not_the_connection(server: FaultyServer) -> None:
    """The values are counted before the response is parsed. Commas in strings do not count."""
    config = attrs.evolve(http(server), limits=Limits(max_message_values=1000))
    async with open_servers(config) as servers:

        async def ask(text: str) -> str:
            raw = Raw(response(200, text), "keep")._asdict()
            return text_of(await servers["web"].call_tool("raw", raw))

        assert await ask(answer("," * 5000)) == "," * 5000
        with pytest.raises(LimitExceeded) as caught:
            await ask(f"[{'1,' * 5000}1]")
        assert "too large (more than 1000 JSON values)" in str(caught.value)
        assert "raise limits=Limits(max_message_values=…)" in str(caught.value)
        assert servers["web"].state == "ready"
        assert await ask(answer("fine")) == "fine"


# --- certificates ---------------------------------------------------------------------------------------------------


async def test_certificates_that_cannot_be_read_are_named(server: FaultyServer, tmp_path: Path, said: Said) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for path in (tmp_path / "missing.pem", empty):
        async with open_servers(http(server, verify=path)) as servers:
            error = servers.errors["web"]
        assert isinstance(error, ConnectFailed)
        assert f"verify='{path}' cannot be used" in str(error)
        assert (error.phase, error.hopeless) == ("configure", True)
        if path != empty:
            said("certificates do not exist", str(error), path=path)


@pytest.mark.parametrize("verify", [None, True, False])
def test_certificates_are_checked_unless_verify_is_false(verify: bool | None) -> None:
    transport = Http("https://localhost/", verify=verify, allow_insecure=True)
    context = _client.context_of("web", transport, Certificates())
    assert (context.verify_mode is ssl.CERT_REQUIRED) is (verify is not False)


def self_signed(folder: Path) -> Path:
    """Write a key and a certificate for 127.0.0.1 that no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "self-signed.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return path


async def test_a_self_signed_certificate_is_trusted_only_if_configured(tmp_path: Path) -> None:
    """Otherwise the connect fails, and the error says why."""
    certificate = self_signed(tmp_path)
    with faulty_server(certificate=certificate) as server:
        async with open_servers(http(server, verify=certificate)) as servers:
            assert text_of(await servers["web"].call_tool("sleep")) == "slept None"
        async with open_servers(http(server, verify=False, allow_insecure=True)) as servers:
            assert servers["web"].state == "ready"
        server.requests.clear()
        async with open_servers(http(server)) as servers:
            error = servers.errors["web"]
        assert isinstance(error, ConnectFailed)
        assert error.phase == "open"
        assert "certificate verify failed: self-signed certificate" in str(error)
        assert server.requests == []


async def test_connections_of_a_group_share_the_certificates(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several begin to connect together, one is restarted, one is added, and one has a connection for a retry."""
    reads, read = list[object](), httpx2.create_ssl_context

    def count() -> ssl.SSLContext:
        reads.append(None)
        return read()

    monkeypatch.setenv("SSL_CERT_FILE", str(self_signed(tmp_path)))  # not those that all tests share
    monkeypatch.setattr(httpx2, "create_ssl_context", count)
    config = evolve(http(server), retry=RetryPolicy(isolated=True, attempts=2, backoff=Backoff()))
    async with open_servers(*(evolve(config, name=name) for name in ("web", "other", "third"))) as servers:
        await servers["web"].restart()
        await servers.add(evolve(config, name="added"))
        with pytest.raises(HttpStatusError):
            await servers["web"].call_tool("raw", Raw(response(503), "keep")._asdict(), idempotent=True)
    assert server.methods().count("tools/call") == 2
    assert len(reads) == 1


async def test_certificates_that_have_changed_count_at_the_next_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = self_signed(tmp_path).rename(tmp_path / "trusted.pem"), self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(old))
    with faulty_server(certificate=new) as server:
        async with open_servers(http(server)) as servers:
            assert "certificate verify failed: self-signed certificate" in str(servers.errors["web"])
            old.write_bytes(new.read_bytes() + old.read_bytes())
            await servers["web"].restart()
            assert servers["web"].state == "ready"


@pytest.fixture
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the certificates of this machine."""
    nowhere = ssl.get_default_verify_paths()._replace(openssl_cafile="/nowhere", openssl_capath="/nowhere")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    monkeypatch.setattr(_link, "BUNDLES", ())
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_certificates")
def test_certificates_are_read_anew_if_their_files_are_not_known() -> None:
    certificates = Certificates()
    assert certificates.context() is not certificates.context()


@pytest.mark.usefixtures("no_certificates")
@pytest.mark.parametrize("change", ["a bundle", "one of several folders", "a folder that is missing"])
def test_certificates_are_read_anew_when_they_may_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Also if OpenSSL does not know the file that httpx2 has found, and if a variable names nothing any more."""
    bundle = self_signed(tmp_path)
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.setattr(_link, "BUNDLES", (str(bundle),))
    os.utime(folder, (0, 0))  # the clock of a file system may tick as seldom as a hundred times per second
    if change == "one of several folders":
        monkeypatch.setenv("SSL_CERT_DIR", os.pathsep.join(["/nowhere", str(folder)]))
    certificates = Certificates()
    before = certificates.context()
    assert certificates.context() is before
    if change == "a bundle":
        bundle.write_bytes(bundle.read_bytes() * 2)
    elif change == "one of several folders":
        (folder / "new").touch()
    else:
        monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
    assert certificates.context() is not before


def test_all_files_are_known_in_which_httpx2_looks_for_certificates() -> None:
    assert set(_link.BUNDLES) >= set(CA_FILE_CANDIDATES)


# --- logs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_no_log_shows_a_credential(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    """The HTTP library logs each URL, and the SDK each session id. Both contain secrets."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore2").setLevel(logging.INFO)  # at DEBUG it logs all bytes, by design
    with faulty_server("legacy") as server:
        kind, path = (Http, "/mcp") if transport == "http" else (Sse, "/sse")
        url = server.url(f"{path}?api_key=k3y").replace("//", "//me:hunter2@")
        config = ServerConfig("web", kind(url, headers={"X-Key": Secret("s3cret")}), restarts=AT_ONCE)
        async with open_servers(config) as servers:
            await servers["web"].call_tool("sleep")
            with pytest.raises(HttpStatusError):
                await servers["web"].call_tool("raw", Raw(response(401), "keep")._asdict())
            await servers["web"].restart()
            session = server.session()
    assert "HTTP Request: POST" in caplog.text
    for secret in ("k3y", "hunter2", "s3cret", session):
        assert secret not in caplog.text
    assert any("k3y" in request.target for request in server.requests)


async def test_the_logs_of_other_clients_are_unchanged(server: FaultyServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with open_servers(http(server)), httpx2.AsyncClient() as client:
        await client.get(server.url("/mcp?page=7"))
    assert "page=7" in caplog.text


@pytest.mark.parametrize(
    ("headers", "small"),
    [
        ({"content-length": str(SMALL)}, True),
        ({"content-length": str(SMALL + 1)}, False),
        ({"content-length": "10", "content-encoding": "gzip"}, False),
        ({"content-length": "-1"}, False),
        ({}, False),
    ],
)
def test_a_body_is_small_if_its_length_is_declared_and_certain(headers: dict[str, str], small: bool) -> None:
    assert is_small(httpx2.Response(200, headers=headers)) == small
