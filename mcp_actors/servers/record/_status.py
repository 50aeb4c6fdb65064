"""Snapshots of a server: state, capabilities and description.

Snapshots are frozen values for programs, also as JSON (`ServerStatus.to_json`). `require` refuses a request if the
server lacks the needed capability.

Owns: nothing.
Writes: nothing.
Calls: servers, _states.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from attrs import asdict, field, frozen
from mcp.types import ServerCapabilities

from ..._errors import NotSupported
from .._deadlines import Latency
from .._rules import HealthStatus
from ._states import ACTIVE, ServerState


@frozen(kw_only=True)
class Supported:
    """The capabilities that a server declares.

    Attributes:
        tools: has tools.
        tools_list_changed: sends a notification when the list of tools changes.
        resources: has resources.
        resources_list_changed: sends a notification when the list of resources changes.
        resources_subscribe: accepts subscriptions to single resources.
        prompts: has prompts.
        prompts_list_changed: sends a notification when the list of prompts changes.
        completions: completes arguments of prompts and of resource templates.
        logging: sends log messages.
    """

    tools: bool
    tools_list_changed: bool
    resources: bool
    resources_list_changed: bool
    resources_subscribe: bool
    prompts: bool
    prompts_list_changed: bool
    completions: bool
    logging: bool


def supported_by(capabilities: ServerCapabilities) -> Supported:
    tools, resources, prompts = capabilities.tools, capabilities.resources, capabilities.prompts
    return Supported(
        tools=tools is not None,
        tools_list_changed=tools is not None and tools.list_changed is True,
        resources=resources is not None,
        resources_list_changed=resources is not None and resources.list_changed is True,
        resources_subscribe=resources is not None and resources.subscribe is True,
        prompts=prompts is not None,
        prompts_list_changed=prompts is not None and prompts.list_changed is True,
        completions=capabilities.completions is not None,
        logging=capabilities.logging is not None,
    )


@frozen(kw_only=True)
class ServerInfo:
    """A server's description of itself, at the last connect.

    Attributes:
        name: the server's own name; None if not declared (optional since 2026-07-28).
        version: the server's version; None if not declared.
        protocol_version: the negotiated protocol version.
        capabilities: the capabilities, in the SDK's class.
        instructions: instructions for the model; None if not declared. Programs must pass them to a model explicitly.
    """

    name: str | None
    version: str | None
    protocol_version: str
    capabilities: ServerCapabilities = field(hash=False)
    instructions: str | None

    @property
    def supports(self) -> Supported:
        """The capabilities as booleans: ``info.supports.resources_subscribe``."""
        return supported_by(self.capabilities)


@frozen(kw_only=True)
class ReplicaStatus:
    """A snapshot of one process of a server, or of one connection to a remote server.

    Attributes:
        name: the name of the actor, as in events: ``"time:2"``, or the server's name without replicas.
        pid: the process, while connected over stdio.
        incarnation: the number of the actor's current or last incarnation.
        restarts: connects beyond the first.
        in_flight: the number of requests without an answer yet.
        last_error: the last failure, kept after a recovery.
    """

    name: str
    state: ServerState
    pid: int | None
    incarnation: int
    restarts: int
    in_flight: int
    last_error: Exception | None


@frozen
class Replicas:
    """A snapshot of all processes of a server (``ServerConfig.replicas``).

    Attributes:
        each: one entry per process; a server without replicas has one entry.
    """

    each: tuple[ReplicaStatus, ...]

    @property
    def total(self) -> int:
        """The number of replicas."""
        return len(self.each)

    @property
    def active(self) -> int:
        """The number of replicas with requests in flight."""
        return sum(each.in_flight > 0 for each in self.each)

    @property
    def idle(self) -> int:
        """The number of replicas that serve and have no requests in flight."""
        return sum(each.state in ACTIVE and not each.in_flight for each in self.each)

    @property
    def serving(self) -> int:
        """The number of replicas that serve."""
        return sum(each.state in ACTIVE for each in self.each)


@frozen(kw_only=True)
class ServerStatus:
    """A snapshot of one server.

    Attributes:
        name: the configured name.
        title: the name for people (``ServerConfig.title``), or else the configured name.
        source: the path of the configuration file or the name of the table; None for Python code.
        state: with replicas, the state of the best replica.
        since: `trio.current_time` at the last change of the state, in seconds.
        changed_at: the wall-clock time of the same change, in UTC.
        retry_at: the time of the next attempt while ``failed`` or ``needs_auth`` (``RestartPolicy.park_retry``), in
            UTC; None without a retry.
        reason: the reason for the state. For a starting process, the last line of stderr.
        incarnation: the number of the actor's current or last incarnation, as in events; 0 before the first.
        pid: the process, while connected over stdio. None with replicas; see ``replicas``.
        last_error: the last failure, kept after a recovery.
        failures: failed connects and lost connections since the server last served.
        restarts: connects beyond the first; with replicas, summed.
        queued: the number of requests in the mailbox.
        in_flight: the number of sent requests without an answer yet.
        tools: the number of shown tools, including tools remembered from an earlier run.
        required: True if a program is not ready without the server (``ServerConfig.required``, or ``strict`` of the
            group).
        health: the result of the health checks.
        latency: counts of answered and failed requests, and the durations of the answers.
        replicas: all processes of the server, and how many are busy.
    """

    name: str
    title: str
    source: str | None
    state: ServerState
    since: float
    changed_at: datetime
    retry_at: datetime | None
    reason: str
    incarnation: int
    pid: int | None
    last_error: Exception | None
    failures: int
    restarts: int
    queued: int
    in_flight: int
    tools: int
    required: bool
    health: HealthStatus
    latency: Latency
    replicas: Replicas

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as values that `json.dumps` takes: a dict, with a dict or a list for each part.

        Times are in UTC, in the form of ISO 8601. An error is a dict with a ``type`` and a ``message`` with credentials
        masked. `since` is left out, because Trio's clock means nothing outside of this program.
        """
        values = asdict(self, value_serializer=_to_json)
        del values["since"]
        return values


def _to_json(instance: object, attribute: object, value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Exception):
        return {"type": type(value).__name__, "message": str(value)}
    return value


def require(capability: str, capabilities: ServerCapabilities, server: str, operation: str) -> None:
    """Check that a server has a capability (an attribute of `Supported`) before sending a request.

    Raises:
        NotSupported: the server does not have the capability.
    """
    if getattr(supported_by(capabilities), capability):
        return
    raise NotSupported(
        f"server {server!r}: capability {capability.replace('_', '.', 1)!r} is not supported, so {operation} was not "
        f"sent; check info.supports.{capability} first",
        server=server,
        capability=capability,
    )
