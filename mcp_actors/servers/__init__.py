"""MCP servers as supervised actors, alone and in groups.

Begin with the way of a request: ``ref`` is what users hold, ``requests`` are its messages, ``connection`` is the actor
that carries them out, and ``record`` is what outlives connections. ``group`` makes one of many servers. The files hold
what several of these rooms use: rules on plain data, deadlines, the tools of a server, its session, its errors, and the
sources of a group.

This room uses the kernel, the transports, the configuration, the catalogue and the sign-in, and what programs may use
of it is listed here. It knows nothing of asyncio, agent frameworks and the command line, which use it. Inside, a room
uses those below it only, from the top: group, ref, connection, requests, record (``tests/test_layers.py`` has the order
of all files). State of a server is in its record, and each part of that says who writes it. All files are on the map in
``docs/design/index.md``.
"""

from __future__ import annotations

from .._errors import NotSupported as NotSupported
from .._exports import publish
from ._admission import ToolChanges as ToolChanges
from ._deadlines import Latency as Latency
from ._rules import Health as Health, HealthStatus as HealthStatus
from ._watch import ConfigRejected as ConfigRejected
from .group import ReloadSummary as ReloadSummary, ServerGroup as ServerGroup, open_servers as open_servers
from .record import (
    ConfigChanged as ConfigChanged,
    Drained as Drained,
    Draining as Draining,
    Flooded as Flooded,
    LimitReached as LimitReached,
    PromptsChanged as PromptsChanged,
    ReplicaChanged as ReplicaChanged,
    Replicas as Replicas,
    ReplicaStatus as ReplicaStatus,
    ResourcesChanged as ResourcesChanged,
    ResourceUpdated as ResourceUpdated,
    ServerAdded as ServerAdded,
    ServerEvent as ServerEvent,
    ServerInfo as ServerInfo,
    ServerRemoved as ServerRemoved,
    ServerState as ServerState,
    ServerStatus as ServerStatus,
    StateChanged as StateChanged,
    Subscription as Subscription,
    Supported as Supported,
    ToolsChanged as ToolsChanged,
    ToolsDiffer as ToolsDiffer,
)
from .ref import PendingRequest as PendingRequest, ServerRef as ServerRef

__all__ = [
    "ConfigChanged",
    "ConfigRejected",
    "Drained",
    "Draining",
    "Flooded",
    "Health",
    "HealthStatus",
    "Latency",
    "LimitReached",
    "NotSupported",
    "PendingRequest",
    "PromptsChanged",
    "ReloadSummary",
    "ReplicaChanged",
    "ReplicaStatus",
    "Replicas",
    "ResourceUpdated",
    "ResourcesChanged",
    "ServerAdded",
    "ServerEvent",
    "ServerGroup",
    "ServerInfo",
    "ServerRef",
    "ServerRemoved",
    "ServerState",
    "ServerStatus",
    "StateChanged",
    "Subscription",
    "Supported",
    "ToolChanges",
    "ToolsChanged",
    "ToolsDiffer",
    "open_servers",
]

publish(__name__, globals())
