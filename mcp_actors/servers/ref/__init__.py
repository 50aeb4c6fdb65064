"""References to servers, and the sending of requests.

The group comes in. It may touch everything below, and knows of no other server.
"""

from __future__ import annotations

from ._caller import PendingRequest as PendingRequest
from ._lifecycle import (
    Look as Look,
    Reconnect as Reconnect,
    Retire as Retire,
    ServerEntry as ServerEntry,
    Wish as Wish,
    reconnect as reconnect,
    restart as restart,
    take_back as take_back,
    tell as tell,
    wait_started as wait_started,
)
from ._ref import ServerRef as ServerRef
