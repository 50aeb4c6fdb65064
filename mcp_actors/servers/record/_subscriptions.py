"""Subscriptions to resources and listeners, which outlive the connections of a server.

A `Subscription` is what a caller reads (`ResourceUpdated`); `Subscriptions` are those of one server. In the second
part, `Listeners` are called with the notifications of the server and with `NotificationsMissed`, and `Incoming`, one
for each attempt to connect, passes the notifications of its session to them and has most tasks of that connection.

The record has the `Subscriptions` and the `Listeners`. Refs add and remove subscriptions; connections renew them, and
put changes, gaps and refusals into them; a legacy server's changes come by a listener. The reader gets an error if the
server refuses, or will not come back by itself. The file uses of a connection the methods of `Subscriber`, and sends
nothing itself. Reading a `Subscription` waits; the methods for connections and listeners do not. It logs a listener
that raises, and reads Trio's clock. `open_incoming` opens a nursery; others start its tasks.

Theory of operation
-------------------
A subscription collects changed resources that its reader has not taken yet, at most one entry per resource: a change is
only a reason to read the resource again. It belongs to the caller that subscribed, and is registered with its server
(`Subscriptions`). A new connection renews the registered ones that the server had accepted (`Subscriber`); of several
replicas, the one that has served the longest does.

While a server reconnects, or after a stream of changes has ended, the server announces no changes, and does not repeat
them later. So once a subscription is renewed, all its resources count as changed: `ResourceUpdated.missed`.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

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


MAX_CHARACTERS: Final = 16 * 1024
"""Longest URI of a part of a resource that is kept. For a longer one, the whole resource counts as changed."""

MAX_PENDING: Final = 1024
"""Changed resources that may wait for the reader. A server may announce any number of parts of a resource."""


@frozen
class ResourceUpdated:
    """A resource has changed, or may have: read it again.

    Attributes:
        uri: the URI that was subscribed to, or the URI of a part of that resource.
        missed: True if notifications may have been missed, because the server was reconnected or its stream of
            changes was interrupted.
    """

    uri: str
    missed: bool = False


class Subscription:
    """Changes of the resources of one server, as an async iterator; `ServerRef.subscribe` yields it.

    ``async for`` yields one `ResourceUpdated` after the other, and continues across restarts of the server. Several
    changes of one resource that were not taken yet are merged. It ends with the group, or with the ``subscribe`` block.
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
        """The URIs that were subscribed to."""
        return self._uris

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ResourceUpdated:
        """Wait for the next change, and return it.

        **Cancellation**: no change is lost.

        Raises:
            ServerUnavailable: the server is down and will not come back by itself. Once it is started again, the
                subscription is renewed and this may be called again.
            mcp.MCPError, NotSupported: the server was reconnected, and refuses the subscription now.
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
        """Note that the server has accepted the subscription. A second time, changes may have been missed before."""
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
        """Note that a resource has changed, if it is one of those subscribed to, or a part of one."""
        for each in self._uris:
            if uri == each or uri.startswith((f"{each.rstrip('/')}/", f"{each}?", f"{each}#")):
                self.put(uri if len(uri) <= MAX_CHARACTERS else each)
                return

    def fail(self, error: Exception) -> None:
        """Note that the server refuses the subscription for good."""
        self._error = error
        self._established = False
        self.wake()

    def close(self) -> None:
        """End the iteration."""
        self._over = True
        self.wake()

    def wake(self) -> None:
        """Wake the reader."""
        self._wake.set()
        self._wake = trio.Event()


class Subscriber(Protocol):
    """A connection, as far as subscriptions are concerned."""

    @property
    def modern(self) -> bool:
        """True if each subscription has a stream of its own, over which its changes come."""

    def begin(self) -> None:
        """Renew all subscriptions of earlier connections."""

    async def unsubscribe(self) -> None:
        """Unsubscribe from one resource without a subscription."""

    def forget(self, subscription: Subscription) -> None:
        """Unsubscribe in the background."""


class Subscriptions:
    """All subscriptions to resources of one server.

    Attributes:
        ended_at: the time at which the last one ended.

    Args:
        listeners: the listeners of the server.
    """

    def __init__(self, listeners: Listeners) -> None:
        self._connections: list[Subscriber] = []
        self.ended_at: float = -math.inf
        self._subscriptions: dict[Subscription, None] = {}
        listeners.add(ResourceUpdatedNotification, self._updated)

    @property
    def connection(self) -> Subscriber | None:
        """The connection that has the subscriptions: of several replicas, the one that has served the longest."""
        return self._connections[0] if self._connections else None

    @contextmanager
    def connected(self, connection: Subscriber) -> Iterator[None]:
        """Renew the subscriptions over this connection, unless another one does; then, once that has ended."""
        self._connections.append(connection)
        try:
            self._renew_over(connection)
            yield
        finally:
            had_them = self.connection is connection
            self._connections.remove(connection)
            if had_them and self.connection is not None:
                self._renew_over(self.connection)

    def _renew_over(self, connection: Subscriber) -> None:
        if connection is self.connection:
            connection.begin()

    def add(self, subscription: Subscription) -> None:
        """Register a subscription."""
        self._subscriptions[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """End a subscription."""
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
        """Return the subscriptions that a new connection renews."""
        return [subscription for subscription in self._subscriptions if subscription.is_established]

    def wants(self, uri: str) -> bool:
        """Return True if a resource has a subscription."""
        return any(uri in subscription.uris for subscription in self._subscriptions)

    def wake(self) -> None:
        """Wake all readers, because the state of the server has changed."""
        for subscription in self._subscriptions:
            subscription.wake()

    def close(self) -> None:
        """End all subscriptions, because the group was closed."""
        for subscription in self._subscriptions:
            subscription.close()

    def _updated(self, notification: ResourceUpdatedNotification) -> None:
        # Since 2026-07-28 changes come over the stream of their subscription.
        if self.connection is not None and not self.connection.modern:
            for subscription in self._subscriptions:
                subscription.put_if_meant(notification.params.uri)


# --- Pass what a server sends unasked to listeners, connection by connection ------------------------------------------

# Theory of operation
# -------------------
# Listeners (`Listeners`) outlive connections, so they belong to the server's record. Each attempt to connect has an
# `Incoming` of its own, which handles the messages of its session and passes them on while that attempt lasts. So no
# late message of an old connection reaches a listener during a new one, and listeners need not follow reconnects.
#
# A listener is a plain synchronous function, called in the task that reads the message. It notes the message (sets an
# event, tells an actor, puts it into a bounded buffer) and returns: with an in-process server it runs in the middle of
# that server's code, so a listener that waited would block the server. Anything slower, and all code of the user, runs
# in a task of its own (see `Incoming.tasks`), and so after all listeners. If a listener raises, that is logged and
# affects neither the others nor the connection.
#
# Listeners are called in the order in which the server has sent its messages, and before the caller of a request learns
# of an answer that came after them.


M = TypeVar("M")

CHANGED: Final = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
"""The notices of changed lists. Every replica of a server sends one, when it has noticed the change."""

TOGETHER: Final = 1.0
"""Seconds for which equal notices of replicas are held, and then passed on as one: by then each has the new list."""

logger = Log("mcp_actors.servers")


@frozen
class NotificationsMissed:
    """Message to listeners: notifications of any kind may have been missed, so fetch again what they announce."""


@frozen(eq=False)
class _Listener(Generic[M]):
    kind: type[M]
    fn: Callable[[M], object]


MAX_DONE: Final = 64
"""Pages that are remembered as done: the most that a person is asked to open at a time, for all requests."""


@define(eq=False)
class DonePages:
    """The pages that a server has reported as done (``notifications/elicitation/complete``).

    Attributes:
        latest: the last `MAX_DONE` reports, by the ids of the pages.
    """

    latest: dict[str, ElicitCompleteNotification] = field(factory=dict, init=False)
    _at: dict[str, float] = field(factory=dict, init=False)
    _changed: trio.Event = field(factory=trio.Event, init=False)

    def note(self, notice: ElicitCompleteNotification) -> None:
        """Take a report. One with an id of more than `MAX_CHARACTERS` is dropped."""
        if len(page := notice.params.elicitation_id) > MAX_CHARACTERS:
            return
        self.latest.pop(page, None)
        self.latest[page], self._at[page] = notice, trio.current_time()
        if len(self.latest) > MAX_DONE:
            del self._at[oldest := next(iter(self.latest))], self.latest[oldest]
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self, pages: Iterable[str], since: float) -> None:
        """Wait until all of these pages were reported since a time: a server may use an id again."""
        while pages := [page for page in pages if self._at.get(page, -math.inf) < since]:
            await self._changed.wait()


class Listeners:
    """The listeners of one server, or of one of its connections.

    A function listens during a block (``with record.listeners.added(kind, fn)``), or as long as the record exists
    (``record.listeners.add(kind, fn)``). Its type says which messages it gets.

    Args:
        server: the name of the server.
        of: for those of a connection, the listeners of its server, which get its messages first.

    Attributes:
        of: see above.
        changed: for those of a server with several connections, the notices of changed lists that wait to be passed on.
            None passes them on at once. Replaced by the record.
    """

    def __init__(self, server: str, of: Listeners | None = None) -> None:
        self._server = server
        self.of: Listeners | None = of
        self.changed: set[type] | None = None
        self._listeners: tuple[_Listener[Any], ...] = () if of is None else (_Listener(object, of.tell),)

    def add(self, kind: type[M], fn: Callable[[M], object]) -> Callable[[], None]:
        """Call a function with each message of one kind, after earlier listeners. Return a function that ends this.

        Args:
            kind: a notification class of the SDK; ``Exception`` for failures of the transport;
                `NotificationsMissed`; ``object`` for all of these.
            fn: called synchronously. It must return soon; it may add and remove listeners.
        """
        listener = _Listener(kind, fn)
        self._listeners = (*self._listeners, listener)
        return lambda: self._remove(listener)

    @contextmanager
    def added(self, kind: type[M], fn: Callable[[M], object]) -> Iterator[None]:
        """Listen during a block, as `add` does."""
        remove = self.add(kind, fn)
        try:
            yield
        finally:
            remove()

    def tell(self, message: object) -> None:
        """Pass a message to all listeners of its kind."""
        for listener in self._listeners:
            if isinstance(message, listener.kind):
                try:
                    listener.fn(message)
                except Exception:
                    logger.exception("server %r: a listener raised on %s", self._server, type(message).__name__)

    def clear(self) -> None:
        """Remove all listeners: the server has ended."""
        self.of, self._listeners = None, ()

    def _remove(self, listener: _Listener[Any]) -> None:
        self._listeners = tuple(each for each in self._listeners if each is not listener)


@define(eq=False)
class Incoming:
    """Passes messages to the listeners during one attempt to connect and the connection that follows.

    The owner task of the server's actor opens it before it enters the session, and closes it before it leaves that.

    Attributes:
        listeners: receive the messages.
        tasks: runs tasks that are too slow for a listener. They belong to the tree of the owner, outside the session.
            No cancellation from outside reaches them, and they are cancelled when the session is about to be left. An
            exception that leaves one of them ends the connection.
        closed: True once no message is passed on any more.
    """

    listeners: Listeners
    tasks: Background
    closed: bool = field(default=False, init=False)

    def close(self) -> None:
        """Pass no message on any more, and cancel the tasks: the connection has ended."""
        self.closed = True
        self.tasks.cancel("the connection has ended")

    async def handle(self, message: IncomingMessage) -> None:
        """Pass a message on: the ``message_handler`` of the session."""
        # No checkpoint here: it runs in the step that reads the message, or in the code of a server in this process.
        if self.closed:
            return
        changed = None if self.listeners.of is None else self.listeners.of.changed
        if changed is None or not isinstance(message, CHANGED):
            self.listeners.tell(message)
        elif type(message) not in changed:
            changed.add(type(message))
            self.tasks.start_soon(self._tell_later, message, changed, name="servers:changed")

    async def _tell_later(self, message: object, changed: set[type]) -> None:
        """Pass on a notice that other replicas are about to send, too, even if the connection ends meanwhile."""
        try:
            await trio.sleep(TOGETHER)
        finally:
            changed.discard(type(message))
            self.listeners.tell(message)


@asynccontextmanager
async def open_incoming(listeners: Listeners, on_failure: Callable[[Exception], object]) -> AsyncIterator[Incoming]:
    """Open an `Incoming` around a client; cancel its tasks at the end. See `open_background` for ``on_failure``."""
    async with open_background(on_failure) as tasks:
        yield Incoming(listeners, tasks)
