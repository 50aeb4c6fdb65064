"""The messages `CallTool` and `ListTools`, and middleware around a call.

If the catalogue changes while a call waits in the mailbox, the call is checked again before the send. `Around` runs the
program's middleware, which may send any number of messages for one call.

Owns: calls sent by middleware.
Writes: the server's catalogue; the session's tool schemas; deadlines of calls; requests to the server; the log.
Calls: config, servers, _lists, _request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from attrs import define, field
from mcp import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.types import METHOD_NOT_FOUND, CallToolResult, ListToolsResult, Tool
from pydantic_core import ValidationError, to_json

from ..._collapse import caused_by
from ..._errors import LimitExceeded, NotSupported, ToolNotFound
from ..._foreign import Log
from ..._misuse import nearest
from ..._tasks import TimeSlice
from ..._text import plain_text, some_of
from ...config import ProgressCallback, ToolRequest, wrapped
from .._admission import known_tools
from .._attempts import NOT_SENT
from .._deadlines import InTask
from .._dialects import with_objects
from .._rules import is_repeatable_call
from ._lists import Kind, all_pages
from ._request import PlainRequest, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...catalog import ToolChecks
    from ...config import ServerConfig
    from ...kernel import PendingCall
    from ...transports import Json
    from .._admission import KnownTool
    from .._deadlines import Deadline
    from .._session import ConnectionSession
    from ..record import ConnectionRecord, ServerRecord


logger = Log("mcp_actors.servers")


@define(eq=False)
class CallTool(PlainRequest[CallToolResult]):
    """Call a tool by the name under which the server lists it.

    Attributes:
        idempotent: whether the caller allows a repetition; None asks the tool's annotations.
        checked_by: the checks that the arguments passed; None before a check.
        deferred: True if the tool was only remembered at the time of the call. The server must still list it.
    """

    is_tool_call: ClassVar[bool] = True
    method: ClassVar[str] = "tools/call"
    model: ClassVar[type[CallToolResult]] = CallToolResult

    name: str
    arguments: Mapping[str, Any] | None
    meta: Mapping[str, Any] | None  # positional, like those below, because keywords would slow down every call
    progress: ProgressCallback | None
    idempotent: bool | None
    checked_by: ToolChecks | None = field(repr=False)
    deferred: bool

    @property
    def operation(self) -> str:
        return f"tools/call {self.name!r}"

    def repeatable(self, record: ServerRecord) -> bool:
        """Return the caller's `idempotent`; if None, whether the annotations of a trusted server allow a repetition."""
        listed = self._listed(record)
        return is_repeatable_call(
            idempotent=self.idempotent,
            trusted=record.config.trust_annotations,
            annotations=None if listed is None else listed.annotations,
        )

    def suggestion(self, record: ServerRecord) -> str | None:
        shown = [each.name for each in record.catalog.tools]
        if not shown or record.catalog.lists(self.name):
            return None
        own = [each for each in shown if self.name.endswith((f"__{each}", f"/{each}"))]  # after a server's name
        near = " or ".join(map(repr, own[:3])) or _nearest(self.name, shown)
        hint = f"did you mean {near}?" if near else f"its other tools: {len(shown)}"
        return plain_text(f"server {record.config.name!r} does not list a tool {self.name!r:.80}; {hint}")

    def _listed(self, record: ServerRecord | ConnectionRecord) -> Tool | None:
        return next((each.tool for each in record.catalog.tools if each.name == self.name), None)

    def changed(self, by: ToolRequest) -> CallTool:
        """Return the call that a middleware sends in place of this one."""
        # Only the called tool may have been deferred; a tool that a middleware calls instead never is.
        deferred, options = self.deferred and by.name == self.name, (self.progress, self.idempotent)
        changed = CallTool(by.name, by.arguments, by.meta, *options, None, deferred, deadline=self.deadline)
        changed.passing, changed.kept = self.passing, self.kept
        return changed

    target = subject = property(attrgetter("name"))

    def check(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        """Check that the tool may be called, and the arguments unless checked by the present listing.

        Raises:
            ToolNotFound: the tool was only remembered and is no longer listed, or is hidden.
            InvalidArguments: the arguments are not valid for the tool.
        """
        if self.deferred and self._listed(record) is None:
            raise _gone(self.name, record)
        if self.checked_by is not (checks := record.catalog.checks):
            # Since the call, the listing or its admission has changed, or a middleware may have changed the arguments.
            self.prepare(record, checks)

    def prepare(self, record: ServerRecord | ConnectionRecord, checks: ToolChecks) -> None:
        """Check that the tool may be called, check the arguments, and write them as JSON.

        Raises:
            ToolNotFound, InvalidArguments: as for `check`.
        """
        record.catalog.admission.check_call(self.name)
        self.arguments, text = checks.check_json(self.name, self.arguments)
        self.checked_by, self.members = checks, None
        if text is not None and (self.passing is None or not self.passing.answers):  # else all is written at the send
            self.members = b'"name":%b,"arguments":%b' % (to_json(self.name), text)

    def given(self) -> Json:
        return {"name": self.name} if self.arguments is None else {"name": self.name, "arguments": self.arguments}

    def explain(self, error: MCPError, record: ConnectionRecord) -> Exception:
        """Return `NotSupported` for a tool that must be run as a task."""
        listed = self._listed(record) if error.code == METHOD_NOT_FOUND else None
        if listed is None or listed.execution is None or listed.execution.task_support != "required":
            return super().explain(error, record)
        server = record.config.name
        unsupported = NotSupported(
            f"server {server!r}: tool {self.name!r:.80} requires task execution (execution.task_support is "
            "'required'), which is not supported; use another tool, or a client that supports tasks",
            server=server,
            capability="tasks",
        )
        return caused_by(unsupported, error)

    def blocks(self, result: dict[str, Any]) -> Iterable[dict[str, Any]]:
        content: list[dict[str, Any]] = result["content"]
        return content

    def finish(self, value: CallToolResult, record: ConnectionRecord) -> CallToolResult:
        """Check the result against the schema of the tool (`InvalidResult`). A request for input has no schema."""
        if isinstance(value, CallToolResult):
            record.catalog.checks.check_result(self.name, value)
        return value

    def read_openly(self, session: ConnectionSession, result: Json) -> Any:
        """Return the result. An empty array counts as an empty object if the tool returns objects."""
        if result.get("structuredContent") == [] and self.name in session.return_objects:
            result["structuredContent"] = {}
        return super().read_openly(session, result)

    async def learn_headers(self, session: ConnectionSession, record: ConnectionRecord, refusal: MCPError) -> bool:
        if not session.modern:
            return False
        try:
            found = await all_pages(session, record, TOOLS, self.deadline)
            session.note_tools(tuple(_with_valid_headers(found, record)))
        except (MCPError, LimitExceeded, ValidationError) as exc:
            raise refusal from exc
        return True


def _gone(name: str, record: ConnectionRecord) -> ToolNotFound:
    server, known = record.config.name, [tool.name for tool in record.catalog.tools]
    near = _nearest(name, known)
    hint = f"did you mean {near}? " if near else ""
    return ToolNotFound(
        f"server {server!r}: tool {name!r}, remembered from an earlier run, not found; nothing was sent; "
        f"{hint}its tools are now: {some_of(known, 20) or 'none'}",
        server=server,
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    return " or ".join(map(repr, nearest(name, known, 3)))


TOOLS: Final[Kind[ListToolsResult, Tool]] = Kind(
    "tools/list", "tools", "tools", lambda can: can.tools, lambda page: page.tools
)


@define(eq=False)
class ListTools(Request[tuple[Tool, ...]]):
    operation: ClassVar[str] = "tools/list"

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> tuple[Tool, ...]:
        ticket = record.catalog.freshness.begin()
        tools = await list_all_tools(session, record, self.deadline)
        record.catalog.offer(ticket, tools)
        admissible = deque(record.catalog.admission.admissible(tools))
        del tools  # see `_copied`
        return await _copied(admissible)


async def _copied(tools: deque[KnownTool]) -> tuple[Tool, ...]:
    """Return copies of tools, which callers may change.

    Each tool is released after its copy: the release of thousands at once is a long step.
    """
    copies, time_slice = list[Tool](), TimeSlice()
    while tools:
        copies.append(tools.popleft().tool.model_copy(deep=True))
        await time_slice.checkpoint()
    return tuple(copies)


async def list_all_tools(
    session: ConnectionSession, record: ConnectionRecord, attempt: Deadline | None = None
) -> tuple[KnownTool, ...]:
    """Request every page of the server's tools.

    Raises:
        LimitExceeded, mcp.MCPError: as for `all_pages`.
    """
    found = await all_pages(session, record, TOOLS, attempt)
    if session.modern:
        found = tuple(_with_valid_headers(found, record))
        session.note_tools(found)
    tools = _each_once(deque(found))
    del found  # so that `_each_once` releases tool by tool, see `_copied`
    known = await known_tools(record.config.name, tools, record.catalog.naming, record.catalog.listed)
    await record.catalog.admission.prepare(known)
    return known


def _each_once(tools: deque[Tool]) -> Iterator[Tool]:
    while tools:
        tool = tools.popleft()
        for member in ("input_schema", "output_schema"):
            if (repaired := with_objects(schema := getattr(tool, member))) is not schema:
                setattr(tool, member, repaired)
        yield tool


def _with_valid_headers(tools: Iterable[Tool], record: ConnectionRecord) -> Iterator[Tool]:
    """Leave out and log tools whose arguments cannot be sent as headers, as the protocol demands of clients."""
    for tool in tools:
        reason = find_invalid_x_mcp_header(tool.input_schema)
        if reason is None:
            yield tool
        else:
            mask = record.session.masker
            what = plain_text(f"tool {mask(tool.name)!r:.80} is left out: {mask(reason)}", limit=300)
            logger.warning("server %r: %s; fix the server", record.config.name, what)


# --- Run middleware around a tool call --------------------------------------------------------------------------------

# Middleware runs in the task of its caller, within a scope that the deadline cancels. Each call that it passes on is a
# message like any other, which may wait in the mailbox and takes no slot before the send.


@define(eq=False, repr=False)
class Around(InTask):
    _request: CallTool
    _deadline: Deadline
    _config: ServerConfig
    _send: Callable[[CallTool], PendingCall[CallToolResult]]
    _translate: Callable[[Exception, CallTool], Exception]

    async def wait(self) -> CallToolResult:
        """Run the middleware, and return its result.

        **Cancellation**: cancels the middleware, as a time-out does.
        """
        request, config = self._request, self._config
        if request.kept is not None:
            request.kept.exposed = True
        given = ToolRequest(server=config.name, name=request.name, arguments=request.arguments, meta=request.meta)
        try:
            with self.scope:
                return await wrapped(self._call_next, config.middleware)(given)
        except Exception as exc:
            if self.error is None:
                if self._deadline.possible_effects and getattr(exc, "outcome", None) == "not_sent":
                    exc.outcome = "unknown"  # type: ignore[attr-defined]  # an earlier call of the middleware was sent
                raise
        error = self.error or self._deadline.keeper.failure(self._deadline)
        self.error: BaseException | None = None
        try:
            raise error
        finally:
            del error  # whose traceback refers to this frame

    async def _call_next(self, given: ToolRequest) -> CallToolResult:
        request, deadline = self._request.changed(given), self._deadline
        if deadline.call is not self:  # the caller has left, but a thread or task of the middleware continues
            what = f"server {self._config.name!r}: {request.operation}: call_next() called after the request had ended"
            raise RuntimeError(f"{what}; nothing was sent; call it within the middleware")
        # `deadline.possible_effects` says whether a later failure may claim that nothing was sent, so every way out
        # counts: an answer, a failure after the send, and a cancellation, after which nothing is known. Otherwise the
        # retry policy would repeat a call that may have had an effect.
        call: PendingCall[CallToolResult] | None = None
        try:
            call = self._send(request)
            self.latest: PendingCall[Any] | None = call
            self.calls.append(call)
            result = await call.wait()
            deadline.possible_effects += 1
            return result
        except Exception as exc:
            failure = self._translate(exc, request)
            unsent = isinstance(failure, NOT_SENT) or getattr(failure, "outcome", "unknown") == "not_sent"
            deadline.possible_effects += call is not None and not unsent
        except BaseException:
            deadline.possible_effects += call is not None
            raise
        finally:
            if call is not None:
                self.calls.remove(call)
                deadline.keeper.wake_waiters()  # a drain may wait for the last message
                if self.calls and self.handed_over:
                    deadline.renew()  # the end of this message stopped the progress timeout of the remaining messages
        try:
            raise failure
        finally:
            del failure  # breaks the reference cycle: its traceback refers to this frame
