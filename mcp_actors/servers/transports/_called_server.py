"""Connect to a modern server in this process by calling its handler.

There are no messages: the handler runs in the task of the caller, and the cancellation of that task reaches it. What it
sends besides its result is handled in the same step and the same context variables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
from mcp import MCPError
from mcp.server.runner import modern_on_request
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, JSONRPCNotification
from pydantic_core import ValidationError

from ..._collapse import is_failure
from ..._foreign import Log
from ._link import Lifeline, Link
from .wire import RequestTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server import Server
    from mcp.shared.dispatcher import CallOptions, OnRequest
    from mcp.types import RequestId

    from .wire import Exchange, Json, Receive, Unanswered

logger = Log("mcp_actors.servers")

DIRECT: Final = TransportContext(kind="direct", can_send_request=False)
"""The name that the SDK gives to this way. A modern server sends no requests."""


class CalledServerLink(Link):
    """A link to a server object whose handler runs in the task of the caller.

    Args:
        name: the configured name of the server.
        endpoint: the server object, as messages show it.
        handle: its handler.
        lifeline: the state of the connection.
    """

    traced = False

    def __init__(self, name: str, endpoint: str, handle: OnRequest, lifeline: Lifeline) -> None:
        super().__init__(lifeline)
        self.endpoint = endpoint
        self.table = RequestTable()
        self._name = name
        self._handle = handle

    async def exchange(self, request: Exchange, receive: Receive) -> Json:
        """See `Link.exchange`."""
        request.sent = True
        try:
            return await self._handle(_Call(request, receive), request.method, request.params)
        except MCPError:
            raise
        except ValidationError as exc:
            raise MCPError(INVALID_PARAMS, "Invalid request parameters", "") from exc
        except Exception:
            logger.exception("server %r: its handler of %s raised", self._name, request.method)
            raise MCPError(INTERNAL_ERROR, "Internal server error") from None
        except BaseException as exc:
            if not is_failure(exc):
                raise
            # Such as asyncio's CancelledError. It would end the connection and all its other requests.
            reason = f"the in-process server raised {type(exc).__name__}: {exc}"
            raise MCPError(INTERNAL_ERROR, reason) from self.masker.clean(exc)

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """Drop a message: such a server takes requests only."""
        await trio.lowlevel.checkpoint()

    async def read(self, receive: Receive) -> None:
        """See `Link.read`. The server sends nothing outside of an exchange."""
        await trio.sleep_forever()


class _Call:
    """The `DispatchContext` of one request: what its handler sees of its caller."""

    __slots__ = ("_event", "_receive", "_request")

    transport: TransportContext = DIRECT
    can_send_request: bool = False
    message_metadata: None = None

    def __init__(self, request: Exchange, receive: Receive) -> None:
        self._request = request
        self._receive = receive
        self._event: anyio.Event | None = None

    @property
    def request_id(self) -> RequestId | None:
        """The id of the request."""
        return self._request.id

    @property
    def cancel_requested(self) -> anyio.Event:
        """An event that is never set: the cancellation itself reaches the handler."""
        if self._event is None:
            self._event = anyio.Event()
        return self._event

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could tear the tables of the actor
    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Pass a notification on. A checkpoint, because a handler may send without end."""
        await trio.lowlevel.checkpoint()
        await self._receive(
            JSONRPCNotification(jsonrpc="2.0", method=method, params=None if params is None else dict(params))
        )

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Refuse: a modern server returns its questions instead of an answer."""
        raise NoBackChannelError(method)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the request has a token for it."""
        if (token := self._request.params.get("_meta", {}).get("progressToken")) is None:
            return
        report = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {key: each for key, each in report.items() if each is not None})


@asynccontextmanager
async def open_called_link(name: str, server: Server[Any], lifeline: Lifeline) -> AsyncIterator[CalledServerLink]:
    """Enter the lifespan of a server around a block."""
    async with server.lifespan(server) as state:
        endpoint = f"the in-process server {server.name!r}"
        yield CalledServerLink(name, endpoint, modern_on_request(server, state), lifeline)
