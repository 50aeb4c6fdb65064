"""The messages that call and list tools, and middleware around a call.

`CallTool` checks its arguments and its result by the catalogue of the record; if a modern server refuses its headers,
it lists the tools again. `ListTools` offers its list to the catalogue, which decides what it shows, and returns copies.
`list_all_tools` requests and hashes all tools. `send_through`, the last part, sends a request through the program's
middleware; a request that was not sent is requeued only if nothing of it was sent before and the middleware lets that
very error pass.

Refs send `CallTool` and `ListTools`, the latter also a task of the connection; the actor calls `list_all_tools` and
`send_through`. They note the tools of a modern server in the session, and log the tools that are left out for their
headers. The file uses ``_admission`` and ``_rules``, and starts no task itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from attrs import define, evolve, field
from mcp import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.types import METHOD_NOT_FOUND, CallToolResult, ListToolsResult, Tool
from pydantic_core import ValidationError, to_json

from ..._collapse import caused_by
from ..._errors import ConnectionLost, LimitExceeded, NotSupported, ToolNotFound
from ..._foreign import Log
from ..._misuse import nearest
from ..._tasks import TimeSlice
from ..._text import plain_text
from ...config import Middleware, ProgressCallback, ToolRequest, wrapped
from ...kernel import NotSent
from .._admission import known_tools
from .._rules import is_repeatable_call
from ._lists import Kind, all_pages
from ._request import PlainRequest, Request, members_of

if TYPE_CHECKING:
    from ...catalog import ToolChecks
    from ...transports import Json
    from .._admission import KnownTool
    from .._session import Session
    from ..record import ServerRecord


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

    def _listed(self, record: ServerRecord) -> Tool | None:
        return next((each.tool for each in record.catalog.tools if each.name == self.name), None)

    async def through(
        self,
        send: Callable[[Request[CallToolResult]], Awaitable[CallToolResult]],
        middleware: tuple[Middleware, ...],
        server: str,
    ) -> CallToolResult:
        """Send the call through all middleware."""

        async def call(request: ToolRequest) -> CallToolResult:
            # Only the tool that was called can be a remembered one, not one that a middleware calls instead.
            name, arguments = request.name, request.arguments
            deferred = self.deferred and name == self.name
            changed = evolve(self, name=name, arguments=arguments, meta=request.meta, deferred=deferred, members=None)
            changed.passing, changed.kept = self.passing, self.kept
            return await send(changed)

        if self.kept is not None:
            self.kept.exposed = True
        request = ToolRequest(server=server, name=self.name, arguments=self.arguments, meta=self.meta)
        return await wrapped(call, middleware)(request)

    @property
    def target(self) -> str:
        """The tool."""
        return self.name

    def check(self, session: Session, record: ServerRecord) -> None:
        """Check that the tool may be called, and the arguments unless that was done with the present listing.

        Raises:
            ToolNotFound: the tool was only remembered and is not listed any more; or it is hidden.
            InvalidArguments: the arguments are not valid for the tool.
        """
        if self.deferred and self._listed(record) is None:
            raise _gone(self.name, record)
        if self.checked_by is not (checks := record.catalog.checks):
            # The listing or what is admitted of it has changed since the call, or a middleware may have changed that.
            record.catalog.admission.check_call(self.name)
            self.arguments = checks.check_arguments(self.name, self.arguments)
            self.checked_by = checks
            self.rewrite()

    def given(self) -> Json:
        """Return the name and the arguments."""
        return {"name": self.name} if self.arguments is None else {"name": self.name, "arguments": self.arguments}

    def explain(self, error: MCPError, record: ServerRecord) -> Exception:
        """Return `NotSupported` for a tool that must be run as a task."""
        if error.code != METHOD_NOT_FOUND or (listed := self._listed(record)) is None:
            return error
        if listed.execution is None or listed.execution.task_support != "required":
            return error
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

    def finish(self, value: CallToolResult, record: ServerRecord) -> CallToolResult:
        """Check the result against the schema of the tool. A request for input has none.

        Raises:
            InvalidResult: it does not match.
        """
        if isinstance(value, CallToolResult):
            record.catalog.checks.check_result(self.name, value)
        return value

    async def learn_headers(self, session: Session, record: ServerRecord, refusal: MCPError) -> bool:
        """List the tools again: the schema of this one may have changed, or was not known."""
        if not session.modern:
            return False
        try:
            session.note_tools(tuple(_with_valid_headers(await all_pages(session, record, TOOLS), record)))
        except (MCPError, LimitExceeded, ValidationError) as exc:
            raise refusal from exc
        return True


def members_of_call(name: str, arguments: Mapping[str, Any] | None, text: bytes | None) -> bytes | None:
    """Return the members of the params of a call, see `members_of`.

    Args:
        name: the tool's name.
        arguments: its arguments.
        text: its arguments as JSON, if they were written already.
    """
    if text is not None:
        return b'"name":%b,"arguments":%b' % (to_json(name), text)
    return members_of({"name": name} if arguments is None else {"name": name, "arguments": arguments})


def _gone(name: str, record: ServerRecord) -> ToolNotFound:
    """Return the error for a remembered tool that the server does not list any more."""
    server, known = record.config.name, [tool.name for tool in record.catalog.tools]
    near = _nearest(name, known)
    shown = ", ".join(map(repr, known[:MAX_NAMED])) or "none"
    more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
    hint = f"did you mean {near}? " if near else ""
    return ToolNotFound(
        f"server {server!r}: tool {name!r}, remembered from an earlier run, not found; nothing was sent; "
        f"{hint}its tools are now: {shown}{more}",
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

    async def send(self, session: Session, record: ServerRecord) -> tuple[Tool, ...]:
        """Request every page and offer the result to the catalogue."""
        ticket = record.catalog.begin()
        tools = await list_all_tools(session, record)
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


async def list_all_tools(session: Session, record: ServerRecord) -> tuple[KnownTool, ...]:
    """Request every page of the server's tools; return nothing if it has no tools capability.

    Raises:
        LimitExceeded: the list has too many pages, or is too large altogether.
        mcp.MCPError: as for `Request.send`.
    """
    found = await all_pages(session, record, TOOLS)
    if session.modern:
        found = tuple(_with_valid_headers(found, record))
        session.note_tools(found)
    tools = _each_once(deque(found))
    del found  # see `_each_once`
    known = await known_tools(record.config.name, tools, record.catalog.naming, record.catalog.listed)
    await record.catalog.admission.prepare(known)
    return known


def _each_once(tools: deque[Tool]) -> Iterator[Tool]:
    """Yield each tool, and release it: to release thousands that were known already is a long step."""
    while tools:
        yield tools.popleft()


def _with_valid_headers(tools: Iterable[Tool], record: ServerRecord) -> Iterator[Tool]:
    """Leave out, and log, the tools that a client must ignore because it cannot send their arguments as headers."""
    for tool in tools:
        reason = find_invalid_x_mcp_header(tool.input_schema)
        if reason is None:
            yield tool
        else:
            mask = record.session.masker
            what = plain_text(f"tool {mask(tool.name)!r:.80} is left out: {mask(reason)}", limit=300)
            logger.warning("server %r: %s; fix the server", record.config.name, what)


# --- Send a tool call through middleware, and requeue it if needed ----------------------------------------------------

# Without middleware, the kernel's signal `NotSent` puts an unsent call back into its place in the mailbox, unnoticed by
# the caller. Middleware is the user's code: it cannot know that signal, and may send a call more than once. It
# therefore sees a `ConnectionLost` with ``outcome="not_sent"``. The call is requeued only if that very error leaves the
# middleware and nothing of the call was sent before, because the whole middleware then runs again.


T = TypeVar("T")


async def send_through(
    middleware: tuple[Middleware, ...], request: Request[T], send: Callable[[Request[T]], Awaitable[T]], server: str
) -> T:
    """Send a request through middleware.

    Raises:
        NotSent: the request was not sent, and the middleware let that error pass.
        Exception: `send` or a middleware raised it.
    """
    sent = 0
    unsent: list[ConnectionLost] = []

    async def send_on(request: Request[T]) -> T:
        nonlocal sent
        sent += 1
        try:
            return await send(request)
        except NotSent:
            sent -= 1
            unsent.append(_lost_unsent(server, request.operation, again=sent > 0))
        raise unsent[-1]

    try:
        return await request.through(send_on, middleware, server)
    except ConnectionLost as exc:
        if sent or not any(exc is each for each in unsent):
            raise
    finally:
        unsent.clear()  # breaks the reference cycle: their tracebacks refer to this frame
    raise NotSent


def _lost_unsent(server: str, operation: str, *, again: bool) -> ConnectionLost:
    """Return the error for a call that was not sent, or not sent again."""
    if again:
        return ConnectionLost(
            f"server {server!r}: connection lost before {operation} was sent again; the earlier attempts of a "
            "middleware may have taken effect",
            server=server,
        )
    return ConnectionLost(
        f"server {server!r}: connection lost before {operation} was sent; re-raise it in the middleware, and the "
        "call waits for the next connection",
        server=server,
        outcome="not_sent",
    )
