"""Who wants to hear of changes of a server's resources: subscriptions, which outlive connections.

Theory of operation
-------------------
A subscription is a place for what has changed and was not taken yet, at most one entry for each resource: a change is
no more than a reason to read the resource again. It belongs to whoever has asked for it, and stands in the registry of
its server (`Subscriptions`) from then on. Each connection makes good for all that stand there (``connection.upkeep``).

For as long as a server is being connected anew, or does not hold on to a stream that it should send changes over, it
tells nobody of changes, and it does not tell later. So once it is subscribed to again, its resources count as changed:
`ResourceUpdated.missed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, Self

import trio
from attrs import frozen
from mcp.types import ResourceUpdatedNotification

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._errors import ServerUnavailable
    from ._notifications import Listeners

__all__ = ["ResourceUpdated", "Subscriber", "Subscription", "Subscriptions"]

MAX_CHARACTERS: Final = 16 * 1024
"""Of the URI of a part. One that is longer is not kept: then the whole has changed."""

MAX_PENDING: Final = 1024
"""Changed resources that may wait for who has subscribed. A server may tell of parts of one, so there is no end."""


@frozen
class ResourceUpdated:
    """A resource that was subscribed to has changed, or may have: what was read of it is out of date.

    Attributes:
        uri: which one: as it was subscribed to, or a part of that.
        missed: True if nobody said so, but changes may have been missed: the server was connected anew, or had stopped
            telling of changes.
    """

    uri: str
    missed: bool = False


class Subscription:
    """Changes of the resources of one server: what `ServerRef.subscribe` yields, an async iterator.

    ``async for`` gives one `ResourceUpdated` after the other, and goes on across restarts of the server. Several
    changes of one resource that were not taken yet are one. It ends with its group, or with the block of ``subscribe``.
    """

    def __init__(self, uris: tuple[str, ...], unavailable: Callable[[], ServerUnavailable | None]) -> None:
        self._uris = uris
        self._unavailable = unavailable
        self._pending: dict[str, bool] = {}
        self._stands = False
        self._over = False
        self._error: Exception | None = None
        self._wake = trio.Event()

    def __repr__(self) -> str:
        return f"<Subscription to {len(self._uris)} resources, {len(self._pending)} changed>"

    @property
    def uris(self) -> tuple[str, ...]:
        """What is subscribed to."""
        return self._uris

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ResourceUpdated:
        """Wait for the next change, and return it.

        **Cancellation**: nothing is lost.

        Raises:
            ServerUnavailable: the server does not serve and will not by itself. When it is started again, the
                subscription stands again too, and this may be called again.
            mcp.MCPError, NotSupported: the server was connected anew, and refuses now what was subscribed to.
            StopAsyncIteration: the group was left, or the block of ``subscribe`` was, or there was such a refusal.
        """
        await trio.lowlevel.checkpoint()
        while not self._pending:
            if self._error is not None:
                error, self._error, self._over = self._error, None, True
                raise error
            if self._over:
                raise StopAsyncIteration
            if (unavailable := self._unavailable()) is not None:
                raise unavailable from unavailable.last_error
            await self._wake.wait()
        uri = next(iter(self._pending))
        return ResourceUpdated(uri, missed=self._pending.pop(uri))

    # --- for the connections ----------------------------------------------------------------------------------------

    @property
    def stands(self) -> bool:
        """Whether the server has ever agreed to it."""
        return self._stands

    def established(self) -> None:
        """A server has agreed to it; if that is not the first time, changes may have been missed."""
        if self._stands:
            self._note_all()
        self._stands = True

    def put(self, uri: str) -> None:
        """A resource has changed."""
        if len(self._pending) < MAX_PENDING or uri in self._pending:
            self._pending[uri] = False
            self.wake()
        else:
            self._note_all()

    def put_if_meant(self, uri: str) -> None:
        """A resource has changed, which may be one of those subscribed to, or a part of one."""
        for each in self._uris:
            if uri == each or uri.startswith((f"{each.rstrip('/')}/", f"{each}?", f"{each}#")):
                self.put(uri if len(uri) <= MAX_CHARACTERS else each)
                return

    def fail(self, error: Exception) -> None:
        """The server refuses it now, and would again."""
        self._error = error
        self._stands = False
        self.wake()

    def close(self) -> None:
        """Nobody will tell of changes any more."""
        self._over = True
        self.wake()

    def wake(self) -> None:
        """Have whoever waits look again."""
        self._wake.set()
        self._wake = trio.Event()

    def _note_all(self) -> None:
        """Any of them may have changed."""
        self._pending = dict.fromkeys(self._uris, True)
        self.wake()


class Subscriber(Protocol):
    """A connection, as far as subscriptions are concerned."""

    @property
    def modern(self) -> bool:
        """True if each subscription has a stream of its own, over which its changes come."""

    async def establish(self, subscription: Subscription, operation: str) -> None:
        """Subscribe to the resources of a subscription."""

    async def unsubscribe(self) -> None:
        """Unsubscribe from one batch of resources without a subscription."""

    def forget(self, subscription: Subscription) -> None:
        """Unsubscribe in the background."""


class Subscriptions:
    """All subscriptions to resources of one server.

    Attributes:
        connection: what makes good for them now, while the server is connected. Written by its actor's owner task.

    Args:
        listeners: those of the server.
    """

    def __init__(self, listeners: Listeners) -> None:
        self.connection: Subscriber | None = None
        self._subscriptions: dict[Subscription, None] = {}
        listeners.add(ResourceUpdatedNotification, self._updated)

    def add(self, subscription: Subscription) -> None:
        """Somebody wants to hear."""
        self._subscriptions[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """He does not want to any more."""
        subscription.close()
        self._subscriptions.pop(subscription, None)
        if self.connection is not None:
            self.connection.forget(subscription)

    def __contains__(self, subscription: Subscription) -> bool:
        return subscription in self._subscriptions

    def standing(self) -> list[Subscription]:
        """Those that a connection has to make good for, without being asked to."""
        return [subscription for subscription in self._subscriptions if subscription.stands]

    def wants(self, uri: str) -> bool:
        """Whether anybody wants to hear of a resource."""
        return any(uri in subscription.uris for subscription in self._subscriptions)

    def wake(self) -> None:
        """The server's state has changed."""
        for subscription in self._subscriptions:
            subscription.wake()

    def close(self) -> None:
        """The group was left."""
        for subscription in self._subscriptions:
            subscription.close()

    def _updated(self, notification: ResourceUpdatedNotification) -> None:
        # Since 2026-07-28 it comes over a stream that knows whose it is.
        if self.connection is not None and not self.connection.modern:
            for subscription in self._subscriptions:
                subscription.put_if_meant(notification.params.uri)
