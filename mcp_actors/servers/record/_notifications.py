"""Pass what a server sends unasked to listeners, connection by connection.

Theory of operation
-------------------
Listeners (`Listeners`) outlive connections, so they belong to the server's record. Each attempt to connect has an
`Incoming` of its own, which handles the messages of its session and passes them on while that attempt lasts. So no late
message of an old connection reaches a listener during a new one, and listeners need not follow reconnects.

A listener is a plain synchronous function, called in the task that reads the message. It notes the
message (sets an event, tells an actor, puts it into a bounded buffer) and returns: with an in-process server it runs in
the middle of that server's code, so a listener that waited would block the server. Anything slower, and all code of the
user, runs in a task of its own (see `Incoming.tasks`), and so after all listeners. If a listener raises, that is logged
and affects neither the others nor the connection.

To listen during a block, or as long as the record exists::

    with record.listeners.added(ResourceUpdatedNotification, on_update):  # typed: on_update gets one of these
        ...
    record.listeners.add(ToolListChangedNotification, catalogue.mark_stale)

Listeners are called in the order in which the server has sent its messages, and before the caller of a request learns
of an answer that came after them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import define, field, frozen

from ..._foreign import Log
from ..._tasks import open_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from mcp.client.session import IncomingMessage

    from ..._tasks import Background

M = TypeVar("M")

logger = Log("mcp_actors.servers")


@frozen
class NotificationsMissed:
    """Message to listeners: notifications of any kind may have been missed, so fetch again what they announce."""


@frozen(eq=False)
class _Listener(Generic[M]):
    kind: type[M]
    fn: Callable[[M], object]


class Listeners:
    """The listeners of one server, over all its connections.

    Args:
        server: the name of the server.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._listeners: tuple[_Listener[Any], ...] = ()

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
        if not self.closed:
            self.listeners.tell(message)


@asynccontextmanager
async def open_incoming(listeners: Listeners, on_failure: Callable[[Exception], object]) -> AsyncIterator[Incoming]:
    """Open an `Incoming` around a client; cancel its tasks at the end. See `open_background` for ``on_failure``."""
    async with open_background(on_failure) as tasks:
        yield Incoming(listeners, tasks)
