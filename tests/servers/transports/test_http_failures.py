"""The errors for failed HTTP requests."""

from __future__ import annotations

import errno
import socket
import ssl
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import httpx2
import pytest
from mcp import MCPError
from mcp.types import JSONRPCError

from mcp_actors import Http, Sse
from mcp_actors._text import Shortage
from mcp_actors.transports._credentials import Masker
from mcp_actors.transports._link import ConnectionOver
from mcp_actors.transports._messages import MessageLimits
from mcp_actors.transports.http import _failures
from mcp_actors.transports.http._client import proxy_variable
from mcp_actors.transports.http._failures import (
    HttpFailures,
    NoAnswer,
    WrongId,
    answer_in,
    check_refusal,
    describe,
    error_in,
    retry_after,
)

from ...messages import Said

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone(timedelta(hours=2)))
FAILURES = HttpFailures("docs", "https://example.com/mcp")
REQUEST = httpx2.Request("POST", "https://example.com/mcp?key=hunter2")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("0", 0.0),
        ("7", 7.0),
        (" 7.5 ", 7.5),
        ("999999999999999999999999", 3600.0),
        (format_datetime(NOW.astimezone(UTC) + timedelta(seconds=90), usegmt=True), 90.0),
        ("Sat, 21 Nov 2026 10:01:30 GMT", 90.0),
        ("Sat, 21 Nov 2026 10:01:30 -0000", 90.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("Sat, 99 Nov 2026 10:01:30 GMT", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_of_at_most_an_hour(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "row"),
    [
        (400, "http status 400"),
        (401, "http status 401"),
        (403, "http status 403"),
        (404, "http status 404"),
        (405, "http status 405"),
        (406, "http status 406"),
        (407, "http status 407"),
        (415, "http status 415"),
        (418, "http status 418"),
        (421, "http status 421"),
        (499, "http status 499"),
        (500, "http status 500"),
        (501, "http status 501"),
        (599, "http status 599"),
    ],
)
def test_the_error_of_a_status_has_a_remedy(status: int, row: str, said: Said) -> None:
    error = FAILURES.status(httpx2.Response(status, request=REQUEST), NOW)
    said(row, str(error))
    assert (error.server, error.status, error.retry_after) == ("docs", status, None)


def test_a_request_that_is_too_large_may_be_split() -> None:
    """Releases of Python name this status differently."""
    assert str(FAILURES.status(httpx2.Response(413, request=REQUEST), NOW)).endswith("; send less data in one request")


def test_the_error_of_a_status_quotes_the_server_and_says_how_long_to_wait(said: Said) -> None:
    response = httpx2.Response(429, headers={"Retry-After": "7"}, request=REQUEST)
    error = FAILURES.status(response, NOW, MCPError(-32000, "busy"))
    said("http status 429 with Retry-After", str(error))
    assert error.retry_after == 7


@pytest.mark.parametrize(
    ("status", "kind", "shown"),
    [(400, "text/plain", " (no key <key>: x)"), (400, "text/html", ""), (500, "text/plain", " (no key <key>: x)")],
)
def test_the_text_of_a_refusal_is_shown_without_credentials(status: int, kind: str, shown: str) -> None:
    """D-15."""
    masker = Masker()
    masker.add("<key>", "s3cret-k3y")
    response = httpx2.Response(status, headers={"Content-Type": kind}, request=REQUEST)
    error = HttpFailures("docs", "https://example.com/mcp", masker).status(
        response, NOW, text=b" no key s3cret-k3y:\nx"
    )
    assert f"answered with {status} {response.reason_phrase}{shown};" in str(error)


def test_the_error_of_a_refusal_names_the_sources_of_the_credentials(said: Said) -> None:
    failures = HttpFailures("docs", "https://example.com/mcp", credentials="header X-Key (${KEY})")
    said("http status 401 with credentials", str(failures.status(httpx2.Response(401, request=REQUEST), NOW)))


@pytest.mark.parametrize(
    ("challenge", "given", "row"),
    [
        ('Bearer resource_metadata="https://example.com/.well-known/oauth"', None, "http status 401 without a token"),
        ('Basic realm="x", bearer', None, "http status 401 without a token"),
        ('Bearer error="invalid_token"', "Bearer x", "http status 401"),
        ("Basic", None, "http status 401 for a password"),
        ('Basic realm="x"', "Bearer x", "http status 401 for a password"),
        ("Basic", "Basic x", "http status 401"),
        (None, None, "http status 401"),
    ],
)
def test_a_challenge_for_a_bearer_token_says_how_to_set_one(
    challenge: str | None, given: str | None, row: str, said: Said
) -> None:
    asked = httpx2.Request("POST", "https://example.com/mcp", headers={"Authorization": given} if given else {})
    headers = {"WWW-Authenticate": challenge} if challenge else {}
    said(row, str(FAILURES.status(httpx2.Response(401, headers=headers, request=asked), NOW)))


def test_the_error_of_a_redirect_names_the_target_without_its_query(said: Said) -> None:
    response = httpx2.Response(307, request=REQUEST)
    response.next_request = httpx2.Request("POST", "https://user:p@other.example/mcp?key=hunter2#x")
    said("http redirect not followed", str(FAILURES.redirected(response)))


@pytest.mark.parametrize(
    ("method", "target", "row"),
    [
        ("GET", "https://example.com/v2", "http redirect that would drop the body"),
        ("GET", "https://other.example/v2", "http redirect to another origin"),
        ("POST", "https://user:p@example.com/v2", "http redirect that names a user"),
    ],
)
def test_the_error_of_a_redirect_has_the_reason_that_applies(method: str, target: str, row: str, said: Said) -> None:
    response = httpx2.Response(301, request=REQUEST)
    response.next_request = httpx2.Request(method, target)
    said(row, str(FAILURES.redirected(response)))


def of_tls(kind: type[ssl.SSLError], **values: str) -> ssl.SSLError:
    """Return an error as `ssl` raises it: with what only its C code sets."""
    error = kind(1, "[SSL: …] … (_ssl.c:1006)")
    for name, value in values.items():
        setattr(error, name, value)
    return error


CERTIFICATE = of_tls(
    ssl.SSLCertVerificationError, reason="CERTIFICATE_VERIFY_FAILED", verify_message="self-signed certificate"
)
OTHER_NAME = of_tls(
    ssl.SSLCertVerificationError,
    reason="CERTIFICATE_VERIFY_FAILED",
    verify_message="Hostname mismatch, certificate is not valid for 'example.com'.",
)
NO_TLS = of_tls(ssl.SSLError, reason="WRONG_VERSION_NUMBER")
NO_NAME = socket.gaierror(-2, "Name or service not known")
REFUSED = OSError("all attempts to connect to example.com:443 failed")
REFUSED.__cause__ = ExceptionGroup("two addresses", [ConnectionRefusedError(errno.ECONNREFUSED, "…")] * 2)


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("http could not connect: certificate", CERTIFICATE),
        ("http could not connect: certificate of another name", OTHER_NAME),
        ("http could not connect: TLS", NO_TLS),
        ("http could not connect: name", NO_NAME),
        ("http could not connect: refused", REFUSED),
        ("http could not connect: no reason", OSError()),
    ],
)
def test_a_failed_connection_says_why_in_the_words_of_the_system_and_what_to_check(
    row: str, cause: OSError, said: Said
) -> None:
    """S2-17."""
    error = httpx2.ConnectError("no")
    error.__cause__ = cause
    said(row, str(FAILURES.unreached(error)))


def test_a_connection_that_was_not_made_in_time_is_said_to_have_timed_out(said: Said) -> None:
    said("http could not connect: time", str(FAILURES.unreached(httpx2.ConnectTimeout(""))))


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("http could not connect: proxy", NO_NAME),
        ("http could not connect: TLS through a proxy", NO_TLS),
    ],
)
def test_a_failed_connection_through_a_proxy_names_the_variable_of_the_proxy(
    row: str, cause: OSError, said: Said
) -> None:
    """S2-17: the host name of the URL may be right when that of the proxy is not."""
    error = httpx2.ConnectError("no")
    error.__cause__ = cause
    said(row, str(HttpFailures("docs", "https://example.com/mcp", proxy="HTTPS_PROXY").unreached(error)))


def test_the_refusal_of_a_proxy_means_that_the_server_was_not_reached() -> None:
    failures = HttpFailures("docs", "https://example.com/mcp", proxy="HTTPS_PROXY")
    refused = failures.of(httpx2.ProxyError("407 Proxy Authentication Required", request=REQUEST), REQUEST, sent=False)
    assert isinstance(refused, ConnectionOver)
    assert "through the proxy in HTTPS_PROXY (ProxyError: 407 Proxy Authentication Required)" in str(refused)
    broken = failures.of(httpx2.RemoteProtocolError("ended", request=REQUEST), REQUEST, sent=False)
    assert str(broken).endswith("check the proxy in HTTPS_PROXY, and the configured auth")


@pytest.mark.parametrize(
    ("transport", "variable"),
    [
        (Http("https://example.com/mcp"), "https_proxy"),
        (Sse("http://example.com/sse", allow_insecure=True), "ALL_PROXY"),
        (Http("https://internal.example.com/mcp"), ""),
        (Http("https://localhost/mcp"), ""),
        (Http("https://example.com/mcp", http_client=httpx2.AsyncClient), ""),
    ],
)
def test_the_proxy_of_a_server_is_the_one_that_its_url_uses(
    transport: Http | Sse, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "internal.example.com")
    assert proxy_variable(transport) == variable


def test_each_way_to_lose_a_response_has_a_message_of_its_own(said: Said) -> None:
    said("http connection broke during the request", str(FAILURES.broken(httpx2.ReadError("reset"))))
    unencrypted = HttpFailures("docs", "http://example.com/mcp").broken(httpx2.RemoteProtocolError("disconnected"))
    said("http connection broke without TLS", str(unencrypted))
    said("http request failed before it was sent", str(FAILURES.not_sent(RuntimeError("hunter2"))))
    said("http response is not MCP", str(FAILURES.no_answer("it answered with 'text/html', which is not MCP")))
    said(
        "http response to another request", str(FAILURES.misdirected(WrongId("the response is to request 8, not to 7")))
    )
    files = Shortage("Too many open files", "raise the limit of open files (ulimit -n)")
    said("http shortage", str(FAILURES.short(httpx2.ConnectError("no"), files)))
    said("http session not found", str(FAILURES.forgotten(None)))
    said("sse event stream ended", str(FAILURES.ended()))
    said("sse event stream broke", str(FAILURES.ended(httpx2.ReadError("reset"))))
    said("sse content type is not an event stream", str(FAILURES.no_stream("text/html")))
    said("sse endpoint at another origin", str(FAILURES.endpoint_elsewhere(httpx2.URL("https://x.example/p?k=1"))))


def test_a_message_over_a_limit_names_the_limit_and_how_to_raise_it(said: Said) -> None:
    limits = MessageLimits(1000, 50, "max_body_bytes")
    said("response exceeds bytes", str(FAILURES.too_large(limits.response_too_large("bytes"))))
    said("response exceeds values", str(FAILURES.too_large(limits.response_too_large("values"))))
    said("message exceeds bytes", str(FAILURES.too_large(limits.message_too_large("bytes"))))
    said("message exceeds values", str(FAILURES.too_large(limits.message_too_large("values"))))


def test_a_limit_that_cannot_be_raised_names_no_option(said: Said) -> None:
    said("response exceeds a fixed limit", MessageLimits(1000, 50).response_too_large("bytes"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"jsonrpc": "2.0", "method": "note"}', "the body is an MCP message, but not a response"),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "ask"}', "the body is an MCP message, but not a response"),
        (b"[]", "the response is not an MCP message"),
        (b"\xff", "the response is not an MCP message"),
        (b" \n", "the response is empty"),
    ],
)
def test_a_body_that_does_not_answer_the_request_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(NoAnswer) as caught:
        answer_in(body, 7)
    assert str(caught.value) == reason


@pytest.mark.parametrize("answered", [b"8", b'"8"', b"7.5e1", b'"seven"', b'"%s"' % (b"x" * 1000)])
def test_a_body_that_answers_another_request_is_refused(answered: bytes) -> None:
    """C-02: results and errors; the text is bounded, whatever the server sends."""
    for member in (b'"result": {}', b'"error": {"code": 1, "message": "no"}'):
        with pytest.raises(WrongId, match=r"the response is to request .*, not to 7") as caught:
            answer_in(b'{"jsonrpc": "2.0", "id": %s, %s}' % (answered, member), 7)
        assert len(str(caught.value)) < 150


@pytest.mark.parametrize("answered", [b"7", b'"7"', b"7.0"])
def test_a_body_answers_the_request_that_has_its_id(answered: bytes) -> None:
    """C-02: compared as numbers."""
    assert answer_in(b'{"jsonrpc": "2.0", "id": %s, "result": {}}' % answered, 7).id == 7


def test_an_error_in_the_body_may_lack_the_id_of_the_request() -> None:
    """C-02, B-03."""
    for request_id in (b'"id": 7, ', b'"id": null, ', b""):
        error = answer_in(b'{"jsonrpc": "2.0", %s"error": {"code": 1, "message": "no"}}' % request_id, 7)
        assert isinstance(error, JSONRPCError)
        assert (error.id, error.error.message) == (7, "no")


@pytest.mark.parametrize("form", [b"\xef\xbb\xbf%s", b"[%s]", b"\r%s\r", b"\xef\xbb\xbf [%s]"])
def test_a_body_may_begin_with_a_mark_or_be_a_batch_of_one(form: bytes) -> None:
    """C-08: as a line over stdio."""
    assert answer_in(form % b'{"jsonrpc": "2.0", "id": 7, "result": {}}', 7).id == 7
    refusal = b'{"jsonrpc": "2.0", "error": {"code": 1, "message": "no"}}'
    assert answer_in(form % refusal, 7).id == 7
    error = error_in(form % refusal)
    assert error is not None
    assert error.message == "no"
    check_refusal(form % refusal, 7)
    with pytest.raises(WrongId):
        check_refusal(form % b'{"jsonrpc": "2.0", "id": 8, "error": {"code": 1, "message": "no"}}', 7)


@pytest.mark.parametrize("request_id", [b'"id": null, ', b""])
def test_a_result_without_the_id_answers_no_request(request_id: bytes) -> None:
    """C-02."""
    with pytest.raises(NoAnswer):
        answer_in(b'{"jsonrpc": "2.0", %s"result": {}}' % request_id, 7)


def test_an_mcp_error_in_a_body_is_found() -> None:
    error = error_in(b'{"jsonrpc": "2.0", "id": null, "error": {"code": -1, "message": "no", "data": [1]}}')
    assert error is not None
    assert (error.code, error.message, error.data) == (-1, "no", [1])
    nameless = error_in(b'{"jsonrpc": "2.0", "error": {"code": -1, "message": "no"}}')
    assert nameless is not None
    assert nameless.message == "no"
    assert error_in(b'{"jsonrpc": "2.0", "id": 1, "result": {}}') is None
    assert error_in(b'["error"]') is None
    assert error_in(b"<html>") is None


def test_the_text_of_a_foreign_exception_is_never_empty_and_never_shows_a_header() -> None:
    """A-16."""
    bare = httpx2.ConnectError("")
    assert describe(bare) == "ConnectError"
    bare.__cause__ = RuntimeError("between")
    bare.__cause__.__context__ = OSError(111, "Connection refused")
    assert describe(bare) == "ConnectError: [Errno 111] Connection refused"
    assert describe(httpx2.LocalProtocolError("Illegal header value b'hunter2'")) == "LocalProtocolError"
    assert describe(RuntimeError("hunter2")) == "RuntimeError"


def test_an_error_without_a_request_is_about_no_request() -> None:
    assert not _failures.is_about(httpx2.ConnectError("refused"), REQUEST)
    assert _failures.is_about(httpx2.ConnectError("refused", request=REQUEST), REQUEST)
