"""Start, stop and reconnect servers, one change at a time.

An actor, a child of the group, carries out each change, because a change must be completed even if its caller is
cancelled half-way: callers of a server that was closed for a reconnect, and then forgotten, would wait forever. Changes
of one server take turns (`ServerEntry.turn`); changes of different servers run concurrently.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import trio
from attrs import field, frozen

from ..._collapse import collapse, first_of
from ..._errors import ActorCrashed, ActorStartError, ActorStopped, ChildError, ConnectFailed, ServerUnavailable
from ...kernel import Actor, Call
from ..basics import open_background
from ..record import CONNECTED, FAILED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from ...kernel import ActorRef, SupervisorRef
    from ..record import ServerRecord

__all__ = ["LifecycleActor", "Reconnect", "ServerEntry", "Start", "Stop", "change"]

MAX_CHANGES: Final = 1000
"""The number of changes carried out concurrently; further ones wait in the mailbox. A change costs only its turn."""


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


class LifecycleActor(Actor):
    """Carries out changes.

    A change is shielded, so it goes on when its caller leaves. The servers' timeouts bound it, and so does the end of
    the group, which ends every start in progress.
    """

    max_in_flight = MAX_CHANGES

    async def handle(self, message: Reconnect | Start | Stop) -> None:
        """Carry out a change.

        Raises:
            ConnectFailed: a required server could not be connected. Servers that this change started are stopped
                again; the others are unaffected.
        """
        with trio.CancelScope(shield=True):
            match message:
                case Reconnect(servers, failed_only):
                    servers = _due(servers) if failed_only else servers
                    async with _turns(servers):
                        await _reconnect(_due(servers) if failed_only else servers)
                case Start(servers):
                    async with _turns(servers):
                        await _start(servers)
                case Stop(servers):
                    await _each(_stop, servers)


@asynccontextmanager
async def _turns(servers: tuple[ServerEntry, ...]) -> AsyncIterator[None]:
    """Acquire the turn of each server, one after the other.

    Every change names its servers in configured order, so two changes cannot deadlock.
    """
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.turn)
        yield


def _due(servers: tuple[ServerEntry, ...]) -> tuple[ServerEntry, ...]:
    """Return the servers that have failed and were not stopped explicitly."""
    return tuple(server for server in servers if server.record.life.wanted and server.record.life.state in FAILED)


async def _reconnect(servers: tuple[ServerEntry, ...]) -> None:
    for server in servers:
        server.record.life.set_returning(True)
    try:
        await _each(_suspend, servers)
        await _start(servers)
    finally:
        for server in servers:
            server.record.life.set_returning(False)


async def _start(servers: tuple[ServerEntry, ...]) -> None:
    failures: dict[str, ConnectFailed] = {}
    await _each(partial(_try_start, failures=failures), servers)
    if not failures:
        return
    await _each(_stop, [server for server in servers if server.name not in failures])
    raise first_of(failures[server.name] for server in servers if server.name in failures)


async def _try_start(server: ServerEntry, failures: dict[str, ConnectFailed]) -> None:
    if not server.record.life.wanted:  # stop() was called meanwhile
        return
    server.record.life.parked = False
    if server.record.life.state not in CONNECTED:
        server.record.health.forgive()
    try:
        await server.supervisor.restart_child(server.name)
    except ActorStartError as exc:
        if isinstance(exc.__cause__, ConnectFailed):  # else it was stopped while it was starting
            failures[server.name] = exc.__cause__
    except ChildError as exc:
        if exc.reason not in ("running", "restarting"):
            raise


async def _suspend(server: ServerEntry) -> None:
    await server.supervisor.stop_child(server.name, keep_mailbox=True)


async def _stop(server: ServerEntry) -> None:
    await server.supervisor.stop_child(server.name)
    server.record.life.note_stopped()


async def _each(step: Callable[[ServerEntry], Awaitable[None]], servers: Iterable[ServerEntry]) -> None:
    """Run a step for each server, concurrently."""
    try:
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(step, server, name=f"{server.name}:change")
    except BaseExceptionGroup as group:
        raise collapse(group) from None


async def change(lifecycle: ActorRef, message: Reconnect | Start | Stop) -> None:
    """Make a change and wait for it, but not for the overdue connect of an optional server, which goes on.

    Raises:
        ConnectFailed: see `LifecycleActor.handle`.
        ServerUnavailable: the group was closed.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    if not message.servers:
        return
    if not (isinstance(message, Reconnect) and message.failed_only):
        # Set before the change waits for its turn: the latest call of start() or stop() wins.
        for server in message.servers:
            server.record.life.wanted = not isinstance(message, Stop)
    try:
        with trio.CancelScope() as waiting:
            async with open_background() as background:
                for server in () if isinstance(message, Stop) else message.servers:
                    task = f"{server.name}:overdue"
                    background.start_soon(_leave_if_overdue, waiting, server.record, message.servers, name=task)
                await lifecycle.call(message)
    except (ActorStopped, ActorCrashed):
        raise message.servers[0].record.life.group_left() from None


async def _leave_if_overdue(waiting: trio.CancelScope, record: ServerRecord, servers: tuple[ServerEntry, ...]) -> None:
    """Cancel the wait when a server is overdue and no other server has to be waited for."""
    with suppress(ServerUnavailable):  # the group was closed
        while True:
            await record.life.wait_connected()
            if record.life.overdue and not any(server.record.life.awaited for server in servers):
                waiting.cancel("every server that is still connecting is overdue")
            await record.life.wait_change()
