"""What users hold of a server: a reference, valid across restarts, and the way of a request to its actor.

The group comes in. It may touch everything below, and knows of no other server.
"""

from __future__ import annotations

from ._lifecycle import (
    LifecycleActor as LifecycleActor,
    Reconnect as Reconnect,
    Supervised as Supervised,
    change as change,
)
from ._pending import PendingRequest as PendingRequest
from ._ref import ServerRef as ServerRef

__all__ = ["LifecycleActor", "PendingRequest", "Reconnect", "ServerRef", "Supervised", "change"]
