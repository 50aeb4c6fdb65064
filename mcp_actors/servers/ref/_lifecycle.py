"""Ask for changes of servers: start, stop and reconnect.

The lifecycle actor of the group carries them out (``group._lifecycle``), because a change must be completed even if its
caller is cancelled half-way: callers of a server that was closed for a reconnect, and then forgotten, would wait
forever.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

import trio
from attrs import field, frozen

from ..._errors import ActorCrashed, ActorStartError, ActorStopped, ChildError, ServerUnavailable
from ..._flavor import check_trio
from ...kernel import Call, SupervisorRef
from ..basics import fan_out, open_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ...kernel import ActorRef
    from ..record import Retirement, ServerRecord


@frozen
class ServerEntry:
    """A server with its own supervisor, and that of its group."""

    record: ServerRecord
    supervisor: SupervisorRef
    group: SupervisorRef

    @cached_property
    def turn(self) -> trio.Lock:
        """Held by the change that is being carried out."""
        return trio.Lock()

    @property
    def name(self) -> str:
        """The server's name."""
        return self.record.config.name

    @property
    def _pool(self) -> SupervisorRef:
        return self.supervisor.child(self.name, SupervisorRef)

    def actor(self, record: ServerRecord) -> ActorRef:
        """Return its actor, or that of a replica, by the record of it."""
        return self.supervisor.child(self.name) if record is self.record else self._pool.child(record.name)

    async def wake(self) -> None:
        """Start its own supervisor if that is dormant. Changes of its actor that are asked for meanwhile wait there."""
        if not self.record.woken:
            self.record.woken = True
            await restart(self.group, self.supervisor.name)

    def note_stopped(self) -> None:
        """Show it as stopped if no actor runs whose end could be followed."""
        # The server last: if it is idle, its replicas are stopped already, and nothing of them changes.
        for record in (*self.record.replicas, self.record):
            record.life.note_stopped()

    async def start(self) -> None:
        """Start its actor if that does not run; of replicas, those that do not run.

        Raises:
            ActorStartError: it is required and did not start, or it was stopped meanwhile.
            ActorStopped: the group was closed.
        """
        await self.wake()
        if not self.record.life.wanted:  # stop() was called meanwhile
            return
        if await restart(self.supervisor, self.name) or len(self.record.replicas) == 1:
            return
        failures: list[ActorStartError] = []
        await fan_out(partial(self._start_replica, failures=failures), self.record.replicas, "start")
        if failures:
            raise failures[0]

    async def _start_replica(self, replica: ServerRecord, failures: list[ActorStartError]) -> None:
        async with self.open_pool() as pool:
            try:
                await restart(pool, replica.name)
            except ActorStartError as exc:
                failures.append(exc)

    @asynccontextmanager
    async def open_pool(self) -> AsyncIterator[SupervisorRef]:
        """Change replicas in a block, which ends early, without an error, when their pool does not run (any more)."""
        pool = self._pool
        with trio.CancelScope() as scope, suppress(ActorCrashed, ActorStopped):
            async with open_background() as background:
                # The mailbox of a stopped pool may stay open for its next incarnation. That starts all replicas, so the
                # change is not needed; and it may have to wait for the turn of this change, so waiting is a deadlock.
                background.start_soon(_cancel_unless_running, pool, scope, name=f"{self.name}:pool")
                yield pool


async def _cancel_unless_running(pool: SupervisorRef, scope: trio.CancelScope) -> None:
    await pool.wait_state("starting", "backoff", "stopping", "stopped", "failed")
    scope.cancel("the pool of replicas does not run")


async def restart(supervisor: SupervisorRef, child: str) -> bool:
    """Start an actor; return False, and do nothing, if it runs or is about to.

    Raises:
        ActorStartError: as for `ServerEntry.start`.
    """
    try:
        await supervisor.restart_child(child)
    except ChildError as exc:
        if exc.reason not in ("running", "restarting"):
            raise
        return False
    return True


@asynccontextmanager
async def turns(servers: tuple[ServerEntry, ...]) -> AsyncIterator[tuple[ServerEntry, ...]]:
    """Acquire the turn of each server. Yields those that were not removed meanwhile.

    All changes acquire turns in the order of the names, so no two can deadlock.
    """
    async with AsyncExitStack() as stack:
        for server in sorted(servers, key=lambda server: server.name):
            await stack.enter_async_context(server.turn)
        yield tuple(server for server in servers if not server.record.life.leaving)


@contextmanager
def starting(servers: tuple[ServerEntry, ...]) -> Iterator[None]:
    """Let waits for these servers outlast this block, in which they are started, unless they are stopped meanwhile.

    The caller of a change is in such a block from its first step on, and the change itself, which may outlive it.
    """
    for server in servers:
        server.record.life.count_starts(1)
    try:
        yield
    finally:
        for server in servers:
            server.record.life.count_starts(-1)


@frozen(eq=False)
class Change(Call[None]):
    """A change of servers.

    Attributes:
        waiting: the scope in which its caller waits. It is a shield until the change has begun: a caller that was
            cancelled before would take it back, although the server is wanted, or not wanted, since its first step.
    """

    servers: tuple[ServerEntry, ...]
    waiting: trio.CancelScope = field(factory=partial(trio.CancelScope, shield=True), init=False)


@frozen(eq=False)
class Reconnect(Change):
    """Close these connections, then connect them again concurrently.

    With ``failed_only``, a server that is no longer failed when it is this change's turn is left alone. With ``ask``,
    they may ask a person to sign in, by a configured callback.
    """

    failed_only: bool = False
    ask: bool = field(default=True, kw_only=True)


@frozen(eq=False)
class Start(Change):
    """Connect servers that do not run."""


@frozen(eq=False)
class Stop(Change):
    """Disconnect servers and keep them stopped. It overtakes other changes, so it also ends a connect that hangs."""

    control: ClassVar[bool] = True


@frozen(eq=False)
class Retire(Call[None]):
    """Disconnect a server that is idle; or a connection of it that is old, and connect it again.

    It is left alone if it has been started, stopped or connected anew since: then this was about another connection.
    """

    server: ServerEntry
    why: Retirement
    record: ServerRecord
    incarnation: int
    wishes: int


async def change(lifecycle: ActorRef, message: Change) -> None:
    """Make a change and wait for it, but not for the overdue connect of an optional server, which goes on.

    Raises:
        ConnectFailed: a required server could not be connected. Servers that this change started are stopped again;
            the others are unaffected.
        ServerUnavailable: the group was closed, or one of the servers was removed from it.
        RuntimeError: the caller is outside the Trio run of the group.
    """
    subject = " and ".join(f"server {server.name!r}" for server in message.servers) or "this group of servers"
    check_trio(subject, here=all(server.record.calls.deadlines.lives_here for server in message.servers))
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
            if isinstance(message, Stop) and not server.record.woken:
                server.note_stopped()  # before the next request, which would start a server that was never used
    started = () if isinstance(message, Stop) else message.servers
    try:
        with message.waiting, starting(started):
            async with open_background() as background:
                for server in started:
                    task = f"{server.name}:overdue"
                    background.start_soon(_leave_if_overdue, message, server.record, name=task)
                await lifecycle.call(message)
                for server in started:  # a new configuration may have come meanwhile, which is yet to be connected
                    await server.record.life.wait_awaited()
    except (ActorStopped, ActorCrashed):
        raise message.servers[0].record.life.gone() from None


async def _leave_if_overdue(change: Change, record: ServerRecord) -> None:
    """Cancel the wait when a server is overdue and no other server has to be waited for."""
    with suppress(ServerUnavailable):  # the group was closed, or the server removed
        while True:
            await record.life.wait_connected()
            if record.life.overdue and not any(server.record.life.awaited for server in change.servers):
                change.waiting.cancel("every server that is still connecting is overdue")
            await record.life.wait_change()
