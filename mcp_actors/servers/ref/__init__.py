"""References to servers, by which programs use, start, stop or reconnect servers.

This file only gathers names. A ref outlives every connection, so it holds the server's record and mailbox, and no
actor. The group carries out each wish to start, stop or reconnect a server (`Wish`).
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
