"""Follow the sources of a group, and reload what has changed."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen

from ..._errors import ActorCrashed, ActorStartError, ActorStopped, ConfigError, ConnectFailed
from ..._foreign import Log
from ...kernel import Actor, Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

    from ...config import Source
    from ...kernel import SupervisorRef
    from ._given import Given
    from ._reading import Sources

logger = Log("mcp_actors.servers")

SETTLING: Final = 0.2
"""Seconds between two looks at a file that is being written."""

LONGEST_SETTLING: Final = 5.0
"""Seconds after which a file that is written all the time is read nevertheless."""


@frozen(kw_only=True, eq=False, repr=False)
class ConfigRejected(Event):
    """A followed configuration has changed, and something in it cannot be used (``open_servers(watch=True)``).

    Emitted once for each content. The servers that the file, table or entry gave last stay as they are.

    Attributes:
        error: what is wrong, and where.
    """

    error: ConfigError


class WatchActor(Actor):
    """Owns one task for each source. It takes no messages.

    Args:
        sources: the configurations of the group.
        apply: passes a reading to the actor that carries out changes.
        emit: emits an event.
    """

    def __init__(
        self,
        sources: Sources,
        apply: Callable[[SupervisorRef, Given], Awaitable[object]],
        emit: Callable[[Event], None],
    ) -> None:
        self._sources = sources
        self._apply = apply
        self._emit = emit

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the sources while the group runs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_all, name=self.ref.name)
            yield
            nursery.cancel_scope.cancel("the group is closed")

    async def _follow_all(self) -> None:
        """Follow the sources that there are; `ServerGroup.reload` may replace them."""
        while True:
            async with trio.open_nursery() as nursery:
                for source in self._sources.watched:
                    nursery.start_soon(self._follow, source, name=f"{self.ref.name}:{source.name}")
                await self._sources.changed.wait()
                nursery.cancel_scope.cancel("the sources were replaced")

    async def _follow(self, source: Source) -> None:
        while True:
            await trio.sleep(source.interval)
            stamp = await self._sources.look(source)
            if stamp != self._sources.stamps.get(source.name):
                if source.settles:
                    await self._settle(source, stamp)
                await self._reload()

    async def _settle(self, source: Source, stamp: Hashable) -> None:
        """Wait until a source has not changed for a moment, because a writer may not be done."""
        with trio.move_on_after(LONGEST_SETTLING):
            while True:
                await trio.sleep(SETTLING)
                before, stamp = stamp, await self._sources.look(source)
                if stamp == before:
                    return

    async def _reload(self) -> None:
        """Read all sources again, and apply the difference. Errors are logged and not raised."""
        configs = self._sources.configs
        try:
            given = await self._sources.read(configs, lenient=True)
            if self._sources.configs is not configs:
                return  # `ServerGroup.reload` was faster, and its sources are followed from now on
            with self._sources.undone_if_refused(configs):
                for error in self._sources.adopt(given, configs, again=True):
                    self._report(error)
                assert self.supervisor is not None
                await self._apply(self.supervisor, given)
        except ConfigError as error:
            logger.warning("not reloaded, so all servers stay as they are: %s", error)
            self._report(error)
        except ConnectFailed as error:
            logger.warning("reloaded, but a required server could not be connected: %s", error)
        except (ActorStopped, ActorCrashed, ActorStartError):
            return  # the group is closing

    def _report(self, error: ConfigError) -> None:
        self._emit(ConfigRejected(actor=self.ref.name, incarnation=0, time=trio.current_time(), error=error))
