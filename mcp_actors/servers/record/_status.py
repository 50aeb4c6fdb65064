"""What can be known about a server at a glance: frozen data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ..._errors import NotSupported

if TYPE_CHECKING:
    from datetime import datetime

    from mcp import Client
    from mcp.types import ServerCapabilities

    from ..policy import HealthStatus, Latency
    from ._state import ServerState

__all__ = ["ServerInfo", "ServerStatus", "Supported", "require"]


@frozen(kw_only=True)
class Supported:
    """What a server says that it can do.

    Attributes:
        tools: it has tools.
        tools_list_changed: it tells when their list changes.
        resources: it has resources.
        resources_list_changed: it tells when their list changes.
        resources_subscribe: it tells when one changes, to whoever subscribes to it.
        prompts: it has prompts.
        prompts_list_changed: it tells when their list changes.
        completions: it completes the arguments of prompts and of resource templates.
        logging: it sends log messages.
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
    """Return what a server's capabilities say, as booleans."""
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
    """What a server said about itself when it was connected last.

    Attributes:
        name: its own name; None if it did not say (2026-07-28 lets it).
        version: its version; None likewise.
        protocol_version: the protocol version that was negotiated.
        capabilities: what it can do, as the SDK has it.
        instructions: its instructions to the model, if any. They are shown to nobody but who asks for them here.
    """

    name: str | None
    version: str | None
    protocol_version: str
    capabilities: ServerCapabilities
    instructions: str | None

    @property
    def supports(self) -> Supported:
        """What it can do, as booleans: ``info.supports.resources_subscribe``."""
        return supported_by(self.capabilities)


@frozen(kw_only=True)
class ServerStatus:
    """A snapshot of one server.

    Attributes:
        name: its configured name.
        state: its state.
        since: `trio.current_time` when it came into that state, in seconds.
        changed_at: when it came into that state, by the wall clock, in UTC.
        retry_at: when a ``failed`` server is retried (``RestartPolicy.park_retry``), in UTC; None if it is not.
        reason: why it is in that state, for people. While its process starts, that is the last line of its stderr.
        incarnation: which incarnation of its actor is on, or was the last, as events have it; 0 before the first.
        pid: its process, while it is connected over stdio.
        last_error: the last failure there was, also after it was overcome.
        failures: failed connects and lost connections since it last served.
        restarts: connects beyond the first.
        queued: requests that wait in its mailbox.
        in_flight: requests that are with it.
        tools: how many tools of it are shown, also if these are only remembered from an earlier run.
        health: the result of its health checks.
        latency: how many requests were answered and how many failed, and how long the answers took.
    """

    name: str
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
    health: HealthStatus
    latency: Latency


def require(capability: str, client: Client, server: str, operation: str) -> None:
    """Make sure that the server can do something before it is asked to.

    Args:
        capability: which of `Supported`.
        client: the session.
        server: the name of the server.
        operation: what is to be asked, in the words of the protocol.

    Raises:
        NotSupported: it cannot.
    """
    if getattr(supported_by(client.server_capabilities), capability):
        return
    raise NotSupported(
        f"server {server!r}: does not offer {capability.replace('_', '.', 1)}, so {operation} was not sent; "
        f"look at info.supports.{capability} first",
        server=server,
        capability=capability,
    )
