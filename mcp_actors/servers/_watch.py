"""Follow a group's sources; write the servers' states into database tables.

A file may be half written, and a database unreachable. No failure may stop a server or end the watch, so `Upkeep`
restarts failed tasks. `Sources` has threads for calls that may block.

Owns: last written states; tasks of sources; tasks of tables.
Writes: the group's copies of sources, its map from servers to sources, and its errors; the mailbox of the lifecycle
actor; events; states in database tables; the log.
Calls: config, kernel, servers.record.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field, frozen

from .. import config
from .._errors import ActorCrashed, ActorStartError, ActorStopped, ConfigError
from .._foreign import Log
from .._tasks import NoThread
from ..kernel import Actor, Event
from .record import ServerAdded, ServerRemoved, StateChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping

    from .._tasks import Upkeep
    from ..config import Source, TableSource
    from ..kernel import SupervisorRef
    from ._sources import Configured, Merged, Sources


logger = Log("mcp_actors.servers")

SETTLING: Final = 0.2
"""Seconds between two checks of a file that is being written."""


@frozen(kw_only=True, eq=False, repr=False)
class ConfigRejected(Event):
    """A followed configuration has changed, and something in it cannot be used (``open_servers(watch=True)``).

    Emitted once for each unusable content. Servers of the file, table or entry keep their configuration.

    Attributes:
        error: what is wrong, and where.
    """

    error: ConfigError


@define
class _Tried:
    """The last unused reading of a source, repeated ever less often while unchanged.

    The longest pause is 30 s, or `interval` if longer. A source may become readable without a change, for
    example when other programs close files.
    """

    interval: float
    stamp: Hashable = None
    failures: int = 0
    again_at: float = -math.inf

    def is_time(self, stamp: Hashable) -> bool:
        return stamp != self.stamp or trio.current_time() >= self.again_at

    def note(self, stamp: Hashable) -> None:
        self.failures = self.failures + 1 if stamp == self.stamp else 1
        pause = min(self.interval * 2 ** min(self.failures, 10), max(self.interval, 30.0))
        self.stamp, self.again_at = stamp, trio.current_time() + pause


@define(eq=False, repr=False, slots=False)
class WatchActor(Actor):
    """Owns one task for each source. Takes no messages.

    The group survives a crash of the actor.

    Args:
        sources: the configurations of the group.
        apply: passes a reading to the lifecycle actor (`Reload`), with a function to call once nothing can refuse the
            reading. The function keeps the reading, or returns False if a newer reading or other sources have come.
        note: notes the sources and errors of a reading's servers, before an event reports them.
        emit: emits an event.
        upkeep: begins the tasks again after any failure.
        opened: set when the group has its servers; no reading can be compared before.
    """

    _sources: Sources
    _apply: Callable[[SupervisorRef, Merged, Callable[[], bool]], Awaitable[object]]
    _note: Callable[[Merged], object]
    _emit: Callable[[Event], None]
    _upkeep: Upkeep
    _opened: trio.Event
    _reported: tuple[str, dict[str, Hashable]] | None = field(default=None, init=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        name = self.ref.name
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._upkeep.keep, name, f"{name}: following the sources", self._follow_all, name=name)
            yield
            nursery.cancel_scope.cancel("the group is closed")

    async def _follow_all(self) -> None:
        """Follow the present sources, which `ServerGroup.reload` may replace."""
        await self._opened.wait()  # the first look finds earlier changes
        while True:
            async with trio.open_nursery() as nursery:
                for source in self._sources.watched:
                    name = source.name
                    follow, what = partial(self._follow, source, name), f"{name}: following it"
                    nursery.start_soon(self._upkeep.keep, name, what, follow, name=f"{self.ref.name}:{name}")
                self._upkeep.works(self.ref.name)
                await self._sources.changed.wait()
                nursery.cancel_scope.cancel("the sources were replaced")

    async def _follow(self, source: Source, name: str) -> None:
        tried = _Tried(source.interval)
        while True:
            await trio.sleep(source.interval)
            stamp = await self._sources.look(source)
            if self._sources.is_due(source, stamp) and tried.is_time(stamp):
                if source.settles:
                    stamp = await self._settle(source, stamp)
                await self._reload()
                if self._sources.is_due(source, stamp):
                    tried.note(stamp)
            self._upkeep.works(name)

    async def _settle(self, source: Source, stamp: Hashable) -> Hashable:
        """Wait until a source has not changed for a moment: a writer may not be done. Return the stamp."""
        with trio.move_on_after(5.0):  # a constantly written file is read nevertheless
            while True:
                await trio.sleep(SETTLING)
                before, stamp = stamp, await self._sources.look(source)
                if stamp == before:
                    break
        return stamp

    async def _reload(self) -> None:
        """Read the sources that are due, and apply the difference. Errors are logged and not raised."""
        configs = self._sources.configs
        try:
            merged = await self._sources.read(configs, lenient=True)
            assert self.supervisor is not None
            await self._apply(self.supervisor, merged, partial(self._adopt, merged, configs))
        except ConfigError as error:
            self._refuse(error)
        except (ActorStopped, ActorCrashed, ActorStartError):
            return  # the group closes

    def _adopt(self, merged: Merged, configs: tuple[Configured, ...]) -> bool:
        """Keep a reading, unless a newer one, or `ServerGroup.reload`, was faster."""
        if self._sources.configs is not configs or self._sources.is_outdated(merged):
            return False
        self._reported = None
        new = self._sources.adopt(merged, configs, again=True)
        self._note(merged)
        for error in new:
            self._report(error)
        return True

    def _refuse(self, error: ConfigError) -> None:
        """Show why a reading was refused; log and emit the error once for each content."""
        self._sources.refused = error
        reported = (str(error), self._sources.tried.copy())
        if reported != self._reported:
            self._reported = reported
            logger.warning("not reloaded, so all servers stay as they are: %s", error)
            self._report(error)

    def _report(self, error: ConfigError) -> None:
        self._emit(ConfigRejected(actor=self.ref.name, incarnation=0, time=trio.current_time(), error=error))


# --- Write the states of servers next to the table of servers ---------------------------------------------------------


LAST_STATUS_WAIT: Final = 2.0
"""Seconds that the end of a group waits for a database."""


class StatusBoard:
    """The states to write. Observes the events of the group.

    Args:
        sources: the configurations of the group; runs calls of a table in the table's thread.
        states: returns the states of the servers from a source.
        upkeep: begins the writing tasks again after any failure.
    """

    wants_requests = False

    def __init__(self, sources: Sources, states: Callable[[str], Mapping[str, str]], upkeep: Upkeep) -> None:
        self.sources = sources
        self.upkeep = upkeep
        self._states = states
        self._news = trio.Event()
        self._written: dict[str, set[str]] = {}
        self._failing: set[str] = set()

    def __call__(self, event: Event) -> None:
        if isinstance(event, StateChanged | ServerAdded | ServerRemoved):
            self._news.set()
            self._news = trio.Event()

    @property
    def tables(self) -> dict[str, TableSource]:
        found = (each for each in self.sources.watched if isinstance(each, config.TableSource))
        return {table.name: table for table in found if table.instance is not None}

    async def keep(self, table: TableSource) -> None:
        """Write the states into a table when they change, and once per interval, as a sign of life.

        Return once the table is no longer a source, and has no servers left.

        Raises:
            NoThread: no thread could be started for the table.
        """
        while True:
            states = self._states(table.name)
            if isinstance(error := await self._write(table, states), NoThread):
                raise error
            self.upkeep.works(status_of(table))
            if not states and table.name not in self.tables:
                return
            with trio.move_on_after(table.interval):
                while self._states(table.name) == states:
                    await self._news.wait()
            await trio.sleep(0.2)  # collect changes: the start of many servers is one transaction

    async def finish(self, table: TableSource) -> None:
        error = await self._write(table, dict.fromkeys(self._states(table.name), "stopped"))
        if isinstance(error, NoThread):
            logger.warning("the states of servers could not be written: %s", error)

    async def _write(self, table: TableSource, states: Mapping[str, str]) -> ConfigError | None:
        """Write states; log a database's error once, and return any error."""
        known = self._written.get(table.name, set())
        self._written[table.name] = known | states.keys()  # note before writing: a cancelled thread still writes
        gone = dict.fromkeys(known - states.keys())
        error = await self.sources.run_job(table, partial(table.write_status, {**states, **gone}))
        if error is None:
            self._written[table.name] = {*states}
            self._failing.discard(table.name)
        elif table.name not in self._failing and not isinstance(error, NoThread):
            self._failing.add(table.name)
            logger.warning("the states of servers could not be written: %s", error)
        return error


def status_of(table: TableSource) -> str:
    """Return the name under which errors of writing states are shown."""
    return f"{table.name} (status)"


class StatusActor(Actor):
    """Owns one task for each table. Takes no messages.

    The group survives a crash of the actor.
    """

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._tables: dict[str, TableSource] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the group runs; at the end, write that the servers have stopped."""
        name, upkeep = self.ref.name, self._board.upkeep
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upkeep.keep, name, f"{name}: writing states", self._keep_all, name=name)
            yield
            nursery.cancel_scope.cancel("the group is closed")
        with trio.move_on_after(LAST_STATUS_WAIT):
            async with trio.open_nursery() as nursery:
                for table in self._tables.values():
                    nursery.start_soon(self._board.finish, table)

    async def _keep_all(self) -> None:
        """Keep the tables of the group. A table that `ServerGroup.reload` removes stays until its servers are gone."""
        while True:
            self._tables |= self._board.tables
            async with trio.open_nursery() as nursery:
                for table in self._tables.values():
                    key, what = status_of(table), f"{table.name}: writing the states of servers"
                    job = partial(self._keep, table)
                    nursery.start_soon(self._board.upkeep.keep, key, what, job, name=f"{self.ref.name}:{table.name}")
                self._board.upkeep.works(self.ref.name)
                await self._board.sources.changed.wait()
                nursery.cancel_scope.cancel("the sources were replaced")

    async def _keep(self, table: TableSource) -> None:
        await self._board.keep(table)
        del self._tables[table.name]
