"""Speak Streamable HTTP of both eras.

A POST carries one message. The era is in the POST's headers or in the message's ``_meta``. The eras differ:

========================  ========================================  ================================================
                          since 2026-07-28 (`RequestPipeline`)      before (`ClientHttpSession`)
========================  ========================================  ================================================
a request                 must match its headers                    names the session begun by ``initialize``
messages about a request  are streamed on its reply                 are streamed on its reply
other messages            none                                      are streamed on a GET's reply, or are kept
a closed connection       cancels the request                       cancels nothing; the answer is lost
a session                 none                                      ends by DELETE, or if unused (`SESSION_SECONDS`)
========================  ========================================  ================================================

Owns: client sessions; request pipelines; kept messages; session tasks.
Writes: the gateway's set of sessions; each HTTP connection's reference to its pipeline; the memory budget; replies to
clients; the log.
Calls: gateway, _wire.
"""

from __future__ import annotations

import math
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import evolve
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from ..._foreign import Log
from .._calls import error_line, is_answer, is_id, malformed, parsed
from .._session import Gateway, GatewaySession
from ._wire import Head, HttpAnswer, HttpRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._calls import Id, Json
    from .._output import Heart
    from ._wire import HttpConnection

logger = Log("mcp_actors.gateway")

MAX_HTTP_SESSIONS: Final = 2000
"""Sessions of all identities, shared equally. A further one ends the session that was idle longest."""

SESSION_SECONDS: Final = 1800.0
"""Seconds without a request or stream after which a session ends."""

MAX_KEPT: Final = 1000
"""Messages kept for a closed stream. More drop the oldest."""

MAX_KEPT_BYTES: Final = 1024 * 1024
"""Bytes of messages kept for a closed stream."""

VERSION_HEADER: Final = "mcp-protocol-version"
SESSION: Final = "mcp-session-id"
LISTEN: Final = "subscriptions/listen"

REQUEST_CANCELLED: Final[Json] = {"code": -32800, "message": "the request was cancelled"}
"""The answer to a cancelled request before 2026-07-28, as in the SDK."""

NAME_MEMBERS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Method → the member of params that ``Mcp-Name`` repeats."""


def check_media(connection: HttpConnection, head: Head) -> None:
    """Raise `HttpRefused` unless the body of a POST is JSON, and the client accepts the kinds of replies."""
    if head.method == "GET" and not accepts(head, "text/event-stream"):
        raise HttpRefused(406, "the reply is a stream of events; send Accept: text/event-stream")
    if head.method != "POST":
        return
    if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpRefused(415, "the body is not JSON; send it as Content-Type: application/json")
    if not (accepts(head, "application/json") and accepts(head, "text/event-stream")):
        raise HttpRefused(406, "the reply may be of two kinds; send Accept: application/json, text/event-stream")


def accepts(head: Head, kind: str) -> bool:
    given = {each.partition(";")[0].strip().lower() for each in head.headers.get("accept", "*/*").split(",")}
    return not given.isdisjoint((kind, kind.partition("/")[0] + "/*", "*/*"))


# --- Since 2026-07-28 -------------------------------------------------------------------------------------------------


class RequestPipeline:
    """The requests of one connection in order, and the reply to each. No request depends on another."""

    __slots__ = ("_reply", "gateway", "session")

    def __init__(self, gateway: Gateway, start: Callable[..., object]) -> None:
        self.gateway = gateway
        self._reply: HttpAnswer | None = None
        self.session = GatewaySession(gateway, self, start)
        self.session.modern = True

    def begin(self, reply: HttpAnswer) -> None:
        self._reply = reply
        reply.may_stream = True
        reply.on_gone = self.leave
        self.gateway.sessions.add(self.session)

    @property
    def is_free(self) -> bool:
        return self._reply is None and not self.session.calls

    def answer(self, line: bytes, request_id: Id | None, code: int) -> None:
        self.gateway.sessions.discard(self.session)
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.finish(line, ERROR_CODE_HTTP_STATUS.get(code, 200) if code else 200)

    def tell(self, line: bytes, about: Id | None) -> None:
        if self._reply is not None:
            self._reply.say(line)

    def leave(self) -> None:
        """Cancel the request: the client has left."""
        self._reply = None
        self.gateway.sessions.discard(self.session)
        self.session.close()


# --- Before -----------------------------------------------------------------------------------------------------------


class ClientHttpSession:
    """A session of several requests.

    Attributes:
        used: when a request or stream last used the session.
        waiting: bytes kept for a closed stream.
        moved: minus infinity, for the `Budget`: no client reads kept messages, so drop them first.
        failed: the last answer was an error.
    """

    moved: Final = -math.inf

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.identity: str = gateway.identity
        self.id = secrets.token_hex(16)
        self.used = trio.current_time()
        self.session = GatewaySession(gateway, self, self._start)
        self._replies: dict[Id, HttpAnswer] = {}
        self._present: HttpAnswer | None = None
        self._stream: HttpAnswer | None = None
        self._kept: dict[bytes, None] = {}
        self.waiting: int = 0
        self._first: list[Callable[..., Any]] = []
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self.failed: bool = False

    async def run(self) -> None:
        self.gateway.sessions.add(self.session)
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    for fn in self._first:
                        self._nursery.start_soon(fn)
                    await trio.sleep_forever()
        except Exception:  # of the session's own servers; other sessions go on
            logger.exception("a session over HTTP ends: a defect of the gateway")
        finally:
            self.gateway.sessions.discard(self.session)
            self.session.close()
            self.give_back(gently=True)
            for reply in (*self._replies.values(), self._stream):
                if reply is not None:
                    reply.refuse(HttpRefused(404, "the session has ended; begin a new one with initialize"))

    def _start(self, fn: Callable[..., Any]) -> None:
        if self._nursery is None:
            self._first.append(fn)
        else:
            self._nursery.start_soon(fn)

    def end(self) -> None:
        self._scope.cancel("the session has ended")

    @property
    def busy(self) -> bool:
        """True while a client has a stream or waits for a reply; a call whose client has left does not count."""
        return self._stream is not None or not all(reply.done for reply in self._replies.values())

    @property
    def idle_since(self) -> float:
        """When last used; infinity while a client has a stream or a call."""
        return math.inf if self.busy or self.session.calls else self.used

    def take(self, message: Json, size: int, reply: HttpAnswer, late: float) -> None:
        """Take a message of `size` bytes, with the reply to its POST, up to `late` seconds after arrival."""
        self.used = trio.current_time()
        request_id = message.get("id")
        if "method" in message and is_id(request_id) and request_id not in self._replies:
            self._replies[request_id] = reply
            reply.may_stream = True
            if late and self.session.is_too_late(message, late):
                self.session.refuse_late(request_id)
                return
        self._present = reply
        self.session.take(message, size)
        self._present = None
        if message.get("method") == "notifications/cancelled":
            # Each POST needs a reply, even for a cancelled request.
            for gone in self._replies.keys() - self.session.calls.keys():
                self.answer(error_line(gone, REQUEST_CANCELLED), gone, REQUEST_CANCELLED["code"])
        if "method" not in message or "id" not in message:
            reply.send(202)

    def answer(self, line: bytes, request_id: Id | None, code: int) -> None:
        """Complete the reply to a request, or, for an invalid message, to the present POST."""
        self.used = trio.current_time()
        self.failed = code != 0
        reply = self._present if request_id is None else self._replies.pop(request_id, self._present)
        if reply is not None:
            reply.finish(line, 400 if request_id is None else 200)

    def tell(self, line: bytes, about: Id | None) -> None:
        """Write on the reply to a request or on the stream; keep the line if neither is open."""
        reply = None if about is None else self._replies.get(about)
        if reply is None or reply.done:
            reply = self._stream
        if reply is not None:
            reply.say(line)
            return
        if line not in self._kept:
            self._kept[line] = None
            self._keep(len(line))
        while len(self._kept) > MAX_KEPT or self.waiting > MAX_KEPT_BYTES:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._keep(-len(oldest))

    def _keep(self, size: int) -> None:
        self.waiting += size
        self.session.budget.count(self, size)

    def give_back(self, *, gently: bool) -> int:
        kept, self._kept = self._kept, {}
        self._keep(-self.waiting)
        return len(kept)

    def listen(self, reply: HttpAnswer) -> None:
        """Send the messages that belong to no request on a reply, and end the former stream."""
        if self._stream is not None:
            self._stream.end()
        self._stream = reply
        reply.may_stream = True
        reply.on_gone = lambda: self._close_stream(reply)
        reply.on_drain = lambda: self._end_stream(reply)
        reply.stream()
        kept = self._kept
        self.give_back(gently=True)
        for line in kept:
            reply.say(line)

    def _end_stream(self, reply: HttpAnswer) -> None:
        reply.end()
        self._close_stream(reply)

    def _close_stream(self, reply: HttpAnswer) -> None:
        self.used = trio.current_time()
        if self._stream is reply:
            self._stream = None


# --- Both -------------------------------------------------------------------------------------------------------------


class McpEndpoint:
    def __init__(self, nursery: trio.Nursery, heart: Heart) -> None:
        self.gateways: dict[str, Gateway] = {}
        self._alone: dict[str, Gateway] = {}
        self._nursery = nursery
        self.sessions: dict[str, ClientHttpSession] = {}
        self._heart = heart
        self._gap = heart.gap

    def add(self, identity: str, gateway: Gateway) -> None:
        self.gateways[identity] = gateway
        self._alone[identity] = evolve(gateway, per_session=())  # requests without a session get no own servers

    def remove(self, identity: str) -> None:
        gateway = self.gateways.pop(identity)
        del self._alone[identity]
        for session in [each for each in self.sessions.values() if each.gateway is gateway]:
            self._end(session)

    async def _run(self, session: ClientHttpSession) -> None:
        try:
            await session.run()
        finally:
            self.sessions.pop(session.id, None)

    def _end(self, session: ClientHttpSession) -> None:
        self.sessions.pop(session.id, None)
        session.end()

    def answer(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        if head.method == "POST":
            self._take(connection, head, body, reply)
        elif head.headers.get(VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS:
            raise HttpRefused(405, "only POST is possible since 2026-07-28", b"allow: POST\r\n")
        elif head.method == "DELETE":
            self._end(self._session(head))
            reply.send(204)
        else:
            self._session(head).listen(reply)

    def _take(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        message = parsed(body)
        if type(message) is not dict or message.get("jsonrpc") != "2.0":
            _reject_malformed(reply, message)
            return
        version = head.headers.get(VERSION_HEADER)
        if version in HANDSHAKE_PROTOCOL_VERSIONS or (
            version is None and PROTOCOL_VERSION_META_KEY not in _meta(message)
        ):
            self._take_legacy(connection.late, head, message, len(body), reply)
        else:
            self._take_modern(connection, head, message, len(body), reply)

    # --- since 2026-07-28 -------------------------------------------------------------------------------------------

    def _take_modern(self, connection: HttpConnection, head: Head, message: Json, size: int, reply: HttpAnswer) -> None:
        request_id = message.get("id")
        if "id" not in message and type(message.get("method")) is str:
            if head.headers.get(VERSION_HEADER) not in MODERN_PROTOCOL_VERSIONS:
                _reject(reply, None, UNSUPPORTED_PROTOCOL_VERSION, "this protocol version is not supported")
            else:
                reply.send(202)  # no notification has an effect
            return
        if not is_id(request_id) or type(message.get("method")) is not str:
            _reject_malformed(reply, message)
            return
        if message["method"] in ("initialize", "ping"):  # exist in sessions only
            removed = f"{message['method']} was removed in {MODERN_PROTOCOL_VERSIONS[0]}"
            _reject(reply, request_id, METHOD_NOT_FOUND, removed)
            return
        gateway = self._alone[head.identity]
        try:
            rejected = _mismatch(head, message) or _param_mismatch(gateway, head, message)
        except ValueError:  # the SDK decodes base64 of ASCII only
            rejected = InboundLadderRejection(HEADER_MISMATCH, "a header has base64 that is not valid")
        if rejected is not None:
            _reject(reply, request_id, rejected.code, rejected.message, rejected.data)
            return
        exchange: RequestPipeline | None = connection.memo
        if exchange is None or exchange.gateway is not gateway or not exchange.is_free:
            exchange = connection.memo = RequestPipeline(gateway, connection.start)
        exchange.begin(reply)
        if connection.late and exchange.session.is_too_late(message, connection.late):
            exchange.session.refuse_late(request_id)
            return
        if message["method"] == LISTEN:
            reply.on_drain = partial(exchange.session.end_stream, request_id)
        exchange.session.take(message, size)

    # --- before -----------------------------------------------------------------------------------------------------

    def _take_legacy(self, late: float, head: Head, message: Json, size: int, reply: HttpAnswer) -> None:
        if message.get("method") != "initialize" or "id" not in message:
            self._session(head).take(message, size, reply, late)
            return
        gateway, most = self.gateways[head.identity], max(1, MAX_HTTP_SESSIONS // len(self.gateways))
        mine = [each for each in self.sessions.values() if each.gateway is gateway]
        if len(mine) >= most:
            idle = min(mine, key=lambda each: each.idle_since)
            if idle.idle_since == math.inf:
                limit = f"{most}, the share of each of {len(self.gateways)} tokens" if len(self.gateways) > 1 else most
                text = f"too many sessions of this token ({limit}) are in use; end some with DELETE, or use one again"
                raise HttpRefused(503, text, b"retry-after: 60\r\n")
            self._end(idle)
        session = ClientHttpSession(gateway)
        self.sessions[session.id] = session
        reply.headers += b"mcp-session-id: %b\r\n" % session.id.encode("ascii")
        self._nursery.start_soon(self._run, session)
        session.take(message, size, reply, late)
        if session.failed:
            self._end(session)

    def _session(self, head: Head) -> ClientHttpSession:
        """Return the session named by a request. Raises `HttpRefused` unless the identity has that session."""
        name = head.headers.get(SESSION)
        if name is None:
            raise HttpRefused(400, "a request of this protocol version needs the Mcp-Session-Id of its session")
        session = self.sessions.get(name)
        if session is None or session.gateway is not self.gateways[head.identity]:
            raise HttpRefused(404, "there is no such session; begin a new one with initialize")
        return session

    def expire(self, now: float) -> None:
        """End sessions unused for too long, without counting gaps of the event loop."""
        silence = 0.0 if self._heart.gap == self._gap else self._heart.silence
        self._gap = self._heart.gap
        for session in tuple(self.sessions.values()):
            session.used += silence
            if not session.busy and now - session.used > SESSION_SECONDS:
                self._end(session)


def _reject(reply: HttpAnswer, request_id: Id | None, code: int, message: str, data: Any = None) -> None:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    reply.finish(error_line(request_id, error), ERROR_CODE_HTTP_STATUS.get(code, 400))


def _reject_malformed(reply: HttpAnswer, message: Any) -> None:
    wrong = malformed(message)
    assert wrong is not None
    _reject(reply, None if is_answer(message) else wrong.id, wrong.code, wrong.message)


def _meta(message: Json) -> Json:
    params = message.get("params")
    meta = params.get("_meta") if type(params) is dict else None
    return meta if type(meta) is dict else {}


def _mismatch(head: Head, message: Json) -> InboundLadderRejection | None:
    """Return how a request and its headers disagree: like the SDK, but faster."""
    headers, method = head.headers, message["method"]
    if head.repeated and (twice := [name for name in head.repeated if name.startswith("mcp-")]):
        return InboundLadderRejection(HEADER_MISMATCH, f"the header {twice[0]} is there more than once")
    meta = _meta(message)
    version = meta.get(PROTOCOL_VERSION_META_KEY)
    if (
        version == headers.get(VERSION_HEADER)
        and version in MODERN_PROTOCOL_VERSIONS
        and CLIENT_CAPABILITIES_META_KEY in meta
        and headers.get("mcp-method") == method
    ):
        if (key := NAME_MEMBERS.get(method)) is None:
            return None
        name = headers.get("mcp-name", "")
        if message["params"].get(key) == name and not name.startswith("=?"):  # may be encoded
            return None
    found = classify_inbound_request(message, headers=headers)
    return found if isinstance(found, InboundLadderRejection) else None


def _param_mismatch(gateway: Gateway, head: Head, message: Json) -> InboundLadderRejection | None:
    """Return how the arguments of a call and their headers disagree."""
    if message["method"] != "tools/call" or gateway.front is None:
        return None
    params = message["params"]
    name, arguments = params.get("name"), params.get("arguments")
    schema = gateway.front.find_mirrored(name) if type(name) is str else None
    if schema is None or not isinstance(arguments, dict | None):
        return None
    return validate_mcp_param_headers(schema, arguments or {}, head.headers)
