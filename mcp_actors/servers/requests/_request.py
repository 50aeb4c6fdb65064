"""The base of all messages to a server actor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from attrs import define, field
from mcp.types import LOG_LEVEL_META_KEY

from ...config import Middleware
from ...kernel import Call

if TYPE_CHECKING:
    from ...kernel import ActorRef
    from ..policy import Deadline
    from ..record import ServerRecord
    from ..session import Session

T = TypeVar("T")


@define(eq=False, kw_only=True)
class Request(Call[T]):
    """A message to a server actor. A request task of the actor calls its `send` with the actor's session.

    Nothing but `session_refused` changes after a request was sent. It is neither frozen nor an `abc.ABC` all the same,
    because every call creates one: a frozen class takes three times as long for that, and an abstract one five times as
    long for a check of its type.

    Attributes:
        deadline: when the request times out. `Deadlines` enforces it; each progress notification renews it.
        session_refused: whether the server has refused it as one of a session that it does not know. If it does so on
            the next session, too, it is that request which the server refuses, and more sessions would not help.
    """

    of_the_session: ClassVar[bool] = False
    """Whether the request is about the shared session, so that it needs that very connection."""

    is_tool_call: ClassVar[bool] = False
    """Whether the result may say that the server has refused it (``is_error``)."""

    deadline: Deadline | None = field(default=None, repr=False)
    session_refused: bool = field(default=False, init=False, repr=False)

    @property
    @abstractmethod
    def operation(self) -> str:
        """The protocol's method and its main argument, for errors and logs: ``tools/call 'add'``."""

    def repeatable(self, record: ServerRecord) -> bool:
        """Return whether the request may be sent again after the server may have acted on it. Lists and reads may."""
        return True

    def suggestion(self, record: ServerRecord) -> str | None:
        """Return what the caller may have meant, for the error of a request that has failed; None if unknown."""
        return None

    async def through(
        self, send: Callable[[Request[T]], Awaitable[T]], middleware: tuple[Middleware, ...], server: str
    ) -> T:
        """Send the request through the user's middleware, if there is any for its kind."""
        return await send(self)

    @abstractmethod
    async def send(self, session: Session, record: ServerRecord) -> T:
        """Send the request on the session of this connection and return its result.

        **Cancellation**: the server is asked to cancel a request that was sent.

        Raises:
            mcp.MCPError: the server answered with an error, or the connection was lost.
        """


def meta_for(session: Session, record: ServerRecord, meta: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Return the ``_meta`` of a request: the caller's, plus the log level since 2026-07-28 (see `_log_level`)."""
    if record.opening.log_level is not None and session.modern:
        return {LOG_LEVEL_META_KEY: record.opening.log_level, **(meta or {})}
    return meta


async def request_internally(record: ServerRecord, actor: ActorRef, request: Request[T]) -> T:
    """Send a request from one of the server's own tasks: through the mailbox, with a deadline, without retries.

    **Cancellation**: leaves at once.

    Raises:
        ActorError: the actor cannot answer, for example because the connection was lost.
        ServerError, mcp.MCPError: the request failed.
    """
    with record.calls.deadlines.begin(request.operation, own=True) as deadline:
        request.deadline = deadline
        deadline.call = call = actor.send_request(request)
        return await call.wait()
