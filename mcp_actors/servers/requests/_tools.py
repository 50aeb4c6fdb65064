"""The messages that call and list tools."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio
from attrs import define, evolve, field
from mcp import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.types import METHOD_NOT_FOUND, CallToolResult, ListToolsResult, Tool
from pydantic_core import to_json

from ..._collapse import caused_by
from ..._errors import NotSupported, ToolNotFound
from ..._foreign import Log
from ..._misuse import nearest
from ..._plain_text import plain_text
from ...config import Middleware, ProgressCallback, ToolRequest, wrapped
from ..basics import TimeSlice, open_background
from ..policy import is_modern, is_repeatable_call
from ..tools import known_tools
from ._pages import Kind, ListRequest, PastSession, all_pages
from ._plain import PlainRequest, members_of
from ._progress import ProgressFeed
from ._request import Request, meta_for, needs_meta

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import InputRequiredResult, InputResponses

    from ...catalog import ToolChecks
    from ..record import ServerRecord
    from ..tools import KnownTool

logger = Log("mcp_actors.servers")

LAST_NOTICES: Final = 1.0
"""Seconds that an answer waits for the caller's progress callback to handle the notifications before it."""

MAX_NAMED: Final = 20
"""The number of tools that an error names."""


@define(eq=False)
class CallTool(PlainRequest[CallToolResult]):
    """Call a tool by the name under which the server lists it.

    Attributes:
        name: the tool's name.
        arguments: its arguments.
        meta: the request's ``_meta``.
        progress: called at each progress notification.
        idempotent: whether the caller allows it to be repeated; None leaves that to the tool's annotations.
        checked_by: the checks that its arguments passed; None if they were not checked yet.
        members: its name and arguments as the members of a JSON object; None if they are only sent by the session.
        deferred: whether the tool was only remembered when it was called. Then the server must still list it.
    """

    is_tool_call: ClassVar[bool] = True
    method: ClassVar[str] = "tools/call"
    model: ClassVar[type[CallToolResult]] = CallToolResult

    name: str
    arguments: Mapping[str, Any] | None
    meta: Mapping[str, Any] | None
    progress: ProgressCallback | None
    idempotent: bool | None
    checked_by: ToolChecks | None = field(repr=False)
    members: bytes | None = field(repr=False)
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
        if not shown or any(each.name == self.name for each in record.catalog.listed):
            return None
        near = _nearest(self.name, shown)
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
            return await send(evolve(self, name=name, arguments=arguments, meta=request.meta, deferred=deferred))

        request = ToolRequest(server=server, name=self.name, arguments=self.arguments, meta=self.meta)
        return await wrapped(call, middleware)(request)

    def plain(self, client: Client, record: ServerRecord) -> bytes | None:
        """Return the name and the arguments, unless something else than the answer is to be waited for or checked.

        Raises:
            ToolNotFound: the tool is hidden.
        """
        config, checks = record.config, record.catalog.checks
        if (
            self.progress is not None
            or self.deferred
            or self.checked_by is not checks
            or checks.checks_result_of(self.name)
            or config.progress_timeout is not None
            or config.extensions
            or needs_meta(client, record)
        ):
            return None
        record.catalog.admission.check_call(self.name)
        return self.members

    def explain(self, error: MCPError, record: ServerRecord) -> Exception:
        """Return `NotSupported` for a tool that must be run as a task."""
        if error.code == METHOD_NOT_FOUND and self._needs_a_task(record):
            return caused_by(self._not_as_a_task(record.config.name), error)
        return error

    @contextmanager
    def _explaining(self, record: ServerRecord) -> Iterator[None]:
        """Raise what `explain` returns for an error of the server."""
        try:
            yield
        except MCPError as exc:
            explained = self.explain(exc, record)
            raise explained from explained.__cause__

    def blocks(self, result: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the content of the result."""
        content: list[dict[str, Any]] = result["content"]
        return content

    async def resume(
        self, client: Client, record: ServerRecord, answers: InputResponses | None, state: str | None
    ) -> CallToolResult | InputRequiredResult:
        """Call the tool once more, with the input that it required."""
        name, arguments = self.name, self.arguments
        given = None if arguments is None else dict(arguments)
        with self._explaining(record):
            return await client.session.call_tool(
                name, given, input_responses=answers, request_state=state, allow_input_required=True
            )

    async def send(self, client: Client, record: ServerRecord) -> CallToolResult:
        """Check the arguments, send ``tools/call`` and check the result.

        Raises:
            ToolNotFound: the tool was only remembered and is not listed any more; or it is hidden.
            InvalidArguments, InvalidResult: a check failed.
            mcp.MCPError: as for `Request.send`.
        """
        config, arguments = record.config, self.arguments
        record.catalog.admission.check_call(self.name)
        if self.deferred and self._listed(record) is None:
            raise _gone(self.name, record)
        if self.checked_by is not record.catalog.checks:
            # The listing has changed since the call, was unknown then, or a middleware may have changed the arguments.
            arguments = record.catalog.checks.check_arguments(self.name, arguments)
        meta = meta_for(client, record, self.meta)
        call = partial(client.call_tool, self.name, None if arguments is None else dict(arguments), meta=meta)
        with self._explaining(record):
            if self.progress is None and config.progress_timeout is None:
                result = await call()
            else:
                result = await self._call_with_progress(call, config.name)
        record.catalog.checks.check_result(self.name, result)
        return result

    async def _call_with_progress(self, call: Callable[..., Awaitable[CallToolResult]], server: str) -> CallToolResult:
        """Call the tool; renew the deadline and run the caller's callback at each progress notification.

        The callback has seen every notification, or `LAST_NOTICES` seconds are over, before the result is returned.
        """
        feed = ProgressFeed(server, self.progress) if self.progress is not None else None

        async def notice(progress: float, total: float | None, message: str | None) -> None:
            if self.deadline is not None:
                self.deadline.renew()
            if feed is not None:
                feed.notify(progress, total, message)

        if feed is None:
            return await call(progress_callback=notice)
        async with open_background() as background:
            background.start_soon(feed.run, name=f"{server}:progress")
            result = await call(progress_callback=notice)
            if self.deadline is not None:
                self.deadline.suspend()  # the server has answered; a slow callback must not make it time out
            with trio.move_on_after(LAST_NOTICES):
                await feed.wait_idle()
            return result

    def _needs_a_task(self, record: ServerRecord) -> bool:
        listed = self._listed(record)
        return listed is not None and listed.execution is not None and listed.execution.task_support == "required"

    def _not_as_a_task(self, server: str) -> NotSupported:
        return NotSupported(
            f"server {server!r}: tool {self.name!r:.80} requires task execution (execution.task_support is "
            "'required'), which is not supported; use another tool, or a client that supports tasks",
            server=server,
            capability="tasks",
        )


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
    "tools/list", "tools", "tools", lambda can: can.tools, lambda client: client.list_tools, lambda page: page.tools
)


@define(eq=False)
class ListTools(ListRequest[tuple[Tool, ...]]):
    """List all pages of the server's tools, and update the catalogue."""

    operation: ClassVar[str] = "tools/list"

    async def send_past(self, client: Client, record: ServerRecord, past: PastSession | None) -> tuple[Tool, ...]:
        """Request every page and offer the result to the catalogue."""
        ticket = record.catalog.begin()
        tools = await list_all_tools(client, record, past)
        # A change notification may have arrived in the same read as the last page. One checkpoint lets its task run
        # first, so that the catalogue knows this answer to be outdated.
        await trio.lowlevel.checkpoint()
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


async def list_all_tools(client: Client, record: ServerRecord, past: PastSession | None) -> tuple[KnownTool, ...]:
    """Request every page of the server's tools; return nothing if it has no tools capability.

    Raises:
        LimitExceeded: the list has too many pages, or is too large altogether.
        mcp.MCPError: as for `Request.send`.
    """
    tools: Iterable[Tool] = _each_once(deque(await all_pages(client, record, past, TOOLS)))
    if is_modern(client.protocol_version):
        tools = _with_valid_headers(tools, record)
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
