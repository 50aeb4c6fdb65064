"""The records of a server and of its connections.

A `ServerRecord` has what a server is, whatever happens to its connections: the configuration, what is wanted of it, its
tools, its subscriptions, and the state of the requests. It has one `ConnectionRecord` for each of its connections: one,
or as many as it has replicas. Smaller parts are here: facts about the current session (`Session`), what the next
connect begins with (`Opening`, `SignInQuestions`), the reports of the catalogue as events and log records
(`CatalogReporter`), and the resources and prompts that were listed last (`KeptResources`).

The roster of a group makes the records of servers; an isolated retry gets a spare connection. Connections, requests,
refs and the group read them, and write the parts that the classes say. A `ServerRecord` emits events by the function
that it was given, and calls `on_retire`, which the group sets. It reads Trio's clock. It sends no request, and starts
no task and no actor.

Theory of operation
-------------------
::

    ServerRecord                     written by
     ├─ config, required, callbacks  the record, when the lifecycle actor configures it
     ├─ life                         itself, by the events of the connections and the wishes of refs and the group
     ├─ catalog, resources, opening  the connections, and their requests
     ├─ calls                        the callers of requests
     └─ connections                  the record, when the lifecycle actor configures it
         ├─ ConnectionRecord "shop:1"
         │   ├─ life, health         themselves, by the events, requests and checks of this connection
         │   ├─ session, read_stderr the incarnation of the actor that has the connection
         │   └─ listeners            what listens to this connection
         └─ ConnectionRecord "shop:2"

An actor is given the record of its connection, and what belongs to the server is reached by that (`server`; parts that
a spare connection has of its own are attributes of every connection). A message of one connection reaches the listeners
of its record, which pass it on to those of the server first.

The state of the server is that of its best connection. It is computed in the step of each event of one: kernel events,
which come through `ServerRecord.follow`, and events of no actor, such as a change of its health (`ServerLife.take`).

A spare connection (`ServerRecord.spare`) is not one of `connections`: the server does not show its state, and is not
asked to end it. It begins with what the server knows, and what it learns ends with it.

What belongs to a server is released by `ServerRecord.leave`, and what belongs to a session by the incarnation that had
it: references from a part to its owner end there. So all is freed with the last reference to the record, which a
program may have (`ServerRef`), and not when the garbage collector comes by.
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
from .._deadlines import Calls
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
    from .._catalog import Difference, Ticket
    from .._deadlines import Deadline, DeadlineTimer
    from .._eras import Era
    from ._states import ServerEvent
    from ._status import ServerInfo
    from ._wanted import Seen


logger = Log("mcp_actors.servers")


REPLICA: Final = ":"
"""The text between the name of a server and the number of a replica. No server has it in its name."""

ISOLATED: Final = ":isolated"
"""The end of the name of the actor of an isolated attempt. No replica and no server has it in its name."""

QUESTIONS: Final = 2
"""How often a person may be asked to sign in within `PERIOD`."""

OLD_QUESTION: Final = re.compile(
    r"Cannot send '(elicitation|sampling|roots)/\w+'.{0,99}no back-channel|\b(Elicitation|Sampling|roots) not supported"
)
"""What a server made with the Python SDK says if it asks in a way that its client has no use for, or has no answer."""

PERIOD: Final = 3600.0
"""Seconds over which `QUESTIONS` are counted."""

Retirement: TypeAlias = Literal["idle", "old"]


@define(eq=False)
class Session:
    """Facts about the current session, written by the connection.

    Attributes:
        pid: the process of the server, while it is connected over stdio.
        masker: masks the credentials of the current connection.
        take_again: makes the connection take waiting requests, after it has refused them (`ServerLife.holding`).
    """

    pid: int | None = None
    masker: Masker = field(factory=Masker)
    take_again: Callable[[], object] = lambda: None


@define(eq=False)
class SignInQuestions:
    """When a person was asked to sign in by the configured callback: `QUESTIONS` times within `PERIOD` at most.

    All connects of a server share it, those of its replicas and isolated retries too. Otherwise a server that serves,
    and then refuses its new tokens, would ask a person again at every connect.
    """

    _asked: tuple[float, ...] = ()
    _reported: bool = False

    def allowed(self, now: float) -> bool:
        """Return True if a person may be asked now, in seconds of `trio.current_time`."""
        return len(self._asked) < QUESTIONS or now - self._asked[0] >= PERIOD

    def note(self, now: float) -> None:
        self._asked, self._reported = (*self._asked, now)[-QUESTIONS:], False

    def to_be_reported(self) -> bool:
        """Return True once after each question: the first time that it forbids another one."""
        first, self._reported = not self._reported, True
        return first


@define(eq=False)
class Opening:
    """Facts from earlier connections that the next connect begins with.

    Attributes:
        log_level: the lowest level of log messages to request; None does not request any. Written by `SetLogLevel`.
        own_levels: whether a request had a level of its own, so only the server knows which messages are wanted.
        era: the era; None if that is to be negotiated. Written by the connection.
        questions: the questions of the configured callback to a person. Written by the connection.
        worked: whether this configuration has connected before. Written by the connection.
        legacy_first: whether an era that is to be negotiated begins with ``initialize``. Written by a gateway.
        warned: whether it was logged that the server asks in the way of another era.
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
    """The lasting parts of one connection of a server, which its actor connects again and again.

    Attributes:
        server: the record of its server, whose other parts all its connections share.
        name: the name of its actor.
        config: the configuration of the server. Replaced by the server.
        calls: what all requests of the server share.
        catalog: the tools of the server; a spare connection has a copy.
        opening: what the next connect begins with, likewise.
        subscriptions: those of the server; a spare connection has none.
        listeners: receive what the server sends over this connection.
        health: consecutive failures and checks. Written by health checks, and by requests that end.
        life: its state. Follows the events of its actor.
        session: facts about the current session. Written by the connection.
        read_stderr: returns the end of the stderr of its current or last process. Written by the connection.
        earlier_stderr: the last lines of the processes before that one, which have crashed or were replaced.
    """

    def __init__(self, server: ServerRecord, name: str, *, spare: bool = False) -> None:
        config = server.config
        self.server: ServerRecord = server
        self.name: str = name
        self.config: ServerConfig = evolve(config, keep_resources=False) if spare else config
        self.calls: Calls = server.calls
        self.catalog: ServerCatalog = server.catalog.copy_for_isolated() if spare else server.catalog
        self.opening: Opening = evolve(server.opening) if spare else server.opening
        self.listeners: Listeners = Listeners(config.name, of=None if spare else server.listeners)
        self.subscriptions: Subscriptions = Subscriptions(self.listeners) if spare else server.subscriptions
        failing = set[str]() if spare else server.health.failing
        self.health: ConnectionHealth = ConnectionHealth(config.health, self.calls.deadlines, name, failing)
        self.life: ConnectionLife = ConnectionLife(name, server.life, self.catalog, self.health)
        self.health.on_change = self.life.health_changed
        self.session: Session = Session()
        self.read_stderr: Callable[[], str] = str
        self.earlier_stderr: deque[str] = deque(maxlen=3)

    @property
    def pid(self) -> int | None:
        """Its process, while it is connected over stdio."""
        return self.session.pid if self.life.state in CONNECTED or self.life.state == "stopping" else None

    def configure(self, config: ServerConfig) -> None:
        """Take over a changed configuration."""
        self.config, self.health.policy = config, config.health

    def follow_stderr(self, read: Callable[[], str]) -> None:
        """Read the stderr of a new process from now on, and keep the end of that of the one before, in 4 KiB."""
        if text := self.read_stderr()[-4096:].strip():
            self.earlier_stderr.append(text)
        self.read_stderr = read

    def keep_stderr(self) -> None:
        """Keep the end of the stderr of a connection that has ended, and nothing else of it."""
        text = self.read_stderr()
        self.read_stderr = lambda: text

    def describe(self, deadline: Deadline) -> dict[str, str | int | float]:
        """Return the attributes of the span of a request that is about to be sent."""
        return {
            "mcp_actors.server": self.config.name,
            "mcp_actors.replica": self.name,
            "mcp_actors.incarnation": self.life.incarnation,
            "mcp_actors.attempt": deadline.tries,
            "mcp_actors.queue_seconds": max(0.0, trio.current_time() - (deadline.since or deadline.began)),
        }

    def retire(self, why: Retirement) -> None:
        """Ask the group to disconnect it."""
        self.server.on_retire(why, self)

    def leave(self) -> None:
        """Refer to nothing of the server any more; no actor of it runs again. What a ref shows of it stays."""
        self.listeners.clear()
        self.life.leave()
        self.health.on_change = nothing
        del self.server, self.config, self.calls, self.catalog, self.opening, self.subscriptions, self.health


class ServerRecord:
    """The lasting parts of one server. Each part says who writes it; everybody may read all of them.

    Attributes:
        connections: its connections. Replaced by `configure`, which keeps those with the same name.
        config: the configuration. Changed by `configure` and `move` only.
        required: whether a failed start is an error of the caller that started it.
        strict: whether a failed start also ends there, as in `open_servers`, and is not followed by further attempts.
            Read when its own supervisor is started; written by the group.
        callbacks: the user's callbacks.
        client_info: how the client introduces itself to the server; None for the default.
        life: the state of the server, and what is wanted of it.
        info: its description of itself at the latest connect; None before that. Written by the connection.
        opening: what the next connect begins with. Written by the connection.
        resources: the resources, if they are kept. Written by the connection, and by the request that lists them again.
        catalog: the tools. Its writers are listed in ``_catalog``.
        listeners: receive what the server sends, over any connection.
        done: the pages that a person has left as the server wants it. Written by the connection.
        subscriptions: subscriptions to resources, which each connection renews.
        health: the health of its connections.
        calls: what all requests share. Written by their callers.
        on_retire: called when a connection is unused (``idle_timeout``) or old (``max_lifetime``), with its record. Set
            by the group.
        capacity, certificates: what all servers of the group share.
        woken: True if its own supervisor is not dormant: it was started, or is about to be. Written by the group.
        place: the place in the order in which servers connect, if they do not do so at the same time.
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
        self.opening: Opening = Opening(self.callbacks.log_level)
        self.listeners: Listeners = Listeners(config.name)
        self.done: DonePages = DonePages()
        self.subscriptions: Subscriptions = Subscriptions(self.listeners)
        self.listeners.add(object, self._heard)
        self.catalog: ServerCatalog = ServerCatalog(config, CatalogReporter(proxy(self)), naming)
        self.health: ServerHealth = ServerHealth()
        self.life: ServerLife = ServerLife(config, emit, self.subscriptions.wake)
        self.calls: Calls = Calls(config, timer)
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
        """Take over a changed configuration, while no incarnation of an actor runs.

        Everything that belongs to the server stays: waiting requests, subscriptions, accepted tools.
        """
        if callbacks.log_level != self.callbacks.log_level:
            self.opening.log_level = callbacks.log_level
        self.opening.era, self.opening.worked = None, False  # it may be another program
        self.config, self.required, self.callbacks, self.client_info = config, required, callbacks, client_info
        self.strict = False  # the change has been made, whether it connects now or later
        self.calls.configure(config)
        self.catalog.configure(config)
        self.resources.keep(config.keep_resources)
        self._connect()

    def _connect(self) -> None:
        """Have the connections that the configuration says, while none of them runs."""
        names, before = actors_of(self.config), {each.name: each for each in self.connections}
        new = {name: before.get(name) or ConnectionRecord(self, name) for name in names}
        self.connections = tuple(new.values())
        for each in before.values():
            if each.name not in new:
                each.leave()
        self.listeners.changed = set() if len(names) > 1 else None  # what only one process announces need not be merged
        self.health.failing.intersection_update(names)
        self.health.each = tuple(each.health for each in self.connections)
        self.life.consist_of(each.life for each in self.connections)
        self._use(self.config)

    def _use(self, config: ServerConfig) -> None:
        self.config = self.life.config = config
        for each in self.connections:
            each.configure(config)

    def move(self, config: ServerConfig) -> None:
        """Take over an equal configuration that is written elsewhere (``source``). The connection stays."""
        self._use(config)
        self._applied = config
        self.life.want(moved(self.life.wanted, config))

    @property
    def seen(self) -> tuple[Seen, ...]:
        """What decisions about the server need to know of its connections."""
        return tuple(each.life.seen for each in self.connections)

    def note_old_question(self, operation: str, said: str) -> NotSupported | None:
        """Return the error for a question that has no answer in this era (with a warning, once), or no callback.

        Args:
            operation: the request during which the server has asked.
            said: the text of its error. If it is about something else, return None.
        """
        found = OLD_QUESTION.search(said)
        if found is None or self.info is None or is_modern(self.info.protocol_version) != bool(found[1]):
            return None
        kind, name = (found[1] or found[2]).lower(), self.config.name
        if not found[1]:
            return not_offered(name, operation, kind) if getattr(self.callbacks, kind) is None else None
        what = f"asks for {kind} in the way of 2025-11-25, which is not supported in sessions since 2026-07-28"
        remedy = f"set protocol='legacy' for it, and callbacks=Callbacks({kind}=…) if it has none"
        if not self.opening.warned:
            self.opening.warned = True
            logger.warning("server %r: %s %s; %s", name, operation, what, remedy)
        what = f"server {name!r}: {operation} {what}; it may have taken effect; {remedy}"
        return NotSupported(what, server=name, capability=kind)

    @property
    def current(self) -> bool:
        """True if the server and its own supervisor have the configuration that is wanted."""
        return self._applied is self.life.wanted.config

    def note_applied(self, config: ServerConfig) -> None:
        """Note the configuration with which the server's own supervisor was started."""
        self._applied = config
        self.life.note_change()

    @property
    def failed(self) -> bool:
        """True if the server has failed, and was not stopped."""
        return self.life.wanted.mode == "run" and self.life.state in FAILED

    @property
    def is_used(self) -> bool:
        """True while a request has no outcome yet, or a subscription is registered."""
        return bool(self.calls.deadlines.pending(queued=True) or len(self.subscriptions))

    @property
    def connected(self) -> Sequence[ConnectionRecord]:
        """Its connections that are connected; the first one if none is."""
        return [each for each in self.connections if each.life.state in CONNECTED] or self.connections[:1]

    @property
    def pid(self) -> int | None:
        """Its process, while it is connected over stdio; None with replicas, each of which has one."""
        own = self.connection(self.config.name)
        return None if own is None else own.pid

    def in_flight(self, connection: ConnectionRecord) -> int:
        """Return the number of callers' requests that a connection has."""
        return self.calls.deadlines.pending(queued=False, actors=(connection.name,))

    def connection(self, actor: str | None) -> ConnectionRecord | None:
        """Return the record of the connection that an actor has; None for another actor, as that of a pool."""
        return next((each for each in self.connections if each.name == actor), None)

    def spare(self) -> ConnectionRecord:
        """Return the record of a connection for an isolated attempt.

        Its health looks at the deadlines of the server, where the request of the attempt is.
        """
        spare = ConnectionRecord(self, f"{self.config.name}{ISOLATED}", spare=True)
        spare.life.forgive(ask=False)  # the connection of the server asks a person, once for all
        return spare

    def ignores(self, event: Event) -> bool:
        """Return True for an event of an incarnation that has nothing to run.

        Decided once, when it begins, and read by its actor (`ConnectionLife.ignored`). Something else may be wanted a
        moment later, and the record must not ignore an actor that connects. A pool of replicas runs in any case.
        """
        if (connection := self.connection(event.actor)) is None:
            return False
        life = connection.life
        if isinstance(event, Starting):
            life.ignored = self.life.idle
        return life.ignored and life.state in ("pending", "stopped")

    def follow(self, event: Event) -> Sequence[ServerEvent]:
        """Take an event of an actor of this server into account. Return the events to emit if a state has changed."""
        whole = event.actor == self.config.name
        lives = (each.life for each in self.connections)
        changes = self.life.follow(
            event, [each for each in lives if is_followed(each.state, event, own=each.name == event.actor, whole=whole)]
        )
        if self.life.state in PARKED and self.life.wanted.mode == "rest":
            # It failed before it came to rest. `failed` and `retry_at` are about servers that are to run.
            self.life.want(used(self.life.wanted))
        return changes

    def forgive(self, *, ask: bool) -> None:
        """Forget the failures of a server that is started explicitly, or has another configuration."""
        for each in self.connections:
            each.life.forgive(ask)
        if self.life.state not in CONNECTED:
            self.health.forgive()

    def observe_calls(self, observers: tuple[CallObserver, ...]) -> None:
        """Call these observers when an attempt of a request is settled."""

        def describe(actor: str) -> ConnectionFacts:
            version = None if self.info is None else self.info.protocol_version
            return ConnectionFacts(self.config, version, (self.connection(actor) or self).life.error)

        name, lists = self.config.name, self.catalog.lists
        self.calls.deadlines.observed = Observed(name, observers, lists, describe) if observers else None

    def leave(self) -> None:
        """Release all that refers to the server: it was removed from its group, or the group has ended.

        What a ref shows stays as long as the program has the ref.
        """
        self.life.leave()
        self.subscriptions.close()
        self.listeners.clear()
        self.calls.deadlines.leave()
        self.on_retire = nothing
        for each in self.connections:
            each.leave()

    def mask(self, text: str) -> str:
        """Mask the credentials of all connections."""
        for each in self.connections:
            text = each.session.masker(text)
        return text

    def _timed_out(self, deadline: Deadline, error: Exception) -> None:
        if (asked := self.connection(deadline.actor)) is not None:  # not a spare one
            asked.health.timed_out(deadline.began, error)

    def answered(self, deadline: Deadline) -> None:
        """Note an answer, after failures."""
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
    """Return the name of the server that has this replica; the name itself if it is not that of a replica."""
    server, _, number = actor.partition(REPLICA)
    return server if number.isdecimal() else actor


def actors_of(config: ServerConfig) -> list[str]:
    """Return the names of the actors that have the connections of a server: its own name, or one for each replica."""
    if config.replicas == 1:
        return [config.name]
    return [f"{config.name}{REPLICA}{number}" for number in range(1, config.replicas + 1)]


# --- Report changes of a server's tools as events and log records -----------------------------------------------------


class CatalogReporter(Reporter):
    """Reports changes of the catalogue of one server.

    Args:
        record: the record of the server, as a weak reference: the catalogue is a part of it.
    """

    def __init__(self, record: ServerRecord) -> None:
        self._record = record

    def mask(self, text: str) -> str:
        """Mask the credentials of the current connections."""
        return self._record.mask(text)

    def emit(self, kind: type[ServerEvent], **details: object) -> None:
        self._record.life.emit(kind, **details)

    def changed(self, difference: Difference) -> None:
        """Report that the shown tools have changed."""
        self.emit(ToolsChanged, **difference._asdict())

    def differs(self, verdict: PinVerdict) -> None:
        """Report that the listed tools differ from the accepted ones."""
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
        """Report names in the filter that no tool has."""
        logger.warning(
            "server %r: its ToolFilter has names of tools that the server does not list: %s; correct "
            "ServerConfig.tool_filter",
            self._record.config.name,
            self.mask(names),
        )

    def listed_again(self) -> None:
        """Report that the server lists its tools again."""
        self._record.life.recover()

    def invalid(self, problem: str) -> None:
        """Report that an item is left out because it is not valid."""
        logger.warning("server %r: %s", self._record.config.name, self.mask(problem))

    def over_limit(self, error: LimitExceeded) -> None:
        error.args = (self.mask(str(error)),)  # it quotes names of the server
        logger.warning("%s", error)
        self.emit(LimitReached, error=error)


# --- The resources, templates and prompts that a server listed last ---------------------------------------------------


class KeptResources:
    """The resources and prompts of one server, with ``ServerConfig.keep_resources``; without it they stay empty.

    They outlive connections. A new connection writes them, and after it the task that lists them again
    (`keep_resources_listed`). `keep` empties them while there is no connection.

    Attributes:
        resources: the listed resources.
        templates: the listed templates.
        prompts: the listed prompts.
        answers: the number of answers that differed from the answer before.
        freshness: whether the last answer is outdated.
        kept: whether they are listed. Changed by `keep`.

    Args:
        kept: see above.
        on_change: called at each change of the resources or templates.
        on_prompts: called at each change of the prompts.
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

    def begin(self) -> Ticket:
        """Register that the server is about to be asked for its resources."""
        return self.freshness.begin()

    def show(
        self,
        ticket: Ticket,
        resources: tuple[Resource, ...],
        templates: tuple[ResourceTemplate, ...],
        prompts: tuple[Prompt, ...],
    ) -> None:
        """Show the answer to a request."""
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
        """Follow a changed configuration."""
        self.kept = kept
        if not kept:
            self.show(self.begin(), (), (), ())

    def mark_stale(self) -> None:
        """Have all listed again, because the server has announced a change of resources, or may have.

        Without a list the event for a change is emitted now, and not only if the list differs.
        """
        self._changed(self._on_change)

    def mark_prompts_stale(self) -> None:
        """Have all listed again, because the server has announced a change of prompts, or may have."""
        self._changed(self._on_prompts)

    def _changed(self, emit: Callable[[], None]) -> None:
        if self.kept:
            self.freshness.mark_stale(trio.current_time())
        else:
            emit()
