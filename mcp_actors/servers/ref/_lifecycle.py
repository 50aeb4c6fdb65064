"""Ask for changes of servers: start, stop and reconnect.

The lifecycle actor of the group carries them out (``group._lifecycle``), because a change must be completed even if its
caller is cancelled half-way: callers of a server that was closed for a reconnect, and then forgotten, would wait
forever.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

import trio
from attrs import field, frozen

from ..._errors import ActorCrashed, ActorStopped, ServerUnavailable
from ...kernel import Call
from ..basics import open_background

if TYPE_CHECKING:
    from ...kernel import ActorRef, SupervisorRef
    from ..record import Retirement, ServerRecord

__all__ = ["Reconnect", "Retire", "ServerEntry", "Start", "Stop", "change"]


@frozen
class ServerEntry:
    """A server with its own supervisor."""

    record: ServerRecord
    supervisor: SupervisorRef
    turn: trio.Lock = field(factory=trio.Lock, eq=False, repr=False)
    """Held by the change that is being carried out."""

    @property
    def name(self) -> str:
        """The server's name."""
        return self.record.config.name


@frozen
class Reconnect(Call[None]):
    """Close these connections, then connect them again concurrently.

    With ``failed_only``, a server that is no longer failed when it is this change's turn is left alone.
    """

    servers: tuple[ServerEntry, ...]
    failed_only: bool = False


@frozen
class Start(Call[None]):
    """Connect servers that do not run."""

    servers: tuple[ServerEntry, ...]


@frozen
class Stop(Call[None]):
    """Disconnect servers and keep them stopped. It overtakes other changes, so it also ends a connect that hangs."""

    control: ClassVar[bool] = True

    servers: tuple[ServerEntry, ...]


@frozen
class Retire(Call[None]):
    """Disconnect a server whose connection is idle or old; an old one is connected again.

    It is left alone if it has been started, stopped or connected anew since: then this was about another connection.
    """

    server: ServerEntry
    why: Retirement
    incarnation: int
    wishes: int


async def change(lifecycle: ActorRef, message: Reconnect | Start | Stop) -> None:
    """Make a change and wait for it, but not for the overdue connect of an optional server, which goes on.

    Raises:
        ConnectFailed: a required server could not be connected. Servers that this change started are stopped again;
            the others are unaffected.
        ServerUnavailable: the group was closed, or one of the servers was removed from it.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    if not message.servers:
        return
    for server in message.servers:
        if server.record.life.leaving:
            raise server.record.life.gone()
    if not (isinstance(message, Reconnect) and message.failed_only):
        # Set before the change waits for its turn: the latest call of start() or stop() wins.
        for server in message.servers:
            server.record.life.want(not isinstance(message, Stop))
    try:
        with trio.CancelScope() as waiting:
            async with open_background() as background:
                for server in () if isinstance(message, Stop) else message.servers:
                    task = f"{server.name}:overdue"
                    background.start_soon(_leave_if_overdue, waiting, server.record, message.servers, name=task)
                await lifecycle.call(message)
    except (ActorStopped, ActorCrashed):
        raise message.servers[0].record.life.gone() from None


async def _leave_if_overdue(waiting: trio.CancelScope, record: ServerRecord, servers: tuple[ServerEntry, ...]) -> None:
    """Cancel the wait when a server is overdue and no other server has to be waited for."""
    with suppress(ServerUnavailable):  # the group was closed, or the server removed
        while True:
            await record.life.wait_connected()
            if record.life.overdue and not any(server.record.life.awaited for server in servers):
                waiting.cancel("every server that is still connecting is overdue")
            await record.life.wait_change()
