"""What servers listed in an earlier run: who reads it, and who writes it for the next one.

Who owns what. One task of the group, in an actor of its own, reads all that is remembered when the group starts, and
then waits for servers to list something else and writes that, one file after the other. It works in worker threads and
holds up nothing: connects begin beside it, and a file system that hangs costs a bounded wait at the start of the group
(`RECALL_WAIT`) and at its end (`FLUSH_WAIT`), and what it was to keep. A thread that hangs is left to itself.

What is recalled is shown until the server has listed its tools in this run, and never after that.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from mcp.types import Tool
from pydantic_core import ValidationError

from ..catalog._store import RememberedCatalog
from ..kernel import Actor
from ._events import StateChanged, ToolsChanged
from ._fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from ..catalog._store import CatalogStore
    from ..kernel import Event
    from ._record import ServerRecord

__all__ = ["CatalogMemory", "MemoryActor"]

T = TypeVar("T")

logger = logging.getLogger("mcp_actors.servers")

RECALL_WAIT: Final = 1.0
"""Seconds that the start of a group waits for what is remembered. A local file takes less than a millisecond."""

FLUSH_WAIT: Final = 1.0
"""Seconds that the end of a group waits for what is still to be written, while its servers are disconnected."""


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
        self._written: dict[str, tuple[Tool, ...]] = {}
        self._news = trio.Event()
        self._recalled = trio.Event()
        self._closed = False
        # So that no other thread of the program can keep this one waiting, and this one waits for no more than one.
        self._threads = trio.CapacityLimiter(1)

    def __call__(self, event: Event) -> None:
        """A server may have listed its tools: that is to be written."""
        if isinstance(event, StateChanged | ToolsChanged):
            self._news.set()

    async def wait_recalled(self) -> None:
        """Wait until everything that is remembered has been read; after `RECALL_WAIT`, go on without it."""
        with trio.move_on_after(RECALL_WAIT) as patience:
            await self._recalled.wait()
        if patience.cancelled_caught:
            logger.warning(
                "what is remembered in %s is not read after %g s; going on without it",
                self._store.directory,
                RECALL_WAIT,
            )

    async def run(self) -> None:
        """Read, then write what servers list, until this is closed and all is written."""
        await self._recall()
        while True:
            self._news = trio.Event()
            for server, tools in self._unwritten():
                await self._in_thread(partial(_save, self._store, self._fingerprints[server], server, tools))
                self._written[server] = tools
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
            logger.warning(
                "what these servers listed could not be written in time, to %s: %s",
                self._store.directory,
                ", ".join(server for server, _ in unwritten),
            )

    def _unwritten(self) -> list[tuple[str, tuple[Tool, ...]]]:
        """What servers have listed in this run, as far as that is something else than was written last."""
        return [
            (server, record.catalogue.listed)
            for server, record in self._records.items()
            if record.info is not None and record.catalogue.listed is not self._written.get(server)
        ]

    async def _recall(self) -> None:
        try:
            found = await self._in_thread(partial(_load_all, self._store, self._fingerprints))
            for server, tools in found.items():
                self._records[server].recall(tools)
        finally:
            self._recalled.set()

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(job, abandon_on_cancel=True, limiter=self._threads)


class MemoryActor(Actor):
    """Runs the task that reads and writes. It takes no messages."""

    def __init__(self, memory: CatalogMemory) -> None:
        self._memory = memory

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read and write, beside the servers; at the end, write what is left."""
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


def _load_all(store: CatalogStore, fingerprints: Mapping[str, str]) -> dict[str, tuple[Tool, ...]]:
    """Read what is remembered of these servers."""
    found = {}
    for server, key in fingerprints.items():
        catalog = store.load(key)
        if catalog is None:
            continue
        try:
            found[server] = tuple(Tool.model_validate(tool) for tool in catalog.tools)
        except ValidationError:
            logger.warning("the remembered catalogue %s is ignored: its tools are damaged", store.path(key))
    return found


def _save(store: CatalogStore, key: str, server: str, tools: tuple[Tool, ...]) -> None:
    """Remember what a server listed. Whatever goes wrong is logged."""
    try:
        listed = tuple(tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools)
        store.save(key, RememberedCatalog(server=server, tools=listed))
    except Exception:
        logger.warning("server %r: what it listed is not remembered for the next run", server, exc_info=True)
