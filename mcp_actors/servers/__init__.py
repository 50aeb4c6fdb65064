"""MCP servers as supervised actors, alone and in groups.

This file only gathers the public names. `open_servers` yields a `ServerGroup`: a mapping of names to `ServerRef`
objects, whose methods call tools, read resources and control the server. Events report changes; values such as
`ServerStatus` are snapshots.
"""

# Begin with the way of a request: users hold a ``ref``, which sends messages to the actor in ``connection``. Most
# messages are in ``requests``. ``record`` outlives connections, and says who writes which part. ``group`` unites many
# servers. The files next to these packages hold the protocol, decisions, deadlines, errors and sources.
#
# Imports go down only, in the order of ``tests/test_layers.py``. All files are on the map in ``docs/design/index.md``.

from __future__ import annotations

from .._errors import NotSupported
from .._exports import publish
from ._admission import ToolChanges
from ._attempts import Attempt, CallObserver, ConnectionFacts
from ._deadlines import Latency
from ._rules import Health, HealthStatus
from ._sources import SourceStatus
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
    "Attempt",
    "CallObserver",
    "ConfigChanged",
    "ConfigRejected",
    "ConnectionFacts",
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
    "SourceStatus",
    "StateChanged",
    "Subscription",
    "Supported",
    "ToolChanges",
    "ToolsChanged",
    "ToolsDiffer",
    "open_servers",
]

publish(__name__, globals())
