"""Snapshots of a server: state, capabilities and description.

Frozen values for programs: `ServerStatus` with `Replicas` and `ReplicaStatus`, which `ServerRef.statistics` makes, also
as JSON-like values (`ServerStatus.to_json`); and `ServerInfo`, which the actor makes at each connect, with its
capabilities as booleans (`Supported`). `require`, the last function, raises `NotSupported` for a capability that the
server lacks. Requests that get a prompt, complete, or read or subscribe to resources call it before they are sent,
completions only where the protocol version has that capability; a log level calls it only where the protocol sends it
as a request (up to 2025-11-25).

The file uses the states, and types of the deadlines and the rules. It changes nothing, reads no clock and logs nothing.
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
    """The capabilities of a server, as it declares them.

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
    """Return capabilities as booleans."""
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
        name: its own name; None if it declared none (optional since 2026-07-28).
        version: its version; None if it declared none.
        protocol_version: the negotiated protocol version.
        capabilities: its capabilities, as the SDK has them.
        instructions: its instructions for the model; None if it declared none. No model gets them by itself.
    """

    name: str | None
    version: str | None
    protocol_version: str
    capabilities: ServerCapabilities = field(hash=False)
    instructions: str | None

    @property
    def supports(self) -> Supported:
        """Its capabilities as booleans: ``info.supports.resources_subscribe``."""
        return supported_by(self.capabilities)


@frozen(kw_only=True)
class ReplicaStatus:
    """A snapshot of one process of a server, or of one connection if it runs elsewhere.

    Attributes:
        name: the name of the actor that runs it, as in events: ``"time:2"``, or that of the server if it has only one.
        state: its state.
        pid: its process, while it is connected over stdio.
        incarnation: the number of the current or last incarnation of its actor.
        restarts: connects beyond the first.
        in_flight: the number of requests that it has and that have no answer yet.
        last_error: the last failure, kept after it has recovered.
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
        each: one entry for each, also for a server that has only one.
    """

    each: tuple[ReplicaStatus, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.each)

    @property
    def active(self) -> int:
        """How many have requests in flight."""
        return sum(each.in_flight > 0 for each in self.each)

    @property
    def idle(self) -> int:
        """How many serve, and have no requests in flight."""
        return sum(each.state in ACTIVE and not each.in_flight for each in self.each)

    @property
    def serving(self) -> int:
        """How many serve."""
        return sum(each.state in ACTIVE for each in self.each)


@frozen(kw_only=True)
class ServerStatus:
    """A snapshot of one server.

    Attributes:
        name: its configured name.
        title: its name for people (``ServerConfig.title``), or else its configured name.
        source: where its configuration is written: the path of a file, or the name of a table; None for Python code.
        state: its state; with replicas, that of the best one.
        since: `trio.current_time` at the last change of the state, in seconds.
        changed_at: the wall-clock time of that change, in UTC.
        retry_at: the time at which a ``failed`` server is retried (``RestartPolicy.park_retry``), in UTC; None if it is
            not retried.
        reason: the reason for the state. While a process starts, that is the last line of its stderr.
        incarnation: the number of the current or last incarnation of its actor, as in events; 0 before the first.
        pid: its process, while it is connected over stdio. None with replicas; see these.
        last_error: the last failure, kept after the server has recovered.
        failures: failed connects and lost connections since it last served.
        restarts: connects beyond the first; with replicas, of all together.
        queued: the number of requests in its mailbox.
        in_flight: the number of requests that were sent and have no answer yet.
        tools: the number of its shown tools, including tools remembered from an earlier run.
        required: whether a program is not ready without it (``ServerConfig.required``, or ``strict`` of its group).
        health: the result of its health checks.
        latency: counts of answered and failed requests, and the durations of the answers.
        replicas: its processes, and how many of them are busy.
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

        Times are in UTC, in the form of ISO 8601. An error is a dict with its ``type`` and its ``message``, in which
        credentials are masked. `since` is left out, because it means nothing outside of this program.
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
    """Check that a server has a capability before a request that needs it.

    Args:
        capability: an attribute of `Supported`.
        capabilities: what the server can do.
        server: the name of the server.
        operation: the request, with its protocol method.

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
