"""What a server sends unasked, over one connection: who hears of it, and in which task.

Theory of operation
-------------------
Those who want to hear (`Listeners`) outlive connections, and so live in the server's record. What a server sends comes
over one connection; each attempt to connect has an `Incoming` of its own, which gives `mcp.Client` its callbacks and
passes on what comes, for as long as that attempt lasts. So no late event of an old connection reaches anybody while a
new one stands, and nobody who listens has to do anything when the server is connected anew.

A listener is a plain synchronous function, called in the task in which the SDK delivers the message. It notes what has
come (sets an event, tells an actor, puts it into a bounded buffer) and returns: with an in-process server it runs in
the middle of what that server is doing, so one that waited would hold up everything. Whatever takes longer, and any
code of the user's, runs in a task of its own (see `Incoming.tasks`), and thereby also after all listeners. A listener
that raises is logged, and hurts neither the others nor the connection.

To listen, for as long as a block lasts or for as long as the record does::

    with record.listeners.added(ResourceUpdatedNotification, on_update):  # typed: on_update gets one of these
        ...
    record.listeners.add(ToolListChangedNotification, catalogue.mark_stale)

The SDK starts a task for each notification, and the tasks of one burst run in any order; so do they and the task that
waits for an answer that came in the same burst. A listener must not depend on either order.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from attrs import define, field, frozen

from ..basics import open_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from mcp.client.session import (
        ElicitationFnT,
        IncomingMessage,
        ListRootsFnT,
        MessageHandlerFnT,
        SamplingFnT,
    )
    from mcp.types import SamplingCapability

    from ..basics import Background

__all__ = ["ClientCallbacks", "Incoming", "Listeners", "NotificationsMissed", "open_incoming"]

M = TypeVar("M")

logger = logging.getLogger("mcp_actors.servers")


class ClientCallbacks(TypedDict, total=False):
    """What `mcp.Client` calls for what a server sends unasked, and what it says of that; its arguments by name."""

    message_handler: MessageHandlerFnT
    sampling_callback: SamplingFnT
    sampling_capabilities: SamplingCapability | None
    elicitation_callback: ElicitationFnT
    list_roots_callback: ListRootsFnT


@frozen
class NotificationsMissed:
    """Told to listeners: notifications of any kind may have been missed, so ask for what you know anew."""


@frozen(eq=False)
class _Listener(Generic[M]):
    kind: type[M]
    fn: Callable[[M], object]


class Listeners:
    """Who hears of what a server sends unasked, over whichever connection.

    Args:
        server: whose messages they are.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._listeners: tuple[_Listener[Any], ...] = ()

    def add(self, kind: type[M], fn: Callable[[M], object]) -> Callable[[], None]:
        """Call a function with each message of one kind, after those that were added before. Returns what ends that.

        Args:
            kind: a class of notification of the SDK's; ``Exception`` for faults of the transport;
                `NotificationsMissed`; ``object`` for all of these.
            fn: called synchronously. It must return soon, and may add and remove listeners.
        """
        listener = _Listener(kind, fn)
        self._listeners = (*self._listeners, listener)
        return lambda: self._remove(listener)

    @contextmanager
    def added(self, kind: type[M], fn: Callable[[M], object]) -> Iterator[None]:
        """Listen as `add` does, for the time of the block."""
        remove = self.add(kind, fn)
        try:
            yield
        finally:
            remove()

    def tell(self, message: object) -> None:
        """Pass a message on to all who want to hear of its kind."""
        for listener in self._listeners:
            if isinstance(message, listener.kind):
                try:
                    listener.fn(message)
                except Exception:
                    logger.exception("server %r: what listens to its %s raised", self._server, type(message).__name__)

    def _remove(self, listener: _Listener[Any]) -> None:
        self._listeners = tuple(each for each in self._listeners if each is not listener)


@define(eq=False)
class Incoming:
    """One attempt to connect, seen from the server's side: passes on what it sends, until the attempt is over.

    The owner task of the server's actor opens it before it enters the client, and closes it before it leaves that.

    Attributes:
        listeners: who hears of it.
        tasks: where to start a task for what takes longer than a listener may. It runs beside the client, in the
            owner's tree; no cancellation from outside reaches it, and it is cancelled as soon as the client is being
            left. An exception out of it ends the connection, so it has to take care of its own.
        closed: True once nothing more is passed on.
    """

    listeners: Listeners
    tasks: Background
    closed: bool = field(default=False, init=False)

    def callbacks(self) -> ClientCallbacks:
        """What to give to `mcp.Client`."""
        return {"message_handler": self._handle}

    def close(self) -> None:
        """Pass nothing on any more, and cancel the tasks: what still comes is of a connection that is over."""
        self.closed = True
        self.tasks.cancel("the connection is over")

    async def _handle(self, message: IncomingMessage) -> None:
        # No checkpoint: with an in-process server of the modern era this is awaited by whatever in it sends a message.
        if not self.closed:
            self.listeners.tell(message)


@asynccontextmanager
async def open_incoming(listeners: Listeners) -> AsyncIterator[Incoming]:
    """Open a place for what comes in, and for its tasks, around a client."""
    async with open_background() as tasks:
        yield Incoming(listeners, tasks)
