"""What went wrong with an HTTP request, in errors that say who, what and what to do. Pure functions of data."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, TypeVar

import httpx2
from attrs import field, frozen
from mcp import MCPError
from mcp.types import ErrorData, JSONRPCError, JSONRPCResponse, RequestId
from pydantic_core import from_json

from ..._collapse import caused_by
from ..._errors import ConnectionLost, HttpStatusError, LimitExceeded, ServerError
from ..._plain_text import plain_text
from .._exchange import ConnectionOver
from ._masker import Masked, Masker
from ._messages import parse_message

__all__ = [
    "OF_HTTP",
    "UNREACHED",
    "HttpFailures",
    "NoAnswer",
    "describe",
    "error_in",
    "is_about",
    "nameless_error",
    "retry_after",
]

UNREACHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout)
"""No connection was made, so nothing was sent."""

OF_HTTP: Final = frozenset({401, 403, 407, 408, 425, 429, 502, 503, 504})
"""Statuses that speak of HTTP itself: of credentials, load, proxies. They are told as such whatever the body says; with
any other status an error of MCP in the body is the server's answer."""

MAY_HAVE_ACTED: Final = "; the server may have acted on the request, so send it again only if that does no harm"
"""What is added to the loss of an answer; of a connect it goes without saying that it does no harm."""

MAX_RETRY_AFTER: Final = 3600.0
"""Seconds; whoever says to come back next week may be asked again after an hour."""

SHOWN: Final = 80
"""Characters of what a server has sent where something short belongs."""

_REMEDIES: Final = {
    400: "see whether this is the URL of an MCP endpoint",
    401: "check the credentials",
    403: "check what the credentials allow",
    404: "check the path of the URL",
    405: "check the path of the URL; this one takes no MCP requests",
    406: "see whether this is the URL of an MCP endpoint",
    407: "give the proxy its credentials, in the proxy variables of the environment",
    413: "send less in one request",
    415: "see whether this is the URL of an MCP endpoint",
    429: "send fewer requests at a time",
}
_REMEDY_SERVER: Final = "see the log of the server and of any proxy before it"
_REMEDY_NO_TOKEN: Final = (
    "it wants a token, for which somebody may have to sign in, and was given none; give one in the header "
    "Authorization, as in 'Bearer ${TOKEN}', or an httpx2.Auth in Python"
)
_REMEDY_OTHER: Final = "see what the server's documentation says about it"


def retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks to wait, 0 to `MAX_RETRY_AFTER`; None if it says nothing.

    Args:
        value: the header: a number of seconds, or a date.
        now: the time, with its zone.
    """
    if value is None:
        return None
    text = value.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        seconds = float(text)
    else:
        try:
            date = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


class NoAnswer(Exception):
    """What was sent is not the answer to a request."""


def nameless_error(body: bytes, request: RequestId) -> ErrorData | None:
    """Check that `body` is the answer to a request; return it if it is an error that does not say to which.

    Raises:
        NoAnswer: it is something else, in words that follow "the server: ".
    """
    try:
        message = parse_message(body)
    except ValueError:
        raise NoAnswer("its answer is not an MCP message" if body.strip() else "its answer is empty") from None
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        raise NoAnswer("what it sent is a message, but no answer")
    if isinstance(message, JSONRPCError) and message.id is None:
        return message.error
    if message.id != request:
        raise NoAnswer(f"it answered the request {plain_text(repr(message.id), limit=SHOWN)}, and not {request!r}")
    return None


def error_in(body: bytes) -> MCPError | None:
    """Return the error of MCP that the body of an error status holds, if it does.

    It may have no ``id``: servers refuse a request before they have looked at that.
    """
    try:
        value = from_json(body)
        message = JSONRPCError.model_validate({"id": None, **value} if isinstance(value, dict) else value)
    except ValueError:
        return None
    return MCPError(message.error.code, message.error.message, message.error.data)


def is_about(error: httpx2.RequestError, request: httpx2.Request) -> bool:
    """Whether an error is about this request, and not about one that its auth flow made to somewhere else."""
    try:
        return (error.request.method, error.request.url) == (request.method, request.url)
    except RuntimeError:  # it does not know its request
        return False


E = TypeVar("E", bound=BaseException)


@frozen
class HttpFailures:
    """Makes the errors about one server.

    Args:
        server: its configured name.
        url: its URL as it may be shown.
        masker: what masks its credentials in what it says.
        credentials: where its credentials come from, in words that may be shown.
    """

    server: str
    url: str
    masker: Masker = field(factory=Masker)
    credentials: str = ""

    def status(self, response: httpx2.Response, now: datetime, body: MCPError | None = None) -> HttpStatusError:
        """The server answered with a status that is no success; `body` is what it said in terms of MCP."""
        status = response.status_code
        wait = retry_after(response.headers.get("retry-after"), now)
        cause = self._kept(body)
        said = f" ({plain_text(str(cause))})" if cause is not None else ""
        error = HttpStatusError(
            f"server {self.server!r}: {self.url} answered with {_title(status)}{said}; {self._remedy(response, wait)}",
            server=self.server,
            status=status,
            retry_after=wait,
        )
        return caused_by(error, cause)

    def _remedy(self, response: httpx2.Response, wait: float | None) -> str:
        status = response.status_code
        if status == HTTPStatus.UNAUTHORIZED and _wants_token(response):
            return _REMEDY_NO_TOKEN
        if status == HTTPStatus.UNAUTHORIZED and self.credentials:
            return f"check the credentials ({self.credentials}), then restart the server"
        remedy = _REMEDIES.get(status, _REMEDY_SERVER if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _REMEDY_OTHER)
        return remedy if wait is None else f"{remedy}, and try again in {wait:.0f} s"

    def redirected(self, response: httpx2.Response) -> HttpStatusError:
        """The server redirected to a place where a request with credentials must not follow."""
        assert response.next_request is not None
        place = self._shown(response.next_request.url)
        return HttpStatusError(
            f"server {self.server!r}: {self.url} answered with {_title(response.status_code)} to {place}, which was "
            "not followed, because the credentials are meant for the first place only, or because the request would "
            "have lost its body; configure that URL if it is the server that is meant",
            server=self.server,
            status=response.status_code,
        )

    def lost(self, what: str, cause: BaseException | None = None) -> ConnectionLost:
        """The request was sent, and its answer will not come."""
        lost = ConnectionLost(
            f"server {self.server!r}: {self.url}: {what}{MAY_HAVE_ACTED}",
            server=self.server,
        )
        return caused_by(lost, self._kept(cause))

    def no_answer(self, what: str) -> ConnectionLost:
        """The request was sent, and what came is nothing that a server of MCP answers."""
        return self.lost(f"{self.masker(what)}; see whether this is the URL of an MCP endpoint")

    def of(self, error: Exception, request: httpx2.Request, *, sent: bool) -> Exception:
        """What an exception means for the request in which it was raised: a `ServerError`, or `ConnectionOver`.

        Args:
            error: the exception; if it is one of these, it is returned.
            request: the request.
            sent: whether its body was offered to the network.
        """
        if isinstance(error, ServerError | ConnectionOver):
            return error
        if isinstance(error, UNREACHED) and is_about(error, request):
            return self.unreached(error)
        return self.broken(error) if sent else self.not_sent(error)

    def broken(self, cause: Exception) -> ConnectionLost:
        """The connection broke, or the auth flow failed, after the request was sent."""
        return self.lost(f"the request failed on its way ({self._described(cause)})", cause)

    def not_sent(self, cause: Exception) -> ServerError:
        """The request failed before it was sent, or after the server had only asked for credentials."""
        error = ServerError(
            f"server {self.server!r}: {self.url}: the request was not carried out ({self._described(cause)}); "
            "check auth and the HTTP client that were configured",
            server=self.server,
        )
        return caused_by(error, self._kept(cause))

    def too_long(self, limit: int) -> LimitExceeded:
        """The server sent more than it may."""
        return LimitExceeded(
            f"server {self.server!r}: {self.url} answered with more than {limit} bytes, which is its max_body_bytes; "
            "raise that, or ask for less",
            server=self.server,
        )

    def too_many(self, limit: int) -> LimitExceeded:
        """The server sent more values than it may."""
        return LimitExceeded(
            f"server {self.server!r}: {self.url} answered with too many JSON values in one message; raise "
            f"limits=Limits(max_message_values=…), which is {limit}, if it may do that",
            server=self.server,
        )

    def unreached(self, cause: Exception) -> ConnectionOver:
        """No connection to the server could be made."""
        root = _system_error(cause)
        if isinstance(root, ssl.SSLCertVerificationError):
            remedy = "check its certificate, or say in verify what to trust"
        elif isinstance(root, ssl.SSLError):
            remedy = "see whether there is https at this port, or http only"
        elif isinstance(root, socket.gaierror):
            remedy = "check the name of the host"
        else:
            remedy = "is it running?"
        what = f"{self.url} cannot be reached ({self._described(cause)}); {remedy}"
        return caused_by(ConnectionOver(what), self._kept(cause))

    def forgotten(self, cause: MCPError | None) -> ConnectionOver:
        """The server does not know the session; it was probably restarted."""
        what = f"{self.url} does not know our session any more; it was probably restarted"
        return caused_by(ConnectionOver(what), self._kept(cause))

    def ended(self, cause: Exception | None = None) -> ConnectionOver:
        """The stream of events that everything comes over has ended."""
        how = f"broke ({self._described(cause)})" if cause is not None else "ended"
        return caused_by(ConnectionOver(f"the stream of events of {self.url} {how}"), self._kept(cause))

    def no_stream(self, kind: str) -> ServerError:
        """There is something else where the stream of events should be."""
        found = plain_text(self.masker(kind), limit=SHOWN) or "no content type"
        return ServerError(
            f"server {self.server!r}: {self.url} answered with {found!r}, which is no stream of events; "
            "check the path of the URL, and whether the server speaks streamable HTTP instead",
            server=self.server,
        )

    def endpoint_elsewhere(self, endpoint: httpx2.URL) -> ServerError:
        """The stream of events names an endpoint to which its credentials must not go."""
        place = self._shown(endpoint)
        return ServerError(
            f"server {self.server!r}: {self.url} wants messages to be posted to {place}, which is not where it is "
            "itself; nothing is sent there, as the credentials are meant for the first place only; correct the address "
            "that the server has of itself",
            server=self.server,
        )

    def _kept(self, cause: E | None) -> E | Masked | None:
        return None if cause is None else self.masker.clean(cause)

    def _described(self, cause: BaseException) -> str:
        return describe(cause, self.masker)

    def _shown(self, url: httpx2.URL) -> str:
        """Return a URL that the server has named, for a message."""
        return plain_text(self.masker(str(url.copy_with(userinfo=b"", query=None, fragment=None))))


def describe(error: BaseException, mask: Callable[[str], str] = str) -> str:
    """The class of an exception of another library, and its text unless that may show a header or a URL."""
    text = ""
    told = httpx2.TransportError | httpx2.DecodingError
    if isinstance(error, told) and not isinstance(error, httpx2.LocalProtocolError):
        text = str(error) or str(_system_error(error) or "")
    return f"{type(error).__name__}: {plain_text(mask(text))}" if text else type(error).__name__


def _system_error(error: BaseException) -> OSError | None:
    """The last error of the operating system, or of TLS, behind an exception."""
    found, seen = None, error.__cause__ or error.__context__
    while seen is not None:
        found = seen if isinstance(seen, OSError) else found
        seen = seen.__cause__ or seen.__context__
    return found


def _title(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"status {status}"


def _wants_token(response: httpx2.Response) -> bool:
    """Whether a server that answers so has asked for a token, and was sent none."""
    challenge = response.headers.get("www-authenticate", "")
    return "bearer" in challenge.lower() and "authorization" not in response.request.headers
