"""Report that a connection is unused or old.

One task per connection, if the server has an ``idle_timeout`` or a ``max_lifetime``. The group carries out what follows
(``group._lifecycle``), and checks the reason once more when it is the turn of that change.

Both limits have jitter, so that servers that were started together are not all stopped, or started anew, together: a
server is idle for up to a tenth longer, and lives up to a tenth shorter.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from ...record import ServerRecord

JITTER: Final = 0.1


async def report_lifetime(record: ServerRecord) -> None:
    """Call ``record.retire`` when the connection has been unused for too long, and when it is too old."""
    idle = (record.config.idle_timeout or math.inf) * (1.0 + JITTER * random.random())
    lifetime = (record.config.max_lifetime or math.inf) * (1.0 - JITTER * random.random())
    requests, subscriptions = record.calls.deadlines, record.subscriptions
    last_use = trio.current_time()
    old_at = last_use + lifetime
    requests.note_quiet = True
    while True:
        now = trio.current_time()
        last_use = max(last_use, requests.quiet_since, subscriptions.ended_at)
        if now >= old_at:
            record.retire("old")
            old_at = now + JITTER * lifetime  # if it is kept, because another replica is down
        elif now >= last_use + idle:
            record.retire("idle")
            last_use = now  # if it is in use after all
        await trio.sleep_until(min(old_at, last_use + idle))
