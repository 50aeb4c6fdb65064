"""Requests that are one message and one answer.

Over a pipe such a request needs no task while it waits. A server may still ask back; then it is sent again with the
answer.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from attrs import define, field, frozen
from mcp import MCPError
from mcp.types import HEADER_MISMATCH, Result
from pydantic_core import PydanticSerializationError, from_json, to_json

from ..._text import plain_text
from ...transports import current_trace
from ..policy import bounded, parse_result, without_later_fields
from ..session import carry_on
from ._request import Request, meta_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic_core import ValidationError

    from ...transports import Json
    from ..record import ServerRecord
    from ..session import Session
    from ._progress import Reports

PROBLEM: Final = 400
"""Characters that are shown of a place in a result, and of what is wrong there."""

INPUT_REQUIRED: Final = "input_required"

ResultT = TypeVar("ResultT", bound=Result)


@frozen
class Extras:
    """The rare parts of a request.

    Attributes:
        meta: its ``_meta``, apart from what the protocol version adds; None without one.
        reports: takes the server's reports of progress; None without a callback or a limit.
    """

    meta: Mapping[str, Any] | None
    reports: Reports | None


NO_EXTRAS: Final = Extras(None, None)


@define(eq=False, kw_only=True)
class PlainRequest(Request[ResultT]):
    """A request that is one message, unless the server asks back.

    Attributes:
        method: the protocol's method.
        model: the class of its result.
        members: its params as the members of a JSON object; None if they were not written yet.
    """

    method: ClassVar[str]
    model: ClassVar[type[Result]]

    members: bytes | None = field(default=None, repr=False)

    @property
    def target(self) -> str | None:
        """The tool or prompt that it names, for a span."""
        return None

    @abstractmethod
    def check(self, session: Session, record: ServerRecord) -> None:
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
            self.members = members_of(self.given())
        return self.members

    def write_anew(self) -> None:
        """Forget the text of its params, which have changed."""
        self.members = None

    def params(self) -> Json:
        """Return its params, made anew: a server in this process may change what it is given."""
        if (text := self.written()) is not None:
            with suppress(ValueError):  # nested too deeply to be parsed, or a number is too long
                params: Json = from_json(b"{%b}" % text)
                return params
        return self.given()

    def extras(self, session: Session, record: ServerRecord) -> Extras | None:
        """Return what not every request has; None if there is nothing of that, as nearly always."""
        meta = meta_for(session, record)
        return None if meta is None else Extras(meta, None)

    async def send(self, session: Session, record: ServerRecord) -> ResultT:
        """Send it, and go on with it while the server asks back. See `Request.send`.

        The trace gets the reports that its caller is to see before the result.
        """
        self.check(session, record)
        extras = self.extras(session, record) or NO_EXTRAS
        reports = extras.reports
        if reports is None:
            return await self.go_on(session, record, await self.send_once(session, record, {}, extras), extras)
        reports.starts(session.start_soon, copy_context())
        try:
            value = await self.go_on(session, record, await self.send_once(session, record, {}, extras), extras)
        except BaseException:
            reports.cancel()
            raise
        current_trace().reports = reports
        return value

    async def go_on(self, session: Session, record: ServerRecord, value: Any, extras: Extras) -> ResultT:
        """Return the result of a request from that of its first message: answer the questions of the server."""
        if type(value) is not self.model:

            async def resend(more: Json) -> Any:
                return await self.send_once(session, record, more, extras)

            value = await carry_on(session, self.target if self.is_tool_call else None, value, resend)
        return self.finish(value, record)

    async def send_once(self, session: Session, record: ServerRecord, more: Json, extras: Extras) -> Any:
        """Send one message, with further params, and return its result as `read` does."""
        ask = partial(session.ask, self.method, meta=extras.meta, report=extras.reports)
        try:
            try:
                answer = await ask(self.params() | more)
            except MCPError as exc:
                if exc.code != HEADER_MISMATCH or not await self.learn_headers(session, record, exc):
                    raise
                answer = await ask(self.params() | more)
        except MCPError as exc:
            explained = self.explain(exc, record)
            raise explained from explained.__cause__
        return self.read(session, answer)

    async def learn_headers(self, session: Session, record: ServerRecord, refusal: MCPError) -> bool:
        """Learn which arguments are headers from the server that has refused them; return True if that may help."""
        return False

    def explain(self, error: MCPError, record: ServerRecord) -> Exception:
        """Return the exception for an error of the server."""
        return error

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
            value: ResultT = bounded(self.model).validate_python(result, by_name=False)
            if self._is_plain(result):
                return value
        # The class accepts more than the schema of the version. Both together cost as much as everything else.
        return parse_result(self.method, version, result)

    def finish(self, value: ResultT, record: ServerRecord) -> ResultT:
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


def members_of(params: Mapping[str, Any]) -> bytes | None:
    """Return the members of a JSON object, without its braces; None if a value cannot be written as JSON."""
    try:
        return to_json(params, inf_nan_mode="null")[1:-1]  # what pydantic writes for these values in a model
    except (PydanticSerializationError, ValueError):
        return None


def first_problem(exc: ValidationError, mask: Callable[[str], str], *, skip: int = 0) -> str:
    """Return the first place at which a result violates the protocol, and how, without quoting its data.

    Args:
        exc: the error.
        mask: masks the credentials of the connection.
        skip: the number of steps of the place that are not shown.
    """
    first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"][skip:]) or "top level"
    more = f", and {exc.error_count() - 1} more" if exc.error_count() > 1 else ""
    return plain_text(mask(f"at {where}: {first['msg'].lower()}"), limit=PROBLEM) + more
