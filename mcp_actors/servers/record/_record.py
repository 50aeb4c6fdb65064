"""Lasting parts of a server and of its connections.

A connection breaks and is opened again; the queued requests, the subscriptions, the accepted tools and the log level
stay. Actors, refs, health checks and the group share a server's `ServerRecord`.

::

    ServerRecord                     changed mainly by
     ├─ config, required, callbacks  the lifecycle actor (`configure`, `move`)
     ├─ life                         events (`follow`), wishes (`ServerLife.want`)
     ├─ catalog, resources,          the connections and their requests
     │  next_connect
     ├─ calls                        the callers of requests
     └─ connections                  the lifecycle actor (`configure`)
         ├─ ConnectionRecord "shop:1"
         │   ├─ life                 events (`follow`), the connection
         │   ├─ health               health checks, requests
         │   ├─ session, read_stderr the actor that has the connection
         │   └─ listeners            ``connection/_callbacks``
         └─ ConnectionRecord "shop:2"

Owns: configurations and callbacks of servers; facts about sessions; facts for the next connect; kept resources.
Writes: servers' places in the group's order of connects; masked error texts; events of servers; the log.
Calls: catalog, config, kernel, servers, transports, _health, _life, _states, _subscriptions, _wanted.
"""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from weakref import proxy

import trio
from attrs import define, evolve, field
from mcp.types import PromptListChangedNotification, ResourceListChangedNotification, ToolListChangedNotification

from ..._errors import NotSupported
from ..._foreign import Log
from ...catalog._names import DEFAULT_NAMING
from ...config import EffectiveCallbacks
from ...kernel import Starting
from ...transports import Capacity, Certificates, Masker
from .._attempts import ConnectionFacts, Observed
from .._catalog import Freshness, Reporter, ServerCatalog
from .._deadlines import PolicyState
from .._eras import is_modern
from .._session import not_offered
from ._health import ConnectionHealth, ServerHealth, nothing
from ._life import ConnectionLife, ServerLife
from ._states import (
    CONNECTED,
    FAILED,
    PARKED,
    LimitReached,
    PromptsChanged,
    ResourcesChanged,
    ToolsChanged,
    ToolsDiffer,
    is_followed,
)
from ._subscriptions import DonePages, Listeners, NotificationsMissed, Subscriptions
from ._wanted import moved, used

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp.types import Implementation, LoggingLevel, Prompt, Resource, ResourceTemplate

    from ..._errors import LimitExceeded
    from ...catalog import PinVerdict
    from ...config import ServerConfig
    from ...kernel import Event
    from .._attempts import CallObserver
    from .._catalog import Ticket, ToolDifference
    from .._deadlines import Deadline, DeadlineTimer
    from .._eras import Era
    from ._states import ServerEvent
    from ._status import ServerInfo
    from ._wanted import Seen


logger = Log("mcp_actors.servers")


REPLICA: Final = ":"

ISOLATED: Final = ":isolated"
"""Ends the name of the actor of an isolated attempt. Names of servers and replicas do not contain it."""

MAX_SIGN_INS: Final = 2
"""How often a person may be asked to sign in within an hour."""

OLD_QUESTION: Final = re.compile(
    r"Cannot send '(elicitation|sampling|roots)/\w+'.{0,99}no back-channel|\b(Elicitation|Sampling|roots) not supported"
)
"""The error of a server on the Python SDK that asks in the way of another era, or asks a client without a callback."""

Retirement: TypeAlias = Literal["idle", "old"]


@define(eq=False)
class SessionFacts:
    """Facts about the current session, written by the connection.

    `take_again` makes the connection accept waiting requests after refusing them (`ConnectionLife.holding`).
    """

    pid: int | None = None
    masker: Masker = field(factory=Masker)
    take_again: Callable[[], object] = lambda: None


@define(eq=False)
class SignInQuestions:
    """Limits sign-in questions of the configured callback to `MAX_SIGN_INS` within an hour.

    All connects of a server share the limit. Otherwise a server that refuses each new token would ask a person at every
    connect.
    """

    _asked: tuple[float, ...] = ()
    _reported: bool = False

    def allowed(self, now: float) -> bool:
        return len(self._asked) < MAX_SIGN_INS or now - self._asked[0] >= 3600.0

    def note(self, now: float) -> None:
        self._asked, self._reported = (*self._asked, now)[-MAX_SIGN_INS:], False

    def to_be_reported(self) -> bool:
        """Return True for the first refusal after each question."""
        first, self._reported = not self._reported, True
        return first


@define(eq=False)
class NextConnect:
    """Facts from earlier connections for the next connect, written by the connection if not noted otherwise.

    Attributes:
        log_level: the lowest level of log messages to request; None requests none. Written by `SetLogLevel`.
        own_levels: True once a request had a level of its own; then only the server knows the wanted messages.
        era: None to negotiate.
        worked: True if this configuration has connected before.
        legacy_first: True to begin a negotiation with ``initialize``. A gateway sets it; a timeout clears it.
        warned: True once a question in the way of another era was logged.
        declared: the capabilities of the client that the server belongs to. Written by a gateway.
    """

    log_level: LoggingLevel | None
    own_levels: bool = False
    era: Era | None = None
    questions: SignInQuestions = field(factory=SignInQuestions)
    worked: bool = False
    legacy_first: bool = False
    warned: bool = False
    declared: dict[str, object] = field(factory=dict)


class ConnectionRecord:
    """The lasting parts of one connection, which an actor connects again and again.

    The actor gets this record, and reaches the server through `server`.

    `config`, `calls`, `catalog`, `next_connect` and `subscriptions` belong to the server; a spare connection
    (`ServerRecord.spare`) has a catalog, a next connect and (empty) subscriptions of its own.

    Attributes:
        name: the name of the actor.
        listeners: receive the messages of this connection.
        health: written by health checks, and by requests that end.
        life: follows the events of the actor.
        read_stderr: returns the end of the stderr of the current or last process. Written by the connection.
        earlier_stderr: the last lines of earlier processes, which crashed or were replaced.
    """

    def __init__(self, server: ServerRecord, name: str, *, spare: bool = False) -> None:
        config = server.config
        self.server: ServerRecord = server
        self.name: str = name
        self.config: ServerConfig = evolve(config, keep_resources=False) if spare else config
        self.calls: PolicyState = server.calls
        self.catalog: ServerCatalog = server.catalog.copy_for_isolated() if spare else server.catalog
        self.next_connect: NextConnect = evolve(server.next_connect) if spare else server.next_connect
        self.listeners: Listeners = Listeners(config.name, of=None if spare else server.listeners)
        self.subscriptions: Subscriptions = Subscriptions(self.listeners) if spare else server.subscriptions
        failing = set[str]() if spare else server.health.failing
        self.health: ConnectionHealth = ConnectionHealth(config.health, self.calls.deadlines, name, failing)
        self.life: ConnectionLife = ConnectionLife(name, server.life, self.catalog, self.health)
        self.health.on_change = self.life.health_changed
        self.session: SessionFacts = SessionFacts()
        self.read_stderr: Callable[[], str] = str
        self.earlier_stderr: deque[str] = deque(maxlen=3)

    @property
    def pid(self) -> int | None:
        return self.session.pid if self.life.state in CONNECTED or self.life.state == "stopping" else None

    def follow_stderr(self, read: Callable[[], str]) -> None:
        """Read the stderr of a new process from now on; keep the last 4 KiB of the previous process."""
        if text := self.read_stderr()[-4096:].strip():
            self.earlier_stderr.append(text)
        self.read_stderr = read

    def keep_stderr(self) -> None:
        """Keep the end of the stderr of an ended connection, and release the connection."""
        text = self.read_stderr()
        self.read_stderr = lambda: text

    def describe(self, deadline: Deadline) -> dict[str, str | int | float]:
        return {
            "mcp_actors.server": self.config.name,
            "mcp_actors.replica": self.name,
            "mcp_actors.incarnation": self.life.incarnation,
            "mcp_actors.attempt": deadline.tries,
            "mcp_actors.queue_seconds": max(0.0, trio.current_time() - (deadline.since or deadline.began)),
        }

    def retire(self, why: Retirement) -> None:
        self.server.on_retire(why, self)

    def release(self) -> None:
        """Drop all references to the server. Everything that a ref shows stays."""
        self.listeners.clear()
        self.life.release()
        self.health.on_change = nothing
        del self.server, self.config, self.calls, self.catalog, self.next_connect, self.subscriptions, self.health


class ServerRecord:
    """The lasting parts of one server. Each part has one writer; any code may read.

    Attributes:
        connections: one record, or one for each replica. Replaced by `configure`, which keeps records with the same
            name.
        required: True if a failed start is an error for the caller that started the server.
        strict: True if a failed start is final, as in `open_servers`. Read when the server's own supervisor starts;
            written by the group.
        info: the server's description of itself at the latest connect; None before. Written by the connection.
        resources: the kept lists. Written by the connection, and by requests that list again.
        catalog: the tools. ``_catalog`` lists the writers.
        done: pages reported as done by the server. Written by the connection.
        on_retire: called with the record of a connection that is unused (``idle_timeout``) or old (``max_lifetime``).
            Set by the group.
        capacity, certificates: shared by all servers of the group.
        woken: False while the server's own supervisor is dormant. Written by the group.
        place: the position in the order of connects, for servers that connect one after the other.
    """

    def __init__(
        self,
        config: ServerConfig,
        emit: Callable[[Event], None],
        *,
        required: bool,
        callbacks: EffectiveCallbacks | None = None,
        client_info: Implementation | None = None,
        capacity: Capacity | None = None,
        certificates: Certificates | None = None,
        timer: DeadlineTimer | None = None,
        naming: str = DEFAULT_NAMING,
    ) -> None:
        self.config: ServerConfig = config
        self.required: bool = required
        self.strict: bool = required
        self.callbacks: EffectiveCallbacks = callbacks or EffectiveCallbacks()
        self.client_info: Implementation | None = client_info
        self.on_retire: Callable[[Retirement, ConnectionRecord], object] = nothing
        self.capacity: Capacity = capacity or Capacity()
        self.certificates: Certificates = certificates or Certificates()
        self.place: int = self.capacity.new_place()
        self.woken: bool = False
        self.info: ServerInfo | None = None
        self.next_connect: NextConnect = NextConnect(self.callbacks.log_level)
        self.listeners: Listeners = Listeners(config.name)
        self.done: DonePages = DonePages()
        self.subscriptions: Subscriptions = Subscriptions(self.listeners)
        self.listeners.add(object, self._heard)
        self.catalog: ServerCatalog = ServerCatalog(config, CatalogReporter(proxy(self)), naming)
        self.health: ServerHealth = ServerHealth()
        self.life: ServerLife = ServerLife(config, emit, self.subscriptions.wake)
        self.calls: PolicyState = PolicyState(config, timer)
        self.calls.deadlines.on_timeout, self.calls.deadlines.outage = self._timed_out, self.life.outage
        report = self.life.emit
        self.resources: KeptResources = KeptResources(
            config.keep_resources, partial(report, ResourcesChanged), partial(report, PromptsChanged)
        )
        self._applied = config
        self.connections: tuple[ConnectionRecord, ...] = ()
        self._connect()

    def configure(
        self, config: ServerConfig, *, required: bool, callbacks: EffectiveCallbacks, client_info: Implementation | None
    ) -> None:
        """Adopt a changed configuration while no incarnation of an actor runs.

        Waiting requests, subscriptions and accepted tools stay.
        """
        if callbacks.log_level != self.callbacks.log_level:
            self.next_connect.log_level = callbacks.log_level
        self.next_connect.era, self.next_connect.worked = None, False  # the server may be another program
        self.config, self.required, self.callbacks, self.client_info = config, required, callbacks, client_info
        self.strict = False  # the change is made, whether the server connects now or later
        self.calls.configure(config)
        self.catalog.configure(config)
        self.resources.keep(config.keep_resources)
        self._connect()

    def _connect(self) -> None:
        names, before = actors_of(self.config), {each.name: each for each in self.connections}
        new = {name: before.get(name) or ConnectionRecord(self, name) for name in names}
        self.connections = tuple(new.values())
        for each in before.values():
            if each.name not in new:
                each.release()
        self.listeners.changed = set() if len(names) > 1 else None  # only replicas announce the same change twice
        self.health.failing.intersection_update(names)
        self.health.each = tuple(each.health for each in self.connections)
        self.life.consist_of(each.life for each in self.connections)
        self._use(self.config)

    def _use(self, config: ServerConfig) -> None:
        self.config = self.life.config = config
        for each in self.connections:
            each.config, each.health.policy = config, config.health

    def move(self, config: ServerConfig) -> None:
        """Adopt an equal configuration from another ``source``. The connection stays."""
        self._use(config)
        self._applied = config
        self.life.want(moved(self.life.wanted, config))

    @property
    def seen(self) -> tuple[Seen, ...]:
        return tuple(each.life.seen for each in self.connections)

    def note_old_question(self, operation: str, said: str) -> NotSupported | None:
        """Return the error for a question that this era cannot answer (logged once), or that has no callback.

        `said` is the text of the server's error during `operation`. Return None for an unrelated text.
        """
        found = OLD_QUESTION.search(said)
        if found is None or self.info is None or is_modern(self.info.protocol_version) != bool(found[1]):
            return None
        kind, name = (found[1] or found[2]).lower(), self.config.name
        if not found[1]:
            return not_offered(name, operation, kind) if getattr(self.callbacks, kind) is None else None
        what = f"asks for {kind} in the way of 2025-11-25, which is not supported in sessions since 2026-07-28"
        remedy = f"set protocol='legacy' for it, and callbacks=Callbacks({kind}=…) if it has none"
        if not self.next_connect.warned:
            self.next_connect.warned = True
            logger.warning("server %r: %s %s; %s", name, operation, what, remedy)
        what = f"server {name!r}: {operation} {what}; it may have taken effect; {remedy}"
        return NotSupported(what, server=name, capability=kind)

    @property
    def current(self) -> bool:
        """True if the server and its own supervisor have the wanted configuration."""
        return self._applied is self.life.wanted.config

    def note_applied(self, config: ServerConfig) -> None:
        self._applied = config
        self.life.note_change()

    @property
    def failed(self) -> bool:
        return self.life.wanted.mode == "run" and self.life.state in FAILED

    @property
    def is_used(self) -> bool:
        return bool(self.calls.deadlines.pending(queued=True) or len(self.subscriptions))

    @property
    def connected(self) -> Sequence[ConnectionRecord]:
        """All open connections, or the first connection if none is open."""
        return [each for each in self.connections if each.life.state in CONNECTED] or self.connections[:1]

    @property
    def pid(self) -> int | None:
        """The process of a server connected over stdio; None with replicas, each of which has a process."""
        own = self.connection(self.config.name)
        return None if own is None else own.pid

    def in_flight(self, connection: ConnectionRecord) -> int:
        return self.calls.deadlines.pending(queued=False, actors=(connection.name,))

    def connection(self, actor: str | None) -> ConnectionRecord | None:
        """Return the record of an actor's connection; None for any other actor, like a pool."""
        return next((each for each in self.connections if each.name == actor), None)

    def spare(self) -> ConnectionRecord:
        """Return the record of a connection for one isolated attempt.

        The server neither shows nor ends a spare connection. The health of a spare connection reads the server's
        deadlines, which include the request of the attempt.
        """
        spare = ConnectionRecord(self, f"{self.config.name}{ISOLATED}", spare=True)
        spare.life.forgive(ask=False)  # only the server's own connection asks a person
        return spare

    def ignores(self, event: Event) -> bool:
        """Return True for an event of an incarnation that has nothing to run.

        Decided once, when the incarnation begins, and read by the actor (`ConnectionLife.ignored`): a later wish must
        not make the record ignore an actor that connects. A pool of replicas runs in any case.
        """
        if (connection := self.connection(event.actor)) is None:
            return False
        life = connection.life
        if isinstance(event, Starting):
            life.ignored = self.life.idle
        return life.ignored and life.state in ("pending", "stopped")

    def follow(self, event: Event) -> Sequence[ServerEvent]:
        """Apply an event of an actor of this server. Return the events to emit for changes of state.

        Called by `GroupFollower` (``group/_open``). Other events, like a change of health, arrive through
        `ServerLife.take`.
        """
        whole = event.actor == self.config.name
        lives = (each.life for each in self.connections)
        changes = self.life.follow(
            event, [each for each in lives if is_followed(each.state, event, own=each.name == event.actor, whole=whole)]
        )
        if self.life.state in PARKED and self.life.wanted.mode == "rest":
            # Parked before the wish to rest: the mode becomes "run", or `failed` and `retry_at` would not be shown.
            self.life.want(used(self.life.wanted))
        return changes

    def forgive(self, *, ask: bool) -> None:
        """Forget failures: the server is started explicitly, or configured anew."""
        for each in self.connections:
            each.life.forgive(ask)
        if self.life.state not in CONNECTED:
            self.health.forgive()

    def observe_calls(self, observers: tuple[CallObserver, ...]) -> None:
        def describe(actor: str) -> ConnectionFacts:
            version = None if self.info is None else self.info.protocol_version
            return ConnectionFacts(self.config, version, (self.connection(actor) or self).life.error)

        name, lists = self.config.name, self.catalog.lists
        self.calls.deadlines.observed = Observed(name, observers, lists, describe) if observers else None

    def release(self) -> None:
        """Release all references to the server, which was removed or whose group has ended.

        No part refers to the whole any more. So everything is freed with the last `ServerRef` of a program, without the
        garbage collector.
        """
        self.life.release()
        self.subscriptions.close()
        self.listeners.clear()
        self.calls.deadlines.release()
        self.on_retire = nothing
        for each in self.connections:
            each.release()

    def mask(self, text: str) -> str:
        for each in self.connections:
            text = each.session.masker(text)
        return text

    def _timed_out(self, deadline: Deadline, error: Exception) -> None:
        if (asked := self.connection(deadline.actor)) is not None:  # None: a spare connection
            asked.health.timed_out(deadline.began, error)

    def answered(self, deadline: Deadline) -> None:
        if (asked := self.connection(deadline.actor)) is not None:
            asked.health.answered()

    # --- lists ------------------------------------------------------------------------------------------------------

    def _heard(self, message: object) -> None:
        """Note which lists may have changed. One listener for all kinds, because there may be a thousand servers."""
        match message:
            case ToolListChangedNotification():
                self.catalog.mark_stale()
            case ResourceListChangedNotification():
                self.resources.mark_stale()
            case PromptListChangedNotification():
                self.resources.mark_prompts_stale()
            case NotificationsMissed():
                self.catalog.mark_stale()
                if self.info is not None and self.info.supports.resources:
                    self.resources.mark_stale()
                if self.info is not None and self.info.supports.prompts:
                    self.resources.mark_prompts_stale()


def server_of(actor: str) -> str:
    """Return the name of the server of a replica; any other name is returned unchanged."""
    server, _, number = actor.partition(REPLICA)
    return server if number.isdecimal() else actor


def actors_of(config: ServerConfig) -> list[str]:
    if config.replicas == 1:
        return [config.name]
    return [f"{config.name}{REPLICA}{number}" for number in range(1, config.replicas + 1)]


# --- Report changes of a server's tools as events and log records -----------------------------------------------------


class CatalogReporter(Reporter):
    """Reports changes of one server's catalogue as events and log records.

    `record` is a weak reference, because the catalogue is a part of the record.
    """

    def __init__(self, record: ServerRecord) -> None:
        self._record = record

    def mask(self, text: str) -> str:
        return self._record.mask(text)

    def emit(self, kind: type[ServerEvent], **details: object) -> None:
        self._record.life.emit(kind, **details)

    def changed(self, difference: ToolDifference) -> None:
        self.emit(ToolsChanged, **difference._asdict())

    def differs(self, verdict: PinVerdict) -> None:
        config, blocked = self._record.config, bool(verdict.hidden)
        place = f" (see {config.source})" if verdict.identity_changed and config.source is not None else ""
        logger.warning(
            "server %r: tools differ from the accepted ones; %s%s%s",
            config.name,
            self.mask(verdict.summary()),
            place,
            "; new and changed tools are hidden until they are approved" if blocked else "",
        )
        self.emit(
            ToolsDiffer,
            added=verdict.added,
            changed=verdict.changed,
            removed=verdict.removed,
            identity_changed=verdict.identity_changed,
            blocked=blocked,
        )

    def misnamed(self, names: str) -> None:
        logger.warning(
            "server %r: its ToolFilter has names of tools that the server does not list: %s; correct "
            "ServerConfig.tool_filter",
            self._record.config.name,
            self.mask(names),
        )

    def listed_again(self) -> None:
        self._record.life.recover()

    def invalid(self, problem: str) -> None:
        logger.warning("server %r: %s", self._record.config.name, self.mask(problem))

    def over_limit(self, error: LimitExceeded) -> None:
        error.args = (self.mask(str(error)),)  # it quotes names of the server
        logger.warning("%s", error)
        self.emit(LimitReached, error=error)


# --- The resources, templates and prompts that a server listed last ---------------------------------------------------


class KeptResources:
    """Resources and prompts of one server, kept with ``ServerConfig.keep_resources`` and else empty.

    The lists outlive connections. A new connection writes the lists first, then the task that lists again
    (`keep_resources_listed`). `keep` empties the lists while no connection exists.

    `answers` counts the answers that changed a list. `on_change` is called at each change of resources or templates,
    `on_prompts` at each change of prompts.
    """

    def __init__(self, kept: bool, on_change: Callable[[], None], on_prompts: Callable[[], None]) -> None:
        self.kept: bool = kept
        self.resources: tuple[Resource, ...] = ()
        self.templates: tuple[ResourceTemplate, ...] = ()
        self.prompts: tuple[Prompt, ...] = ()
        self.answers: int = 0
        self.freshness: Freshness = Freshness()
        self._on_change = on_change
        self._on_prompts = on_prompts

    def show(
        self,
        ticket: Ticket,
        resources: tuple[Resource, ...],
        templates: tuple[ResourceTemplate, ...],
        prompts: tuple[Prompt, ...],
    ) -> None:
        self.freshness.show(ticket, trio.current_time())
        changed, prompts_changed = (resources, templates) != (self.resources, self.templates), prompts != self.prompts
        self.resources, self.templates, self.prompts = resources, templates, prompts
        if changed or prompts_changed:
            self.answers += 1
        if changed:
            self._on_change()
        if prompts_changed:
            self._on_prompts()

    def keep(self, kept: bool) -> None:
        self.kept = kept
        if not kept:
            self.show(self.freshness.begin(), (), (), ())

    def mark_stale(self) -> None:
        """Mark the lists as outdated after an announced or possible change of resources.

        Without kept lists the event is emitted now, otherwise only if the next list differs.
        """
        self._changed(self._on_change)

    def mark_prompts_stale(self) -> None:
        self._changed(self._on_prompts)

    def _changed(self, emit: Callable[[], None]) -> None:
        if self.kept:
            self.freshness.mark_stale(trio.current_time())
        else:
            emit()
