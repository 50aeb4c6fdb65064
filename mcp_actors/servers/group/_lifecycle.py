"""Carry out changes of servers, and of the set of servers.

Theory of operation
-------------------
An actor, a child of the group, carries out each change, because a change must be completed even if its caller is
cancelled half-way: callers of a server that was closed for a reconnect, and then forgotten, would wait forever. So a
caller that is cancelled leaves a group in which the change has been made, or is being made, and nothing in between.

*Changes of servers* (start, stop, reconnect) take turns for each server (`ServerEntry.turn`); changes of different
servers run concurrently. *Changes of the set* (add, remove, reload) come one after the other, and take the turn of each
server that they touch. None of them waits for the connect of an optional server: its caller does (`wait_connects`).

A server with a new configuration keeps its mailbox, in which requests wait, and its record. It is disconnected; then
its own supervisor, which has the policies, is stopped, and started again as the record says now. Meanwhile the server
is *held*: its actor has nothing to run. At last it is started as by `ServerRef.restart`.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen

from ..._errors import ActorCrashed, ActorStartError, ActorStopped, ConfigError, ConnectFailed
from ..._foreign import Log
from ...kernel import Actor, Call
from ..basics import fan_out
from ..record import ACTIVE, CONNECTED, ConfigChanged, ServerAdded, ServerRemoved
from ..ref import Change, Reconnect, Retire, ServerEntry, Start, Stop, restart, starting, turns
from ..sources import change_lines, changed_fields, compare
from ._leaving import drain
from ._tree import (
    due_servers,
    resume,
    server_spec,
    start_quietly,
    start_servers,
    start_status,
    stop_server,
    supervisor_id,
    suspend,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from ...config import ServerConfig
    from ...kernel import SupervisorRef
    from ..basics import ClosingOrder
    from ..record import ServerRecord
    from ..sources import Given, StatusBoard
    from ._memory import CatalogMemory
    from ._roster import Member, Roster

logger = Log("mcp_actors.servers")

ADDED: Final = "add()"
"""Names the source of servers that `ServerGroup.add` has added."""

MAX_CHANGES: Final = 1000
"""The number of changes carried out concurrently; further ones wait in the mailbox. A change costs only its turn."""


@frozen(eq=False)
class Add(Call["Member"]):
    """Add a server after the others."""

    config: ServerConfig


@frozen(eq=False)
class Remove(Call[None]):
    """Stop a server and forget it."""

    name: str


@frozen(eq=False)
class Replace(Call[None]):
    """Change the configuration of a server, if it differs."""

    config: ServerConfig


@frozen(eq=False)
class Reload(Call["ReloadSummary | None"]):
    """Change whatever differs from a configuration.

    Attributes:
        given: the configuration.
        adopt: keeps it as the one that the group uses, once nothing can refuse it any more. False means that other
            sources have come meanwhile, and nothing is changed.
        keep_added: whether servers that `ServerGroup.add` has added stay as they are.
    """

    given: Given
    adopt: Callable[[], bool]
    keep_added: bool


@frozen(eq=False)
class _Resume(Call[None]):
    """Start a server again whose configuration was changed. If that fails, its state shows it.

    Attributes:
        returns: 1 if the change has counted the server among those that return, which ends now; otherwise 0.
    """

    server: ServerEntry
    returns: int


@frozen(kw_only=True)
class ReloadSummary:
    """The result of `ServerGroup.reload`, as names of servers.

    Attributes:
        added: the servers that are new.
        removed: the servers that are gone.
        changed: the servers that were connected again with a new configuration.
        unchanged: the servers that have noticed nothing.
        failed: the entries that could not be loaded, by the name of the server. One that runs under this name keeps its
            configuration, and is among the unchanged.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    failed: Mapping[str, ConfigError]


class LifecycleActor(Actor):
    """Carries out changes.

    A change is shielded, so it goes on when its caller leaves. The servers' timeouts bound it, and so does the end of
    the group, which ends every start in progress.

    Args:
        roster: the servers.
        closing: the order in which they close.
        memory: the remembered catalogues; None remembers nothing.
        board: the states to write into tables.
        drain: seconds for which a server that is disconnected may finish its requests.
    """

    max_in_flight = MAX_CHANGES

    def __init__(
        self, roster: Roster, closing: ClosingOrder, memory: CatalogMemory | None, board: StatusBoard, drain: float
    ) -> None:
        self._roster = roster
        self._closing = closing
        self._memory = memory
        self._board = board
        self._drain = drain
        self._turn = trio.Lock()

    async def handle(self, message: Change | Retire | Add | Remove | Replace | Reload | _Resume) -> object:
        """Carry out a change.

        Raises:
            ConnectFailed: a required server could not be connected. Servers that this change started are stopped again;
                the others are unaffected.
            ConfigError: there is a server of this name already.
            KeyError: there is no server of this name.
        """
        with trio.CancelScope(shield=True):
            match message:
                case Change():
                    message.waiting.shield = False
                    await self._change(message)
                case _Resume(server, returns):
                    await resume(server, returns)
                case Retire(server, why, record, incarnation, wishes):
                    async with turns((server,)) as servers:
                        if servers and (record.life.incarnation, server.record.life.wishes) == (incarnation, wishes):
                            await (self._rest(server) if why == "idle" else self._renew(server, record))
                case Add(config):
                    async with self._turn:
                        return await self._add_one(config)
                case Remove(name):
                    async with self._turn:
                        added = name in self._roster.added
                        await self._remove(self._roster.member(name))
                        if added:  # it has hidden those of this name
                            self._board.sources.mark_due()
                        logger.info("remove(): removed %r", name)
                case Replace(config):
                    async with self._turn:
                        await self._replace_config(self._roster.member(config.name), config)
                case Reload():
                    async with self._turn:
                        return await self._reload(message)
        return None

    @property
    def _group(self) -> SupervisorRef:
        assert self.supervisor is not None
        return self.supervisor

    # --- the set of servers -----------------------------------------------------------------------------------------

    async def _add_one(self, config: ServerConfig) -> Member:
        """Add a server that the sources do not own. A required one that cannot be connected leaves nothing behind."""
        if config.name in self._roster.members:
            problem = "this group already has a server of this name; remove it first, or use reload()"
            raise ConfigError(f"server {config.name!r}: {problem}", source="ServerGroup.add", path="name")
        self._roster.limits.check_number([*(member.record.config for member in self._roster.members.values()), config])
        member = await self._add(config, strict=True)
        self._roster.added |= {config.name}
        logger.info("add(): added %r", config.name)
        return member

    async def _add(self, config: ServerConfig, *, strict: bool) -> Member:
        """Start a server and show it; if that is `strict`, only if it is connected or not required."""
        (record,) = self._roster.enter(config)
        record.strict = strict and record.required
        try:
            if self._memory is not None:
                self._memory.add(record)
                await self._memory.load(config.name)
            self._roster.recall(record)
            await self._group.start_child(server_spec(record, self._closing))
        except BaseException as exc:
            self._forget(config.name)
            failure = record.life.last_error
            if isinstance(exc, ActorStartError) and isinstance(failure, ConnectFailed):
                raise failure from failure.__cause__
            raise
        self._roster.show(self._group, record)
        record.life.emit(ServerAdded)
        return self._roster.member(config.name)

    async def _remove(self, member: Member) -> None:
        """Stop a server and forget it."""
        server, life = member.entry, member.record.life
        life.leaving = "removal"
        await drain(member.record, self._drain, queued=True)
        life.wanted = False
        await stop_server(server)  # before its turn: this ends a change that waits for its connect
        async with server.turn:
            await self._group.stop_child(supervisor_id(server.name))
            await self._group.delete_child(supervisor_id(server.name))
        self._forget(server.name)
        member.record.leave()
        life.emit(ServerRemoved)

    def _forget(self, name: str) -> None:
        self._roster.drop(name)
        if self._memory is not None:
            self._memory.forget(name)

    async def _reload(self, message: Reload) -> ReloadSummary | None:
        """Make the servers of the group those of a configuration. First those stop that are gone.

        A required server that cannot be connected is shown like any other, and tried again: a reload may have no caller
        that handles the error, and the configuration says that the server belongs to the group.
        """
        given, members = message.given, self._roster.members
        added = self._roster.added if message.keep_added else frozenset[str]()
        old = {name: member.record.config for name, member in members.items()}
        difference = compare(old, given, added)
        self._roster.limits.check_number(difference.servers)
        given.ignore(added)
        if not message.adopt():
            return None
        homes = {**self._roster.homes, **dict.fromkeys(self._roster.added, ADDED)}
        self._roster.added = added
        for config in difference.servers:
            if config.name in members:
                await self._move(members[config.name], config)
        await start_status(self._group, self._board)
        await fan_out(self._remove, [members[name] for name in difference.removed], "change")

        async def carry_out(config: ServerConfig) -> None:
            if config.name in members:
                await self._exchange(members[config.name], config)
            else:
                await self._add(config, strict=False)

        try:
            await fan_out(carry_out, (*difference.changed, *difference.added), "change")
        finally:
            self._roster.arrange(difference.order)
            self._roster.note_given(given)
        for level, line in change_lines(old, homes, difference, given):
            logger.log(level, "%s", line)
        return ReloadSummary(
            added=tuple(config.name for config in difference.added),
            removed=difference.removed,
            changed=tuple(config.name for config in difference.changed),
            unchanged=difference.unchanged,
            failed=dict(given.failed),
        )

    async def _replace_config(self, member: Member, config: ServerConfig) -> None:
        """Give a server another configuration, if that differs from its own."""
        before = member.record.config
        if config != before:
            await self._exchange(member, config)
            logger.info("replace(): changed %r (%s)", config.name, ", ".join(changed_fields(before, config)))
        elif await self._move(member, config):
            logger.info("replace(): changed %r (source)", config.name)

    async def _move(self, member: Member, config: ServerConfig) -> bool:
        """Note that the configuration of a server is written elsewhere now, if that is all; its connection stays."""
        record, before = member.record, member.record.config
        if config != before or config.source == before.source:
            return False
        record.move(config)
        if self._memory is not None:
            await self._memory.configured(record, before)
        return True

    async def _exchange(self, member: Member, config: ServerConfig) -> None:
        """Disconnect a server, configure it anew, and start it again later if it should run."""
        server, record = member.entry, member.record
        life, before = record.life, record.config
        returns = int(life.wanted)
        life.count_returns(returns)
        life.held = True  # a change that waits in front of this one must not start it again
        exchanged = False
        try:
            await self._close(server)  # before its turn: this ends a change that waits for its connect
            async with server.turn:
                if life.leaving:
                    return
                await self._group.stop_child(supervisor_id(server.name), keep_mailbox=True)
                self._roster.configure(record, config)
                if self._memory is not None:
                    await self._memory.configured(record, before)
                await self._group.restart_child(supervisor_id(server.name))
                exchanged = True
        finally:
            life.held = False
            if not exchanged:
                life.count_returns(-returns)
        life.emit(ConfigChanged, fields=changed_fields(before, config))
        self.ref.tell_nowait(_Resume(server, returns))  # it returns until then

    # --- changes of servers -----------------------------------------------------------------------------------------

    async def _change(self, message: Change) -> None:
        match message:
            case Reconnect(servers, failed_only, ask=ask):
                due = due_servers(servers) if failed_only else servers
                with starting(due):
                    async with turns(due) as servers:
                        await self._reconnect(due_servers(servers) if failed_only else servers, ask)
            case Start(servers):
                with starting(servers):
                    async with turns(servers) as servers:
                        await start_servers(servers)
            case Stop(servers):
                await fan_out(stop_server, servers, "change")
                for server in servers:
                    if server.record.life.wanted:  # start() was called meanwhile, and found it running
                        self.ref.tell_nowait(_Resume(server, 0))

    async def _reconnect(self, servers: tuple[ServerEntry, ...], ask: bool) -> None:
        with _returning(servers):
            await fan_out(self._close, servers, "change")
            await start_servers(servers, ask=ask)

    async def _rest(self, server: ServerEntry) -> None:
        """Disconnect a server until it is used, unless it was used meanwhile."""
        record, life = server.record, server.record.life
        if life.state not in ACTIVE or record.is_used:
            return
        try:
            # In the step of the check: a request that comes from now on waits in the mailbox.
            life.wanted, life.resting = False, True
            record.hold(True)
            await suspend(server)
        finally:
            asked_for = life.resting and record.calls.deadlines.pending(queued=True)
            life.end_rest()
            record.hold(False)
        record.catalog.defer()
        if asked_for:
            life.wanted = True
            await start_quietly(server)

    async def _renew(self, server: ServerEntry, record: ServerRecord) -> None:
        """Replace an old connection by a new one, unless another replica is down. If it fails, the state shows it."""
        others = [replica for replica in server.record.replicas if replica is not record]
        if record.life.state in CONNECTED and all(replica.life.state in ACTIVE for replica in others):
            with suppress(ConnectFailed, ActorStartError, ActorStopped, ActorCrashed):
                await (self._replace_only(server) if record is server.record else self._replace(server, record))

    async def _replace_only(self, server: ServerEntry) -> None:
        """Connect a server without other replicas anew, once its requests in flight have ended."""
        record = server.record
        with _returning((server,)):
            if await self._disconnect(record, partial(suspend, server), old=record.life.incarnation):
                await start_servers((server,))

    async def _replace(self, server: ServerEntry, replica: ServerRecord) -> None:
        """Connect a replica anew, once its requests in flight have ended. The others serve meanwhile."""
        # If the others fail meanwhile, the server is `stopping`, as this replica is, and it is about to come back.
        with starting((server,)):
            async with server.open_pool() as pool:
                stop = partial(pool.stop_child, replica.name, keep_mailbox=True)
                if await self._disconnect(replica, stop, old=replica.life.incarnation):
                    await restart(pool, replica.name)

    async def _close(self, server: ServerEntry) -> None:
        """Disconnect a server that comes back, once its requests in flight have ended. All others wait for it."""
        await self._disconnect(server.record, partial(suspend, server))

    async def _disconnect(
        self, record: ServerRecord, stop: Callable[[], Awaitable[object]], *, old: int | None = None
    ) -> bool:
        """Stop an actor once its requests have ended. Return False if its incarnation `old` has ended by itself."""
        life = record.life
        try:
            record.hold(True)
            await drain(record, self._drain, queued=False)
            if old is not None and (life.incarnation != old or not (life.draining or life.state in CONNECTED)):
                return False
            if not record.server.life.leaving:  # else it goes on until it has finished everything
                await stop()
            return True
        finally:
            record.hold(False)


@contextmanager
def _returning(servers: tuple[ServerEntry, ...]) -> Iterator[None]:
    """Show the tools of servers while they are connected anew in a block."""
    for server in servers:
        server.record.life.count_returns(1)
    try:
        yield
    finally:
        for server in servers:
            server.record.life.count_returns(-1)
