"""The base of `ServerRef`: send one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..._tasks import fan_out
from ._caller import Caller
from ._pending import PendingRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernel import ActorRef
    from ..record import ServerRecord
    from ..requests import Request
    from ._lifecycle import ServerEntry

T = TypeVar("T")


class ServerRequests:
    """Sends requests to one server. Each kind of request adds its methods in the file of its messages."""

    def __init__(self, server: ServerEntry, lifecycle: ActorRef) -> None:
        self._record = server.record
        self._caller = Caller(server, lifecycle)

    @property
    def name(self) -> str:
        """The server's configured name."""
        return self._record.config.name

    async def _ask(self, request: Request[T], caller: Caller | None = None) -> T:
        """Send a request and return its result, within the server's `request_timeout` from now on.

        **Cancellation**: leaves at once.

        Raises:
            ServerError, mcp.MCPError: as for `ServerRef.call_tool`.
        """
        with self._record.calls.deadlines.begin(request.operation) as deadline:
            request.deadline = deadline
            return await (caller or self._caller).ask(request, deadline)

    async def _ask_each(self, make: Callable[[], Request[None]]) -> None:
        """Send a request about the session to each connected replica; if the server has none, to the server.

        **Cancellation**: leaves at once.

        Raises:
            ServerError, mcp.MCPError: as for `ServerRef.call_tool`, from the first that fails. The others are asked
                nevertheless.
        """
        failures: list[Exception] = []

        async def ask(record: ServerRecord) -> None:
            try:
                await self._ask(make(), self._caller.at(record))
            except Exception as exc:
                failures.append(exc)

        await fan_out(ask, self._record.sessions, "request")
        if failures:
            raise failures[0]

    def _prepare(self, request: Request[T]) -> PendingRequest[T]:
        """Prepare a request for a caller outside Trio (the asyncio bridge). Its deadline starts now."""
        request.deadline = deadline = self._record.calls.deadlines.begin(request.operation)
        return PendingRequest(self._caller, request, deadline)
