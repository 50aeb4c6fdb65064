"""Forward a client's request to a server, or refuse the request.

A plain call, which waits for nothing but a small answer, starts no task. The task that reads the client's message sends
the request. The task that reads the server's message writes the answer.

Owns: requests of clients; tasks of requests.
Writes: answers to clients; questions to clients; requests to server actors; the log.
Calls: servers, servers.requests, transports, _front.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeGuard

import trio
from attrs import frozen
from mcp import MCPError
from mcp.client import InputRequiredRoundsExceededError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, InputRequiredResult
from pydantic_core import PydanticSerializationError, from_json, to_json

from .._errors import InvalidArguments, McpActorsError, NotSupported, ServerError, ToolNotFound
from .._foreign import Log, words_of
from ..servers._failures import too_many_rounds
from ..servers._session import MAX_ROUNDS, Rounds
from ..servers.requests import given_passing
from ..transports import OUTCOME_MEMBER, Excerpt
from ._front import json_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import LoggingMessageNotificationParams

    from ..config import CallbackContext
    from ..servers import PendingRequest, ServerRef
    from ..servers.requests import Passing
    from ._front import Changed, Front

Json: TypeAlias = dict[str, Any]
Id: TypeAlias = str | int

Prepare: TypeAlias = "Callable[..., PendingRequest[Any]]"

logger = Log("mcp_actors.gateway")

HOP_PREFIX: Final = "io.modelcontextprotocol/"
"""The prefix of keys of ``_meta`` that belong to one hop."""

CLIENT_QUESTIONS: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Question of a server → the capability of a client that answers."""

QUESTION_CAPABILITIES: Final = frozenset(CLIENT_QUESTIONS.values())
"""Capabilities that servers use during a request. A `NotSupported` for any other is raised before sending."""

SERVER_ERROR: Final = -32000

INVALID_ANSWER: Final = "the client's answer is not valid"

MAX_ERROR_TEXT: Final = 1024 * 1024
"""Characters of an exception's text for a client. Errors of this package are shorter."""

LARGE_TEXT: Final = 256 * 1024
"""Characters of a text or blob. A task writes larger results, after other tasks had a turn."""


@frozen
class Malformed:
    """Replaces an invalid message: the id if found, and the error to answer with."""

    id: Id | None
    code: int
    message: str


def parsed(text: bytes) -> Any:
    """Return the message in a text. An answer in invalid JSON becomes an answer with an error, all else `Malformed`."""
    try:
        return from_json(text)
    except ValueError as exc:
        excerpt, problem = Excerpt(text), f"the message cannot be parsed: {exc}"
        if excerpt.request_id is not None:
            return {"jsonrpc": "2.0", "id": excerpt.id, "error": {"code": PARSE_ERROR, "message": problem}}
        return Malformed(excerpt.id if is_id(excerpt.id) else None, PARSE_ERROR, problem)


def is_id(value: object) -> TypeGuard[Id]:
    """Return True for a valid id. A bool is an `int` in Python, but not an id."""
    return type(value) is str or type(value) is int


def is_answer(message: Any) -> bool:
    """Return True for an answer, valid or not. Answers are never answered."""
    return type(message) is dict and "method" not in message and ("result" in message or "error" in message)


def malformed(message: Any) -> Malformed | None:
    """Return why to refuse a request or notification; None if valid."""
    if type(message) is not dict:
        problem = "the message is not a JSON object; batches are not supported"
        return message if type(message) is Malformed else Malformed(None, INVALID_REQUEST, problem)
    request_id, params = message.get("id"), message.get("params")
    code = INVALID_REQUEST
    if message.get("jsonrpc") != "2.0":
        problem = 'the member jsonrpc is not "2.0"'
    elif "id" in message and not is_id(request_id):
        problem = "the id of a request is a string or a whole number"
    elif type(message.get("method")) is not str:
        problem = "the method is not a string"
    elif "id" in message and params is not None and type(params) is not dict:
        code, problem = INVALID_PARAMS, "params is not an object"
    else:
        return None
    return Malformed(request_id if is_id(request_id) else None, code, problem)


class RequestRefused(Exception):
    """The gateway answers a request with an error, before sending anything."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Unknown(RequestRefused):
    """No server lists the requested prompt or resource."""


class Unwritable(RequestRefused):
    """The server has carried out the request, but the result cannot be written."""

    def __init__(self, method: str, exc: Exception) -> None:
        problem = f"{method}: the result cannot be passed on: {words_of(exc)}; the request may have taken effect"
        super().__init__(**our_error(SERVER_ERROR, f"{problem}; fix the server", "unknown", type(exc).__name__))


def full_line(request_id: object) -> bytes:
    """Return the answer to a request skipped on arrival, for lack of room."""
    problem = "the requests of all clients take too much memory; nothing was sent; send it again later"
    return error_line(request_id if is_id(request_id) else None, not_sent(problem, "LimitExceeded").error)


def too_large(method: str, size: int, limit: int) -> RequestRefused:
    """Return the error for a result without room to wait for its client."""
    problem = f"{method}: the result has {size} bytes, and {limit} bytes may wait for all clients until they are read"
    remedy = "request less data, or lower max_line_bytes or max_body_bytes of the server"
    message = f"{problem}; the request may have taken effect; {remedy}"
    return RequestRefused(**our_error(SERVER_ERROR, message, "unknown", "LimitExceeded"))


def error_of(exc: Exception, *, begun: bool = False) -> Json:
    """Return the error to answer with for an exception.

    Errors of this package report the outcome of the request in ``data``. Errors of servers lose this member, or the
    client would repeat a request already carried out.

    Args:
        exc: the exception.
        begun: an earlier round of the request was carried out.
    """
    if isinstance(exc, RequestRefused):
        return exc.error
    if isinstance(exc, MCPError):
        error: Json = {"code": exc.code, "message": exc.message}
        if exc.data is not None:
            error["data"] = exc.data
            if isinstance(exc.data, dict) and OUTCOME_MEMBER in exc.data:
                error["data"] = {key: value for key, value in exc.data.items() if key != OUTCOME_MEMBER}
        return error
    message, error_name = words_of(exc, limit=MAX_ERROR_TEXT), type(exc).__name__
    if not isinstance(exc, McpActorsError):  # attributes of foreign exceptions mean something else
        return our_error(SERVER_ERROR, message, "unknown", error_name)
    invalid = isinstance(exc, (ToolNotFound, InvalidArguments))
    refused = invalid or (isinstance(exc, NotSupported) and exc.capability not in QUESTION_CAPABILITIES)
    outcome = getattr(exc, "outcome", "not_sent" if refused else "unknown")
    if begun and outcome == "not_sent":
        outcome, message = "unknown", f"{message}; an earlier round of it was sent and may have taken effect"
    # A group on the other side makes the same error from these attributes.
    further = ("state", "retry_at", "seconds", "limit")
    facts = {name: value for name in further if (value := getattr(exc, name, None)) is not None}
    return our_error(INVALID_PARAMS if invalid else SERVER_ERROR, message, outcome, error_name, **facts)


def our_error(code: int, message: str, outcome: str, error: str, **facts: Any) -> Json:
    return {"code": code, "message": message, "data": {OUTCOME_MEMBER: {"outcome": outcome, "error": error, **facts}}}


def not_sent(message: str, error: str) -> RequestRefused:
    return RequestRefused(**our_error(SERVER_ERROR, message, "not_sent", error))


def text_in(params: Json, name: str) -> str:
    value = params.get(name)
    if type(value) is not str:
        raise RequestRefused(INVALID_PARAMS, f"params.{name} is not a string")
    return value


def prompt_of(front: Front, name: str) -> tuple[ServerRef, str]:
    found = front.find_prompt(name)
    if found is None:
        raise Unknown(INVALID_PARAMS, f"no prompt is called {name!r:.80}")
    return found


def resource_of(front: Front, uri: str) -> ServerRef:
    ref = front.find_resource(uri)
    if ref is None:
        raise Unknown(INVALID_PARAMS, "no server lists this resource, or a template that matches it", {"uri": uri})
    return ref


def json_id(request_id: Id) -> bytes:
    return b"%d" % request_id if type(request_id) is int else json.dumps(request_id).encode()


def error_line(request_id: Id | None, error: Json) -> bytes:
    shown = b"null" if request_id is None else json_id(request_id)
    try:
        text = written(error)
    except Exception:  # servers in this process may put anything into data
        logger.exception("the error of a request cannot be written; its data is dropped")
        text = written({"code": error["code"], "message": error["message"]})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (shown, text)


def written(value: Any) -> bytes:
    """Return JSON. Lone surrogates, impossible in UTF-8, are replaced."""
    try:
        return to_json(value, inf_nan_mode="null", fallback=str)
    except PydanticSerializationError:
        text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-16", "surrogatepass")
        return to_json(from_json(text.decode("utf-16", "replace")), inf_nan_mode="null")


def is_large(result: Json) -> bool:
    """Return True for a result with a large text or blob. Large structured content nearly always comes with a text."""
    parts = result.get("content") or result.get("contents")  # of any type, if of a kind unknown to the SDK
    for part in parts if type(parts) is list else ():
        if type(part) is dict:
            holder = embedded if type(embedded := part.get("resource")) is dict else part
            text = holder.get("text") or holder.get("data") or holder.get("blob")
            if type(text) is str and len(text) > LARGE_TEXT:
                return True
    return False


class Outlet(Protocol):
    """Takes the lines for one client. Never waits."""

    def answer(self, line: bytes, request_id: Id | None, code: int) -> None:
        """Take the answer to a request, or to an invalid message; `code` is the code of an error, 0 for a result."""

    def tell(self, line: bytes, about: Id | None) -> None:
        """Take a notification or question; `about` is the related request, if known."""


class Client(Protocol):
    """The session of a client, as seen by calls, news and own servers."""

    calls: dict[Id, Any]
    modern: bool | None
    initialized: trio.Event
    news: Any
    start: Callable[..., object]

    def answer(self, request_id: Id, method: str, result: Json) -> None: ...

    def fail(self, request_id: Id, exc: Exception, *, begun: bool = False) -> None: ...

    async def ask(self, method: str, params: Json, about: Id | None = None, server: str = "") -> Json: ...

    def notify(self, method: str, params: Json | None = None, about: Id | None = None) -> None: ...

    def note_stream(self) -> None: ...

    def note_changed(self, kind: Changed) -> None: ...

    def pass_log(self, context: CallbackContext, params: LoggingMessageNotificationParams) -> None: ...


class RelayedRequest:
    """A request of a client to a server.

    Args:
        prepare: prepares the request, again for each round of questions.
        passing: this client's answers and capabilities; None for a completion, during which servers ask nothing.

    Attributes:
        level: the least severe log messages wanted meanwhile; None for none.
    """

    __slots__ = (
        *("_left", "_passing", "_pending", "_prepare", "_rounds", "_scope", "_session"),
        *("id", "level", "method", "ref"),
    )

    def __init__(
        self,
        session: Client,
        request_id: Id,
        method: str,
        ref: ServerRef,
        prepare: Prepare,
        passing: Passing | None,
    ) -> None:
        self._session = session
        self.id = request_id
        self.method = method
        self.ref = ref
        self.level: Any = None
        self._prepare = prepare
        self._passing = passing
        self._pending: PendingRequest[Any] = prepare()
        self._scope: trio.CancelScope | None = None
        self._rounds: Rounds | None = None
        self._left = math.inf  # seconds left for all answers of the client

    def begin(self) -> None:
        self._pending.pass_on(self._passing)
        self._pending.send(self._settle)

    def _settle(self, answer: Any) -> None:
        """Take the answer. A failure, a question, a large result, or earlier log messages need a task."""
        value = None if answer is None else answer.value
        is_plain = answer is not None and self.level is None and not self._is_question(value)
        if is_plain and self._succeed(value, even_large=False):
            return
        self._scope = trio.CancelScope()
        self._session.start(partial(self._finish, value))

    async def _finish(self, value: Any) -> None:
        assert self._scope is not None
        with self._scope:
            try:
                value = await self._pending.finish() if value is None else value
                # During these turns, tasks pass on log messages that the server sent before its answer.
                for _ in range(5 if self.level is not None else 0):
                    await trio.lowlevel.checkpoint()
                while self._is_question(value):
                    value = await self._ask_client(value)
            except Exception as exc:
                if not isinstance(exc, (McpActorsError, MCPError)):
                    logger.exception("a request of a client failed: %s", self.method)
                self._fail(exc)
            else:
                self._succeed(value)

    def _is_question(self, value: Any) -> bool:
        """Return True for a request for input, unless the client is modern and understands it as an answer."""
        return not self._session.modern and isinstance(value, InputRequiredResult)

    async def _ask_client(self, value: InputRequiredResult) -> Any:
        """Ask a legacy client for a modern server's input, and repeat the request with the answers."""
        self._rounds = self._rounds or Rounds()
        try:
            await self._rounds.begin(value)
        except InputRequiredRoundsExceededError as exc:
            raise too_many_rounds(self.ref.name, self._pending.operation) from exc
        answers = {}
        for key, request in (value.input_requests or {}).items():
            params = {} if request.params is None else json_of(request.params)
            answers[key] = await self._answer_in_time(request.method, params)
        capabilities = None if self._passing is None else self._passing.capabilities
        passing = given_passing(self.ref.name, self.method, answers or None, value.request_state, capabilities)
        self._pending = self._prepare()
        self._pending.pass_on(passing)
        return await self._pending.finish()

    async def _answer_in_time(self, method: str, params: Json) -> Json:
        """Ask one question within the timeout of callbacks; all questions of a request have `MAX_ROUNDS` times as long.

        The server has no open request meanwhile, so no other limit holds.
        """
        timeout, began = self.ref._record.callbacks.timeout, trio.current_time()
        self._left = min(self._left, MAX_ROUNDS * timeout)
        with trio.move_on_after(min(timeout, self._left)):
            try:
                return await self._session.ask(method, params, self.id)
            finally:
                self._left -= trio.current_time() - began
        limit = f"the client did not answer {method} within {timeout:g} s"
        if self._left <= 0:
            limit = f"the client has used its {MAX_ROUNDS * timeout:g} s for the answers to all questions of a request"
        what = f"server {self.ref.name!r}: {self._pending.operation}: {limit}; answer sooner, then repeat the request"
        raise ServerError(what, server=self.ref.name)

    def _succeed(self, value: Any, *, even_large: bool = True) -> bool:
        """Answer with a result; return False for a large result unless `even_large`.

        Middleware and servers in this process may return anything, so every failure becomes an error.
        """
        try:
            result = self._pending.result_of(value)
            if not even_large and is_large(result):
                return False
            result = dict(result)  # not ours to change
            if "_meta" in result:
                meta = result.pop("_meta") or {}
                if kept := {key: each for key, each in meta.items() if not key.startswith(HOP_PREFIX)}:
                    result["_meta"] = kept
        except Exception as exc:
            logger.exception("the result of a request cannot be passed on: %s", self.method)
            self._fail(Unwritable(self.method, exc))
        else:
            if self._end():
                self._session.answer(self.id, self.method, result)
        return True

    def _fail(self, exc: Exception) -> None:
        if self._end():
            self._session.fail(self.id, exc, begun=self._rounds is not None)
            if isinstance(exc, MCPError):
                self._session.news.expect(self.ref, exc)

    def _end(self) -> bool:
        """Remove the call from the session; return False if cancelled."""
        # Ids are reused: after a cancellation, `calls` may have another request under this id. Compare the object, or a
        # late result would answer the newer request, whose own answer would then be dropped.
        if self._session.calls.get(self.id) is not self:
            return False
        del self._session.calls[self.id]
        return True

    def withdraw(self) -> None:
        self._pending.withdraw()
        if self._scope is not None:
            self._scope.cancel("the client has cancelled the request")


def result_in(answer: Json) -> Json:
    """Return the result of a client's answer, or raise its error as `MCPError`."""
    if type(result := answer.get("result")) is dict:
        return result
    error = answer.get("error")
    error = error if type(error) is dict else {}
    code, message = error.get("code"), error.get("message")
    raise MCPError(code if type(code) is int else INTERNAL_ERROR, message if type(message) is str else INVALID_ANSWER)
