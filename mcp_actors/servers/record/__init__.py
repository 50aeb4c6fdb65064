"""The record of a server: data that outlive its connections.

This file only gathers names; ``Owns:`` to ``Calls:`` describe the folder. ``_record`` names the writer of each part.

Owns: the parts of records; tasks for notifications.
Writes: exit callbacks of links; errors, to remove tracebacks and credentials; events; the log. Runs listeners.
Calls: _health, _life, _record, _states, _status, _subscriptions, _wanted.
"""

from __future__ import annotations

from ._health import ConnectionHealth as ConnectionHealth
from ._life import ConnectionLife as ConnectionLife, ServerLife as ServerLife
from ._record import (
    REPLICA as REPLICA,
    ConnectionRecord as ConnectionRecord,
    KeptResources as KeptResources,
    Retirement as Retirement,
    ServerRecord as ServerRecord,
    SessionFacts as SessionFacts,
    server_of as server_of,
)
from ._states import (
    ACTIVE as ACTIVE,
    CONNECTED as CONNECTED,
    FAILED as FAILED,
    PARKED as PARKED,
    SERVER_STATES as SERVER_STATES,
    ConfigChanged as ConfigChanged,
    Drained as Drained,
    Draining as Draining,
    Flooded as Flooded,
    LimitReached as LimitReached,
    PromptsChanged as PromptsChanged,
    ReplicaChanged as ReplicaChanged,
    ResourcesChanged as ResourcesChanged,
    ServerAdded as ServerAdded,
    ServerEvent as ServerEvent,
    ServerRemoved as ServerRemoved,
    ServerState as ServerState,
    StateChanged as StateChanged,
    ToolsChanged as ToolsChanged,
    ToolsDiffer as ToolsDiffer,
)
from ._status import (
    Replicas as Replicas,
    ReplicaStatus as ReplicaStatus,
    ServerInfo as ServerInfo,
    ServerStatus as ServerStatus,
    Supported as Supported,
    require as require,
)
from ._subscriptions import (
    MessageRelay as MessageRelay,
    NotificationsMissed as NotificationsMissed,
    ResourceUpdated as ResourceUpdated,
    Subscription as Subscription,
    open_incoming as open_incoming,
)
from ._wanted import (
    UP as UP,
    Step as Step,
    Verdict as Verdict,
    Wanted as Wanted,
    configured as configured,
    due as due,
    has_older as has_older,
    left as left,
    restarted as restarted,
    rested as rested,
    started as started,
    stopped as stopped,
    used as used,
    verdict_of_ready as verdict_of_ready,
    verdict_of_start as verdict_of_start,
    verdict_of_stop as verdict_of_stop,
)
