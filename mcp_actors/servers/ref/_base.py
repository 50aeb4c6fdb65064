"""The base of `ServerRef`: send one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ._caller import Caller
from ._pending import PendingRequest

if TYPE_CHECKING:
    from ...kernel import ActorRef
    from ..requests import Request
    from ._lifecycle import ServerEntry

__all__ = ["ServerRequests"]

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

    async def _ask(self, request: Request[T]) -> T:
        """Send a request and return its result, within the server's `request_timeout` from now on.

        **Cancellation**: leaves at once.

        Raises:
            ServerError, mcp.MCPError: as for `ServerRef.call_tool`.
        """
        with self._record.calls.deadlines.begin(request.operation) as deadline:
            request.deadline = deadline
            return await self._caller.ask(request, deadline)

    def _prepare(self, request: Request[T]) -> PendingRequest[T]:
        """Prepare a request for a caller outside Trio (the asyncio bridge). Its deadline starts now."""
        request.deadline = deadline = self._record.calls.deadlines.begin(request.operation)
        return PendingRequest(self._caller, request, deadline)
