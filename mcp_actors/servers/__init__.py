"""MCP servers as supervised actors, alone and in groups.

`open_servers` yields a `ServerGroup`: a mapping of names to `ServerRef` objects, whose methods call tools, read
resources and control the server. Events say what happens to servers, and values such as `ServerStatus` are snapshots.
"""

# This file defines nothing. It publishes the names that programs may use, and sets their ``__module__`` (`publish`):
# `open_servers`, `ServerGroup`, `ServerRef`, the events, the values that their methods return, and `NotSupported`.
#
# Begin with the way of a request: ``ref`` is what users hold, ``requests`` are most of its messages, ``connection`` is
# the actor that carries them out, and ``record`` is what outlives connections. ``group`` makes one of many servers. The
# files next to these rooms have the protocol (``_session``, ``_dispatcher``, ``_eras``), decisions (``_rules``,
# ``_admission``), the deadlines of requests (``_deadlines``), what observers learn of them (``_attempts``), the tools
# of one server (``_catalog``), errors (``_failures``), and the sources of a group (``_sources``, ``_watch``).
#
# The folder uses the SDK (``mcp``), the kernel, the transports, the configuration, the catalogue, the sign-in, and of
# the single files of the package ``_backoff``, ``_collapse``, ``_errors``, ``_exports``, ``_foreign``, ``_misuse``,
# ``_tasks`` and ``_text``. It does not import asyncio, the bridge, the adapters or the command line. The façade, the
# bridge, the command line, ``testing`` and the plugin for pytest use it; the bridge also imports ``group`` and
# ``_sources``. Inside, imports go down only, in this order from the top: ``group``, ``_watch``, ``_sources``, ``ref``,
# ``connection``, ``_failures``, ``requests``, ``record``, ``_session``, ``_dispatcher``, ``_catalog``, ``_admission``,
# ``_deadlines``, ``_attempts``, ``_rules``, ``_eras``. The lasting state of a server is in its `ServerRecord`, which
# says who writes which part. All files are on the map in ``docs/design/index.md``.

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
