"""The parts of a server and its connections that last.

`ServerRecord` and its `ConnectionRecord`s (``_record``) put the parts together: the states and their reasons
(``_life``), what is wanted (``_wanted``), the health (``_health``), subscriptions and listeners (``_subscriptions``).
``_states`` has the events about servers and the states, ``_status`` the snapshots for programs.

Group, refs, connections and requests read the records, and write the parts that are theirs to write (see ``_record``);
``_failures`` and ``_watch`` use a few names, and the command line reads the masker and the filter of tools. The room
uses the deadlines, the rules, the catalogue and the eras of ``servers``, the transports, the configuration, names of
the ``catalog`` room, an error of the sign-in, and the kernel's events. It imports neither requests nor the connection,
but keeps and calls what a connection gives it: its link, its masker, its `Subscriber`, its functions. It sends no
request and starts no task; `open_incoming` opens the place where a connection starts its tasks. It emits events, which
runs the observers of the program, and logs.
"""

from __future__ import annotations

from ._health import ConnectionHealth as ConnectionHealth
from ._life import ConnectionLife as ConnectionLife, ServerLife as ServerLife
from ._record import (
    REPLICA as REPLICA,
    ConnectionRecord as ConnectionRecord,
    Retirement as Retirement,
    ServerRecord as ServerRecord,
    Session as Session,
    server_of as server_of,
)
from ._states import (
    ACTIVE as ACTIVE,
    CONNECTED as CONNECTED,
    FAILED as FAILED,
    PARKED as PARKED,
    STATES as STATES,
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
    Incoming as Incoming,
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
