"""Ask for changes of servers: start, stop, restart and reconnect.

An operation replaces the current wish (`Wanted`) before its first checkpoint, then waits for the wish's `Verdict`:
done, failed or superseded. The group carries out wishes (``group/_loop.py``), so a change is completed even if the
caller is cancelled.

Owns: tasks that start and watch replicas.
Writes: wishes and states of servers; the lifecycle actor's mailbox; mailboxes of supervisors.
Calls: kernel, servers, servers.record.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from contextvars import Context
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import trio
from attrs import field, frozen

from ..._collapse import first_of
from ..._errors import ActorCrashed, ActorStartError, ActorStopped, ChildError, ServerUnavailable
from ..._misuse import check_trio
from ..._tasks import fan_out, open_background
from ...kernel import Call, SupervisorRef
from .._failures import stopped_meanwhile
from ..record import UP, has_older, restarted, rested, started, stopped, verdict_of_start, verdict_of_stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from ...kernel import ActorRef
    from ..record import ConnectionRecord, Retirement, ServerRecord, Verdict, Wanted


# --- One server and its supervisors -----------------------------------------------------------------------------------


@frozen
class ServerEntry:
    """A server with its own supervisor, and the supervisor of its group."""

    record: ServerRecord
    supervisor: SupervisorRef
    group: SupervisorRef

    @property
    def name(self) -> str:
        return self.record.config.name

    @property
    def _pool(self) -> SupervisorRef:
        return self.supervisor.child(self.name, SupervisorRef)

    def actor(self, name: str) -> ActorRef:
        return self.supervisor.child(name) if name == self.name else self._pool.child(name)

    async def wake(self) -> None:
        """Start the server's own supervisor if dormant. Changes asked meanwhile wait in the supervisor's mailbox.

        **Cancellation**: is delivered at the end, after a few steps.
        """
        if not self.record.woken:
            self.record.woken = True
            # Shielded, because `woken` is set before the start, for tasks that come here meanwhile. A caller cancelled
            # in between would leave a dormant supervisor that counts as woken, and no later change would start it. A
            # start takes a few steps: it does not wait for the connect of a lazy server.
            with trio.CancelScope(shield=True):
                await start_again(self.group, self.supervisor.name)

    async def start(self) -> None:
        """Start the actor, or the replicas that do not run. A failed start shows in the state.

        Raises:
            ActorStopped, ActorCrashed: the group was closed.
        """
        if not self.record.woken:
            await self.wake()  # starts the actor, too
            return
        with suppress(ActorStartError):
            if not await start_again(self.supervisor, self.name):
                replicas = [each for each in self.record.connections if each.name != self.name]
                await fan_out(self._start_replica, replicas, "start")

    async def _start_replica(self, replica: ConnectionRecord) -> None:
        async with self.open_pool() as pool:
            with suppress(ActorStartError):
                await start_again(pool, replica.name)

    @asynccontextmanager
    async def open_pool(self) -> AsyncIterator[SupervisorRef]:
        """Change replicas in a block, which ends early, without an error, if their pool does not run."""
        pool = self._pool
        with trio.CancelScope() as scope, suppress(ActorCrashed, ActorStopped):
            async with open_background() as background:
                # A stopped pool keeps changes in its mailbox for the next incarnation, which may follow only after the
                # step that waits here: without this watcher, a deadlock. Dropping the change is safe, because a new
                # incarnation starts all replicas.
                background.start_soon(_cancel_unless_running, pool, scope, name=f"{self.name}:pool")
                yield pool


async def _cancel_unless_running(pool: SupervisorRef, scope: trio.CancelScope) -> None:
    await pool.wait_state("starting", "backoff", "stopping", "stopped", "failed")
    scope.cancel("the pool of replicas does not run")


async def start_again(supervisor: SupervisorRef, child: str) -> bool:
    """Start an actor. Return False if the actor runs or soon will."""
    try:
        await supervisor.restart_child(child)
    except ChildError as exc:
        if exc.reason not in ("running", "restarting"):
            raise
        return False
    return True


# --- Wishes and the messages about them -------------------------------------------------------------------------------


@frozen(eq=False)
class CarryOut(Call[None]):
    """The wish about a server has changed: let the loop of the server carry out what is due."""

    control: ClassVar[bool] = True
    server: ServerEntry


@frozen(eq=False)
class Retire(Call[None]):
    """Disconnect an idle server, or renew an old connection.

    `connection`, `incarnation` and `generation` say which connection and wish the message is about; after a later wish
    or incarnation nothing happens.
    """

    server: ServerEntry
    why: Retirement
    connection: ConnectionRecord
    incarnation: int
    generation: int


@frozen(eq=False)
class Wish:
    """One change about a server, and the wish before it."""

    server: ServerEntry
    mine: Wanted
    before: Wanted


@frozen(eq=False)
class Reconnect(Call[None]):
    """See a reconnect to its end. If a required server fails, servers that did not run before stop or rest again.

    The caller has already made the wishes. `taken_back` collects the wishes that the caller or the group has undone.
    """

    wishes: tuple[Wish, ...]
    taken_back: list[Wish] = field(factory=list, init=False)


def tell(lifecycle: ActorRef, message: CarryOut | Retire | Reconnect) -> None:
    """Send a change to the lifecycle actor; raises `ActorStopped` in a closed group.

    The context is empty, because the change does not belong to the request or connection of its caller.
    """
    Context().run(lifecycle.tell_nowait, message)


async def start(lifecycle: ActorRef, server: ServerEntry) -> None:
    """Start a server, and wait as `ServerRef.start` does, with the same errors.

    Raises:
        RuntimeError: the caller is outside the Trio run of the group.
    """
    await _begin((server,))
    life = server.record.life
    wish = Wish(server, started(life.wanted), life.wanted)
    _make([wish], lifecycle)
    await _yield()
    await wait_started([wish])


async def stop(lifecycle: ActorRef, server: ServerEntry) -> None:
    """Stop a server, and wait until its connection has ended; see `ServerRef.stop`."""
    await _begin((server,))
    record = server.record
    mine = stopped(record.life.wanted)
    _make([Wish(server, mine, record.life.wanted)], lifecycle)
    if not record.woken:
        record.life.note_stopped()  # before the next request, which would start an unused server
    await _yield()
    while (verdict := verdict_of_stop(mine, record.life.wanted, record.seen)) == "wait":
        await record.life.wait_change()
    if verdict == "superseded":
        raise record.life.gone()


async def reconnect(
    lifecycle: ActorRef, servers: Sequence[ServerEntry], *, failed_only: bool = False, ask: bool = True
) -> None:
    """Close the connections of servers, then connect concurrently, and wait as `start` does.

    `failed_only` leaves servers alone that have not failed; `ask` allows a configured callback to ask a person.

    Raises:
        ConnectFailed: from the first required server that could not be connected; further failures are notes.
    """
    await _begin(servers)
    # Numbers, not wishes: the last wish stays with its server, and would keep a chain of all earlier wishes.
    ends: list[tuple[ServerRecord, int]] = []
    wishes: list[Wish] = []
    for server in (each for each in servers if each.record.failed or not failed_only):
        before = server.record.life.wanted
        mine = restarted(before, ask=ask, after=partial(_wait_ended, ends))
        wishes.append(Wish(server, mine, before))
        ends.append((server.record, mine.fresh))
    if wishes:
        # Wishes and message in one step, without a checkpoint: if this caller is cancelled, the group still takes back
        # the wishes after a failure. The message is sent only if there is something to take back: else restarts of a
        # server that hangs, given up by their callers, would fill the lifecycle actor and stop all other changes.
        _make(wishes, lifecycle)
        change = Reconnect(tuple(wishes))
        if any(each.before.mode != "run" for each in wishes):
            with suppress(ActorStopped):
                tell(lifecycle, change)
        await take_back(lifecycle, change)
        await wait_started(each for each in wishes if each not in change.taken_back)
    else:
        await _yield()


async def _wait_ended(old: Iterable[tuple[ServerRecord, int]]) -> None:
    """Wait until all servers of a reconnect have ended their earlier connections, before any of them connects."""
    for record, fresh in old:
        with suppress(ServerUnavailable):  # the server was removed
            while has_older(record.seen, fresh):
                await record.life.wait_change()


async def _begin(servers: Sequence[ServerEntry]) -> None:
    subject = " and ".join(f"server {server.name!r}" for server in servers) or "this group of servers"
    check_trio(subject, here=all(server.record.calls.deadlines.timer.lives_here for server in servers))
    await trio.lowlevel.checkpoint_if_cancelled()
    for server in servers:
        if server.record.life.leaving:
            raise server.record.life.gone()


async def _yield() -> None:
    """Let other tasks run even if there is nothing to wait for, or a caller in a loop would block all tasks.

    After the wish, because the latest of concurrent calls wins; shielded, because the wish is already made.
    """
    await trio.lowlevel.cancel_shielded_checkpoint()


def _make(wishes: Iterable[Wish], lifecycle: ActorRef) -> None:
    for each in wishes:
        each.server.record.life.want(each.mine)
    for each in wishes:
        try:
            tell(lifecycle, CarryOut(each.server))
        except ActorStopped:
            raise each.server.record.life.gone() from None


async def wait_started(wishes: Iterable[Wish]) -> None:
    """Wait for the verdicts on wishes. Raises like `reconnect`."""
    failures: list[Exception] = []
    overtaken: list[ServerUnavailable] = []
    for wish in wishes:
        record = wish.server.record
        verdict = await outcome_of(wish)
        if verdict == "superseded":
            life = record.life
            overtaken.append(life.gone() if life.leaving else stopped_meanwhile(record.config, life))
        elif verdict == "failed" and record.required:
            errors = (each.life.error for each in record.connections)
            failures += [copy(error) for error in errors if error is not None][:1]  # a copy, because notes are added
    if failures or overtaken:
        failure = first_of([*failures, *overtaken])
        try:
            raise failure from failure.__cause__
        finally:
            del failure, failures, overtaken  # whose tracebacks refer to this frame


async def outcome_of(wish: Wish) -> Verdict:
    record = wish.server.record
    while True:
        verdict = verdict_of_start(
            wish.mine, record.life.wanted, record.seen, current=record.current, required=record.required
        )
        if verdict != "wait":
            return verdict
        await record.life.wait_change()


async def take_back(lifecycle: ActorRef, change: Reconnect) -> None:
    """Wait for a reconnect. If a required server fails, let servers rest or stop again that did not run before.

    The caller and the group both do this, because the caller may be cancelled. The first of the two takes a wish back;
    the other then finds a newer wish.
    """
    with suppress(ServerUnavailable):  # the group was closed
        verdicts = {wish: await outcome_of(wish) for wish in change.wishes}
        failed = [wish for wish, verdict in verdicts.items() if verdict == "failed"]
        if not any(wish.server.record.required for wish in failed):
            return
        for wish in change.wishes:
            life = wish.server.record.life
            if wish in failed and (wish.server.record.required or wish.before.mode == "rest"):
                continue  # the server shows its failure, and is retried
            if wish.before.mode != "run" and life.wanted is wish.mine:
                change.taken_back.append(wish)
                life.want((stopped if wish.before.mode == "stop" else rested)(life.wanted))
                tell(lifecycle, CarryOut(wish.server))
        for wish in change.taken_back:
            record = wish.server.record
            while not _is_down(record):
                await record.life.wait_change()


def _is_down(record: ServerRecord) -> bool:
    mode, states = record.life.wanted.mode, {each.state for each in record.seen}
    return mode == "run" or (states == {"stopped"} if mode == "stop" else not states & UP)
