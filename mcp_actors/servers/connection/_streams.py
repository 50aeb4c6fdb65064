"""Receive changes of resources and lists, in either era of the protocol.

`Subscribe` and `Unsubscribe` are messages to the actor, `Connection` has the subscriptions of one connection, and
`ResourceStream` is the stream of one subscription to a modern server. `ChangeStream`, the last part, keeps the stream
open over which a modern server announces changed lists.

The actor makes a `ChangeStream` and, by `renew_subscriptions`, a `Connection`; refs send `Subscribe`. The tasks run in
`Incoming.tasks`. They send messages through the mailbox, and open streams by the session. They read which subscriptions
the record has, put changes, gaps and refusals into these, and pass gaps between two streams of lists to the listeners.
An attempt of a task that fails is logged, some at DEBUG only, and repeated unless it was refused or the connection has
ended; a caller gets the error of its own attempt, for example `NotSupported` or `LimitExceeded`. No failure ends the
connection; but the actor is called if the endpoint is gone.

Theory of operation
-------------------
In the legacy era one request per resource and connection subscribes, and the server sends notifications unasked. Since
2026-07-28 the answer to the request is a stream; one task per subscription reads it. A stream that has ended is opened
again as long as the connection lasts.

A caller that subscribes sends a `Subscribe` through the mailbox, so it has a deadline and waits while the server is
down, as any request does. For subscriptions that were accepted before the connection begins, and for those whose stream
has ended, tasks of the connection (`Incoming.tasks`) send the same message.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypedDict, TypeVarTuple

import trio
from attrs import define, field
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from ..._backoff import Backoff
from ..._errors import (
    ActorCrashed,
    ActorError,
    ActorStopped,
    ConnectionLost,
    HttpStatusError,
    LimitExceeded,
    MailboxFull,
    NotSupported,
)
from ..._foreign import Log
from ..._pickling import Handle
from ..._text import problem_of
from ...config import mask_url
from ...transports import ConnectionOver
from .._dispatcher import carried
from .._rules import is_transient
from ..record import Incoming, NotificationsMissed, require
from ..requests import Request, request_internally
from ._upkeep import keep_trying

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from ..._tasks import Background
    from ...kernel import ActorRef
    from ...transports import Link
    from .._session import Session
    from ..record import ConnectionRecord, Subscription


logger = Log("mcp_actors.servers")

Args = TypeVarTuple("Args")


RESUBSCRIBE_BACKOFF: Final = Backoff(first=1.0, initial=2.0, maximum=60.0, jitter=0.1)
"""Seconds from a failed attempt, or from the end of a stream that was short, to the next attempt."""

LASTING_SUBSCRIPTION: Final = 60.0
"""Seconds after which a stream counts as stable: the next one is opened at once. Proxies end streams after minutes."""

RENEWALS: Final = 8
"""Subscriptions that are renewed at a time. There may be hundreds, and the mailbox is for the requests of callers."""

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

    async def send(self, session: Session, record: ConnectionRecord) -> None:
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
        await connection.establish(self)
        self.subscription.established()


@define(eq=False)
class Unsubscribe(Request[None]):
    """Unsubscribe from one resource of a legacy server that has no subscription any more."""

    operation: ClassVar[str] = "resources/unsubscribe"

    async def send(self, session: Session, record: ConnectionRecord) -> None:
        """Send ``resources/unsubscribe``; a failure has no consequences."""
        connection = record.subscriptions.connection
        if connection is not None:
            with trio.move_on_after(10):  # another subscription may have its turn, and the server not answer it
                await connection.unsubscribe()


@define(eq=False)
class Connection:
    """The subscriptions of one connection.

    Attributes:
        session: the session of the connection.
        link: the link of the connection.
        tasks: runs its tasks.
        record: the record of the connection.
        actor: the actor of the server, whose mailbox takes its requests.
    """

    session: Session
    link: Link
    tasks: Background
    record: ConnectionRecord
    actor: ActorRef
    _asked: set[str] = field(factory=set, init=False)
    _subscribed: set[str] = field(factory=set, init=False)
    _forgotten: deque[str] = field(factory=deque, init=False)
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

    async def establish(self, request: Subscribe) -> None:
        """Subscribe to the resources of a subscription, as `listen` or `subscribe` does."""
        await (self.listen(request.subscription, request.operation) if self.modern else self.subscribe(request))

    def forget(self, subscription: Subscription) -> None:
        """Unsubscribe in the background."""
        self._early_ends.pop(subscription, None)
        if not self.modern:
            self._forgotten += subscription.uris
            self._send_unsubscribe()
        elif (stream := self._streams.pop(subscription, None)) is not None:
            stream.scope.cancel("the subscription has ended")

    # --- legacy: one request per resource ---------------------------------------------------------------------------

    # `subscribe` and `unsubscribe` exclude each other (`_turn`): two subscriptions may share a resource, and while one
    # of them unsubscribes, the server may handle the requests of the other in any order.

    async def subscribe(self, request: Subscribe) -> None:
        """Subscribe to those resources that this connection has not subscribed to yet."""
        async with self._turn:
            for uri in request.subscription.uris:
                if uri not in self._subscribed and self.record.subscriptions.wants(uri):
                    self._asked.add(uri)
                    try:
                        await self.session.ask("resources/subscribe", {"uri": uri}, attempt=request.deadline)
                    except Exception:
                        self._asked.discard(uri)  # refused; a cancelled request may have subscribed
                        raise
                    self._subscribed.add(uri)

    def note_gap(self) -> None:
        """Report that changes may have been missed between two streams of a legacy server over HTTP."""
        for subscription in self.record.subscriptions.to_renew():
            if self._subscribed.issuperset(subscription.uris):
                subscription.missed()

    async def unsubscribe(self) -> None:
        """Unsubscribe from one resource without a subscription. Other requests are sent before the next one."""
        self._sending = False
        try:
            async with self._turn:
                while self._forgotten:
                    uri = self._forgotten.popleft()
                    if uri in self._asked and not self.record.subscriptions.wants(uri) and not self._mute:
                        self._asked.discard(uri)
                        self._subscribed.discard(uri)
                        await self._unsubscribe(uri)
                        break
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
    session: Session, link: Link, tasks: Background, record: ConnectionRecord, actor: ActorRef
) -> AbstractContextManager[None]:
    """Keep subscriptions renewed during a connection."""
    connection = Connection(session, link, tasks, record, actor)
    link.lifeline.on_gap.append(connection.note_gap)
    return record.subscriptions.connected(connection)


# --- One stream per subscription, over which a modern server announces changed resources ------------------------------


@define(eq=False)
class ResourceStream(Handle):
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
            self._error = carried(exc) if isinstance(exc, MCPError) else None
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
            raise self._error or ConnectionLost(
                f"server {self.server!r}: {operation}: connection lost before the stream was accepted; subscribe again",
                server=self.server,
            )
        if missing := [mask_url(uri) for uri in self.subscription.uris if uri not in self._honored]:
            raise NotSupported(
                f"server {self.server!r}: {operation}: changes of {', '.join(missing)!r:.200} are not supported; do "
                "not subscribe to them",
                server=self.server,
                capability="resources_subscribe",
            )


# --- Keep the stream open over which a modern server announces changed lists ------------------------------------------

# Since 2026-07-28 a server sends these notifications only over a stream that the client opens
# (``subscriptions/listen``). One task per connection, in the tree of the actor's owner, keeps it open for the lists
# that the server says can change. The SDK passes these notifications to the same handler as those of an older server,
# so listeners see no difference and this task only consumes the stream. A server never repeats what happened without a
# stream, so each time the stream is opened again, listeners receive `NotificationsMissed`.
#
# A server that refuses the stream is used without it: its tools are listed at every connect.


HEAD_START: Final = 0.25
"""Seconds that a connect waits for the stream before it lists the tools, so that no change between the two is missed.
If the stream opens later, the tools are listed again."""

RECONNECT_BACKOFF: Final = Backoff(first=0.1, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from the end of a stream to the next."""

LASTING: Final = 30.0
"""Seconds after which a stream counts as stable: the next one is opened at once, and the back-off starts anew."""

REFUSALS: Final = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""Error codes of a server that does not support the stream."""


class Lists(TypedDict, total=False):
    """The lists that may change, as keyword arguments of `mcp.Client.listen`."""

    tools_list_changed: bool
    prompts_list_changed: bool
    resources_list_changed: bool


AFTER_END: Final = 0.001
"""Seconds between the end of a stable stream and the next one: nearly at once."""


def lists_that_change(session: Session) -> Lists:
    """Return the lists for which a server needs a stream; none for a server of the legacy era."""
    if not session.modern:
        return {}
    can, lists = session.capabilities, Lists()
    if can.tools is not None and can.tools.list_changed:
        lists["tools_list_changed"] = True
    if can.prompts is not None and can.prompts.list_changed:
        lists["prompts_list_changed"] = True
    if can.resources is not None and can.resources.list_changed:
        lists["resources_list_changed"] = True
    return lists


@define(eq=False)
class ChangeStream:
    """The stream of one connection over which the server announces changed lists.

    Args:
        server: the name of the server.
        session: the session of the connection.
        incoming: runs the task, and passes notifications on.
        lists: the lists that may change.
        on_gone: called if the endpoint is gone.
    """

    server: str
    session: Session
    incoming: Incoming
    lists: Lists
    on_gone: Callable[[ConnectionOver], None]
    _opened: trio.Event = field(factory=trio.Event, init=False)
    _listed: bool = field(default=False, init=False)

    async def begin(self) -> None:
        """Start the task, and wait for the stream for at most `HEAD_START`."""
        self.incoming.tasks.start_soon(self._run, name=f"{self.server}:listen")
        with trio.move_on_after(HEAD_START):
            await self._opened.wait()
        self._listed = True

    async def _run(self) -> None:
        # A connect that was cancelled may have closed the session already, before this task ran. `listen`
        # would then leave a coroutine that is never awaited.
        await trio.lowlevel.checkpoint_if_cancelled()
        going_on = True
        while going_on:
            going_on = await keep_trying(self._consume, RECONNECT_BACKOFF, self._describe, level=logging.DEBUG)
            # A stream often ends because the connection does, and then this task is cancelled a step or two later. The
            # SDK would leave a coroutine without an owner if a session that has just ended was asked for a stream.
            await trio.sleep(AFTER_END)

    async def _consume(self) -> None:
        """Open a stream and consume it until it ends; raise the reason unless it was stable."""
        opened_at = math.inf
        error: Exception = SubscriptionLost("closed by the server")
        try:
            async with self.session.listen(**self.lists) as stream:
                opened_at = trio.current_time()
                if self._listed:
                    self.incoming.listeners.tell(NotificationsMissed())
                self._opened.set()
                async for _ in stream:
                    pass
        except Exception as exc:
            error = carried(exc)
        self._opened.set()  # also if it was never opened: then `begin` has nothing to wait for
        if isinstance(error, ConnectionOver):
            self.on_gone(error)
        if trio.current_time() - opened_at < LASTING:
            raise error

    def _describe(self, error: Exception, delay: float) -> str | None:
        problem = problem_of(error)
        if _is_refusal(error):
            logger.debug("server %r: does not support a stream of notifications: %s", self.server, problem)
            return None
        return f"server {self.server!r}: stream of notifications ended ({problem}); opening it again in {delay:.3g} s"


def _is_refusal(error: Exception) -> bool:
    """Return True if the server does not support the stream; False if it ended, or failed to open this time."""
    match error:
        case SubscriptionLost() if isinstance(error.__cause__, MCPError):
            return error.__cause__.code in REFUSALS
        case MCPError():
            return error.code in REFUSALS
        case HttpStatusError():
            return not is_transient(error)
        case _:
            return False
