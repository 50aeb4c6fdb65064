"""A group of servers: a mapping plus consistent views of their state."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio
from attrs import frozen

from ..._errors import ConfigError, ToolNotFound
from ...catalog import CatalogSnapshot, Listing
from ...config import permitted
from ...kernel import EVENT_BUFFER, SupervisorRef
from ..record import ACTIVE, CONNECTED
from ..ref import Reconnect, ServerEntry, ServerRef, change
from ._tree import LIFECYCLE, supervisor_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from mcp.shared.dispatcher import ProgressFnT
    from mcp.types import CallToolResult

    from ...catalog import CatalogTool
    from ...config import ToolContext
    from ...kernel import EventHub, EventStream, TreeNode
    from ..record import ServerRecord, ServerState, ServerStatus
    from ..ref import PendingRequest

__all__ = ["ServerGroup"]

logger = logging.getLogger("mcp_actors.servers")


@frozen(eq=False)
class _Shown:
    """A snapshot and the inputs it was computed from.

    Several threads may ask for the snapshot at once (see ``bridge``), so both are replaced in one assignment. Whichever
    thread wins, the next reader compares the inputs and notices if the snapshot is stale.
    """

    tools: list[tuple[CatalogTool, ...]]
    marks: list[tuple[str, bool, bool]]
    snapshot: CatalogSnapshot


class ServerGroup(Mapping[str, ServerRef]):
    """The servers of an ``open_servers`` block: a mapping of names to `ServerRef`, in configured order.

    Every view is computed from each server's current state when it is read. All tuples are in configured order.
    """

    def __init__(
        self,
        records: Mapping[str, ServerRecord],
        supervisor: SupervisorRef,
        hub: EventHub,
        *,
        naming: str,
        failed: Mapping[str, ConfigError],
    ) -> None:
        self._records = records
        self._not_loaded = {name: error for name, error in failed.items() if name not in records}
        self._hub = hub
        self._supervisor = supervisor
        self._lifecycle = supervisor.child(LIFECYCLE)
        self._supervised = {name: _supervised(record, supervisor) for name, record in records.items()}
        self._refs = {name: ServerRef(server, self._lifecycle) for name, server in self._supervised.items()}
        self._shown = _Shown([], [], CatalogSnapshot.from_listings((), naming=naming))

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {record.life.state}" for name, record in self._records.items())
        return f"<ServerGroup {states or 'empty'}>"

    # --- the mapping ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> ServerRef:
        """Return the server with that name. A `KeyError` lists the known names."""
        try:
            return self._refs[name]
        except KeyError:
            if name in self._not_loaded:
                raise KeyError(f"server {name!r} could not be loaded: {self._not_loaded[name]}") from None
            known = ", ".join(self._refs) or "none"
            raise KeyError(f"server {name!r} not found in this group; its servers are: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def configured(self) -> tuple[ServerRef, ...]:
        """All enabled servers."""
        return tuple(self._refs.values())

    @property
    def connected(self) -> tuple[ServerRef, ...]:
        """The servers with an open connection: ``ready``, ``degraded`` and ``unhealthy``."""
        return self._in(CONNECTED)

    @property
    def active(self) -> tuple[ServerRef, ...]:
        """The servers that serve requests: ``ready`` and ``degraded``. A server that dies leaves this view at once."""
        return self._in(ACTIVE)

    @property
    def failed(self) -> tuple[ServerRef, ...]:
        """The servers that have an entry in `errors`.

        This includes a server that is reconnecting after a failure, and one that is ``degraded``.
        """
        return tuple(self._refs[name] for name, record in self._records.items() if record.life.troubled)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The current error of each server that has one, by name.

        An entry disappears when its server becomes ready or is stopped. Entries that could not be loaded come first
        and stay: a server under its name, an unreadable file under its path.
        """
        errors = {name: record.life.error for name, record in self._records.items() if record.life.error is not None}
        return MappingProxyType({**self._not_loaded, **errors})

    def _in(self, states: frozenset[ServerState]) -> tuple[ServerRef, ...]:
        return tuple(ref for ref in self._refs.values() if ref.state in states)

    def status(self) -> Mapping[str, ServerStatus]:
        """Return a snapshot of every server, by name."""
        return MappingProxyType({name: ref.statistics() for name, ref in self._refs.items()})

    def tree(self) -> TreeNode:
        """Return the tree of the actors behind the servers, as it is now; ``print(servers.tree())`` draws it.

        Raises:
            RuntimeError: the caller is in another thread.
        """
        return self._supervisor.tree()

    # --- tools ------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> CatalogSnapshot:
        """All tools, under their public names.

        Tools of a server that is reconnecting stay listed, marked as not ``available``. Tools of a failed or stopped
        server are not listed. With a ``catalog_store``, a server that has not connected yet shows the tools of an
        earlier run, also marked as ``deferred``. A snapshot is immutable; a later one has a larger generation.
        """
        listed = [record for record in self._records.values() if record.life.listed]
        tools = [record.catalog.shown for record in listed]
        marks = [(record.config.name, record.life.state in ACTIVE, record.catalog.deferred) for record in listed]
        # Compare by identity: comparing tools by value is slow, and every call comes through here.
        before = self._shown
        if marks == before.marks and all(map(is_, tools, before.tools)):
            return before.snapshot
        listings = (
            Listing(name, shown, available, deferred)
            for shown, (name, available, deferred) in zip(tools, marks, strict=True)
        )
        snapshot = before.snapshot.updated(listings)
        _log_collisions(before.snapshot, snapshot)
        self._shown = _Shown(tools, marks, snapshot)
        return snapshot

    def find_tool(self, public_name: str) -> CatalogTool:
        """Return the tool with a public name.

        Raises:
            ToolNotFound: no tool has it; the message names similar ones, and the servers that show no tools now.
        """
        try:
            return self.tools.find(public_name)
        except KeyError:
            silent = [f"{ref.name} ({ref.state})" for ref in self.configured if ref.state not in ACTIVE]
            hidden = [
                f"{name} ({number})"
                for name, record in self._records.items()
                if (number := record.catalog.admission.waiting)
            ]
            known = [tool.public_name for tool in self.tools]
            raise _tool_not_found(public_name, known, silent=silent, hidden=hidden) from None

    async def call_tool(
        self,
        public_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
    ) -> CallToolResult:
        """Call a tool by its public name; otherwise like `ServerRef.call_tool`.

        A call of a ``deferred`` tool waits for the connection, and is sent if the server still lists the tool.

        Raises:
            ToolNotFound: no tool has that name now.
        """
        tool = self.find_tool(public_name)
        server = self._refs[tool.server]
        return await server.call_tool(tool.name, arguments, progress=progress, meta=meta, idempotent=idempotent)

    def send_tool_call(
        self,
        public_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
    ) -> PendingRequest[CallToolResult]:
        """Prepare a call by public name; otherwise like `ServerRef.send_tool_call`.

        Raises:
            ToolNotFound: no tool has that name now.
        """
        tool = self.find_tool(public_name)
        server = self._refs[tool.server]
        return server.send_tool_call(tool.name, arguments, progress=progress, meta=meta, idempotent=idempotent)

    async def list_tools(self, context: ToolContext | None = None) -> tuple[CatalogTool, ...]:
        """Return the catalogue's tools that are permitted in a context.

        The predicate of each server's `ToolFilter` is called for each of its tools. A predicate that raises hides that
        tool and is logged. No request is sent, and no result is cached.

        Args:
            context: the agent and run to list tools for. Optional if no server has a predicate.

        Raises:
            ConfigError: a server has a predicate, but no context was given.
        """
        await trio.lowlevel.checkpoint()
        return permitted(self.tools, {name: record.config.tools for name, record in self._records.items()}, context)

    # --- life -------------------------------------------------------------------------------------------------------

    async def reconnect(self, *names: str, failed_only: bool = True) -> None:
        """Close servers, then connect them again concurrently, each with a fresh restart budget.

        All are closed before the first one connects. Queued requests are kept and served by the new connections.
        Concurrent calls of `reconnect`, `start`, `stop` and `restart` run one after the other.

        **Cancellation**: leaves at once; the reconnect goes on.

        Args:
            names: the servers to reconnect. Without names: those in state ``backoff`` or ``failed``, or all of them
                with ``failed_only=False``. (A server that is connecting already has its attempt.)
            failed_only: whether a call without names leaves healthy servers alone. Default True.

        Raises:
            ConnectFailed: a required server could not be connected: the first one in configured order; the others are
                notes. Servers that this call started are stopped again; the others are unaffected.
            ServerUnavailable: the group was closed.
            KeyError: no server has that name.
        """
        for name in names:
            self[name]
        servers = tuple(server for name, server in self._supervised.items() if not names or name in names)
        await change(self._lifecycle, Reconnect(servers, failed_only and not names))

    async def wait_ready(self, *names: str) -> None:
        """Wait until these servers, or all servers, serve at the same moment.

        Raises:
            ServerUnavailable: one of them has failed or was stopped, so it will not become ready by itself.
            KeyError: no server has that name.
        """
        refs = [self[name] for name in names] or list(self.configured)
        await trio.lowlevel.checkpoint()
        while waiting := [ref for ref in refs if ref.state not in ACTIVE]:
            for ref in waiting:
                await ref.wait_ready()

    def watch_events(self, *, size: int = EVENT_BUFFER) -> AbstractAsyncContextManager[EventStream]:
        """Subscribe to all events: `StateChanged`, `ToolsChanged`, and those of the kernel.

        ``async with`` yields the stream, which ends with the block or with the group.

        Args:
            size: how many events may wait for the reader; when it is full, the oldest is dropped and counted (see
                ``EventStream.missed``).
        """
        return self._hub.subscribe(size=size)


def _log_collisions(before: CatalogSnapshot, now: CatalogSnapshot) -> None:
    """Log each new collision of public names."""
    known = before.collisions
    for each in now.collisions:
        if each not in known:
            logger.warning("%s; to avoid the collision, rename a server or hide a tool (ToolFilter)", each)


def _supervised(record: ServerRecord, group: SupervisorRef) -> ServerEntry:
    own = group.child(supervisor_id(record.config.name))
    assert isinstance(own, SupervisorRef)
    return ServerEntry(record, own)


def _tool_not_found(
    public_name: str, known: Sequence[str], *, silent: Sequence[str], hidden: Sequence[str]
) -> ToolNotFound:
    """Return the error for a public name that no tool has.

    Args:
        public_name: the name that was asked for.
        known: the public names of all tools.
        silent: the servers that show no tools now, each with its state.
        hidden: the servers with tools that wait for approval, each with their number.
    """
    near = difflib.get_close_matches(public_name, known, n=3)
    hints = [f"did you mean {' or '.join(map(repr, near))}?" if near else f"{len(known)} tools are known"]
    if silent:
        hints.append(f"servers not serving now: {', '.join(silent)}")
    if hidden:
        hints.append(f"servers with tools that wait for approval (see tool_changes): {', '.join(hidden)}")
    return ToolNotFound(f"tool {public_name!r} not found; {'; '.join(hints)}", server="*")
