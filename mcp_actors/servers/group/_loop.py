"""Carry out the wishes about each server, one step at a time.

A wish (`Wanted`) says what a server should do. Each server has at most one loop, so steps of a server never overlap. A
newer wish ends a waiting step early, so a stop overtakes a connect that hangs.

Owns: the set of busy servers; the `trio.Event` for the end of the group's drain; tasks that await wishes, finished
requests or signals.
Writes: records of servers; the roster; remembered catalogues; mailboxes of supervisors; events of the group; the log.
Cancels the `open_servers` block.
Calls: servers, servers.record, servers.ref, _tree.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field

from ..._errors import ActorCrashed, ActorStartError, ActorStopped, ServerUnavailable
from ..._foreign import Log
from ..._tasks import Signals, name_of, open_background
from .._sources import changed_fields
from ..record import ACTIVE, CONNECTED, UP, ConfigChanged, Drained, ServerRemoved, due, left, used
from ..ref import start_again
from ._tree import supervisor_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from ...kernel import SupervisorRef
    from ..record import ConnectionRecord, ServerLife, ServerRecord, Step
    from ..ref import ServerEntry
    from ._memory import CatalogMemory
    from ._tree import Roster


logger = Log("mcp_actors.servers")


@define(eq=False, repr=False)
class ServerLoops:
    """Carries out the wishes about servers; `seconds` is the ``drain_timeout``."""

    _group: Callable[[], SupervisorRef]
    _roster: Roster
    _memory: CatalogMemory | None
    _seconds: float
    _busy: set[ServerRecord] = field(factory=set, init=False)

    def is_busy(self, server: ServerEntry) -> bool:
        return server.record in self._busy

    async def look(self, server: ServerEntry) -> None:
        """Carry out what is due. Return at once if the server's loop runs: the loop looks again after its step.

        Only the end of the group cancels a loop. A step that waits for requests in flight or for a connect ends early
        if another wish overtakes it; then the server's own supervisor completes what it has begun. Nothing overtakes
        the drain of a server that leaves.
        """
        record, kept = server.record, not server.record.woken  # a dormant supervisor lets requests wait
        if record in self._busy:
            return
        # No checkpoint between the last look (`_due` returns None) and the removal from `_busy`. A wish in between
        # would find the loop busy and rely on a further look, which never comes: the wish would be lost, and its caller
        # would wait forever.
        self._busy.add(record)
        try:
            with suppress(ActorStopped, ActorCrashed):  # the group is being closed
                while (step := self._due(record, kept)) is not None:
                    kept = await self._carry_out(step, server)
        finally:
            self._busy.remove(record)

    def _due(self, record: ServerRecord, kept: bool = False) -> Step | None:
        """Return the next step. Requests that wait for a resting server count as a use."""
        life, seen = record.life, record.seen
        rests = life.wanted.mode == "rest" and not any(each.state in UP for each in seen)
        if rests and record.calls.deadlines.pending(queued=True):
            life.want(used(life.wanted))
        return due(life.wanted, seen, current=record.current, kept=kept)

    async def _carry_out(self, step: Step, server: ServerEntry) -> bool:
        """Carry out a step. Return True if requests wait although no connection follows by itself (`kept`).

        A restart is ``disconnect``, then ``start``. Another configuration is ``disconnect``, then ``adopt``.
        """
        match step:
            case "disconnect":
                connections = server.record.connections
                return await self._once_finished(server.record, connections, partial(self._disconnect, server))
            case "renew":
                old = next(each for each in server.record.connections if each.life.old)
                return await self._once_finished(server.record, (old,), partial(self._renew, server, old))
            case "adopt":
                return await self._adopt(server)
            case "start":
                await self._start(server)
                return server.record.life.state in ("pending", "stopped")  # the start was overtaken
            case "stop":
                await self._stop(server)
            case "remove":
                await self._remove(server)
        return False

    async def _once_finished(
        self, record: ServerRecord, ends: Sequence[ConnectionRecord], end: Callable[[], Awaitable[bool]]
    ) -> bool:
        """End connections once their requests in flight have ended. Other requests wait for the next connections."""
        kept = True  # if `end` is overtaken, it may have stopped the actor already
        life, cut, incarnations = record.life, record.life.wanted.cut, [each.life.incarnation for each in ends]

        def overtaken() -> bool:
            # `mode`: a server that leaves is not disconnected here. It finishes all accepted requests, including the
            # waiting ones, because no other connection follows. `replaced`: all connections were lost meanwhile.
            replaced = all(each.life.incarnation != old for each, old in zip(ends, incarnations, strict=True))
            return replaced or life.wanted.cut > cut or life.wanted.mode == "leave"

        # Hold before the first checkpoint: a request taken now would prolong the drain, or be cut off at its end.
        # Always release, then call `take_again`: a connection that stays, or is new already, has returned requests to
        # the mailbox meanwhile, and they would keep waiting.
        hold(ends, True)
        try:
            async with _unless(life, overtaken):
                await drain(record, ends, self._seconds, queued=False)
                kept = await end()
        finally:
            hold(ends, False)
            for each in ends:
                each.session.take_again()
        return kept

    async def _disconnect(self, server: ServerEntry) -> bool:
        """Stop the actor, or the replicas, unless another step is due now."""
        record = server.record
        if (step := self._due(record)) != "disconnect":
            if record.life.wanted.mode == "run" and step != "stop":
                record.life.stay_connected()
            return False
        await server.supervisor.stop_child(server.name, keep_mailbox=True)
        if record.life.wanted.mode == "rest":
            record.catalog.defer()
        return True

    async def _renew(self, server: ServerEntry, old: ConnectionRecord) -> bool:
        """Stop an old connection, unless it has ended by itself. A replica is also started again here."""
        ends = old.life.old and (old.life.draining is not None or old.life.state in CONNECTED)
        whole = old.name == server.name
        old.life.old = ends
        if ends and whole:
            await server.supervisor.stop_child(server.name, keep_mailbox=True)
        elif ends:
            async with server.open_pool() as pool:
                await pool.stop_child(old.name, keep_mailbox=True)
                with suppress(ActorStartError):  # the replica's state shows the failure
                    await start_again(pool, old.name)
        return ends and whole

    async def _adopt(self, server: ServerEntry) -> bool:
        """Adopt the configuration, with a new supervisor, which starts the actor if the server should run.

        The supervisor has the policies, and reads the changed record. Record and mailbox, with waiting requests, stay.
        """
        record, before = server.record, server.record.config
        if record.woken:  # a start that was overtaken may just have begun an actor
            await server.supervisor.stop_child(server.name, keep_mailbox=True)
        await self._group().stop_child(supervisor_id(server.name), keep_mailbox=True)
        # Read the wish once: the store below may take a while, and another configuration may be wanted by then. With a
        # second reading at `note_applied`, a record with the old configuration would count as current; with this one,
        # the loop finds the difference and adopts again.
        wanted = record.life.wanted
        self._roster.configure(record, wanted.config)
        if self._memory is not None:
            await self._memory.follow(record, before)
        record.life.emit(ConfigChanged, fields=changed_fields(before, wanted.config))
        record.forgive(ask=record.life.wanted.ask)  # the failures were those of another configuration
        await self._group().restart_child(supervisor_id(server.name))
        record.note_applied(wanted.config)
        if record.life.wanted.mode == "rest":
            record.catalog.defer()
            record.life.note_stopped()  # not used yet, even if it had failed before
        return record.life.wanted.mode != "stop"

    async def _start(self, server: ServerEntry) -> None:
        record, mine = server.record, server.record.life.wanted
        life = record.life
        async with _unless(life, lambda: life.wanted.mode != "run" or life.wanted.fresh > mine.fresh):
            if mine.after is not None:
                await mine.after()
            record.forgive(ask=mine.ask)
            await server.start()
            if self._due(record) == "start":  # the supervisor is about to start it, or still ends the last attempt
                with trio.move_on_after(0.05), suppress(ServerUnavailable):  # the group was closed
                    await life.wait_change()

    async def _stop(self, server: ServerEntry) -> None:
        if not server.record.woken:
            await server.wake()  # the supervisor must run, to carry out a later start
            if server.record.life.wanted.mode == "run":  # start() was called meanwhile
                return
        await server.supervisor.stop_child(server.name)
        server.record.life.note_stopped()

    async def _remove(self, server: ServerEntry) -> None:
        record = server.record
        await drain(record, record.connections, self._seconds, queued=True)
        await self._stop(server)
        await self._group().stop_child(supervisor_id(server.name))
        await self._group().delete_child(supervisor_id(server.name))
        self._roster.drop(server.name)
        if self._memory is not None:
            self._memory.forget(server.name)
        record.release()
        record.life.emit(ServerRemoved)


def hold(connections: Iterable[ConnectionRecord], holding: bool) -> None:
    """Let requests wait for the next connections while these are being closed (`holding`), or end the wait."""
    for each in connections:
        each.life.holding = holding


@asynccontextmanager
async def _unless(life: ServerLife, overtaken: Callable[[], bool]) -> AsyncIterator[None]:
    """End a block early, without an error, once a change of the server overtakes it."""
    with trio.CancelScope() as scope:
        async with open_background() as background:
            background.start_soon(_watch, life, overtaken, scope, name="servers:overtaken")
            yield


async def _watch(life: ServerLife, overtaken: Callable[[], bool], scope: trio.CancelScope) -> None:
    with suppress(ServerUnavailable):  # the group was closed
        while not overtaken():
            await life.wait_change()
        scope.cancel("something else is wanted now")


# --- Let servers finish their requests before they are disconnected ---------------------------------------------------

# A server that leaves *drains*: it refuses new requests, and finishes accepted ones, including queued ones. A server
# that comes back (restart, new configuration) finishes only requests in flight; all others wait for its next connection
# (`ConnectionLife.holding`). After that, the server is disconnected, whatever is left.
#
# A server is drained only in an explicit change, and only if it answers: not with a suspended process, and not after a
# check or request has timed out. A draining server is ``stopping`` and not checked: a server with one thread, busy with
# the very request to be finished, would fail the check.
#
# A signal (``stop_on``) begins the end while the block still sends requests. New requests are neither sent nor refused,
# because a refused worker would raise, and cancel its siblings and their requests. They wait until the block is
# cancelled, once all accepted requests are finished.


def _answer(connections: Iterable[ConnectionRecord]) -> bool:
    return any((each.life.state in ACTIVE or each.life.draining) and not each.health.doubtful for each in connections)


def _pending(record: ServerRecord, ends: Sequence[ConnectionRecord], *, queued: bool) -> int:
    return record.calls.deadlines.pending(queued=queued, actors=_actors(ends, queued=queued))


def _actors(ends: Sequence[ConnectionRecord], *, queued: bool) -> list[str] | None:
    return None if queued else [each.name for each in ends]


async def drain(
    record: ServerRecord, ends: Sequence[ConnectionRecord], seconds: float, *, queued: bool, idle: bool = False
) -> None:
    """Wait until connections have finished their requests, at most `seconds`.

    Return at once if there are no requests, no `seconds`, or no connection that answers. With `idle`, drain even then,
    to refuse new requests. `queued` also finishes queued requests.
    """
    requests = _pending(record, ends, queued=queued)
    if not idle and not (requests and seconds and _answer(ends)):
        return
    whole = record.life.begin_to_drain(requests, seconds, [each.life for each in ends])
    for each in ends if queued else ():
        each.session.take_again()
    try:
        with trio.move_on_after(seconds):
            await record.calls.deadlines.wait_settled(queued=queued, actors=_actors(ends, queued=queued))
    finally:
        if whole:
            ends = [each for each in ends if each.life.draining]  # lost connections have lost their requests
            record.life.emit(Drained, unfinished=_pending(record, ends, queued=queued))


class GroupEnd:
    """The end of a group, begun by the block or by a signal; `seconds` is the ``drain_timeout``."""

    def __init__(self, roster: Roster, seconds: float) -> None:
        self._roster = roster
        self.seconds: Final = seconds
        self._over: trio.Event | None = None

    async def drain_all(self, *, ending: bool = False) -> None:
        """Refuse all requests and changes from now on, and let the servers finish accepted requests.

        A second call waits for the end of the first. `ending` is True while the block still runs: then new requests
        wait, and are not refused.

        **Cancellation**: ends the wait.
        """
        if self._over is None:
            self._over = trio.Event()
            try:
                await self._drain_all(ending=ending)
            finally:
                self._over.set()
        await self._over.wait()

    async def _drain_all(self, *, ending: bool) -> None:
        self._roster.closing = True
        records = tuple(self._roster.records.values())
        for record in records:
            record.life.want(left(record.life.wanted, "signal" if ending else "block"))
        serving = [record for record in records if _answer(record.connections)]
        if not self.seconds or not any(record.calls.deadlines.pending(queued=True) for record in serving):
            return
        async with trio.open_nursery() as nursery:
            for record in serving:
                drained = partial(drain, record, record.connections, self.seconds, queued=True, idle=True)
                nursery.start_soon(drained, name=f"{record.config.name}:drain")

    @asynccontextmanager
    async def on_signal(self, signals: Signals) -> AsyncIterator[None]:
        """Let a signal end the block: accepted requests are finished, then the block is cancelled.

        A second signal cancels the block at once.

        Raises:
            SystemExit: a signal has come, and the block raised nothing of its own. The exit code is that of a program
                killed by the signal.
        """
        if not signals:
            yield
            return
        first: list[int] = []

        async def finish(number: int) -> None:
            await self.drain_all(ending=True)
            block.cancel(f"{name_of(number)} was received, and all requests are finished")

        async def listen() -> None:
            async for number in received:
                if first:
                    logger.warning("received %s again; stopping without waiting for requests", name_of(number))
                    block.cancel("a second signal was received")
                    return
                first.append(number)
                self._roster.signal = name_of(number)
                waits = f"finishing requests for at most {self.seconds:g} s, then stopping all servers"
                logger.info("received %s; %s", name_of(number), waits)
                background.start_soon(finish, number, name="servers:finish")

        with signals.receive() as received, trio.CancelScope() as block:
            async with open_background() as background:
                background.start_soon(listen, name="servers:signals")
                yield
        if first:
            raise SystemExit(128 + first[0]) from self._roster.end
