"""Judge a redirect or an answer over HTTP; build errors for failures.

Servers send wrong HTTP statuses, and wrong or missing ids. An answer with another request's id is refused, so no
caller gets the result of another call. `HttpFailures` builds the errors about one server, and masks foreign text.

Owns: nothing.
Writes: the request's id into accepted answers; masked exceptions.
Calls: transports.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar

import httpx2
from attrs import field, frozen
from mcp import MCPError
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCResponse, RequestId

from ..._collapse import caused_by
from ..._errors import ConnectionLost, HttpStatusError, LimitExceeded, ServerError
from ..._text import Shortage, causes_of, own_shortage, plain_text
from .._credentials import Masked, Masker
from .._exchange import SHOWN_TEXT
from .._link import MAY_HAVE_ACTED, ConnectionOver
from .._messages import alone, parse_json, to_message
from .._request_table import NO_IDS, UnmatchedError, comparable_id

# --- Which redirects may be followed: those within the origin of the server -------------------------------------------

# A server was configured at one origin, so no other origin gets request headers, credentials or bodies. A redirect
# that would drop the body of a message is not followed either.


MAX_REDIRECTS: Final = 5  # more, of one request, are a loop

Send: TypeAlias = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def next_request_within_origin(response: httpx2.Response) -> httpx2.Request | None:
    """Return the request to send after a redirect; None if `response` is not a redirect that may be followed."""
    following, sent = response.next_request, response.request
    if following is None or following.method != sent.method or not _same_origin(sent.url, following.url):
        return None
    # A user in the location would be sent as credentials. A relative location keeps the user of the configured URL.
    return following if following.url.userinfo in (b"", sent.url.userinfo) else None


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Return True for one origin, or if `other` is `one` over TLS, both at the default ports."""
    if one.host != other.host:
        return False
    upgraded = (one.scheme, one.port, other.scheme, other.port) == ("http", None, "https", None)
    return upgraded or (one.scheme, one.port) == (other.scheme, other.port)


# --- Judge answers, and build the errors for failures -----------------------------------------------------------------


UNREACHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
"""No connection was made, here or by a proxy, so nothing was sent."""

OF_HTTP: Final = frozenset({401, 403, 407, 408, 425, 429, 502, 503, 504})
"""Statuses about credentials, load and proxies, always a `HttpStatusError`. For any other status, an MCP error in the
body is the response."""

OF_A_REQUEST: Final = frozenset({400, 404})
"""Statuses that concern one request, if the URL has answered others."""

NOT_INITIALIZED: Final = -32002
"""The code of many servers for a request before ``initialize``, from the Language Server Protocol."""

MAX_RETRY_AFTER: Final = 3600.0
"""Maximum seconds to wait for ``Retry-After``, even if the server asks for a week."""

_REMEDY_URL: Final = "check that this is the URL of an MCP endpoint"
_STATUS_REMEDIES: Final = {
    400: _REMEDY_URL,
    401: "check the credentials",
    403: "check what the credentials allow",
    **dict.fromkeys((404, 405, 501), "check the path of the URL"),
    **dict.fromkeys((406, 415), f"{_REMEDY_URL}, and that no proxy changes the headers of requests"),
    407: "set the credentials of the proxy in the proxy variables of the environment",
    413: "send less data in one request",
    421: "it refuses the host name in the URL; use one that it allows, or add this one to its allowed hosts",
    429: "send fewer requests at a time",
}
REMEDY_CERTIFICATE: Final = (
    "the server requires a client certificate: set verify to an ssl.SSLContext that has loaded one"
)
REMEDY_STREAM: Final = (
    "check the path of the URL, and whether the server speaks streamable HTTP (type 'http') instead of SSE"
)
REMEDY_SERVER: Final = "check the logs of the server and of any proxy before it"
_REMEDY_NO_TOKEN: Final = (
    "it requires a bearer token and none was sent; sign in with the provider and set the header Authorization to "
    "'Bearer ${TOKEN}', or pass an httpx2.Auth in Python"
)
_REMEDY_BASIC: Final = "it requires a user and a password; write both in the URL, or set the header Authorization"
_REMEDY_REQUEST: Final = (
    "it has answered other requests, so check the arguments of this one, and the rules of any gateway before the server"
)
_REMEDY_TWO_SESSIONS: Final = (
    "it refused this request, and a ping, on two sessions in a row; if it has several instances, turn on sticky "
    "sessions at the load balancer, else check what this request does to its session"
)
_REMEDY_OTHER: Final = "check the documentation of the server for this status"


def retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds of a ``Retry-After`` header, at most `MAX_RETRY_AFTER`; None without a valid header."""
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
    """A body is not the response to a request."""


class WrongId(httpx2.SSEError):
    """An answer is to another request, or to none."""


def check_id(answer: JSONRPCResponse | JSONRPCError, request: RequestId) -> None:
    """Give an answer the id of its request, as it was sent.

    After a second response on a connection, or behind a proxy that mixes responses up, only the id shows that an answer
    belongs to another call.

    Raises:
        WrongId: the answer is not to this request. The text is for an error, after the URL of the server.
    """
    if answer.id is None:
        raise WrongId(f"the response is an error without an id, so not to request {request!r}")
    if comparable_id(answer.id) != comparable_id(request):
        raise WrongId(f"the response is to request {plain_text(repr(answer.id), limit=SHOWN_TEXT)}, not to {request!r}")
    answer.id = request


def answer_in(body: bytes, request: RequestId, skip: Callable[[str], object] = str) -> JSONRPCResponse | JSONRPCError:
    """Return the response in a body; an error without an id counts as the response to this request.

    `skip` is called with the kind of skipped messages.

    Raises:
        NoAnswer: there is no response. The text is for an error, after the URL of the server.
        WrongId: the response is to another request.
    """
    try:
        value = alone(parse_json(body))
        if type(value) is list:  # a batch, which existed until 2025-06-18
            [value] = [each for each in value if isinstance(each, dict) and _id_of(each) == comparable_id(request)]
            skip("the other messages of a batch")
        message = to_message(value)
    except ValueError:
        raise NoAnswer("the response is not an MCP message" if body.strip() else "the response is empty") from None
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        raise NoAnswer("the body is an MCP message, but not a response")
    if isinstance(message, JSONRPCError) and message.id in NO_IDS:
        # The server refused the request without parsing it.
        message.id, message.error = request, UnmatchedError(**dict(message.error))
    check_id(message, request)
    return message


def _id_of(message: dict[str, object]) -> RequestId | None:
    return None if "method" in message else comparable_id(message.get("id"))


def may_mean_unknown_session(error: ErrorData) -> bool:
    """Return True if an error may mean an unknown session: the server has not looked at the request."""
    return isinstance(error, UnmatchedError) or error.code in (INVALID_REQUEST, NOT_INITIALIZED)


def error_in(body: bytes) -> MCPError | None:
    """Return the MCP error in the body of an error status, with or without an ``id``; None without an error."""
    try:
        message = to_message(parse_json(body))
    except ValueError:
        return None
    return MCPError.from_error_data(message.error) if isinstance(message, JSONRPCError) else None


def check_refusal(body: bytes, request: RequestId) -> None:
    """Check the id of an MCP error in the body of an error status.

    A text, such as ``"server-error"``, counts as no id: older servers of the Python SDK send texts in place of null.

    Raises:
        WrongId: the error is the response to another request.
    """
    refusal = alone(parse_json(body))
    request_id = _id_of(refusal) if isinstance(refusal, dict) else None
    if isinstance(request_id, int) and request_id != comparable_id(request):
        raise WrongId(f"the response is to request {request_id}, not to {request!r}")


def is_about(error: httpx2.RequestError, request: httpx2.Request) -> bool:
    """Return True if an error is about this request, not a request of its auth flow."""
    failed = _request_of(error)
    return failed is not None and (failed.method, failed.url) == (request.method, request.url)


def is_about_origin(error: httpx2.RequestError, url: httpx2.URL) -> bool:
    """Return True if an error is about a request to this origin, not a request of an auth flow elsewhere."""
    failed = _request_of(error)
    return failed is not None and _same_origin(url, failed.url)


def _request_of(error: httpx2.RequestError) -> httpx2.Request | None:
    try:
        return error.request
    except RuntimeError:  # httpx2 raises it for an error without a request
        return None


E = TypeVar("E", bound=BaseException)
S = TypeVar("S", bound=ServerError)


@frozen
class HttpFailures:
    """Builds the errors about one server: each public method returns an error or a part of an error.

    Args:
        url: the URL of the server, without credentials.
        credentials: the sources of the credentials, without any value.
        proxy: the environment variable of the proxy in between; empty without a proxy.
    """

    server: str
    url: str
    masker: Masker = field(factory=Masker)
    credentials: str = ""
    proxy: str = ""

    def status(
        self,
        response: httpx2.Response,
        now: datetime,
        body: MCPError | None = None,
        text: bytes = b"",
        *,
        answered: bool = False,
        remedy: str | None = None,
    ) -> HttpStatusError:
        """Return the error for a response with an error status.

        Args:
            response: the response.
            now: the current time, with its zone.
            body: the MCP error in the response, if any.
            text: the body, shown unless it is a page.
            answered: whether the server has answered other requests.
            remedy: replaces the usual remedy of the status.
        """
        status = response.status_code
        remedy = _REMEDY_REQUEST if answered and status in OF_A_REQUEST else remedy
        wait = retry_after(response.headers.get("retry-after"), now)
        cause = self._kept(body)
        said = f" ({plain_text(str(cause))})" if cause is not None else self.said(text, response)
        reason = f"{self.url} answered with {_title(status)}{said}"
        error = HttpStatusError(
            f"server {self.server!r}: {reason}; {remedy or self._remedy(response, wait)}",
            server=self.server,
            status=status,
            retry_after=wait,
        )
        return caused_by(error, cause)

    def said(self, text: bytes, response: httpx2.Response | None = None) -> str:
        """Return an unexpected body in brackets; empty for a page, or for a possible result of another call."""
        if b'"result"' in text or (response is not None and "html" in response.headers.get("content-type", "")):
            return ""
        said = plain_text(self.masker(text.decode(errors="replace")).strip(), limit=200)
        return f" ({said})" if said else ""

    def _remedy(self, response: httpx2.Response, wait: float | None) -> str:
        status = response.status_code
        if status == HTTPStatus.UNAUTHORIZED and (wanted := _wanted(response)) is not None:
            return wanted
        if status == HTTPStatus.UNAUTHORIZED and self.credentials:
            return f"check the credentials ({self.credentials})"
        remedy = _STATUS_REMEDIES.get(
            status, REMEDY_SERVER if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _REMEDY_OTHER
        )
        return remedy if wait is None else f"{remedy}, and try again in {wait:.0f} s"

    def redirected(self, response: httpx2.Response) -> HttpStatusError:
        sent, following = response.request, response.next_request
        assert following is not None
        target, remedy = self._shown(following.url), "configure that URL if you trust it"
        reason = "it is another origin"
        if _same_origin(sent.url, following.url):
            reason = "it names a user" if following.method == sent.method else "it would drop the body of the request"
        if next_request_within_origin(response) is not None:
            reason, remedy = f"redirects go on after {MAX_REDIRECTS}, probably in a loop", REMEDY_SERVER
        what = (
            f"server {self.server!r}: {self.url} answered with {_title(response.status_code)} to {target}, which was "
            f"not followed ({reason}); {remedy}"
        )
        return HttpStatusError(what, server=self.server, status=response.status_code)

    def lost(self, what: str, cause: BaseException | None = None) -> ConnectionLost:
        return caused_by(self._about(ConnectionLost, f": {what}{MAY_HAVE_ACTED}"), self._kept(cause))

    def misdirected(self, reason: WrongId) -> ConnectionLost:
        return self.lost(f"{self.masker(str(reason))}; {REMEDY_SERVER}")

    def no_answer(self, what: str) -> ConnectionLost:
        return self.lost(f"{self.masker(what)}; {_REMEDY_URL}")

    def of(self, error: Exception, request: httpx2.Request, *, sent: bool) -> Exception:
        """Return the `ServerError` or `ConnectionOver` for an exception that a request raised.

        Args:
            error: the exception. A `ServerError` or `ConnectionOver` is returned unchanged.
            request: the request.
            sent: True if the request may have taken effect before the exception.
        """
        if isinstance(error, ServerError | ConnectionOver):
            return error
        if not sent and (shortage := own_shortage(error)) is not None:
            return self.short(error, shortage)
        if isinstance(error, UNREACHED) and is_about(error, request) and not sent:
            return self.unreached(error)
        return self.broken(error) if sent else self.not_sent(error)

    def short(self, cause: Exception, shortage: Shortage) -> ServerError:
        what = f"the request was not sent, because of a shortage in this program ({shortage.what}); {shortage.remedy}"
        return self._without_effect(what, cause)

    def broken(self, cause: Exception) -> ConnectionLost:
        shortage = own_shortage(cause)
        remedy = REMEDY_SERVER if shortage is None else shortage.remedy
        if _wants_certificate(_system_error(cause)):
            remedy = REMEDY_CERTIFICATE
        elif isinstance(cause, httpx2.RemoteProtocolError) and self.url.startswith("http://"):
            remedy += ", and whether this port speaks only https"
        return self.lost(f"the connection broke during the request ({describe(cause, self.masker)}); {remedy}", cause)

    def not_sent(self, cause: Exception) -> ServerError:
        where = f"proxy in {self.proxy}, and the configured auth" if self.proxy else "configured auth and http_client"
        what = f"the request failed before it took effect ({describe(cause, self.masker)}); check the {where}"
        return self._without_effect(what, cause)

    def _without_effect(self, what: str, cause: Exception) -> ServerError:
        error = caused_by(self._about(ServerError, f": {what}"), self._kept(cause))
        error.outcome = "not_sent"  # type: ignore[attr-defined]  # as errors of this package have
        return error

    def too_large(self, reason: str) -> LimitExceeded:
        return self._about(LimitExceeded, f": {reason}")

    def unreached(self, cause: Exception) -> ConnectionOver:
        root = _system_error(cause)
        if isinstance(root, ssl.SSLCertVerificationError):
            remedy = "check the certificate of the server, or set verify to a file of CA certificates to trust"
            if "mismatch" in str(root.verify_message):
                remedy = "write the name or address that the certificate is for in the URL"
        elif _wants_certificate(root):
            remedy = REMEDY_CERTIFICATE
        elif isinstance(root, ssl.SSLError):
            remedy = "check whether this port speaks https or only http"
        elif self.proxy:
            remedy = "check that proxy, or add the host of the URL to NO_PROXY"
        elif isinstance(root, socket.gaierror):
            remedy = "check the host name"
        else:
            remedy = "check that the server is running"
        way = f" through the proxy in {self.proxy}" if self.proxy else ""
        late = "timed out" if isinstance(cause, httpx2.ConnectTimeout) else ""
        why = _reason(root) or late or describe(cause, self.masker)
        what = f"could not connect to {self.url}{way} ({why}); {remedy}"
        return caused_by(ConnectionOver(what), self._kept(cause))

    def of_endpoint(self, response: httpx2.Response, now: datetime) -> HttpStatusError:
        named = self._shown(response.request.url)
        remedy = f"its event stream names {named} for messages, so check the prefix that a proxy adds to its paths"
        return self.status(response, now, remedy=remedy)

    def forgotten(
        self, cause: MCPError | None, response: httpx2.Response | None = None, now: datetime | None = None
    ) -> ConnectionOver:
        """Return the error for a session that the server does not know; without `response`, no request was refused."""
        what = (
            f"{self.url} no longer knows this session; the server was restarted, or a load balancer has sent the "
            "request to another instance; if this repeats, turn on sticky sessions there"
        )
        refusal: Exception | None = None
        if response is not None and now is not None:
            refusal = cause if response.is_success else self.status(response, now, cause, remedy=_REMEDY_TWO_SESSIONS)
        return caused_by(ConnectionOver(what, refusal=refusal), self._kept(cause))

    def ended(self, cause: Exception | None = None) -> ConnectionOver:
        how = f"broke ({describe(cause, self.masker)})" if cause is not None else "ended"
        what = f"the event stream of {self.url} {how}; {REMEDY_SERVER}"
        return caused_by(ConnectionOver(what), self._kept(cause))

    def no_stream(self, kind: str) -> ServerError:
        found = plain_text(self.masker(kind), limit=SHOWN_TEXT) or "no content type"
        return self._about(ServerError, f" answered with {found!r}, which is not an event stream; {REMEDY_STREAM}")

    def no_endpoint(self) -> ServerError:
        return self._about(ServerError, f" opened an event stream that named no endpoint; {REMEDY_STREAM}")

    def endpoint_elsewhere(self, endpoint: httpx2.URL) -> ServerError:
        return self._about(
            ServerError,
            f" wants messages sent to another origin ({self._shown(endpoint)}), which is refused to protect the "
            "credentials; correct the base URL that the server announces",
        )

    def _about(self, kind: type[S], what: str) -> S:
        return kind(f"server {self.server!r}: {self.url}{what}", server=self.server)

    def _kept(self, cause: E | None) -> E | Masked | None:
        return None if cause is None else self.masker.clean(cause)

    def _shown(self, url: httpx2.URL) -> str:
        return plain_text(self.masker(str(url.copy_with(userinfo=b"", query=None, fragment=None))))


def describe(error: BaseException, mask: Callable[[str], str] = str) -> str:
    """Return the class of a foreign exception, and the text unless the text may have a header or a URL."""
    text = ""
    harmless = httpx2.TransportError | httpx2.DecodingError
    if isinstance(error, harmless) and not isinstance(error, httpx2.LocalProtocolError):
        text = str(error) or str(_system_error(error) or "")
    return f"{type(error).__name__}: {plain_text(mask(text))}" if text else type(error).__name__


def _wants_certificate(error: BaseException | None) -> bool:
    return isinstance(error, ssl.SSLError) and "CERTIFICATE_REQUIRED" in str(error)


def _system_error(error: BaseException) -> OSError | None:
    """Return the innermost error of the system or of TLS among the causes."""
    return next((each for each in reversed([*causes_of(error)]) if isinstance(each, OSError)), None)


def _reason(root: OSError | None) -> str:
    """Return the words of the system or of TLS, as ``connection refused``; empty without any."""
    if isinstance(root, ssl.SSLError):
        texts = (root.reason or "").replace("_", " ").lower(), getattr(root, "verify_message", "")
        return plain_text(": ".join(filter(None, texts))).rstrip(".")
    if root is None or not root.errno:
        return ""
    text = root.strerror or "" if isinstance(root, socket.gaierror) else os.strerror(root.errno)
    return text.lower()


def _title(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"status {status}"


def _wanted(response: httpx2.Response) -> str | None:
    """Return the remedy for a 401 that asks for other credentials than the request had, or None."""
    challenge = response.headers.get("www-authenticate", "").lower()
    given = response.request.headers.get("authorization", "").lower()
    if "bearer" in challenge:
        return None if given else _REMEDY_NO_TOKEN
    return _REMEDY_BASIC if challenge.startswith("basic") and not given.startswith("basic") else None
