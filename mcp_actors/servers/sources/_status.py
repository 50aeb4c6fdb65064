"""Write the states of servers next to the table of servers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ... import config
from ..._foreign import Log
from ..._tasks import NoThread
from ...kernel import Actor
from ..record import ServerAdded, ServerRemoved, StateChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from ..._errors import ConfigError
    from ..._tasks import Upkeep
    from ...config import TableSource
    from ...kernel import Event
    from ._reading import Sources

logger = Log("mcp_actors.servers")

BATCH: Final = 0.2
"""Seconds in which changes are collected: a start of many servers is one transaction."""

LAST_STATUS_WAIT: Final = 2.0
"""Seconds that the end of a group waits for a database."""


class StatusBoard:
    """The states to write. It observes the group to learn of changes.

    Args:
        sources: the configurations of the group; it calls the tables in their threads.
        states: returns the states of the servers that come from a source.
        upkeep: begins the tasks that write again after any failure.
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
        """Wake the writers when a state may have changed."""
        if isinstance(event, StateChanged | ServerAdded | ServerRemoved):
            self._news.set()
            self._news = trio.Event()

    @property
    def tables(self) -> dict[str, TableSource]:
        """The tables to write into, by name."""
        found = (each for each in self.sources.watched if isinstance(each, config.TableSource))
        return {table.name: table for table in found if table.instance is not None}

    async def keep(self, table: TableSource) -> None:
        """Write the states into a table when they change, and once per interval, as a sign of life.

        Return once the group has neither the table as a source any more, nor a server from it.

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
            await trio.sleep(BATCH)

    async def finish(self, table: TableSource) -> None:
        """Write that the servers have stopped."""
        error = await self._write(table, dict.fromkeys(self._states(table.name), "stopped"))
        if isinstance(error, NoThread):
            logger.warning("the states of servers could not be written: %s", error)

    async def _write(self, table: TableSource, states: Mapping[str, str]) -> ConfigError | None:
        """Write states; log the error of the database once, and return any error."""
        known = self._written.get(table.name, set())
        self._written[table.name] = known | states.keys()  # the thread goes on writing if this is cancelled
        gone = dict.fromkeys(known - states.keys())
        error = await self.sources.tell(table, partial(table.write_status, {**states, **gone}))
        if error is None:
            self._written[table.name] = {*states}
            self._failing.discard(table.name)
        elif table.name not in self._failing and not isinstance(error, NoThread):
            self._failing.add(table.name)
            logger.warning("the states of servers could not be written: %s", error)
        return error


def status_of(table: TableSource) -> str:
    """Return the name under which errors show that states cannot be written."""
    return f"{table.name} (status)"


class StatusActor(Actor):
    """Owns one task for each table. It takes no messages."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._tables: dict[str, TableSource] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the group runs; at its end, write that the servers have stopped."""
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
        """Keep the tables of the group. One that `ServerGroup.reload` takes away is kept until its servers are gone."""
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
