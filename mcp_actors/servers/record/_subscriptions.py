"""Listeners to notifications, and subscriptions to resources; both outlive connections.

A subscription collects changed resources for its reader. The hard part is gaps: a server announces no change while
reconnecting, or after the stream of changes has ended, and repeats nothing later. A renewed subscription therefore
reports every resource as changed once (`ResourceUpdated.missed`).

Owns: subscriptions; listeners; completed elicitations; tasks of the `MessageRelay`.
Writes: the log. Makes connections renew subscriptions. Runs listeners.
Calls: nothing.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import trio
from attrs import define, field, frozen
from mcp.types import (
    ElicitCompleteNotification,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)

from ..._foreign import Log
from ..._tasks import open_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from mcp.client.session import IncomingMessage

    from ..._errors import ServerUnavailable
    from ..._tasks import Background


MAX_PART_URI: Final = 16 * 1024
"""Longest kept URI of a part of a resource. A longer URI counts as a change of the whole resource."""

MAX_PENDING: Final = 1024
"""Limit of changed resources that wait for the reader; above it, all resources count as changed."""


@frozen
class ResourceUpdated:
    """A resource has changed, or may have: read it again.

    Attributes:
        uri: the subscribed URI, or the URI of a part of the resource.
        missed: True if notifications may have been missed, because the server was reconnected or the stream of changes
            was interrupted.
    """

    uri: str
    missed: bool = False


class Subscription:
    """Changes of resources of one server, as an async iterator; `ServerRef.subscribe` yields it.

    ``async for`` yields one `ResourceUpdated` after another, and continues across restarts of the server. Several
    unread changes of one resource are merged, because a change is only a reason to read again. The iteration ends with
    the group, or with the ``subscribe`` block.
    """

    def __init__(self, uris: tuple[str, ...], unavailable: Callable[[], ServerUnavailable | None]) -> None:
        self._uris = uris
        self._unavailable = unavailable
        self._pending: dict[str, bool] = {}
        self._established = False
        self._over = False
        self._error: Exception | None = None
        self._wake = trio.Event()

    def __repr__(self) -> str:
        return f"<Subscription to {len(self._uris)} resources, {len(self._pending)} changed>"

    @property
    def uris(self) -> tuple[str, ...]:
        """The subscribed URIs."""
        return self._uris

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ResourceUpdated:
        """Wait for the next change.

        **Cancellation**: no change is lost.

        Raises:
            ServerUnavailable: the server is down and will not recover by itself. After an explicit start the
                subscription is renewed, and this may be called again.
            mcp.MCPError, NotSupported: the server was reconnected, and now refuses the subscription.
            StopAsyncIteration: the group or the ``subscribe`` block was left, or the subscription was refused.
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
    def is_established(self) -> bool:
        """True once the server has accepted the subscription."""
        return self._established

    def established(self) -> None:
        """Note that the server has accepted the subscription. After a renewal, changes may have been missed."""
        if self._established:
            self.missed()
        self._established = True

    def put(self, uri: str) -> None:
        """Note that a resource has changed."""
        if len(self._pending) < MAX_PENDING or uri in self._pending:
            self._pending[uri] = False
            self.wake()
        else:
            self.missed()

    def missed(self) -> None:
        """Note that any of the resources may have changed."""
        self._pending = dict.fromkeys(self._uris, True)
        self.wake()

    def put_if_meant(self, uri: str) -> None:
        """Note a change of a subscribed resource, or of a part of a subscribed resource."""
        for each in self._uris:
            if uri == each or uri.startswith((f"{each.rstrip('/')}/", f"{each}?", f"{each}#")):
                self.put(uri if len(uri) <= MAX_PART_URI else each)
                return

    def fail(self, error: Exception) -> None:
        """Note that the server refuses the subscription for good."""
        self._error = error
        self._established = False
        self.wake()

    def close(self) -> None:
        """End the iteration, after the waiting changes."""
        self._over = True
        self.wake()

    def wake(self) -> None:
        """Wake the reader."""
        self._wake.set()
        self._wake = trio.Event()


class SubscribingConnection(Protocol):
    @property
    def modern(self) -> bool:
        """True if each subscription has a stream of its own for changes."""

    def begin(self) -> None:
        """Renew all subscriptions of earlier connections."""

    async def unsubscribe(self) -> None:
        """Unsubscribe from one unwanted resource."""

    def forget(self, subscription: Subscription) -> None:
        """Unsubscribe in the background."""


class Subscriptions:
    """All subscriptions to resources of one server; `ended_at` is when the last subscription ended."""

    def __init__(self, listeners: Listeners) -> None:
        self._connections: list[SubscribingConnection] = []
        self.ended_at: float = -math.inf
        self._subscriptions: dict[Subscription, None] = {}
        listeners.add(ResourceUpdatedNotification, self._updated)

    @property
    def connection(self) -> SubscribingConnection | None:
        """The connection that has the subscriptions: with replicas, the longest serving one."""
        return self._connections[0] if self._connections else None

    @contextmanager
    def connected(self, connection: SubscribingConnection) -> Iterator[None]:
        """Renew the subscriptions over this connection, now or once earlier connections have ended."""
        self._connections.append(connection)
        try:
            self._renew_over(connection)
            yield
        finally:
            had_them = self.connection is connection
            self._connections.remove(connection)
            if had_them and self.connection is not None:
                self._renew_over(self.connection)

    def _renew_over(self, connection: SubscribingConnection) -> None:
        if connection is self.connection:
            connection.begin()

    def add(self, subscription: Subscription) -> None:
        self._subscriptions[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        subscription.close()
        self._subscriptions.pop(subscription, None)
        self.ended_at = trio.current_time()
        if self.connection is not None:
            self.connection.forget(subscription)

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, subscription: Subscription) -> bool:
        return subscription in self._subscriptions

    def to_renew(self) -> list[Subscription]:
        return [subscription for subscription in self._subscriptions if subscription.is_established]

    def wants(self, uri: str) -> bool:
        return any(uri in subscription.uris for subscription in self._subscriptions)

    def wake(self) -> None:
        for subscription in self._subscriptions:
            subscription.wake()

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()

    def _updated(self, notification: ResourceUpdatedNotification) -> None:
        # Since 2026-07-28 changes come over the stream of their subscription.
        if self.connection is not None and not self.connection.modern:
            for subscription in self._subscriptions:
                subscription.put_if_meant(notification.params.uri)


# --- Pass what a server sends unasked to listeners, connection by connection ------------------------------------------

# Each connection has its own `MessageRelay`, which passes messages on until the connection ends. So no late message of
# an old connection reaches a listener, and listeners need not follow reconnects.
#
# A listener is a synchronous function, called in the task that reads the message; it sets an event, tells an actor or
# fills a bounded buffer. Anything slower, and all code of the user, runs in `MessageRelay.tasks`, after all listeners.
# An exception of a listener is logged and has no other effect.
#
# Listeners run in the order in which the server sent the messages.


M = TypeVar("M")

logger = Log("mcp_actors.servers")


@frozen
class NotificationsMissed:
    """Sent to listeners: any notification may have been missed, so fetch all lists and resources again."""


@define(eq=False)
class DonePages:
    """The latest pages that a server has reported as done (``notifications/elicitation/complete``), by their ids."""

    latest: dict[str, ElicitCompleteNotification] = field(factory=dict, init=False)
    _at: dict[str, float] = field(factory=dict, init=False)
    _changed: trio.Event = field(factory=trio.Event, init=False)

    def note(self, notice: ElicitCompleteNotification) -> None:
        """Take a report. A report with an id longer than `MAX_PART_URI` is dropped."""
        if len(page := notice.params.elicitation_id) > MAX_PART_URI:
            return
        self.latest.pop(page, None)
        self.latest[page], self._at[page] = notice, trio.current_time()
        if len(self.latest) > 64:  # pages of all requests
            del self._at[oldest := next(iter(self.latest))], self.latest[oldest]
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self, pages: Iterable[str], since: float) -> None:
        """Wait until all these pages were reported after `since`: a server may use an id again."""
        while pages := [page for page in pages if self._at.get(page, -math.inf) < since]:
            await self._changed.wait()


class Listeners:
    """The listeners of a server, or of one connection, whose messages go to the server's listeners (`of`) first.

    Attributes:
        changed: with replicas, notices of changed lists that wait to be passed on; None passes notices on at once.
            Replaced by the record.
    """

    def __init__(self, server: str, of: Listeners | None = None) -> None:
        self._server = server
        self.of: Listeners | None = of
        self.changed: set[type] | None = None
        self._listeners: tuple[tuple[type, Callable[[Any], object]], ...] = () if of is None else ((object, of.tell),)

    def add(self, kind: type[M], fn: Callable[[M], object]) -> Callable[[], None]:
        """Call a function with each message of one kind, after earlier listeners. Return a function that removes `fn`.

        Args:
            kind: a notification class of the SDK; ``Exception`` for failures of the transport; `NotificationsMissed`;
                ``object`` for all of these.
            fn: called synchronously, and must return soon; may add and remove listeners.
        """
        listener = kind, fn
        self._listeners = (*self._listeners, listener)
        return lambda: self._remove(listener)

    @contextmanager
    def added(self, kind: type[M], fn: Callable[[M], object]) -> Iterator[None]:
        remove = self.add(kind, fn)
        try:
            yield
        finally:
            remove()

    def tell(self, message: object) -> None:
        for kind, fn in self._listeners:
            if isinstance(message, kind):
                try:
                    fn(message)
                except Exception:
                    logger.exception("server %r: a listener raised on %s", self._server, type(message).__name__)

    def clear(self) -> None:
        self.of, self._listeners = None, ()

    def _remove(self, listener: tuple[type, Callable[[Any], object]]) -> None:
        self._listeners = tuple(each for each in self._listeners if each is not listener)


@define(eq=False)
class MessageRelay:
    """Passes messages to listeners during one attempt to connect and the connection that follows.

    The owner task of the server's actor opens a `MessageRelay` before the session, and closes it before leaving the
    session. `tasks` are for anything too slow for a listener, in the tree of the owner, outside the session. No outside
    cancellation reaches them; they are cancelled before the session is left. An exception ends the connection.
    """

    listeners: Listeners
    tasks: Background
    closed: bool = field(default=False, init=False)

    def close(self) -> None:
        self.closed = True
        self.tasks.cancel("the connection has ended")

    async def handle(self, message: IncomingMessage) -> None:
        """Pass a message on. This is the ``message_handler`` of the session."""
        # No checkpoint: this runs in the step that reads the message, so listeners come before the caller of a request
        # that is answered later. A server in this process calls this method, so a wait would block the server. A notice
        # that replicas repeat therefore waits in a task.
        if self.closed:
            return
        changed = None if self.listeners.of is None else self.listeners.of.changed
        kinds = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
        if changed is None or not isinstance(message, kinds):
            self.listeners.tell(message)
        elif type(message) not in changed:
            changed.add(type(message))
            self.tasks.start_soon(self._tell_later, message, changed, name="servers:changed")

    async def _tell_later(self, message: object, changed: set[type]) -> None:
        """Pass on a notice that other replicas are about to repeat, even if the connection ends meanwhile."""
        try:
            await trio.sleep(1.0)  # by then each replica has the new list
        finally:
            changed.discard(type(message))
            self.listeners.tell(message)


@asynccontextmanager
async def open_incoming(listeners: Listeners, on_failure: Callable[[Exception], object]) -> AsyncIterator[MessageRelay]:
    """Open a `MessageRelay` for a connection; cancel the tasks at the end. See `open_background` for ``on_failure``."""
    async with open_background(on_failure) as tasks:
        yield MessageRelay(listeners, tasks)
