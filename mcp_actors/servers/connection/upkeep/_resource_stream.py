"""One stream per subscription, over which a modern server announces changed resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from attrs import define, field
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated
from mcp.types import INTERNAL_ERROR

from ...._errors import ConnectionLost, NotSupported
from ....config import mask_url
from ....transports import current_trace, open_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....transports import RequestTrace
    from ...record import Subscription
    from ...session import Session


@define(eq=False)
class ResourceStream:
    """The stream of one subscription, and the task that keeps it open.

    Attributes:
        server: the name of the server.
        session: the session of the connection.
        subscription: the subscription.
        on_end: called when the stream has ended, whichever side has closed it.
        scope: the scope of the task; cancel it to close the stream.
        opened: set when the server has accepted or refused the stream.
    """

    server: str
    session: Session
    subscription: Subscription
    on_end: Callable[[ResourceStream], None]
    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    opened: trio.Event = field(factory=trio.Event, init=False)
    _began: float | None = field(default=None, init=False)
    _honored: frozenset[str] = field(default=frozenset(), init=False)
    _error: Exception | None = field(default=None, init=False)
    _trace: RequestTrace | None = field(default=None, init=False)

    @property
    def acknowledged(self) -> bool:
        """True once the server has accepted the stream."""
        return self._began is not None

    @property
    def lasted(self) -> float:
        """Seconds since the server has accepted the stream."""
        return 0.0 if self._began is None else trio.current_time() - self._began

    async def run(self) -> None:
        """Keep the stream open until one of the two sides closes it."""
        self._trace = open_trace()
        try:
            with self.scope:
                # Else `listen` would leave a coroutine without an owner, if the session has been closed meanwhile.
                await trio.lowlevel.checkpoint_if_cancelled()
                async with self.session.listen(resource_subscriptions=self.subscription.uris) as stream:
                    self._began = trio.current_time()
                    self._honored = frozenset(stream.honored.resource_subscriptions or ())
                    self.opened.set()
                    async for change in stream:
                        if isinstance(change, ResourceUpdated):
                            self.subscription.put(change.uri)
        except Exception as exc:
            self._error = exc
        finally:
            self.opened.set()
        self.on_end(self)

    def check(self, operation: str) -> None:
        """Raise the error of a stream that was refused, or accepted for some resources only.

        Raises:
            NotSupported: the server does not announce changes of some of the resources.
            ConnectionLost, mcp.MCPError: the server did not accept the stream.
        """
        if not self.acknowledged:
            raise self._failure(operation)
        if missing := [mask_url(uri) for uri in self.subscription.uris if uri not in self._honored]:
            raise NotSupported(
                f"server {self.server!r}: {operation}: changes of {', '.join(missing)!r:.200} are not supported; do "
                "not subscribe to them",
                server=self.server,
                capability="resources_subscribe",
            )

    def _failure(self, operation: str) -> Exception:
        assert self._trace is not None
        failure = self._trace.failure
        if failure is not None:  # the transport knows the reason; pass it on to the trace of the waiting request
            asking = current_trace()
            asking.failure, asking.begun = failure, self._trace.begun
            return MCPError(INTERNAL_ERROR, str(failure))
        if isinstance(self._error, MCPError):
            return self._error
        return ConnectionLost(
            f"server {self.server!r}: {operation}: connection lost before the stream was accepted; subscribe again",
            server=self.server,
        )
