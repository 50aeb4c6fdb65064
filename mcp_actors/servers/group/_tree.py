"""The supervision tree of a group, its roster, and its limits.

`group_specs` says which actors a group has. The `Roster` lists its servers. `GroupLimits` limits the numbers of
servers, of processes, and of connects at a time.

::

    servers                       starts and stops children concurrently; ends if a server with on_failure="raise" fails
     ├─ servers:deadlines         enforces the deadlines of all requests
     ├─ servers:memory            with a catalog_store: writes listed tools for the next run
     ├─ time:supervisor           restarts the server by its policy, and may park the server when no restarts are left
     │   └─ time                  the server actor
     ├─ docs:supervisor           for a lazy server: dormant until its first use
     │   └─ docs                  with replicas=2: a pool, which restarts each replica independently
     │       ├─ docs:1            a server actor
     │       └─ docs:2
     ├─ ...
     ├─ servers:lifecycle         carries out start(), stop(), reconnect(), add(), replace(), remove(), reload()
     ├─ servers:watch             with watch=True: reloads configurations that change
     └─ servers:status            with TableSource(instance=…): writes the states of servers into the database

Owns: the roster; records of servers; refs of servers; pins of removed servers.
Writes: configurations, callbacks and pins in records; mailboxes of the lifecycle actor and the group's supervisor.
Calls: catalog, config, kernel, servers, servers.connection, servers.record, servers.ref, transports, _memory.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypedDict
from weakref import ref

import trio
from attrs import asdict, frozen

from ..._collapse import caused_by
from ..._errors import ActorStopped, ChildError, ConfigError, ServerUnavailable
from ..._misuse import is_whole
from ..._tasks import ClosingOrder, Upkeep
from ..._text import bad_option
from ...catalog._names import DEFAULT_NAMING
from ...config import effective_callbacks
from ...kernel import ChildSpec, DormantSupervisor, Pool, Supervisor, SupervisorOptions, SupervisorRef
from ...transports import Capacity, Certificates
from .._admission import fingerprint
from .._attempts import CallObserver
from .._deadlines import DeadlineActor, DeadlineTimer
from .._rules import seconds_to_retry
from .._watch import LAST_STATUS_WAIT, StatusActor
from ..connection import ServerActor
from ..record import PARKED, REPLICA, ServerRecord, server_of
from ..ref import Retire, ServerEntry, ServerRef, tell
from ._memory import FLUSH_WAIT, MemoryActor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mcp.types import Implementation

    from ...catalog import Pins
    from ...config import Callbacks, EffectiveCallbacks, ServerConfig
    from ...kernel import Actor, ActorRef, EventHub
    from .._sources import Merged
    from .._watch import StatusBoard
    from ..record import ConnectionRecord, Retirement
    from ._memory import CatalogMemory


GROUP: Final = "servers"
DEADLINES: Final = "servers:deadlines"
LIFECYCLE: Final = "servers:lifecycle"
MEMORY: Final = "servers:memory"
WATCH: Final = "servers:watch"
STATUS_ACTOR: Final = "servers:status"


def supervisor_id(server: str) -> str:
    """Return the name of a server's own supervisor. Server names have no colon."""
    return f"{server}:supervisor"


def group_specs(
    roster: Roster,
    closing: ClosingOrder,
    *,
    memory: CatalogMemory | None,
    lifecycle: Callable[[], Actor],
    others: Iterable[ChildSpec],
) -> list[ChildSpec]:
    """Return the first children of the group's supervisor; `others` look after the sources."""
    servers = [server_spec(record, closing) for record in roster.records.values()]
    deadlines = ChildSpec(DEADLINES, partial(DeadlineActor, roster.timer))
    # Unlimited, because changes that the group itself asks for cannot wait for room. Callers wait in any case.
    changes = ChildSpec(LIFECYCLE, lifecycle, mailbox_size=sys.maxsize)
    writers = []
    if memory is not None:  # temporary: if it crashes, the group continues without it
        writers = [ChildSpec(MEMORY, partial(MemoryActor, memory), restart="temporary", shutdown=2 * FLUSH_WAIT)]
    return [deadlines, *writers, *servers, changes, *others]


def server_spec(record: ServerRecord, closing: ClosingOrder) -> ChildSpec:
    # Weak references here and below: the kernel may keep a spec until the next garbage collection.
    return ChildSpec(supervisor_id(record.config.name), partial(_supervisor, ref(record), closing))


def status_spec(board: StatusBoard) -> ChildSpec:
    return ChildSpec(STATUS_ACTOR, partial(StatusActor, board), restart="temporary", shutdown=2 * LAST_STATUS_WAIT)


async def start_status(group: SupervisorRef, board: StatusBoard) -> None:
    if board.tables:
        with suppress(ChildError):
            await group.start_child(status_spec(board))


def _of(record: ref[ServerRecord]) -> ServerRecord:
    found = record()
    assert found is not None  # the roster keeps the record while its actors are started
    return found


def _actor(record: ref[ServerRecord], closing: ClosingOrder) -> ServerActor:
    return ServerActor(_of(record).config, _of(record).connection, closing)


def _supervisor(weak: ref[ServerRecord], closing: ClosingOrder) -> Supervisor | DormantSupervisor:
    """Return a server's own supervisor, which awaits only a strict start; `StartGate` waits for others.

    A lazy server gets a dormant supervisor: of a thousand configured servers, few are used.
    """
    record = _of(weak)
    config, actor, recovery = record.config, partial(_actor, weak, closing), _recovery(record)
    # Each replica has the restart budget of a single process.
    pool = partial(Pool, actor, config.replicas, separator=REPLICA, budget_per_member=True, **recovery)  # type: ignore[misc]  # a recovery has no options of supervisors only
    start = actor if config.replicas == 1 else pool
    server = ChildSpec(config.name, start, mailbox_size=config.mailbox_size, overflow=config.overflow)
    record.woken = record.woken or not record.life.dormant
    return Supervisor(server, **recovery) if record.woken else DormantSupervisor(server)


def _recovery(record: ServerRecord) -> SupervisorOptions:
    policy, parks = record.config.restarts, record.config.on_failure == "park"
    return {
        "max_restarts": policy.max_restarts,
        "window": policy.window,
        "reset_after": policy.reset_after,
        "backoff": policy.backoff,
        "on_limit": "park" if parks else "end",
        "park_retry": partial(seconds_to_retry, policy) if parks else None,
        "strict": record.strict,
        "await_start": record.strict,
    }


# --- The roster of a group: which servers it has, in which order ------------------------------------------------------

# Ownership
# ---------
# `open_servers` fills the roster. Then the lifecycle actor writes it, in steps without a checkpoint; `GroupEnd` sets
# `closing` and `signal`. All readers ask each time and keep no copy. The mappings are replaced, never changed, so loops
# are not disturbed by a change, and other threads may read them, as the asyncio bridge does.
#
# A server is in `records` while it has actors, and in `members` while the group shows it. A required server that is
# being added is only in `records`: as in `open_servers`, it is not shown before it is connected.
#
# A server that is configured anew keeps its record, ref and mailbox (`ServerRecord.configure`); a server that is
# removed and added again gets new ones. The pins of its accepted tools stay for the rest of the run (`_removed`), or a
# blocked list would be trusted as soon as an entry is disabled and enabled again.


MAX_REMOVED: Final = 1000
"""Removed servers whose accepted tools are kept. A hundred tools take about 25 KB."""


class RecordOptions(TypedDict):
    required: bool
    callbacks: EffectiveCallbacks
    client_info: Implementation | None


@frozen(eq=False)
class Member:
    entry: ServerEntry
    ref: ServerRef

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def record(self) -> ServerRecord:
        return self.entry.record


class Roster:
    """The servers of a group.

    Attributes:
        records: the records of all servers that have actors, by name.
        members: the servers that the group shows, by name, in configured order.
        opened: set when the group shows its first servers.
        closing: True once the block of the group has returned, or a signal has begun the end.
        signal: the name of the signal that ends the group, or None.
        not_loaded: the errors of entries that could not be loaded, by the name of the server or the path of the file. A
            server may run under that name, with its earlier configuration.
        added: the names of the servers from `ServerGroup.add`, which the sources do not own.
        homes: the source of each server in the sources, even if disabled, by name.
        upkeep: keeps the tasks that the group runs for itself.
    """

    def __init__(
        self,
        hub: EventHub,
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
        self.signal: str | None = None
        self.strict = strict
        self.limits = limits
        self.naming = naming
        self._callbacks = callbacks
        self._client_info = client_info
        self.timer: DeadlineTimer = DeadlineTimer()
        self._new_record = partial(
            ServerRecord,
            emit=hub.emit,
            capacity=Capacity(starting=limits.max_starting, processes=limits.max_processes or math.inf),
            certificates=Certificates(),
            timer=self.timer,
            naming=naming,
        )
        self._call_observers = tuple(each for each in hub.observers if isinstance(each, CallObserver))

    def member(self, name: str) -> Member:
        try:
            return self.members[name]
        except KeyError:
            if name in self.not_loaded:
                raise KeyError(f"server {name!r} could not be loaded: {self.not_loaded[name]}") from None
            known = ", ".join(self.members) or "none"
            problem = "not found in this group"
            if name in self.homes:
                problem = f"is disabled in {self.homes[name]}, or was removed"
            raise KeyError(f"server {name!r} {problem}; its servers are: {known}") from None

    def check(self, configs: Iterable[ServerConfig]) -> None:
        """Check the servers that a changed group would have.

        Raises:
            ConfigError: too many servers, or one that does not fit the callbacks of the group.
        """
        self.limits.check_number(configs := tuple(configs))
        for config in configs:
            self._options(config)

    def enter(self, *configs: ServerConfig) -> list[ServerRecord]:
        records = [self._new_record(config, **self._options(config)) for config in configs]
        for record in records:
            record.observe_calls(self._call_observers)
            record.life.end_of_group = lambda: self.end
        self.records = MappingProxyType({**self.records, **{record.config.name: record for record in records}})
        return records

    @property
    def end(self) -> ServerUnavailable | None:
        """Why the group ends or has ended; None while it is open, and if its block has exited by itself."""
        if self.signal is not None:
            message = f"{self.signal} was received, which ends the program (stop_on)"
            return ServerUnavailable(message, server="*", state="stopping", outcome="not_sent")
        return ended_by(self.records.values())

    def record_of(self, actor: str) -> ServerRecord | None:
        return self.records.get(server_of(actor))

    def show(self, supervisor: SupervisorRef, *records: ServerRecord) -> None:
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
        record.configure(config, **self._options(config))

    def recall(self, record: ServerRecord) -> None:
        """Judge the tools of a returning server by the tools accepted before, unless a store has supplied pins."""
        admission, pins = record.catalog.admission, self._removed.get(_key(record.config))
        if admission.accepted is None and pins is not None:
            admission.judge_by(pins)

    def drop(self, name: str) -> None:
        """Forget a server whose actors have stopped, except for the accepted tools."""
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
        """Put the servers into this order; servers without a name here come last."""
        order = dict.fromkeys((*(name for name in names if name in self.members), *self.members))
        self.members = MappingProxyType({name: self.members[name] for name in order})

    def note_merged(self, merged: Merged) -> None:
        kept = {name: home for name, home in self.homes.items() if name in merged.failed}  # their servers continue
        self.not_loaded, self.homes = MappingProxyType(dict(merged.failed)), MappingProxyType({**kept, **merged.homes})

    def _options(self, config: ServerConfig) -> RecordOptions:
        return {
            "required": config.connect == "eager" and (self.strict or config.required),
            "callbacks": effective_callbacks(config.callbacks, self._callbacks, server=config.name),
            "client_info": config.client_info or self._client_info,
        }


def has_ended_group(record: ServerRecord) -> bool:
    """Return True if a server has failed for good, which ends its group (``on_failure="raise"``)."""
    return record.config.on_failure == "raise" and record.life.state in PARKED


def ended_by(records: Iterable[ServerRecord]) -> ServerUnavailable | None:
    """Return the error for the server that ended its group; None without such a server."""
    record = next(filter(has_ended_group, records), None)
    if record is None:
        return None
    name = record.config.name
    failure = ServerUnavailable(
        f"server {name!r} has failed and closed its group (on_failure='raise'): {record.life.last_error}; fix that, or "
        "set on_failure='park' to keep the other servers",
        server=name,
        state=record.life.state,
        last_error=record.life.last_error,
        outcome="not_sent",
    )
    return caused_by(failure, record.life.last_error)


def _key(config: ServerConfig) -> str:
    return fingerprint(config) or f"in this process: {config.name}"


def _retire(lifecycle: ActorRef, server: ServerEntry, why: Retirement, connection: ConnectionRecord) -> None:
    message = Retire(server, why, connection, connection.life.incarnation, connection.life.wanted.generation)
    with suppress(ActorStopped):
        tell(lifecycle, message)


# --- Limit the servers, concurrent connects and processes of a group --------------------------------------------------


@frozen
class GroupLimits:
    """The limits of a group, as for `open_servers`.

    Raises:
        ConfigError: a limit is not a whole number.
    """

    max_servers: int = 50  # more than people list in a file, and less than a loop adds by mistake
    max_starting: int = 16  # a cold start unpacks a package, and more of them at a time only take longer
    max_processes: int | None = None

    def __attrs_post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not is_whole(value, 1) and (name, value) != ("max_processes", None):
                raise bad_option(name, value, f"is not valid; pass a whole number of 1 or more, like {name}=16")

    def check_number(self, configs: Iterable[ServerConfig]) -> None:
        servers = sum(config.replicas for config in configs)
        if servers > self.max_servers:
            raise ConfigError(
                f"{servers} servers are too many for this group (max_servers={self.max_servers}, each replica counts); "
                f"disable or remove some, or open it with max_servers={servers}",
                source="open_servers",
                path="max_servers",
            )
