"""Remember the servers' tools from one run to the next.

A server's file in the ``catalog_store`` may be damaged, huge, or on a file system that hangs. Such a file delays a
group at most until a time-out, hides no tools of other servers, and lets no changed tool pass as approved.

Owns: known contents of files; the writing task; a worker thread.
Writes: remembered tools of servers; the group's error of a failed write; files of the ``catalog_store``; the log.
Calls: catalog, kernel, servers, servers.record.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from attrs import frozen
from mcp.types import Tool
from pydantic_core import ValidationError

from ..._foreign import Log
from ..._tasks import NoThread, run_in_thread
from ...catalog import Pins
from ...catalog._pins import RememberedCatalog, pin
from ...catalog._tools import freeze
from ...kernel import Actor
from .._admission import KnownTool, fingerprint, launch_pin
from .._eras import Era
from ..record import ACTIVE, StateChanged, ToolsChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from ..._tasks import Upkeep
    from ...catalog._pins import CatalogStore
    from ...config import ServerConfig
    from ...kernel import Event
    from ..record import ServerRecord

T = TypeVar("T")

logger = Log("mcp_actors.servers")

LOAD_WAIT: Final = 1.0
"""Seconds to wait for files when a group opens; longer for more than `FILES_PER_WAIT` files."""

PINS_WAIT: Final = 10.0
"""Seconds for which a start waits for a file if ``on_tool_change="block"``; longer for many files. A large file takes
2 seconds."""

FILES_PER_WAIT: Final = 200

FLUSH_WAIT: Final = 1.0
"""Seconds to wait for unwritten listings when a group closes, while servers disconnect."""

ERRORS: Final = "catalog_store"
"""The key of failed writes in the errors of the group."""


@frozen(eq=False)
class _Known:
    """A server's listing, the pins that judge the next listing, and the quirk (see `Era`).

    `pins_only` is True without a listing to write, because the tools of the server are unknown.
    """

    listed: tuple[KnownTool, ...]
    accepted: Pins | None
    quirk: str | None
    pins_only: bool = False


@frozen(eq=False)
class _Remembered:
    """The content of a server's file: tools (None: too large, or unknown), pins, identity and quirk."""

    listed: tuple[KnownTool, ...] | None
    accepted: Pins | None
    identity: str | None
    quirk: str | None


class CatalogMemory:
    """The remembered catalogues of a group's servers. Observes the group to learn of new listings.

    The task that opens the group reads the files before any server connects, because the first listing of a server is
    compared with its file. The lifecycle actor reads the file of an added server. Files are read and written in
    threads, one after the other. A hanging file system delays the start and the end of a group by `LOAD_WAIT` (or
    `PINS_WAIT`) and `FLUSH_WAIT`; then the thread is abandoned, and unwritten listings are lost. Failed writes are
    repeated later (`Upkeep`).
    """

    wants_requests = False

    def __init__(self, store: CatalogStore, records: Iterable[ServerRecord], naming: str, upkeep: Upkeep) -> None:
        self._store = store
        self._naming = naming
        self._upkeep = upkeep
        self._records: dict[str, ServerRecord] = {}
        self._fingerprints: dict[str, str] = {}
        self._kept: dict[str, _Known] = {}
        self._loading: set[str] = set()  # while a file is read, it must not be written
        self._unread: dict[str, _Known] = {}  # a file that could not be read: no tool is accepted
        self._moved: set[str] = set()  # the file for a new source lacks the tools accepted under the old source
        self._news = trio.Event()
        self._closing = trio.Event()
        # An own limiter: the program's other threads cannot delay this thread, and at most one thread can hang.
        self._threads = trio.CapacityLimiter(1)
        for record in records:
            self.add(record)

    async def follow(self, record: ServerRecord, before: ServerConfig) -> None:
        """Note a changed configuration; if the server has no accepted tools, read those of its file.

        Accepted tools stay, and shown tools stay until the next listing. If only the source differs, accepted tools are
        written for the new source at once: the server may not connect in this run, and the next run would trust
        anything.
        """
        server, catalog = record.config.name, record.catalog
        key, unread = self._fingerprints.get(server), server in self._unread
        self.add(record)
        if server not in self._records or self._fingerprints[server] == key:
            return
        if catalog.admission.accepted is None or unread:
            await self.load(server, pins_only=True)
        elif launch_pin(before) == catalog.admission.identity:
            self._moved.add(server)
            self._news.set()

    def add(self, record: ServerRecord) -> None:
        """Remember a server, or follow a changed configuration: another file may belong to it now."""
        server, key = record.config.name, fingerprint(record.config)
        if key != self._fingerprints.get(server):
            self.forget(server)
            if key is not None:
                self._records[server], self._fingerprints[server] = record, key

    def forget(self, server: str) -> None:
        """Forget a server. The file stays, with the accepted tools."""
        for each in (self._records, self._fingerprints, self._kept, self._unread):
            each.pop(server, None)
        self._moved.discard(server)

    async def load(self, *servers: str, pins_only: bool = False) -> None:
        """Read the files and show the remembered tools; give up on a file after `LOAD_WAIT` or `PINS_WAIT`.

        A server with ``on_tool_change="block"`` and an unreadable file shows no tools, and the file is left alone
        until tools are approved. Without names, all files are read. `pins_only` only judges the next listing, and shows
        no tools.

        **Cancellation**: leaves at once.
        """
        now, servers = trio.current_time(), tuple(each for each in servers or self._records if each in self._records)
        wait = LOAD_WAIT * max(1.0, len(servers) / FILES_PER_WAIT)
        until = {server: now + (max(PINS_WAIT, wait) if self._blocks(server) else wait) for server in servers}
        unread = dict.fromkeys(servers, "timed out")
        self._loading.update(servers)
        try:
            with trio.move_on_at(max(until.values(), default=now)):
                await self._load(unread, until, pins_only=pins_only)
        except NoThread as error:
            unread = dict.fromkeys(unread, f"failed: {error}")
        finally:
            self._loading.difference_update(servers)
            self._news.set()
        for problem in dict.fromkeys(unread.values()):
            logger.warning(
                "catalog_store: reading %s %s after %g s; continuing without the remembered tools of: %s",
                self._store.directory,
                problem,
                trio.current_time() - now,
                ", ".join(server for server, why in unread.items() if why == problem),
            )
        for server in filter(self._blocks, unread):
            self._distrust(server)

    async def _load(self, unread: dict[str, str], until: Mapping[str, float], *, pins_only: bool) -> None:
        """Read files, each until its time. Remove read files from `unread`, or replace the value by the failure."""
        files = {server: self._fingerprints[server] for server in unread}
        order = await self._in_thread(partial(_by_size, self._store, files))
        for limit, batch in _batches(order, until):
            # The thread appends each result at once, so a file that hangs costs only itself and the rest of its batch.
            # An abandoned thread may append while the loop below runs, so the loop takes a copy; later results count as
            # not read. A result that was applied late could replace a listing of this run.
            read: list[tuple[str, _Remembered | OSError | None]] = []
            with trio.move_on_at(limit):
                wanted = [(each, files[each], self._records[each].config.on_tool_change != "allow") for each in batch]
                await self._in_thread(partial(_load_all, self._store, self._naming, wanted, read))
            for server, known in tuple(read):
                if isinstance(known, OSError):
                    unread[server] = f"failed: {known.strerror}"
                    continue
                del unread[server]
                if known is not None:
                    self._restored(server, known, pins_only=pins_only)

    def _restored(self, server: str, known: _Remembered, *, pins_only: bool) -> None:
        catalog = self._records[server].catalog
        if known.identity is not None and known.identity != catalog.admission.identity:
            # The name now starts another program, whose tools were never accepted.
            catalog.admission.judge_by(known.accepted or Pins(identity=known.identity))
            return
        if pins_only:
            if known.accepted is not None:
                catalog.admission.judge_by(known.accepted)
            return
        if known.quirk is not None and self._records[server].config.protocol == "auto":
            self._records[server].next_connect.era = Era("legacy", quirk=known.quirk)
        if known.listed is None:
            catalog.admission.judge_by(known.accepted or Pins())
        else:
            catalog.restore(known.listed, known.accepted)
            self._kept[server] = _Known(known.listed, known.accepted, known.quirk)

    def _blocks(self, server: str) -> bool:
        return self._records[server].config.on_tool_change == "block"

    def _distrust(self, server: str) -> None:
        catalog = self._records[server].catalog
        catalog.admission.judge_by(Pins())
        self._kept[server] = self._unread[server] = _Known(catalog.listed, catalog.admission.accepted, None)
        logger.warning(
            "server %r: its accepted tools could not be read, so all its tools are hidden (on_tool_change='block'); "
            "approve them (see tool_changes), or start again",
            server,
        )

    def __call__(self, event: Event) -> None:
        if isinstance(event, StateChanged | ToolsChanged):
            self._news.set()

    async def run(self) -> None:
        """Write new listings until closed and all is written. Begin again after any failure."""
        what = f"catalog_store: writing to {self._store.directory}"
        await self._upkeep.keep(ERRORS, what, self._write_all, closing=self._closing)

    async def _write_all(self) -> None:
        await self._in_thread(self._store.tidy)
        while True:
            self._news = trio.Event()
            failures: list[OSError] = []
            for server, known in self._unwritten().items():
                try:
                    await self._write(server, known)
                except OSError as error:  # only this file failed
                    failures.append(error)
            if failures:
                raise failures[0]
            self._upkeep.works(ERRORS)
            if self._closing.is_set() and not self._unwritten():
                return
            await self._news.wait()

    async def _write(self, server: str, known: _Known) -> None:
        record = self._records.get(server)
        if record is None:  # it was removed while another file was written
            return
        key, identity = self._fingerprints[server], record.catalog.admission.identity
        await self._in_thread(partial(_save, self._store, key, server, known, identity))
        if self._records.get(server) is record and self._fingerprints[server] == key:
            self._kept[server] = known
            self._moved.discard(server)

    def close(self) -> float:
        """Let `run` end once all is written. Return how many seconds to wait for the unwritten listings."""
        self._closing.set()
        self._news.set()
        return FLUSH_WAIT if self._unwritten() else 0.0

    def report_unwritten(self) -> None:
        if unwritten := self._unwritten():
            servers = ", ".join(unwritten)
            logger.warning(
                "catalog_store: writing to %s %s; the tools of these servers are not remembered: %s",
                self._store.directory,
                "failed" if ERRORS in self._upkeep.errors else "timed out",
                servers,
            )

    def _unwritten(self) -> dict[str, _Known]:
        return {
            server: _known(record)
            for server, record in self._records.items()
            if server not in self._loading and self._is_to_be_written(server, record)
        }

    def _is_to_be_written(self, server: str, record: ServerRecord) -> bool:
        catalog, kept, unread = record.catalog, self._kept.get(server), self._unread.get(server)
        if kept is None:
            return catalog.known or server in self._moved
        if unread is not None and catalog.admission.accepted is unread.accepted:
            return False
        if record.life.state in ACTIVE and _quirk(record) != kept.quirk:
            return True
        # By identity: a comparison by value is slow and left to the thread.
        return catalog.listed is not kept.listed or catalog.admission.accepted is not kept.accepted

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await run_in_thread(job, self._threads)


def _known(record: ServerRecord) -> _Known:
    catalog = record.catalog
    pins_only = not (catalog.known or catalog.deferred)
    return _Known(catalog.listed, catalog.admission.accepted, _quirk(record), pins_only)


def _quirk(record: ServerRecord) -> str | None:
    return None if record.next_connect.era is None else record.next_connect.era.quirk


class MemoryActor(Actor):
    """Owns the task that writes listings. Takes no messages."""

    def __init__(self, memory: CatalogMemory) -> None:
        self._memory = memory

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._memory.run, name=self.ref.name)
            yield
            wait = self._memory.close()
            nursery.cancel_scope.deadline = trio.current_time() + wait
        if wait:
            self._memory.report_unwritten()


def _batches(servers: Iterable[str], until: Mapping[str, float]) -> Iterator[tuple[float, tuple[str, ...]]]:
    for limit, same in groupby(servers, until.__getitem__):
        while batch := tuple(islice(same, 32)):  # to hand a job to a thread takes as long as to read a small file
            yield limit, batch


# --- in worker threads ----------------------------------------------------------------------------------------------


def _by_size(store: CatalogStore, fingerprints: Mapping[str, str]) -> list[str]:
    """Return the smallest files first, so no server crowds out another."""
    return sorted(fingerprints, key=lambda server: store.size(fingerprints[server]))


def _load_all(
    store: CatalogStore,
    naming: str,
    files: Iterable[tuple[str, str, bool]],
    read: list[tuple[str, _Remembered | OSError | None]],
) -> None:
    """Read files, hash the tools of servers marked as judged, and append each result to `read` at once."""
    for server, key, judged in files:
        try:
            known = _load(store, naming, key, server)
        except OSError as error:  # other files may be readable
            read.append((server, error))
            continue
        if judged and known is not None:
            for each in known.listed or ():
                _ = each.pin
        read.append((server, known))


def _load(store: CatalogStore, naming: str, key: str, server: str) -> _Remembered | None:
    """Read a server's file; return None, and log why, if the content cannot be used."""
    try:
        if (catalog := store.load(key)) is not None:
            listed = None
            if catalog.tools is not None:
                # Frozen first, so that the tool and its entry in the catalogue share the parts of schemas.
                tools = map(Tool.model_validate, map(freeze, catalog.tools))
                listed = tuple([KnownTool.remembered(server, tool, naming) for tool in tools])
            return _Remembered(listed, catalog.pins, catalog.identity, catalog.legacy)
    except (ValidationError, RecursionError):
        logger.warning(
            "catalog_store: ignoring the damaged file %s; it is replaced at the next listing", store.path(key)
        )
    return None


def _save(store: CatalogStore, key: str, server: str, known: _Known, identity: str | None) -> None:
    """Write a server's file; only log an error that every further attempt would meet again."""
    try:
        tools = tuple(each.tool.model_dump(mode="json", by_alias=True, exclude_none=True) for each in known.listed)
        stored = None if known.pins_only else tools
        catalog = RememberedCatalog(
            server=server,
            tools=stored,
            pins=known.accepted,
            identity=identity,
            legacy=known.quirk,
            former=_former(store, key, known),
        )
        store.save(key, catalog)
    except OSError:
        raise
    except Exception:
        logger.warning("server %r: its tools could not be written to the catalog_store", server, exc_info=True)


def _former(store: CatalogStore, key: str, known: _Known) -> tuple[Mapping[str, Any], ...]:
    """Return the accepted definitions in a server's file that the server no longer lists."""
    listed = {each.name: each.pin for each in known.listed}
    accepted = {} if known.accepted is None else known.accepted.tools
    missing = {name: each for name, each in accepted.items() if listed.get(name) != each}
    before = store.load(key) if missing else None
    found: dict[str, Mapping[str, Any]] = {}
    for tool in () if before is None else (*(before.tools or ()), *before.former):
        if (name := tool.get("name")) in missing:
            with suppress(ValidationError):
                if pin(Tool.model_validate(tool)) == missing[name]:
                    found[name] = tool
    return tuple(found.values())
