"""The door: servers are connected around a block of code, and none of them is left after it."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from ..._errors import ConfigError
from ..._flavor import check_flavor
from ...catalog import check_naming
from ...catalog.names import DEFAULT_NAMING
from ...catalog.store import CatalogStore, default_directory
from ...config import Callbacks, effective_callbacks
from ...kernel import EventHub, open_supervisor
from .._closing import ClosingOrder
from .._outage_log import OutageLog
from .._plain_logs import keep_logs_plain
from .._record import ServerRecord
from .._state import CONNECTED
from ._configs import Configured, read_configs
from ._failures import translated
from ._gate import StartGate, check_gate
from ._group import ServerGroup
from ._memory import CatalogMemory
from ._tree import GROUP, group_specs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from ...kernel import Event, Observer, SupervisorRef

__all__ = ["open_servers"]


@asynccontextmanager
async def open_servers(
    *configs: Configured,
    strict: bool = False,
    start_gate: float | None = None,
    catalog_store: str | os.PathLike[str] | bool | None = None,
    naming: str = DEFAULT_NAMING,
    callbacks: Callbacks | None = None,
    observers: Iterable[Observer] = (),
) -> AsyncIterator[ServerGroup]:
    """Connect to servers, side by side, around a block of code; disconnect from all of them after it.

    The block begins when every first connect has succeeded or failed (or see ``start_gate``). What failed is recorded
    (``errors``) and tried again in the background, unless it is required; a process that has not answered after its
    ``connect_timeout`` goes on connecting. The block ends first, then the servers are
    disconnected, all at the same time, each within its ``stop_timeout``; nothing of them is left.

    **Cancellation**: while the servers connect, nothing is shielded: a deadline or a cancellation around this call
    fires at once, and what was begun is cleaned up within the ``stop_timeout``. Afterwards a cancellation reaches the
    block, and the servers are disconnected as at a normal end.

    Args:
        configs: the servers, in the order in which views, tools and errors show them. Disabled ones are left out. The
            path of a configuration file, a mapping of that form, and what `load_config` returned stand for the servers
            in it; an entry that cannot be used is in ``errors``, and logged.
        strict: whether all servers are required for the start.
        start_gate: seconds after which the block begins in any case, but for servers that are required and those of
            which nothing is remembered in the ``catalog_store``. The others go on connecting; what is remembered of
            their tools is shown meanwhile, and calls wait. What fails later is recorded and logged. None (default):
            every first connect is waited for.
        catalog_store: where to remember which tools servers listed, for the next run: a directory, or True for the
            one in which this platform keeps caches. A server that is not connected yet shows what is remembered,
            as ``deferred`` tools; a lazy one too. None (default) or False: nothing is remembered.
        naming: the template of the tools' public names; ``{server}`` and ``{tool}`` are replaced. Default
            ``"mcp__{server}__{tool}"``.
        callbacks: what answers what servers ask, and hears what they tell. What a server has of its own
            (``ServerConfig.callbacks``) wins, field by field.
        observers: called synchronously with every event.

    Yields:
        The group: a mapping of names to `ServerRef`, with views, tools and events.

    Raises:
        ConnectFailed: a required server could not be connected: the first in configured order, the others are notes.
            Everything that was started is closed.
        ServerUnavailable: while the block ran, a server with ``on_failure="raise"`` failed for good. The block was
            cancelled.
        ConfigError: what is configured cannot work, a file cannot be read, or an entry cannot be used that is required
            (all are if `strict`); nothing was started.
        RuntimeError: this is not Trio.
    """
    check_flavor("open_servers()", "trio", "on asyncio, use `from mcp_actors.bridge import open_servers`")
    check_naming(naming)
    fallback = _checked(callbacks)
    store = _store(catalog_store)
    check_gate(start_gate, remembers=store is not None)
    given = await read_configs(configs, strict=strict)
    keep_logs_plain()
    hub = EventHub(tuple(observers))
    records = {
        config.name: ServerRecord(
            config,
            hub.emit,
            required=config.connect == "eager" and (strict or config.required),
            callbacks=effective_callbacks(config.callbacks, fallback),
        )
        for config in given.enabled
    }
    hub.add(OutageLog(records))
    gate = StartGate(records.values(), start_gate)
    memory = None
    if store is not None:
        hub.add(memory := CatalogMemory(store, records.values()))
    async with _supervised(records, hub, gate, memory) as supervisor:
        yield ServerGroup(records, supervisor, hub, naming=naming, failed=given.failed)


@asynccontextmanager
async def _supervised(
    records: Mapping[str, ServerRecord], hub: EventHub, gate: StartGate, memory: CatalogMemory | None
) -> AsyncIterator[SupervisorRef]:
    """Run the supervision tree of a group around a block, which begins when the gate opens."""
    closing = ClosingOrder()
    try:
        if memory is not None:
            await memory.recall()
        with translated(records.values()) as phase:
            async with open_supervisor(
                *group_specs(records.values(), closing, memory=memory),
                name=GROUP,
                max_restarts=0,
                start_order="parallel",
                stop_order="concurrent",
                observers=(Follower(records, hub),),
            ) as supervisor:
                await gate.wait()
                phase.started = True
                try:
                    yield supervisor
                finally:
                    closing.leave(name for name, record in records.items() if record.state in CONNECTED)
    finally:
        hub.close()
        for record in records.values():
            record.leave()


@frozen
class Follower:
    """The observer of a group's actors: it brings the records up to date, and tells whoever observes the group."""

    records: Mapping[str, ServerRecord]
    hub: EventHub

    @property
    def wants_requests(self) -> bool:
        """The records do not; so it depends on who observes the group."""
        return self.hub.wants_requests

    def __call__(self, event: Event) -> None:
        # The record first, so that whoever is told of an event finds the server in the state that follows from it.
        record = self.records.get(event.actor)
        if record is not None and record.dormant:
            return
        changed = record.follow(event) if record is not None else None
        self.hub.emit(event)
        if changed is not None:
            self.hub.emit(changed)


def _store(catalog_store: object) -> CatalogStore | None:
    """Where catalogues are remembered.

    Raises:
        ConfigError: this is no directory, or there is none for True.
    """
    if catalog_store is None or catalog_store is False:
        return None
    if catalog_store is True:
        return CatalogStore(default_directory())
    if isinstance(catalog_store, (str, os.PathLike)) and isinstance(path := os.fspath(catalog_store), str) and path:
        return CatalogStore(path)
    raise ConfigError(
        f"catalog_store={catalog_store!r} is no directory; give its path, or True for the one of this platform",
        source="open_servers",
        path="catalog_store",
    )


def _checked(callbacks: Callbacks | None) -> Callbacks | None:
    """Return the callbacks of the group.

    Raises:
        ConfigError: they are none.
    """
    if callbacks is None or isinstance(callbacks, Callbacks):
        return callbacks
    raise ConfigError(
        f"open_servers takes callbacks=Callbacks(...), not {type(callbacks).__name__}", source="open_servers"
    )
