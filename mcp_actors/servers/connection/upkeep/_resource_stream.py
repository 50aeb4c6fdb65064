"""The stream over which a server tells of changes of resources: since 2026-07-28 each subscription has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from attrs import define, field
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated
from mcp.types import INTERNAL_ERROR

from ...._errors import ConnectionLost, NotSupported
from ....config import mask_url
from ...basics import current_trace, open_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp import Client

    from ...basics import RequestTrace
    from ...record import Subscription

__all__ = ["ResourceStream"]


@define(eq=False)
class ResourceStream:
    """The stream of one subscription, and the task that holds it open.

    Attributes:
        server: the server's name.
        client: its session.
        subscription: what to hear of.
        on_end: called when it has ended, whichever side has closed it.
        scope: what the task runs in; cancelled to close the stream from this side.
        opened: set when the server has agreed, or did not.
    """

    server: str
    client: Client
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
        """Whether the server has agreed."""
        return self._began is not None

    @property
    def lasted(self) -> float:
        """Seconds since it has."""
        return 0.0 if self._began is None else trio.current_time() - self._began

    async def run(self) -> None:
        """Hold it open until one of the two sides closes it."""
        self._trace = open_trace()
        try:
            with self.scope:
                async with self.client.listen(resource_subscriptions=self.subscription.uris) as stream:
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
        """Raise what stands in the way of it, now that it was opened or was not.

        Raises:
            NotSupported: the server agreed to less than was asked of it.
            ConnectionLost, mcp.MCPError: it did not agree.
        """
        if not self.acknowledged:
            raise self._failure(operation)
        if missing := [mask_url(uri) for uri in self.subscription.uris if uri not in self._honored]:
            raise NotSupported(
                f"server {self.server!r}: {operation}: it does not tell of changes of {', '.join(missing)!r:.200}; do "
                "not subscribe to that",
                server=self.server,
                capability="resources_subscribe",
            )

    def _failure(self, operation: str) -> Exception:
        assert self._trace is not None
        failure = self._trace.failure
        if failure is not None:  # the link knows more than the SDK, and the request that waits is to know it too
            asking = current_trace()
            asking.failure, asking.begun = failure, self._trace.begun
            return MCPError(INTERNAL_ERROR, str(failure))
        if isinstance(self._error, MCPError):
            return self._error
        return ConnectionLost(
            f"server {self.server!r}: {operation}: its stream ended before it had agreed; subscribe again",
            server=self.server,
        )
