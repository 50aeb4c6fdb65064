"""What went wrong with an HTTP request, in words and numbers."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import httpx2
import pytest

from mcp_actors.servers.transports import _http_failures
from mcp_actors.servers.transports._http_failures import (
    HttpFailures,
    NoAnswer,
    describe,
    error_in,
    nameless_error,
    retry_after,
)

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
def test_retry_after_is_a_number_or_a_date_and_has_an_end(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (400, "400 Bad Request; see whether this is the URL of an MCP endpoint"),
        (401, "401 Unauthorized; check the credentials"),
        (404, "404 Not Found; check the path of the URL"),
        (418, "418 I'm a Teapot; see what the server's documentation says about it"),
        (499, "status 499; see what the server's documentation says about it"),
        (500, "500 Internal Server Error; see the log of the server and of any proxy before it"),
        (599, "status 599; see the log of the server and of any proxy before it"),
    ],
)
def test_a_status_is_told_with_what_to_do(status: int, remedy: str) -> None:
    error = FAILURES.status(httpx2.Response(status, request=REQUEST), NOW)
    assert str(error) == f"server 'docs': https://example.com/mcp answered with {remedy}"
    assert (error.server, error.status, error.retry_after) == ("docs", status, None)


@pytest.mark.parametrize(
    ("challenge", "given", "remedy"),
    [
        ('Bearer resource_metadata="https://example.com/.well-known/oauth"', None, "somebody may have to sign in"),
        ('Basic realm="x", bearer', None, "give one in the header Authorization, as in 'Bearer ${TOKEN}'"),
        ('Bearer error="invalid_token"', "Bearer x", "; check the credentials"),
        ("Basic", None, "; check the credentials"),
        (None, None, "; check the credentials"),
    ],
)
def test_who_has_no_token_is_told_that_one_is_wanted(challenge: str | None, given: str | None, remedy: str) -> None:
    asked = httpx2.Request("POST", "https://example.com/mcp", headers={"Authorization": given} if given else {})
    headers = {"WWW-Authenticate": challenge} if challenge else {}
    assert remedy in str(FAILURES.status(httpx2.Response(401, headers=headers, request=asked), NOW))


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (ssl.SSLCertVerificationError("self-signed"), "check its certificate, or say in verify what to trust"),
        (ssl.SSLError("wrong version number"), "see whether there is https at this port, or http only"),
        (socket.gaierror("unknown"), "check the name of the host"),
        (OSError("refused"), "is it running?"),
    ],
)
def test_who_cannot_be_reached_is_told_with_what_to_look_at(cause: OSError, remedy: str) -> None:
    error = httpx2.ConnectError("no")
    error.__cause__ = cause
    assert str(FAILURES.unreached(error)).endswith(f"; {remedy}")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"jsonrpc": "2.0", "id": 8, "result": {}}', "it answered the request 8, and not 7"),
        (b'{"jsonrpc": "2.0", "id": "7", "result": {}}', "it answered the request '7', and not 7"),
        (b'{"jsonrpc": "2.0", "method": "note"}', "what it sent is a message, but no answer"),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "ask"}', "what it sent is a message, but no answer"),
        (b"[]", "its answer is not an MCP message"),
        (b"\xff", "its answer is not an MCP message"),
        (b" \n", "its answer is empty"),
    ],
)
def test_what_does_not_answer_the_request_is_no_answer(body: bytes, problem: str) -> None:
    with pytest.raises(NoAnswer) as caught:
        nameless_error(body, 7)
    assert str(caught.value) == problem


def test_an_error_may_leave_out_what_it_answers() -> None:
    assert nameless_error(b'{"jsonrpc": "2.0", "id": 7, "result": {}}', 7) is None
    assert nameless_error(b'{"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}', 7) is None
    error = nameless_error(b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "no"}}', 7)
    assert error is not None
    assert error.message == "no"


def test_the_error_of_mcp_in_a_body_is_found() -> None:
    error = error_in(b'{"jsonrpc": "2.0", "id": null, "error": {"code": -1, "message": "no", "data": [1]}}')
    assert error is not None
    assert (error.code, error.message, error.data) == (-1, "no", [1])
    nameless = error_in(b'{"jsonrpc": "2.0", "error": {"code": -1, "message": "no"}}')
    assert nameless is not None
    assert nameless.message == "no"
    assert error_in(b'{"jsonrpc": "2.0", "id": 1, "result": {}}') is None
    assert error_in(b'["error"]') is None
    assert error_in(b"<html>") is None


def test_no_text_is_empty_and_none_shows_a_header() -> None:
    """A-16."""
    bare = httpx2.ConnectError("")
    assert describe(bare) == "ConnectError"
    bare.__cause__ = RuntimeError("between")
    bare.__cause__.__context__ = OSError(111, "Connection refused")
    assert describe(bare) == "ConnectError: [Errno 111] Connection refused"
    assert describe(httpx2.LocalProtocolError("Illegal header value b'hunter2'")) == "LocalProtocolError"
    assert describe(RuntimeError("hunter2")) == "RuntimeError"


def test_an_error_without_a_request_is_about_none() -> None:
    assert not _http_failures.is_about(httpx2.ConnectError("refused"), REQUEST)
    assert _http_failures.is_about(httpx2.ConnectError("refused", request=REQUEST), REQUEST)


def test_a_server_that_is_not_reached_is_told_with_what_to_look_at() -> None:
    """S2-17."""
    over = FAILURES.unreached(httpx2.ConnectError("refused"))
    assert str(over) == "https://example.com/mcp cannot be reached (ConnectError: refused); is it running?"
