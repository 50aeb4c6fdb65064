"""Facts about a group, for programs to read in any thread.

`GroupFacts` is the base of `ServerGroup` and of the views in ``bridge`` and ``sync``. Each call by a public name needs
a snapshot of all tools, so the last snapshot is kept until tools or states change.

Owns: the last snapshot of all tools.
Writes: the log.
Calls: catalog, config, servers, servers.record, servers.ref, _tree.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from ..._collapse import caused_by
from ..._errors import ServerUnavailable, ToolNotFound
from ..._foreign import Log
from ..._misuse import explained_methods, nearest
from ..._pickling import Frozen, Handle
from ..._text import problem_of
from ...catalog import CatalogSnapshot, CatalogTool, Listing
from ...config import permitted
from .._sources import Sources, SourceStatus
from ..record import ACTIVE, CONNECTED, ServerStatus
from ..ref import ServerFacts
from ._tree import Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...catalog import CatalogEntry
    from ...config import ToolContext
    from ..record import ServerState
    from ..ref import ServerRef
    from ._tree import Member

logger = Log("mcp_actors.servers")

AnyServer = TypeVar("AnyServer", bound=ServerFacts)


@frozen(eq=False)
class _Shown:
    """A snapshot and the inputs it was computed from.

    Several threads may compute the snapshot at once (see ``bridge``), so one assignment replaces snapshot and inputs.
    The next reader compares the inputs, and notices a stale snapshot.
    """

    tools: list[tuple[CatalogEntry, ...]]
    marks: list[tuple[str, bool, bool]]
    snapshot: CatalogSnapshot


class Shelf:
    """Keeps the last snapshot of the tools for a group and its views."""

    def __init__(self, naming: str) -> None:
        self.shown: _Shown = _Shown([], [], CatalogSnapshot.from_listings((), naming=naming))


@explained_methods
class GroupFacts(Handle, Mapping[str, AnyServer]):
    """The methods of a group that only read, each time from the servers' current state."""

    __slots__ = ()

    _roster: Roster
    _sources: Sources
    _shelf: Shelf

    @abstractmethod
    def _server(self, ref: ServerRef, /) -> AnyServer:
        """Return this group's kind of reference to a server."""

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {member.record.life.state}" for name, member in self._members.items())
        return f"<ServerGroup {states or 'empty'}>"

    @property
    def _members(self) -> Mapping[str, Member]:
        return self._roster.members

    # --- the mapping ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> AnyServer:
        """Return the server with that name. A `KeyError` lists the known names."""
        return self._server(self._roster.member(name).ref)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def configured(self) -> tuple[AnyServer, ...]:
        """All enabled servers."""
        return tuple(self._server(member.ref) for member in self._members.values())

    @property
    def connected(self) -> tuple[AnyServer, ...]:
        """The servers with an open connection: ``ready``, ``degraded`` and ``unhealthy``."""
        return self._in(CONNECTED)

    @property
    def active(self) -> tuple[AnyServer, ...]:
        """The servers that serve requests: ``ready`` and ``degraded``. A server that dies leaves this view at once."""
        return self._in(ACTIVE)

    @property
    def failed(self) -> tuple[AnyServer, ...]:
        """The servers with an error of their own in `errors`.

        Includes servers that are reconnecting after a failure, and ``degraded`` ones (in `active` too).
        """
        return tuple(self._server(member.ref) for member in self._members.values() if member.record.life.troubled)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The current error of each server that has one, by name.

        An entry disappears when its server becomes ready or is stopped. Errors of the group come first, until fixed (a
        server's own error hides the group's under the same name):

        - unusable entries of the configuration: by the name of the server, also while it runs with the earlier
          configuration, or by the path of an unreadable file. With ``watch=True`` also the error for which a whole new
          configuration is refused.
        - failed tasks of the group: following a source (under its name), writing states into a table, and writing to
          the ``catalog_store``.
        """
        lives = {name: member.record.life for name, member in self._members.items()}
        errors = {name: error for name, life in lives.items() if (error := life.error) is not None}
        refused = self._sources.refused
        refusal = {} if refused is None else {refused.source or "open_servers": refused}
        return Frozen({**self._roster.not_loaded, **refusal, **self._roster.upkeep.errors, **errors})

    def _in(self, states: frozenset[ServerState]) -> tuple[AnyServer, ...]:
        return tuple(
            self._server(member.ref) for member in self._members.values() if member.record.life.state in states
        )

    def status(self) -> Mapping[str, ServerStatus]:
        """Return a snapshot of every server, by name."""
        return Frozen({name: member.ref.statistics() for name, member in self._members.items()})

    @property
    def sources(self) -> tuple[SourceStatus, ...]:
        """A snapshot of each file, directory and table that servers come from."""
        return self._sources.statuses

    # --- tools ------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> CatalogSnapshot:
        """All tools, under their public names.

        Tools of a server that is reconnecting stay listed, marked as not ``available``. Tools of a failed or stopped
        server are not listed. With a ``catalog_store``, a server that has not connected yet shows the tools of an
        earlier run, also marked as ``deferred``. A snapshot is immutable; a later snapshot has a larger generation.
        """
        listed = [member.record for member in self._members.values() if member.record.life.listed]
        tools = [record.catalog.shown for record in listed]
        marks = [(record.config.name, record.life.state in ACTIVE, record.catalog.deferred) for record in listed]
        # By identity: a comparison by value is slow, and every call comes through here.
        before = self._shelf.shown
        if marks == before.marks and all(map(is_, tools, before.tools)):
            return before.snapshot
        listings = (
            Listing(name, shown, available, deferred)
            for shown, (name, available, deferred) in zip(tools, marks, strict=True)
        )
        snapshot = before.snapshot.updated(listings)
        _log_collisions(before.snapshot, snapshot)
        self._shelf.shown = _Shown(tools, marks, snapshot)
        return snapshot

    def find_tool(self, public_name: str) -> CatalogTool:
        """Return the tool with a public name.

        Raises:
            ToolNotFound: no tool has the name; the message lists similar names, and servers that do not serve now.
            ServerUnavailable: no tool has the name because this group ends or has ended.
        """
        try:
            return self.tools.find(public_name)
        except KeyError:
            if self._roster.closing or self._roster.end is not None:
                raise closed(self._roster, f"tool {public_name!r} cannot be called") from self._roster.end
            silent = {ref.name: ref.state for ref in self.configured if ref.state not in ACTIVE}
            hidden = [
                f"{name} ({number})"
                for name, member in self._members.items()
                if (number := member.record.catalog.admission.waiting)
            ]
            naming = self._roster.naming
            raise tool_not_found(public_name, self.tools, silent=silent, hidden=hidden, naming=naming) from None

    def _schema_of(self, public_name: str) -> Mapping[str, Any] | None:
        return self.tools._schema_of(public_name)

    async def _permitted(self, context: ToolContext | None) -> tuple[CatalogTool, ...]:
        filters = {name: member.record.config.tool_filter for name, member in self._members.items()}
        return await permitted(self.tools, filters, context)


# --- Errors of a group ------------------------------------------------------------------------------------------------


def _log_collisions(before: CatalogSnapshot, now: CatalogSnapshot) -> None:
    if now.collisions is before.collisions:
        return
    known = set(before.collisions)
    for each in now.collisions:
        if each not in known:
            logger.warning("%s; to avoid the collision, rename a server or hide a tool (ToolFilter)", each)


def closed(roster: Roster, effect: str = "this group of servers cannot be changed") -> ServerUnavailable:
    """Return the error for the use of a group that ends or has ended."""
    end = roster.end
    why = "its open_servers() block has exited; open it again" if end is None else problem_of(end)
    message = f"{effect} because {why}"
    return caused_by(ServerUnavailable(message, server="*", state="stopped", outcome="not_sent"), end)


def tool_not_found(
    public_name: str, known: CatalogSnapshot, *, silent: Mapping[str, str], hidden: Sequence[str], naming: str
) -> ToolNotFound:
    """Return the error for an unknown public name.

    Servers in `silent` do not serve now; servers in `hidden` have tools that wait for approval.
    """
    hints = []
    # No hint if the name belongs to a server that does not serve now: a similar tool of another server does not help.
    if not any(_names_tool_of(server, public_name, naming) for server in silent):
        # Perhaps the server's name, or the tool's own name, as `ServerRef` takes it.
        near = [tool.public_name for tool in known if public_name in (tool.name, tool.server)]
        near = near[:3] or nearest(public_name, (tool.public_name for tool in known), 3)
        hints.append(f"did you mean {' or '.join(map(repr, near))}?" if near else f"{len(known)} tools are known")
    if silent:
        shown = ", ".join(f"{server} ({state})" for server, state in silent.items())
        hints.append(f"servers not serving now: {shown}")
    if (unused := next((server for server, state in silent.items() if state == "pending"), None)) is not None:
        hints.append(f"a lazy one is started by its first request, such as await servers[{unused!r}].call(...)")
    if hidden:
        hints.append(f"servers with tools that wait for approval (see tool_changes): {', '.join(hidden)}")
    return ToolNotFound(f"tool {public_name!r} not found; {'; '.join(hints)}", server="*")


def _names_tool_of(server: str, public_name: str, naming: str) -> bool:
    """Return True if a public name has the form of a server's public names."""
    before, _, after = naming.format(server=server, tool="\0").partition("\0")
    return server in before + after and public_name.startswith(before) and public_name.endswith(after)
