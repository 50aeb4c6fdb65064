"""The messages that call and list tools, and middleware around a call.

`CallTool` checks its arguments and its result by the catalogue of the record; if a modern server refuses its headers,
it lists the tools again. `ListTools` offers its list to the catalogue, which decides what it shows, and returns copies.
`list_all_tools` requests and hashes all tools. `Around`, the last part, runs the program's middleware around a call.

Refs send `CallTool` and `ListTools`, the latter also a task of the connection, and run an `Around` in the task of its
caller; the actor calls `list_all_tools`. They note the tools of a modern server in the session, and log the tools that
are left out for their headers. The file uses ``_admission``, ``_rules`` and ``_deadlines``, and starts no task itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    from .._session import Session
    from ..record import ConnectionRecord, ServerRecord


logger = Log("mcp_actors.servers")

MAX_NAMED: Final = 20
"""The number of tools that an error names."""


@define(eq=False)
class CallTool(PlainRequest[CallToolResult]):
    """Call a tool by the name under which the server lists it.

    Attributes:
        name: the tool's name.
        arguments: its arguments.
        idempotent: whether the caller allows it to be repeated; None leaves that to the tool's annotations.
        checked_by: the checks that its arguments passed; None if they were not checked yet.
        deferred: whether the tool was only remembered when it was called. Then the server must still list it.
    """

    is_tool_call: ClassVar[bool] = True
    method: ClassVar[str] = "tools/call"
    model: ClassVar[type[CallToolResult]] = CallToolResult

    name: str
    arguments: Mapping[str, Any] | None
    meta: Mapping[str, Any] | None  # positional here and below, which costs every call less
    progress: ProgressCallback | None
    idempotent: bool | None
    checked_by: ToolChecks | None = field(repr=False)
    deferred: bool

    @property
    def operation(self) -> str:
        """``tools/call`` and the tool's name."""
        return f"tools/call {self.name!r}"

    def repeatable(self, record: ServerRecord) -> bool:
        """Return whether the caller allows it or, if the caller does not say, the annotations of a trusted server."""
        listed = self._listed(record)
        return is_repeatable_call(
            idempotent=self.idempotent,
            trusted=record.config.trust_annotations,
            annotations=None if listed is None else listed.annotations,
        )

    def suggestion(self, record: ServerRecord) -> str | None:
        """Return the listed names that are nearest to that of a tool which the server does not list."""
        shown = [each.name for each in record.catalog.tools]
        if not shown or record.catalog.lists(self.name):
            return None
        own = [each for each in shown if self.name.endswith((f"__{each}", f"/{each}"))]  # after that of the server
        near = " or ".join(map(repr, own[:3])) or _nearest(self.name, shown)
        hint = f"did you mean {near}?" if near else f"its other tools: {len(shown)}"
        return plain_text(f"server {record.config.name!r} does not list a tool {self.name!r:.80}; {hint}")

    def _listed(self, record: ServerRecord | ConnectionRecord) -> Tool | None:
        return next((each.tool for each in record.catalog.tools if each.name == self.name), None)

    def changed(self, by: ToolRequest) -> CallTool:
        """Return the call that a middleware lets go on in place of this one."""
        # Only the tool that was called can be a remembered one, not one that a middleware calls instead.
        deferred, options = self.deferred and by.name == self.name, (self.progress, self.idempotent)
        changed = CallTool(by.name, by.arguments, by.meta, *options, None, deferred, deadline=self.deadline)
        changed.passing, changed.kept = self.passing, self.kept
        return changed

    @property
    def target(self) -> str:
        """The tool."""
        return self.name

    def check(self, session: Session, record: ConnectionRecord) -> None:
        """Check that the tool may be called, and the arguments unless that was done with the present listing.

        Raises:
            ToolNotFound: the tool was only remembered and is not listed any more; or it is hidden.
            InvalidArguments: the arguments are not valid for the tool.
        """
        if self.deferred and self._listed(record) is None:
            raise _gone(self.name, record)
        if self.checked_by is not (checks := record.catalog.checks):
            # The listing or what is admitted of it has changed since the call, or a middleware may have changed that.
            self.prepare(record, checks)

    def prepare(self, record: ServerRecord | ConnectionRecord, checks: ToolChecks) -> None:
        """Check that the tool may be called, check the arguments, and write them.

        Raises:
            ToolNotFound, InvalidArguments: as for `check`.
        """
        record.catalog.admission.check_call(self.name)
        self.arguments, text = checks.written(self.name, self.arguments)
        self.checked_by, self.members = checks, None
        if text is not None and (self.passing is None or not self.passing.answers):  # else all is written at the send
            self.members = b'"name":%b,"arguments":%b' % (to_json(self.name), text)

    def given(self) -> Json:
        """Return the name and the arguments."""
        return {"name": self.name} if self.arguments is None else {"name": self.name, "arguments": self.arguments}

    def explain(self, error: MCPError, record: ConnectionRecord) -> Exception:
        """Return `NotSupported` for a tool that must be run as a task."""
        if error.code != METHOD_NOT_FOUND or (listed := self._listed(record)) is None:
            return super().explain(error, record)
        if listed.execution is None or listed.execution.task_support != "required":
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
        """Return the content of the result."""
        content: list[dict[str, Any]] = result["content"]
        return content

    def finish(self, value: CallToolResult, record: ConnectionRecord) -> CallToolResult:
        """Check the result against the schema of the tool. A request for input has none.

        Raises:
            InvalidResult: it does not match.
        """
        if isinstance(value, CallToolResult):
            record.catalog.checks.check_result(self.name, value)
        return value

    def read_openly(self, session: Session, result: Json) -> Any:
        """Return the result; an empty array is an empty object if the tool returns objects."""
        if result.get("structuredContent") == [] and self.name in session.return_objects:
            result["structuredContent"] = {}
        return super().read_openly(session, result)

    async def learn_headers(self, session: Session, record: ConnectionRecord, refusal: MCPError) -> bool:
        """List the tools again: the schema of this one may have changed, or was not known."""
        if not session.modern:
            return False
        try:
            session.note_tools(
                tuple(_with_valid_headers(await all_pages(session, record, TOOLS, self.deadline), record))
            )
        except (MCPError, LimitExceeded, ValidationError) as exc:
            raise refusal from exc
        return True


def _gone(name: str, record: ConnectionRecord) -> ToolNotFound:
    """Return the error for a remembered tool that the server does not list any more."""
    server, known = record.config.name, [tool.name for tool in record.catalog.tools]
    near = _nearest(name, known)
    hint = f"did you mean {near}? " if near else ""
    return ToolNotFound(
        f"server {server!r}: tool {name!r}, remembered from an earlier run, not found; nothing was sent; "
        f"{hint}its tools are now: {some_of(known, MAX_NAMED) or 'none'}",
        server=server,
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    """Return the names that are nearly this one, or nothing."""
    return " or ".join(map(repr, nearest(name, known, 3)))


TOOLS: Final[Kind[ListToolsResult, Tool]] = Kind(
    "tools/list", "tools", "tools", lambda can: can.tools, lambda page: page.tools
)


@define(eq=False)
class ListTools(Request[tuple[Tool, ...]]):
    """List all pages of the server's tools, and update the catalogue."""

    operation: ClassVar[str] = "tools/list"

    async def send(self, session: Session, record: ConnectionRecord) -> tuple[Tool, ...]:
        """Request every page and offer the result to the catalogue."""
        ticket = record.catalog.begin()
        tools = await list_all_tools(session, record, self.deadline)
        record.catalog.offer(ticket, tools)
        admissible = deque(record.catalog.admission.admissible(tools))
        del tools  # see `_copied`
        return await _copied(admissible)


async def _copied(tools: deque[KnownTool]) -> tuple[Tool, ...]:
    """Return copies of tools, so that callers cannot change the catalogue's.

    Each tool is released once it was copied: to release thousands that the catalogue does not keep is a long step.
    """
    copies, time_slice = list[Tool](), TimeSlice()
    while tools:
        copies.append(tools.popleft().tool.model_copy(deep=True))
        await time_slice.checkpoint()
    return tuple(copies)


async def list_all_tools(
    session: Session, record: ConnectionRecord, attempt: Deadline | None = None
) -> tuple[KnownTool, ...]:
    """Request every page of the server's tools; return nothing if it has no tools capability.

    Raises:
        LimitExceeded: the list has too many pages, or is too large altogether.
        mcp.MCPError: as for `Request.send`.
    """
    found = await all_pages(session, record, TOOLS, attempt)
    if session.modern:
        found = tuple(_with_valid_headers(found, record))
        session.note_tools(found)
    tools = _each_once(deque(found))
    del found  # see `_each_once`
    known = await known_tools(record.config.name, tools, record.catalog.naming, record.catalog.listed)
    await record.catalog.admission.prepare(known)
    return known


def _each_once(tools: deque[Tool]) -> Iterator[Tool]:
    """Yield each tool with readable schemas, and release it: to release thousands that were known is a long step."""
    while tools:
        tool = tools.popleft()
        for member in ("input_schema", "output_schema"):
            if (mended := with_objects(schema := getattr(tool, member))) is not schema:
                setattr(tool, member, mended)
        yield tool


def _with_valid_headers(tools: Iterable[Tool], record: ConnectionRecord) -> Iterator[Tool]:
    """Leave out, and log, the tools that a client must ignore because it cannot send their arguments as headers."""
    for tool in tools:
        reason = find_invalid_x_mcp_header(tool.input_schema)
        if reason is None:
            yield tool
        else:
            mask = record.session.masker
            what = plain_text(f"tool {mask(tool.name)!r:.80} is left out: {mask(reason)}", limit=300)
            logger.warning("server %r: %s; fix the server", record.config.name, what)


# --- Run middleware around a tool call --------------------------------------------------------------------------------

# It runs in the task of its caller, within a scope by which the deadline cancels it. Each call that it lets go on is a
# message like any other: it may wait in the mailbox, return there unnoticed, and take no slot before it is sent.


class Around(InTask):
    """An attempt to call a tool through the middleware of its server.

    Args:
        request: the call.
        deadline: its deadline.
        config: the configuration of the server.
        send: sends a call that the middleware lets go on.
        translate: translates an error of the kernel.
    """

    def __init__(
        self,
        request: CallTool,
        deadline: Deadline,
        config: ServerConfig,
        send: Callable[[CallTool], PendingCall[CallToolResult]],
        translate: Callable[[Exception, CallTool], Exception],
    ) -> None:
        super().__init__()
        self._request, self._deadline, self._config = request, deadline, config
        self._send, self._translate = send, translate

    async def wait(self) -> CallToolResult:
        """Run the middleware, and return its result.

        **Cancellation**: cancels the middleware, as a time-out does.

        Raises:
            Exception: the middleware raised it, or the end of the request was decided.
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
                if self._deadline.begun and getattr(exc, "outcome", None) == "not_sent":
                    exc.outcome = "unknown"  # type: ignore[attr-defined]  # this call was not sent, but one before it
                raise
        error, self.error = self.error or self._deadline.keeper.failure(self._deadline), None
        try:
            raise error
        finally:
            del error  # whose traceback refers to this frame

    async def _call_next(self, given: ToolRequest) -> CallToolResult:
        """Send a call like any other, and return its result."""
        request, deadline = self._request.changed(given), self._deadline
        if deadline.call is not self:  # its caller has left, and a thread or a task that it began has not
            what = f"server {self._config.name!r}: {request.operation}: call_next() called after the request had ended"
            raise RuntimeError(f"{what}; nothing was sent; call it within the middleware")
        call: PendingCall[CallToolResult] | None = None
        try:
            self.latest = call = self._send(request)
            self.calls.append(call)
            result = await call.wait()
            deadline.begun += 1
            return result
        except Exception as exc:
            failure = self._translate(exc, request)
            unsent = isinstance(failure, NOT_SENT) or getattr(failure, "outcome", "unknown") == "not_sent"
            deadline.begun += call is not None and not unsent
        except BaseException:
            deadline.begun += call is not None  # it was cancelled, and may have been sent
            raise
        finally:
            if call is not None:
                self.calls.remove(call)
                deadline.keeper.settled()  # a connection may wait until it has no message any more
                if self.handed_over:
                    deadline.renew()  # the end of this message has stopped the time without progress of the others
        try:
            raise failure
        finally:
            del failure  # breaks the reference cycle: its traceback refers to this frame
