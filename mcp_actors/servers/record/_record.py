"""The part of one server that outlives its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import define, field
from mcp.types import PromptListChangedNotification, ResourceListChangedNotification, ToolListChangedNotification

from ...catalog.names import DEFAULT_NAMING
from ...config import EffectiveCallbacks
from ...kernel import Crashed, StartFailed
from ..basics import Capacity
from ..policy import Breaker, Deadlines, LatencyCounts, RetryTokens
from ..tools import ServerCatalog
from ..transports import Masker
from ._events import PromptsChanged, ResourcesChanged
from ._health import ServerHealth
from ._life import ServerLife
from ._notifications import Listeners, NotificationsMissed
from ._reporter import CatalogReporter
from ._resources import KeptResources
from ._subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import Implementation, LoggingLevel

    from ...config import ServerConfig
    from ...kernel import Event
    from ..policy import Era
    from ._events import StateChanged
    from ._status import ServerInfo

__all__ = ["Calls", "Retirement", "ServerRecord", "Session"]

Retirement: TypeAlias = Literal["idle", "old"]


@define(eq=False)
class Session:
    """Facts about the current or last session, written by the connection.

    Attributes:
        info: the server's description of itself; None before the first connection.
        pid: the process of the server, while it is connected over stdio.
        masker: masks the credentials of the current connection.
        era: the era that the next connect begins with; None if that is to be negotiated.
        log_level: the lowest level of log messages to request; None does not request any. Written by `SetLogLevel`.
    """

    log_level: LoggingLevel | None
    info: ServerInfo | None = None
    pid: int | None = None
    masker: Masker = field(factory=Masker)
    era: Era | None = None


class Calls:
    """Shared by all requests to one server, whichever connection they are sent on; written by their callers.

    Attributes:
        deadlines: their deadlines, also while the server is down.
        tokens: the rest of the retry budget.
        breaker: the circuit breaker, if one is configured.
        latency: counts of outcomes and durations.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.deadlines: Deadlines = Deadlines(config.name, config.request_timeout, config.progress_timeout)
        self.latency: LatencyCounts = LatencyCounts()
        self._begin_anew(config)

    def configure(self, config: ServerConfig) -> None:
        """Take over a changed configuration, also for the requests that wait."""
        self.deadlines.set_limits(config.request_timeout, config.progress_timeout)
        self._begin_anew(config)

    def _begin_anew(self, config: ServerConfig) -> None:
        self.tokens: RetryTokens = RetryTokens(config.retry.budget)
        self.breaker: Breaker | None = Breaker(config.name, config.breaker) if config.breaker is not None else None


class ServerRecord:
    """The lasting parts of one server. Each part says who writes it; everybody may read all of them.

    Attributes:
        config: the configuration. Changed by `configure` only, as are the next three.
        required: whether a failed start is an error of the caller that started it.
        callbacks: the user's callbacks.
        client_info: how the client introduces itself to the server; None for the default.
        life: the state of the server. Follows the events of its actor.
        session: facts about the current or last session. Written by the connection.
        resources: the resources, if they are kept. Written by the connection, and by the request that lists them again.
        catalog: the tools. Written by the connection, and by requests that list them.
        listeners: receive what the server sends, over any connection.
        subscriptions: subscriptions to resources, which each connection renews.
        health: consecutive failures and checks. Written by health checks, and by requests that end.
        calls: what all requests share. Written by their callers.
        retire: called when a connection is unused (``idle_timeout``) or old (``max_lifetime``). Set by the group.
        capacity: what all servers of the group share.
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
        naming: str = DEFAULT_NAMING,
    ) -> None:
        self.config: ServerConfig = config
        self.required: bool = required
        self.callbacks: EffectiveCallbacks = callbacks or EffectiveCallbacks()
        self.client_info: Implementation | None = client_info
        self.retire: Callable[[Retirement], object] = _nobody
        self.capacity: Capacity = capacity or Capacity()
        self.place: int = self.capacity.new_place()
        self.session: Session = Session(_level_of(self.callbacks))
        self.listeners: Listeners = Listeners(config.name)
        self.subscriptions: Subscriptions = Subscriptions(self.listeners)
        self.calls: Calls = Calls(config)
        self.health: ServerHealth = ServerHealth(
            config.name, config.health, self.calls.deadlines, lambda: self.life.health_changed()
        )
        self.calls.deadlines.on_timeout = self.health.timed_out
        self._reporter = CatalogReporter(
            config,
            lambda kind, **details: self.life.emit(kind, **details),
            lambda: self.life.recover(),
            lambda text: self.session.masker(text),
        )
        self.catalog: ServerCatalog = ServerCatalog(config, self._reporter, naming)
        self.life: ServerLife = ServerLife(
            config, emit, self.catalog, self.health, required=required, on_change=self.subscriptions.wake
        )
        self.resources: KeptResources = KeptResources(lambda: self.life.emit(ResourcesChanged))
        self.listeners.add(object, self._heard)

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
        if (level := _level_of(callbacks)) != _level_of(self.callbacks):
            self.session.log_level = level
        self.session.era = None  # it may be another program
        self.config, self.required, self.callbacks, self.client_info = config, required, callbacks, client_info
        self._reporter.config = config
        self.health.policy = config.health
        self.calls.configure(config)
        self.catalog.configure(config)
        if not config.keep_resources:
            self.resources.show(self.resources.begin(), (), ())
        self.life.configure(config, required=required)

    @property
    def is_used(self) -> bool:
        """True while a request has no outcome yet, or a subscription is registered."""
        return bool(self.calls.deadlines.pending(queued=True) or len(self.subscriptions))

    def follow(self, event: Event) -> StateChanged | None:
        """Take an event of the server's actor into account. Return the event to emit if the state has changed."""
        if isinstance(event, Crashed | StartFailed):
            self.session.pid = None  # at once, and not only when the connection has been left
        return self.life.follow(event)

    def leave(self) -> None:
        """Note that the ``open_servers`` block has exited."""
        self.life.leave()
        self.subscriptions.close()

    def _heard(self, message: object) -> None:
        """Note which lists may have changed. One listener for all kinds, because there may be a thousand servers."""
        match message:
            case ToolListChangedNotification():
                self.catalog.mark_stale()
            case ResourceListChangedNotification():
                self._resources_may_have_changed()
            case PromptListChangedNotification():
                self.life.emit(PromptsChanged)
            case NotificationsMissed():
                self.catalog.mark_stale()
                self._lists_may_have_changed()

    def _lists_may_have_changed(self) -> None:
        """Emit the events for lists whose notifications may have been missed, unless it never was connected."""
        info = self.session.info
        if info is not None and info.supports.resources:
            self._resources_may_have_changed()
        if info is not None and info.supports.prompts:
            self.life.emit(PromptsChanged)

    def _resources_may_have_changed(self) -> None:
        """Have the kept resources listed again, which emits the event if they differ; else emit it now."""
        if self.config.keep_resources:
            self.resources.mark_stale()
        else:
            self.life.emit(ResourcesChanged)


def _nobody(why: Retirement) -> None:
    """Leave the connection as it is."""


def _level_of(callbacks: EffectiveCallbacks) -> LoggingLevel | None:
    """Return the log level to request from the first connection on; None if there is no callback."""
    return callbacks.log_level if callbacks.logging is not None else None
