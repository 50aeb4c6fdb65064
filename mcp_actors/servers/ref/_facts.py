"""Facts about a server, for programs to read through any reference.

`ServerFacts` is the base of `ServerRef`, and of the views in ``bridge`` and ``sync``. Any thread may use the members,
which read immutable values or atomic copies.

Owns: nothing.
Writes: nothing.
Calls: config, kernel, servers, servers.record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.types import Prompt, Resource, ResourceTemplate

from ..._errors import ServerUnavailable
from ..._misuse import explained_methods
from ..._pickling import Handle
from ...config import ServerConfig
from ...kernel import ActorRef
from .._admission import ToolChanges
from ..record import CONNECTED, Replicas, ReplicaStatus, ServerInfo, ServerRecord, ServerState, ServerStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...kernel import ActorStatistics
    from ..record import ConnectionRecord


@explained_methods
class ServerFacts(Handle):
    """The read-only members of a reference to a server."""

    __slots__ = ()

    _record: ServerRecord
    _actor: ActorRef

    @property
    def name(self) -> str:
        """The configured name."""
        return self._record.config.name

    @property
    def config(self) -> ServerConfig:
        """The server's configuration."""
        return self._record.config

    @property
    def state(self) -> ServerState:
        """``pending, connecting, ready, degraded, unhealthy, backoff, failed, needs_auth, stopping`` or ``stopped``."""
        return self._record.life.state

    @property
    def info(self) -> ServerInfo:
        """The server's name, version, capabilities and instructions, as of the latest connection.

        Raises:
            ServerUnavailable: the server has never been connected.
        """
        info = self._record.info
        if info is None:
            raise ServerUnavailable(
                f"server {self.name!r} has no info because it has never been connected (it is {self.state}); "
                "await wait_state('ready') first",
                server=self.name,
                state=self.state,
                last_error=self._record.life.error,
                outcome="not_sent",
            )
        return info

    @property
    def stderr_tail(self) -> str:
        """The last lines of stderr, up to 64 KiB per process, with credentials masked. Empty without a process.

        Includes all replicas; of each, the current process, or the last one until another is started.
        """
        return "\n".join(tail for each in self._record.connections if (tail := each.read_stderr()))

    def statistics(self) -> ServerStatus:
        """Return a frozen snapshot of the server's state and counters."""
        record, actor = self._record, self._actor.statistics()
        return ServerStatus(
            name=self.name,
            title=record.config.title or record.config.name,
            source=record.config.source,
            state=record.life.state,
            since=record.life.since,
            changed_at=record.life.changed_at,
            retry_at=record.life.retry_at,
            reason=record.life.reason,
            incarnation=record.life.incarnation,
            pid=record.pid,
            last_error=record.life.last_error,
            failures=record.life.failures,
            restarts=max(0, record.life.connects - len(record.connections)),
            queued=actor.queued,
            in_flight=actor.in_flight,
            tools=len(record.catalog.tools),
            required=record.required,
            health=record.health.status(connected=record.life.state in CONNECTED),
            latency=record.calls.latency.snapshot(),
            replicas=Replicas(tuple(self._status_of(each, actor) for each in record.connections)),
        )

    def _status_of(self, connection: ConnectionRecord, server: ActorStatistics) -> ReplicaStatus:
        """Take a snapshot of a connection. The actor already counts the requests of an only connection."""
        whole = connection.name == self.name
        return ReplicaStatus(
            name=connection.name,
            state=connection.life.state,
            pid=connection.pid,
            incarnation=connection.life.incarnation,
            restarts=max(0, connection.life.connects - 1),
            in_flight=server.in_flight if whole else self._record.in_flight(connection),
            last_error=connection.life.last_error,
        )

    @property
    def tool_changes(self) -> ToolChanges:
        """The tools that wait for approval (``on_tool_change="block"``). False if no tool waits."""
        return self._record.catalog.admission.changes()

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources that the server listed last, with ``ServerConfig.keep_resources``; else empty.

        Do not change the objects. The event `ResourcesChanged` is emitted when this or `resource_templates` has
        changed.
        """
        return self._record.resources.resources

    @property
    def resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """The resource templates that the server listed last, like `resources`."""
        return self._record.resources.templates

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts that the server listed last, with ``ServerConfig.keep_resources``; else empty.

        Do not change the objects. The event `PromptsChanged` is emitted when this has changed.
        """
        return self._record.resources.prompts

    def _schema_of(self, tool: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool; None if not listed."""
        return next((each.tool.input_schema for each in self._record.catalog.tools if each.name == tool), None)
