"""Receive notifications of changed resources and of changed lists, in either era.

========  ================================================  ==============================================
era       a subscription                                    changed lists
========  ================================================  ==============================================
legacy    one request per resource and connection           arrive unasked
modern    one stream and one task per subscription          one stream per connection (`ChangeStream`)
========  ================================================  ==============================================

A server never repeats a change, so after a break in listening every list and subscribed resource counts as changed.

Owns: what the connection is subscribed to; streams; tasks of streams.
Writes: subscriptions of the record; notices to listeners; a callback on the link, for gaps; the mailbox of the server
actor; requests to the server; the log.
Calls: config, servers, servers.record, servers.requests, transports, _upkeep.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVarTuple

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
from ..record import MessageRelay, NotificationsMissed, require
from ..requests import Request, request_internally
from ._upkeep import AFTER_FAILURE, keep_trying

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from ..._tasks import Background
    from ...kernel import ActorRef
    from ...transports import Link
    from .._session import ConnectionSession
    from ..record import ConnectionRecord, Subscription


logger = Log("mcp_actors.servers")

Args = TypeVarTuple("Args")


UNSUBSCRIBE_TIMEOUT: Final = 1.0
"""Seconds for one ``resources/unsubscribe``, which takes a slot, perhaps the only one."""


@define(eq=False)
class Subscribe(Request[None]):
    """Subscribe to resources.

    Like any request, a `Subscribe` has a deadline, and waits while the server is down. Tasks of the connection send
    `Subscribe` again for earlier subscriptions, and for ended streams.
    """

    subscription: Subscription

    @property
    def operation(self) -> str:
        """``resources/subscribe`` as in the legacy era, and the resources."""
        return f"resources/subscribe {', '.join(map(mask_url, self.subscription.uris))!r:.200}"

    of_the_session: ClassVar[bool] = True

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        """Subscribe to each resource, or open a stream for all.

        Raises:
            NotSupported: the server does not announce changes, or not for these resources.
            mcp.MCPError: as for `Request.send`.
        """
        if self.subscription not in record.subscriptions:
            return  # the subscription has ended while this request waited
        require("resources_subscribe", session.capabilities, record.config.name, self.operation)
        connection = record.subscriptions.connection
        assert isinstance(connection, OpenSubscriptions)  # requests are handled only while connected
        if connection.session is not session:
            await connection.pass_on(self.subscription)  # another replica has the subscriptions
            return
        await (connection.listen(self) if connection.modern else connection.subscribe(self))
        self.subscription.established()


@define(eq=False)
class Unsubscribe(Request[None]):
    """Unsubscribe from one unwanted resource of a legacy server."""

    operation: ClassVar[str] = "resources/unsubscribe"

    async def send(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        connection = record.subscriptions.connection
        if connection is not None:
            with trio.move_on_after(10):  # another subscription has the turn, perhaps without an answer
                await connection.unsubscribe()


@define(eq=False)
class OpenSubscriptions:
    """The subscriptions of one connection.

    Attributes:
        tasks: runs renewals and streams.
        actor: the actor of the server, whose mailbox takes the requests.
    """

    session: ConnectionSession
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
    # Limits concurrent renewals: hundreds may be due, and the mailbox is for callers.
    _renewals: trio.Semaphore = field(factory=partial(trio.Semaphore, 8), init=False)

    @property
    def modern(self) -> bool:
        return self.session.modern

    async def pass_on(self, subscription: Subscription) -> None:
        """Pass a subscription to the replica that has the subscriptions.

        Raises:
            ConnectionLost: the replica is lost; another takes over the subscriptions.
            LimitExceeded, NotSupported, mcp.MCPError: as for `Subscribe.send`.
        """
        request = Subscribe(subscription)
        try:
            await request_internally(self.record, self.actor, request)
        except (ActorCrashed, ActorStopped) as exc:
            name = self.record.config.name
            problem = f"server {name!r}: {request.operation}: connection of replica {self.actor.name!r} lost"
            raise ConnectionLost(f"{problem}; subscribe again", server=name) from exc.__cause__

    def forget(self, subscription: Subscription) -> None:
        self._early_ends.pop(subscription, None)
        if not self.modern:
            self._forgotten += subscription.uris
            self._send_unsubscribe()
        elif (stream := self._streams.pop(subscription, None)) is not None:
            stream.scope.cancel("the subscription has ended")

    # --- legacy: one request per resource ---------------------------------------------------------------------------

    # `subscribe` and `unsubscribe` exclude each other (`_turn`): two subscriptions may share a resource, and the server
    # may handle concurrent requests in any order, so an unsubscribe could silence a live subscription. Each
    # `unsubscribe` checks `wants` when its turn has come. One request per turn lets subscriptions in between.

    async def subscribe(self, request: Subscribe) -> None:
        """Subscribe to resources new to this connection."""
        async with self._turn:
            for uri in request.subscription.uris:
                if uri not in self._subscribed and self.record.subscriptions.wants(uri):
                    self._asked.add(uri)
                    try:
                        await self.session.ask("resources/subscribe", {"uri": uri}, attempt=request.deadline)
                    except Exception:
                        self._asked.discard(uri)  # refused; a cancelled request stays, because it may have subscribed
                        raise
                    self._subscribed.add(uri)

    def note_gap(self) -> None:
        """Report possibly missed changes between two streams of a legacy server over HTTP."""
        for subscription in self.record.subscriptions.to_renew():
            if self._subscribed.issuperset(subscription.uris):
                subscription.missed()

    async def unsubscribe(self) -> None:
        """Unsubscribe from the next unwanted resource."""
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
        """Send the next `Unsubscribe`; one at a time, even if many subscriptions end together."""
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
        while True:
            try:
                await self.actor.tell(Unsubscribe())
            except MailboxFull:  # with overflow="fail"
                await trio.sleep(UNSUBSCRIBE_TIMEOUT)
            except ActorError:  # the connection has ended
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

    async def listen(self, request: Subscribe) -> None:
        """Open the stream of a subscription, unless already open.

        **Cancellation**: closes the stream.

        Raises:
            LimitExceeded: the maximum of streams is open.
            NotSupported, ConnectionLost, mcp.MCPError: the stream cannot be opened.
        """
        subscription, operation = request.subscription, request.operation
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
        """Limit the streams: each takes an HTTP connection, and requests need a free connection."""
        bound = self.link.max_connections
        taken = 2 if lists_that_change(self.session) else 1  # changed lists, and requests
        if bound is not None and len(self._streams) >= bound - taken:
            name = self.record.config.name
            raise LimitExceeded(
                f"server {name!r}: {operation}: too many subscriptions ({len(self._streams)}): each takes an HTTP "
                f"connection, and the rest of max_connections={bound} is reserved for requests; subscribe to several "
                "resources at once, or raise max_connections",
                server=name,
                outcome="not_sent",
            )

    def _ended(self, stream: ResourceStream) -> None:
        """Reopen an ended stream, unless closed from this side or never accepted."""
        subscription = stream.subscription
        if self._streams.get(subscription) is stream and self._streams.pop(subscription).acknowledged:
            # A stable stream is reopened at once: proxies end streams after minutes.
            ends = 0 if stream.lasted >= 60.0 else self._early_ends.get(subscription, 0) + 1
            self._early_ends[subscription] = ends
            self._start(self._renew, subscription, ends)

    # --- renewal ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        for subscription in self.record.subscriptions.to_renew():
            self._start(self._renew, subscription, 0)

    async def _renew(self, subscription: Subscription, failures: int) -> None:
        """Subscribe again, until success or a final refusal."""

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

        await keep_trying(attempt, AFTER_FAILURE, describe, failures=failures)

    def _start(self, fn: Callable[[*Args], Awaitable[None]], *args: *Args) -> None:
        self.tasks.start_soon(fn, *args, name=f"{self.record.config.name}:subscription")


def renew_subscriptions(
    session: ConnectionSession, link: Link, tasks: Background, record: ConnectionRecord, actor: ActorRef
) -> AbstractContextManager[None]:
    connection = OpenSubscriptions(session, link, tasks, record, actor)
    link.lifeline.on_gap.append(connection.note_gap)
    return record.subscriptions.connected(connection)


# --- One stream per subscription, over which a modern server announces changed resources ------------------------------


@define(eq=False)
class ResourceStream(Handle):
    """The stream of one subscription, and the task that keeps it open.

    Attributes:
        on_end: called when the stream has ended, closed by either side.
        scope: the scope of the task; cancel it to close the stream.
        opened: set when the server has accepted or refused the stream.
    """

    server: str
    session: ConnectionSession
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
        """Seconds since acceptance."""
        return 0.0 if self._began is None else trio.current_time() - self._began

    async def run(self) -> None:
        try:
            with self.scope:
                # If the session was closed meanwhile, `listen` would leave a coroutine that is never awaited.
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
        # After `opened`: a waiting `OpenSubscriptions.listen` still sees this stream. A cancellation from
        # outside skips this line, so nothing is reopened. The scope swallows only a cancellation by `forget`, after
        # which `_ended` no longer finds the stream.
        self.on_end(self)

    def check(self, operation: str) -> None:
        """Raise the error of a stream that was refused, or accepted for some resources only.

        Raises:
            NotSupported: the server does not announce changes of some resources.
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

# Since 2026-07-28 a server announces changed lists only over a stream opened by the client (``subscriptions/listen``).
# The SDK passes the notifications to the same handler in both eras, so this task only consumes. A server never repeats
# changes from before a stream, so after each reopening listeners receive `NotificationsMissed`. A server that refuses
# the stream is used without one: each connect lists its tools.


HEAD_START: Final = 0.25
"""Seconds to wait for the stream before listing tools, so no change in between is missed. If the stream opens later,
tools are listed again."""

RECONNECT_BACKOFF: Final = Backoff(first=0.1, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds between two streams."""

STREAM_REFUSALS: Final = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""Error codes of servers without support for the stream."""


AFTER_END: Final = 0.001
"""Seconds before a stable stream is reopened."""


def lists_that_change(session: ConnectionSession) -> dict[str, bool]:
    """Return the lists that need a stream, as arguments of `ConnectionSession.listen`; none in the legacy era."""
    if not session.modern:
        return {}
    can = session.capabilities
    lists = {"tools": can.tools, "prompts": can.prompts, "resources": can.resources}
    return {f"{name}_list_changed": True for name, each in lists.items() if each is not None and each.list_changed}


@define(eq=False)
class ChangeStream:
    """The stream over which one connection's server announces changed lists.

    Args:
        lists: the lists that may change.
        on_gone: called if the server cannot be reached, or no longer knows the session; ends the connection.
    """

    server: str
    session: ConnectionSession
    incoming: MessageRelay
    lists: dict[str, bool]
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
        # A cancelled connect may have closed the session already. `listen` would then leave a coroutine that is never
        # awaited.
        await trio.lowlevel.checkpoint_if_cancelled()
        going_on = True
        while going_on:
            going_on = await keep_trying(self._consume, RECONNECT_BACKOFF, self._describe, level=logging.DEBUG)
            # A stream often ends with the connection, which cancels this task a step or two later. Asking the ended
            # session again would leave such a coroutine, too.
            await trio.sleep(AFTER_END)

    async def _consume(self) -> None:
        """Consume a stream until its end; raise the reason unless the stream was stable (half a minute)."""
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
        self._opened.set()  # release `begin`, even without a stream
        if isinstance(error, ConnectionOver):
            self.on_gone(error)
        if trio.current_time() - opened_at < 30.0:
            raise error

    def _describe(self, error: Exception, delay: float) -> str | None:
        problem = problem_of(error)
        if _is_refusal(error):
            logger.debug("server %r: does not support a stream of notifications: %s", self.server, problem)
            return None
        return f"server {self.server!r}: stream of notifications ended ({problem}); opening it again in {delay:.3g} s"


def _is_refusal(error: Exception) -> bool:
    """Return True if the server does not support the stream; False if the stream ended, or failed this time."""
    match error:
        case SubscriptionLost() if isinstance(error.__cause__, MCPError):
            return error.__cause__.code in STREAM_REFUSALS
        case MCPError():
            return error.code in STREAM_REFUSALS
        case HttpStatusError():
            return not is_transient(error)
        case _:
            return False
