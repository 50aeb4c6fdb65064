"""Renew subscriptions to resources on each connection, in either era.

In the legacy era one request per resource and connection subscribes, and the server sends notifications unasked. Since
2026-07-28 the answer to the request is a stream; one task per subscription keeps it open as long as the connection.

A caller that subscribes sends a `Subscribe` through the mailbox, so it has a deadline and waits while the server is
down, as any request does. For subscriptions that exist when the connection begins, and for those whose stream has
ended, tasks of the connection (`Incoming.tasks`) send the same message. A failure of these tasks never changes the
state of the server.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVarTuple

import trio
from attrs import define, field
from mcp import MCPError

from ...._backoff import Backoff
from ...._errors import ActorCrashed, ActorError, ActorStopped, ConnectionLost, LimitExceeded, MailboxFull, NotSupported
from ...._foreign import Log
from ...._text import problem_of
from ....config import mask_url
from ...policy import is_transient
from ...record import require
from ...requests import Request, request_internally
from ._notifications import lists_that_change
from ._resource_stream import ResourceStream
from ._retrying import keep_trying

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from ...._tasks import Background
    from ....kernel import ActorRef
    from ....transports import Link
    from ...record import ServerRecord, Subscription
    from ...session import Session

Args = TypeVarTuple("Args")

logger = Log("mcp_actors.servers")

RESUBSCRIBE_BACKOFF: Final = Backoff(first=1.0, initial=2.0, maximum=60.0, jitter=0.1)
"""Seconds from a failed attempt, or from the end of a stream that was short, to the next attempt."""

LASTING_SUBSCRIPTION: Final = 60.0
"""Seconds after which a stream counts as stable: the next one is opened at once. Proxies end streams after minutes."""

RENEWALS: Final = 8
"""Subscriptions that are renewed at a time. There may be hundreds, and the mailbox is for the requests of callers."""

UNSUBSCRIBE_BATCH_TIMEOUT: Final = 10.0
"""Seconds for unsubscribing from one batch of resources."""

UNSUBSCRIBE_BATCH: Final = 16
"""Resources per batch; other requests are sent between two batches."""

UNSUBSCRIBE_TIMEOUT: Final = 1.0
"""Seconds for one ``resources/unsubscribe``: while it waits, it counts against ``max_in_flight``, which may be 1."""


@define(eq=False)
class Subscribe(Request[None]):
    """Subscribe to resources."""

    subscription: Subscription

    @property
    def operation(self) -> str:
        """``resources/subscribe`` as in the legacy era, and the resources."""
        return f"resources/subscribe {', '.join(map(mask_url, self.subscription.uris))!r:.200}"

    of_the_session: ClassVar[bool] = True

    async def send(self, session: Session, record: ServerRecord) -> None:
        """Subscribe to each of the resources, or open a stream for all of them.

        Raises:
            NotSupported: the server does not announce changes, or not those of these resources.
            mcp.MCPError: as for `Request.send`.
        """
        if self.subscription not in record.subscriptions:
            return  # the subscription has ended while this request waited
        require("resources_subscribe", session.capabilities, record.config.name, self.operation)
        connection = record.subscriptions.connection
        assert isinstance(connection, Connection)  # requests are handled only while there is one
        if connection.session is not session:
            await connection.pass_on(self.subscription)  # another replica has the subscriptions
            return
        await connection.establish(self.subscription, self.operation)
        self.subscription.established()


@define(eq=False)
class Unsubscribe(Request[None]):
    """Unsubscribe from some of the resources of a legacy server that have no subscription any more."""

    operation: ClassVar[str] = "resources/unsubscribe"

    async def send(self, session: Session, record: ServerRecord) -> None:
        """Send ``resources/unsubscribe``; a failure has no consequences."""
        connection = record.subscriptions.connection
        if connection is not None:
            with trio.move_on_after(UNSUBSCRIBE_BATCH_TIMEOUT):
                await connection.unsubscribe()


@define(eq=False)
class Connection:
    """The subscriptions of one connection.

    Attributes:
        session: the session of the connection.
        link: the link of the connection.
        tasks: runs its tasks.
        record: the record of the server.
        actor: the actor of the server, whose mailbox takes its requests.
    """

    session: Session
    link: Link
    tasks: Background
    record: ServerRecord
    actor: ActorRef
    _asked: set[str] = field(factory=set, init=False)
    _subscribed: set[str] = field(factory=set, init=False)
    _forgotten: dict[str, None] = field(factory=dict, init=False)
    _sending: bool = field(default=False, init=False)
    _streams: dict[Subscription, ResourceStream] = field(factory=dict, init=False)
    _early_ends: dict[Subscription, int] = field(factory=dict, init=False)
    _mute: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)
    _renewals: trio.Semaphore = field(factory=partial(trio.Semaphore, RENEWALS), init=False)

    @property
    def modern(self) -> bool:
        """True if each subscription has a stream."""
        return self.session.modern

    async def pass_on(self, subscription: Subscription) -> None:
        """Have a subscription established that another replica was asked for.

        Raises:
            ConnectionLost: that replica is lost; another one has the subscriptions from now on.
            LimitExceeded, NotSupported, mcp.MCPError: as for `establish`.
        """
        request = Subscribe(subscription)
        try:
            await request_internally(self.record, self.actor, request)
        except (ActorCrashed, ActorStopped) as exc:
            name = self.record.config.name
            problem = f"server {name!r}: {request.operation}: connection of replica {self.actor.name!r} lost"
            raise ConnectionLost(f"{problem}; subscribe again", server=name) from exc.__cause__

    async def establish(self, subscription: Subscription, operation: str) -> None:
        """Subscribe to the resources of a subscription, as `listen` or `subscribe` does."""
        await (self.listen(subscription, operation) if self.modern else self.subscribe(subscription))

    def forget(self, subscription: Subscription) -> None:
        """Unsubscribe in the background."""
        self._early_ends.pop(subscription, None)
        if not self.modern:
            self._forgotten |= dict.fromkeys(subscription.uris)
            self._send_unsubscribe()
        elif (stream := self._streams.pop(subscription, None)) is not None:
            stream.scope.cancel("the subscription has ended")

    # --- legacy: one request per resource ---------------------------------------------------------------------------

    # `subscribe` and `unsubscribe` exclude each other (`_turn`): two subscriptions may share a resource, and while one
    # of them unsubscribes, the server may handle the requests of the other in any order.

    async def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to those resources that this connection has not subscribed to yet."""
        async with self._turn:
            for uri in subscription.uris:
                if uri not in self._subscribed and self.record.subscriptions.wants(uri):
                    self._asked.add(uri)
                    try:
                        await self.session.ask("resources/subscribe", {"uri": uri})
                    except MCPError:
                        self._asked.discard(uri)  # refused; a cancelled request may have subscribed
                        raise
                    self._subscribed.add(uri)

    def note_gap(self) -> None:
        """Report that changes may have been missed between two streams of a legacy server over HTTP."""
        for subscription in self.record.subscriptions.to_renew():
            if self._subscribed.issuperset(subscription.uris):
                subscription.missed()

    async def unsubscribe(self) -> None:
        """Unsubscribe from one batch of resources without a subscription."""
        self._sending = False
        try:
            async with self._turn:
                for uri in tuple(self._forgotten)[:UNSUBSCRIBE_BATCH]:
                    del self._forgotten[uri]
                    if uri in self._asked and not self.record.subscriptions.wants(uri) and not self._mute:
                        self._asked.discard(uri)
                        self._subscribed.discard(uri)
                        await self._unsubscribe(uri)
        finally:
            self._send_unsubscribe()

    def _send_unsubscribe(self) -> None:
        """Send the next `Unsubscribe`; one at a time, however many subscriptions end together."""
        if self._sending or not self._forgotten or self.record.subscriptions.connection is not self:
            return
        self._sending = True
        try:
            self.actor.tell_nowait(Unsubscribe())
        except MailboxFull:
            self._start(self._wait_to_send)
        except ActorError:
            pass  # the connection has ended

    async def _wait_to_send(self) -> None:
        """Wait for a place in a full mailbox."""
        while True:
            try:
                await self.actor.tell(Unsubscribe())
            except MailboxFull:  # with overflow="fail"
                await trio.sleep(UNSUBSCRIBE_TIMEOUT)
            except ActorError:
                return
            else:
                return

    async def _unsubscribe(self, uri: str) -> None:
        name = self.record.config.name
        with trio.move_on_after(UNSUBSCRIBE_TIMEOUT) as waiting:
            try:
                await self.session.ask("resources/unsubscribe", {"uri": uri})
            except Exception as exc:  # a lost connection is noticed elsewhere
                logger.debug("server %r: resources/unsubscribe failed: %s", name, problem_of(exc))
        if waiting.cancelled_caught:
            self._mute = True
            logger.debug("server %r: resources/unsubscribe timed out and is not sent again on this connection", name)

    # --- modern: one stream per subscription ------------------------------------------------------------------------

    async def listen(self, subscription: Subscription, operation: str) -> None:
        """Open a stream for a subscription that has none.

        **Cancellation**: closes the stream.

        Raises:
            LimitExceeded: the maximum number of streams is open.
            NotSupported, ConnectionLost, mcp.MCPError: the stream cannot be opened.
        """
        if subscription in self._streams:
            return
        self._keep_room_for_requests(operation)
        stream = self._streams[subscription] = ResourceStream(
            self.record.config.name, self.session, subscription, self._ended
        )
        self._start(stream.run)
        try:
            await stream.opened.wait()
            stream.check(operation)
        except BaseException:
            self.forget(subscription)
            raise

    def _keep_room_for_requests(self, operation: str) -> None:
        """Limit the streams: each takes an HTTP connection, and without a free one no request could be sent."""
        bound = self.link.max_connections
        taken = 2 if lists_that_change(self.session) else 1  # the stream of changed lists, and one for requests
        if bound is not None and len(self._streams) >= bound - taken:
            name = self.record.config.name
            raise LimitExceeded(
                f"server {name!r}: {operation}: too many subscriptions ({len(self._streams)}): each takes an HTTP "
                f"connection, and the rest of max_connections={bound} is reserved for requests; subscribe to several "
                "resources at once, or raise max_connections",
                server=name,
            )

    def _ended(self, stream: ResourceStream) -> None:
        """Open a stream again that has ended, unless it was closed from this side or never accepted."""
        subscription = stream.subscription
        if self._streams.pop(subscription, None) is not stream or not stream.acknowledged:
            return
        ends = 0 if stream.lasted >= LASTING_SUBSCRIPTION else self._early_ends.get(subscription, 0) + 1
        self._early_ends[subscription] = ends
        self._start(self._renew, subscription, ends)

    # --- renewal ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Renew all subscriptions of earlier connections."""
        for subscription in self.record.subscriptions.to_renew():
            self._start(self._renew, subscription, 0)

    async def _renew(self, subscription: Subscription, failures: int) -> None:
        """Subscribe again, until that succeeds or is refused for good."""

        async def attempt() -> None:
            if subscription in self.record.subscriptions:
                async with self._renewals:
                    await request_internally(self.record, self.actor, Subscribe(subscription))

        def describe(error: Exception, _: float) -> str | None:
            if subscription not in self.record.subscriptions:
                return None
            message = f"server {self.record.config.name!r}: a subscription was not renewed: {problem_of(error)}"
            if isinstance(error, MCPError | NotSupported) and not is_transient(error):
                logger.warning("%s; its subscriber gets this error", message)
                subscription.fail(error)
                return None
            return f"{message}; it will be tried again"

        await keep_trying(attempt, RESUBSCRIBE_BACKOFF, describe, failures=failures)

    def _start(self, fn: Callable[[*Args], Awaitable[None]], *args: *Args) -> None:
        self.tasks.start_soon(fn, *args, name=f"{self.record.config.name}:subscription")


def renew_subscriptions(
    session: Session, link: Link, tasks: Background, record: ServerRecord, actor: ActorRef
) -> AbstractContextManager[None]:
    """Keep subscriptions renewed during a connection."""
    connection = Connection(session, link, tasks, record, actor)
    link.hear_of_gaps(connection.note_gap)
    return record.subscriptions.connected(connection)
