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

from .._errors import NotSupported
from .._exports import publish
from ._admission import ToolChanges
from ._deadlines import Latency
from ._rules import Health, HealthStatus
from ._watch import ConfigRejected
from .group import ReloadSummary, ServerGroup, open_servers
from .record import (
    ConfigChanged,
    Drained,
    Draining,
    Flooded,
    LimitReached,
    PromptsChanged,
    ReplicaChanged,
    Replicas,
    ReplicaStatus,
    ResourcesChanged,
    ResourceUpdated,
    ServerAdded,
    ServerEvent,
    ServerInfo,
    ServerRemoved,
    ServerState,
    ServerStatus,
    StateChanged,
    Subscription,
    Supported,
    ToolsChanged,
    ToolsDiffer,
)
from .ref import PendingRequest, ServerRef

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
