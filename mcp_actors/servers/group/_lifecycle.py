"""Carry out changes of a group, and run its servers' loops.

An actor of the group carries out each change, so a change is completed even if its caller is cancelled half-way.
The loop of a server (``_loop``) starts, stops and reconnects that server. Changes of the set of servers take turns.

Owns: loops of servers; tasks of changes; locks of changes.
Writes: the roster; the group's configuration; wishes in records of servers; events; the log. Starts added servers.
Calls: kernel, servers, servers.record, servers.ref, _loop, _tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen

from ..._errors import ActorStartError, ConfigError, ConnectFailed
from ..._foreign import Log
from ..._tasks import fan_out, open_background
from ...kernel import Actor, Call
from .._sources import change_lines, changed_fields, compare
from ..record import ACTIVE, CONNECTED, ServerAdded, configured, left, rested
from ..ref import CarryOut, Reconnect, Retire, Wish, take_back, tell
from ._loop import ServerLoops
from ._tree import server_spec, start_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from ..._tasks import ClosingOrder
    from ...config import ServerConfig
    from ...kernel import SupervisorRef
    from .._sources import Merged
    from .._watch import StatusBoard
    from ..record import ServerRecord
    from ._memory import CatalogMemory
    from ._tree import Member, Roster

logger = Log("mcp_actors.servers")

MAX_CHANGES: Final = 1000
"""Limit of changes taken from the mailbox at a time."""


@frozen(eq=False)
class Add(Call[Wish]):
    config: ServerConfig


@frozen(eq=False)
class Remove(Call[None]):
    name: str


@frozen(eq=False)
class Replace(Call[Wish]):
    config: ServerConfig


@frozen(eq=False)
class Reload(Call["Reloaded | None"]):
    """Change whatever differs from a configuration.

    `adopt` keeps `merged` as the group's configuration, once nothing can refuse the change. If other sources or a newer
    reading have come meanwhile, `adopt` returns False, and nothing is changed. `keep_added` leaves servers from
    `ServerGroup.add` unchanged.
    """

    merged: Merged
    adopt: Callable[[], bool]
    keep_added: bool


@frozen(eq=False)
class Reloaded:
    summary: ReloadSummary
    wishes: tuple[Wish, ...]


@frozen(kw_only=True)
class ReloadSummary:
    """The result of `ServerGroup.reload`, as names of servers.

    Attributes:
        added: new servers.
        removed: servers that are gone.
        changed: servers that were connected again with a new configuration.
        unchanged: servers that have noticed nothing.
        failed: entries that could not be loaded, by the name of the server. A server that runs under this name keeps
            its configuration, and is among the unchanged.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    failed: Mapping[str, ConfigError]


def in_words(done: ReloadSummary, failed: Iterable[str]) -> str:
    changes = {"added": done.added, "removed": done.removed, "changed": done.changed, "failed": failed}
    return "; ".join(f"{what} {', '.join(names)}" for what, names in changes.items() if names) or "no change"


class LifecycleActor(Actor):
    """Carries out changes.

    Handlers are shielded, and loops have their own tasks, except for `Retire`. The servers' timeouts and the end of the
    group bound every change.

    Changes of the set take turns under `_set_lock`. A turn includes the reading of a server's file in the
    ``catalog_store``, and the connect of a required server in `add`. A turn does not wait until a server has left or
    adopted a configuration, so `_reload_lock` keeps a second reload from beginning before the first has ended. A
    leaving server is gone before its name is added again. Only callers await the connects of optional servers
    (`wait_started`).
    """

    max_in_flight = MAX_CHANGES
    slow_after = None  # a handler waits for its server, within that server's timeouts
    _control_slots = MAX_CHANGES

    def __init__(
        self, roster: Roster, closing: ClosingOrder, memory: CatalogMemory | None, board: StatusBoard, drain: float
    ) -> None:
        self._roster = roster
        self._closing = closing
        self._memory = memory
        self._board = board
        self._loops = ServerLoops(lambda: self._group, roster, memory, drain)
        self._set_lock = trio.Lock()
        self._reload_lock = trio.Lock()
        self._over = False

    async def handle(self, message: CarryOut | Retire | Reconnect | Add | Remove | Replace | Reload) -> object:
        """Carry out a change.

        Raises:
            ConnectFailed: an added required server could not be connected.
            ConfigError: the configuration does not fit the group, or the name is taken.
            KeyError: no server has the name.
        """
        # Shielded, because a caller may leave between the stop and the start of a server, and half a change would stay.
        # No cancellation bounds the waits inside, so each must look at `_over` or end with the group (see `running`);
        # otherwise the group could not close.
        with trio.CancelScope(shield=True):
            match message:
                case CarryOut(server):
                    self._tasks.start_soon(self._loops.look, server, name=f"{server.name}:change")
                case Retire():
                    await self._retire(message)
                case Reconnect():
                    await take_back(self.ref, message)
                case Add(config):
                    return await self._add_one(config)
                case Remove(name):
                    await self._remove(name)
                case Replace(config):
                    return await self._replace(config)
                case Reload():
                    async with self._reload_lock:
                        return await self._reload(message)
        return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with open_background() as self._tasks:
            try:
                yield
            finally:
                # No cancellation ends the waits of shielded handlers. The flag does; the wish wakes handlers, and ends
                # the waits of callers. Set both before the nursery waits for its tasks, or the group would never close
                # while a handler waits for a server.
                self._over = True
                for record in self._roster.records.values():
                    record.life.want(left(record.life.wanted, "block"))

    @property
    def _group(self) -> SupervisorRef:
        assert self.supervisor is not None
        return self.supervisor

    async def _wait(self, record: ServerRecord, until: Callable[[], bool]) -> None:
        await record.life.wait_while(lambda: not (until() or self._over))

    # --- the set of servers -----------------------------------------------------------------------------------------

    async def _add_one(self, config: ServerConfig) -> Wish:
        async with self._free(config.name):
            if config.name in self._roster.members:
                problem = "this group already has a server of this name; remove it first, or use reload()"
                raise ConfigError(f"server {config.name!r}: {problem}", source="ServerGroup.add", path="name")
            staying = (record for record in self._roster.records.values() if not record.life.leaving)
            self._roster.check([*(record.config for record in staying), config])
            member = await self._add(config, strict=True)
            self._roster.added |= {config.name}
            logger.info("add(): added %r", config.name)
            return _wish_of(member)  # taken here: the server may be stopped before the caller runs

    @asynccontextmanager
    async def _free(self, name: str) -> AsyncIterator[None]:
        """Change the set in a block, once no server of this name is being removed."""
        while True:
            leaving = self._roster.records.get(name)
            if leaving is not None and leaving.life.leaving == "removal":
                await self._wait_gone(leaving)
            async with self._set_lock:
                record = self._roster.records.get(name)
                if self._over or record is None or record.life.leaving != "removal":
                    yield
                    return

    async def _wait_gone(self, record: ServerRecord) -> None:
        await self._wait(record, lambda: self._roster.records.get(record.config.name) is not record)

    async def _wait_configured(self, record: ServerRecord) -> None:
        await self._wait(record, lambda: record.current or record.life.leaving is not None)

    async def _add(self, config: ServerConfig, *, strict: bool) -> Member:
        """Start a server and show it; with `strict`, show a required server only after the connect."""
        (record,) = self._roster.enter(config)
        record.strict = strict and record.required
        try:
            if self._memory is not None:
                self._memory.add(record)
                await self._memory.load(config.name)
            self._roster.recall(record)
            await self._group.start_child(server_spec(record, self._closing))
        except BaseException as exc:
            self._roster.drop(config.name)
            if self._memory is not None:
                self._memory.forget(config.name)
            failure = record.life.last_error
            record.release()
            del record  # breaks the reference cycle: the traceback of its failure refers to this frame
            if isinstance(exc, ActorStartError) and isinstance(failure, ConnectFailed):
                raise failure from failure.__cause__
            raise
        self._roster.show(self._group, record)
        record.life.emit(ServerAdded)
        return self._roster.member(config.name)

    async def _remove(self, name: str) -> None:
        async with self._free(name):
            member = self._roster.member(name)
            added = name in self._roster.added
            self._wish_removal(member)
        await self._wait_gone(member.record)
        if added:  # it has hidden a server of the same name in the sources
            self._board.sources.mark_due()
        logger.info("remove(): removed %r", name)

    async def _replace(self, config: ServerConfig) -> Wish:
        async with self._free(config.name):
            member = self._roster.member(config.name)
            wanted = member.record.life.wanted
            if config == wanted.config:
                if await self._move(member, config):
                    logger.info("replace(): changed %r (source)", config.name)
                return Wish(member.entry, wanted, wanted)
            self._roster.check([config])
            wish = self._wish_config(member, config)
        await self._wait_configured(member.record)
        logger.info("replace(): changed %r (%s)", config.name, ", ".join(changed_fields(wanted.config, config)))
        return wish

    async def _reload(self, message: Reload) -> Reloaded | None:
        """Make the servers of the group those of a configuration. Removed servers stop before new ones are added.

        A required server that cannot be connected is shown and retried: perhaps no caller handles the error.
        """
        merged = message.merged
        async with self._set_lock:
            members = {name: each for name, each in self._roster.members.items() if not each.record.life.leaving}
            added = self._roster.added if message.keep_added else frozenset[str]()
            old = {name: member.record.life.wanted.config for name, member in members.items()}
            merged.refuse_unset(old)
            difference = compare(old, merged, added)
            self._roster.check(difference.servers)
            merged.ignore(added)
            homes = {**self._roster.homes, **dict.fromkeys(self._roster.added, "add()")}
            if not message.adopt():
                return None
            self._roster.added = added
            for name in difference.removed:
                self._wish_removal(members[name])
            wishes = [self._wish_config(members[config.name], config) for config in difference.changed]
            for config in difference.servers:
                if config.name in members:
                    await self._move(members[config.name], config)
            await start_status(self._group, self._board)
        for record in [*self._roster.records.values()]:
            if record.life.leaving == "removal":  # by this reload, or before
                await self._wait_gone(record)
        try:
            await fan_out(partial(self._add_given, wishes=wishes), difference.added, "change")
            for wish in wishes:
                await self._wait_configured(wish.server.record)
        finally:
            self._roster.arrange(config.name for config in difference.servers)
        for level, line in change_lines(old, homes, difference, merged):
            logger.log(level, "%s", line)
        summary = ReloadSummary(
            added=tuple(config.name for config in difference.added),
            removed=difference.removed,
            changed=tuple(config.name for config in difference.changed),
            unchanged=difference.unchanged,
            failed=dict(merged.failed),
        )
        return Reloaded(summary, tuple(wishes))

    async def _add_given(self, config: ServerConfig, wishes: list[Wish]) -> None:
        """Add a server of the sources, unless `ServerGroup.add` was faster."""
        async with self._free(config.name):
            if config.name not in self._roster.records and not self._over:
                wishes.append(_wish_of(await self._add(config, strict=False)))

    async def _move(self, member: Member, config: ServerConfig) -> bool:
        """Note a new `source` of an otherwise equal configuration. The connection stays."""
        record, before = member.record, member.record.config
        if config != before or config.source == before.source:
            return False
        record.move(config)
        if self._memory is not None:
            await self._memory.follow(record, before)
        return True

    # --- changes of servers -----------------------------------------------------------------------------------------

    def _wish_config(self, member: Member, config: ServerConfig) -> Wish:
        life = member.record.life
        before = life.wanted
        mine = life.want(configured(before, config))
        tell(self.ref, CarryOut(member.entry))
        return Wish(member.entry, mine, before)

    def _wish_removal(self, member: Member) -> None:
        life = member.record.life
        life.want(left(life.wanted, "removal"))
        tell(self.ref, CarryOut(member.entry))

    async def _retire(self, message: Retire) -> None:
        """Let an idle server rest, or renew an old connection unless another replica is down."""
        # The loop runs in this task, because there must be no checkpoint between the check whether the server is used
        # and the step in which the loop makes new requests wait (`hold`). A request in between would be in flight on
        # a connection that is closed as unused.
        server, old, life = message.server, message.connection.life, message.server.record.life
        asked = old.incarnation, life.wanted.generation
        if asked != (message.incarnation, message.generation) or self._loops.is_busy(server):
            return
        if message.why == "idle":
            if life.wanted.mode == "run" and life.state in ACTIVE and not server.record.is_used:
                life.want(rested(life.wanted))
        else:
            others = (each.state in ACTIVE for each in life.connections if each is not old)
            old.old = old.state in CONNECTED and all(others)
        await self._loops.look(server)


def _wish_of(member: Member) -> Wish:
    wanted = member.record.life.wanted
    return Wish(member.entry, wanted, wanted)
