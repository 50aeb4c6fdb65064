"""References to servers, and the sending of requests.

The group comes in. It may touch everything below, and knows of no other server.
"""

from __future__ import annotations

from ._lifecycle import (
    Change as Change,
    Reconnect as Reconnect,
    Retire as Retire,
    ServerEntry as ServerEntry,
    Start as Start,
    Stop as Stop,
    change as change,
    restart as restart,
    starting as starting,
    turns as turns,
)
from ._pending import PendingRequest as PendingRequest
from ._ref import ServerRef as ServerRef
