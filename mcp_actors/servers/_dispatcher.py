"""Carry messages between a session and its link.

The SDK's `ClientSession` takes a `LinkDispatcher` as ``dispatcher``. Each notification is passed on in the step of its
arrival, before the answer that follows. User code runs in other tasks, and cannot hold up the reader.

Owns: progress reports; tasks of the server's questions; tasks of progress callbacks.
Writes: messages to the server; the link's request table; deadlines of requests; replies to callers; OpenTelemetry
spans; the log.
Calls: transports, _eras.
"""

from __future__ import annotations

import math
from collections import deque
from contextvars import ContextVar, copy_context
from functools import partial
from logging import DEBUG
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import trio
from attrs import define, field
from mcp import MCPError
from mcp.shared.dispatcher import Dispatcher, run_notify_intercept
from mcp.shared.transport_context import TransportContext
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    methods,
)
from mcp.types.version import LATEST_HANDSHAKE_VERSION
from opentelemetry import context, propagate, trace
from pydantic_core import ValidationError, to_json, to_jsonable_python

from .._errors import ServerError
from .._foreign import Log, answer_of
from .._misuse import takes
from .._tasks import open_background
from .._text import plain_text
from ..transports import CLOSED, PROGRESS, ConnectionOver, RequestUnderWay, comparable_id
from ._eras import (
    check_request,
    first_problem,
    fits,
    has_many,
    is_modern,
    parse_result,
    without_later_fields,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextvars import Context as Variables

    from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest

    from .._tasks import Background
    from ..config import ProgressCallback
    from ..kernel import Later
    from ..transports import Json, Link, Unasked
    from ._deadlines import Deadline

    Describe: TypeAlias = Callable[[Deadline], Mapping[str, str | int | float]]


logger = Log("mcp_actors.servers")


MISFIT: Final = {"_meta": 0}
"""Replaces large invalid params: no message may have this, so the SDK finds just one error."""

TRAFFIC: Final = "mcp_actors.traffic"
"""The parent logger of all messages; each server has a child logger."""

MAX_TRAFFIC: Final = 4000
"""Characters of a logged message."""

FROM_CLIENT: Final = TransportContext(kind="client", can_send_request=False)


@define(eq=False)
class IncomingMessage:
    """The `DispatchContext` of a server's message. Nothing may be sent on its behalf."""

    request_id: RequestId | None = None
    transport: TransportContext = FROM_CLIENT
    can_send_request: bool = False
    message_metadata: None = None
    cancel_requested: anyio.Event = field(factory=anyio.Event)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Refuse."""
        raise NotImplementedError

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Refuse."""
        raise NotImplementedError

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Do nothing: servers do not ask for the progress of their questions."""


NOTIFICATION: Final = IncomingMessage()


@define(eq=False)
class ServerQuestion:
    """A question of the server. `CURRENT_QUESTION` takes it past the SDK's session to the callback.

    Attributes:
        attempt: the attempt behind the question; None if unknown.
        failure: the error for the attempt's caller, if the question has no answer.
    """

    attempt: Deadline | None = None
    failure: Exception | None = field(default=None, init=False)


CURRENT_QUESTION: Final[ContextVar[ServerQuestion]] = ContextVar("question", default=ServerQuestion())  # noqa: B039 - unchanged
"""The question that the running task answers."""


class CarriedFailure(MCPError):
    """Carries the failure of a request through the SDK's session, which only knows MCPError."""

    def __init__(self, failure: Exception, error: ErrorData) -> None:
        super().__init__(error.code, error.message, error.data)
        self.failure: Exception = failure


def carried(exc: Exception) -> Exception:
    """Return the failure that an exception carries; any other exception as is."""
    return next((each.failure for each in (exc, exc.__cause__) if isinstance(each, CarriedFailure)), exc)


class LinkDispatcher(Dispatcher[TransportContext]):
    """The requests and messages of one connection.

    All requests of a `ConnectionSession` go through `exchange`, and wait in the table of the link. Over a pipe and SSE,
    the reading task settles a request in the step in which the answer arrives; streamable HTTP and modern in-process
    servers answer the caller's task directly. Plain requests over a pipe bypass the session and use only `Reports` and
    `RequestSpan`.

    Args:
        describe: returns additional attributes for the span of a request.
        join_handler: makes the running task part of its request, for the kernel.

    Attributes:
        claimed: the types of results that extensions read. The session writes this, `refusals` and `version`.
        refusals: the methods of a server's requests without a callback, each with the SDK's refusal.
        version: the protocol version by which messages of the server are read.
        traffic: the logger of all messages, or None. With a logger, each request has a task: the path without a task
            does not log.
    """

    def __init__(self, link: Link, server: str, describe: Describe, join_handler: Callable[[], object]) -> None:
        self.link = link
        self.server = server
        self.claimed: frozenset[str] = frozenset()
        self.refusals: Mapping[str, str] = {}
        self._describe = describe
        self._join_handler = join_handler
        self.version: str = LATEST_HANDSHAKE_VERSION
        self._closed = False
        traffic = Log(f"{TRAFFIC}.{server}")
        self.traffic: Log | None = traffic if traffic.is_enabled_for(DEBUG) else None
        if self.traffic is not None:
            link.table.logged = True
        self._tasks: Background | None = None
        self._questions: dict[RequestId, trio.CancelScope] = {}
        self._on_request: OnRequest
        self._on_notify: OnNotify
        self._intercept: OnNotifyIntercept | None

    # --- outgoing ---------------------------------------------------------------------------------------------------

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Send a request of the SDK's session, and return the result.

        Raises:
            mcp.MCPError: the answer is an error, the request timed out, or the connection has ended.
            CarriedFailure: any other failure.
        """
        options = opts or {}
        cancellable = options.get("cancel_on_abandon", True)
        request = RequestUnderWay(method, dict(params or {}), None, options.get("headers"), cancellable=cancellable)
        if (on_progress := options.get("on_progress")) is not None:
            request.report = reports = Reports(self.server, on_progress, None)
            reports.starts(self.start_soon, copy_context())
        with trio.move_on_after(options.get("timeout", math.inf)):
            try:
                result = await self.exchange(request, options.get("request_id"))
            except (ServerError, ConnectionOver) as failure:
                raise CarriedFailure(failure, ErrorData(code=INTERNAL_ERROR, message=str(failure))) from failure
            self._check(method, result)
            return result
        raise MCPError(REQUEST_TIMEOUT, f"Request {method!r} timed out")

    async def exchange(self, request: RequestUnderWay, request_id: RequestId | None = None) -> Json:
        """Send a request, and return the result. Without a `request_id`, assign a new id.

        **Cancellation**: the server is asked to cancel a sent request.

        Raises:
            mcp.MCPError, ServerError, ConnectionOver: as for `Link.exchange`.
            ValueError: a waiting request has the same id.
        """
        if self._closed:
            raise MCPError(CONNECTION_CLOSED, CLOSED.message)
        table = self.link.table
        table.add(request, request_id)
        if request.attempt is not None:
            request.attempt.request_id = request.id
        try:
            self._log_traffic("out", request.method, request.id, request.params)
            result = await self._exchange(request)
            self._log_traffic("in", request.method, request.id, result)
            return result
        except MCPError as exc:
            self._log_traffic("in", request.method, request.id, exc.error)
            raise
        finally:
            table.remove(request.id)

    async def _exchange(self, request: RequestUnderWay) -> Json:
        link, receive = self.link, partial(self.receive, attempt=request.attempt)
        if request.report is not None:
            request.params["_meta"] = {**(request.params.get("_meta") or {}), "progressToken": request.id}
        if not link.traced or not is_traced():
            return await link.exchange(request, receive)
        span = RequestSpan(request, request.params.get("name"), self._describe)
        try:
            span.inject(meta := dict(request.params.get("_meta") or {}))
            if meta:
                request.params["_meta"] = meta
            result = await link.exchange(request, receive)
        except BaseException as exc:
            span.end(link.masker.clean(exc) if isinstance(exc, Exception) else exc)
            raise
        span.end()
        return result

    def _log_traffic(self, direction: str, method: str, request_id: RequestId | None, content: object) -> None:
        if self.traffic is None:
            return
        plain = to_jsonable_python(content, fallback=repr, inf_nan_mode="strings")
        masked = self.link.masker.data(plain)  # JSON may escape parts of a credential
        text = to_json(masked).decode()[: 2 * MAX_TRAFFIC]
        text = plain_text(self.link.masker(text), limit=MAX_TRAFFIC)
        facts = {"server": self.server, "direction": direction, "method": method, "request_id": request_id}
        extra = {f"mcp_{name}": fact for name, fact in facts.items()}
        self.traffic.debug("server %r: %s %s %s: %s", self.server, direction, method, request_id, text, extra=extra)

    def _check(self, method: str, result: Json) -> None:
        """Refuse a large invalid result by its first errors, before the SDK builds and prints all."""
        version = self.version
        if is_modern(version):
            result.setdefault("resultType", "complete")  # the specification's default, unknown to the SDK
        if (method, version) in methods.SERVER_RESULTS and has_many(result):
            bare = dict(result)
            without_later_fields(method, version, bare)
            kind = result.get("resultType")  # of any type
            parse_result(method, version, bare, claimed=isinstance(kind, str) and kind in self.claimed)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification; drop it if the connection has ended."""
        if self._closed:
            return
        self._log_traffic("out", method, None, params)
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        try:
            await self.link.send(JSONRPCNotification(**message), (opts or {}).get("headers"))
        except MCPError:
            logger.debug("server %r: dropped %s: the connection has ended", self.server, method)

    # --- incoming ---------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read the server's messages until the connection ends; then fail all waiting requests.

        A task of the SDK's session runs this.

        **Cancellation**: cancels the tasks that answer the server.
        """
        # KI protection: a Ctrl-C in the middle of a message would lose the message. The main task gets the Ctrl-C.
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        try:
            async with open_background() as self._tasks:
                task_status.started()
                await self.link.read(self.receive)
                self._close()  # before cancelling tasks, which may take a while: callers must not wait for them
        except trio.Cancelled as exc:
            exc.with_traceback(None)
            raise
        finally:
            self._close()
            # The SDK's task group keeps the cancellation and this object as cyclic garbage. Release everything else.
            self._tasks = None
            del self._on_request, self._on_notify, self._intercept, self.link, self._describe, self._join_handler

    def start_soon(self, fn: Callable[[], Awaitable[None]], *, name: str) -> trio.CancelScope | None:
        """Start a task for a request, in the caller's context variables, cancelled with the connection.

        Return the scope of the task; None if the connection has ended.
        """

        async def run() -> None:
            # The kernel finds the request behind a call by the task of its handler, and this task is new. Without
            # joining, a call from here with max_in_flight=1 would wait for its own request: a deadlock.
            self._join_handler()
            await fn()

        return None if self._tasks is None else self._tasks.start_soon(run, name=name)

    def _close(self) -> None:
        self._closed, self.traffic = True, None
        self.link.lifeline.close()
        self.link.table.close()

    async def receive(self, message: Unasked, attempt: Deadline | None = None) -> None:
        """Handle a message that is not an answer, from the exchange of an `attempt` if known.

        Has no checkpoint and never raises.
        """
        if self._closed:
            return
        self._log_traffic("in", message.method, getattr(message, "id", None), message.params)
        if isinstance(message, JSONRPCRequest):
            if self._tasks is not None:
                key = comparable_id(message.id)
                assert key is not None  # ids are integers or strings
                # A server that uses an id twice can withdraw the later request only.
                scope = self._questions[key] = trio.CancelScope()
                answer = partial(self._answer, message, key, scope, ServerQuestion(attempt))
                self._tasks.start_soon(answer, name=f"{self.server}:{message.method:.40}")
            return
        method, params = message.method, message.params
        if method == PROGRESS and self.link.table.report(params):
            return  # the SDK would validate the report twice more, for no listener
        if method == "notifications/cancelled":
            self._withdraw((params or {}).get("requestId"))
        if method == "notifications/message" and params and "data" not in params and "message" in params:
            params = {**params, "data": params["message"]}  # some servers use this name
        if not fits(method, self.version, params):
            params = MISFIT
        elif run_notify_intercept(self._intercept, method, params):
            return
        try:
            await self._on_notify(NOTIFICATION, method, params)
        except Exception:
            logger.exception("server %r: handling its %s failed", self.server, method)

    def _withdraw(self, request_id: object) -> None:
        known = comparable_id(request_id)
        if known is not None and (scope := self._questions.get(known)) is not None:
            scope.cancel("the server has withdrawn its request")

    async def _answer(
        self, message: JSONRPCRequest, key: RequestId, scope: trio.CancelScope, question: ServerQuestion
    ) -> None:
        """Answer a request of the server, unless withdrawn, perhaps before this task begins."""
        CURRENT_QUESTION.set(question)
        with scope:
            try:
                await trio.lowlevel.checkpoint_if_cancelled()  # a withdrawn request begins no callback
                answer = await self._answer_to(message)
            finally:
                if self._questions.get(key) is scope:
                    del self._questions[key]
            self._log_traffic("out", message.method, message.id, answer)
            try:
                await self.link.send(answer)
            except MCPError:
                logger.debug("server %r: dropped an answer: the connection has ended", self.server)

    async def _answer_to(self, message: JSONRPCRequest) -> JSONRPCResponse | JSONRPCError:
        try:
            if message.method in self.refusals and has_many(message.params):
                raise MCPError(INVALID_REQUEST, self.refusals[message.method])  # before reading the params
            check_request(message.method, self.version, message.params)
            result = await self._on_request(IncomingMessage(message.id), message.method, message.params)
        except MCPError as exc:
            error = exc.error
        except ValidationError as exc:
            problem = f"Invalid request parameters: {first_problem(exc, self.link.masker)}"
            words = f"the client has refused {message.method}: {problem}; report that to the operator of the server"
            error = ErrorData(code=INVALID_PARAMS, message=words, data="")
        except Exception:
            logger.exception("server %r: answering its %s failed", self.server, message.method)
            error = ErrorData(code=INTERNAL_ERROR, message="Internal error")
        else:
            return JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result)
        return JSONRPCError(jsonrpc="2.0", id=message.id, error=error)


# --- Deliver the progress reports of one request to its caller --------------------------------------------------------


MAX_WAITING: Final = 1000
"""Reports that may wait for a slow callback. Beyond, the oldest is dropped: the latest matter most."""

MAX_PROGRESS_CHARACTERS: Final = 1024 * 1024
"""Characters of waiting messages."""

LAST_REPORTS: Final = 1.0
"""Seconds for which an answer waits until the callback has handled earlier reports."""


class Reports:
    """Takes the progress reports of one request, in the step of reading.

    While reports wait, a task of the session runs the callback: requests without reports need no task, and a slow
    callback delays only itself. The callback is cancelled `LAST_REPORTS` seconds after the answer, or when the request
    would time out.

    Args:
        server: the server's name.
        callback: the caller's callback. Its exceptions are logged and ignored. None only renews the deadline.
        deadline: renewed by each report; None if the request has none.
    """

    def __init__(self, server: str, callback: ProgressCallback | None, deadline: Deadline | None) -> None:
        self._server = server
        self._callback = callback
        self._deadline = deadline
        self._start: Callable[..., trio.CancelScope | None] | None = None
        self._waiting: deque[tuple[float, float | None, str | None]] = deque()
        self._characters = 0
        self._scope: trio.CancelScope | None = None  # of the task, while it runs
        self._idle: Callable[[], object] | None = None

    def starts(self, start: Callable[..., trio.CancelScope | None], context: Variables) -> None:
        """Set the function that starts a named task in a scope, and the caller's context variables."""
        self._start = partial(context.run, start)

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        if self._deadline is not None:
            self._deadline.renew()
        if self._callback is None or self._idle is not None or len(message or "") > MAX_PROGRESS_CHARACTERS:
            return
        self._waiting.append((progress, total, message))
        self._characters += len(message or "")
        while len(self._waiting) > MAX_WAITING or self._characters > MAX_PROGRESS_CHARACTERS:
            self._take()
        if self._scope is None and self._start is not None:
            self._scope = self._start(self._deliver, name=f"{self._server}:progress")

    def _take(self) -> tuple[float, float | None, str | None]:
        report = self._waiting.popleft()
        self._characters -= len(report[2] or "")
        return report

    async def _deliver(self) -> None:
        try:
            while self._waiting:
                await self._call(*self._take())
        finally:
            self._scope = None
            if (idle := self._idle) is not None:
                idle()

    @trio.lowlevel.disable_ki_protection  # a callback may compute for long, and Ctrl-C must reach it
    async def _call(self, progress: float, total: float | None, message: str | None) -> None:
        assert self._callback is not None
        try:
            await answer_of(self._callback(progress, total, message))
        except Exception:
            taken = "" if takes(self._callback, 3) else "; write it as (progress, total, message)"
            logger.exception("server %r: a progress callback raised; the request continues%s", self._server, taken)

    def answered(self, later: Later[Any], value: Any, waiting: dict[Reports, None]) -> None:
        """Settle a message once the callback has seen every report, or after `LAST_REPORTS` seconds.

        The server has answered, so a slow callback must not make the request time out. The end of the connection
        settles the reports in `waiting`.
        """

        def settle() -> None:
            waiting.pop(self, None)
            later.on_cancel = None  # else cyclic garbage
            later.reply(value)

        if self._deadline is not None:
            self._deadline.suspend()
        if self.seen:
            settle()
            return
        # From here, four events may settle the message: the callback catches up (`_deliver`), the caller leaves, the
        # connection ends (`waiting`), or time is over (`hurry`). `settle` may run twice; only the first reply counts.
        # There is no checkpoint since `seen`, so no event is missed. Time without progress is suspended above; if
        # ``request_timeout`` expires, `Deadlines.expire` prefers the answer, except to middleware.
        self._idle, waiting[self] = settle, None
        later.on_cancel = lambda _: self.hurry()  # the caller has left
        if self._deadline is not None:
            # A deadline of the callback's scope is not enough: a callback in a thread, for one, cannot be cancelled.
            self._deadline.call_later(LAST_REPORTS, self.hurry)

    @property
    def seen(self) -> bool:
        """True once the callback has seen every report."""
        return self._scope is None

    def hurry(self) -> None:
        """Settle the message now, and cancel the callback."""
        if (idle := self._idle) is not None:
            self.cancel()
            idle()

    def cancel(self) -> None:
        """Drop waiting reports, and cancel the callback: the caller has the result, or has left."""
        self._waiting.clear()
        if self._scope is not None:
            self._scope.cancel("its request has ended")


# --- OpenTelemetry spans of requests, as the SDK writes them ----------------------------------------------------------

# A span is a child of the caller's span, with a name such as ``MCP send tools/call search``. The server learns the
# trace from ``_meta`` (SEP-414). With neither a tracer provider nor a caller's span, tracing is skipped: it takes a
# third of a small call.


_TRACER: Final = trace.get_tracer("mcp-python-sdk")
"""Has the SDK's name, so that a search for spans of MCP clients finds these, too."""


def is_traced() -> bool:
    """Return True if a span would be recorded, or the caller's span passed on."""
    # Creating a tracer would answer the same, but takes a fiftieth of a call. Should this private name go, requests
    # have unrecorded spans, and all else works.
    if getattr(trace, "_TRACER_PROVIDER", trace) is not None:
        return True
    # The context is nearly always empty. Checking that first takes a third of the time.
    return bool(context.get_current()) and trace.get_current_span().get_span_context().is_valid


class RequestSpan:
    """The span of one request, from sending to the answer; without a provider, the caller's span."""

    __slots__ = ("_span",)

    def __init__(self, request: RequestUnderWay, name: object, describe: Describe) -> None:
        self._span: trace.Span = trace.INVALID_SPAN
        if getattr(trace, "_TRACER_PROVIDER", trace) is not None:
            method, facts = request.method, {} if request.attempt is None else describe(request.attempt)
            self._span = _TRACER.start_span(
                f"MCP send {method} {name}" if isinstance(name, str) else f"MCP send {method}",
                kind=trace.SpanKind.CLIENT,
                attributes={"mcp.method.name": method, "jsonrpc.request.id": str(request.id), **facts},
            )

    def inject(self, meta: Json) -> None:
        inherits = self._span is trace.INVALID_SPAN
        propagate.inject(meta, context.get_current() if inherits else trace.set_span_in_context(self._span))

    def end(self, failure: BaseException | None = None) -> None:
        if isinstance(failure, MCPError) and failure.error is not CLOSED:
            code = str(failure.code)
            self._span.set_attributes({"error.type": code, "rpc.response.status_code": code})
            self._span.set_status(trace.StatusCode.ERROR, failure.message)
        elif isinstance(failure, Exception):
            self._span.record_exception(failure)
            self._span.set_status(trace.StatusCode.ERROR, f"{type(failure).__name__}: {failure}")
        self._span.end()
