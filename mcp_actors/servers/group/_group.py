"""A group of servers: a mapping, and views that never show what is not so."""

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
from ...kernel import SupervisorRef
from ...kernel._events import EVENT_BUFFER
from .._lifecycle import Reconnect, Supervised, change
from .._ref import ServerRef
from .._state import ACTIVE, CONNECTED
from ._tree import LIFECYCLE, supervisor_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from mcp.shared.dispatcher import ProgressFnT
    from mcp.types import CallToolResult

    from ...catalog import CatalogTool
    from ...config import ToolContext
    from ...kernel import EventHub, EventStream
    from .._pending import PendingRequest
    from .._record import ServerRecord
    from .._state import ServerState
    from .._status import ServerStatus

__all__ = ["ServerGroup"]

logger = logging.getLogger("mcp_actors.servers")


@frozen(eq=False)
class _Shown:
    """A snapshot, with what it was made of.

    They are replaced as one, as they may be asked for in several threads at the same time (see ``bridge``): whichever
    is kept, the next to ask sees whether it is of now.
    """

    tools: list[tuple[CatalogTool, ...]]
    marks: list[tuple[str, bool, bool]]
    snapshot: CatalogSnapshot


class ServerGroup(Mapping[str, ServerRef]):
    """The servers of an ``open_servers`` block: a mapping of names to `ServerRef`, in configured order.

    All views are made from one state per server at the moment of asking. All tuples are in configured order.
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
        self._lifecycle = supervisor.child(LIFECYCLE)
        self._supervised = {name: _supervised(record, supervisor) for name, record in records.items()}
        self._refs = {name: ServerRef(server, self._lifecycle) for name, server in self._supervised.items()}
        self._shown = _Shown([], [], CatalogSnapshot.from_listings((), naming=naming))

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {record.state}" for name, record in self._records.items())
        return f"<ServerGroup {states or 'empty'}>"

    # --- the mapping ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> ServerRef:
        """The server of that name. A `KeyError` lists the names there are."""
        try:
            return self._refs[name]
        except KeyError:
            if name in self._not_loaded:
                raise KeyError(f"server {name!r} could not be loaded: {self._not_loaded[name]}") from None
            known = ", ".join(self._refs) or "none"
            raise KeyError(f"there is no server {name!r} in this group; its servers are: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def configured(self) -> tuple[ServerRef, ...]:
        """All servers that are enabled."""
        return tuple(self._refs.values())

    @property
    def connected(self) -> tuple[ServerRef, ...]:
        """The servers whose connection stands."""
        return self._in(CONNECTED)

    @property
    def active(self) -> tuple[ServerRef, ...]:
        """The servers that serve. A server that dies leaves this view at once."""
        return self._in(ACTIVE)

    @property
    def failed(self) -> tuple[ServerRef, ...]:
        """The servers that have a problem: those that have an entry in `errors`, until it goes.

        So a server that is being connected again after a failure is in it, and so is one that is ``degraded``.
        """
        return tuple(self._refs[name] for name, record in self._records.items() if record.troubled)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """What is wrong with which server, by name. An entry goes when its server is ready, or was stopped.

        What could not be loaded comes first and stays: servers by name, and files of which nothing could be loaded by
        their path.
        """
        errors = {name: record.error for name, record in self._records.items() if record.error is not None}
        return MappingProxyType({**self._not_loaded, **errors})

    def _in(self, states: frozenset[ServerState]) -> tuple[ServerRef, ...]:
        return tuple(ref for ref in self._refs.values() if ref.state in states)

    def status(self) -> Mapping[str, ServerStatus]:
        """A snapshot of every server, by name."""
        return MappingProxyType({name: ref.statistics() for name, ref in self._refs.items()})

    # --- tools ------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> CatalogSnapshot:
        """All tools, under their public names.

        Tools of a server that is just reconnecting stay listed, marked as not ``available``; those of a server that
        has failed or was stopped are not listed. With a ``catalog_store``, a server that was not connected yet shows
        what it listed in an earlier run, marked as ``deferred`` too. The snapshot never changes; a later one has a
        larger generation.
        """
        listed = [record for record in self._records.values() if record.listed]
        tools = [record.catalog.shown for record in listed]
        marks = [(record.config.name, record.state in ACTIVE, record.deferred) for record in listed]
        # By identity: to compare tools takes long, and this is asked at every call.
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
        """The tool of a public name.

        Raises:
            ToolNotFound: there is none; the message names the nearest ones, and the servers that show no tools now.
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
        """Call a tool by its public name; otherwise as `ServerRef.call_tool`.

        A call of a ``deferred`` tool waits for the connection, and is then made if the tool is still there.

        Raises:
            ToolNotFound: there is no such tool now.
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
        """Prepare what `call_tool` does, as `ServerRef.send_tool_call`.

        Raises:
            ToolNotFound: there is no such tool now.
        """
        tool = self.find_tool(public_name)
        server = self._refs[tool.server]
        return server.send_tool_call(tool.name, arguments, progress=progress, meta=meta, idempotent=idempotent)

    async def list_tools(self, context: ToolContext | None = None) -> tuple[CatalogTool, ...]:
        """The tools of the catalogue that are to be shown to somebody: all those that no predicate hides from him.

        Nothing is asked of the servers, and nothing is kept: the predicate of each `ToolFilter` is called for each
        tool. One that raises hides that tool, and that is logged.

        Args:
            context: for whom. May be left out if no server has a predicate.

        Raises:
            ConfigError: a server has a predicate, and there is no context.
        """
        await trio.lowlevel.checkpoint()
        return permitted(self.tools, {name: record.config.tools for name, record in self._records.items()}, context)

    # --- life -------------------------------------------------------------------------------------------------------

    async def reconnect(self, *names: str, failed_only: bool = True) -> None:
        """Connect servers anew: close them, all first; then connect them, all at once, with fresh restart budgets.

        Requests that wait are kept and served by the new connections. Changes of what runs wait for each other.

        **Cancellation**: what has begun goes on.

        Args:
            names: which servers. None given: those in state ``backoff`` or ``failed``, or with ``failed_only=False``
                all. (One that is being connected has its attempt already.)
            failed_only: see ``names``. Healthy servers then notice nothing.

        Raises:
            ConnectFailed: a required server could not be connected (in configured order; others are notes). Of the
                servers that this call started none runs then; what ran before still does.
            ServerUnavailable: the group was left.
            KeyError: there is no server of that name.
        """
        for name in names:
            self[name]
        servers = tuple(server for name, server in self._supervised.items() if not names or name in names)
        await change(self._lifecycle, Reconnect(servers, failed_only and not names))

    async def wait_ready(self, *names: str) -> None:
        """Wait until these servers, or all of them, are ready at the same moment.

        Raises:
            ServerUnavailable: one of them has failed or was stopped, so that waiting would be in vain.
            KeyError: there is no server of that name.
        """
        refs = [self[name] for name in names] or list(self.configured)
        await trio.lowlevel.checkpoint()
        while waiting := [ref for ref in refs if ref.state not in ACTIVE]:
            for ref in waiting:
                await ref.wait_ready()

    def watch_events(self, *, size: int = EVENT_BUFFER) -> AbstractAsyncContextManager[EventStream]:
        """Subscribe to everything that happens: `StateChanged`, `ToolsChanged`, and the events of the kernel.

        ``async with`` yields the stream, which ends with the block, or with the group.

        Args:
            size: how many events may wait for the reader; one more drops the oldest (see ``EventStream.missed``).
        """
        return self._hub.subscribe(size=size)


def _log_collisions(before: CatalogSnapshot, now: CatalogSnapshot) -> None:
    """Log which tools have come to have names that are alike."""
    known = before.collisions
    for each in now.collisions:
        if each not in known:
            logger.warning("%s; if that is confusing, rename a server or hide a tool (ToolFilter)", each)


def _supervised(record: ServerRecord, group: SupervisorRef) -> Supervised:
    own = group.child(supervisor_id(record.config.name))
    assert isinstance(own, SupervisorRef)
    return Supervised(record, own)


def _tool_not_found(
    public_name: str, known: Sequence[str], *, silent: Sequence[str], hidden: Sequence[str]
) -> ToolNotFound:
    """The error for a name that no tool has.

    Args:
        public_name: what was asked for.
        known: the names there are.
        silent: the servers that show no tools now, and in which state they are.
        hidden: the servers of which tools wait for approval, and how many.
    """
    near = difflib.get_close_matches(public_name, known, n=3)
    hints = [f"did you mean {' or '.join(map(repr, near))}?" if near else f"{len(known)} tools are known"]
    if silent:
        hints.append(f"servers that do not serve now: {', '.join(silent)}")
    if hidden:
        hints.append(f"tools that are hidden until they are approved (see tool_changes): {', '.join(hidden)}")
    return ToolNotFound(f"there is no tool {public_name!r}; {'; '.join(hints)}", server="*")
