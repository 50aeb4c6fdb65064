"""References to servers: send requests, and ask for changes.

A ref outlives every connection, so it knows an actor only by its mailbox, and the server by its record. Changes are
wishes; the group carries them out, and this room imports no file of ``group``.
"""

from __future__ import annotations

from ._caller import PendingRequest as PendingRequest, RequestOptions as RequestOptions
from ._facts import ServerFacts as ServerFacts
from ._operations import (
    CarryOut as CarryOut,
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
