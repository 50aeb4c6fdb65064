"""The record of one server, which puts its lasting parts together.

`ServerRecord` makes the parts of this room, the catalogue and the `Calls` of a server, and passes events and reports
from one to the other; it also makes the records of replicas and of isolated attempts. Smaller parts are here: facts
about the current session (`Session`), what the next connect begins with (`Opening`, `SignInQuestions`), the reports of
the catalogue as events and log records (`CatalogReporter`), and the resources and prompts that were listed last
(`KeptResources`).

The roster of a group makes it; an isolated retry has a copy. Connections, requests, refs and the group read it, and
write the parts that `ServerRecord` says. It emits events by the function that it was given, and calls `on_retire`,
which the group sets. It reads Trio's clock. It sends no request, and starts no task and no actor.

Theory of operation
-------------------
Code of a connection writes the parts of the record that its actor was given (`info`: of the server's record). Without
replicas that is the record of the server. With replicas each actor has a record of its own, a copy of that of the
server with another `name`, `replicas`, `life`, `session`, `listeners`, `health` and `read_stderr`; the catalogue, the
calls, the subscriptions and the other objects are shared. A message of one process reaches the listeners of its own
record, which pass it on to the listeners of the server.

The state of a server with replicas is computed in the step of each event of one: kernel events, which come through
`ServerRecord.follow`, and events of its own life, such as a change of its health, which come through `_emit_for`. It is
the state of the best replica, or ``stopping`` while the server drains. What is wanted (`ServerLife.wanted`) belongs to
the life of the server, where the lives of replicas ask for it.

The records of replicas are made anew with each changed configuration (`_divide`), while no actor of the server runs.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio
from attrs import define, evolve, field
from mcp.types import PromptListChangedNotification, ResourceListChangedNotification, ToolListChangedNotification

from ..._foreign import Log
from ...catalog._names import DEFAULT_NAMING
from ...config import EffectiveCallbacks
from ...kernel import Crashed, StartFailed, Starting
from ...transports import Capacity, Certificates, Masker
from .._attempts import ConnectionFacts, Observed
from .._catalog import Freshness, Reporter, ServerCatalog
from .._deadlines import Calls
from ._health import ServerHealth, SharedHealth
from ._life import ServerLife
from ._states import (
    CONNECTED,
    FAILED,
    PARKED,
    Drained,
    Draining,
    LimitReached,
    PromptsChanged,
    ReplicaChanged,
    ResourcesChanged,
    StateChanged,
    ToolsChanged,
    ToolsDiffer,
    is_followed,
)
from ._subscriptions import Listeners, NotificationsMissed, Subscriptions
from ._wanted import moved, started, used

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
        """Note a question."""
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
        era: the era; None if that is to be negotiated. Written by the connection.
        questions: the questions of the configured callback to a person. Written by the connection.
    """

    log_level: LoggingLevel | None
    era: Era | None = None
    questions: SignInQuestions = field(factory=SignInQuestions)


class ServerRecord:
    """The lasting parts of one server. Each part says who writes it; everybody may read all of them.

    A server with replicas has a record for itself, and one for each replica (`replicas`), from which it differs in
    `life`, `health`, `listeners` and `session`; all other parts are the same objects. The record of a server without
    replicas is also that of its only actor.

    Attributes:
        server: the record of the server: itself, except for a replica.
        name: the name of its actor; for a server with replicas, that of their pool.
        replicas: the records of its replicas, or its own if it has none. Replaced by `configure`.
        config: the configuration. Changed by `configure` and `move` only.
        required: whether a failed start is an error of the caller that started it.
        strict: whether a failed start also ends there, as in `open_servers`, and is not followed by further attempts.
            Read when its own supervisor is started; written by the group.
        callbacks: the user's callbacks.
        client_info: how the client introduces itself to the server; None for the default.
        life: the state of the server. Follows the events of its actor, or of the actors of its replicas.
        info: its description of itself at the latest connect; None before that. Written by the connection.
        session: facts about the current session. Written by the connection.
        opening: what the next connect begins with. Written by the connection.
        resources: the resources, if they are kept. Written by the connection, and by the request that lists them again.
        catalog: the tools. Its writers are listed in ``_catalog``.
        listeners: receive what the server sends, over any connection; for a replica, over its own.
        subscriptions: subscriptions to resources, which each connection renews.
        health: consecutive failures and checks. Written by health checks, and by requests that end.
        calls: what all requests share. Written by their callers.
        on_retire: called when a connection is unused (``idle_timeout``) or old (``max_lifetime``), with the record of
            its actor. Set by the group.
        capacity, certificates: what all servers of the group share.
        woken: True if its own supervisor is not dormant: it was started, or is about to be. Written by the group.
        read_stderr: returns the end of the stderr of its current or last process. Written by the connection.
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
        actor: str | None = None,
        calls: Calls | None = None,
        catalog: ServerCatalog | None = None,
    ) -> None:
        self.config: ServerConfig = config
        self.required: bool = required
        self.strict: bool = required
        self.callbacks: EffectiveCallbacks = callbacks or EffectiveCallbacks()
        self.client_info: Implementation | None = client_info
        self.on_retire: Callable[[Retirement, ServerRecord], object] = lambda *_: None
        self.server: ServerRecord = self
        self.name: str = actor or config.name
        self.capacity: Capacity = capacity or Capacity()
        self.certificates: Certificates = certificates or Certificates()
        self.place: int = self.capacity.new_place()
        self.woken: bool = False
        self.info: ServerInfo | None = None
        self.session: Session = Session()
        self.opening: Opening = Opening(self.callbacks.log_level)
        self.listeners: Listeners = Listeners(config.name)
        self.subscriptions: Subscriptions = Subscriptions(self.listeners)
        self.calls: Calls = calls or Calls(config, timer)
        deadlines = self.calls.deadlines
        self._health = ServerHealth(config.health, deadlines, lambda: self.life.health_changed(), actor=actor)
        self._reporter = CatalogReporter(config, self._report, self._recovered, self._mask)
        self.catalog: ServerCatalog = catalog or ServerCatalog(config, self._reporter, naming)
        self.life: ServerLife = ServerLife(
            config, emit, self.catalog, self._health, required=required, on_change=self.subscriptions.wake
        )
        if calls is None:  # otherwise they report to the record of the server
            deadlines.on_timeout, deadlines.outage = self._timed_out, self.life.outage
        self.resources: KeptResources = KeptResources(
            config.keep_resources, partial(self._report, ResourcesChanged), partial(self._report, PromptsChanged)
        )
        self.read_stderr: Callable[[], str] = str
        self.listeners.add(object, self._heard)
        self._emit, self._applied = emit, config
        self._divide()

    def configure(
        self,
        config: ServerConfig,
        *,
        required: bool,
        callbacks: EffectiveCallbacks,
        client_info: Implementation | None,
    ) -> None:
        """Take over a changed configuration, while no incarnation of the actor runs.

        Everything that belongs to the server stays: waiting requests, subscriptions, accepted tools.
        """
        if callbacks.log_level != self.callbacks.log_level:
            self.opening.log_level = callbacks.log_level
        self.opening.era = None  # it may be another program
        self.config, self.required, self.callbacks, self.client_info = config, required, callbacks, client_info
        self.strict = False  # the change has been made, whether it connects now or later
        self._reporter.config = config
        self._health.policy = config.health
        self.calls.configure(config)
        self.catalog.configure(config)
        self.resources.keep(config.keep_resources)
        self.life.configure(config, required=required)
        self._divide()

    def move(self, config: ServerConfig) -> None:
        """Take over an equal configuration that is written elsewhere (``source``). The connection stays."""
        for each in (self, *self.replicas):
            each.config = config
        self._reporter.config = self._applied = config
        self.life.want(moved(self.life.wanted, config))

    @property
    def seen(self) -> tuple[Seen, ...]:
        """What decisions about the server need to know of its connections."""
        return tuple(each.life.seen for each in self.replicas)

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

    def ignores(self, event: Event) -> bool:
        """Return True for an event of an incarnation that has nothing to run.

        Decided once, when it begins, and read by its actor (`ServerLife.ignored`). Something else may be wanted a
        moment later, and the record must not ignore an actor that connects.
        """
        life = self.replica(event.actor).life
        if isinstance(event, Starting):
            life.ignored = self.life.idle
        return life.ignored and life.state in ("pending", "stopped")

    def follow(self, event: Event) -> Sequence[ServerEvent]:
        """Take an event of an actor of this server into account. Return the events to emit if a state has changed."""
        if isinstance(event, Crashed | StartFailed):
            self.replica(event.actor).session.pid = None  # at once, and not only when the connection has been left
        if len(self.replicas) > 1:
            changes = self._follow_replicas(event)
        else:
            changed = self.life.follow(event)
            changes = () if changed is None else (changed,)
        if self.life.state in PARKED and self.life.wanted.mode == "rest":
            # It failed before it came to rest. `failed` and `retry_at` are about servers that are to run.
            self.life.want(used(self.life.wanted))
        return changes

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

    def hold(self, holding: bool) -> None:
        """Let requests wait for the next connection, because this one is being closed; or end that."""
        for each in self.replicas:
            each.life.holding = holding

    def retire(self, why: Retirement) -> None:
        """Ask the group to disconnect the connection of this actor."""
        self.server.on_retire(why, self)

    def observe_calls(self, observers: tuple[CallObserver, ...]) -> None:
        """Call these observers when an attempt of a request is settled."""

        def describe(actor: str) -> ConnectionFacts:
            version = None if self.info is None else self.info.protocol_version
            return ConnectionFacts(self.config, version, self.replica(actor).life.error)

        name, lists = self.config.name, self.catalog.lists
        self.calls.observed = Observed(name, observers, lists, describe) if observers else None

    def leave(self) -> None:
        """Note that the ``open_servers`` block has exited."""
        self.life.leave()
        self.subscriptions.close()

    # --- isolated attempts ------------------------------------------------------------------------------------------

    def copy_for_isolated(self) -> ServerRecord:
        """Return a record for an isolated attempt, which has a connection of its own; its events are not reported.

        Its health looks at the deadlines of the server, where the request of the attempt is.
        """
        record = ServerRecord(
            evolve(self.config, keep_resources=False, replicas=1),
            lambda event: None,
            required=True,
            callbacks=self.callbacks,
            client_info=self.client_info,
            capacity=self.capacity,
            certificates=self.certificates,
            actor=f"{self.config.name}{ISOLATED}",
            calls=self.calls,
            catalog=self.catalog.copy_for_isolated(),
        )
        record.life.want(started(record.life.wanted))
        record.life.asks_left = 0  # the connection of the server asks a person, once for all
        record.opening, record.place = evolve(self.opening), self.place
        return record

    # --- replicas ---------------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        """Make the records of the replicas, while none of them runs."""
        self.replicas: tuple[ServerRecord, ...] = (self,)
        self.health: ServerHealth = self._health
        if self.config.replicas > 1:
            self.replicas = tuple(self._replica(number) for number in range(1, self.config.replicas + 1))
            healths = [each.health for each in self.replicas]
            self.health = SharedHealth(self.config.health, self.calls.deadlines, healths)

    def _replica(self, number: int) -> ServerRecord:
        """Return the record of a replica: a copy of this one, with parts of its own."""
        replica, config = copy(self), self.config
        replica.name = f"{config.name}{REPLICA}{number}"
        replica.replicas = (replica,)
        replica.session = Session()
        replica.listeners = Listeners(config.name, of=self.listeners)
        replica.read_stderr = str
        replica.health = ServerHealth(
            config.health, self.calls.deadlines, lambda: replica.life.health_changed(), actor=replica.name
        )
        replica.life = ServerLife(
            config,
            partial(self._emit_for, replica),
            self.catalog,
            replica.health,
            required=self.required,
            on_change=self._reflect,
            of=self.life,
        )
        return replica

    def stay_connected(self) -> None:
        """Show the replicas again, if their old connections have all been lost while the server drained."""
        if len(self.replicas) > 1:
            self.life.stay_connected([each.life for each in self.replicas])

    def _reflect(self) -> None:
        self.life.reflect([each.life for each in self.replicas])

    def replica(self, actor: str | None) -> ServerRecord:
        """Return the record of an actor of this server; its own if that is not a replica."""
        return next((each for each in self.replicas if each.name == actor), self)

    @property
    def share(self) -> str | None:
        """For a replica, the name of its actor, whose requests are its own; None for a server, which has all."""
        return None if self.server is self else self.name

    def pending(self, *, queued: bool) -> int:
        """Return the number of callers' requests that it has; with ``queued``, also of those that wait."""
        return self.calls.deadlines.pending(queued=queued, actor=self.share)

    @property
    def sessions(self) -> Sequence[ServerRecord]:
        """The records of its connected replicas; its own if none is connected, and without replicas."""
        return [each for each in self.replicas if each.life.state in CONNECTED] or (self,)

    def _follow_replicas(self, event: Event) -> Sequence[ServerEvent]:
        """Take an event of a replica into account, or one of their pool, with which they end."""
        changes: list[ServerEvent] = []
        of_pool = event.actor == self.name
        for replica in self.replicas:
            if event.actor in (self.name, replica.name) and is_followed(replica.life.state, event, of_pool=of_pool):
                if (changed := replica.life.follow(event)) is not None:
                    changes.append(self._changed(replica, changed))
                self.life.last_error = replica.life.error or self.life.last_error
        return [*changes, *self._shown(event)] if changes else []

    def _shown(self, event: Event) -> Sequence[ServerEvent]:
        """Compute the state of the server after an event of a replica; return the event to emit if it has changed."""
        changed = self.life.follow_replicas([each.life for each in self.replicas], event)
        return () if changed is None else (changed,)

    def _changed(self, replica: ServerRecord, changed: StateChanged) -> ReplicaChanged:
        return ReplicaChanged(
            actor=self.config.name,
            incarnation=changed.incarnation,
            time=changed.time,
            wall=changed._wall,
            replica=replica.name,
            old=changed.old,
            new=changed.new,
            reason=changed.reason,
        )

    def _emit_for(self, replica: ServerRecord, event: Event) -> None:
        """Emit an event of a replica as one of the server."""
        if isinstance(event, StateChanged):
            for each in (self._changed(replica, event), *self._shown(event)):
                self._emit(each)
        elif not isinstance(event, Draining | Drained):  # only the replica is about to be disconnected
            self._emit(event)

    def _report(self, kind: type[ServerEvent], **details: object) -> None:
        self.life.emit(kind, **details)

    def _recovered(self) -> None:
        for each in self.replicas:
            each.life.recover()

    def _mask(self, text: str) -> str:
        for each in self.replicas:
            text = each.session.masker(text)
        return text

    def _timed_out(self, deadline: Deadline, error: Exception) -> None:
        for each in self._asked_by(deadline):
            each.health.timed_out(deadline.began, error)

    def answered(self, deadline: Deadline) -> None:
        """Note an answer, after failures."""
        for each in self._asked_by(deadline):
            each.health.answered()

    def _asked_by(self, deadline: Deadline) -> Iterator[ServerRecord]:
        """Yield the record whose actor had the latest attempt of a request. For an isolated attempt there is none."""
        return (each for each in self.replicas if each.name == deadline.actor)

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


# --- Report changes of a server's tools as events and log records -----------------------------------------------------


@define
class CatalogReporter(Reporter):
    """Reports changes of the catalogue of one server.

    Attributes:
        config: the configuration of the server. Replaced when that changes.
        emit: emits an event about the server.
        recover: called when the server lists its tools again.
        mask: masks the credentials of the current connection.
    """

    config: ServerConfig
    emit: Callable[..., None]
    recover: Callable[[], None]
    mask: Callable[[str], str]

    def changed(self, difference: Difference) -> None:
        """Report that the shown tools have changed."""
        self.emit(ToolsChanged, **difference._asdict())

    def differs(self, verdict: PinVerdict) -> None:
        """Report that the listed tools differ from the accepted ones."""
        config, blocked = self.config, bool(verdict.hidden)
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
            self.config.name,
            self.mask(names),
        )

    def listed_again(self) -> None:
        """Report that the server lists its tools again."""
        self.recover()

    def invalid(self, problem: str) -> None:
        """Report that an item is left out because it is not valid."""
        logger.warning("server %r: %s", self.config.name, self.mask(problem))

    def over_limit(self, error: LimitExceeded) -> None:
        """Report that a limit was exceeded."""
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
