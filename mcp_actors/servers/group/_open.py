"""Open a group of servers around a block of code.

Signal handling begins before any configuration is read, and ends last. The block begins once each eager server's first
connect has ended or is overdue (`StartGate`). After the block, actors are stopped before records are released.

Owns: the roster; configuration sources; the event hub; the catalogue memory; the supervision tree; background tasks.
Writes: states of servers; the mailbox of the lifecycle actor; filters of loggers; signal handlers of the process; the
log.
Calls: catalog, config, kernel, servers, servers.record, transports, _group, _lifecycle, _loop, _memory, _tree.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakKeyDictionary

import trio
from attrs import define, field, frozen
from mcp.types import Implementation

from ..._errors import ConfigError, ServerError
from ..._foreign import Log
from ..._misuse import check_flavor, is_number, opens_block, type_of
from ..._tasks import ClosingOrder, Signals, name_of, open_background
from ..._text import bad_option, problem_of, some_of
from ...catalog import check_naming
from ...catalog._pins import CatalogStore, default_directory
from ...config import Callbacks
from ...kernel import ChildSpec, EventHub, Observer, open_supervisor
from ...transports import install_filters
from .._sources import Configured, Sources, anchored
from .._watch import StatusBoard, WatchActor
from ..record import CONNECTED, FAILED, PARKED, ReplicaChanged, StateChanged
from ._group import ServerGroup, translate
from ._lifecycle import LifecycleActor, Reload, in_words
from ._loop import GroupEnd
from ._memory import CatalogMemory
from ._tree import (
    GROUP,
    LIFECYCLE,
    WATCH,
    GroupLimits,
    Roster,
    group_specs,
    has_ended_group,
    status_spec,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ...kernel import Event, SupervisorRef
    from .._sources import Merged
    from ..record import ConnectionRecord, ServerRecord


logger = Log("mcp_actors.servers")


@opens_block
async def open_servers(  # noqa: PLR0913  # each has a default, and most programs set none
    *configs: Configured,
    strict: bool = False,
    watch: bool = False,
    callbacks: Callbacks | None = None,
    catalog_store: str | os.PathLike[str] | bool | None = None,
    drain_timeout: float = 30.0,
    stop_on: int | Iterable[int] = (),
    observers: Iterable[Observer] = (),
    env_file: str | os.PathLike[str] | None = None,
    start_gate: float | None = None,
    naming: str = "mcp__{server}__{tool}",
    client_info: Implementation | None = None,
    max_servers: int = 50,
    max_starting: int = 16,
    max_processes: int | None = None,
    reload_on: int | Iterable[int] = (),
) -> AsyncIterator[ServerGroup]:
    """Connect to servers concurrently, run a block of code, then disconnect from all of them.

    The block begins when every first connect has succeeded or failed (but see ``start_gate``). An optional server that
    fails is recorded in ``errors`` and retried in the background; after ``connect_timeout`` without an answer, it keeps
    connecting. When the block has ended, new requests are refused, and accepted requests may be finished (see
    ``drain_timeout``). Then all servers are disconnected concurrently, each within its ``stop_timeout``. No process,
    task or socket remains.

    **Cancellation**: nothing is shielded while the servers connect: a deadline or cancellation around this call takes
    effect at once, and every connection is closed within its ``stop_timeout``. Later a cancellation reaches the block,
    or ends the wait for accepted requests, and the servers are disconnected.

    Args:
        configs: the servers, in the order of views, tools and errors; disabled servers are left out. A path to a
            configuration file, a mapping of the same form, a `Source` and a result of `load_config` contribute all
            their servers; an unusable entry is logged and listed in ``errors``. Of several servers with one name, a
            configuration in code wins over a table, a table over a directory, a directory over a file, and among equals
            the first; the others are logged.
        strict: True makes every server required.
        watch: True follows the configuration: files and directories are checked once a second, tables after their
            ``refresh_interval``, and changes are applied as by `ServerGroup.reload`. An unreadable source or invalid
            entry leaves its servers unchanged, and is logged and emitted as a `ConfigRejected` event, once for each
            content. Default False.
        callbacks: functions that answer the servers' questions and receive their notifications. A server's own
            ``ServerConfig.callbacks`` take precedence, field by field.
        catalog_store: the directory that keeps the listed tools for the next run, or True for the platform's cache
            directory. A server that is not connected yet, also a lazy one, shows its remembered tools as ``deferred``.
            None (default) or False remembers nothing.
        drain_timeout: seconds for servers to finish accepted requests when the block ends normally, and when a server
            is removed, restarted or configured anew. 0 does not wait. There is no wait if nothing is in flight, after
            an exception or a cancellation of the block, or for a server that does not answer. Default 30.
        stop_on: one or more signals, like ``signal.SIGTERM``, that end the block and the program: accepted requests are
            finished within `drain_timeout` while new ones wait, then the block is cancelled, the servers are stopped,
            and `SystemExit` is raised with 128 plus the number of the signal (143 for SIGTERM). A second signal cancels
            the block at once. None by default.
        observers: called synchronously with every event; a `CallObserver` also with every attempt of a request.

    Other Parameters:
        env_file: a ``.env`` file for the configuration files and mappings, as for `load_config`. Default None.
        start_gate: seconds to wait for servers whose tools are in the ``catalog_store``; then the block begins while
            they keep connecting, their remembered tools are shown, and calls wait. Required servers and servers without
            remembered tools are always awaited. A later failure is recorded and logged. None (default) waits for every
            first connect.
        naming: the template of the tools' public names; ``{server}`` and ``{tool}`` are replaced. Default
            ``"mcp__{server}__{tool}"``.
        client_info: the program's name and version, for servers without a ``client_info`` of their own. None (default)
            takes this library's.
        max_servers: the number of enabled servers that the group may have, including added ones; each replica counts.
            Default 50.
        max_starting: the number of servers that connect at a time; further servers wait in configured order. 1 connects
            one after the other. Default 16.
        max_processes: the number of processes that servers may run at a time. The connect of a further process fails,
            and is retried like any other. None (default) disables the limit.
        reload_on: one or more signals, like ``signal.SIGHUP``, at which configuration files are read again, as by
            `ServerGroup.reload` without arguments. The result is logged; an error changes nothing. None by default.

    Yields:
        The group: a mapping of names to `ServerRef`, with views, tools and events.

    Raises:
        ConnectFailed: a required server could not be connected. Then servers after it, in configured order, are
            stopped; those before it are awaited, and may fail, too. The first failure in this order is raised, and
            names the others, which are notes. Everything that was started is closed.
        ServerUnavailable: a server with ``on_failure="raise"`` failed for good while the block ran. The block was
            cancelled.
        ConfigError: the configuration is invalid or has too many servers, a file cannot be read, or a required entry
            cannot be used (with `strict` every entry is required); nothing was started.
        SystemExit: a signal of `stop_on` has ended the block.
        RuntimeError: the caller does not run on Trio; or not in the main thread, which `stop_on` and `reload_on` need.
    """
    check_flavor("open_servers()", "trio", "on asyncio, use `from mcp_actors.bridge import open_servers`")
    check_naming(naming)
    _check_kind("callbacks", callbacks, Callbacks)
    _check_kind("client_info", client_info, Implementation)
    store = _store(catalog_store)
    _check_gate(start_gate, remembers=store is not None)
    drain_timeout = _seconds("drain_timeout", drain_timeout, "drain_timeout=10")
    stops, reloads = Signals.of(stop_on=stop_on, reload_on=reload_on)
    limits = GroupLimits(max_servers, max_starting, max_processes)
    configs, sources = tuple(map(anchored, configs)), Sources(strict, anchored(env_file))
    hub = EventHub(observers)
    roster = Roster(hub, strict=strict, callbacks=callbacks, client_info=client_info, limits=limits, naming=naming)
    group_end = GroupEnd(roster, drain_timeout)
    # Signals are received first: a table may take seconds to read, and the default action of SIGHUP and SIGTERM would
    # end the program meanwhile, without any clean-up of the caller. Both blocks end last, after the servers have
    # stopped, or a second signal would leave processes behind.
    async with _received(reloads) as received, group_end.on_signal(stops):
        await _read_first(sources, configs, roster)
        install_filters()
        hub.add(OutageLog(roster))
        gate = StartGate(roster.records.values(), start_gate)
        stops.end_start = gate.hurry
        memory = None if store is None else CatalogMemory(store, roster.records.values(), naming, roster.upkeep)
        if memory is not None:
            hub.add(memory)
        board, others = _followers_of(sources, roster, hub, watch=watch)
        async with (
            _supervised(roster, hub, gate, memory, board, group_end, others) as supervisor,
            _reloading(ServerGroup(roster, supervisor, hub, sources=sources), received) as group,
        ):
            yield group


async def _read_first(sources: Sources, configs: tuple[Configured, ...], roster: Roster) -> None:
    merged = await sources.read(configs)
    roster.check(merged.enabled)
    sources.adopt(merged, configs)
    roster.note_merged(merged)
    roster.enter(*merged.enabled)


def _followers_of(
    sources: Sources, roster: Roster, hub: EventHub, *, watch: bool
) -> tuple[StatusBoard, list[ChildSpec]]:
    """Return the states to write, and actors for the sources. If these fail, the group continues."""

    def states(source: str) -> dict[str, str]:
        return {name: record.life.state for name, record in roster.records.items() if record.config.source == source}

    hub.add(board := StatusBoard(sources, states, roster.upkeep))
    watching = partial(WatchActor, sources, _apply, roster.note_merged, hub.emit, roster.upkeep, roster.opened)
    watcher = ChildSpec(WATCH, watching, restart="temporary")
    return board, [*([watcher] if watch else []), *([status_spec(board)] if board.tables else [])]


async def _apply(group: SupervisorRef, merged: Merged, adopt: Callable[[], bool]) -> None:
    await group.child(LIFECYCLE).call(Reload(merged, adopt, keep_added=True))


@asynccontextmanager
async def _supervised(
    roster: Roster,
    hub: EventHub,
    gate: StartGate,
    memory: CatalogMemory | None,
    board: StatusBoard,
    group_end: GroupEnd,
    others: Iterable[ChildSpec],
) -> AsyncIterator[SupervisorRef]:
    """Run the supervision tree of a group around a block, which begins when the gate opens."""
    closing = ClosingOrder()
    lifecycle = partial(LifecycleActor, roster, closing, memory, board, group_end.seconds)
    try:
        if memory is not None:
            await memory.load()
        trio.lowlevel.spawn_system_task(gate.note_wait, name=f"{GROUP}: a long start")
        with translate(roster):
            async with open_supervisor(
                *group_specs(roster, closing, memory=memory, lifecycle=lifecycle, others=others),
                name=GROUP,
                max_restarts=0,
                start_order="parallel",
                stop_order="concurrent",
                observers=(GroupFollower(roster, hub),),
            ) as supervisor:
                await gate.wait()
                gate.close()
                roster.show(supervisor, *roster.records.values())
                try:
                    yield supervisor
                    await group_end.drain_all()
                finally:
                    lives = {member.name: member.record.life for member in roster.members.values()}
                    closing.expect(name for name, life in lives.items() if life.state in CONNECTED or life.draining)
    finally:
        gate.close()
        hub.close()
        for record in roster.records.values():
            record.release()


@asynccontextmanager
async def _received(signals: Signals) -> AsyncIterator[trio.MemoryReceiveChannel[int] | None]:
    """Receive signals while a group starts, runs and stops; their default action would leave servers behind.

    Signals are dropped while one waits, because the reload for the waiting signal has yet to read the configuration.
    """
    if not signals:
        yield None
        return
    send, receive = trio.open_memory_channel[int](1)

    async def listen() -> None:
        async for number in received:  # a signal not taken here gets its default action at the end of `receive`
            with suppress(trio.WouldBlock):
                send.send_nowait(number)

    with signals.receive() as received:
        async with open_background() as background:
            background.start_soon(listen, name="servers:reload signals")
            yield receive


@asynccontextmanager
async def _reloading(group: ServerGroup, received: trio.MemoryReceiveChannel[int] | None) -> AsyncIterator[ServerGroup]:
    if received is None:
        yield group
        return

    async def listen() -> None:
        async for number in received:
            try:
                done = await group.reload()
            except (ConfigError, ServerError) as exc:
                logger.error("reload at %s: %s", name_of(number), exc)
            else:
                logger.info("reload at %s: %s", name_of(number), in_words(done, done.failed))

    async with open_background() as background:
        background.start_soon(listen, name="servers:reload")
        yield group


@frozen(eq=False)
class GroupFollower:
    """Updates the records by the events of actors, then forwards each event to the group's observers."""

    roster: Roster
    hub: EventHub

    # Whether an observer of the group wants request events; the records need none.
    wants_requests = property(attrgetter("hub.wants_requests"))

    def __call__(self, event: Event) -> None:
        # The record comes first: an observer of the event must find the server in its new state.
        record = self.roster.record_of(event.actor)
        if record is not None and record.ignores(event):
            return
        changes = () if record is None else record.follow(event)
        self.hub.emit(event)
        for each in changes:
            self.hub.emit(each)


def _store(catalog_store: object) -> CatalogStore | None:
    if catalog_store is None or catalog_store is False:
        return None
    if catalog_store is True:
        return CatalogStore(default_directory())
    if isinstance(catalog_store, (str, os.PathLike)) and isinstance(path := os.fspath(catalog_store), str) and path:
        return CatalogStore(path)
    problem = "is not a directory; pass a path, or True for the platform's cache directory"
    raise bad_option("catalog_store", catalog_store, problem)


def _check_kind(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        problem = f"open_servers takes {name}={kind.__name__}(...), not {type_of(value)}"
        raise ConfigError(problem, source="open_servers", path=name)


def _check_gate(seconds: object, *, remembers: bool) -> None:
    if seconds is None:
        return
    _seconds("start_gate", seconds, "start_gate=0.25, or None to wait for every server")
    if not remembers:
        problem = "has no effect without a catalog_store, because every server without remembered tools is awaited"
        raise bad_option("start_gate", seconds, f"{problem}; add catalog_store=True, or remove start_gate")


def _seconds(option: str, value: object, example: str) -> float:
    if is_number(value) and 0 <= value < math.inf:
        return value
    raise bad_option(option, value, f"is not a number of seconds; pass 0 or more, like {example}")


# --- How long opening waits -------------------------------------------------------------------------------------------


LONG_START: Final = 5.0
"""Seconds of a start before the log names the awaited servers."""


class StartGate:
    """Waits for the first connects of the eager servers: `seconds` at most for servers with remembered tools.

    The group's supervisor awaits only required servers (the others have ``await_start=False``). The gate waits until
    the first connect of each eager server has succeeded, has failed, is overdue (``connect_timeout``) or needs a person
    to sign in. The task that opens the group waits, so the caller's deadlines and cancellations apply. Servers that are
    no longer awaited keep connecting.
    """

    def __init__(self, records: Iterable[ServerRecord], seconds: float | None) -> None:
        # Starts the clock before the store is read and required servers start: the user's seconds cover both.
        self._deadline = math.inf if seconds is None else trio.current_time() + seconds
        self._awaited = [record for record in records if record.config.connect == "eager"]
        self._hurried = trio.CancelScope()
        self._closed = trio.Event()

    def hurry(self) -> None:
        """Stop waiting for optional servers."""
        self._hurried.cancel("the program is asked to stop")

    def close(self) -> None:
        self._closed.set()

    async def note_wait(self) -> None:
        with trio.move_on_after(LONG_START):
            await self._closed.wait()
            return
        names = [record.config.name for record in self._awaited if _undecided(record)]
        if names:
            logger.warning(
                "open_servers(): still waiting after %g s for %s; to wait less, lower connect_timeout, or set "
                "connect='lazy'",
                LONG_START,
                some_of(names, 8),
            )

    async def wait(self) -> None:
        """Wait until the ``async with open_servers()`` block may begin."""
        # No checkpoint between a test of a state and `wait_change`, or a change in between would be missed. First,
        # whatever the deadline, wait the few steps until every server has left `pending`, so the block never sees a
        # server that has not begun to connect. Then wait for all, up to the deadline; then for those without remembered
        # tools.
        for record in self._awaited:
            while record.life.state == "pending":
                await record.life.wait_change()
        with self._hurried:
            with trio.move_on_at(self._deadline):
                for record in self._awaited:
                    while _undecided(record):
                        await record.life.wait_change()
            for record in self._awaited:
                while _undecided(record) and not record.catalog.deferred:
                    await record.life.wait_change()
        if any(map(has_ended_group, self._awaited)):
            # The supervisor is ending the group and cancels this task; the block must not begin meanwhile.
            await trio.sleep_forever()
        self._awaited.clear()  # or a removed server would be kept alive


def _undecided(record: ServerRecord) -> bool:
    """Return True while the first connect of a server has neither succeeded, failed nor taken too long.

    The state alone is not enough: after its back-off a failed server is `connecting` again, with an error. A server is
    also `connecting` until its supervisor has decided about a failure, and the block must not begin before.
    """
    life = record.life
    begins = life.state in ("pending", "connecting")
    return begins and life.overdue is None and (life.last_error is None or life.best.verdict_due)


# --- Log the outages of servers: losses, failed connects, parking and recovery ----------------------------------------

# Python prints warnings on stderr even if a program does not configure logging, so a loss, a failed connect and a
# parking are warnings; a recovery is at level INFO. An outage may last for days and a server may flap, so each reason
# is a warning once per outage, up to `MOST_REASONS`; all else is at level DEBUG. An outage is over when the server has
# served for its ``reset_after``, or for a minute. Each replica has outages of its own.


MOST_REASONS: Final = 10
"""Maximum of different warnings per outage. A server may print the time of day in each error."""


@define(eq=False)
class _Outage:
    """The log of one outage.

    Attributes:
        down_at: the wall-clock time at which the server last went down.
        well_since: when the server was ready again, on Trio's clock; None while down.
        recovery: the level for the recovery: INFO after a warning, else DEBUG.
    """

    down_at: datetime
    well_since: float | None = None
    logged: set[str] = field(factory=set)
    recovery: int = logging.DEBUG


@frozen(eq=False)
class OutageLog:
    """Observes a group and logs its outages, but no requests."""

    roster: Roster
    _outages: WeakKeyDictionary[ServerRecord | ConnectionRecord, _Outage] = field(factory=WeakKeyDictionary, init=False)

    wants_requests: ClassVar[bool] = False

    def __call__(self, event: Event) -> None:
        if not isinstance(event, StateChanged | ReplicaChanged):
            return
        server = self.roster.records[event.server]
        record = server.connection(event.replica) if isinstance(event, ReplicaChanged) else server
        assert record is not None  # the server has the replica of its event
        if event.new in FAILED or event.new == "degraded":
            self._trouble(event, record)
        elif event.new == "ready":
            self._well(event, record)
        elif event.new == "stopped":
            self._outages.pop(record, None)

    def _trouble(self, event: StateChanged | ReplicaChanged, record: ServerRecord | ConnectionRecord) -> None:
        outage = self._current(event, record)
        why = _why(event, record)
        level, text = logging.DEBUG, _text(event, record, why)
        reason = f"{event.new}: {why}"
        raised = event.new in PARKED and record.config.on_failure == "raise"  # the group raises the error instead
        if reason not in outage.logged and len(outage.logged) < MOST_REASONS and not raised:
            outage.logged.add(reason)
            outage.recovery, level = logging.INFO, logging.WARNING
            if len(outage.logged) == MOST_REASONS:
                text += " (until it has recovered, further failures are logged at level DEBUG)"
        _log(level, event, text)

    def _current(self, event: StateChanged | ReplicaChanged, record: ServerRecord | ConnectionRecord) -> _Outage:
        outage = self._outages.get(record)
        lasting = record.config.restarts.reset_after or 60.0
        if outage is None or (outage.well_since is not None and event.time - outage.well_since >= lasting):
            outage = self._outages[record] = _Outage(event.at)
        elif outage.well_since is not None:
            outage.down_at, outage.well_since = event.at, None
        return outage

    def _well(self, event: StateChanged | ReplicaChanged, record: ServerRecord | ConnectionRecord) -> None:
        outage = self._outages.get(record)
        if outage is None:
            _log(logging.INFO, event, event.reason)
            return
        away = (event.at - outage.down_at).total_seconds()
        _log(outage.recovery, event, f"{event.reason}; recovered after {away:.0f} s")
        outage.well_since, outage.recovery = event.time, logging.DEBUG


def _text(event: StateChanged | ReplicaChanged, record: ServerRecord | ConnectionRecord, why: str) -> str:
    if event.new == "backoff":
        return f"{'connection lost' if event.old in CONNECTED else 'connect failed, retrying'}: {why}"
    if event.new != "failed":  # with needs_auth, the reason has the remedy
        return f"{event.new}: {why}"
    if record.life.retry_at is None:
        return f"has failed and is not retried: {why}; fix that, then restart the server"
    # A server that connects each time and soon fails again has never failed twice in a row.
    failures = f" after {record.life.failures} failures in a row" if record.life.failures > 1 else ""
    seconds = (record.life.retry_at - event.at).total_seconds()
    return f"parked{failures}, next attempt in {seconds:.0f} s: {why}"


def _why(event: StateChanged | ReplicaChanged, record: ServerRecord | ConnectionRecord) -> str:
    """Return the reason without the delay until the next attempt, which would make every repetition a new reason."""
    if record.life.error is None or event.new not in PARKED | {"backoff"}:
        return event.reason
    return problem_of(record.life.error)


def _log(level: int, event: StateChanged | ReplicaChanged, text: str) -> None:
    if isinstance(event, ReplicaChanged):
        text = f"replica {event.replica!r}: {text}"
    logger.log(level, "server %r: %s", event.server, text, extra={"mcp_server": event.server})
