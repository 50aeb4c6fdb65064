"""A group of servers: one door, one mapping, and views that never show what is not so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio

from .._errors import ConfigError
from ..catalog import CatalogSnapshot, Listing, public_name
from ..catalog._names import DEFAULT_NAMING
from ..config import ServerConfig, check_unique_names
from ..kernel import EventHub, open_supervisor
from ..kernel._events import EVENT_BUFFER
from . import _state
from ._failures import tool_not_found, translated
from ._lifecycle import Reconnect, change
from ._record import ServerRecord
from ._ref import ServerRef, make_ref
from ._tree import GROUP, LIFECYCLE, group_specs, supervisor_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from mcp.shared.dispatcher import ProgressFnT
    from mcp.types import CallToolResult

    from ..catalog import CatalogTool
    from ..kernel import Event, EventStream, Observer, SupervisorRef
    from ._state import ServerState
    from ._status import ServerStatus

__all__ = ["ServerGroup", "open_servers"]


class ServerGroup(Mapping[str, ServerRef]):
    """The servers of an ``open_servers`` block: a mapping of names to `ServerRef`, in configured order.

    All views are made from one state per server at the moment of asking. All tuples are in configured order.
    """

    def __init__(
        self, records: Mapping[str, ServerRecord], supervisor: SupervisorRef, hub: EventHub, *, naming: str
    ) -> None:
        self._records = records
        self._hub = hub
        self._naming = naming
        self._lifecycle = supervisor.child(LIFECYCLE)
        self._refs = {
            name: make_ref(record, supervisor.child(supervisor_id(name)), self._lifecycle)
            for name, record in records.items()
        }
        self._snapshot = CatalogSnapshot()
        self._snapshot_of: tuple[object, ...] = ()

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {record.state}" for name, record in self._records.items())
        return f"<ServerGroup {states or 'empty'}>"

    # --- the mapping ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> ServerRef:
        """The server of that name. A `KeyError` lists the names there are."""
        try:
            return self._refs[name]
        except KeyError:
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
        return self._in(_state.CONNECTED)

    @property
    def active(self) -> tuple[ServerRef, ...]:
        """The servers that serve. A server that dies leaves this view at once."""
        return self._in(_state.ACTIVE)

    @property
    def failed(self) -> tuple[ServerRef, ...]:
        """The servers that are down without anybody's wish: about to be tried again, or given up."""
        return self._in(_state.FAILED)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """What is wrong with which server, by name. An entry goes when its server is ready."""
        return MappingProxyType({name: record.error for name, record in self._records.items() if record.error})

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
        has failed or was stopped are not listed. The snapshot never changes; a later one has a larger generation.
        """
        listed = [record for record in self._records.values() if record.state in _state.LISTED or record.returning]
        # Comparing tuples compares identities first, so this is cheap while nothing has changed.
        now = tuple((record.config.name, record.tools, record.state in _state.ACTIVE) for record in listed)
        if now != self._snapshot_of:
            self._snapshot_of = now
            self._snapshot = CatalogSnapshot.from_listings(
                [Listing(name, tools, available) for name, tools, available in now],
                generation=self._snapshot.generation + 1,
                naming=self._naming,
            )
        return self._snapshot

    def find_tool(self, public_name: str) -> CatalogTool:
        """The tool of a public name.

        Raises:
            ToolNotFound: there is none; the message names the nearest ones, and the servers that show no tools now.
        """
        try:
            return self.tools.find(public_name)
        except KeyError:
            silent = [f"{ref.name} ({ref.state})" for ref in self.configured if ref.state not in _state.ACTIVE]
            raise tool_not_found(public_name, [tool.public_name for tool in self.tools], silent) from None

    async def call_tool(
        self,
        public_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool by its public name; otherwise as `ServerRef.call_tool`.

        Raises:
            ToolNotFound: there is no such tool now.
        """
        tool = self.find_tool(public_name)
        return await self._refs[tool.server].call_tool(tool.name, arguments, progress=progress, meta=meta)

    # --- life -------------------------------------------------------------------------------------------------------

    async def reconnect(self, *names: str, failed_only: bool = True) -> None:
        """Connect servers anew: close them, all first; then connect them, all at once, with fresh restart budgets.

        Requests that wait are kept and served by the new connections. Changes of what runs wait for each other.

        **Cancellation**: what has begun goes on.

        Args:
            names: which servers. None given: those in the view `failed`, or with ``failed_only=False`` all.
            failed_only: see ``names``. Healthy servers then notice nothing.

        Raises:
            ConnectFailed: a required server could not be connected (in configured order; others are notes). Of the
                servers that this call started none runs then; what ran before still does.
            KeyError: there is no server of that name.
        """
        for name in names:
            self[name]
        servers = tuple(ref.supervised for ref in self.configured if not names or ref.name in names)
        await change(self._lifecycle, Reconnect(servers, failed_only and not names))

    async def wait_ready(self, *names: str) -> None:
        """Wait until these servers, or all of them, are ready at the same moment.

        Raises:
            ServerUnavailable: one of them has failed or was stopped, so that waiting would be in vain.
            KeyError: there is no server of that name.
        """
        refs = [self[name] for name in names] or list(self.configured)
        await trio.lowlevel.checkpoint()
        while waiting := [ref for ref in refs if ref.state not in _state.ACTIVE]:
            for ref in waiting:
                await ref.wait_serving()

    def watch_events(self, *, size: int = EVENT_BUFFER) -> AbstractAsyncContextManager[EventStream]:
        """Subscribe to everything that happens: `StateChanged`, `ToolsChanged`, and the events of the kernel.

        ``async with`` yields the stream, which ends with the block, or with the group.

        Args:
            size: how many events may wait for the reader; one more drops the oldest (see ``EventStream.missed``).
        """
        return self._hub.subscribe(size=size)


@asynccontextmanager
async def open_servers(
    *configs: ServerConfig,
    strict: bool = False,
    naming: str = DEFAULT_NAMING,
    observers: Iterable[Observer] = (),
) -> AsyncIterator[ServerGroup]:
    """Connect to servers, side by side, around a block of code; disconnect from all of them after it.

    The block begins when every first connect has succeeded or failed. What failed is recorded (``errors``) and tried
    again in the background, unless it is required. The block ends first, then the servers are disconnected, all at
    the same time, each within its ``stop_timeout``; nothing of them is left.

    **Cancellation**: while the servers connect, nothing is shielded: a deadline or a cancellation around this call
    fires at once, and what was begun is cleaned up within the ``stop_timeout``. Afterwards a cancellation reaches the
    block, and the servers are disconnected as at a normal end.

    Args:
        configs: the servers, in the order in which views, tools and errors show them. Disabled ones are left out.
        strict: whether all servers are required for the start.
        naming: the public names of tools, with ``{server}`` and ``{tool}``.
        observers: called synchronously with every event.

    Yields:
        The group: a mapping of names to `ServerRef`, with views, tools and events.

    Raises:
        ConnectFailed: a required server could not be connected: the first in configured order, the others are notes.
            Everything that was started is closed.
        ServerUnavailable: while the block ran, a server with ``on_failure="raise"`` failed for good. The block was
            cancelled.
        ConfigError: what is configured cannot work; nothing was started.
    """
    check_configs(configs, naming)
    hub = EventHub(tuple(observers))
    records = {
        config.name: ServerRecord(config, hub.emit, required=strict or config.required)
        for config in configs
        if config.enabled
    }

    def follow(event: Event) -> None:
        record = records.get(event.actor)
        change = record.follow(event) if record is not None else None
        hub.emit(event)
        if change is not None:
            hub.emit(change)

    try:
        with translated(records.values()) as phase:
            async with open_supervisor(
                *group_specs(records.values()),
                name=GROUP,
                max_restarts=0,
                start_order="parallel",
                stop_order="concurrent",
                observers=(follow,),
            ) as supervisor:
                phase.started = True
                yield ServerGroup(records, supervisor, hub, naming=naming)
    finally:
        hub.close()
        for record in records.values():
            record.leave()


def check_configs(configs: tuple[ServerConfig, ...], naming: str) -> None:
    """Refuse what cannot work before anything is started.

    Raises:
        ConfigError: see its message.
    """
    for config in configs:
        if not isinstance(config, ServerConfig):
            raise ConfigError(
                f"open_servers takes ServerConfig objects, not {type(config).__name__}; "
                'write ServerConfig("name", Stdio("command"))',
                source="open_servers",
            )
    check_unique_names(configs)
    public_name("server", "tool", naming)
