"""Take the messages of one client, and answer them.

The reading task handles each message in one step that neither waits nor raises. A request for a server is passed on in
the same step; if servers must connect first, a task passes it on later. Requests and results are passed on unchanged,
except for their hop-by-hop members.

Owns: the state that a gateway's sessions share; requests of clients; questions to clients; tasks of requests.
Writes: the memory budget; requests to servers; hop-by-hop members of results; lines to clients; the log.
Calls: config, servers.requests, transports.socket, _budget, _calls, _daemon, _front, _news, _own.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio
from attrs import define, field
from mcp import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    PromptReference,
    ResourceTemplateReference,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from .._errors import McpActorsError, ServerUnavailable, ToolNotFound
from .._foreign import Log
from ..config import Stdio
from ..servers.requests import UNANSWERED, given_passing
from ..transports.socket import OK, unknown
from ._budget import CALL_OVERHEAD, COPIES, PROCESSES, WAITING, Budget, budget
from ._calls import (
    CLIENT_QUESTIONS,
    HOP_PREFIX,
    QUESTION_CAPABILITIES,
    Json,
    RelayedRequest,
    RequestRefused,
    Unknown,
    Unwritable,
    error_line,
    error_of,
    is_answer,
    is_id,
    json_id,
    malformed,
    not_sent,
    prompt_of,
    resource_of,
    result_in,
    text_in,
    too_large,
    written,
)
from ._daemon import DIRECTORY
from ._front import OneServer
from ._news import LOG_LEVELS, SUBSCRIPTION, News, RerunTask, log_line
from ._own import in_directory, serve_own, tell_roots_changed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from mcp.types import LoggingMessageNotificationParams

    from ..config import CallbackContext, ServerConfig
    from ..servers import ServerRef
    from ..servers.requests import Passing
    from ._calls import Id, Outlet, Prepare
    from ._front import Changed, Front

logger = Log("mcp_actors.gateway")

MAX_CALLS: Final = 1000
"""Requests of a session in flight. One more is refused as not sent."""

LARGE: Final = 1024  # bytes; `CALL_OVERHEAD` covers the copies of smaller requests
# Methods that do not start the session's own servers.
SHARED_ONLY: Final = frozenset({"logging/setLevel", "resources/unsubscribe", "server/discover"})

STOPS: Final = "the gateway stops; nothing was sent; send it again later"


CAPABILITIES: Final[Json] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
"""Everything that a server can do: ``initialize`` is answered before the servers are known."""

LISTING_METHODS: Final = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
}
"""List method → list of `Front`, and member of the answer."""

CACHEABLE: Final = frozenset({*LISTING_METHODS, "resources/read", "server/discover"})


@define(eq=False)
class Gateway:
    """State shared by all sessions of a gateway.

    Attributes:
        front: the servers; None until loaded, or if loading failed.
        refusal: why there are no servers.
        per_session: the servers that each client has for itself.
        stopping: set once new requests are refused.
        identity: the clients' identity; "" unless there are several identities.
    """

    front: Front | None = None
    info: Json = field(factory=lambda: {"name": "mcp-actors", "version": version("mcp-actors")})
    sessions: set[GatewaySession] = field(factory=set)
    refusal: str = ""
    per_session: Sequence[ServerConfig] = ()
    stopping: trio.Event = field(factory=trio.Event)
    identity: str = ""

    def answer_to(self, server: str) -> str:
        names = [] if self.front is None else [ref.name for ref in self.front.servers()]
        names += [config.name for config in self.per_session]
        return OK if server in names else unknown(names)

    def changed(self, kind: Changed) -> None:
        for session in tuple(self.sessions):
            session.note_changed(kind)

    def lowest_level(self) -> str:
        return min((level for each in self.sessions if (level := each.news.level) is not None), key=LOG_LEVELS.index)

    def log(self, context: CallbackContext, params: LoggingMessageNotificationParams) -> None:
        """Pass a log message of a server on, where wanted; make the line once."""
        make = cache(partial(log_line, context, params))
        for session in tuple(self.sessions):
            session.pass_log(context, params, make)


class GatewaySession:
    """The session of one client.

    Attributes:
        calls: request id → the request, until answered.
        only: the only server visible to the client; None for all.
        local: True for a client on this machine, which may choose the directory of its own servers.
        modern: True since 2026-07-28; None before the first request.
        initialized: set by ``notifications/initialized`` of a legacy client.
        processes: how many processes the client's own servers have.
    """

    def __init__(self, gateway: Gateway, outlet: Outlet, start: Callable[..., object]) -> None:
        self._gateway = gateway
        self.local: bool = False
        self.identity: str = gateway.identity
        self.budget: Budget = budget()
        self.budget.sources.add(self)
        self.processes: int = 0
        self.outlet: Outlet = outlet
        self.start = start
        self.calls: dict[Id, RelayedRequest | trio.CancelScope] = {}
        self._sizes: dict[Id, int] = {}
        self.modern: bool | None = None
        self.initialized: trio.Event = trio.Event()
        self.only: str | None = None
        self.news = News(self)
        self._front: Front | None = None
        self._opened: trio.Event | None = None
        self._capabilities: Json = {}
        self._envelope: Json | None = None
        self._directory: str | None = None
        self._roots: RerunTask | None = None
        self._asked: dict[str, trio.MemorySendChannel[Json]] = {}
        self._questions = 0

    # --- messages of the client -------------------------------------------------------------------------------------

    def take(self, message: Any, size: int = 0) -> None:
        """Take a message of `size` bytes. Never raises, never waits."""
        if self._take_answer(message):
            return
        if (wrong := malformed(message)) is not None:
            request_id = None if wrong.id in self.calls else wrong.id
            self._answer_error(request_id, {"code": wrong.code, "message": wrong.message})
        elif "id" not in message:
            params = message.get("params")
            self._take_notification(message["method"], params if type(params) is dict else {})
        elif message["id"] in self.calls:
            self.refuse_duplicate(message["id"])
        else:
            self._try_request(message["id"], message["method"], message.get("params") or {}, size)

    def _take_answer(self, message: Any) -> bool:
        """Take an answer, or drop an unexpected one; return False for any other message."""
        if type(message) is not dict or "method" in message:
            return False
        request_id = message.get("id")
        question = self._asked.pop(request_id, None) if type(request_id) is str else None
        if question is not None:
            question.send_nowait(message)
        return question is not None or is_answer(message)

    def _take_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled":
            request_id = params.get("requestId")
            if is_id(request_id):
                self.cancel(request_id)
        elif method == "notifications/initialized":
            self.initialized.set()
        elif method == DIRECTORY and self.local and self.only is None and self.modern is None:
            path = params.get("path")
            if type(path) is str and os.path.isabs(path) and os.path.isdir(path):
                self._directory = path
        elif method == "notifications/roots/list_changed" and self._front is not None and self._gateway.per_session:
            self._roots = self._roots or RerunTask(self.start, partial(tell_roots_changed, self._front))
            self._roots.run_soon()

    def _try_request(self, request_id: Id, method: str, params: Json, size: int) -> None:
        try:
            self._take_request(request_id, method, params, size)
        except Exception as exc:
            if not isinstance(exc, (RequestRefused, McpActorsError, MCPError)):
                logger.exception("a request of a client failed: %.200s", method)
            self.calls.pop(request_id, None)
            self.fail(request_id, exc)

    def _take_request(self, request_id: Id, method: str, params: Json, size: int) -> None:
        meta = params.get("_meta")
        meta = meta if type(meta) is dict else {}
        if self.modern is None and method != "ping":
            self.modern = method != "initialize" and PROTOCOL_VERSION_META_KEY in meta
        if method == "ping":
            self.answer(request_id, method, {})
            return
        if self._gateway.stopping.is_set():
            raise not_sent(STOPS, "ServerUnavailable")
        if self._gateway.front is None:
            raise not_sent(self._gateway.refusal, "ConfigError")
        if self.modern:
            if method == "initialize" or meta != self._envelope:  # mostly the same in each request
                self._open_envelope(method, params, meta)
            self._capabilities = meta[CLIENT_CAPABILITIES_META_KEY]
        elif method == "initialize":
            self._initialize(request_id, params, self._gateway.front)
            return
        self.budget.room -= COPIES * size + CALL_OVERHEAD
        if self.budget.room < 0 or size > LARGE or len(self.calls) >= MAX_CALLS:
            self._check_limits(request_id, size)
        front = self._front or self._open_own(self._gateway.front, method)
        if front is None:
            assert self._opened is not None
            self._run(request_id, partial(self._dispatch_after, self._opened.wait, request_id, method, params))
        else:
            self._dispatch(front, request_id, method, params)

    def _check_limits(self, request_id: Id, size: int) -> None:
        why: str | None = f"too many requests in flight ({MAX_CALLS})"
        if len(self.calls) < MAX_CALLS:
            why = None if self.budget.room >= 0 else self.budget.refusal(self.identity, COPIES * size + CALL_OVERHEAD)
        if why is not None:
            raise not_sent(f"{why}; nothing was sent; wait for some answers, then send it again", "LimitExceeded")
        self._sizes[request_id] = size

    @property
    def request_bytes(self) -> int:
        self._sizes = {each: size for each, size in self._sizes.items() if each in self.calls}
        return COPIES * sum(self._sizes.values()) + CALL_OVERHEAD * len(self.calls)

    def _open_own(self, shared: Front, method: str) -> Front | None:
        """Return the lists for a method. Start the client's own servers if needed; None until they are open."""
        if self._opened is not None:
            return None
        wanted = [each for each in self._gateway.per_session if self.only in (None, each.name)]
        if not wanted:
            self._front = self._shown(shared)
        # A client that names one of its own servers sees no other, so even `SHARED_ONLY` methods need that server.
        if not wanted or method == "initialize" or (method in SHARED_ONLY and self.only is None):
            return self._front or self._shown(shared)
        self.processes = sum(each.replicas for each in wanted if isinstance(each.transport, Stdio))
        if not self.budget.reserve(self):
            limit = f"the servers that clients have for themselves have {PROCESSES} processes"
            raise not_sent(f"{limit}; nothing was sent; end a session, then send it again", "LimitExceeded")
        self._opened = trio.Event()
        own = [in_directory(each, self._directory) for each in wanted]
        serve = partial(serve_own, self, shared, own, self._capabilities, self._use)
        self.start(partial(self.budget.run_processes, self.processes, serve))
        return None

    def _use(self, own: Front) -> None:
        assert self._opened is not None
        self._front = self._shown(own)
        self._opened.set()

    def _shown(self, front: Front) -> Front:
        return front if self.only is None else OneServer(front, self.only)

    def _open_envelope(self, method: str, params: Json, meta: Json) -> None:
        """Check the ``_meta`` of a modern request; remember an envelope with nothing to pass on."""
        if method == "initialize":
            supported = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": params.get("protocolVersion")}
            raise RequestRefused(
                UNSUPPORTED_PROTOCOL_VERSION, "this connection is of the era since 2026-07-28", supported
            )
        known = meta.get(PROTOCOL_VERSION_META_KEY) in MODERN_PROTOCOL_VERSIONS
        if not known or CLIENT_CAPABILITIES_META_KEY not in meta:  # like the SDK, but faster
            route = classify_inbound_request({"method": method, "params": params})
            if isinstance(route, InboundLadderRejection):
                raise RequestRefused(route.code, route.message, getattr(route, "data", None))
        if type(meta[CLIENT_CAPABILITIES_META_KEY]) is not dict:
            raise RequestRefused(INVALID_PARAMS, f"params._meta: {CLIENT_CAPABILITIES_META_KEY} is not an object")
        if all(key.startswith(HOP_PREFIX) for key in meta):
            self._envelope = meta

    def _initialize(self, request_id: Id, params: Json, shared: Front) -> None:
        version, capabilities = params.get("protocolVersion"), params.get("capabilities")
        if type(version) is not str or type(capabilities) is not dict:
            raise RequestRefused(INVALID_PARAMS, "initialize needs protocolVersion and capabilities")
        self._capabilities = capabilities
        self._open_own(shared, "initialize")
        agreed = version if version in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        self.answer(request_id, "initialize", {"protocolVersion": agreed, **self._introduction()})

    def _introduction(self) -> Json:
        front = self._gateway.front if self.only is None else self._front
        instructions = None if front is None else front.instructions()
        introduction = {"capabilities": CAPABILITIES, "serverInfo": self._gateway.info}
        return introduction if instructions is None else {**introduction, "instructions": instructions}

    def _dispatch(self, front: Front, request_id: Id, method: str, params: Json, *, waits: bool = True) -> None:
        """Begin a request. If the target is unknown, wait once for connecting servers."""
        take = METHODS.get(method) or (MODERN if self.modern else LEGACY_METHODS).get(method)
        if take is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"method not found: {method:.80}", method[:80])
        try:
            take(self, front, request_id, method, params)
        except (Unknown, ToolNotFound):
            if not waits or front.complete:
                raise
            after = partial(self._dispatch_after, front.wait_complete, request_id, method, params, waits=False)
            self._run(request_id, after)

    async def _dispatch_after(
        self, wait: Callable[[], Awaitable[None]], request_id: Id, method: str, params: Json, *, waits: bool = True
    ) -> None:
        await wait()
        # The client may have cancelled the request in the turn that ended `wait`, and reused its id. `wait` then
        # returned normally, and `calls` has the newer request. Without this check, and with any other await before
        # `del`, the newer request would be dropped and never answered.
        await trio.lowlevel.checkpoint_if_cancelled()
        assert self._front is not None
        del self.calls[request_id]
        self._dispatch(self._front, request_id, method, params, waits=waits)

    # --- requests that a server answers -----------------------------------------------------------------------------

    def _call_tool(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        ref, name = front.find_tool(text_in(params, "name"))
        self._pass_on(request_id, method, params, ref, ref.send_tool_call, name, params.get("arguments"))

    def _read_resource(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        uri = text_in(params, "uri")
        ref = resource_of(front, uri)
        self._pass_on(request_id, method, params, ref, ref.send_read_resource, uri)

    def _get_prompt(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        ref, name = prompt_of(front, text_in(params, "name"))
        self._pass_on(request_id, method, params, ref, ref.send_get_prompt, name, params.get("arguments"))

    def _complete(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        given, argument, context = params.get("ref"), params.get("argument"), params.get("context")
        if type(given) is not dict or type(argument) is not dict:
            raise RequestRefused(INVALID_PARAMS, "completion/complete needs ref and argument")
        known = context.get("arguments") if type(context) is dict else None
        reference: PromptReference | ResourceTemplateReference
        if given.get("type") == "ref/prompt":
            ref, name = prompt_of(front, text_in(given, "name"))
            reference = PromptReference(name=name)
        else:
            reference = ResourceTemplateReference(uri=text_in(given, "uri"))
            found = front.find_template(reference.uri)
            if found is None:
                raise Unknown(INVALID_PARAMS, f"no server lists the template {reference.uri!r:.200}")
            ref = found
        self._pass_on(request_id, method, params, ref, ref.send_complete, reference, argument, known)

    def _pass_on(
        self, request_id: Id, method: str, params: Json, ref: ServerRef, prepare: Prepare, *given: Any
    ) -> None:
        """Pass on a request, except for hop-by-hop members: id, progress token, and ``_meta`` keys of `HOP_PREFIX`."""
        meta = params.get("_meta")
        options: Json = {}
        if meta and type(meta) is dict and meta != self._envelope:
            token = meta.get("progressToken")
            own = {key: each for key, each in meta.items() if not key.startswith(HOP_PREFIX) and key != "progressToken"}
            if own:
                options["meta"] = own
            if isinstance(token, (str, int)):
                options["progress"] = partial(self._report, request_id, token)
        responses, state, answerable = params.get("inputResponses"), params.get("requestState"), None
        if self._capabilities:
            answerable = {name: each for name, each in self._capabilities.items() if name in QUESTION_CAPABILITIES}
        passing: Passing | None = UNANSWERED
        if method == "completion/complete":
            passing = None
            if responses is not None or state is not None:
                raise RequestRefused(
                    INVALID_PARAMS, "a completion asks nothing; remove inputResponses and requestState"
                )
        elif responses is not None or state is not None or answerable:
            passing = given_passing(ref.name, method, responses, state, answerable or None)
        prepare = partial(prepare, *given, **options)
        self.calls[request_id] = call = RelayedRequest(self, request_id, method, ref, prepare, passing)
        call.level = meta.get("io.modelcontextprotocol/logLevel") if type(meta) is dict else None
        call.begin()

    async def _report(
        self, request_id: Id, token: Id, progress: float, total: float | None, message: str | None
    ) -> None:
        params = {"progressToken": token, "progress": progress, "total": total, "message": message}
        known = {name: value for name, value in params.items() if value is not None}
        self.notify("notifications/progress", known, request_id)

    # --- requests that this gateway answers -------------------------------------------------------------------------

    def _run(self, request_id: Id, fn: Callable[[], Any]) -> None:
        scope = self.calls[request_id] = trio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    await fn()
                except Exception as exc:
                    if not isinstance(exc, (RequestRefused, McpActorsError, MCPError)):
                        logger.exception("a request of a client failed")
                    if not scope.cancel_called:
                        self.fail(request_id, exc)
            if self.calls.get(request_id) is scope:
                del self.calls[request_id]

        self.start(run)

    def _list(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        if params.get("cursor") is not None:
            raise RequestRefused(INVALID_PARAMS, "the list is one page, so there is no cursor")
        self._run(request_id, partial(self._answer_list, front, request_id, method))

    async def _answer_list(self, front: Front, request_id: Id, method: str) -> None:
        kind, name = LISTING_METHODS[method]
        await front.wait_listed(kind)
        await trio.lowlevel.checkpoint_if_cancelled()
        if (lasting := front.lasting(method)) is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"method not found: {method}", method)
        self.answer(request_id, method, {name: getattr(front, kind)(), "ttlMs": lasting})

    def _discover(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        discovered = {"supportedVersions": list(MODERN_PROTOCOL_VERSIONS), **self._introduction()}
        del discovered["serverInfo"]  # the answer has it in its `_meta`
        self.answer(request_id, method, discovered)

    def _set_level(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        self.news.set_level(params.get("level"), front.servers(), self._gateway.lowest_level)
        self.answer(request_id, method, {})

    def _subscribe(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        uri = text_in(params, "uri")
        self._run(request_id, partial(self._answer_subscribed, resource_of(front, uri), request_id, method, uri))

    async def _answer_subscribed(self, ref: ServerRef, request_id: Id, method: str, uri: str) -> None:
        await self.news.subscribe(ref, uri)
        self.answer(request_id, method, {})

    def _unsubscribe(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        self.news.unsubscribe(text_in(params, "uri"))
        self.answer(request_id, method, {})

    def _listen(self, front: Front, request_id: Id, method: str, params: Json) -> None:
        wishes = params.get("notifications")
        if type(wishes) is not dict:
            raise RequestRefused(INVALID_PARAMS, "subscriptions/listen needs notifications")
        self._run(request_id, partial(self.news.stream, self.news.servers_of(front, wishes), request_id, wishes))

    # --- messages to the client -------------------------------------------------------------------------------------

    def answer(self, request_id: Id, method: str, result: Json) -> None:
        try:
            text = self._written(method, result)
        except Exception as exc:
            logger.exception("the result of a request cannot be written: %s", method)
            self.fail(request_id, Unwritable(method, exc))
            return
        if len(text) > 64 * 1024 and not self.budget.passes(len(text)):  # a large result needs room to wait
            self.fail(request_id, too_large(method, len(text), WAITING))
            return
        self.outlet.answer(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (json_id(request_id), text), request_id, 0)

    def _written(self, method: str, result: Json) -> bytes:
        """Return a result in JSON, with the hop-by-hop members of the era: result type, cache times, server info."""
        if self.modern:
            result.setdefault("resultType", "complete")
            result["_meta"] = {**(result.get("_meta") or {}), "io.modelcontextprotocol/serverInfo": self._gateway.info}
            if method in CACHEABLE and result["resultType"] == "complete":
                result.setdefault("ttlMs", 0)
                result["cacheScope"] = "private"
        else:
            for member in ("resultType", "ttlMs", "cacheScope"):  # unknown to legacy clients
                result.pop(member, None)
        # One bad description must not hide the lists of all other servers, so `written` may replace lone surrogates.
        return written(result) if method in LISTING_METHODS else to_json(result, inf_nan_mode="null")

    def fail(self, request_id: Id, exc: Exception, *, begun: bool = False) -> None:
        self._answer_error(request_id, error_of(exc, begun=begun))

    def refuse_duplicate(self, request_id: Id) -> None:
        """Refuse a request with an id in flight, without the id: only the first request may be answered."""
        message = f"a request with the id {request_id!r:.80} is in flight already"
        self._answer_error(None, {"code": INVALID_REQUEST, "message": message})

    def refuse_late(self, request_id: Id) -> None:
        """Refuse a request that the client may have given up while the event loop did not run."""
        late = "the gateway did not run for a while, and this request may be given up; nothing was sent; send it again"
        self.fail(request_id, not_sent(late, "ServerUnavailable"))

    def _answer_error(self, request_id: Id | None, error: Json) -> None:
        self.outlet.answer(error_line(request_id, error), request_id, error["code"])

    def notify(self, method: str, params: Json | None = None, about: Id | None = None) -> None:
        self._tell({"method": method} if params is None else {"method": method, "params": params}, about)

    def _tell(self, members: Json, about: Id | None) -> None:
        self.outlet.tell(written({"jsonrpc": "2.0", **members}) + b"\n", about)

    def note_changed(self, kind: Changed) -> None:
        if kind == "servers":
            with suppress(ServerUnavailable):  # the server named by the client was removed
                servers = () if self._front is None else self._front.servers()
                self.news.renew_level(servers, self._gateway.lowest_level)
            return
        front = self._front or self._gateway.front
        if front is not None and front.has_changed(kind):
            self.news.note_changed(kind)

    def pass_log(self, context: CallbackContext, params: LoggingMessageNotificationParams, make: Any = None) -> None:
        """Pass on a log message if the client wants the level; `make` returns the line."""
        if self.only in (None, context.server) and self.news.wants_log(params.level):
            make = make or partial(log_line, context, params)
            self.outlet.tell(make(), self.newest_call(context.server))

    def newest_call(self, server: str) -> Id | None:
        """Return the request to which a message of a server most likely belongs."""
        newest = None
        for each, call in reversed(self.calls.items()):
            if isinstance(call, RelayedRequest):
                if call.ref.name == server:
                    return each
                newest = each if newest is None else newest
        return newest

    async def ask(self, method: str, params: Json, about: Id | None = None, server: str = "") -> Json:
        """Ask the client a question of a server, perhaps about a request, and return the answer.

        **Cancellation**: withdraws the question.

        Raises:
            MCPError: the client refused, or does not answer such questions.
        """
        if CLIENT_QUESTIONS.get(method) not in self._capabilities:
            raise MCPError(METHOD_NOT_FOUND, f"this client does not answer {method}")
        self._questions += 1
        request_id = f"mcp-actors:{self._questions}"
        self._asked[request_id], answers = trio.open_memory_channel[Json](1)
        about = self.newest_call(server) if about is None else about
        self._tell({"id": request_id, "method": method, "params": params}, about)
        try:
            return result_in(await answers.receive())
        except trio.Cancelled:
            self.notify("notifications/cancelled", {"requestId": request_id}, about)
            raise
        finally:
            self._asked.pop(request_id, None)

    # --- the end ----------------------------------------------------------------------------------------------------

    def cancel(self, request_id: Id) -> None:
        """Withdraw a request. No answer follows."""
        call = self.calls.pop(request_id, None)
        if isinstance(call, RelayedRequest):
            call.withdraw()
        elif call is not None:
            call.cancel("the client has cancelled the request")

    def is_too_late(self, message: Json, seconds: float) -> bool:
        """Return True if the client has given up a request: `seconds` reach the ``request_timeout``."""
        timeout: float | None = 60.0  # without a tool: the default of `ServerConfig`
        front, params = self._front or self._gateway.front, message.get("params")
        if message["method"] == "tools/call" and front is not None and type(params) is dict:
            with suppress(ToolNotFound, ServerUnavailable):
                timeout = front.find_tool(str(params.get("name")))[0].config.request_timeout
        return timeout is not None and seconds >= timeout

    def note_stream(self) -> None:
        """Note a new stream; end it if the gateway stops."""
        if self._gateway.stopping.is_set():
            self.end_streams()

    def end_streams(self) -> None:
        for request_id in self.news.streams():
            self.end_stream(request_id)

    def end_stream(self, request_id: Id) -> None:
        """End a stream of notifications, perhaps before its beginning. Do nothing if already ended."""
        if request_id in self.calls:
            self.cancel(request_id)
            self.answer(request_id, "subscriptions/listen", {"_meta": {SUBSCRIPTION: request_id}})

    def close(self) -> None:
        self.budget.release(self)
        self.news.close()
        for request_id in tuple(self.calls):
            self.cancel(request_id)


Take: TypeAlias = "Callable[[GatewaySession, Front, Id, str, Json], None]"
"""Answers a request, passes it on, starts a task, or raises."""

METHODS: Final[Mapping[str, Take]] = {
    "tools/call": GatewaySession._call_tool,
    "resources/read": GatewaySession._read_resource,
    "prompts/get": GatewaySession._get_prompt,
    "completion/complete": GatewaySession._complete,
    **dict.fromkeys(LISTING_METHODS, GatewaySession._list),
}

MODERN: Final[Mapping[str, Take]] = {
    "server/discover": GatewaySession._discover,
    "subscriptions/listen": GatewaySession._listen,
}
"""Since 2026-07-28 only."""

LEGACY_METHODS: Final[Mapping[str, Take]] = {
    "logging/setLevel": GatewaySession._set_level,
    "resources/subscribe": GatewaySession._subscribe,
    "resources/unsubscribe": GatewaySession._unsubscribe,
}
"""Before 2026-07-28 only."""
