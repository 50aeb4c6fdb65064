"""Define the base classes of messages to a server actor; check arguments.

A `PlainRequest` is one message and one answer, unless the server asks back. ``servers.ref`` decides on retries.

Owns: requests; an answer's JSON, if the request keeps it.
Writes: deadlines of requests; notes in the record; the server actor's mailbox; requests to the server.
Calls: catalog, config, kernel, servers.
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
    from .._session import ConnectionSession
    from ..record import ConnectionRecord, ServerRecord


T = TypeVar("T")


@define(eq=False, kw_only=True)
class Request(Call[T]):
    """A message to a server actor.

    A request task of the actor calls `send` with the actor's session, unless ``_direct`` sends the message without a
    task. Once the caller has sent the message to the actor, the only changes are to `session_refused`, `begun`,
    `reports`, and what `CallTool.check` and `PlainRequest.written` write. For speed, the class is neither frozen
    (creation takes three times as long) nor an `abc.ABC` (a type check takes five times as long).

    Attributes:
        of_the_session: True for a request about the shared session, which cannot use an isolated connection.
        is_tool_call: True if the result may be an error of the tool (``is_error``).
        deadline: when the request times out. Enforced by `Deadlines`, and renewed by progress notifications.
        session_refused: True once the server has refused the request because of an unknown session. A second refusal is
            about the request, and a further session would not help.
        begun: True once the server has asked for input, or left the rest to an extension: an effect is possible.
        reports: progress reports that the caller must see before the result, or None.
    """

    of_the_session: ClassVar[bool] = False
    is_tool_call: ClassVar[bool] = False
    deadline: Deadline | None = field(default=None, repr=False)
    session_refused: bool = field(default=False, init=False, repr=False)
    begun: bool = field(default=False, init=False, repr=False)
    reports: Reports | None = field(default=None, init=False, repr=False)

    @property
    @abstractmethod
    def operation(self) -> str:
        """The protocol's method and the main argument, for errors and logs: ``tools/call 'add'``."""

    @property
    def subject(self) -> str | None:
        """The tool, prompt or resource, for observers, with credentials masked; None if there is none."""
        return None

    def repeatable(self, record: ServerRecord) -> bool:
        """Return True if the request may be sent again after the server may have acted on it."""
        return True

    def suggestion(self, record: ServerRecord) -> str | None:
        """Return what the caller may have meant, for the error of a failed request; None if unknown."""
        return None

    @abstractmethod
    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> T:
        """Send the request on the session of this connection and return the result.

        **Cancellation**: asks the server to cancel a request that was sent.

        Raises:
            mcp.MCPError: the server answered with an error, or the connection was lost.
        """


def meta_for(
    session: ConnectionSession, record: ConnectionRecord, meta: Mapping[str, Any] | None = None
) -> Mapping[str, Any] | None:
    """Return the ``_meta`` of a request: the caller's, plus the log level since 2026-07-28 (see `SetLogLevel`)."""
    if record.next_connect.log_level is not None and session.modern:
        record.next_connect.own_levels |= LOG_LEVEL_META_KEY in (meta or ())
        return {LOG_LEVEL_META_KEY: record.next_connect.log_level, **(meta or {})}
    return meta


async def request_internally(record: ConnectionRecord, actor: ActorRef, request: Request[T]) -> T:
    """Send a request from a task of the server itself: through the mailbox, with a deadline, without retries.

    Raises:
        ActorError: the actor cannot answer, for example because the connection was lost.
        ServerError, mcp.MCPError: the request failed.
    """
    with record.calls.deadlines.begin(request, own=True) as deadline:
        deadline.call = call = actor.send_request(request)
        return await call.wait()


# --- Validate request arguments before sending them -------------------------------------------------------------------

# `mcp_actors.catalog.ToolChecks` checks arguments of tools against their schemas.


def given_text(server: str, method: str, root: str, value: object, *path: str) -> str:
    """Return a string that can be sent. `path` leads to the string inside the argument `root`.

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
        InvalidArguments: not a mapping of strings to strings.
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
        InvalidArguments: not a mapping, or not JSON.
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
    what = f"server {server!r}: {method}: {dotted(root, path)} {problem}; nothing was sent; correct the argument"
    return InvalidArguments(what, server=server, tool=None, path=(root, *path))


# --- Requests that are one message and one answer ---------------------------------------------------------------------


ResultT = TypeVar("ResultT", bound=Result)


@frozen
class Passing:
    """The parts of a request passed on for another client. The result may be a request for input.

    `answers` are the params that answer the last request for input. `capabilities` are those of the other client; None
    for those of the session.
    """

    answers: Json
    capabilities: Json | None


UNANSWERED: Final = Passing({}, None)
"""For a request passed on without answers."""


def given_passing(server: str, method: str, responses: object, state: object, capabilities: object) -> Passing:
    """Return the parts of a request that is passed on.

    `responses` are the answers to a request for input, by key, and `state` is the state of that request, unchanged.
    `capabilities` are those of the answering client (None: of this program); older servers learn capabilities at the
    connect.

    Raises:
        InvalidArguments: a part has the wrong type.
    """
    text = None if state is None else given_text(server, method, "request_state", state)
    given = {"inputResponses": given_object(server, method, "input_responses", responses), "requestState": text}
    answers = {name: value for name, value in given.items() if value is not None}
    return Passing(answers, given_object(server, method, "client_capabilities", capabilities))


@define(eq=False)
class LastAnswer:
    """The last answer to a request, as parsed from JSON.

    `exposed` is True if middleware gets the parsed value, and may change the value.
    """

    exposed: bool = False
    _raw: Json | None = field(default=None, init=False, repr=False)
    _value: Any = field(default=None, init=False, repr=False)

    def keep(self, raw: Json, value: Any) -> None:
        self._raw, self._value = raw, value

    def raw_of(self, value: Any) -> Json | None:
        if value is not self._value:
            return None
        model: Any = type(value)
        same = not self.exposed or bounded(model).validate_python(self._raw, by_name=False) == value
        return self._raw if same else None


@define(eq=False)  # not frozen, which takes three times as long
class Extras:
    """The rare parts of a request. Do not change them.

    `capabilities` are named in place of the session's, unless None.
    """

    meta: Mapping[str, Any] | None
    reports: Reports | None
    capabilities: Json | None = None


NO_EXTRAS: Final = Extras(None, None)


@define(eq=False, kw_only=True)
class PlainRequest(Request[ResultT]):
    """A request that is one message, unless the server asks back. Over a pipe it waits without a task.

    Attributes:
        passing: further parts of a request passed on for another client.
        members: the params as the members of a JSON object; None before they are written.
        kept: keeps the parsed answer; None keeps nothing.
    """

    method: ClassVar[str]
    model: ClassVar[type[Result]]

    meta: Mapping[str, Any] | None = None
    progress: ProgressCallback | None = None
    members: bytes | None = field(default=None, repr=False)
    # Set only where needed: as arguments, they would slow down every call.
    passing: Passing | None = field(default=None, init=False, repr=False)
    kept: LastAnswer | None = field(default=None, init=False, repr=False)

    @property
    def target(self) -> str | None:
        return None

    @property
    def subject(self) -> str | None:
        return self.target

    @abstractmethod
    def check(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        """Check that the request may be sent. If not, the caller gets the exception, and nothing is sent."""

    @abstractmethod
    def given(self) -> Json:
        """Return the params, without ``_meta``."""

    def written(self) -> bytes | None:
        """Return the members of the params as JSON text, without braces; None if they cannot be written as JSON."""
        if self.members is None:
            self.members = members_of(self._all_given())
        return self.members

    def _all_given(self) -> Json:
        return self.given() if self.passing is None else self.given() | self.passing.answers

    def params(self, answers: Json | None = None) -> Json:
        """Return the params, made anew each time: a server in this process may change its input.

        `answers` are the params that answer the last request for input, if this program answers.
        """
        params = self._all_given()
        if (text := self.written()) is not None:
            with suppress(ValueError):  # nested too deeply to be parsed, or a number is too long
                params = from_json(b"{%b}" % text)
        return params if answers is None else params | answers

    def extras(self, session: ConnectionSession, record: ConnectionRecord) -> Extras | None:
        """Return the rare parts of the request; None without any, as nearly always.

        Raises:
            NotSupported: the request answers a request for input, but a legacy server cannot have asked.
        """
        config, capabilities = record.config, None
        if (passing := self.passing) is not None:
            if passing.answers and not session.modern:
                raise _no_questions(config.name, self.operation, session.version)
            capabilities = passing.capabilities if session.modern else None  # older servers know them already
        meta = self.meta if record.next_connect.log_level is None else meta_for(session, record, self.meta)
        if self.progress is None and config.progress_timeout is None:
            return None if meta is None and capabilities is None else Extras(meta, None, capabilities)
        return Extras(meta, Reports(config.name, self.progress, self.deadline), capabilities)

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> ResultT:
        """Send the request, and continue while the server asks back. See `Request.send`."""
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

    async def go_on(self, session: ConnectionSession, record: ConnectionRecord, value: Any, extras: Extras) -> ResultT:
        """Answer the server's questions until it returns the result. `value` is the answer to the first message."""
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
        return self.passing is None and pages_of(refusal) != []

    async def _send_after_pages(
        self, session: ConnectionSession, record: ConnectionRecord, refusal: MCPError, extras: Extras
    ) -> Any:
        """Let a person open the pages named by a refusal, and send the request once more when all are done."""
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
        """Return False for a request for input that this program answers, and for a result that an extension claims."""
        if type(value) is self.model:
            return True
        return self.passing is not None and isinstance(value, InputRequiredResult)

    async def send_once(
        self, session: ConnectionSession, record: ConnectionRecord, answers: Json | None, extras: Extras
    ) -> Any:
        """Send one message, and return the result as `read` does. See `params` for the answers."""
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

    async def learn_headers(self, session: ConnectionSession, record: ConnectionRecord, refusal: MCPError) -> bool:
        """Learn which arguments are headers, after a refusal. Return True if a second send may succeed."""
        return False

    def explain(self, error: MCPError, record: ConnectionRecord) -> Exception:
        asked = record.server.note_old_question(self.operation, error.message)
        return error if asked is None else caused_by(asked, error)

    def read(self, session: ConnectionSession, result: Json) -> Any:
        """Return the parsed result: of the class of this request, a request for input, or claimed by an extension.

        `result` is changed.

        Raises:
            pydantic_core.ValidationError: the result does not conform to the protocol.
        """
        without_later_fields(self.method, session.version, result)
        kind = result.get("resultType")
        if session.claims and self.is_tool_call and isinstance(kind, str) and kind in session.claims:
            model: Any = session.claims[kind].model
            return bounded(model).validate_python(result, by_name=False)
        if kind != "input_required":
            try:
                value: ResultT = bounded(self.model).validate_python(result, by_name=False)
                if self._is_plain(result):
                    return value
            except ValidationError:
                pass
        # The class accepts more than the schema of the version. To use both doubles the cost of a call, so that is done
        # only here, for rare results.
        return self.read_openly(session, result)

    def read_openly(self, session: ConnectionSession, result: Json) -> Any:
        return session.read(self.method, result)

    def finish(self, value: ResultT, record: ConnectionRecord) -> ResultT:
        """Return the result for the caller, or raise to refuse it."""
        return value

    def blocks(self, result: Json) -> Iterable[Json]:
        return ()

    def _is_plain(self, result: Json) -> bool:
        """Return False if the class, which is the same for all versions, may have accepted more than the schema."""
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
    """Return the members of a JSON object, without braces; None if a value cannot be written as JSON."""
    try:
        return to_json(params, inf_nan_mode="null")[1:-1]  # what pydantic writes for these values in a model
    except (PydanticSerializationError, ValueError):
        return None
