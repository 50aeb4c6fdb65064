"""The base of all messages to a server actor: each carries itself out on the session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve, field, frozen
from mcp.types import LOG_LEVEL_META_KEY, CallToolRequest, GetPromptRequest, ReadResourceRequest
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ..config import Middleware
from ..kernel import Call

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import RequestParamsMeta

    from ..kernel import ActorRef
    from ._deadlines import Deadline
    from ._record import ServerRecord

__all__ = ["Request", "ask_from_beside", "meta_for"]

for unfinished in (CallToolRequest, GetPromptRequest, ReadResourceRequest):
    # Else pydantic does it in the middle of the first request, and makes an error of its own of a Ctrl-C there.
    unfinished.model_rebuild()

T = TypeVar("T")


@frozen(kw_only=True)
class Request(Call[T], ABC):
    """A message to a server actor. It carries out itself, in a request task of the actor, on the actor's session.

    Attributes:
        deadline: when it expires. Kept by the server's `Deadlines`, and renewed at each notice of progress.
    """

    deadline: Deadline | None = field(default=None, eq=False, repr=False)

    @property
    @abstractmethod
    def operation(self) -> str:
        """What is asked of the server, in the words of the protocol."""

    def repeatable(self, record: ServerRecord) -> bool:
        """Whether it may be sent again when the server may have acted on it. Lists and reads may."""
        return True

    @property
    def of_the_session(self) -> bool:
        """Whether it is about the connection that everybody uses, so that another one would not do."""
        return False

    async def through(self, send: Callable[[Request[T]], Awaitable[T]], middleware: tuple[Middleware, ...]) -> T:
        """Have it sent, through what the user has put around requests of its kind."""
        return await send(self)

    @abstractmethod
    async def send(self, client: Client, record: ServerRecord) -> T:
        """Do it, on the session of this connection.

        **Cancellation**: the SDK tells the server to cancel what was sent.

        Raises:
            mcp.MCPError: the server's answer was an error, or the connection is gone.
        """


def meta_for(client: Client, record: ServerRecord, meta: Mapping[str, Any] | None = None) -> RequestParamsMeta | None:
    """Return the ``_meta`` of a request: what its caller gave, and from which level on to send log messages.

    Only since 2026-07-28 does the latter stand there, see `_log_level`.
    """
    if record.log_level is not None and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        meta = {LOG_LEVEL_META_KEY: record.log_level, **(meta or {})}
    return None if meta is None else dict(meta)  # type: ignore[return-value]  # a TypedDict, open to more


async def ask_from_beside(record: ServerRecord, actor: ActorRef, request: Request[T]) -> T:
    """Have a request answered for a task of the server's own; through the mailbox, in its time, and once.

    **Cancellation**: leaves at once.

    Raises:
        ActorError: what the kernel has to say about it, such as that the connection has ended.
        ServerError, mcp.MCPError: what came of it instead.
    """
    with record.deadlines.begin(request.operation) as deadline:
        deadline.call = call = actor.send_request(evolve(request, deadline=deadline))
        return await call.wait()
