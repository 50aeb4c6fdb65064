"""What servers listed in an earlier run: who reads it, and who writes it for the next one.

Who owns what. All that is remembered is read by the task that opens the group, before any server is connected, so that
the first thing that a server lists can be compared with it. From then on one task of the group, in an actor of its own,
waits for servers to list something else, and writes that, one file after the other. Both work in threads and hold up
nothing but this: a file system that hangs costs a bounded wait at the start of the group (`RECALL_WAIT`) and at its end
(`FLUSH_WAIT`), and what it was to keep. A thread that hangs is left to itself.

A server has a say in how long its own file takes to read. So files are read one by one, the smallest first: no server
can have those of others forgotten. And what was accepted of a server whose ``on_tool_change`` is ``"block"`` is waited
for longer (`PINS_WAIT`); if it is not read then, nothing of that server is accepted, and its file is left as it is.

What is recalled is shown until the server has listed its tools in this run, and never after that.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from attrs import frozen
from mcp.types import Tool
from pydantic_core import ValidationError

from ...catalog import Pins
from ...catalog.store import RememberedCatalog
from ...kernel import Actor
from .._era import Era
from .._events import StateChanged, ToolsChanged
from .._fingerprint import fingerprint
from .._known_tools import KnownTool
from .._state import ACTIVE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from ...catalog.store import CatalogStore
    from ...kernel import Event
    from .._record import ServerRecord

__all__ = ["CatalogMemory", "MemoryActor"]

T = TypeVar("T")

logger = logging.getLogger("mcp_actors.servers")

RECALL_WAIT: Final = 1.0
"""Seconds that the start of a group waits for what is remembered. A local file takes less than a millisecond."""

PINS_WAIT: Final = 10.0
"""The same, for servers of which nothing is to be shown that was not accepted. The largest files take two."""

FLUSH_WAIT: Final = 1.0
"""Seconds that the end of a group waits for what is still to be written, while its servers are disconnected."""


@frozen(eq=False)
class _Known:
    """What a server has listed, what its next listing is to be judged against, and its quirk (see `Era`)."""

    listed: tuple[KnownTool, ...]
    accepted: Pins | None
    legacy: str | None


@frozen(eq=False)
class _Remembered:
    """What was written of a server: its tools (None: too large), what was accepted, its start and its quirk."""

    listed: tuple[KnownTool, ...] | None
    accepted: Pins | None
    identity: str | None
    legacy: str | None


class CatalogMemory:
    """The remembered catalogues of the servers of a group. It observes the group, to hear of what they list.

    Args:
        store: where they are.
        records: the servers.
    """

    wants_requests = False

    def __init__(self, store: CatalogStore, records: Iterable[ServerRecord]) -> None:
        self._store = store
        known = {record.config.name: (record, fingerprint(record.config)) for record in records}
        self._records = {server: record for server, (record, key) in known.items() if key is not None}
        self._fingerprints = {server: key for server, (_, key) in known.items() if key is not None}
        self._kept: dict[str, _Known] = {}
        self._unread: dict[str, _Known] = {}  # and of which nothing was accepted therefore
        self._news = trio.Event()
        self._closed = False
        # So that no other thread of the program can keep this one waiting, and this one waits for no more than one.
        self._threads = trio.CapacityLimiter(1)

    async def recall(self) -> None:
        """Read what is remembered, and have it shown; after `RECALL_WAIT` or `PINS_WAIT`, go on without it.

        **Cancellation**: leaves at once.
        """
        now, servers = trio.current_time(), list(self._fingerprints)
        until = {server: now + (PINS_WAIT if self._blocks(server) else RECALL_WAIT) for server in servers}
        unread = dict.fromkeys(servers)
        with trio.move_on_at(max(until.values(), default=now)):
            for server in await self._in_thread(partial(_by_size, self._store, self._fingerprints)):
                with trio.move_on_at(until[server]):
                    known = await self._in_thread(partial(_load, self._store, self._fingerprints[server], server))
                    del unread[server]
                    if known is not None:
                        self._recalled(server, known)
        if unread:
            logger.warning(
                "what is remembered in %s is not read after %g s; going on without it",
                self._store.directory,
                trio.current_time() - now,
            )
        for server in filter(self._blocks, unread):
            self._distrust(server)

    def _recalled(self, server: str, known: _Remembered) -> None:
        catalog = self._records[server].catalog
        if known.identity not in (None, catalog.admission.identity):
            # Something else is started under this name now: these are not its tools, and its own were not accepted.
            catalog.admission.judge_by(known.accepted or Pins(identity=known.identity))
            return
        if known.legacy is not None and self._records[server].config.protocol == "auto":
            self._records[server].era = Era("legacy", quirk=known.legacy)
        if known.listed is None:
            catalog.admission.judge_by(known.accepted or Pins())
        else:
            catalog.recall(known.listed, known.accepted)
            self._kept[server] = _Known(known.listed, known.accepted, known.legacy)

    def _blocks(self, server: str) -> bool:
        return self._records[server].config.on_tool_change == "block"

    def _distrust(self, server: str) -> None:
        """Have nothing shown of a server: what was accepted of it could not be read. Its file is kept until it is."""
        catalog = self._records[server].catalog
        catalog.admission.judge_by(Pins())
        self._kept[server] = self._unread[server] = _Known(catalog.listed, catalog.accepted, None)
        logger.warning(
            "server %r: what was accepted of its tools is not known, so they are hidden until they are approved "
            "(on_tool_change='block'); look at its tool_changes, or start again",
            server,
        )

    def __call__(self, event: Event) -> None:
        """A server may have listed its tools: that is to be written."""
        if isinstance(event, StateChanged | ToolsChanged):
            self._news.set()

    async def run(self) -> None:
        """Write what servers list, until this is closed and all is written."""
        await self._in_thread(self._store.tidy)
        while True:
            self._news = trio.Event()
            for server, known in self._unwritten().items():
                identity = self._records[server].catalog.admission.identity
                await self._in_thread(partial(_save, self._store, self._fingerprints[server], server, known, identity))
                self._kept[server] = known
            if self._closed and not self._unwritten():
                return
            await self._news.wait()

    def close(self) -> float:
        """There is nothing more to come. Returns how many seconds to wait for what is still to be written."""
        self._closed = True
        self._news.set()
        return FLUSH_WAIT if self._unwritten() else 0.0

    def report_unwritten(self) -> None:
        """Log what was given up."""
        if unwritten := self._unwritten():
            servers = ", ".join(unwritten)
            logger.warning("what was listed could not be written to %s in time: by %s", self._store.directory, servers)

    def _unwritten(self) -> dict[str, _Known]:
        """What is known of servers, as far as it is something else than what is kept."""
        return {
            server: _Known(record.catalog.listed, record.catalog.accepted, _quirk(record))
            for server, record in self._records.items()
            if self._is_to_be_written(record, self._kept.get(server), self._unread.get(server))
        }

    @staticmethod
    def _is_to_be_written(record: ServerRecord, kept: _Known | None, unread: _Known | None) -> bool:
        catalog = record.catalog
        if kept is None:
            return catalog.known
        if unread is not None and catalog.accepted is unread.accepted:
            return False
        if record.state in ACTIVE and _quirk(record) != kept.legacy:
            return True
        # By identity: whether they are equal is found out in the thread.
        return catalog.listed is not kept.listed or catalog.accepted is not kept.accepted

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(job, abandon_on_cancel=True, limiter=self._threads)


def _quirk(record: ServerRecord) -> str | None:
    return None if record.era is None else record.era.quirk


class MemoryActor(Actor):
    """Runs the task that writes. It takes no messages."""

    def __init__(self, memory: CatalogMemory) -> None:
        self._memory = memory

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write, beside the servers; at the end, write what is left."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._memory.run, name=self.ref.name)
            yield
            wait = self._memory.close()
            nursery.cancel_scope.deadline = trio.current_time() + wait
        if wait:
            self._memory.report_unwritten()

    async def handle(self, message: object) -> None:
        """Nothing is ever asked."""
        raise TypeError(f"the memory of a group takes no messages, and was sent {message!r}")


# --- in worker threads ----------------------------------------------------------------------------------------------


def _by_size(store: CatalogStore, fingerprints: Mapping[str, str]) -> list[str]:
    """Return these servers, those first of which the least is remembered."""
    return sorted(fingerprints, key=lambda server: store.size(fingerprints[server]))


def _load(store: CatalogStore, key: str, server: str) -> _Remembered | None:
    """Read what is remembered of a server. Whatever goes wrong is logged."""
    try:
        if (catalog := store.load(key)) is not None:
            listed = None
            if catalog.tools is not None:
                tools = map(Tool.model_validate, catalog.tools)
                listed = tuple(KnownTool.of(server, tool) for tool in tools)
            return _Remembered(listed, catalog.pins, catalog.identity, catalog.legacy)
    except (ValidationError, RecursionError):
        logger.warning("the remembered catalogue %s is ignored: its tools are damaged", store.path(key))
    return None


def _save(store: CatalogStore, key: str, server: str, known: _Known, identity: str | None) -> None:
    """Remember what a server listed. Whatever goes wrong is logged."""
    try:
        tools = tuple(each.tool.model_dump(mode="json", by_alias=True, exclude_none=True) for each in known.listed)
        catalog = RememberedCatalog(
            server=server, tools=tools, pins=known.accepted, identity=identity, legacy=known.legacy
        )
        store.save(key, catalog)
    except Exception:
        logger.warning("server %r: what it listed is not remembered for the next run", server, exc_info=True)
