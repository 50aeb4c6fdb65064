"""MCP servers as supervised actors, alone and in groups.

Begin with the way of a request: ``ref`` is what users hold, ``requests`` are its messages, ``connection`` is the
actor that carries them out, ``record`` outlives connections. ``transports`` reach the server, ``policy`` has the
rules, ``tools`` the catalogue, and ``group`` makes one of many servers. All files are on the map in
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
