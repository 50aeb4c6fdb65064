"""What can be asked of a server actor: its messages, and how each is carried out on the session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from attrs import evolve, field, frozen
from mcp.types import CallToolResult, Tool

from .._errors import LimitExceeded
from ..config import Middleware, ToolRequest, wrapped
from ..kernel import Call
from ._background import open_background
from ._progress import ProgressFeed
from ._retry import is_repeatable_call

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from ..catalog import ToolChecks
    from ._deadlines import Deadline
    from ._record import ServerRecord

__all__ = ["CallTool", "ListTools", "Request", "list_all_tools"]

T = TypeVar("T")

LAST_NOTICES: Final = 1.0
"""Seconds that an answer waits for the caller's callback to be through with the notices that came before it."""

MAX_PAGES: Final = 1000
"""Pages of one listing. The largest servers list some hundred tools; this only stops a pager that never ends."""


@frozen(kw_only=True)
class Request(Call[T], ABC):
    """A message to a server actor. It carries out itself, in a request task of the actor, on the actor's session.

    Attributes:
        deadline: when it expires. Kept by the server's `Deadlines`, and renewed at each notice of progress.
    """

    deadline: Deadline | None = field(default=None, eq=False, repr=False)

    @property
    @abstractmethod
    def operation(self) -> str:
        """What is asked of the server, in the words of the protocol."""

    def repeatable(self, record: ServerRecord) -> bool:
        """Whether it may be sent again when the server may have acted on it. Lists and reads may."""
        return True

    async def through(self, send: Callable[[Request[T]], Awaitable[T]], middleware: tuple[Middleware, ...]) -> T:
        """Have it sent, through what the user has put around requests of its kind."""
        return await send(self)

    @abstractmethod
    async def send(self, client: Client, record: ServerRecord) -> T:
        """Do it, on the session of this connection.

        **Cancellation**: the SDK tells the server to cancel what was sent.

        Raises:
            mcp.MCPError: the server's answer was an error, or the connection is gone.
        """


@frozen
class CallTool(Request[CallToolResult]):
    """Call a tool, by the name under which the server lists it.

    Attributes:
        tool: which one, and its arguments.
        progress: what is called back at each notice of progress.
        idempotent: whether the caller says that it may be repeated.
        checked_by: what its arguments were checked against; None if they were not yet.
    """

    tool: ToolRequest
    progress: ProgressFnT | None = field(default=None, eq=False)
    idempotent: bool | None = None
    checked_by: ToolChecks | None = field(default=None, eq=False, repr=False)

    @property
    def operation(self) -> str:
        """``tools/call``, and which."""
        return f"tools/call {self.tool.name!r}"

    def repeatable(self, record: ServerRecord) -> bool:
        """If the caller says so, or, when he says nothing, a server that is trusted."""
        annotations = next((tool.annotations for tool in record.tools if tool.name == self.tool.name), None)
        return is_repeatable_call(
            idempotent=self.idempotent, trusted=record.config.trust_annotations, annotations=annotations
        )

    async def through(
        self, send: Callable[[Request[CallToolResult]], Awaitable[CallToolResult]], middleware: tuple[Middleware, ...]
    ) -> CallToolResult:
        """Have it sent, through all middleware."""

        async def call(request: ToolRequest) -> CallToolResult:
            return await send(evolve(self, tool=request))

        return await wrapped(call, middleware)(self.tool)

    async def send(self, client: Client, record: ServerRecord) -> CallToolResult:
        """``tools/call``, between the checks of its arguments and of its result.

        Raises:
            InvalidArguments, InvalidResult: a check has found something.
            mcp.MCPError: as for `Request.send`.
        """
        config, arguments = record.config, self.tool.arguments
        if self.checked_by is not record.checks:
            # Nothing was known about the tool when it was called, or another listing; or middleware comes first.
            arguments = record.checks.check_arguments(self.tool.name, arguments)
        if self.progress is None and config.progress_timeout is None:
            result = await self._call(client, arguments, None)
        else:
            result = await self._call_with_progress(client, arguments, config.name)
        record.checks.check_result(self.tool.name, result)
        return result

    def _call(
        self, client: Client, arguments: Mapping[str, Any] | None, progress: ProgressFnT | None
    ) -> Awaitable[CallToolResult]:
        tool = self.tool
        return client.call_tool(
            tool.name,
            None if arguments is None else dict(arguments),
            progress_callback=progress,
            meta=None if tool.meta is None else dict(tool.meta),  # type: ignore[arg-type]  # a TypedDict, open to more
        )

    async def _call_with_progress(
        self, client: Client, arguments: Mapping[str, Any] | None, server: str
    ) -> CallToolResult:
        """Call; at each notice renew the deadline and call the caller back, for the last time before the answer."""
        feed = ProgressFeed(server, self.progress) if self.progress is not None else None

        async def notice(progress: float, total: float | None, message: str | None) -> None:
            if self.deadline is not None:
                self.deadline.renew()
            if feed is not None:
                await feed.put(progress, total, message)

        if feed is None:
            return await self._call(client, arguments, notice)
        async with open_background() as background:
            background.start_soon(feed.run, name=f"{server}:progress")
            result = await self._call(client, arguments, notice)
            if self.deadline is not None:
                self.deadline.suspend()  # the server has answered
            with trio.move_on_after(LAST_NOTICES):
                await feed.finish()
            return result


@frozen
class ListTools(Request[tuple[Tool, ...]]):
    """List all tools, all pages of them, and remember them."""

    @property
    def operation(self) -> str:
        """``tools/list``."""
        return "tools/list"

    async def send(self, client: Client, record: ServerRecord) -> tuple[Tool, ...]:
        """``tools/list``, as often as there are pages."""
        tools = await list_all_tools(client, record.config.name)
        record.note_tools(tools)
        return tools


async def list_all_tools(client: Client, server: str) -> tuple[Tool, ...]:
    """Ask the server for its tools, page by page; a server without the tools capability has none.

    Raises:
        LimitExceeded: the pages do not end.
        mcp.MCPError: as for `Request.send`.
    """
    if client.server_capabilities.tools is None:
        return ()
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tuple(tools)
    raise LimitExceeded(
        f"server {server!r}: its tool list did not end after {MAX_PAGES} pages; the server repeats itself, and has "
        "to be mended",
        server=server,
    )
