"""References to servers: how requests are sent, and changes asked for.

The group makes them, and programs hold them. This room may touch everything below: it puts requests into the mailbox of
an actor, changes what is wanted of a server, and reads the record. It knows of no other server, and of the group only
its supervisor and the actor that carries out changes.
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
    start_again as start_again,
    take_back as take_back,
    tell as tell,
    wait_started as wait_started,
)
from ._ref import ServerRef as ServerRef
