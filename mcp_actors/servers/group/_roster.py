"""The roster of a group: which servers it has, in which order.

Ownership
---------
The roster is the one place that says which servers there are. `open_servers` fills it before the first server starts;
from then on only the lifecycle actor writes it, in steps without a checkpoint. Everybody else (the views of the group,
the observers, the translation of failures, the closing order) asks it each time and keeps nothing that depends on it.

Its mappings are replaced, never changed. So a loop over one of them is not disturbed by a change, and other threads may
read them, as the asyncio bridge does.

A server is in `records` while it has actors, and in `members` while the group shows it. The difference is a required
server that is being added: as in `open_servers`, it is not shown before it is connected.

A server that is configured anew keeps its record, its ref and its mailbox (`ServerRecord.configure`); one that is
removed and added again has new ones. Only the pins of its accepted tools stay for the rest of the run (`_removed`):
otherwise a list that is blocked would be trusted as soon as an entry is disabled and enabled again.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypedDict

import trio
from attrs import frozen

from ..._errors import ActorStopped
from ..._tasks import Upkeep
from ...catalog._names import DEFAULT_NAMING
from ...config import effective_callbacks
from ...kernel import SupervisorRef
from ...transports import Certificates
from ..policy import DeadlineTimer
from ..record import ServerRecord, server_of
from ..ref import Retire, ServerEntry, ServerRef, tell
from ..tools import fingerprint
from ._tree import LIFECYCLE, supervisor_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mcp.types import Implementation

    from ..._errors import ConfigError
    from ...catalog import Pins
    from ...config import Callbacks, EffectiveCallbacks, ServerConfig
    from ...kernel import ActorRef, Event
    from ..record import Retirement
    from ..sources import Given
    from ._limits import GroupLimits

MAX_REMOVED: Final = 1000
"""Removed servers whose accepted tools are kept. A hundred tools take about 25 KB."""


class Options(TypedDict):
    """The options of a server that may come from its group, as keyword arguments of `ServerRecord`."""

    required: bool
    callbacks: EffectiveCallbacks
    client_info: Implementation | None


@frozen(eq=False)
class Member:
    """A server that the group shows."""

    entry: ServerEntry
    ref: ServerRef

    @property
    def name(self) -> str:
        """The server's name."""
        return self.entry.name

    @property
    def record(self) -> ServerRecord:
        """The part of it that outlives connections."""
        return self.entry.record


class Roster:
    """The servers of a group.

    Attributes:
        records: the records of all servers that have actors, by name.
        members: the servers that the group shows, by name, in configured order.
        opened: set when the group shows its first servers. They are not changed before that.
        closing: True once the block of the group has ended.
        naming: the template of the tools' public names.
        timer: enforces the deadlines of all requests.
        not_loaded: the errors of the entries that could not be loaded, by the name of the server or the path of the
            file. A server may run under that name, as it was configured before.
        added: the names of the servers that `ServerGroup.add` has added, which the sources do not own.
        homes: the name of the source of each other server.
        upkeep: keeps the tasks that the group runs for itself.

    Args:
        emit: emits an event.
        strict: True makes every server required.
        callbacks: the callbacks of the group.
        client_info: how the client introduces itself to the servers that have no ``client_info`` of their own.
        limits: the limits of the group.
        naming: the template, which has been checked.
    """

    def __init__(
        self,
        emit: Callable[[Event], None],
        *,
        strict: bool,
        callbacks: Callbacks | None,
        client_info: Implementation | None = None,
        limits: GroupLimits,
        naming: str = DEFAULT_NAMING,
    ) -> None:
        self.records: Mapping[str, ServerRecord] = MappingProxyType({})
        self.members: Mapping[str, Member] = MappingProxyType({})
        self.opened: trio.Event = trio.Event()
        self.not_loaded: Mapping[str, ConfigError] = MappingProxyType({})
        self.added: frozenset[str] = frozenset()
        self.homes: Mapping[str, str] = MappingProxyType({})
        self._removed: dict[str, Pins] = {}
        self.upkeep: Upkeep = Upkeep()
        self.closing = False
        self.strict = strict
        self.limits = limits
        self.naming = naming
        self._callbacks = callbacks
        self._client_info = client_info
        self.timer: DeadlineTimer = DeadlineTimer()
        self._new_record = partial(
            ServerRecord,
            emit=emit,
            capacity=limits.capacity(),
            certificates=Certificates(),
            timer=self.timer,
            naming=naming,
        )

    def member(self, name: str) -> Member:
        """Return the server with that name. A `KeyError` lists the known names."""
        try:
            return self.members[name]
        except KeyError:
            if name in self.not_loaded:
                raise KeyError(f"server {name!r} could not be loaded: {self.not_loaded[name]}") from None
            known = ", ".join(self.members) or "none"
            raise KeyError(f"server {name!r} not found in this group; its servers are: {known}") from None

    def enter(self, *configs: ServerConfig) -> list[ServerRecord]:
        """Make the records of servers that are about to be started."""
        records = [self._new_record(config, **self._options(config)) for config in configs]
        self.records = MappingProxyType({**self.records, **{record.config.name: record for record in records}})
        return records

    def record_of(self, actor: str) -> ServerRecord | None:
        """Return the record of the server that an actor runs, or a replica of it; None for any other actor."""
        return self.records.get(server_of(actor))

    def show(self, supervisor: SupervisorRef, *records: ServerRecord) -> None:
        """Show servers that the supervisor of the group has started, after the others."""
        lifecycle = supervisor.child(LIFECYCLE)
        members = dict(self.members)
        for record in records:
            own = supervisor.child(supervisor_id(record.config.name), SupervisorRef)
            entry = ServerEntry(record, own, supervisor)
            record.on_retire = partial(_retire, lifecycle, entry)
            members[entry.name] = Member(entry, ServerRef(entry, lifecycle))
        self.members = MappingProxyType(members)
        self.opened.set()

    def configure(self, record: ServerRecord, config: ServerConfig) -> None:
        """Configure a server anew, while it does not run."""
        record.configure(config, **self._options(config))

    def recall(self, record: ServerRecord) -> None:
        """Judge the tools of a server that has come back by those that were accepted, unless a store knows better."""
        admission, pins = record.catalog.admission, self._removed.get(_key(record.config))
        if admission.accepted is None and pins is not None:
            admission.judge_by(pins)

    def drop(self, name: str) -> None:
        """Forget a server whose actors have stopped, except for the tools that were accepted."""
        record = self.records[name]
        if (accepted := record.catalog.admission.accepted) is not None:
            key = _key(record.config)
            self._removed.pop(key, None)
            self._removed[key] = accepted
            if len(self._removed) > MAX_REMOVED:
                del self._removed[next(iter(self._removed))]
        self.added -= {name}
        self.members = MappingProxyType({other: member for other, member in self.members.items() if other != name})
        self.records = MappingProxyType({other: record for other, record in self.records.items() if other != name})

    def arrange(self, names: Iterable[str]) -> None:
        """Put the servers into this order; those without a name here come last."""
        order = dict.fromkeys((*(name for name in names if name in self.members), *self.members))
        self.members = MappingProxyType({name: self.members[name] for name in order})

    def note_given(self, given: Given) -> None:
        """Note where the servers of a configuration come from, and the errors of its entries."""
        self.not_loaded, self.homes = MappingProxyType(dict(given.failed)), MappingProxyType(dict(given.homes))

    def _options(self, config: ServerConfig) -> Options:
        """Return the options of a server that may come from its group."""
        return {
            "required": config.connect == "eager" and (self.strict or config.required),
            "callbacks": effective_callbacks(config.callbacks, self._callbacks),
            "client_info": config.client_info or self._client_info,
        }


def _key(config: ServerConfig) -> str:
    """Return what identifies a server in this run: as in a store, and for one in this process its name."""
    return fingerprint(config) or f"in this process: {config.name}"


def _retire(lifecycle: ActorRef, server: ServerEntry, why: Retirement, record: ServerRecord) -> None:
    """Have a server disconnected that is idle, or one connection of it that is old."""
    message = Retire(server, why, record, record.life.incarnation, record.life.wanted.generation)
    with suppress(ActorStopped):
        tell(lifecycle, message)
