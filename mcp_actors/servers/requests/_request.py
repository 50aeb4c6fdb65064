"""The base of all messages to a server actor, and their arguments.

`Request` is the base class; `PlainRequest`, the last part, is that of requests that are one message and one answer. In
between: `request_internally`, by which a connection sends requests of its own; the validation of arguments
(`given_text` and others; `given_passing` for a request that is passed on for another client). `members_of` writes
params as JSON.

A request belongs to its caller until it is in the mailbox; then the connection calls its `send` or, without a task, its
parts. It uses the session and ``_eras``, reads the record, begins deadlines, and has `Reports` of the dispatcher run
the caller's callback. A `PlainRequest` goes on if the server asks for input, an extension claims its result, or the
server refuses its headers (`learn_headers`); retries are decided in ``ref``. The file imports neither refs nor the
connection.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from attrs import define, field, frozen
from mcp import MCPError
from mcp.types import HEADER_MISMATCH, LOG_LEVEL_META_KEY, InputRequiredResult, Result
from pydantic_core import PydanticSerializationError, ValidationError, from_json, to_json

from ..._collapse import caused_by
from ..._errors import InvalidArguments, NotSupported
from ...catalog._schemas import dotted, kind_of
from ...config import ProgressCallback
from ...kernel import Call
from .._dispatcher import Reports
from .._eras import bounded, without_later_fields
from .._session import MAX_ROUNDS, carry_on, open_pages, pages_of, pages_required

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...kernel import ActorRef
    from ...transports import Json
    from .._deadlines import Deadline
    from .._session import Session
    from ..record import ConnectionRecord, ServerRecord


T = TypeVar("T")


@define(eq=False, kw_only=True)
class Request(Call[T]):
    """A message to a server actor. A request task of the actor calls its `send` with the actor's session.

    A `PlainRequest` may also go without a task.

    Nothing but its last three attributes changes after a request was sent. It is neither frozen nor an `abc.ABC` all
    the same, because every call creates one: a frozen class takes three times as long for that, and an abstract one
    five times as long for a check of its type.

    Attributes:
        deadline: when the request times out. `Deadlines` enforces it; each progress notification renews it.
        session_refused: whether the server has refused it as one of a session that it does not know. If it does so on
            the next session, too, it is that request which the server refuses, and more sessions would not help.
        begun: whether the server has answered a round of it, so that it may have had an effect.
        reports: the reports that its caller is to see before the result; None without any, or before the result.
    """

    of_the_session: ClassVar[bool] = False
    """Whether the request is about the shared session, so that it needs that very connection."""

    is_tool_call: ClassVar[bool] = False
    """Whether the result may say that the server has refused it (``is_error``)."""

    deadline: Deadline | None = field(default=None, repr=False)
    session_refused: bool = field(default=False, init=False, repr=False)
    begun: bool = field(default=False, init=False, repr=False)
    reports: Reports | None = field(default=None, init=False, repr=False)

    @property
    @abstractmethod
    def operation(self) -> str:
        """The protocol's method and its main argument, for errors and logs: ``tools/call 'add'``."""

    @property
    def subject(self) -> str | None:
        """The tool, prompt or resource that it is about, for observers, with credentials masked; None if none."""
        return None

    def repeatable(self, record: ServerRecord) -> bool:
        """Return whether the request may be sent again after the server may have acted on it. Lists and reads may."""
        return True

    def suggestion(self, record: ServerRecord) -> str | None:
        """Return what the caller may have meant, for the error of a request that has failed; None if unknown."""
        return None

    @abstractmethod
    async def send(self, session: Session, record: ConnectionRecord) -> T:
        """Send the request on the session of this connection and return its result.

        **Cancellation**: the server is asked to cancel a request that was sent.

        Raises:
            mcp.MCPError: the server answered with an error, or the connection was lost.
        """


def meta_for(
    session: Session, record: ConnectionRecord, meta: Mapping[str, Any] | None = None
) -> Mapping[str, Any] | None:
    """Return the ``_meta`` of a request: the caller's, plus the log level since 2026-07-28 (see `SetLogLevel`)."""
    if record.opening.log_level is not None and session.modern:
        record.opening.own_levels |= LOG_LEVEL_META_KEY in (meta or ())
        return {LOG_LEVEL_META_KEY: record.opening.log_level, **(meta or {})}
    return meta


async def request_internally(record: ConnectionRecord, actor: ActorRef, request: Request[T]) -> T:
    """Send a request from one of the server's own tasks: through the mailbox, with a deadline, without retries.

    **Cancellation**: leaves at once.

    Raises:
        ActorError: the actor cannot answer, for example because the connection was lost.
        ServerError, mcp.MCPError: the request failed.
    """
    with record.calls.deadlines.begin(request, own=True) as deadline:
        deadline.call = call = actor.send_request(request)
        return await call.wait()


# --- Validate request arguments before sending them -------------------------------------------------------------------

# The arguments of tools are checked against their schemas elsewhere, see `mcp_actors.catalog.ToolChecks`.


def given_text(server: str, method: str, root: str, value: object, *path: str) -> str:
    """Return a string that can be sent.

    Args:
        server: the server's name.
        method: the protocol's method.
        root: the name of the parameter.
        value: the argument, or a part of it.
        path: where that part is inside the argument.

    Raises:
        InvalidArguments: the value is not a string, or has no UTF-8 form.
    """
    if not isinstance(value, str):
        raise refused(server, method, root, path, f"is {kind_of(value)}; expected a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refused(server, method, root, path, "contains a lone surrogate, which UTF-8 cannot encode") from None
    return value


def given_texts(server: str, method: str, root: str, values: object) -> dict[str, str]:
    """Return a mapping of strings that can be sent.

    Raises:
        InvalidArguments: the values are not a mapping of strings to strings.
    """
    if not isinstance(values, Mapping):
        raise refused(server, method, root, (), f"is {kind_of(values)}; expected a mapping of names to strings")
    texts: dict[str, str] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise refused(server, method, root, (), f"has the key {name!r:.40}; expected strings as keys")
        given_text(server, method, root, name)
        texts[name] = given_text(server, method, root, value, name)
    return texts


def given_object(server: str, method: str, root: str, values: object) -> Json | None:
    """Return a copy of a JSON object that can be sent; None for None.

    Raises:
        InvalidArguments: the values are not a mapping, or cannot be written as JSON.
    """
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise refused(server, method, root, (), f"is {kind_of(values)}; expected an object")
    if (text := members_of(dict(values))) is not None:
        with suppress(ValueError):  # nested too deeply, or a number is too long
            copied: Json = from_json(b"{%b}" % text)
            return copied
    raise refused(server, method, root, (), "cannot be written as JSON")


def refused(server: str, method: str, root: str, path: tuple[str, ...], problem: str) -> InvalidArguments:
    """Return the error for an argument that cannot be sent."""
    what = f"server {server!r}: {method}: {dotted(root, path)} {problem}; nothing was sent; correct the argument"
    return InvalidArguments(what, server=server, tool=None, path=(root, *path))


# --- Requests that are one message and one answer ---------------------------------------------------------------------

# Over a pipe such a request needs no task while it waits. A server may still ask back; then it is sent again with the
# answer.


INPUT_REQUIRED: Final = "input_required"

ResultT = TypeVar("ResultT", bound=Result)


@frozen
class Passing:
    """The parts of a request that is passed on for another client, whose result may be a request for input.

    Attributes:
        answers: the params that answer the last request for input.
        capabilities: the capabilities of that client; None for those of the session.
    """

    answers: Json
    capabilities: Json | None


UNANSWERED: Final = Passing({}, None)
"""Those of most requests that are passed on."""


def given_passing(server: str, method: str, responses: object, state: object, capabilities: object) -> Passing:
    """Return the parts of a request that is passed on.

    Args:
        server: the server's name.
        method: the protocol's method.
        responses: the answers to a request for input, by its keys; None for none.
        state: the state of that request for input, unchanged; None for none.
        capabilities: the capabilities of the client that answers; None for those of this program. Servers before
            2026-07-28 have learned these when they were connected.

    Raises:
        InvalidArguments: a part has the wrong type.
    """
    text = None if state is None else given_text(server, method, "request_state", state)
    given = {"inputResponses": given_object(server, method, "input_responses", responses), "requestState": text}
    answers = {name: value for name, value in given.items() if value is not None}
    return Passing(answers, given_object(server, method, "client_capabilities", capabilities))


@define(eq=False)
class Kept:
    """The last answer to a request, as it was parsed from JSON.

    Attributes:
        exposed: whether middleware has the value that was read from it, and may change that.
    """

    exposed: bool = False
    _raw: Json | None = field(default=None, init=False, repr=False)
    _value: Any = field(default=None, init=False, repr=False)

    def keep(self, raw: Json, value: Any) -> None:
        """Keep an answer, and the value that was read from it."""
        self._raw, self._value = raw, value

    def has(self, value: Any) -> Json | None:
        """Return the answer that a value was read from; None if it was not, or was changed since."""
        if value is not self._value:
            return None
        model: Any = type(value)
        same = not self.exposed or bounded(model).validate_python(self._raw, by_name=False) == value
        return self._raw if same else None


@define(eq=False)  # not frozen, which takes three times as long
class Extras:
    """The rare parts of a request. Do not change them.

    Attributes:
        meta: its ``_meta``, apart from what the protocol version adds; None without one.
        reports: takes the server's reports of progress; None without a callback or a limit.
        capabilities: the capabilities that it names, in place of those of the session; None for those.
    """

    meta: Mapping[str, Any] | None
    reports: Reports | None
    capabilities: Json | None = None


NO_EXTRAS: Final = Extras(None, None)


@define(eq=False, kw_only=True)
class PlainRequest(Request[ResultT]):
    """A request that is one message, unless the server asks back.

    Attributes:
        method: the protocol's method.
        model: the class of its result.
        meta: the caller's ``_meta``.
        progress: called at each progress notification.
        passing: its further parts if it is passed on for another client.
        members: its params as the members of a JSON object; None if they were not written yet.
        kept: keeps its answer; None if it is not wanted as it was parsed.
    """

    method: ClassVar[str]
    model: ClassVar[type[Result]]

    meta: Mapping[str, Any] | None = None
    progress: ProgressCallback | None = None
    members: bytes | None = field(default=None, repr=False)
    # Set only where they are needed: as arguments, every call would pay for them.
    passing: Passing | None = field(default=None, init=False, repr=False)
    kept: Kept | None = field(default=None, init=False, repr=False)

    @property
    def target(self) -> str | None:
        """The tool or prompt that it names, for a span."""
        return None

    @property
    def subject(self) -> str | None:
        """The tool or prompt."""
        return self.target

    @abstractmethod
    def check(self, session: Session, record: ConnectionRecord) -> None:
        """Check that it may be sent, just before it is.

        Raises:
            Exception: it must not be sent; its caller gets this error.
        """

    @abstractmethod
    def given(self) -> Json:
        """Return its params as they were given, without ``_meta``."""

    def written(self) -> bytes | None:
        """Return the members of its params as JSON text, without braces; None if they cannot be written as JSON."""
        if self.members is None:
            self.members = members_of(self._all_given())
        return self.members

    def _all_given(self) -> Json:
        return self.given() if self.passing is None else self.given() | self.passing.answers

    def params(self, answers: Json | None = None) -> Json:
        """Return its params, made anew: a server in this process may change what it is given.

        Args:
            answers: the params that answer the last request for input, if this program answers it.
        """
        params = self._all_given()
        if (text := self.written()) is not None:
            with suppress(ValueError):  # nested too deeply to be parsed, or a number is too long
                params = from_json(b"{%b}" % text)
        return params if answers is None else params | answers

    def extras(self, session: Session, record: ConnectionRecord) -> Extras | None:
        """Return what not every request has; None if there is nothing of that, as nearly always.

        That is the caller's ``_meta``, the log level, what renews the deadline and runs the caller's callback, and the
        capabilities of another client.

        Raises:
            NotSupported: it answers a request for input, which a legacy server cannot have made.
        """
        config, capabilities = record.config, None
        if (passing := self.passing) is not None:
            if passing.answers and not session.modern:
                raise _no_questions(config.name, self.operation, session.version)
            capabilities = passing.capabilities if session.modern else None  # older servers know them already
        meta = self.meta if record.opening.log_level is None else meta_for(session, record, self.meta)
        if self.progress is None and config.progress_timeout is None:
            return None if meta is None and capabilities is None else Extras(meta, None, capabilities)
        return Extras(meta, Reports(config.name, self.progress, self.deadline), capabilities)

    async def send(self, session: Session, record: ConnectionRecord) -> ResultT:
        """Send it, and go on with it while the server asks back. See `Request.send`."""
        self.check(session, record)
        extras = self.extras(session, record) or NO_EXTRAS
        if (reports := extras.reports) is not None:
            reports.starts(session.dispatcher.start_soon, copy_context())
        try:
            try:
                value = await self.send_once(session, record, None, extras)
            except MCPError as exc:
                if not self.names_pages(exc):
                    raise
                value = exc
            value = await self.go_on(session, record, value, extras)
        except BaseException:
            if reports is not None:
                reports.cancel()
            raise
        self.reports = reports
        return value

    async def go_on(self, session: Session, record: ConnectionRecord, value: Any, extras: Extras) -> ResultT:
        """Return the result of a request from that of its first message: answer the questions of the server."""
        if isinstance(value, MCPError):
            value = await self._send_after_pages(session, record, value, extras)
        if not self.is_result(value):
            self.begun = True

            async def resend(answers: Json) -> Any:
                return await self.send_once(session, record, answers, extras)

            tool = self.target if self.is_tool_call else None
            value = await carry_on(session, tool, value, resend, self.deadline)
        return self.finish(value, record)

    def names_pages(self, refusal: MCPError) -> bool:
        """Return True if a person must open pages first, which is not left to another client."""
        return self.passing is None and pages_of(refusal) != []

    async def _send_after_pages(
        self, session: Session, record: ConnectionRecord, refusal: MCPError, extras: Extras
    ) -> Any:
        """Have a person open the pages, and send the request once more when all are done."""
        seconds, began = record.server.callbacks.timeout, 0.0 if self.deadline is None else self.deadline.began
        wait = partial(record.server.done.wait, since=began)
        with record.calls.deadlines.answering(record.name, self.deadline, MAX_ROUNDS * seconds):
            why = await open_pages(session, pages_of(refusal), seconds, wait, self.deadline)
        if not why:
            try:
                return await self.send_once(session, record, None, extras)
            except MCPError as exc:
                if not self.names_pages(exc):
                    raise
                refusal, why = exc, "the server asks for it again, although it has reported that it is done"
        raise pages_required(record.config.name, self.operation, refusal, why)

    def is_result(self, value: Any) -> bool:
        """Return False for a request for input that is to be answered, and for what an extension claims."""
        if type(value) is self.model:
            return True
        return self.passing is not None and isinstance(value, InputRequiredResult)

    async def send_once(self, session: Session, record: ConnectionRecord, answers: Json | None, extras: Extras) -> Any:
        """Send one message, and return its result as `read` does. See `params` for the answers."""
        given: Json = {"attempt": self.deadline, "meta": extras.meta, "capabilities": extras.capabilities}
        ask: Any = partial(session.ask, self.method, report=extras.reports, **given)
        try:
            try:
                answer = await ask(self.params(answers))
            except MCPError as exc:
                if exc.code != HEADER_MISMATCH or not await self.learn_headers(session, record, exc):
                    raise
                answer = await ask(self.params(answers))
        except MCPError as exc:
            explained = self.explain(exc, record)
            raise explained from explained.__cause__
        value = self.read(session, answer)
        if self.kept is not None:
            self.kept.keep(answer, value)
        return value

    async def learn_headers(self, session: Session, record: ConnectionRecord, refusal: MCPError) -> bool:
        """Learn which arguments are headers from the server that has refused them; return True if that may help."""
        return False

    def explain(self, error: MCPError, record: ConnectionRecord) -> Exception:
        """Return the exception for an error of the server."""
        asked = record.server.note_old_question(self.operation, error.message)
        return error if asked is None else caused_by(asked, error)

    def read(self, session: Session, result: Json) -> Any:
        """Return a result: of the class of this request, a request for input, or what an extension claims.

        Args:
            session: the session.
            result: the parsed ``result`` of the answer. It is changed.

        Raises:
            pydantic_core.ValidationError: the result does not conform to the protocol.
        """
        version = session.version
        without_later_fields(self.method, version, result)
        kind = result.get("resultType")
        if session.claims and self.is_tool_call and isinstance(kind, str) and kind in session.claims:
            model: Any = session.claims[kind].model
            return bounded(model).validate_python(result, by_name=False)
        if kind != INPUT_REQUIRED:
            try:
                value: ResultT = bounded(self.model).validate_python(result, by_name=False)
                if self._is_plain(result):
                    return value
            except ValidationError:
                pass
        # The class accepts more than the schema of the version. Both together cost as much as everything else.
        return self.read_openly(session, result)

    def read_openly(self, session: Session, result: Json) -> Any:
        return session.read(self.method, result)

    def finish(self, value: ResultT, record: ConnectionRecord) -> ResultT:
        """Return the result for the caller.

        Raises:
            Exception: the result is refused.
        """
        return value

    def blocks(self, result: Json) -> Iterable[Json]:
        """Return the content blocks of a valid result."""
        return ()

    def _is_plain(self, result: Json) -> bool:
        """Return False if its class, which is the same for all versions, may have accepted what its schema refuses."""
        for block in self.blocks(result):
            if "type" not in block:
                return False
        return (
            isinstance(result.get("structuredContent"), (dict, NoneType))
            and "inputRequests" not in result
            and "requestState" not in result
        )


def _no_questions(server: str, operation: str, version: str) -> NotSupported:
    what = (
        f"server {server!r}: {operation} not sent: input_responses and request_state answer a request for input, which "
        f"a server with protocol version {version} cannot make; send the request without them"
    )
    return NotSupported(what, server=server, capability="input_required")


def members_of(params: Mapping[str, Any]) -> bytes | None:
    """Return the members of a JSON object, without its braces; None if a value cannot be written as JSON."""
    try:
        return to_json(params, inf_nan_mode="null")[1:-1]  # what pydantic writes for these values in a model
    except (PydanticSerializationError, ValueError):
        return None
